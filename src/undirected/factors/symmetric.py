"""Dense couplings inside one block of binary, real or nonnegative units."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from undirected.core.errors import UndirectedError
from undirected.core.layout import Layout, Variables, check_binary
from undirected.core.numerics import message
from undirected.factors.base import Factor, Messages, Pairs, Schedule, TableGroup, Temperature


class Symmetric(Factor):
    """Dense couplings 1/2 x' W x inside one block: W symmetric with a zero diagonal.

    Messages: forward[i, j] is the one from unit i to unit j of the block.

    Args:
        weight: W (m, m).
        block: the number of the block in the layout.

    Example:
        >>> import jax.numpy as jnp
        >>> import undirected as un
        >>> group = un.Symmetric(jnp.ones((3, 3)) - jnp.eye(3), 0)
        >>> graph = un.FactorGraph.create(un.discrete(x=3), [group])
        >>> print(graph.energy(jnp.ones(3)))
        -3.0
    """

    weight: Float[Array, "m m"]
    block: int = eqx.field(static=True)

    pairwise = True

    def check(self, layout: Layout) -> None:
        """The matrix must have the size of its block."""
        if not 0 <= self.block < len(layout.blocks):
            raise UndirectedError(
                f"Symmetric: a group on block {self.block}; the layout has blocks "
                f"0..{len(layout.blocks) - 1}"
            )
        size = layout.blocks[self.block].size
        if self.weight.shape != (size, size):
            raise UndirectedError(
                f"Symmetric: a matrix {self.weight.shape} on a block of {size} units; pass "
                f"({size}, {size})"
            )

    def statistic(self, layout: Layout, x: Float[Array, " n"]) -> "Symmetric":
        part = x[layout.blocks[self.block].slice]
        return Symmetric(jnp.outer(part, part) * _off_diagonal(part), self.block)

    def pairing(self, mean: "Symmetric") -> Float[Array, ""]:
        return 0.5 * jnp.sum(self.weight * mean.weight)

    def value(self, layout: Layout, x: Float[Array, "batch n"]) -> Float[Array, " batch"]:
        part = x[..., layout.blocks[self.block].slice]
        return 0.5 * ((part @ self.weight) * part).sum(-1)

    def mean_statistic(self, layout: Layout, x: Float[Array, "samples n"]) -> "Symmetric":
        part = x[:, layout.blocks[self.block].slice]
        return Symmetric(part.T @ part / len(x) * _off_diagonal(part[0]), self.block)

    def from_gradient(self, slope: "Symmetric") -> "Symmetric":
        both = slope.weight + slope.weight.T  # each pair stands twice in W, with weight 1/2
        return Symmetric(both * _off_diagonal(both[0]), self.block)

    def local_field(self, layout: Layout, x: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        where = layout.blocks[self.block].slice
        return jnp.zeros_like(x).at[..., where].set(x[..., where] @ self.weight)

    def pairs(self, layout: Layout) -> Pairs:
        i, j = np.triu_indices(len(self.weight), 1)
        zero = jnp.zeros(layout.n, self.weight.dtype)
        edges = np.stack([i, j], 1) + layout.blocks[self.block].start
        return Pairs(jnp.asarray(edges), self.weight[i, j], zero, zero.sum())

    def tables(self, layout: Layout, most: int) -> list[TableGroup]:
        check_binary("Symmetric: tables", layout.blocks[self.block])
        weight = self.pairs(layout).weight
        logs = jnp.zeros((len(weight), 2, 2), weight.dtype).at[:, 1, 1].set(weight)
        return [TableGroup(jnp.asarray(self.scopes(layout)[0]), logs)]

    def from_tables(self, layout: Layout, shares: Sequence[Array]) -> "Symmetric":
        i, j = np.triu_indices(len(self.weight), 1)
        upper = jnp.zeros_like(self.weight).at[i, j].set(shares[0][:, 1, 1])
        return Symmetric(upper + upper.T, self.block)

    def scopes(self, layout: Layout) -> list[Int[np.ndarray, "F d"]]:
        upper = np.stack(np.triu_indices(len(self.weight), 1), 1)
        return [Variables.of(layout).owner[upper + layout.blocks[self.block].start]]

    def separated_by(self, blocks: tuple[int, ...]) -> bool:
        return self.block in blocks

    def covariances(self, layout: Layout, matrix: Float[Array, "n n"]) -> Array:
        where = layout.blocks[self.block].slice
        part = matrix[where, where]
        return part * _off_diagonal(part[0])

    def init_messages(self, layout: Layout) -> Messages:
        """Half the weight: neither end prefers a state."""
        block = layout.blocks[self.block]
        check_binary("belief propagation: a Symmetric group", block)
        forward = 0.5 * self.weight
        incoming = jnp.zeros(layout.n, forward.dtype).at[block.slice].set(forward.sum(0))
        return Messages(forward, forward[:0], incoming)

    def update_messages(
        self, layout: Layout, total: Float[Array, " n"], messages: Messages, schedule: Schedule
    ) -> Messages:
        where = layout.blocks[self.block].slice
        cavity = total[where][:, None] - messages.forward.T
        forward = message(cavity, self.weight, schedule.temperature)
        forward = schedule.mix(forward, messages.forward)
        incoming = jnp.zeros_like(total).at[where].set(forward.sum(0))
        return Messages(forward, messages.backward, incoming)

    def beliefs(
        self,
        layout: Layout,
        total: Float[Array, " n"],
        unary: Float[Array, " n"],
        messages: Messages,
        temperature: Temperature,
    ) -> tuple["Symmetric", Float[Array, ""]]:
        where = layout.blocks[self.block].slice
        cavity = total[where][None, :] - messages.forward
        both = unary[where][:, None] * jax.nn.sigmoid((cavity + self.weight) / temperature)
        both = 0.5 * (both + both.T) * _off_diagonal(both[0])
        # What the answer would add to the one on its way: 0 once messages are at rest.
        news = message(cavity, self.weight, temperature) - messages.forward.T
        news = message(total[where][:, None], news, temperature)
        correction = 0.5 * (news - message(cavity, messages.forward, temperature)).sum()
        return Symmetric(both, self.block), correction


def _off_diagonal(like: Float[Array, " m"]) -> Float[Array, "m m"]:
    return 1 - jnp.eye(len(like), dtype=like.dtype)
