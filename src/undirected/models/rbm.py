"""The restricted Boltzmann machine: binary visibles (with an optional softmax label), hiddens."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.nn import softplus
from jaxtyping import Array, Float, Key

from undirected.core.errors import UndirectedError, check_counts, shape_of
from undirected.core.layout import Block, Domain, Layout, joint_states, visible_states
from undirected.core.mesh import unit_parts
from undirected.core.numerics import row, sum_softplus, unit_means
from undirected.core.potentials import Potentials, potentials
from undirected.core.random import make_key
from undirected.factors import Bilinear


class RBM(eqx.Module):
    """-E(v, h) = v' W h + b' v + c' h: binary visible units, perhaps with a label, and hidden ones.

    `RBM.create(n_visible, n_hidden)` gives one to start learning from.

    Args:
        weights: W (V, H).
        visible_bias: b (V,).
        hidden_bias: c (H,).
        label_states: where above 0, the last so many visible units are the states of one softmax
            unit.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> model = un.RBM.create(3, 2, means=[0.9, 0.9, 0.1], seed=0)
        >>> model.n_visible, model.n_hidden
        (3, 2)
        >>> print(np.asarray(un.Exact()(model).unary).round(1))
        [0.9 0.9 0.1 0.5 0.5]
    """

    weights: Float[Array, "V H"]
    visible_bias: Float[Array, " V"]
    hidden_bias: Float[Array, " H"]
    label_states: int = eqx.field(static=True, default=0)

    split_by_units = "weights", "hidden_bias"

    def __check_init__(self) -> None:
        (V,), (H,) = (
            shape_of("RBM", name, getattr(self, name), 1)
            for name in ("visible_bias", "hidden_bias")
        )
        wanted, found = (V, H), shape_of("RBM", "weights", self.weights)
        check_counts("RBM", 0, label_states=self.label_states)
        if found != wanted:
            raise UndirectedError(
                f"RBM: weights are {found}, but the biases ask for {wanted} (visible x hidden)"
            )
        if not (self.label_states == 0 or 2 <= self.label_states <= wanted[0]):
            raise UndirectedError(
                f"RBM: label_states is {self.label_states}; it is 0 or between 2 and the "
                f"{wanted[0]} visible units"
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
    ) -> "RBM":
        """A model to start learning from: small Gaussian weights.

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
        check_counts("RBM.create", n_visible=n_visible)
        check_counts("RBM.create", 0, n_hidden=n_hidden)
        weights = scale * jax.random.normal(
            make_key("RBM.create", key, seed), (n_visible, n_hidden)
        )
        model = cls(weights, jnp.zeros(n_visible), jnp.zeros(n_hidden), label_states)
        if means is None:
            return model
        return eqx.tree_at(lambda m: m.visible_bias, model, model.independent(means).visible_bias)

    @property
    def n_visible(self) -> int:
        return self.weights.shape[0]

    @property
    def n_hidden(self) -> int:
        return self.weights.shape[1]

    @property
    def layout(self) -> Layout:
        V, L, n = self.n_visible, self.label_states, self.n_visible + self.n_hidden
        blocks = [Block("visible", 0, V - L)] if V > L else []
        if L:
            blocks.append(Block("label", V - L, V, Domain.CATEGORICAL, L))
        return Layout((*blocks, Block("hidden", V, n, visible=False)))

    def energy(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """E(v, h) of joint states."""
        x = joint_states("RBM.energy", self.layout, x)
        v, h = x[..., : self.n_visible], x[..., self.n_visible :]
        return -((v @ self.weights) * h).sum(-1) - v @ self.visible_bias - h @ self.hidden_bias

    def lower(self) -> Potentials:
        """One dense bilinear group per visible block."""
        layout = self.layout
        hidden = len(layout.blocks) - 1
        factors = tuple(
            Bilinear(self.weights[block.slice], i, hidden)
            for i, block in enumerate(layout.blocks[:-1])
        )
        return potentials(layout, jnp.concatenate([self.visible_bias, self.hidden_bias]), factors)

    def conditional(self, block: int, x: Float[Array, "*batch n"]) -> Float[Array, "*batch size"]:
        """Fields of one block given the other layer."""
        where = self.layout.blocks[block]
        if not where.visible:
            return self.hidden_fields(x[..., : self.n_visible])
        fields = x[..., self.n_visible :] @ self.weights[where.slice].T
        return fields + row(self.visible_bias[where.slice], fields)

    def hidden_fields(self, v: Float[Array, "*batch V"]) -> Float[Array, "*batch H"]:
        """W' v + c: the log-odds of the hiddens given the visibles."""
        fields = v @ self.weights
        return fields + row(self.hidden_bias, fields)

    def free_energy(self, v: Float[Array, "*batch V"]) -> Float[Array, "*batch"]:
        """-log sum_h exp(-E(v, h)) = -b' v - sum_j softplus(c_j + (W' v)_j)."""
        v = visible_states("RBM.free_energy", self.layout, v)
        return -(v @ self.visible_bias) - sum_softplus(self.hidden_fields(v))

    def log_odds(self, v: Float[Array, "*batch V"]) -> Float[Array, "*batch V"]:
        """Field of each visible unit given all other visibles, hiddens summed out.

        With s_i = 1 - 2 v_i: b_i + s_i sum_j [softplus(f_j + s_i W_ij) - softplus(f_j)], where f_j
        is the field of hidden unit j.
        """
        v = visible_states("RBM.log_odds", self.layout, v)
        pixels, parts = self.n_visible - self.label_states, unit_parts()
        fields = jnp.moveaxis(self.hidden_fields(v), -1, 0)
        sign = 1 - 2 * v[..., :pixels]

        @jax.checkpoint
        def add(total: Array, unit: tuple[Array, Array]) -> tuple[Array, None]:
            field, weight = unit[0][..., None], row(unit[1], total)
            return total + softplus(field + sign * weight) - softplus(field), None

        def gain_of(fields: Array, weights: Array) -> Array:
            nothing = jnp.zeros(sign.shape, fields.dtype)
            return jax.lax.scan(add, nothing, (fields, weights))[0]

        own = fields, self.weights[:pixels].T
        if parts == 1:
            gain = gain_of(*own)
        else:  # each device adds up the units that it has
            gain = jax.vmap(gain_of)(*(a.reshape(parts, -1, *a.shape[1:]) for a in own)).sum(0)
        fields = sign * gain + row(self.visible_bias[:pixels], gain)
        return jnp.concatenate([fields, self.label_fields(v)], -1) if self.label_states else fields

    def label_fields(self, v: Float[Array, "*batch V"]) -> Float[Array, "*batch L"]:
        """Logits of the exact posterior of the label given the other visibles, hiddens summed out.

        b_y + sum_j softplus(c_j + W_yj + sum_i v_i W_ij); what v says of the label does not count.
        """
        pixels = self.n_visible - self.label_states
        rest = v[..., :pixels] @ self.weights[:pixels]
        rest = rest + row(self.hidden_bias, rest)
        gain = jax.lax.map(
            lambda weight: sum_softplus(rest + row(weight, rest)), self.weights[pixels:]
        )
        fields = jnp.moveaxis(gain, 0, -1)
        return fields + row(self.visible_bias[pixels:], fields)

    def independent(self, means: Float[Array, " V"] | None = None) -> "RBM":
        """The same units without couplings, at these visible means (uniform without them)."""
        bias = jnp.zeros_like(self.visible_bias)
        if means is not None:
            p = jnp.clip(unit_means("RBM", means, bias), 0.005, 0.995)
            pixels = self.n_visible - self.label_states
            bias = jnp.concatenate([jnp.log(p[:pixels] / (1 - p[:pixels])), jnp.log(p[pixels:])])
        zeros = jnp.zeros_like(self.weights), bias, jnp.zeros_like(self.hidden_bias)
        return RBM(*zeros, self.label_states)
