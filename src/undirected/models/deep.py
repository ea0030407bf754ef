"""The deep Boltzmann machine: binary layers, each coupled to the next."""

from collections.abc import Sequence
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from undirected.core.errors import UndirectedError, check_counts
from undirected.core.layout import Block, Layout, joint_states
from undirected.core.numerics import row, unit_means
from undirected.core.potentials import Potentials, potentials
from undirected.core.random import make_key
from undirected.factors import Bilinear


class DeepBM(eqx.Module):
    """-E = sum_l x_l' W_l x_{l+1} + sum_l b_l' x_l (Salakhutdinov & Hinton 2009).

    Layer 0 is visible, all others are hidden; with one hidden layer it is an RBM.

    Args:
        weights: the matrices W_l between neighbouring layers.
        biases: the vectors b_l, one for each layer.

    Example:
        >>> import undirected as un
        >>> un.DeepBM.create([4, 3, 2], seed=0).sizes
        [4, 3, 2]
    """

    weights: tuple[Float[Array, "?above ?below"], ...]
    biases: tuple[Float[Array, " ?layer"], ...]

    def __check_init__(self) -> None:
        sizes = [jnp.shape(bias)[-1] for bias in self.biases]
        wanted = list(pairwise(sizes))
        got = [tuple(jnp.shape(weight)[-2:]) for weight in self.weights]
        if len(sizes) < 2 or got != wanted:
            raise UndirectedError(
                f"DeepBM: weights are {got}, but biases of {sizes} units ask for {wanted}; "
                "pass a visible layer, one or more hidden ones, and a matrix between neighbours"
            )

    @classmethod
    def create(
        cls,
        sizes: Sequence[int],
        key: Key[Array, ""] | None = None,
        *,
        seed: int | None = None,
        scale: float = 0.01,
    ) -> "DeepBM":
        """A model to start learning from: small Gaussian weights, biases of 0.

        Args:
            sizes: numbers of units of the layers, the visible one first.
            key: of the draws.
            seed: the same as a number; pass one of the two.
            scale: standard deviation of the weights.

        Returns:
            The model.
        """
        if isinstance(sizes, str) or not isinstance(sizes, Sequence | np.ndarray):
            raise UndirectedError(
                f"DeepBM.create: sizes is {sizes!r:.40}; pass a number of units for each layer, as "
                "in [784, 100, 50]"
            )
        check_counts("DeepBM.create", **{f"layer {i}": size for i, size in enumerate(sizes)})
        keys = jax.random.split(make_key("DeepBM.create", key, seed), max(1, len(sizes) - 1))
        pairs = zip(pairwise(sizes), keys, strict=False)
        weights = tuple(scale * jax.random.normal(k, pair) for pair, k in pairs)
        return cls(weights, tuple(jnp.zeros(size) for size in sizes))

    @property
    def sizes(self) -> list[int]:
        """Units of each layer."""
        return [bias.shape[-1] for bias in self.biases]

    @property
    def n_visible(self) -> int:
        return self.sizes[0]

    @property
    def layout(self) -> Layout:
        blocks, start = [], 0
        for depth, size in enumerate(self.sizes):
            name = f"hidden{depth}" if depth else "visible"
            blocks.append(Block(name, start, start + size, visible=depth == 0))
            start += size
        return Layout(tuple(blocks))

    def energy(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """E of joint states."""
        x = joint_states("DeepBM.energy", self.layout, x)
        layers = [x[..., block.slice] for block in self.layout.blocks]
        value = x @ jnp.concatenate(self.biases)
        for (below, above), weight in zip(pairwise(layers), self.weights, strict=True):
            value = value + ((below @ weight) * above).sum(-1)
        return -value

    def lower(self) -> Potentials:
        """One dense bilinear group between each two neighbouring layers."""
        factors = tuple(Bilinear(weight, l, l + 1) for l, weight in enumerate(self.weights))
        return potentials(self.layout, jnp.concatenate(self.biases), factors)

    def conditional(self, block: int, x: Float[Array, "*batch n"]) -> Float[Array, "*batch size"]:
        """Fields of one layer given its neighbours."""
        blocks = self.layout.blocks
        fields = jnp.zeros((*x.shape[:-1], blocks[block].size), x.dtype)
        fields = fields + row(self.biases[block], fields)
        if block > 0:
            fields = fields + x[..., blocks[block - 1].slice] @ self.weights[block - 1]
        if block + 1 < len(blocks):
            fields = fields + x[..., blocks[block + 1].slice] @ self.weights[block].T
        return fields

    def independent(self, means: Float[Array, " V"] | None = None) -> "DeepBM":
        """The same units without couplings, at these visible means (uniform without them)."""
        biases = [jnp.zeros_like(bias) for bias in self.biases]
        if means is not None:
            p = jnp.clip(unit_means("DeepBM", means, biases[0]), 0.005, 0.995)
            biases[0] = jnp.log(p / (1 - p))
        return DeepBM(tuple(jnp.zeros_like(w) for w in self.weights), tuple(biases))
