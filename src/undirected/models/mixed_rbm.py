"""The RBM for tables: binary, categorical, real and nonnegative columns share hidden units."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import softplus
from jaxtyping import Array, Float, Key
from numpy.typing import ArrayLike

from undirected.core import rectified
from undirected.core.errors import UndirectedError, check_counts
from undirected.core.layout import CONTINUOUS, Block, Domain, Layout, joint_states, visible_states
from undirected.core.line_density import log_probability
from undirected.core.numerics import row, sum_softplus
from undirected.core.potentials import Potentials, potentials
from undirected.core.random import make_key
from undirected.core.table_units import Kind, TableUnits
from undirected.factors import Bilinear, Squares, Symmetric
from undirected.models.mixed_start import (
    LEAST_VARIANCE,
    alone_at,
    check_sizes,
    deviations,
    moments,
)


class MixedRBM(eqx.Module):
    """An exponential-family harmonium: visible units of every kind, binary hidden ones.

    -E(v, h) = c' h + sum over visible units of

        binary, one state of a category   v (b + W h)
        real                              -(v - b)^2 / (2 s^2) + v W h / s
        nonnegative, v >= 0               v (b + W h) - v^2 / (2 s^2)

    Given the hidden units a binary unit is Bernoulli, a category softmax, a real unit normal with
    mean b + s W h and variance s^2, a nonnegative unit rectified normal; given the visible units
    the hidden ones are independent (Welling, Rosen-Zvi & Hinton 2005). Units are grouped by kind:
    `table` says which units stand for which column, `to_units` and `to_table` go both ways.

    Real units may be coupled: with y = A' (v - b) / s, where A has ones on its diagonal and
    `lateral` below it, they have -|y|^2 / 2 + v' S^-1 A W h in place of the sum above (S^-1 being
    1 / s on a diagonal). Given the hidden units they are then normal with the precision matrix
    S^-1 A A' S^-1.

    Args:
        weights: W (V, H), a row for each visible unit.
        visible_bias: b (V,).
        hidden_bias: c (H,).
        log_variance: log of s^2 less a least variance, for the real and then the nonnegative units.
        table: the columns and their units.
        lateral: what stands in A below its diagonal (R, R); None where real units are not coupled.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> model = un.MixedRBM.create(["binary", 3, "real"], 4, seed=0)
        >>> model.n_visible, [block.name for block in model.layout.blocks]
        (5, ['binary', 'categorical3', 'real', 'hidden'])
        >>> print(model.to_units([[1, 2, -0.5]]))
        [[ 1.   0.   0.   1.  -0.5]]
    """

    weights: Float[Array, "V H"]
    visible_bias: Float[Array, " V"]
    hidden_bias: Float[Array, " H"]
    log_variance: Float[Array, " C"]
    table: TableUnits = eqx.field(static=True)
    lateral: Float[Array, "R R"] | None = None

    split_by_units = "weights", "hidden_bias"

    def __check_init__(self) -> None:
        V, H = self.table.n_units, jnp.shape(self.hidden_bias)[-1]
        wanted = {"weights": (V, H), "visible_bias": (V,), "log_variance": (self._n_continuous,)}
        if self.lateral is not None:
            wanted["lateral"] = (self.n_real, self.n_real)
        for name, shape in wanted.items():
            got = jnp.shape(getattr(self, name))
            if got != shape:
                raise UndirectedError(
                    f"MixedRBM: {name} has shape {got}; with {V} visible and {H} hidden units it "
                    f"must be {shape}"
                )

    @classmethod
    def create(
        cls,
        columns: Any,
        n_hidden: int,
        key: Key[Array, ""] | None = None,
        *,
        seed: int | None = None,
        scale: float = 0.01,
        data: ArrayLike | None = None,
    ) -> "MixedRBM":
        """A model to start learning from: small Gaussian weights.

        Args:
            columns: what each column is, as a list or `{name: kind}`: "binary", "real",
                "nonnegative", or the number of states of a category; or a schema.
            n_hidden: number of hidden units.
            key: of the draws.
            seed: the same as a number; pass one of the two.
            scale: standard deviation of the weights.
            data: rows of one cell a column, NaN where missing: biases and variances are set to
                those of its columns. Without it real columns are taken as standardised, and
                `un.fit` sets those of continuous columns to its data.

        Returns:
            The model.
        """
        table = TableUnits.of(columns)
        check_counts("MixedRBM.create", 0, n_hidden=n_hidden)
        own = make_key("MixedRBM.create", key, seed)
        weights = scale * jax.random.normal(own, (table.n_units, n_hidden))
        count = sum(block.size for block in table.blocks if block.domain in CONTINUOUS)
        zeros = jnp.zeros(table.n_units), jnp.zeros(n_hidden), jnp.zeros(count)
        model = cls(weights, *zeros, table)
        first = np.full(table.n_units, np.nan)
        second = first
        if data is not None:
            first, second = moments(table.to_units(data, "MixedRBM.create"))
            check_sizes(table, np.where(model._is(Domain.REAL), deviations(first, second), first))
        base = model._with_moments(jnp.asarray(first), jnp.asarray(second))
        size = np.where(model._is(Domain.NONNEGATIVE) & (first > 0), first, 1.0)
        weights, real = weights / jnp.asarray(size, weights.dtype)[:, None], model.real_units
        pull = base.root.T @ base.visible_bias[real]  # hidden units do not hear of the means
        return replace(base, weights=weights, hidden_bias=-pull @ weights[real])

    @property
    def n_visible(self) -> int:
        return self.weights.shape[0]

    @property
    def n_hidden(self) -> int:
        return self.weights.shape[1]

    @property
    def n_real(self) -> int:
        return sum(block.size for block in self.table.blocks if block.domain is Domain.REAL)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """What each column is."""
        return self.table.kinds

    @property
    def layout(self) -> Layout:
        V = self.n_visible
        hidden = Block("hidden", V, V + self.n_hidden, visible=False)
        return Layout((*self.table.blocks, hidden))

    def to_units(self, table: ArrayLike) -> Float[np.ndarray, "rows V"]:
        """Rows over the visible units from rows of one cell a column, NaN where missing."""
        return self.table.to_units(table)

    def to_table(self, units: ArrayLike) -> Float[np.ndarray, "rows columns"]:
        """Rows of one cell a column from rows over the visible units."""
        return self.table.to_table(units)

    @property
    def _n_continuous(self) -> int:
        return sum(block.size for block in self.table.blocks if block.domain in CONTINUOUS)

    @property
    def variance(self) -> Float[Array, " C"]:
        """s^2 of the real and then the nonnegative units."""
        return jnp.exp(self.log_variance) + LEAST_VARIANCE

    @property
    def precision(self) -> Float[Array, " V"]:
        """What multiplies -v_i^2 / 2: 0 for discrete units, 1 / s^2 for uncoupled ones."""
        discrete = jnp.zeros(self.n_visible - self._n_continuous, self.weights.dtype)
        found = jnp.concatenate([discrete, 1 / self.variance])
        return (
            found if self.lateral is None else found.at[self.real_units].set((self.root**2).sum(1))
        )

    @property
    def real_units(self) -> slice:
        """The real units."""
        first = self.n_visible - self._n_continuous
        return slice(first, first + self.n_real)

    @property
    def root(self) -> Float[Array, "R R"]:
        """The lower triangular T = S^-1 A: real units have the precision matrix T T'."""
        scale = 1 / jnp.sqrt(self.variance[: self.n_real])
        if self.lateral is None:
            return jnp.diag(scale)
        return scale[:, None] * (jnp.tril(self.lateral, -1) + jnp.eye(self.n_real))

    @property
    def couplings(self) -> Float[Array, "V H"]:
        """What multiplies v_i h_j: W, divided by s for real units, T W if these are coupled."""
        if self.lateral is not None:
            return self.weights.at[self.real_units].set(self.root @ self.weights[self.real_units])
        return jnp.where(self._is(Domain.REAL), jnp.sqrt(self.precision), 1.0)[:, None] * (
            self.weights
        )

    @property
    def visible_fields_alone(self) -> Float[Array, " V"]:
        """What multiplies v_i alone: b, or b / s^2 for real units, T T' b if they are coupled."""
        if self.lateral is not None:
            own = self.root @ (self.root.T @ self.visible_bias[self.real_units])
            return self.visible_bias.at[self.real_units].set(own)
        return jnp.where(self._is(Domain.REAL), self.precision, 1.0) * self.visible_bias

    @property
    def real_couplings(self) -> Float[Array, "R R"] | None:
        """What multiplies v_i v_j of two real units, symmetric; None if they are not coupled."""
        if self.lateral is None:
            return None
        return -self.root @ self.root.T * (1 - jnp.eye(self.n_real))

    def _is(self, domain: Domain) -> np.ndarray:
        """Which visible units are of a domain."""
        return np.concatenate([np.full(b.size, b.domain is domain) for b in self.table.blocks])

    @property
    def _offset(self) -> Float[Array, ""]:
        """-b^2 / (2 s^2), summed over real units."""
        if self.lateral is not None:
            return -0.5 * ((self.root.T @ self.visible_bias[self.real_units]) ** 2).sum()
        real = jnp.where(self._is(Domain.REAL), self.precision * self.visible_bias**2, 0.0)
        return -0.5 * real.sum()

    def energy(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """E(v, h) of joint states."""
        x = joint_states("MixedRBM.energy", self.layout, x)
        v, h = x[..., : self.n_visible], x[..., self.n_visible :]
        return self._alone(v) - (self.hidden_fields(v) * h).sum(-1)

    def lower(self) -> Potentials:
        """One bilinear group per visible block, squares and couplings of continuous units."""
        layout, couplings, precision = self.layout, self.couplings, self.precision
        between = self.real_couplings
        factors: list[Any] = []
        for i, block in enumerate(layout.blocks[:-1]):
            factors.append(Bilinear(couplings[block.slice], i, len(layout.blocks) - 1))
            if block.domain in CONTINUOUS:
                factors.append(Squares(-0.5 * precision[block.slice], i))
            if block.domain is Domain.REAL and between is not None:
                factors.append(Symmetric(between, i))
        unary = jnp.concatenate([self.visible_fields_alone, self.hidden_bias])
        return potentials(layout, unary, tuple(factors), self._offset)

    def conditional(self, block: int, x: Float[Array, "*batch n"]) -> Float[Array, "*batch size"]:
        """Fields of one block given the other layer, without squares and couplings within it."""
        where = self.layout.blocks[block]
        if not where.visible:
            return self.hidden_fields(x[..., : self.n_visible])
        return self.visible_fields(x[..., self.n_visible :])[..., where.slice]

    def hidden_fields(self, v: Float[Array, "*batch V"]) -> Float[Array, "*batch H"]:
        """The log-odds of the hiddens given the visibles."""
        fields = v @ self.couplings
        return fields + row(self.hidden_bias, fields)

    def visible_fields(self, h: Float[Array, "*batch H"]) -> Float[Array, "*batch V"]:
        """The l of every visible unit given the hiddens: exp(l v - precision v^2 / 2)."""
        fields = h @ self.couplings.T
        return fields + row(self.visible_fields_alone, fields)

    def free_energy(self, v: Float[Array, "*batch V"]) -> Float[Array, "*batch"]:
        """-log sum_h exp(-E(v, h))."""
        v = visible_states("MixedRBM.free_energy", self.layout, v)
        return self._alone(v) - sum_softplus(self.hidden_fields(v))

    def _alone(self, v: Float[Array, "*batch V"]) -> Float[Array, "*batch"]:
        """The energy of the visible units alone."""
        real, own = self._is(Domain.REAL), self.real_couplings
        v = v - row(jnp.where(real, self.visible_bias, 0.0), v)
        found = 0.5 * (v * v) @ self.precision - v @ jnp.where(real, 0.0, self.visible_bias)
        if own is None:
            return found
        x = v[..., self.real_units]
        return found - 0.5 * ((x @ own) * x).sum(-1)

    def log_conditionals(self, v: Float[Array, "*batch V"]) -> Float[Array, "*batch V"]:
        """log p(variable | all other visibles), hiddens summed out; a category's at its unit on."""
        v = visible_states("MixedRBM.log_conditionals", self.layout, v)
        parts, fields = [], self.hidden_fields(v)
        for block in self.table.blocks:
            find = self._continuous_given if block.domain in CONTINUOUS else self._discrete_given
            parts.append(find(block, v, fields))
        return jnp.concatenate(parts, -1)

    def _discrete_given(self, block: Block, v: Array, fields: Array) -> Float[Array, "*batch m"]:
        """Log-probability of the units of a discrete block that are on (binary ones: as they are).

        The field of a state is b + sum_j softplus(f_j + W_j), f_j without what the variable adds.
        """
        x, alone = v[..., block.slice], self.visible_bias[block.slice]

        @jax.checkpoint
        def add(total: Array, unit: tuple[Array, Array]) -> tuple[Array, None]:
            weight = row(unit[1], x)
            own = (x * weight).reshape(*x.shape[:-1], block.variables, block.width).sum(-1)
            rest = unit[0][..., None] - jnp.repeat(own, block.width, -1)
            gain = softplus(rest + weight)
            return total + (gain if block.width > 1 else gain - softplus(rest)), None

        start = jnp.broadcast_to(row(alone, x), x.shape).astype(fields.dtype)
        weights = self.couplings[block.slice].T
        logits, _ = jax.lax.scan(add, start, (jnp.moveaxis(fields, -1, 0), weights))
        if block.domain is Domain.BINARY:
            return jax.nn.log_sigmoid((2 * x - 1) * logits)
        groups = logits.reshape(*x.shape[:-1], block.variables, block.states)
        return x * jax.nn.log_softmax(groups, -1).reshape(x.shape)

    def _continuous_given(self, block: Block, v: Array, fields: Array) -> Float[Array, "*batch m"]:
        """Log-density of the units of a continuous block given all other visibles."""
        x = v[..., block.slice]
        couplings = self.couplings[block.slice]
        weights = couplings.reshape((1,) * (x.ndim - 1) + couplings.shape)
        odds = fields[..., None, :] - x[..., None] * weights
        alone = jnp.broadcast_to(row(self.visible_fields_alone[block.slice], x), x.shape)
        own = self.real_couplings if block.domain is Domain.REAL else None
        if own is not None:
            alone = alone + x @ own
        precision = jnp.broadcast_to(row(self.precision[block.slice], x), x.shape)
        positive = block.domain is Domain.NONNEGATIVE
        return log_probability(x, alone, precision, odds, weights, positive)

    def independent(self, means: Float[Array, " V"] | None = None) -> "MixedRBM":
        """The same units without couplings, at these means of visible units.

        Without them they are uniform where discrete, and continuous ones have the fields of the
        model. The variance of a real unit is about what the hidden units leave and add to it.
        """
        V = self.n_visible
        first = jnp.full(V, jnp.nan) if means is None else jnp.asarray(means)
        added = 1 + 0.25 * (self.weights**2).sum(1)
        spread = jnp.where(self.precision > 0, added / jnp.maximum(self.precision, 1e-9), 0.0)
        if self.lateral is not None:
            up = jnp.linalg.inv(self.root.T)
            moved = up @ self.weights[self.real_units]
            spread = spread.at[self.real_units].set((up**2).sum(1) + 0.25 * (moved**2).sum(1))
        ratio = jnp.where(self._is(Domain.NONNEGATIVE), 1.6 * first**2, spread + first**2)
        return self._with_moments(first.astype(self.weights.dtype), ratio, keep=means is None)

    def centred(self) -> tuple["MixedRBM", Float[np.ndarray, " V"]]:
        """The model of v - b for real units, and b in double precision, 0 at other units.

        Its hidden biases are c + W' S^-1 b, with A' in front of S^-1 where real units are coupled.
        """
        at, bias = self.real_units, np.array(self.visible_bias, np.float64)
        mean = np.where(self._is(Domain.REAL), bias, 0.0)
        logs = np.array(self.log_variance, np.float64)[: self.n_real]
        pull = mean[at] / np.sqrt(np.exp(logs) + LEAST_VARIANCE)
        if self.lateral is not None:
            pull = pull + np.tril(np.array(self.lateral, np.float64), -1).T @ pull
        hidden = np.array(self.hidden_bias, np.float64)
        moved = bias - mean, hidden + pull @ np.array(self.weights, np.float64)[at]
        visible, hidden = (jax.device_put(a.astype(self.weights.dtype)) for a in moved)
        return replace(self, visible_bias=visible, hidden_bias=hidden), mean

    def units_of_measure(self) -> tuple[Float[Array, " V"], Float[Array, " V"]]:
        """Means and s of real units, 0 and the mean of nonnegative ones alone, else 0 and 1."""
        real, positive, b = self._is(Domain.REAL), self._is(Domain.NONNEGATIVE), self.visible_bias
        precision = jnp.where(real | positive, self.precision, 1.0)
        size = jnp.where(real, 1 / jnp.sqrt(precision), rectified.cumulants(b, precision).mean)
        return jnp.where(real, b, 0.0), jnp.where(real | positive, size, 1.0)

    def rescaled(self, means: Float[Array, " V"], scale: Float[Array, " V"]) -> "MixedRBM":
        """The model of means + scale v, but for the least variance, which stays the same.

        Means are 0 at all but real units, scales 1 at all but continuous ones.
        """
        own = jnp.where(self._is(Domain.NONNEGATIVE), scale, 1.0)
        real, bias, weights = self._is(Domain.REAL), self.visible_bias, self.weights / own[:, None]
        moved = replace(
            self,
            weights=weights,
            visible_bias=jnp.where(real, means + scale * bias, bias / own),
            log_variance=self.log_variance + 2 * jnp.log(scale[len(bias) - self._n_continuous :]),
        )
        pull = moved.root.T @ means[self.real_units]
        return replace(moved, hidden_bias=self.hidden_bias - pull @ weights[self.real_units])

    def started_at(
        self, means: Float[np.ndarray, " V"], scale: Float[np.ndarray, " V"]
    ) -> "MixedRBM":
        """A model that `create` made without data, in the units of the data; else the same."""
        nothing = jnp.full(self.n_visible, jnp.nan)
        new = self._with_moments(nothing, nothing)
        for name in ("visible_bias", "hidden_bias", "log_variance", "lateral"):
            if not np.array_equal(getattr(self, name), getattr(new, name)):
                return self
        check_sizes(self.table, scale)
        return self.rescaled(jnp.asarray(means), jnp.asarray(scale))

    def _with_moments(
        self, first: Float[Array, " V"], second: Float[Array, " V"], keep: bool = False
    ) -> "MixedRBM":
        """Without couplings, at these first and second moments; NaN is a neutral unit.

        With `keep` continuous units stay as they are.
        """
        found = [alone_at(b, first[b.slice], second[b.slice]) for b in self.table.blocks]
        bias, logs = (
            jnp.concatenate(part).astype(self.weights.dtype) for part in zip(*found, strict=True)
        )
        logs = logs[self.n_visible - self._n_continuous :]
        if keep:
            continuous = ~(self._is(Domain.BINARY) | self._is(Domain.CATEGORICAL))
            bias, logs = jnp.where(continuous, self.visible_bias, bias), self.log_variance
        zeros = jnp.zeros_like(self.weights), jnp.zeros_like(self.hidden_bias)
        lateral = None if self.lateral is None else jnp.zeros_like(self.lateral)
        return MixedRBM(zeros[0], bias, zeros[1], logs, self.table, lateral)
