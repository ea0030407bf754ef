"""The conditional RBM: features move the biases of an RBM over the outputs."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from undirected.core.errors import UndirectedError, check_counts, shape_of
from undirected.core.random import make_key
from undirected.models.rbm import RBM


class ConditionalRBM(eqx.Module):
    """-E(v, h; x) = v' W h + v' (A x + b) + h' (C x + c) (crbm-bp, eq. 2).

    An RBM over the outputs v whose biases are moved by the features x. Without hidden units it is a
    logistic regression for every output.

    Args:
        weights: W (V, H), couplings of outputs and hidden units.
        visible_features: A (V, X), what the features add to the biases of the outputs.
        hidden_features: C (H, X), what the features add to the biases of the hidden units.
        visible_bias: b (V,).
        hidden_bias: c (H,).

    Example:
        >>> import jax.numpy as jnp
        >>> import undirected as un
        >>> model = un.ConditionalRBM.create(n_visible=3, n_hidden=2, n_features=4, seed=0)
        >>> model.at(jnp.ones(4)).n_visible
        3
    """

    weights: Float[Array, "V H"]
    visible_features: Float[Array, "V X"]
    hidden_features: Float[Array, "H X"]
    visible_bias: Float[Array, " V"]
    hidden_bias: Float[Array, " H"]

    def __check_init__(self) -> None:
        name = "ConditionalRBM"
        (V,) = shape_of(name, "visible_bias", self.visible_bias, 1)
        (H,) = shape_of(name, "hidden_bias", self.hidden_bias, 1)
        X = shape_of(name, "visible_features", self.visible_features, 2)[1]
        wanted = {"weights": (V, H), "visible_features": (V, X), "hidden_features": (H, X)}
        for name, shape in wanted.items():
            got = shape_of("ConditionalRBM", name, getattr(self, name))
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
        key: Key[Array, ""] | None = None,
        *,
        seed: int | None = None,
        scale: float = 0.01,
    ) -> "ConditionalRBM":
        """A model to start learning from: small Gaussian couplings with the hidden units.

        Args:
            n_visible: number of outputs.
            n_hidden: number of hidden units.
            n_features: number of features.
            key: of the draws.
            seed: the same as a number; pass one of the two.
            scale: standard deviation of the couplings.

        Returns:
            A model whose biases, and couplings of features with outputs, are 0.
        """
        check_counts("ConditionalRBM.create", n_visible=n_visible, n_features=n_features)
        check_counts("ConditionalRBM.create", 0, n_hidden=n_hidden)
        keys = jax.random.split(make_key("ConditionalRBM.create", key, seed))
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
        x = jnp.asarray(x)
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
