"""Self-couplings of real and nonnegative units."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from undirected.core.layout import Layout
from undirected.factors.base import Factor


class Squares(Factor):
    """Self-couplings sum_i w_i x_i^2 on one block of real or nonnegative units.

    The one group whose statistic is not multilinear: mean-field theories add the variance.
    """

    weight: Float[Array, " m"]
    block: int = eqx.field(static=True)

    def statistic(self, layout: Layout, x: Float[Array, " n"]) -> "Squares":
        return Squares(x[layout.blocks[self.block].slice] ** 2, self.block)

    def value(self, layout: Layout, x: Float[Array, "batch n"]) -> Float[Array, " batch"]:
        return (x[..., layout.blocks[self.block].slice] ** 2) @ self.weight

    def separated_by(self, blocks: tuple[int, ...]) -> bool:
        return True

    def precision(self, layout: Layout) -> Float[Array, " n"]:
        """w_ii of every unit in the density exp(l x - w_ii x^2 / 2): minus twice the weights."""
        where = layout.blocks[self.block].slice
        return jnp.zeros(layout.n, self.weight.dtype).at[where].set(-2 * self.weight)
