"""Explicit tables: a log-potential for every joint state of a few discrete variables."""

from collections.abc import Sequence
from functools import reduce

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from undirected.core.errors import UndirectedError
from undirected.core.layout import Layout, Variables
from undirected.core.numerics import NEG_INF
from undirected.factors.base import Pairs, TableGroup, Temperature
from undirected.factors.incidence import (
    UNUSED,
    Incidence,
    check_scopes,
    check_states,
)
from undirected.factors.sums import along, sum_axes
from undirected.factors.wired import WiredStates, state_units


class Tables(WiredStates):
    """A log-potential for every joint state of a few variables.

    `weight` is (F, *states), or (*states) where all factors share one table. A binary variable
    takes one slot of the incidence, a categorical one as many as it has states (`widths`).
    """

    weight: Float[Array, "..."]
    incidence: Incidence | None
    states: tuple[int, ...] = eqx.field(static=True)
    widths: tuple[int, ...] = eqx.field(static=True)

    @property
    def shared(self) -> bool:
        return self.weight.ndim == len(self.states)

    def check(self, layout: Layout) -> None:
        """The tables must have the states of the variables that the slots belong to."""
        super().check(layout)
        slots, count = self.wires.units.shape
        shapes = [self.states, (count, *self.states)]
        if self.weight.shape not in shapes or sum(self.widths) != slots:
            raise UndirectedError(
                f"Tables: a weight of shape {self.weight.shape} for {count} factors on {slots} "
                f"slots; the states {self.states} ask for {shapes[0]} or {shapes[1]}, and the "
                f"widths {self.widths} for {sum(self.widths)} slots"
            )

    def statistic(self, layout: Layout, x: Float[Array, " n"]) -> "Tables":
        parts = self.one_hot(self.wires.spread(x))
        order = len(parts)
        joint = reduce(jnp.multiply, [along(part, i, order) for i, part in enumerate(parts)])
        return self._expected(joint)

    def pairs(self, layout: Layout) -> Pairs:
        """Tables of two binary variables: t00 + (t10 - t00) x + (t01 - t00) y + (...) x y."""
        if self.states != (2, 2) or self.widths != (1, 1):
            raise self._refusal("pairs (that takes tables of two binary variables)")
        table = self._table_last()
        t00, t01, t10, t11 = (
            jnp.broadcast_to(table[a, b], self.wires.units.shape[1:])
            for a in (0, 1)
            for b in (0, 1)
        )
        field = self.wires.gather(jnp.stack([t10 - t00, t01 - t00]))
        return Pairs(self.wires.units.T, t11 - t10 - t01 + t00, field, t00.sum())

    def tables(self, layout: Layout, most: int) -> list[TableGroup]:
        scopes = self.owners(layout)
        shape = (scopes.shape[0], *self.states)
        logs = self.weight[None] if self.shared else self.weight
        return [TableGroup(scopes, jnp.broadcast_to(logs, shape))]

    def from_tables(self, layout: Layout, shares: Sequence[Array]) -> "Tables":
        share = jnp.asarray(shares[0], self.weight.dtype)
        return self.as_beliefs(share.sum(0) if self.shared else share)

    def each(self, weight: Float[np.ndarray, "..."]) -> list[Float[np.ndarray, "*states"]]:
        """The table of every factor, of a weight of this group's shape."""
        return [weight] * self.wires.n_factors if self.shared else list(weight)

    def joined(self, each: Sequence[Float[np.ndarray, "*states"]]) -> Float[np.ndarray, "..."]:
        """A weight of this group's shape, of a table for every factor; shared ones are summed."""
        return np.sum(each, 0) if self.shared else np.stack(each)

    def prepare(self) -> "TablesLast":
        return TablesLast(self._table_last(), self.incidence, self.states, self.widths)

    def factor_messages(
        self, cavity: Float[Array, "W F"], temperature: Temperature
    ) -> Float[Array, "W F"]:
        table, levels = self._table_last(), self.levels(cavity)
        order = len(levels)
        sides = [along(level, i, order) for i, level in enumerate(levels)]
        messages = []
        for i, width in enumerate(self.widths):
            rest = reduce(jnp.add, sides[:i] + sides[i + 1 :], table)
            rest = jnp.broadcast_to(rest, (*self.states, cavity.shape[1]))
            to_states = sum_axes(rest, tuple(j for j in range(order) if j != i), temperature)
            if width == 1:
                messages.append(to_states[1:] - to_states[:1])
            else:
                messages.append(to_states - to_states.max(0, keepdims=True))
        return jnp.concatenate(messages)

    def factor_beliefs(
        self, cavity: Float[Array, "W F"], temperature: Temperature
    ) -> tuple["Tables", Float[Array, " F"]]:
        levels = self.levels(cavity)
        sides = [along(level, i, len(levels)) for i, level in enumerate(levels)]
        joint = reduce(jnp.add, sides, self._table_last())
        log_z = sum_axes(joint, tuple(range(len(levels))), temperature)
        over = log_z.reshape((1,) * len(levels) + log_z.shape)
        return self._expected(jnp.exp((joint - over) / temperature)), log_z

    def _expected(self, joint: Float[Array, "*states F"]) -> "Tables":
        """Beliefs about tables from the joint distribution of each factor."""
        weight = joint.sum(-1) if self.shared else jnp.moveaxis(joint, -1, 0)
        return Tables(weight, None, self.states, self.widths)

    def _table_last(self) -> Float[Array, "*states F"]:
        return self.weight[..., None] if self.shared else jnp.moveaxis(self.weight, 0, -1)


class TablesLast(Tables):
    """Tables whose factors are on the last axis of the weight, as messages want them."""

    def _table_last(self) -> Float[Array, "*states F"]:
        return self.weight


def tables(layout: Layout, scopes: ArrayLike, weight: ArrayLike) -> Tables:
    """Factors with one entry for every joint state of their variables.

    Args:
        layout: the layout of the model.
        scopes: (F, d), the variables of each factor, numbered block after block of the layout.
        weight: log-potentials (F, *states), or one table (*states) for all factors; -inf forbids a
            state.

    Returns:
        A group for `FactorGraph.create`.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> layout = un.discrete(x=2)
        >>> group = un.tables(layout, [[0, 1]], np.log([[8, 2], [1, 3]]))
        >>> un.query(un.FactorGraph.create(layout, [group]), given={1: 1})
        {0: {0: 0.4, 1: 0.6}}
    """
    variables = Variables.of(layout)
    found = check_scopes("tables", variables, scopes)
    count, order = found.shape
    if (found == UNUSED).any():
        raise UndirectedError("tables: a variable is -1; every factor of a group has all variables")
    table = _floored(weight)
    if table.ndim not in (order, order + 1) or (table.ndim == order + 1 and len(table) != count):
        raise UndirectedError(
            f"tables: {count} factors of {order} variables, but a weight of shape {table.shape}; "
            f"pass one axis per variable, or ({count}, one axis per variable)"
        )
    states = table.shape[-order:]
    check_states("tables", variables, found, states)
    incidence, widths = state_units("tables", layout, found, states)
    return Tables(table, incidence, states, widths)


def _floored(weight: ArrayLike) -> Float[Array, "..."]:
    """Log-potentials of at least -1e9; JAX would compile that for every shape of plain numbers."""
    if isinstance(weight, jax.Array):
        return jnp.maximum(jnp.asarray(weight, float), NEG_INF)
    return jnp.asarray(np.maximum(np.asarray(weight, jnp.result_type(float)), NEG_INF))
