"""Which unit sits in which slot of which factor: integer arrays, built vectorised, checked once."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike

from undirected.core.errors import UndirectedError
from undirected.core.layout import Layout, Variables

UNUSED = -1
"""The variable of a slot in a factor that has fewer variables than its neighbours."""

PADDING = 4096
"""Padding allowed before units are split into another degree class."""


class Incidence(eqx.Module):
    """The units of W slots of F factors, slots first, and how slots are summed at the units.

    A slot that is not used holds n. `incoming` has one table per class of like degree: the slots
    (numbered row-major) that end in each unit of the class, padded with W * F; `places` says where
    the sum of each unit is found among all of them. All arrays are data under jit.
    """

    units: Int[Array, "W F"]
    incoming: tuple[Int[Array, "m D"], ...]
    places: Int[Array, " n"]
    n: int = eqx.field(static=True)

    @property
    def n_factors(self) -> int:
        return self.units.shape[1]

    def spread(self, x: Float[Array, " n"], fill: float = 0.0) -> Float[Array, "W F"]:
        """The value of its unit for every slot, `fill` where a slot is not used."""
        slots = x.at[self.units]
        return slots.get(mode="fill", fill_value=fill, wrap_negative_indices=False)

    def gather(self, messages: Float[Array, "W F"]) -> Float[Array, " n"]:
        """Sum of the messages that enter each unit."""
        nothing = jnp.zeros(1, messages.dtype)
        flat = jnp.concatenate([messages.reshape(-1), nothing])
        sums = [_pick(flat, table).sum(1) for table in self.incoming]
        return _pick(jnp.concatenate([*sums, nothing]), self.places)


def _pick(x: Array, places: Int[Array, "*places"]) -> Array:
    """x[places] where every place exists, so that nothing is checked."""
    return x.at[places].get(mode="promise_in_bounds", wrap_negative_indices=False)


def even_rows(caller: str, scopes: ArrayLike) -> np.ndarray:
    """The variables of each factor as an array; factors of different sizes are told."""
    try:
        return np.asarray(scopes)
    except ValueError:
        raise UndirectedError(
            f"{caller}: the factors have different numbers of variables; make one group of those "
            "of each number"
        ) from None


def check_scopes(
    caller: str, variables: Variables, scopes: ArrayLike, arity: int | None = None
) -> Int[np.ndarray, "F d"]:
    """The variables of each factor as integers (F, d): existing ones, none twice in a factor."""
    found = even_rows(caller, scopes)
    if found.ndim != 2 or (arity is not None and found.shape[1] != arity):
        wanted = f"(factors, {'variables' if arity is None else arity})"
        raise UndirectedError(f"{caller}: scopes have shape {found.shape}; pass {wanted}")
    if len(found) and not found.shape[1]:
        raise UndirectedError(f"{caller}: factors of no variables; pass at least one for each")
    if found.size and not np.issubdtype(found.dtype, np.integer):
        raise UndirectedError(f"{caller}: scopes are {found.dtype}; pass integer variable numbers")
    found = found.astype(np.int64)
    loose = (found != UNUSED) & ((found < 0) | (found >= len(variables)))
    if loose.any():
        row, slot = np.argwhere(loose)[0]
        raise UndirectedError(
            f"{caller}: factor {row} names variable {found[row, slot]}; the layout has variables "
            f"0..{len(variables) - 1}"
        )
    ordered = np.sort(found, 1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != UNUSED)
    if twice.any():
        row, slot = np.argwhere(twice)[0]
        raise UndirectedError(
            f"{caller}: factor {row} names variable {ordered[row, slot + 1]} more than once"
        )
    return found


def check_states(
    caller: str, variables: Variables, scopes: Int[np.ndarray, "F d"], wanted: tuple[int, ...]
) -> None:
    """Every variable must have as many states as its axis of the table."""
    got = variables.states[scopes]
    wrong = (got != np.asarray(wanted)[None]) & (scopes != UNUSED)
    if wrong.any():
        row, slot = np.argwhere(wrong)[0]
        raise UndirectedError(
            f"{caller}: variable {scopes[row, slot]} of factor {row} has {got[row, slot]} states, "
            f"axis {slot} of the factor has {wanted[slot]}; put factors of other shapes into a "
            "group of their own"
        )


def connect(layout: Layout, units: Int[np.ndarray, "W F"]) -> Incidence:
    """The incidence of slots whose units are given; n stands for a slot that is not used."""
    n = layout.n
    flat = units.reshape(-1)
    used = np.flatnonzero(flat < n)
    order = used[np.argsort(flat[used], kind="stable")]
    degree = np.bincount(flat[used], minlength=n)
    start = np.cumsum(degree) - degree
    klass = np.where(degree > 0, _classes(degree, len(used) + PADDING), -1)
    tables, places, position = [], np.zeros(n, np.int64), 0
    for k in np.unique(klass[klass >= 0]):
        members = np.flatnonzero(klass == k)
        column = np.arange(degree[members].max())[None]
        inside = column < degree[members, None]
        slots = order[np.where(inside, start[members, None] + column, 0)]
        tables.append(jnp.asarray(np.where(inside, slots, flat.size), jnp.int32))
        places[members] = position + np.arange(len(members))
        position += len(members)
    places[klass < 0] = position
    return Incidence(
        jnp.asarray(units, jnp.int32), tuple(tables), jnp.asarray(places, jnp.int32), layout.n
    )


def _classes(degree: Int[np.ndarray, " n"], room: int) -> Int[np.ndarray, " n"]:
    """Classes of like degree: as few as `room` slots allow, where all of a class have its most."""
    found = np.zeros_like(degree)
    for doublings in (64, 4, 2, 1):
        found = (np.log2(np.maximum(degree, 1)) // doublings).astype(int)
        most = np.zeros(found.max(initial=0) + 1, int)
        np.maximum.at(most, found, degree)
        if most[found[degree > 0]].sum() <= room:
            break
    return found


def binary_units(
    caller: str, layout: Layout, scopes: Int[np.ndarray, "F d"]
) -> Int[np.ndarray, "d F"]:
    """The unit of every binary variable of every factor, slots first, n for `UNUSED`."""
    variables = Variables.of(layout)
    wide = (variables.width[scopes] != 1) & (scopes != UNUSED)
    if wide.any():
        row, slot = np.argwhere(wide)[0]
        raise UndirectedError(
            f"{caller}: variable {scopes[row, slot]} of factor {row} is categorical with "
            f"{variables.states[scopes[row, slot]]} states; this factor takes binary variables"
        )
    return np.where(scopes == UNUSED, layout.n, variables.first[scopes]).T
