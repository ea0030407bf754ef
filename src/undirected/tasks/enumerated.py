"""Harmoniums of few hidden units, exactly and in NumPy: every hidden state is enumerated.

Given the hidden units the visible ones are independent, so H of them make a mixture of 2^H products
whose weights and components share parameters. Likelihoods of rows with holes, answers, draws and
gradients are then plain sums. Small tables are learned so in less time than a compilation takes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import minimize
from scipy.special import expit, logsumexp, softmax

from undirected.core.errors import UndirectedError

MOST_HIDDEN = 10
"""Hidden units that are enumerated."""
LOG_PRECISIONS = (-5.0, 4.6)
"""Bounds of the log-precision of a standardised real given the hidden units: variance 0.01 up."""
WEAK = 0.05
"""Penalty of biases, which keeps states that are never seen at a finite cost."""
MOST_FIELDS = 2**22
"""Numbers that the fields of one chunk of rows may take."""


def hidden_states(n_hidden: int) -> Float[np.ndarray, "S H"]:
    """All 2^H states of binary hidden units."""
    if not 0 <= n_hidden <= MOST_HIDDEN:
        raise UndirectedError(
            f"{n_hidden} hidden units: wanted 0 to {MOST_HIDDEN}, whose states are enumerated"
        )
    return ((np.arange(2**n_hidden)[:, None] >> np.arange(n_hidden)) & 1).astype(float)


@dataclass(frozen=True)
class Groups:
    """Discrete variables, each with a unit for every state, one after the other.

    Args:
        widths: the number of states of each.
    """

    widths: tuple[int, ...]

    @property
    def size(self) -> int:
        return sum(self.widths)

    def log_sums(self, fields: Float[np.ndarray, "*b D"]) -> Float[np.ndarray, "*b G"]:
        """The log normaliser of each variable."""
        if not self.widths:
            return np.zeros((*fields.shape[:-1], 0))
        starts = np.cumsum((0, *self.widths[:-1]))
        return np.logaddexp.reduceat(fields, starts, axis=-1)

    def spread(self, values: Float[np.ndarray, "*b G"]) -> Float[np.ndarray, "*b D"]:
        """A number of each variable at all of its units."""
        return np.repeat(values, np.array(self.widths, int), axis=-1)

    def one_hot(self, codes: Float[np.ndarray, "rows G"]) -> Float[np.ndarray, "rows D"]:
        """Units of rows of states; all 0 where a state is missing."""
        states = np.concatenate([np.arange(width) for width in self.widths] or [np.zeros(0)])
        return (self.spread(np.asarray(codes, float)) == states).astype(float)


@dataclass(frozen=True, eq=False)
class Harmonium:
    """An RBM over discrete and real columns, -E = c' h + sum_i v_i (b_i + W_i h) - r_i v_i^2 / 2.

    Args:
        groups: the discrete columns, whose units come first.
        weights: W (V, H).
        bias: b (V,).
        log_precision: log r of the real columns.
        hidden_bias: c (H,).
    """

    groups: Groups
    weights: Float[np.ndarray, "V H"]
    bias: Float[np.ndarray, " V"]
    log_precision: Float[np.ndarray, " R"]
    hidden_bias: Float[np.ndarray, " H"]
    states: Float[np.ndarray, "S H"] = field(repr=False)

    @cached_property
    def fields(self) -> Float[np.ndarray, "S V"]:
        """What multiplies each visible unit, for every hidden state."""
        return self.states @ self.weights.T + self.bias

    @property
    def variance(self) -> Float[np.ndarray, " R"]:
        """Of the real columns given the hidden units."""
        return np.exp(-self.log_precision)

    @cached_property
    def log_sums(self) -> tuple[Float[np.ndarray, "S G"], Float[np.ndarray, "S R"]]:
        """Log normalisers of discrete and real columns, for every hidden state."""
        discrete, real = self._parts(self.fields)
        own = 0.5 * (real**2 * self.variance + np.log(2 * np.pi * self.variance))
        return self.groups.log_sums(discrete), own

    @cached_property
    def means(self) -> Float[np.ndarray, "S V"]:
        """Means of the visible units for every hidden state."""
        discrete, real = self._parts(self.fields)
        p = np.exp(discrete - self.groups.spread(self.log_sums[0]))
        return np.concatenate([p, real * self.variance], 1)

    @cached_property
    def log_weights(self) -> Float[np.ndarray, " S"]:
        """log p(h)."""
        found = self.states @ self.hidden_bias + sum(part.sum(1) for part in self.log_sums)
        return found - logsumexp(found)

    def _parts(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return values[..., : self.groups.size], values[..., self.groups.size :]

    def joint(self, rows: "Rows") -> Float[np.ndarray, "rows S"]:
        """log p(v, h) of the observed part of rows."""
        discrete, real = self.log_sums
        found = rows.units @ self.fields.T + self.log_weights
        found -= rows.seen_groups @ discrete.T + rows.seen_real @ real.T
        return found - 0.5 * (rows.real**2 @ np.exp(self.log_precision))[:, None]

    def log_likelihood(self, rows: "Rows") -> Float[np.ndarray, " rows"]:
        """log p of the observed part of each row."""
        return logsumexp(self.joint(rows), axis=1)

    def answers(
        self, rows: "Rows"
    ) -> tuple[Float[np.ndarray, "rows V"], Float[np.ndarray, "rows R"]]:
        """Means of all visible units given the observed ones, and variances of the real columns."""
        posterior, means = softmax(self.joint(rows), axis=1), self.means
        found, real = posterior @ means, self._parts(means)[1]
        second = posterior @ (real**2 + self.variance)
        return found, np.maximum(second - self._parts(found)[1] ** 2, 0.0)

    def sample(
        self, count: int, rng: np.random.RandomState
    ) -> tuple[Float[np.ndarray, "count G"], Float[np.ndarray, "count R"]]:
        """Independent draws: states of the discrete columns, and the real ones."""
        which = rng.choice(len(self.states), count, p=np.exp(self.log_weights))
        p, mean = self._parts(self.means[which])
        ends = np.cumsum(self.groups.widths).astype(int)
        parts = np.split(p, ends[:-1], 1) if len(ends) else []
        codes = [(part.cumsum(1) < rng.uniform(size=(count, 1))).sum(1) for part in parts]
        codes = [np.minimum(c, w - 1) for c, w in zip(codes, self.groups.widths, strict=True)]
        real = mean + rng.standard_normal(mean.shape) * np.sqrt(self.variance)
        return np.stack(codes, 1) if codes else np.zeros((count, 0)), real

    def slope(self, rows: "Rows") -> tuple[float, list[np.ndarray]]:
        """The log-likelihood of rows, and its gradient by W, b, log r and c."""
        joint, means = self.joint(rows), self.means
        total = logsumexp(joint, axis=1, keepdims=True)
        posterior = np.exp(joint - total)
        prior = len(joint) * np.exp(self.log_weights)
        holes = posterior.T @ (1 - rows.seen_groups), posterior.T @ (1 - rows.seen_real)
        unseen = np.concatenate([self.groups.spread(holes[0]), holes[1]], 1)
        gap = posterior.T @ rows.units + (unseen - prior[:, None]) * means
        squares = self._parts(means)[1] ** 2 + self.variance
        second = (rows.real**2).sum(0) + ((holes[1] - prior[:, None]) * squares).sum(0)
        moved = [gap.T @ self.states, gap.sum(0), -0.5 * np.exp(self.log_precision) * second]
        return float(total.sum()), [*moved, (posterior.sum(0) - prior) @ self.states]


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows for a `Harmonium`: units with 0 where an entry is missing, and what is observed."""

    units: Float[np.ndarray, "rows V"]
    real: Float[np.ndarray, "rows R"]
    seen_groups: Float[np.ndarray, "rows G"]
    seen_real: Float[np.ndarray, "rows R"]

    @classmethod
    def of(
        cls, groups: Groups, codes: Float[np.ndarray, "rows G"], real: Float[np.ndarray, "rows R"]
    ) -> "Rows":
        """From states of the discrete columns and standardised reals, NaN where missing."""
        seen: tuple[Bool[np.ndarray, "rows G"], Bool[np.ndarray, "rows R"]]
        seen = ~np.isnan(codes), ~np.isnan(real)
        filled = np.where(seen[1], real, 0.0)
        units = np.concatenate([groups.one_hot(codes), filled], 1)
        return cls(units, filled, seen[0].astype(float), seen[1].astype(float))


