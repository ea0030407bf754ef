"""Explicit tables of different shapes, padded into one: many cardinalities, one program."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import ArrayLike

from undirected.core.errors import UndirectedError
from undirected.core.layout import Layout, Variables
from undirected.core.numerics import NEG_INF, is_traced
from undirected.factors.base import Messages, TableGroup, Temperature
from undirected.factors.incidence import UNUSED, Incidence, check_scopes, connect
from undirected.factors.sums import along, sum_axes
from undirected.factors.wired import Wired

Shape = tuple[int, ...]

ROOM = 2**15
"""Padding for which a class less is worth while: a thousand rounds of messages through so many
entries take as long as the compilation of one class."""


class MixedTables(Wired):
    """Tables of one number of variables, whose numbers of states differ, padded to one shape.

    `weight` is (F, *states); states that a variable does not have are forbidden. Every variable of
    a factor has as many slots as the longest axis has states. A slot without a unit stands for a
    state that does not exist or, if it is the first, for state 0 of a binary variable.

    `runs` has the true shape of the tables, one run of equal tables after the other, and how many
    they are.
    """

    weight: Float[Array, "F *states"]
    incidence: Incidence | None
    states: Shape = eqx.field(static=True)
    runs: tuple[tuple[Shape, int], ...] = eqx.field(static=True)

    @property
    def order(self) -> int:
        return len(self.states)

    def check(self, layout: Layout) -> None:
        """Tables and slots must have the padded shape."""
        super().check(layout)
        count = sum(number for _, number in self.runs)
        if self.weight.shape != (count, *self.states):
            raise UndirectedError(
                f"MixedTables: a weight of shape {self.weight.shape} for {count} factors of "
                f"{self.states} states"
            )

    def statistic(self, layout: Layout, x: Float[Array, " n"]) -> "MixedTables":
        slots = self._by_variable(self.wires.spread(x))
        zero = jnp.where(self._binary(), 1 - slots[:, 1], slots[:, 0])
        sides = self._sides(jnp.concatenate([zero[:, None], slots[:, 1:]], 1))
        return self.as_beliefs(jnp.moveaxis(reduce(jnp.multiply, sides), -1, 0))

    def scopes(self, layout: Layout) -> list[Int[np.ndarray, "F d"]]:
        return [np.asarray(self._owners(layout, np.asarray(self.wires.units)))]

    def tables(self, layout: Layout, most: int) -> list[TableGroup]:
        """Each run by itself, without the padding."""
        # Outside of a program NumPy cuts them out: JAX would compile each cut.
        xp = jnp if is_traced(self) else np
        weight, units = (xp.asarray(a) for a in (self.weight, self.wires.units))
        scopes = self._owners(layout, units)
        found, at = [], 0
        for shape, count in self.runs:
            own = weight[(slice(at, at + count), *map(slice, shape))]
            found.append(TableGroup(scopes[at : at + count], own))  # type: ignore[arg-type]
            at += count
        return found

    def from_tables(self, layout: Layout, shares: Sequence[Array]) -> "MixedTables":
        xp = jnp if is_traced(shares) else np
        padded = []
        for share in shares:
            lacking = zip(self.states, share.shape[1:], strict=True)
            padded.append(xp.pad(share, [(0, 0), *((0, k - own) for k, own in lacking)]))
        return self.as_beliefs(jnp.asarray(xp.concatenate(padded), self.weight.dtype))

    def each(
        self, weight: Float[np.ndarray, "F *states"]
    ) -> list[Float[np.ndarray, "*own_states"]]:
        """The table of every factor, of a weight of this group's shape."""
        cuts = [tuple(map(slice, shape)) for shape, count in self.runs for _ in range(count)]
        return [table[cut] for table, cut in zip(weight, cuts, strict=True)]

    def joined(
        self, each: Sequence[Float[np.ndarray, "*own_states"]]
    ) -> Float[np.ndarray, "F *states"]:
        """A weight of this group's shape, of a table for every factor; padded with 0."""
        found = np.zeros((len(each), *self.states))
        for own, table in zip(found, each, strict=True):
            own[tuple(map(slice, table.shape))] = table
        return found

    def prepare(self) -> "MixedTablesLast":
        return MixedTablesLast(self._table_last(), self.incidence, self.states, self.runs)

    def factor_messages(
        self, cavity: Float[Array, "W F"], temperature: Temperature
    ) -> Float[Array, "W F"]:
        table, sides, order = self._table_last(), self._sides(self._levels(cavity)), self.order
        found = []
        for i, states in enumerate(self.states):
            rest = reduce(jnp.add, sides[:i] + sides[i + 1 :], table)
            to_states = sum_axes(rest, tuple(j for j in range(order) if j != i), temperature)
            lacking = [(0, max(self.states) - states), (0, 0)]
            found.append(jnp.pad(to_states, lacking, constant_values=NEG_INF))
        each = jnp.stack(found)
        level = jnp.where(self._binary(), each[:, 0], each.max(1))
        return jnp.where(self._has_unit(), (each - level[:, None]).reshape(cavity.shape), 0.0)

    def factor_beliefs(
        self, cavity: Float[Array, "W F"], temperature: Temperature
    ) -> tuple["MixedTables", Float[Array, " F"]]:
        joint = reduce(jnp.add, self._sides(self._levels(cavity)), self._table_last())
        log_z = sum_axes(joint, tuple(range(self.order)), temperature)
        over = log_z.reshape((1,) * self.order + log_z.shape)
        shares = jnp.exp((joint - over) / temperature)
        return self.as_beliefs(jnp.moveaxis(shares, -1, 0)), log_z

    def slot_normalisers(
        self, cavity: Float[Array, "W F"], sent: Float[Array, "W F"], temperature: Temperature
    ) -> Float[Array, " F"]:
        levels = self._levels(cavity) + self._by_variable(sent)
        return sum_axes(levels, (1,), temperature).sum(0)

    def as_beliefs(self, weight: Array | None) -> "MixedTables":
        return MixedTables(weight, None, self.states, self.runs)  # type: ignore[arg-type]

    def _cavity(self, total: Float[Array, " n"], messages: Messages) -> Float[Array, "W F"]:
        """State 0 of a binary variable is at 0, and what does not exist is forbidden."""
        absent = np.full((self.order, max(self.states)), NEG_INF)
        absent[:, 0] = 0.0
        fields = self.wires.spread(total) - messages.forward
        return jnp.where(self._has_unit(), fields, jnp.asarray(absent.reshape(-1, 1), fields.dtype))

    def _by_variable(self, slots: Float[Array, "W F"]) -> Float[Array, "d K F"]:
        return slots.reshape(self.order, max(self.states), slots.shape[1])

    def _levels(self, cavity: Float[Array, "W F"]) -> Float[Array, "d K F"]:
        """One number per state of every variable, the largest 0."""
        found = self._by_variable(cavity)
        return found - found.max(1, keepdims=True)

    def _sides(self, levels: Float[Array, "d K F"]) -> list[Array]:
        """The states of every variable along an axis of their own."""
        return [along(levels[i, :k], i, self.order) for i, k in enumerate(self.states)]

    def _has_unit(self) -> Bool[Array, "W F"]:
        return self.wires.units < self.wires.n

    def _binary(self) -> Bool[Array, "d F"]:
        """Which variables are binary: their state 0 has no unit."""
        return self.wires.units[:: max(self.states)] == self.wires.n

    def _owners(self, layout: Layout, units: Any) -> Any:
        """The variables of every factor (F, d): all of them have a unit for state 1."""
        owner = layout.variables.owner
        return (owner if isinstance(units, np.ndarray) else jnp.asarray(owner))[
            units[1 :: max(self.states)]
        ].T

    def _table_last(self) -> Float[Array, "*states F"]:
        return jnp.moveaxis(self.weight, 0, -1)


