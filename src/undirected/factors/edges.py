"""Sparse couplings of single units along the edges of a graph."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from undirected.core.errors import UndirectedError
from undirected.core.graph import Graph
from undirected.core.layout import Layout, Variables, check_binary
from undirected.core.numerics import message
from undirected.factors.base import Factor, Messages, Pairs, Schedule, TableGroup, Temperature


class Edges(Factor):
    """Sparse couplings sum_e w_e x_i x_j between single units.

    Messages: forward[e] runs along the edge (i, j) for e < E, and back along it for e >= E.

    Args:
        weight: w (E,), one for each edge.
        graph: its nodes are the units of the layout.

    Example:
        >>> import jax.numpy as jnp
        >>> import undirected as un
        >>> group = un.Edges(jnp.ones(2), un.graph.chain(3))
        >>> graph = un.FactorGraph.create(un.discrete(x=3), [group])
        >>> print(graph.energy(jnp.ones(3)))
        -2.0
    """

    weight: Float[Array, " E"]
    graph: Graph

    pairwise = True

    def check(self, layout: Layout) -> None:
        """A graph of as many nodes as the layout has units, and a weight for each edge."""
        if self.graph.n != layout.n:
            raise UndirectedError(
                f"Edges: a graph of {self.graph.n} nodes on a layout of {layout.n} units"
            )
        if self.weight.shape != (self.graph.n_edges,):
            raise UndirectedError(
                f"Edges: weights {self.weight.shape} on {self.graph.n_edges} edges; pass one each"
            )

    def statistic(self, layout: Layout, x: Float[Array, " n"]) -> "Edges":
        ends = x[self.graph.edges]
        return Edges(ends[:, 0] * ends[:, 1], self.graph)

    def value(self, layout: Layout, x: Float[Array, "batch n"]) -> Float[Array, " batch"]:
        return 0.5 * (x * self.local_field(layout, x)).sum(-1)

    def mean_statistic(self, layout: Layout, x: Float[Array, "samples n"]) -> "Edges":
        i, j = self.graph.edges.T
        return Edges((x[:, i] * x[:, j]).mean(0), self.graph)

    def local_field(self, layout: Layout, x: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        return self.graph.fields(self.weight, x)

    def pairs(self, layout: Layout) -> Pairs:
        zero = jnp.zeros(layout.n, self.weight.dtype)
        return Pairs(self.graph.edges, self.weight, zero, zero.sum())

    def tables(self, layout: Layout, most: int) -> list[TableGroup]:
        check_binary("Edges: tables", *layout.blocks)
        owner = jnp.asarray(Variables.of(layout).owner)
        logs = jnp.zeros((len(self.weight), 2, 2), self.weight.dtype)
        return [TableGroup(owner[self.graph.edges], logs.at[:, 1, 1].set(self.weight))]

    def from_tables(self, layout: Layout, shares: Sequence[Array]) -> "Edges":
        return Edges(jnp.asarray(shares[0][:, 1, 1], self.weight.dtype), self.graph)

    def scopes(self, layout: Layout) -> list[Int[np.ndarray, "F d"]]:
        return [Variables.of(layout).owner[np.asarray(self.graph.edges)]]

    def covariances(self, layout: Layout, matrix: Float[Array, "n n"]) -> Array:
        i, j = self.graph.edges.T
        return matrix[i, j]

    def columns(self, x: Float[Array, "n c"]) -> Float[Array, "n c"]:
        """J x, neighbours one after the other, so that no array larger than x is made."""
        graph, weight = self.graph, jnp.tile(self.weight, 2)[:, None]
        if graph.incoming is None:
            return jax.ops.segment_sum(weight * x[graph.source], graph.target, graph.n)

        def add(total: Array, messages: Array) -> tuple[Array, None]:
            neighbour = graph.source.at[messages].get(mode="clip")
            strength = weight.at[messages].get(mode="fill", fill_value=0.0)
            return total + strength * x[neighbour], None

        return jax.lax.scan(add, jnp.zeros_like(x), graph.incoming.T)[0]

    def init_messages(self, layout: Layout) -> Messages:
        """Half the weight: neither end prefers a state."""
        check_binary("belief propagation: an Edges group", *layout.blocks)
        forward = 0.5 * jnp.tile(self.weight, 2)
        return Messages(forward, forward[:0], self.graph.gather(forward))

    def update_messages(
        self, layout: Layout, total: Float[Array, " n"], messages: Messages, schedule: Schedule
    ) -> Messages:
        graph = self.graph
        cavity = total[graph.source] - _reverse(messages.forward)
        forward = message(cavity, jnp.tile(self.weight, 2), schedule.temperature)
        forward = schedule.mix(forward, messages.forward)
        return Messages(forward, messages.backward, graph.gather(forward))

    def beliefs(
        self,
        layout: Layout,
        total: Float[Array, " n"],
        unary: Float[Array, " n"],
        messages: Messages,
        temperature: Temperature,
    ) -> tuple["Edges", Float[Array, ""]]:
        graph = self.graph
        weight = jnp.tile(self.weight, 2)
        cavity = total[graph.target] - messages.forward
        given = jax.nn.sigmoid((cavity + weight) / temperature)
        both = (unary[graph.source] * given).reshape(2, -1).mean(0)
        # What the answer would add to the one on its way: 0 once messages are at rest.
        news = message(cavity, weight, temperature) - _reverse(messages.forward)
        news = message(total[graph.source], news, temperature)
        correction = 0.5 * (news - message(cavity, messages.forward, temperature)).sum()
        return Edges(both, graph), correction


def _reverse(messages: Float[Array, " 2E"]) -> Float[Array, " 2E"]:
    half = messages.shape[0] // 2
    return jnp.concatenate([messages[half:], messages[:half]])
