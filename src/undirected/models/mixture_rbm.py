"""A restricted Boltzmann machine on top of a mixture: one hidden unit is the component."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import logsumexp, softplus
from jaxtyping import Array, Float, Key
from numpy.typing import ArrayLike

from undirected.core.errors import UndirectedError, check_counts, shape_of
from undirected.core.layout import Block, Domain, Layout, joint_states, visible_states
from undirected.core.numerics import row, sum_softplus
from undirected.core.potentials import Potentials, potentials
from undirected.core.random import make_key
from undirected.core.units import draw
from undirected.factors import Bilinear
from undirected.models.rbm import RBM

MEAN_FIELD = 20
"""Damped rounds of mean field for the mixture that is nearest to a model."""


class MixtureRBM(eqx.Module):
    """-E(v, h, z) = v' W h + v' U z + b' v + c' h + d' z: binary v and h, one softmax unit z.

    Without W this is a mixture of independent columns, z its component. The hidden units correct
    what the mixture gets wrong, so p(v) is a product of a mixture and of the experts of an RBM.
    Clusters live in z, which `MixtureGibbs` draws with v summed out: chains cross from one cluster
    to another in a step. `MixtureRBM.from_mixture` gives one to start learning from.

    Args:
        weights: W (V, H).
        components: U (V, K), the fields of the columns in each component, less b.
        visible_bias: b (V,).
        hidden_bias: c (H,).
        component_bias: d (K,).

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> means = [[0.9, 0.9, 0.1], [0.2, 0.1, 0.8]]
        >>> model = un.MixtureRBM.from_mixture(np.log([0.5, 0.5]), means, 2, scale=0.0)
        >>> print(np.asarray(un.Exact()(model).unary[:3]).round(2))
        [0.55 0.5  0.45]
    """

    weights: Float[Array, "V H"]
    components: Float[Array, "V K"]
    visible_bias: Float[Array, " V"]
    hidden_bias: Float[Array, " H"]
    component_bias: Float[Array, " K"]

    def __check_init__(self) -> None:
        V, H, K = (
            shape_of("MixtureRBM", name, getattr(self, name), 1)[0]
            for name in ("visible_bias", "hidden_bias", "component_bias")
        )
        found = tuple(
            shape_of("MixtureRBM", name, getattr(self, name)) for name in ("weights", "components")
        )
        if found != ((V, H), (V, K)):
            raise UndirectedError(
                f"MixtureRBM: weights are {found[0]} and components {found[1]}, but the biases ask "
                f"for {(V, H)} and {(V, K)} (visible x hidden, visible x components)"
            )
        if K < 2:
            raise UndirectedError(f"MixtureRBM: got {K} component; pass 2 or more, or use RBM")

    @classmethod
    def from_mixture(
        cls,
        log_weights: ArrayLike,
        means: ArrayLike,
        n_hidden: int,
        key: Key[Array, ""] | None = None,
        *,
        seed: int | None = None,
        scale: float = 0.01,
    ) -> "MixtureRBM":
        """A mixture of independent columns, and hidden units with small weights.

        Args:
            log_weights: logs of the shares of the components.
            means: of every column in every component (K, V), strictly between 0 and 1.
            n_hidden: number of hidden units.
            key: of the weights.
            seed: the same as a number; pass one of the two.
            scale: standard deviation of the weights; with 0 the model is the mixture.

        Returns:
            The model: (v - mu)' W (h - 1/2) on top of the mixture, where mu are its means.
        """
        check_counts("MixtureRBM.from_mixture", 0, n_hidden=n_hidden)
        theta, shares = np.asarray(means, np.float64), np.asarray(log_weights, np.float64)
        if theta.ndim != 2 or shares.shape != theta.shape[:1]:
            raise UndirectedError(
                f"MixtureRBM: log_weights have shape {shares.shape}, means {theta.shape}; pass "
                "(components,) and (components, columns)"
            )
        if not ((theta > 0) & (theta < 1)).all():
            raise UndirectedError("MixtureRBM: a mean is 0 or 1; pass means strictly between them")
        shares = shares - np.logaddexp.reduce(shares)
        middle = np.exp(shares) @ theta
        bias = np.log(middle) - np.log1p(-middle)
        fields = np.log(theta) - np.log1p(-theta)
        offset = shares + np.log1p(-theta).sum(1)
        draws = jax.random.normal(
            make_key("MixtureRBM.from_mixture", key, seed), (theta.shape[1], n_hidden)
        )
        weights = scale * draws
        return cls(
            weights,
            jnp.asarray(fields.T - bias[:, None], weights.dtype),
            jnp.asarray(bias, weights.dtype) - 0.5 * weights.sum(1),
            -jnp.asarray(middle, weights.dtype) @ weights,
            jnp.asarray(offset - offset.max(), weights.dtype),
        )

    @property
    def n_visible(self) -> int:
        return self.weights.shape[0]

    @property
    def n_hidden(self) -> int:
        return self.weights.shape[1]

    @property
    def n_components(self) -> int:
        return self.components.shape[1]

    @property
    def layout(self) -> Layout:
        V, H, K = self.n_visible, self.n_hidden, self.n_components
        component = Block("component", V + H, V + H + K, Domain.CATEGORICAL, K, visible=False)
        return Layout((Block("visible", 0, V), Block("hidden", V, V + H, visible=False), component))

    def energy(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """E(v, h, z) of joint states."""
        x = joint_states("MixtureRBM.energy", self.layout, x)
        V, H = self.n_visible, self.n_hidden
        v, h, z = x[..., :V], x[..., V : V + H], x[..., V + H :]
        pairs = ((v @ self.weights) * h).sum(-1) + ((v @ self.components) * z).sum(-1)
        return -pairs - v @ self.visible_bias - h @ self.hidden_bias - z @ self.component_bias

    def lower(self) -> Potentials:
        """Two dense bilinear groups: visibles with hiddens, visibles with the component."""
        factors = Bilinear(self.weights, 0, 1), Bilinear(self.components, 0, 2)
        fields = self.visible_bias, self.hidden_bias, self.component_bias
        return potentials(self.layout, jnp.concatenate(fields), factors)

    def conditional(self, block: int, x: Float[Array, "*batch n"]) -> Float[Array, "*batch size"]:
        """Fields of one block given the others."""
        V, H = self.n_visible, self.n_hidden
        if block == 0:
            fields = self.visible_fields(x[..., V : V + H])
            return fields + x[..., V + H :] @ self.components.T
        weights = (self.weights, self.components)[block - 1]
        bias = (self.hidden_bias, self.component_bias)[block - 1]
        fields = x[..., :V] @ weights
        return fields + row(bias, fields)

    def visible_fields(self, h: Float[Array, "*batch H"]) -> Float[Array, "*batch V"]:
        """W h + b: the fields of the visibles without the component's."""
        fields = h @ self.weights.T
        return fields + row(self.visible_bias, fields)

    def component_fields(
        self,
        h: Float[Array, "*batch H"],
        held: Float[Array, "*batch V"] | None = None,
        v: Float[Array, "*batch V"] | None = None,
    ) -> Float[Array, "*batch K"]:
        """Logits of p(z | h), the visibles summed out; those with `held` 1 stay as they are in v.

        d_z + sum_i softplus(b_i + (W h)_i + U_iz), where a held unit adds v_i U_iz instead.
        """
        fields = self.visible_fields(h)

        def one(component: Float[Array, " V"]) -> Float[Array, "*batch"]:
            open_ = softplus(fields + row(component, fields))
            if held is None or v is None:
                return open_.sum(-1)
            return ((1 - held) * open_ + held * v * row(component, fields)).sum(-1)

        found = jnp.moveaxis(jax.lax.map(one, self.components.T), 0, -1)
        return found + row(self.component_bias, found)

    def free_energy(self, v: Float[Array, "*batch V"]) -> Float[Array, "*batch"]:
        """-log sum_{h, z} exp(-E): the mixture's part and that of the hidden units."""
        v = visible_states("MixtureRBM.free_energy", self.layout, v)
        hidden, component = v @ self.weights, v @ self.components
        experts = sum_softplus(hidden + row(self.hidden_bias, hidden))
        mixture = logsumexp(component + row(self.component_bias, component), -1)
        return -(v @ self.visible_bias) - experts - mixture

    def log_odds(self, v: Float[Array, "*batch V"]) -> Float[Array, "*batch V"]:
        """Field of each visible unit given all other visibles, hiddens and component summed out.

        With s_i = 1 - 2 v_i the component adds s_i log sum_z r_z exp(s_i U_iz), r = p(z | v).
        """
        v = visible_states("MixtureRBM.log_odds", self.layout, v)
        rbm = RBM(self.weights, self.visible_bias, self.hidden_bias).log_odds(v)
        fields = v @ self.components
        fields = fields + row(self.component_bias, fields)
        logs = fields - logsumexp(fields, -1, keepdims=True)
        sign = 1 - 2 * v

        def add(total: Array, part: tuple[Array, Array]) -> tuple[Array, None]:
            log, weight = part
            return jnp.logaddexp(total, log[..., None] + sign * row(weight, sign)), None

        first = jnp.full(sign.shape, -jnp.inf, logs.dtype)
        parts = jnp.moveaxis(logs, -1, 0), self.components.T
        gain, _ = jax.lax.scan(jax.checkpoint(add), first, parts)
        return rbm + sign * gain

    def independent(self, means: Float[Array, " V"] | None = None) -> "MixtureRBM":
        """The same units without couplings, at these visible means (uniform without them)."""
        alone = RBM(self.weights, self.visible_bias, self.hidden_bias).independent(means)
        zeros = jnp.zeros_like(self.components), jnp.zeros_like(self.component_bias)
        return MixtureRBM(alone.weights, zeros[0], alone.visible_bias, alone.hidden_bias, zeros[1])

    def tractable(self) -> "MixtureRBM":
        """A mixture near the model: in each component the hidden units act by their means.

        Mean field of every component gives means t of the visibles and l of the hiddens; then
        softplus(f(v)) is replaced by its tangent at t, which adds to the fields of the component.
        The tangent may miss the share of a component by many nats, so half of the mixture is spread
        evenly over all: annealing begins in each, and none that has grown heavy is overlooked.
        """
        return _nearest_mixture(self)

    def exact_samples(
        self, count: int, key: Key[Array, ""]
    ) -> tuple[Float[Array, "count n"], Float[Array, ""]]:
        """Joint states of a model whose weights W are 0, and its log Z.

        Each is a sample; together they have every component as often as it should be, to within
        one.
        """
        first, second, third = jax.random.split(key, 3)
        blocks = self.layout.blocks
        h = draw(blocks[1], jnp.broadcast_to(self.hidden_bias, (count, self.n_hidden)), first)
        fields = self.component_fields(jnp.zeros(self.n_hidden, self.weights.dtype))
        z = _spread_draws(fields, count, second)
        at = z @ self.components.T
        v = draw(blocks[0], at + row(self.visible_bias, at), third)
        log_z = logsumexp(fields) + softplus(self.hidden_bias).sum()
        return jnp.concatenate([v, h, z], -1), log_z


