"""The Gaussian RBM: real visible units, of variance one or of a learned one, binary hiddens."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key
from numpy.typing import ArrayLike

from undirected.core.errors import UndirectedError, UnsupportedFactor, check_counts, shape_of
from undirected.core.layout import Block, Domain, Layout, joint_states, visible_states
from undirected.core.numerics import row, sum_softplus
from undirected.core.potentials import Potentials, potentials
from undirected.core.random import make_key
from undirected.factors import Bilinear, Squares
from undirected.ops.gaussian_ep import gaussian_ep

FAR = 30.0
"""Deviations of data, or 1 / FAR, that a model whose variances are fixed at one does not learn."""


class GaussianRBM(eqx.Module):
    """-E(v, h) = -sum_i (v_i - b_i)^2 / (2 s_i^2) + c' h + sum_ij v_i W_ij h_j / s_i.

    Real visible units and binary hidden ones (query-training, eq. 5, with s = 1; tempered, Section
    4.2).

    Args:
        weights: W (V, H).
        visible_mean: b (V,).
        hidden_bias: c (H,).
        log_variance: log s^2 (V,), learned with the rest; None fixes all variances at one.

    Example:
        >>> import undirected as un
        >>> model = un.GaussianRBM.create(3, 2, seed=0, learn_variance=True)
        >>> print(model.scale)
        [1. 1. 1.]
    """

    weights: Float[Array, "V H"]
    visible_mean: Float[Array, " V"]
    hidden_bias: Float[Array, " H"]
    log_variance: Float[Array, " V"] | None = None

    split_by_units = "weights", "hidden_bias"

    def __check_init__(self) -> None:
        (V,), (H,) = (
            shape_of("GaussianRBM", name, getattr(self, name), 1)
            for name in ("visible_mean", "hidden_bias")
        )
        wanted, found = (V, H), shape_of("GaussianRBM", "weights", self.weights)
        if found != wanted:
            raise UndirectedError(
                f"GaussianRBM: weights are {found}, but the means and biases ask "
                f"for {wanted} (visible x hidden)"
            )
        shape = None if self.log_variance is None else jnp.shape(self.log_variance)
        if shape not in (None, jnp.shape(self.visible_mean)):
            raise UndirectedError(
                f"GaussianRBM: log_variance is {shape}; pass one entry for each of the {wanted[0]} "
                "visible units, or None for variances of one"
            )

    @classmethod
    def create(
        cls,
        n_visible: int,
        n_hidden: int,
        key: Key[Array, ""] | None = None,
        *,
        seed: int | None = None,
        scale: float = 0.05,
        learn_variance: bool = False,
        means: ArrayLike | None = None,
        variances: ArrayLike | None = None,
    ) -> "GaussianRBM":
        """A model to start learning from: small Gaussian weights, variances of one.

        Args:
            n_visible: number of real units.
            n_hidden: number of hidden units.
            key: of the draws.
            seed: the same as a number; pass one of the two.
            scale: standard deviation of the weights.
            learn_variance: whether the variances are parameters, or stay at one.
            means: of the visible units in the data, where the model is to stand; 0 without them,
                and then `un.fit` takes those of its data.
            variances: of the visible units in the data, likewise; they are learned.

        Returns:
            A model whose hidden units are on with probability 1/2 at the means.
        """
        caller = "GaussianRBM.create"
        check_counts(caller, n_visible=n_visible)
        check_counts(caller, 0, n_hidden=n_hidden)
        own = make_key(caller, key, seed)
        weights = scale * jax.random.normal(own, (n_visible, n_hidden))
        learned = learn_variance or variances is not None
        variance = jnp.zeros(n_visible) if learned else None
        model = cls(weights, jnp.zeros(n_visible), jnp.zeros(n_hidden), variance)
        if means is None and variances is None:
            return model
        mean = _of_units(caller, "means", 0.0 if means is None else means, n_visible)
        spread = _of_units(caller, "variances", 1.0 if variances is None else variances, n_visible)
        if (spread <= 0).any():
            raise UndirectedError(f"{caller}: variances are {spread.min():g} somewhere; pass > 0")
        return model.rescaled(mean, jnp.sqrt(spread))

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

    @property
    def scale(self) -> Float[Array, " V"]:
        """Standard deviations of the visibles given the hiddens."""
        if self.log_variance is None:
            return jnp.ones_like(self.visible_mean)
        return jnp.exp(0.5 * self.log_variance)

    def energy(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """E(v, h) of joint states."""
        x = joint_states("GaussianRBM.energy", self.layout, x)
        v, h = x[..., : self.n_visible], x[..., self.n_visible :]
        return self._distance(v) - (self.hidden_fields(v) * h).sum(-1)

    def lower(self) -> Potentials:
        """Fields, squares of the visibles, and one bilinear group."""
        precision, layout = self.scale**-2, self.layout
        unary = jnp.concatenate([precision * self.visible_mean, self.hidden_bias])
        factors = Squares(-0.5 * precision, 0), Bilinear(self.weights / self.scale[:, None], 0, 1)
        return potentials(layout, unary, factors, -0.5 * (precision * self.visible_mean**2).sum())

    def conditional(self, block: int, x: Float[Array, "*batch n"]) -> Float[Array, "*batch size"]:
        """Fields of the hiddens given the visibles."""
        if block != 1:
            raise UnsupportedFactor(
                "GaussianRBM: its visible units are real and have no fields; use visible_given, or "
                "sample with GaussianGibbs"
            )
        return self.hidden_fields(x[..., : self.n_visible])

    def hidden_fields(self, v: Float[Array, "*batch V"]) -> Float[Array, "*batch H"]:
        """W' (v / s) + c: the log-odds of the hiddens given the visibles."""
        fields = (v / row(self.scale, v)) @ self.weights
        return fields + row(self.hidden_bias, fields)

    def visible_given(
        self, h: Float[Array, "*batch H"]
    ) -> tuple[Float[Array, "*batch V"], Float[Array, "*batch V"]]:
        """Mean b + s W h and standard deviation s of the visibles given the hiddens."""
        pull = h @ self.weights.T
        scale = jnp.broadcast_to(row(self.scale, pull), pull.shape)
        return row(self.visible_mean, pull) + scale * pull, scale

    def free_energy(self, v: Float[Array, "*batch V"]) -> Float[Array, "*batch"]:
        """-log sum_h exp(-E(v, h))."""
        v = visible_states("GaussianRBM.free_energy", self.layout, v)
        return self._distance(v) - sum_softplus(self.hidden_fields(v))

    def independent(
        self,
        means: Float[Array, " V"] | None = None,
        variances: Float[Array, " V"] | None = None,
    ) -> "GaussianRBM":
        """The same units without couplings, at these visible means and variances.

        Without them the means are 0 and the variances those of the model given its hiddens.
        """
        if variances is not None and self.log_variance is None:
            raise UndirectedError(
                "GaussianRBM.independent: the variances of this model are fixed at one; leave "
                "`variances` out"
            )
        mean = jnp.zeros_like(self.visible_mean)
        mean = mean if means is None else jnp.asarray(means, mean.dtype)
        spread = self.log_variance if variances is None else jnp.log(jnp.asarray(variances))
        zeros = jnp.zeros_like(self.weights), jnp.zeros_like(self.hidden_bias)
        return GaussianRBM(zeros[0], mean, zeros[1], spread)

    def centred(self) -> tuple["GaussianRBM", Float[np.ndarray, " V"]]:
        """The model of v - b, whose hidden biases are c + W' (b / s), and b in double precision."""
        logs = 0.0 if self.log_variance is None else np.array(self.log_variance, np.float64)
        mean, weights, bias = (
            np.array(a, np.float64) for a in (self.visible_mean, self.weights, self.hidden_bias)
        )
        moved = np.zeros_like(mean), bias + (mean * np.exp(-0.5 * logs)) @ weights
        zeros, bias = (jax.device_put(a.astype(self.weights.dtype)) for a in moved)
        return replace(self, visible_mean=zeros, hidden_bias=bias), mean

    def units_of_measure(self) -> tuple[Float[Array, " V"], Float[Array, " V"]]:
        """The means and scales at which the model stands."""
        return self.visible_mean, self.scale

    def rescaled(
        self, means: Float[Array, " V"], scale: Float[Array, " V"] | float = 1.0
    ) -> "GaussianRBM":
        """The model of means + scale v; a scale other than 1 asks for variances of its own."""
        logs = self.log_variance
        moved = replace(
            self,
            visible_mean=means + scale * self.visible_mean,
            log_variance=None if logs is None else logs + 2 * jnp.log(scale),
        )
        return replace(moved, hidden_bias=self.hidden_bias - (means / moved.scale) @ self.weights)

    def started_at(
        self, means: Float[np.ndarray, " V"], deviations: Float[np.ndarray, " V"]
    ) -> "GaussianRBM":
        """A model that `create` made without means, in the units of the data; else the same."""
        logs = jnp.zeros(0) if self.log_variance is None else self.log_variance
        if any(part.any() for part in (self.visible_mean, self.hidden_bias, logs)):
            return self
        if self.log_variance is not None:
            return self.rescaled(jnp.asarray(means), jnp.asarray(deviations))
        if not 1 / FAR < deviations.max() < FAR:
            raise UndirectedError(
                f"fit: the data have standard deviations up to {deviations.max():.3g}, and the "
                "variances are fixed at one in this GaussianRBM; pass one made with "
                "learn_variance=True, or rows divided by their standard deviations"
            )
        return self.rescaled(jnp.asarray(means))

    def _distance(self, v: Float[Array, "*batch V"]) -> Float[Array, "*batch"]:
        """sum_i (v_i - b_i)^2 / (2 s_i^2)."""
        return 0.5 * (((v - row(self.visible_mean, v)) / row(self.scale, v)) ** 2).sum(-1)

    def answer(
        self,
        v: Float[Array, "rows V"],
        observed: Bool[Array, "rows V"],
        layers: int,
        noise: float = 1e-3,
    ) -> tuple[Float[Array, "rows V"], Float[Array, "rows V"]]:
        """Mean and variance of the visibles given the observed ones, seen with variance `noise`."""
        precision = self.scale**-2
        first = jnp.where(
            observed,
            jnp.where(observed, v, 0.0) / noise,
            row(precision * self.visible_mean, v),
        )
        second = jnp.where(observed, -0.5 / noise, row(-0.5 * precision, v))
        weights = self.weights / self.scale[:, None]
        return gaussian_ep(weights, (first, second), self.hidden_bias, layers)


def _of_units(caller: str, name: str, numbers: ArrayLike, count: int) -> Float[Array, " V"]:
    """One finite number for each visible unit; a single one stands for all."""
    found = jnp.asarray(numbers, float)
    if found.shape not in ((), (count,)) or not jnp.isfinite(found).all():
        what = f"have shape {found.shape}" if found.shape else f"are {found}"
        what = what if jnp.isfinite(found).all() else "are NaN or infinite somewhere"
        raise UndirectedError(
            f"{caller}: {name} {what}; pass one finite number for each of the {count} visible units"
        )
    return jnp.broadcast_to(found, (count,))
