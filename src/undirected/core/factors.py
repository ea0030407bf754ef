"""Factor groups of any order on discrete variables: tables, logic, pools and counts.

A group holds all factors of one shape as arrays, and is made from index arrays by the functions at
the end. Its beliefs are a group of the same class with a `weight` and without the wiring.
"""

from functools import reduce

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike

from undirected.core.errors import UndirectedError
from undirected.core.layout import Layout
from undirected.core.numerics import NEG_INF
from undirected.core.potentials import pairing, statistic
from undirected.core.wiring import (
    NOBODY,
    Variables,
    Wiring,
    binary_units,
    check_scopes,
    check_states,
    wire,
)


class Wired(eqx.Module):
    """A group whose factors send messages along a wiring; beliefs about it carry none."""

    weight: Array | None
    wiring: Wiring | None

    @property
    def wires(self) -> Wiring:
        """The wiring of a group of potentials."""
        if self.wiring is None:
            raise UndirectedError(
                f"{type(self).__name__}: this group holds beliefs; pass the potentials"
            )
        return self.wiring


class Tables(Wired):
    """A log-potential for every joint state of a few variables.

    `weight` is (F, *states), or (*states) where all factors share one table. A binary variable
    takes one slot of the wiring, a categorical one as many as it has states (`widths`).
    """

    weight: Float[Array, "..."]
    wiring: Wiring | None
    states: tuple[int, ...] = eqx.field(static=True)
    widths: tuple[int, ...] = eqx.field(static=True)

    @property
    def shared(self) -> bool:
        return self.weight.ndim == len(self.states)


class Logic(Wired):
    """Hard constraints: the last slot is the OR (or, where `conjunction`, the AND) of the others.

    In beliefs, `weight` is the expected violation of each factor.
    """

    weight: Float[Array, " F"] | None
    wiring: Wiring | None
    conjunction: bool = eqx.field(static=True, default=False)

    @property
    def idle(self) -> float:
        """The value of a parent that changes nothing."""
        return 1.0 if self.conjunction else 0.0


class Pool(Wired):
    """Hard constraints: exactly one of the choices is 1 where the last slot is 1, else none.

    In beliefs, `weight` is the expected violation of each factor.
    """

    weight: Float[Array, " F"] | None
    wiring: Wiring | None


class Count(Wired):
    """A log-potential for the number of members that are 1; more than the last entry is forbidden.

    `weight` is (F, K + 1), or (K + 1) where all factors share it. In beliefs it is the distribution
    of the number, and `excess` the expected number of factors with more than K.
    """

    weight: Float[Array, "..."]
    wiring: Wiring | None
    excess: Float[Array, ""] | None = None


def means_of(factor: Wired, weight: Array | None) -> Wired:
    """Beliefs about a group from its expected statistic; hard constraints are kept."""
    match factor:
        case Logic() | Pool():
            weight = jnp.zeros(factor.wires.n_factors)
    kept = eqx.tree_at(lambda f: (f.weight, f.wiring), factor, (weight, None), is_leaf=_is_none)
    if isinstance(kept, Count):
        return Count(kept.weight, None, jnp.zeros(()))
    return kept


def _is_none(leaf: object) -> bool:
    return leaf is None


def one_hot(factor: Tables, slots: Float[Array, "W F"]) -> list[Float[Array, "k F"]]:
    """Indicators of the states of every variable of the factors, from their slots."""
    parts, start = [], 0
    for width in factor.widths:
        part = slots[start : start + width]
        parts.append(part if width > 1 else jnp.concatenate([1 - part, part]))
        start += width
    return parts


def along(part: Array, axis: int, order: int) -> Array:
    """An array (k, F) as one with k on this axis of `order` and F on the last."""
    shape = [1] * order + [part.shape[1]]
    shape[axis] = part.shape[0]
    return part.reshape(shape)


@statistic.register
def _(factor: Tables, layout: Layout, x: Float[Array, " n"]) -> Tables:
    parts = one_hot(factor, factor.wires.spread(x))
    order = len(parts)
    joint = reduce(jnp.multiply, [along(part, i, order) for i, part in enumerate(parts)])
    return expected_table(factor, joint)


def expected_table(factor: Tables, joint: Float[Array, "*states F"]) -> Tables:
    """Beliefs about tables from the joint distribution of each factor."""
    weight = joint.sum(-1) if factor.shared else jnp.moveaxis(joint, -1, 0)
    return Tables(weight, None, factor.states, factor.widths)


@statistic.register
def _(factor: Logic, layout: Layout, x: Float[Array, " n"]) -> Logic:
    *parents, child = factor.wires.spread(x, factor.idle)
    sides = jnp.stack(parents)
    value = sides.prod(0) if factor.conjunction else 1 - (1 - sides).prod(0)
    return Logic(_distance(value, child), None, factor.conjunction)


@statistic.register
def _(factor: Pool, layout: Layout, x: Float[Array, " n"]) -> Pool:
    slots = factor.wires.spread(x)
    return Pool(_distance(slots[:-1].sum(0), slots[-1]), None)


def _distance(a: Array, b: Array) -> Array:
    """|a - b|, whose slope is 0 where both are equal: a constraint that holds pulls nowhere."""
    return jnp.sign(a - b) * (a - b)


