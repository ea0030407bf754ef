"""Two machines, one upon the other: binary features of real data, and a model of the features."""

import equinox as eqx
import jax
from jaxtyping import Array, Float, Key

from undirected.core.errors import UndirectedError
from undirected.models.gaussian_rbm import GaussianRBM
from undirected.models.rbm import RBM


class Stack(eqx.Module):
    """A Gaussian RBM whose hidden units are the visibles of an RBM (tempered, Section 4.2).

    Learned greedily: first `bottom` on the data, then `top` on `features`, the bottom held fixed.
    Together they are a deep belief network with two hidden layers.
    """

    bottom: GaussianRBM
    top: RBM

    def __check_init__(self) -> None:
        if self.bottom.n_hidden != self.top.n_visible:
            raise UndirectedError(
                f"Stack: the bottom has {self.bottom.n_hidden} hidden units, the top "
                f"{self.top.n_visible} visible ones; both must be as many"
            )

    def features(
        self, v: Float[Array, "*batch V"], key: Key[Array, ""]
    ) -> Float[Array, "*batch F"]:
        """Binary features of real data, drawn from p(h | v) of the bottom."""
        return draw_features(self.bottom, v, key)

    def activities(self, v: Float[Array, "*batch V"]) -> Float[Array, "*batch H"]:
        """Probabilities of the top hidden units, those of the features passed on as they are."""
        features = jax.nn.sigmoid(self.bottom.hidden_fields(v))
        return jax.nn.sigmoid(self.top.hidden_fields(features))

    def show(self, features: Float[Array, "*batch F"]) -> Float[Array, "*batch V"]:
        """The mean of the data given features, such as particles of the top."""
        return self.bottom.visible_given(features)[0]


def draw_features(
    bottom: GaussianRBM, v: Float[Array, "*batch V"], key: Key[Array, ""]
) -> Float[Array, "*batch H"]:
    """Hidden units of a Gaussian RBM, drawn given its visibles."""
    chance = jax.nn.sigmoid(bottom.hidden_fields(v))
    return jax.random.bernoulli(key, chance).astype(chance.dtype)
