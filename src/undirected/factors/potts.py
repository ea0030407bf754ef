"""Couplings of categorical variables of equally many states, along a graph or between all pairs."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike

from undirected.core.errors import UndirectedError
from undirected.core.graph import Graph, complete
from undirected.core.layout import Block, Domain, Layout
from undirected.core.numerics import NEG_INF
from undirected.factors.base import Factor, Messages, Pairs, Schedule, TableGroup, Temperature
from undirected.factors.sums import sum_axes


class PottsPairs(Factor):
    """Couplings sum_e W_e[s_i, s_j] of the states of categorical variables of one block.

    Messages: forward[e] runs along the edge (i, j) for e < E, and back along it for e >= E; it has
    one number for each state, the largest 0.

    Args:
        weight: (E, q, q), a table for every edge (rows are the states of its first end), or (q, q)
            where all edges share one.
        graph: a graph whose nodes are the variables of the block.
        block: the number of the block in the layout.
    """

    weight: Float[Array, "*edges q q"]
    graph: Graph
    block: int = eqx.field(static=True)

    def check(self, layout: Layout) -> None:
        """The block must hold the graph's nodes as categorical variables of q states."""
        block, q = layout.blocks[self.block], self.weight.shape[-1]
        if (block.domain, block.states, block.variables) != (Domain.CATEGORICAL, q, self.graph.n):
            raise UndirectedError(
                f"PottsPairs: couplings of {self.graph.n} variables of {q} states on block "
                f"'{block.name}' of {block.variables} {block.domain.value} variables of "
                f"{block.states} states; use Edges for binary units"
            )

    @property
    def shared(self) -> bool:
        """Whether all edges have the same table."""
        return self.weight.ndim == 2

    def statistic(self, layout: Layout, x: Float[Array, " n"]) -> "PottsPairs":
        return self.mean_statistic(layout, x[None])

    def mean_statistic(self, layout: Layout, x: Float[Array, "samples n"]) -> "PottsPairs":
        i, j = (self._states(layout, x)[:, end] for end in self.graph.edges.T)
        both = jnp.einsum("sea,seb->ab" if self.shared else "sea,seb->eab", i, j) / len(x)
        return PottsPairs(both, self.graph, self.block)

    def value(self, layout: Layout, x: Float[Array, "batch n"]) -> Float[Array, " batch"]:
        return 0.5 * (x * self.local_field(layout, x)).sum(-1)

    def local_field(self, layout: Layout, x: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        """Rows of the tables picked by number where x are states; products where x are means."""
        own = self._states(layout, x)
        first, second = self.graph.edges.T
        table, swapped = self._tables(), jnp.swapaxes(self._tables(), -1, -2)

        def by_number(own: Array) -> Array:
            state, edge = own.argmax(-1), jnp.arange(self.graph.n_edges) * (not self.shared)
            edge = jnp.broadcast_to(edge, (*state.shape[:-1], len(edge)))
            sent = table[edge, state[..., first]], swapped[edge, state[..., second]]
            return jnp.concatenate(sent, -2)

        def by_product(own: Array) -> Array:
            ends = own[..., first, :], own[..., second, :]
            both = zip(ends, (table, swapped), strict=True)
            sent = [(end[..., None, :] @ _lift(part, end))[..., 0, :] for end, part in both]
            return jnp.concatenate(sent, -2)

        # A variable that is summed out has no unit on, and sends nothing: no state stands for it.
        states = ((own == 0) | (own == 1)).all() & (own.sum(-1) == 1).all()
        sent = jax.lax.cond(states, by_number, by_product, own)
        found = jnp.moveaxis(self.graph.gather(jnp.moveaxis(sent, -1, 0)), 0, -1)
        where = layout.blocks[self.block].slice
        return jnp.zeros_like(x).at[..., where].set(found.reshape(x[..., where].shape))

    def pairs(self, layout: Layout) -> Pairs:
        q = self.weight.shape[-1]
        a, b = np.indices((q, q)).reshape(2, -1)
        units = layout.blocks[self.block].start + q * self.graph.edges
        ends = jnp.stack([units[:, :1] + a[None], units[:, 1:] + b[None]], -1)
        zero = jnp.zeros(layout.n, self.weight.dtype)
        weight = jnp.broadcast_to(self._tables(), (self.graph.n_edges, q, q))
        return Pairs(ends.reshape(-1, 2), weight.reshape(-1), zero, zero.sum())

    def tables(self, layout: Layout, most: int) -> list[TableGroup]:
        q = self.weight.shape[-1]
        logs = jnp.broadcast_to(self._tables(), (self.graph.n_edges, q, q))
        return [TableGroup(self.graph.edges + self._first_variable(layout), logs)]

    def from_tables(self, layout: Layout, shares: Sequence[Array]) -> "PottsPairs":
        share = jnp.asarray(shares[0], self.weight.dtype)
        return PottsPairs(share.sum(0) if self.shared else share, self.graph, self.block)

    def scopes(self, layout: Layout) -> list[Int[np.ndarray, "F d"]]:
        return [np.asarray(self.graph.edges) + self._first_variable(layout)]

    def separated_by(self, blocks: tuple[int, ...]) -> bool:
        return self.block in blocks

    def init_messages(self, layout: Layout) -> Messages:
        """No message: a number for every state, and none is preferred."""
        forward = jnp.zeros((2 * self.graph.n_edges, self.weight.shape[-1]), self.weight.dtype)
        return Messages(forward, forward[:0], jnp.zeros(layout.n, forward.dtype))

    def update_messages(
        self, layout: Layout, total: Float[Array, " n"], messages: Messages, schedule: Schedule
    ) -> Messages:
        there, back = self._cavities(layout, total, messages)
        table, T = self._tables(), schedule.temperature
        along = sum_axes(there[:, :, None] + table, (1,), T)
        against = sum_axes(back[:, None, :] + table, (2,), T)
        fresh = jnp.concatenate([along, against])
        forward = schedule.mix(fresh - fresh.max(-1, keepdims=True), messages.forward)
        where = layout.blocks[self.block].slice
        incoming = jnp.zeros_like(total).at[where].set(self.graph.gather(forward.T).T.reshape(-1))
        return Messages(forward, messages.backward, incoming)

    def beliefs(
        self,
        layout: Layout,
        total: Float[Array, " n"],
        unary: Float[Array, " n"],
        messages: Messages,
        temperature: Temperature,
    ) -> tuple["PottsPairs", Float[Array, ""]]:
        there, back = self._cavities(layout, total, messages)
        logs = there[:, :, None] + back[:, None, :] + self._tables()
        log_z = sum_axes(logs, (1, 2), temperature)
        both = jnp.exp((logs - log_z[:, None, None]) / temperature)
        alone = sum_axes(self._states(layout, total), (1,), temperature)
        correction = (log_z - alone[self.graph.edges].sum(1)).sum()
        return self.from_tables(layout, [both]), correction

    def _cavities(
        self, layout: Layout, total: Float[Array, " n"], messages: Messages
    ) -> tuple[Float[Array, "E q"], Float[Array, "E q"]]:
        """The fields of both ends of every edge without what the edge itself has sent them."""
        along, against = jnp.split(messages.forward, 2)
        first, second = (self._states(layout, total)[end] for end in self.graph.edges.T)
        return first - against, second - along

    def _states(self, layout: Layout, x: Float[Array, "*batch n"]) -> Float[Array, "*batch m q"]:
        """The units of the block as one row of states for each variable."""
        part = x[..., layout.blocks[self.block].slice]
        return part.reshape(*part.shape[:-1], self.graph.n, self.weight.shape[-1])

    def _tables(self) -> Float[Array, "#E q q"]:
        return self.weight[None] if self.shared else self.weight

    def _first_variable(self, layout: Layout) -> int:
        return sum(block.variables for block in layout.blocks[: self.block])


def potts(
    layout: Layout, weight: ArrayLike, graph: Graph | None = None, block: str | None = None
) -> PottsPairs:
    """Couplings of the categorical variables of one block.

    Args:
        layout: the layout of the model.
        weight: log-potentials (E, q, q) of the states of the ends of every edge, or (q, q) for all.
        graph: its nodes are the variables of the block; without it every pair of them is joined, in
            the order (0, 1), (0, 2), ..., (1, 2), ...
        block: the name of the block; without it the one block of the layout that is categorical.

    Returns:
        A group for `FactorGraph.create`.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> layout = un.discrete(x=(2, 3))
        >>> graph = un.FactorGraph.create(layout, [un.potts(layout, np.log(3) * np.eye(3))])
        >>> un.query(graph, given={0: 2})
        {1: {0: 0.2, 1: 0.2, 2: 0.6}}
    """
    where = _find(layout, block)
    wires = complete(where.variables) if graph is None else graph
    table = jnp.maximum(jnp.asarray(weight, float), NEG_INF)
    q = where.states
    if table.shape not in ((q, q), (wires.n_edges, q, q)):
        raise UndirectedError(
            f"potts: a weight of shape {table.shape} for {wires.n_edges} pairs of variables of {q} "
            f"states; pass ({q}, {q}) or ({wires.n_edges}, {q}, {q})"
        )
    group = PottsPairs(table, wires, layout.blocks.index(where))
    group.check(layout)
    return group


def _find(layout: Layout, name: str | None) -> Block:
    """The block of this name, or the only categorical one."""
    if name is not None:
        return layout.block(name)
    found = [block for block in layout.blocks if block.domain is Domain.CATEGORICAL]
    if len(found) != 1:
        raise UndirectedError(
            f"potts: the layout has {len(found)} categorical blocks; name one with `block`"
        )
    return found[0]


def _lift(table: Float[Array, "#E q q"], like: Array) -> Array:
    """The tables with leading axes of length one, to meet a batch of ends (*batch, E, q)."""
    return table.reshape((1,) * (like.ndim - 2) + table.shape)
