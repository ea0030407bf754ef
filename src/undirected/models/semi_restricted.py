"""The semi-restricted Boltzmann machine: an RBM whose binary visibles are also coupled in pairs."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from undirected.core.errors import UndirectedError, UnsupportedFactor, check_counts
from undirected.core.layout import Layout, joint_states, visible_states
from undirected.core.potentials import Potentials
from undirected.core.random import make_key
from undirected.factors import Symmetric
from undirected.models.rbm import RBM


class SemiRestrictedBM(eqx.Module):
    """-E(v, h) = v' W h + b' v + c' h + sum_{i<k} L_ik v_i v_k (tempered, Section 4.1).

    An RBM whose pixels, which are all visible units but those of the label, are also coupled with
    each other. The label is coupled with the hidden units alone.

    Args:
        rbm: W, b and c.
        lateral: L (P, P), of which only the part above the diagonal counts: a pair of pixels has
            one parameter, whose gradient is that of its statistic v_i v_k.

    Example:
        >>> import undirected as un
        >>> model = un.SemiRestrictedBM.create(5, 2, label_states=2, seed=0)
        >>> model.n_pixels, model.lateral.shape
        (3, (3, 3))
    """

    rbm: RBM
    lateral: Float[Array, "P P"]

    def __check_init__(self) -> None:
        pixels = self.n_pixels
        if jnp.shape(self.lateral) != (pixels, pixels) or pixels == 0:
            raise UndirectedError(
                f"SemiRestrictedBM: lateral weights are {jnp.shape(self.lateral)}; the RBM has "
                f"{pixels} visibles besides its label: pass ({pixels}, {pixels}), at least (1, 1)"
            )

    @classmethod
    def create(
        cls,
        n_visible: int,
        n_hidden: int,
        key: Key[Array, ""] | None = None,
        *,
        seed: int | None = None,
        label_states: int = 0,
        scale: float = 0.01,
        means: Float[Array, " V"] | None = None,
    ) -> "SemiRestrictedBM":
        """A model to start learning from: that of `RBM.create`, and lateral weights of 0.

        Args:
            n_visible: number of visible units, those of the label included.
            n_hidden: number of hidden units.
            key: of the draws.
            seed: the same as a number; pass one of the two.
            label_states: states of the label, 0 for none.
            scale: standard deviation of the weights.
            means: of the visible units in the data; the visible biases are set to give them.

        Returns:
            The model.
        """
        check_counts("SemiRestrictedBM.create", n_visible=n_visible)
        check_counts("SemiRestrictedBM.create", 0, n_hidden=n_hidden)
        own = make_key("SemiRestrictedBM.create", key, seed)
        rbm = RBM.create(
            n_visible, n_hidden, own, label_states=label_states, scale=scale, means=means
        )
        pixels = n_visible - label_states
        return cls(rbm, jnp.zeros((pixels, pixels)))

    @property
    def n_visible(self) -> int:
        return self.rbm.n_visible

    @property
    def n_hidden(self) -> int:
        return self.rbm.n_hidden

    @property
    def n_pixels(self) -> int:
        """Number of visibles that are not label units."""
        return self.rbm.n_visible - self.rbm.label_states

    @property
    def layout(self) -> Layout:
        return self.rbm.layout

    @property
    def couplings(self) -> Float[Array, "P P"]:
        """The lateral weights as a symmetric matrix with a zero diagonal."""
        upper = jnp.triu(self.lateral, 1)
        return upper + upper.T

    def energy(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """E(v, h) of joint states."""
        x = joint_states("SemiRestrictedBM.energy", self.layout, x)
        return self.rbm.energy(x) - self._pairs(x)

    def lower(self) -> Potentials:
        """The groups of the RBM and one symmetric group on the pixels."""
        p = self.rbm.lower()
        return eqx.tree_at(lambda p: p.factors, p, (*p.factors, Symmetric(self.couplings, 0)))

    def conditional(self, block: int, x: Float[Array, "*batch n"]) -> Float[Array, "*batch size"]:
        """Fields of the label or of the hiddens given the rest; pixels depend on each other."""
        if self.layout.blocks[block].name == "visible":
            raise UnsupportedFactor(
                "SemiRestrictedBM: its visible units are coupled, so that they have no common "
                "conditional; sample with Gibbs, which takes them one by one"
            )
        return self.rbm.conditional(block, x)

    def hidden_fields(self, v: Float[Array, "*batch V"]) -> Float[Array, "*batch H"]:
        """W' v + c: the log-odds of the hiddens given the visibles."""
        return self.rbm.hidden_fields(v)

    def free_energy(self, v: Float[Array, "*batch V"]) -> Float[Array, "*batch"]:
        """-log sum_h exp(-E(v, h))."""
        v = visible_states("SemiRestrictedBM.free_energy", self.layout, v)
        return self.rbm.free_energy(v) - self._pairs(v)

    def log_odds(self, v: Float[Array, "*batch V"]) -> Float[Array, "*batch V"]:
        """Field of each visible unit given all other visibles, hiddens summed out."""
        v = visible_states("SemiRestrictedBM.log_odds", self.layout, v)
        fields, pixels = self.rbm.log_odds(v), self.n_pixels
        return fields.at[..., :pixels].add(v[..., :pixels] @ self.couplings)

    def label_fields(self, v: Float[Array, "*batch V"]) -> Float[Array, "*batch L"]:
        """Logits of the exact posterior of the label given the pixels, hiddens summed out."""
        return self.rbm.label_fields(v)

    def independent(self, means: Float[Array, " V"] | None = None) -> "SemiRestrictedBM":
        """The same units without couplings, at these visible means (uniform without them)."""
        return SemiRestrictedBM(self.rbm.independent(means), jnp.zeros_like(self.lateral))

    def _pairs(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """sum_{i<k} L_ik v_i v_k."""
        pixels = x[..., : self.n_pixels]
        return ((pixels @ jnp.triu(self.lateral, 1)) * pixels).sum(-1)