def fit_harmonium(
    groups: Groups,
    rows: Rows,
    n_hidden: int,
    rng: np.random.RandomState,
    *,
    alpha: float = 1.0,
    max_iter: int = 200,
) -> tuple[Harmonium, int]:
    """The most probable harmonium under a normal prior of variance 1 / alpha on its weights.

    Returns:
        The model, and the iterations of L-BFGS.
    """
    states, n = hidden_states(n_hidden), len(rows.units)
    V, R = rows.units.shape[1], rows.real.shape[1]
    shapes = [(V, n_hidden), (V,), (R,), (n_hidden,)]
    penalties = [alpha, WEAK, 0.0, WEAK]
    counts = rows.units.sum(0)[: groups.size] + 0.5
    first = [
        rng.normal(0, 0.3, shapes[0]),
        np.concatenate([np.log(counts / n), np.zeros(R)]),
        np.zeros(R),
        np.zeros(n_hidden),
    ]

    def value(parts: list[np.ndarray]) -> tuple[float, list[np.ndarray]]:
        return Harmonium(groups, *parts, states).slope(rows)

    free, held = (None, None), LOG_PRECISIONS
    bounds = [held if i == 2 else free for i, part in enumerate(first) for _ in range(part.size)]
    parts, steps = _maximise(value, first, penalties, n, max_iter, bounds)
    return Harmonium(groups, *parts, states), steps


