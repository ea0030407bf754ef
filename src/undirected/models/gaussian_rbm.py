"""The Gaussian RBM: real visible units of variance one, binary hidden units."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.nn import softplus
from jaxtyping import Array, Bool, Float, Key

from undirected.core.errors import UndirectedError
from undirected.core.layout import Block, Domain, Layout
from undirected.core.numerics import row
from undirected.kernels.gaussian_ep import gaussian_ep


class GaussianRBM(eqx.Module):
    """-E(v, h) = -|v - b|^2 / 2 + c' h + v' W h (query-training, eq. 5, sigma = 1)."""

    weights: Float[Array, "V H"]
    visible_mean: Float[Array, " V"]
    hidden_bias: Float[Array, " H"]

    def __check_init__(self) -> None:
        wanted = (jnp.shape(self.visible_mean)[-1], jnp.shape(self.hidden_bias)[-1])
        if tuple(jnp.shape(self.weights)[-2:]) != wanted:
            raise UndirectedError(
                f"GaussianRBM: weights are {jnp.shape(self.weights)}, but the means and biases ask "
                f"for {wanted} (visible x hidden)"
            )

    @classmethod
    def create(
        cls, n_visible: int, n_hidden: int, key: Key[Array, ""], *, scale: float = 0.05
    ) -> "GaussianRBM":
        """Small Gaussian weights."""
        weights = scale * jax.random.normal(key, (n_visible, n_hidden))
        return cls(weights, jnp.zeros(n_visible), jnp.zeros(n_hidden))

    @property
    def n_visible(self) -> int:
        return self.weights.shape[0]

    @property
    def n_hidden(self) -> int:
        return self.weights.shape[1]

    @property
    def layout(self) -> Layout:
        V, n = self.n_visible, self.n_visible + self.n_hidden
        hidden = Block("hidden", V, n, visible=False)
        return Layout((Block("visible", 0, V, Domain.REAL), hidden))

    def energy(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """E(v, h) of joint states."""
        v, h = x[..., : self.n_visible], x[..., self.n_visible :]
        distance = v - row(self.visible_mean, v)
        return 0.5 * (distance**2).sum(-1) - ((v @ self.weights) * h).sum(-1) - h @ self.hidden_bias

    def free_energy(self, v: Float[Array, "*batch V"]) -> Float[Array, "*batch"]:
        """-log sum_h exp(-E(v, h))."""
        distance, fields = v - row(self.visible_mean, v), v @ self.weights
        fields = fields + row(self.hidden_bias, fields)
        return 0.5 * (distance**2).sum(-1) - softplus(fields).sum(-1)

    def answer(
        self,
        v: Float[Array, "rows V"],
        observed: Bool[Array, "rows V"],
        layers: int,
        noise: float = 1e-3,
    ) -> tuple[Float[Array, "rows V"], Float[Array, "rows V"]]:
        """Mean and variance of the visibles given the observed ones, seen with variance `noise`."""
        prior = row(self.visible_mean, v)
        first = jnp.where(observed, jnp.where(observed, v, 0.0) / noise, prior)
        second = jnp.where(observed, -0.5 / noise, -0.5)
        return gaussian_ep(self.weights, (first, second), self.hidden_bias, layers)

    def config(self) -> dict[str, Any]:
        """Hyper-parameters for a model file."""
        return {"n_visible": self.n_visible, "n_hidden": self.n_hidden}

    @classmethod
    def skeleton(cls, config: dict[str, Any]) -> "GaussianRBM":
        """A model of zeros with these hyper-parameters."""
        V, H = config["n_visible"], config["n_hidden"]
        return cls(jnp.zeros((V, H)), jnp.zeros(V), jnp.zeros(H))
