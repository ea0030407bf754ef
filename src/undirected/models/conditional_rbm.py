"""The conditional RBM: features move the biases of an RBM over the outputs."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from undirected.core.errors import UndirectedError
from undirected.models.rbm import RBM


class ConditionalRBM(eqx.Module):
    """-E(v, h; x) = v' W h + v' (A x + b) + h' (C x + c) (crbm-bp, eq. 2).

    `weights` is W (V, H), `visible_features` A (V, X), `hidden_features` C (H, X). Without hidden
    units it is a logistic regression for every output.
    """

    weights: Float[Array, "V H"]
    visible_features: Float[Array, "V X"]
    hidden_features: Float[Array, "H X"]
    visible_bias: Float[Array, " V"]
    hidden_bias: Float[Array, " H"]

    def __check_init__(self) -> None:
        V, H = jnp.shape(self.visible_bias)[-1], jnp.shape(self.hidden_bias)[-1]
        X = jnp.shape(self.visible_features)[-1]
        wanted = {"weights": (V, H), "visible_features": (V, X), "hidden_features": (H, X)}
        for name, shape in wanted.items():
            got = jnp.shape(getattr(self, name))
            if got != shape:
                raise UndirectedError(
                    f"ConditionalRBM: {name} are {got}; with {V} visible, {H} hidden and {X} "
                    f"feature units they must be {shape}"
                )

    @classmethod
    def create(
        cls,
        n_visible: int,
        n_hidden: int,
        n_features: int,
        key: Key[Array, ""],
        *,
        scale: float = 0.01,
    ) -> "ConditionalRBM":
        """Small Gaussian couplings between outputs and hiddens and between features and hiddens."""
        keys = jax.random.split(key)
        return cls(
            weights=scale * jax.random.normal(keys[0], (n_visible, n_hidden)),
            visible_features=jnp.zeros((n_visible, n_features)),
            hidden_features=scale * jax.random.normal(keys[1], (n_hidden, n_features)),
            visible_bias=jnp.zeros(n_visible),
            hidden_bias=jnp.zeros(n_hidden),
        )

    @property
    def n_visible(self) -> int:
        return self.weights.shape[0]

    @property
    def n_hidden(self) -> int:
        return self.weights.shape[1]

    @property
    def n_features(self) -> int:
        return self.visible_features.shape[1]

    def at(self, x: Float[Array, " X"]) -> RBM:
        """The RBM over outputs and hiddens given one row of features."""
        if x.shape != (self.n_features,):
            raise UndirectedError(
                f"ConditionalRBM: features have shape {x.shape}, the model wants "
                f"({self.n_features},); use jax.vmap over rows"
            )
        return RBM(
            self.weights,
            self.visible_bias + self.visible_features @ x,
            self.hidden_bias + self.hidden_features @ x,
        )