class MixedTablesLast(MixedTables):
    """Tables whose factors are on the last axis of the weight, as messages want them."""

    def _table_last(self) -> Float[Array, "*states F"]:
        return self.weight


def mixed_tables(
    layout: Layout, scopes: ArrayLike, weights: Sequence[Float[np.ndarray, "*states"]]
) -> MixedTables:
    """Factors of one number of variables, with a table of its own shape for each.

    Args:
        layout: the layout of the model.
        scopes: (F, d), the variables of each factor, numbered block after block of the layout.
        weights: F tables of log-potentials, one axis for each variable; -inf forbids a state.

    Returns:
        A group for `FactorGraph.create`. Its factors are sorted by the shapes of their tables.
    """
    variables = Variables.of(layout)
    found = check_scopes("mixed_tables", variables, scopes)
    if not len(found) or len(weights) != len(found) or (found == UNUSED).any():
        raise UndirectedError(
            f"mixed_tables: {len(weights)} tables for scopes of shape {found.shape}; pass at least "
            "one factor, one table for each, and all variables"
        )
    for f, (own, table) in enumerate(zip(found, weights, strict=True)):
        wanted = tuple(variables.states[own].tolist())
        if np.shape(table) != wanted:
            raise UndirectedError(
                f"mixed_tables: table {f} has shape {np.shape(table)}; its variables have {wanted} "
                "states"
            )
    order = sorted(range(len(found)), key=lambda f: np.shape(weights[f]))
    shapes = np.array([np.shape(weights[f]) for f in order])
    states: Shape = tuple(shapes.max(0).tolist())
    padded = np.full((len(order), *states), NEG_INF, jnp.result_type(float))
    runs: dict[Shape, int] = {}
    for row, f in enumerate(order):
        shape = np.shape(weights[f])
        runs[shape] = runs.get(shape, 0) + 1
        padded[(row, *map(slice, shape))] = np.maximum(weights[f], NEG_INF)
    units = _units(layout, found[order], states)
    return MixedTables(jnp.asarray(padded), connect(layout, units), states, tuple(runs.items()))