@eqx.filter_jit
def _nearest_mixture(model: MixtureRBM) -> MixtureRBM:
    """`MixtureRBM.tractable`, compiled once for each shape."""
    mean_field = jnp.full((model.n_components, model.n_hidden), 0.5, model.weights.dtype)

    def fields(mean: Float[Array, "K H"]) -> tuple[Float[Array, "K H"], Float[Array, "K H"]]:
        at = model.visible_fields(mean) + model.components.T
        drive = jax.nn.sigmoid(at) @ model.weights
        return drive, drive + row(model.hidden_bias, drive)

    def update(_: int, mean: Float[Array, "K H"]) -> Float[Array, "K H"]:
        return 0.5 * (mean + jax.nn.sigmoid(fields(mean)[1]))

    mean = jax.lax.fori_loop(0, MEAN_FIELD, update, mean_field)
    drive, total = fields(mean)
    mean = jax.nn.sigmoid(total)
    tangent = softplus(total) - softplus(jnp.zeros_like(total)) - mean * drive
    near = MixtureRBM(
        jnp.zeros_like(model.weights),
        model.components + model.weights @ mean.T,
        model.visible_bias,
        jnp.zeros_like(model.hidden_bias),
        model.component_bias + tangent.sum(1),
    )
    logs = near.component_fields(jnp.zeros_like(model.hidden_bias))
    more = jnp.logaddexp(logs, logsumexp(logs) - jnp.log(model.n_components)) - logs
    more = jnp.where(jnp.any(model.weights != 0), more, 0.0)  # a mixture is its own
    return eqx.tree_at(lambda m: m.component_bias, near, near.component_bias + more)


def _spread_draws(
    fields: Float[Array, " K"], count: int, key: Key[Array, ""]
) -> Float[Array, "count K"]:
    """Components of a number of states: one uniform draw, and steps of 1 / count from there."""
    at = (jnp.arange(count) + jax.random.uniform(key, dtype=fields.dtype)) / count
    ends = jnp.cumsum(jax.nn.softmax(fields))
    index = jnp.searchsorted(ends / ends[-1], at, side="right")
    index = jnp.minimum(index, len(fields) - 1)  # at may round up to 1
    return jax.nn.one_hot(index, len(fields), dtype=fields.dtype)
