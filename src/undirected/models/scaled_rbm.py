"""An RBM along a path: the weights of its end, scaled after the products with the units."""

import equinox as eqx
from jaxtyping import Array, Float

from undirected.core.layout import Layout
from undirected.core.numerics import between, row, sum_softplus
from undirected.core.potentials import Potentials
from undirected.models.rbm import RBM


class ScaledRBM(eqx.Module):
    """`RBM(scale * unscaled, visible_bias, hidden_bias)`, in whose products the scale comes last.

    At two temperatures W' v is then one product, which a compiler makes once, and no array of
    scaled weights is written. What a step on a path does not ask for is that of `plain`.
    """

    unscaled: Float[Array, "V H"]
    scale: Float[Array, ""]
    visible_bias: Float[Array, " V"]
    hidden_bias: Float[Array, " H"]
    label_states: int = eqx.field(static=True, default=0)

    @classmethod
    def between(cls, base: RBM, target: RBM, beta: Float[Array, ""]) -> "ScaledRBM":
        """The model at `beta` on the straight line from a base without weights to the target."""
        visible = between(beta, base.visible_bias, target.visible_bias)
        hidden = between(beta, base.hidden_bias, target.hidden_bias)
        return cls(target.weights, beta, visible, hidden, target.label_states)

    @property
    def plain(self) -> RBM:
        """The same model with its weights written out."""
        return RBM(self.weights, self.visible_bias, self.hidden_bias, self.label_states)

    @property
    def weights(self) -> Float[Array, "V H"]:
        return self.scale * self.unscaled

    @property
    def layout(self) -> Layout:
        return self.plain.layout

    def energy(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """E(v, h) of joint states."""
        count = len(self.unscaled)
        v, h = x[..., :count], x[..., count:]
        pull = self.scale * ((v @ self.unscaled) * h).sum(-1)
        return -pull - v @ self.visible_bias - h @ self.hidden_bias

    def lower(self) -> Potentials:
        """Those of `plain`."""
        return self.plain.lower()

    def conditional(self, block: int, x: Float[Array, "*batch n"]) -> Float[Array, "*batch size"]:
        """Fields of one block given the other layer."""
        where, count = self.layout.blocks[block], len(self.unscaled)
        if not where.visible:
            return self.hidden_fields(x[..., :count])
        fields = self.scale * (x[..., count:] @ self.unscaled[where.slice].T)
        return fields + row(self.visible_bias[where.slice], fields)

    def hidden_fields(self, v: Float[Array, "*batch V"]) -> Float[Array, "*batch H"]:
        """W' v + c: the log-odds of the hiddens given the visibles."""
        fields = self.scale * (v @ self.unscaled)
        return fields + row(self.hidden_bias, fields)

    def free_energy(self, v: Float[Array, "*batch V"]) -> Float[Array, "*batch"]:
        """-log sum_h exp(-E(v, h))."""
        return -(v @ self.visible_bias) - sum_softplus(self.hidden_fields(v))

    def log_odds(self, v: Float[Array, "*batch V"]) -> Float[Array, "*batch V"]:
        """Those of `plain`."""
        return self.plain.log_odds(v)