def _units(layout: Layout, scopes: Int[np.ndarray, "F d"], states: Shape) -> np.ndarray:
    """The unit of every state of every variable, slots first; n where there is none."""
    variables, found = layout.variables, []
    for own in scopes.T:
        state = np.arange(max(states))[:, None]
        binary = variables.width[own] == 1
        unit = variables.first[own] + np.where(binary, 0, state)
        there = np.where(binary, state == 1, state < variables.states[own])
        found.append(np.where(there, unit, layout.n))
    return np.concatenate(found)


def size_classes(counts: dict[Shape, int]) -> list[list[Shape]]:
    """Shapes of one number of axes that are padded to the same, as few classes as may be.

    Neighbours in the order of shapes are joined as long as that adds little padding, and there is
    at most as much of it as there are entries.
    """
    classes = [[shape] for shape in sorted(counts)]
    most = np.array(sorted(counts), float)
    number = np.array([counts[shape] for shape in sorted(counts)], float)
    room = max(ROOM, float(most.prod(1) @ number))
    while len(classes) > 1:
        both = np.maximum(most[1:], most[:-1])
        own = most.prod(1) * number
        added = both.prod(1) * (number[1:] + number[:-1]) - own[1:] - own[:-1]
        at = int(added.argmin())
        if added[at] > min(room, ROOM):
            break
        room -= added[at]
        classes[at : at + 2] = [classes[at] + classes[at + 1]]
        most = np.concatenate([most[:at], both[at : at + 1], most[at + 2 :]])
        total = number[at : at + 2].sum(keepdims=True)
        number = np.concatenate([number[:at], total, number[at + 2 :]])
    return classes