def _maximise(
    value: Callable[[list[np.ndarray]], tuple[float, list[np.ndarray]]],
    first: list[np.ndarray],
    penalties: list[float],
    rows: int,
    max_iter: int,
    bounds: Any = None,
) -> tuple[list[np.ndarray], int]:
    """L-BFGS from `first` on a penalised log-likelihood; returns the parameters and the steps."""
    ends = np.cumsum([part.size for part in first])[:-1]

    def split(flat: np.ndarray) -> list[np.ndarray]:
        pieces = np.split(flat, ends)
        return [p.reshape(f.shape) for p, f in zip(pieces, first, strict=True)]

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        parts = split(flat)
        total, slopes = value(parts)
        for part, slope, penalty in zip(parts, slopes, penalties, strict=True):
            total -= 0.5 * penalty * float((part**2).sum())
            slope -= penalty * part
        return -total / rows, -np.concatenate([slope.ravel() for slope in slopes]) / rows

    start = np.concatenate([part.ravel() for part in first])
    options = {"maxiter": max_iter}
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return split(found.x), max(1, int(found.nit))


@dataclass(frozen=True, eq=False)
class ConditionalHarmonium:
    """A conditional RBM over discrete outputs: features move the biases of outputs and hiddens.

    -E(v, h; x) = v' W h + v' (A x + b) + h' (C x + c).

    Args:
        groups: the outputs.
        weights: W (D, H).
        output_features: A (D, X).
        hidden_features: C (H, X).
        bias: b (D,).
        hidden_bias: c (H,).
    """

    groups: Groups
    weights: Float[np.ndarray, "D H"]
    output_features: Float[np.ndarray, "D X"]
    hidden_features: Float[np.ndarray, "H X"]
    bias: Float[np.ndarray, " D"]
    hidden_bias: Float[np.ndarray, " H"]
    states: Float[np.ndarray, "S H"] = field(repr=False)

    def fields(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Biases of outputs and of hidden units that rows of features give."""
        outputs = x @ self.output_features.T + self.bias
        return outputs, x @ self.hidden_features.T + self.hidden_bias

    def _enumerate(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """log Z of each row, p(h | x), and the means of the outputs given h and x."""
        outputs, hidden = self.fields(x)
        fields = outputs[:, None] + (self.states @ self.weights.T)[None]
        sums = self.groups.log_sums(fields)
        joint = hidden @ self.states.T + sums.sum(2)
        log_z = logsumexp(joint, axis=1, keepdims=True)
        return log_z[:, 0], np.exp(joint - log_z), np.exp(fields - self.groups.spread(sums))

    def _chunks(self, rows: int) -> list[slice]:
        size = max(1, MOST_FIELDS // max(1, len(self.states) * self.groups.size))
        return [slice(start, start + size) for start in range(0, rows, size)]

    def predict(self, x: Float[np.ndarray, "rows X"]) -> Float[np.ndarray, "rows D"]:
        """p(v = 1 | x) of every output unit."""
        found = np.empty((len(x), self.groups.size))
        for part in self._chunks(len(x)):
            _, p, means = self._enumerate(x[part])
            found[part] = np.einsum("ns,nsd->nd", p, means)
        return found

    def log_likelihood(
        self, x: Float[np.ndarray, "rows X"], v: Float[np.ndarray, "rows D"]
    ) -> Float[np.ndarray, " rows"]:
        """log p(v | x) of rows of output units."""
        outputs, hidden = self.fields(x)
        alone = (v * outputs).sum(1) + np.logaddexp(0, hidden + v @ self.weights).sum(1)
        return alone - np.concatenate([self._enumerate(x[c])[0] for c in self._chunks(len(x))])

    def slope(self, x: np.ndarray, v: np.ndarray) -> tuple[float, list[np.ndarray]]:
        """The conditional log-likelihood, and its gradient by W, A, C, b and c."""
        total, slopes = 0.0, [np.zeros(())] * 5
        for c in self._chunks(len(x)):
            outputs, hidden = self.fields(x[c])
            hidden = hidden + v[c] @ self.weights
            log_z, p, means = self._enumerate(x[c])
            free = (v[c] * outputs).sum(1) + np.logaddexp(0, hidden).sum(1)
            total += float((free - log_z).sum())
            joint, on = p[:, :, None] * means, expit(hidden)
            d_out, d_hidden = v[c] - joint.sum(1), on - p @ self.states
            moved = v[c].T @ on - joint.sum(0).T @ self.states
            own = [moved, d_out.T @ x[c], d_hidden.T @ x[c], d_out.sum(0), d_hidden.sum(0)]
            slopes = [a + b for a, b in zip(slopes, own, strict=True)]
        return total, slopes


def fit_conditional(
    groups: Groups,
    x: Float[np.ndarray, "rows X"],
    v: Float[np.ndarray, "rows D"],
    n_hidden: int,
    rng: np.random.RandomState,
    *,
    alpha: float = 1.0,
    max_iter: int = 200,
) -> tuple[ConditionalHarmonium, int]:
    """The most probable conditional RBM under a normal prior of variance 1 / alpha.

    Returns:
        The model, and the iterations of L-BFGS.
    """
    states, D, X = hidden_states(n_hidden), groups.size, x.shape[1]
    first = [
        rng.normal(0, 0.1, (D, n_hidden)),
        np.zeros((D, X)),
        rng.normal(0, 0.1, (n_hidden, X)),
        np.log((v.sum(0) + 0.5) / len(v)),
        np.zeros(n_hidden),
    ]

    def value(parts: list[np.ndarray]) -> tuple[float, list[np.ndarray]]:
        return ConditionalHarmonium(groups, *parts, states).slope(x, v)

    penalties = [alpha, alpha, alpha, WEAK, WEAK]
    parts, steps = _maximise(value, first, penalties, len(x), max_iter)
    return ConditionalHarmonium(groups, *parts, states), steps