@statistic.register
def _(factor: Count, layout: Layout, x: Float[Array, " n"]) -> Count:
    count = factor.wires.spread(x).sum(0)
    hits = jnp.abs(count[:, None] - jnp.arange(factor.weight.shape[-1])[None]) < 0.5
    weight = hits.astype(x.dtype)
    over = (count > factor.weight.shape[-1] - 0.5).sum().astype(x.dtype)
    return Count(weight if factor.weight.ndim == 2 else weight.sum(0), None, over)


@pairing.register
def _(natural: Logic, mean: Logic) -> Float[Array, ""]:
    return NEG_INF * jnp.sum(jnp.asarray(mean.weight))


@pairing.register
def _(natural: Pool, mean: Pool) -> Float[Array, ""]:
    return NEG_INF * jnp.sum(jnp.asarray(mean.weight))


@pairing.register
def _(natural: Count, mean: Count) -> Float[Array, ""]:
    forbidden = jnp.zeros(()) if mean.excess is None else NEG_INF * mean.excess
    return jnp.sum(natural.weight * mean.weight) + forbidden


def tables(layout: Layout, scopes: ArrayLike, weight: ArrayLike) -> Tables:
    """Factors on the variables in the rows of `scopes` (F, d), with tables (F, *states) or one.

    Variables are numbered block after block of the layout. An entry of -inf forbids a state.
    """
    variables = Variables.of(layout)
    found = check_scopes("tables", variables, scopes)
    count, order = found.shape
    if (found == NOBODY).any():
        raise UndirectedError("tables: a variable is -1; every factor of a group has all variables")
    table = jnp.maximum(jnp.asarray(weight, float), NEG_INF)
    if table.ndim not in (order, order + 1) or (table.ndim == order + 1 and len(table) != count):
        raise UndirectedError(
            f"tables: {count} factors of {order} variables, but a weight of shape {table.shape}; "
            f"pass one axis per variable, or ({count}, one axis per variable)"
        )
    states = table.shape[-order:]
    check_states("tables", variables, found, states)
    widths = variables.width[found[0]] if count else np.asarray([k if k > 2 else 1 for k in states])
    if count and (variables.width[found] != widths[None]).any():
        raise UndirectedError("tables: binary and two-state categorical variables in one column")
    units = [
        variables.first[found[:, slot]] + step
        for slot, width in enumerate(widths)
        for step in range(width)
    ]
    wiring = wire(layout, np.stack(units) if units else np.zeros((0, count), np.int64))
    return Tables(table, wiring, states, tuple(int(w) for w in widths))


def logical_or(layout: Layout, parents: ArrayLike, child: ArrayLike) -> Logic:
    """child = OR of parents (F, d) for every factor; -1 fills rows with fewer parents."""
    return Logic(None, _family("logical_or", layout, parents, child))


def logical_and(layout: Layout, parents: ArrayLike, child: ArrayLike) -> Logic:
    """child = AND of parents (F, d) for every factor; -1 fills rows with fewer parents."""
    return Logic(None, _family("logical_and", layout, parents, child), conjunction=True)


def pool(layout: Layout, choices: ArrayLike, indicator: ArrayLike) -> Pool:
    """Exactly one of the choices (F, d) is on where the indicator is, otherwise none."""
    return Pool(None, _family("pool", layout, choices, indicator))


def count(layout: Layout, members: ArrayLike, weight: ArrayLike) -> Count:
    """Log-potentials weight[k] of k members on, (K + 1) or (F, K + 1); more than K is forbidden."""
    found = check_scopes("count", Variables.of(layout), members)
    table = jnp.maximum(jnp.asarray(weight, float), NEG_INF)
    if table.ndim not in (1, 2) or (table.ndim == 2 and len(table) != len(found)):
        raise UndirectedError(
            f"count: {len(found)} factors, but a weight of shape {table.shape}; pass (K + 1,) or "
            f"({len(found)}, K + 1)"
        )
    if not 1 <= table.shape[-1] <= found.shape[1] + 1:
        raise UndirectedError(
            f"count: {table.shape[-1]} log-potentials for {found.shape[1]} members; pass between 1 "
            f"and {found.shape[1] + 1}, for 0, 1, ... members on"
        )
    return Count(table, wire(layout, binary_units("count", layout, found)))


def at_most(layout: Layout, members: ArrayLike, limit: int) -> Count:
    """No more than `limit` of the members (F, d) of each factor are on."""
    if limit < 0:
        raise UndirectedError(f"at_most: the limit is {limit}; pass 0 or more")
    return count(layout, members, np.zeros(min(limit, np.shape(members)[-1]) + 1))


def _family(caller: str, layout: Layout, parents: ArrayLike, child: ArrayLike) -> Wiring:
    """The wiring of factors with many slots of one kind and one of another at the end."""
    many, one = np.asarray(parents), np.asarray(child)
    if many.ndim != 2 or many.shape[1] < 1 or one.shape != many.shape[:1]:
        raise UndirectedError(
            f"{caller}: got variables of shape {many.shape} and {one.shape}; pass (factors, at "
            "least one) and (factors,)"
        )
    both: Int[np.ndarray, "F d"] = np.concatenate([many, one[:, None]], 1)
    found = check_scopes(caller, Variables.of(layout), both)
    empty = (found[:, :-1] == NOBODY).all(1) | (found[:, -1] == NOBODY)
    if empty.any():
        raise UndirectedError(
            f"{caller}: factor {np.flatnonzero(empty)[0]} lacks its last variable or all others"
        )
    return wire(layout, binary_units(caller, layout, found))
