"""Colours of variables: those of one colour share no factor, and may be updated together."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.graph import colour_sites, members
from undirected.core.layout import Layout
from undirected.factors.base import Factor

MOST_PAIRS = 2**22
"""Pairs of variables beyond which no colouring is looked for."""


def colour_variables(layout: Layout, factors: Sequence[Factor]) -> Int[Array, "C m"] | None:
    """The units of every colour, padded with n; None where the groups join too many pairs.

    Also None for a group that does not say which variables its factors join.
    """
    try:
        pairs = joined_pairs(layout, factors)
    except UnsupportedFactor:
        return None
    if pairs is None:
        return None
    return jnp.asarray(units_by_colour(layout, colour_sites(len(layout.variables), pairs)))


def joined_pairs(layout: Layout, factors: Sequence[Factor]) -> Int[np.ndarray, "E 2"] | None:
    """Each pair of variables that share a factor, once; None where they are too many."""
    found = [np.zeros((0, 2), np.int64)]
    for scopes in (scope for factor in factors for scope in factor.scopes(layout)):
        i, j = np.triu_indices(scopes.shape[1], 1)
        if len(i) * len(scopes) > MOST_PAIRS:
            return None
        found.append(np.stack([scopes[:, i].ravel(), scopes[:, j].ravel()], 1))
    pairs = np.sort(np.concatenate(found), 1)
    return np.unique(pairs[pairs[:, 0] >= 0], axis=0)


def units_by_colour(layout: Layout, colour: Int[np.ndarray, " variables"]) -> np.ndarray:
    """The units of the variables of every colour, one row a colour, padded with n."""
    each = colour[layout.variables.owner]
    return members(each, int(each.max(initial=-1)) + 1, fill=layout.n)


def check_colours(
    caller: str, layout: Layout, factors: Sequence[Factor], colours: Sequence[int]
) -> None:
    """Refuse a colouring of the wrong length, or one that gives neighbours the same colour."""
    colour = np.asarray(colours)
    if colour.shape != (len(layout.variables),) or (colour < 0).any():
        raise UndirectedError(
            f"{caller}: {colour.size} colours for {len(layout.variables)} variables; pass one "
            "number, 0 or more, for each variable"
        )
    pairs = joined_pairs(layout, factors)
    if pairs is None:
        return
    same = colour[pairs[:, 0]] == colour[pairs[:, 1]]
    if same.any():
        a, b = pairs[same][0].tolist()
        raise UndirectedError(
            f"{caller}: variables {a} and {b} share a factor and both have colour {colour[a]}; "
            "give neighbours different colours"
        )
