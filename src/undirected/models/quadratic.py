"""Quadratic energies of named binary variables or spins, as a factor graph that keeps the names."""

import sys
from collections.abc import Hashable, Mapping
from numbers import Real
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from undirected.core.errors import UndirectedError
from undirected.core.graph import from_edges
from undirected.core.layout import Block, Labels, Layout
from undirected.factors import Edges
from undirected.models.factor_graph import FactorGraph


def quadratic_model(
    linear: Mapping[Hashable, float],
    quadratic: Mapping[tuple[Hashable, Hashable], float] | None = None,
    offset: float = 0.0,
    *,
    spins: bool = False,
) -> FactorGraph:
    """The model with energy sum_i a_i x_i + sum_ij b_ij x_i x_j + offset: low energy is probable.

    Args:
        linear: `{variable: a}`; every variable of the model, with 0 where it has no such term.
        quadratic: `{(variable, variable): b}`, each pair once.
        offset: added to the energy of every state.
        spins: whether the variables take the values -1 and 1 instead of 0 and 1.

    Returns:
        A `FactorGraph` whose variables answer to their names.

    Example:
        >>> import undirected as un
        >>> model = un.quadratic_model({"a": -1, "b": 1}, {("a", "b"): 2})
        >>> un.query(model, given={"b": 0})
        {'a': {0: 0.2689414, 1: 0.7310586}}
    """
    if not (isinstance(linear, Mapping) and isinstance(quadratic or {}, Mapping)):
        raise UndirectedError(
            f"quadratic_model: got {linear!r:.40} and {quadratic!r:.40}; pass {{variable: a}} and "
            "{(variable, variable): b}"
        )
    numbers = [*linear.values(), *(quadratic or {}).values(), offset]
    if strange := [x for x in numbers if not _is_number(x)]:
        raise UndirectedError(
            f"quadratic_model: {strange[0]!r:.40} is no number that a double holds; pass numbers"
        )
    place = {name: i for i, name in enumerate(linear)}
    pairs = dict(quadratic or {})
    ends = np.asarray([_ends(place, pair) for pair in pairs], int).reshape(-1, 2)
    a, b = (np.asarray(list(terms.values()), float) for terms in (linear, pairs))
    if not (len(a) and np.isfinite([*a, *b, offset]).all()):
        raise UndirectedError(
            f"quadratic_model: got {len(a)} linear and {len(b)} quadratic terms, or numbers that "
            "are not finite; pass at least one variable, and finite numbers"
        )
    if spins:  # s = 2x - 1
        at_ends = np.bincount(ends.ravel(), np.repeat(b, 2), len(a))
        a, b, offset = 2 * a - 2 * at_ends, 4 * b, offset - a.sum() + b.sum()
    words = tuple((-1, 1) if spins else None for _ in place)
    labels = Labels(tuple(place), words, tuple(range(len(place))))
    layout = Layout((Block("variables", 0, len(place)),), labels)
    groups = [Edges(jnp.asarray(-b), from_edges(len(place), ends))] if len(ends) else []
    graph = FactorGraph.create(layout, groups, jnp.asarray(-a))
    return eqx.tree_at(lambda g: g.offset, graph, jnp.asarray(-offset, graph.unary.dtype))


def _ends(place: dict[Hashable, int], pair: Any) -> tuple[int, int]:
    """The numbers of the variables of a quadratic term."""
    if not isinstance(pair, tuple) or len(pair) != 2 or any(name not in place for name in pair):
        raise UndirectedError(
            f"quadratic_model: the term {pair!r:.60} does not join two variables of `linear`; pass "
            "(variable, variable), and a linear term, 0 perhaps, for each"
        )
    return place[pair[0]], place[pair[1]]


def _is_number(x: Any) -> bool:
    """Whether a double holds it: whole numbers of Python know no bounds."""
    if isinstance(x, int):
        return abs(x) <= sys.float_info.max
    return isinstance(x, Real | np.ndarray | jax.Array)
