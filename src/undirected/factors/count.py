"""Potentials of a number: how many of the members of a factor are on."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from undirected.core.errors import UndirectedError, check_counts
from undirected.core.layout import Layout, Variables
from undirected.core.numerics import NEG_INF, logsumexp
from undirected.factors.base import TableGroup, Temperature
from undirected.factors.incidence import Incidence, binary_units, check_scopes, connect
from undirected.factors.sums import either
from undirected.factors.wired import Wired, check_size


class Count(Wired):
    """A log-potential for the number of members that are 1; more than the last entry is forbidden.

    `weight` is (F, K + 1), or (K + 1) where all factors share it. In beliefs it is the distribution
    of the number, and `excess` the expected number of factors with more than K. Messages come from
    a dynamic programme over the members, O(K) each.
    """

    weight: Float[Array, "..."]
    incidence: Incidence | None
    excess: Float[Array, ""] | None = None

    @property
    def forbids(self) -> bool:
        members = (np.asarray(self.wires.units) < self.wires.n).sum(0)
        return bool((members >= self.weight.shape[-1]).any())

    def statistic(self, layout: Layout, x: Float[Array, " n"]) -> "Count":
        slots = self.wires.spread(x)
        start = (jnp.arange(self.weight.shape[-1]) == 0).astype(x.dtype)[:, None]

        def add(carry: tuple[Array, Array], member: Array) -> tuple[tuple[Array, Array], None]:
            """shares[k]: probability that k of the members so far are on; over: that more are.

            The excess is added up, not what is missing to 1: rounding would cost 1e9 times as much.
            """
            shares, over = carry
            one_less = jnp.concatenate([jnp.zeros_like(shares[:1]), shares[:-1]])
            over = over + shares[-1] * member
            return (shares * (1 - member)[None] + one_less * member[None], over), None

        start = jnp.broadcast_to(start, (start.shape[0], slots.shape[1]))
        (shares, each), _ = jax.lax.scan(add, (start, jnp.zeros_like(slots[0])), slots)
        over = each.sum()
        return Count(shares.sum(1) if self.weight.ndim == 1 else shares.T, None, over)

    def pairing(self, mean: "Count") -> Float[Array, ""]:
        forbidden = jnp.zeros(()) if mean.excess is None else NEG_INF * mean.excess
        return jnp.sum(self.weight * mean.weight) + forbidden

    def as_beliefs(self, weight: Array | None) -> "Count":
        """Beliefs where no factor exceeds its largest number."""
        assert weight is not None
        return Count(weight, None, jnp.zeros(()))

    def tables(self, layout: Layout, most: int) -> list[TableGroup]:
        slots, _ = self.wires.units.shape
        check_size("Count", slots, most)
        number = np.indices((2,) * slots).sum(0)
        levels = self._levels(self.wires.n_factors)
        levels = jnp.concatenate([levels, jnp.full_like(levels[:1], NEG_INF)])
        logs = levels.T[:, np.minimum(number, len(levels) - 1)]
        return [TableGroup(self.binary_scopes(layout), logs)]

    def from_tables(self, layout: Layout, shares: Sequence[Array]) -> "Count":
        share = jnp.asarray(shares[0], self.weight.dtype)
        number = np.indices(share.shape[1:]).sum(0).ravel()
        hits = number[:, None] == np.arange(self.weight.shape[-1])[None]
        weight = share.reshape(len(share), -1) @ jnp.asarray(hits, share.dtype)
        return self.as_beliefs(weight.sum(0) if self.weight.ndim == 1 else weight)

    def factor_messages(
        self, cavity: Float[Array, "W F"], temperature: Temperature
    ) -> Float[Array, "W F"]:
        before, _ = self._counts(cavity, temperature)
        off, on = -jnp.maximum(cavity, 0.0), jnp.minimum(cavity, 0.0)
        last = self._levels(cavity.shape[1]).astype(cavity.dtype)

        def back(after: Array, slot: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            """`after[k]`: best or total value of the members to come, given k on before them."""
            off_i, on_i, before_i = slot
            one_more = jnp.concatenate([after[1:], jnp.full_like(after[:1], NEG_INF)])
            raised = logsumexp(before_i + one_more, temperature, 0)
            kept = logsumexp(before_i + after, temperature, 0)
            after = either(after + off_i[None], one_more + on_i[None], temperature)
            return after, raised - kept

        _, messages = jax.lax.scan(back, last, (off, on, before), reverse=True)
        return messages

    def factor_beliefs(
        self, cavity: Float[Array, "W F"], temperature: Temperature
    ) -> tuple["Count", Float[Array, " F"]]:
        _, end = self._counts(cavity, temperature)
        levels = end + self._levels(cavity.shape[1]).astype(cavity.dtype)
        log_z = logsumexp(levels, temperature, 0)
        share = jnp.exp((levels - log_z[None]) / temperature)
        weight = share.sum(1) if self.weight.ndim == 1 else share.T
        return Count(weight, None, jnp.zeros((), log_z.dtype)), log_z

    def _counts(
        self, cavity: Float[Array, "m F"], temperature: Temperature
    ) -> tuple[Float[Array, "m k F"], Float[Array, "k F"]]:
        """Value of every number on among the members before each one, and among all."""
        off, on = -jnp.maximum(cavity, 0.0), jnp.minimum(cavity, 0.0)
        size = self.weight.shape[-1], cavity.shape[1]
        start = jnp.where(jnp.arange(size[0]) == 0, 0.0, NEG_INF)[:, None]
        start = jnp.broadcast_to(start, size).astype(cavity.dtype)

        def add(counts: Array, slot: tuple[Array, Array]) -> tuple[Array, Array]:
            off_i, on_i = slot
            one_less = jnp.concatenate([jnp.full_like(counts[:1], NEG_INF), counts[:-1]])
            return either(counts + off_i[None], one_less + on_i[None], temperature), counts

        end, before = jax.lax.scan(add, start, (off, on))
        return before, end

    def _levels(self, count: int) -> Float[Array, "k F"]:
        """The log-potentials of every number, factors last."""
        weight = self.weight.T if self.weight.ndim == 2 else self.weight[:, None]
        return jnp.broadcast_to(weight, (weight.shape[0], count))


def count(layout: Layout, members: ArrayLike, weight: ArrayLike) -> Count:
    """Factors that weigh how many of their members are on.

    Args:
        layout: the layout of the model.
        members: (F, d), the binary variables of each factor; -1 fills rows with fewer.
        weight: log-potentials of 0, 1, ..., K members on, (K + 1,) for all factors or (F, K + 1).
            More than K are forbidden.

    Returns:
        A group for `FactorGraph.create`.

    Example:
        >>> import undirected as un
        >>> layout = un.discrete(x=3)
        >>> graph = un.FactorGraph.create(layout, [un.count(layout, [[0, 1, 2]], [0, 0])])
        >>> un.query(graph, given={0: 1})
        {1: {0: 1.0, 1: 0.0}, 2: {0: 1.0, 1: 0.0}}
    """
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
    return Count(table, connect(layout, binary_units("count", layout, found)))


def at_most(layout: Layout, members: ArrayLike, limit: int) -> Count:
    """Factors that allow at most so many of their members to be on.

    Args:
        layout: the layout of the model.
        members: (F, d), the binary variables of each factor; -1 fills rows with fewer.
        limit: how many of them may be on at once.

    Returns:
        A group for `FactorGraph.create`.

    Example:
        >>> import undirected as un
        >>> layout = un.discrete(x=3)
        >>> graph = un.FactorGraph.create(layout, [un.at_most(layout, [[0, 1, 2]], 1)])
        >>> un.query(graph, given={0: 0, 1: 0})
        {2: {0: 0.5, 1: 0.5}}
    """
    check_counts("at_most", 0, limit=limit)
    found = check_scopes("at_most", Variables.of(layout), members)
    return count(layout, found, np.zeros(min(limit, found.shape[1]) + 1))
