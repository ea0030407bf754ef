"""RBMs of few hidden units, exactly and in NumPy: every hidden state is enumerated.

Given the hidden units the visible ones are independent, so H of them make a mixture of 2^H products
whose weights and components share parameters. Likelihoods of rows with holes, answers and gradients
are then plain sums. Small tables are learned so in less time than a compilation takes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeGuard

import numpy as np
from jaxtyping import Bool, Float

from undirected.core.errors import UndirectedError
from undirected.core.layout import CONTINUOUS, Domain
from undirected.core.table_units import TableUnits
from undirected.models import MixedRBM
from undirected.models.mixed_rbm import LEAST_VARIANCE

MOST_HIDDEN = 10
"""Hidden units that are enumerated."""
MOST_NUMBERS = 2**22
"""Numbers that one chunk of rows may take."""
FAR = -100.0
"""Mean, in standard deviations, below which the moments of a normal cut off at 0 are a series."""


def hidden_states(n_hidden: int) -> Float[np.ndarray, "S H"]:
    """All 2^H states of binary hidden units."""
    if not 0 <= n_hidden <= MOST_HIDDEN:
        raise UndirectedError(
            f"{n_hidden} hidden units: wanted 0 to {MOST_HIDDEN}, whose states are enumerated"
        )
    return ((np.arange(2**n_hidden)[:, None] >> np.arange(n_hidden)) & 1).astype(float)


def hidden_for(rows: int) -> int:
    """How many hidden units so many rows can tell of."""
    return int(np.clip(rows // 16, 2, 8))


def log_sum(joint: Float[np.ndarray, "*b S"]) -> tuple[np.ndarray, np.ndarray]:
    """The log of the sum of exponentials along the last axis, kept, and the shares in it."""
    top = joint.max(-1, keepdims=True)
    weights = np.exp(joint - top)
    total = weights.sum(-1, keepdims=True)
    weights /= total
    return top + np.log(total), weights


def is_enumerable(model: Any) -> TypeGuard[MixedRBM]:
    """Whether a model is one whose hidden states are few enough to be enumerated."""
    return isinstance(model, MixedRBM) and model.n_hidden <= MOST_HIDDEN


class Visible:
    """The visible variables of a table, block after block: what fields do to each of them.

    A variable with fields l over its units has the log normaliser log(1 + e^l) where it is binary,
    log sum e^l where it is a category, and that of exp(l v - v^2 / (2 s^2)) where it is continuous;
    continuous units come last.
    """

    def __init__(self, table: TableUnits):
        self.table, self.size = table, table.n_units
        each = [block for block in table.blocks for _ in range(block.variables)]
        self.widths = np.array([block.width for block in each])
        self.starts = np.cumsum(self.widths) - self.widths
        self.is_binary = np.array([block.domain is Domain.BINARY for block in each])
        lines = [block.domain for block in each if block.domain in CONTINUOUS]
        self.is_positive = np.array([d is Domain.NONNEGATIVE for d in lines], bool)
        self.discrete = self.size - len(lines)
        """Units of the discrete variables."""

    @property
    def continuous(self) -> int:
        """Number of continuous units."""
        return self.size - self.discrete

    @property
    def real(self) -> slice:
        """The real units, which come before the nonnegative ones."""
        return slice(self.discrete, self.size - int(self.is_positive.sum()))

    @property
    def real_variables(self) -> slice:
        """The real variables."""
        first = len(self.widths) - self.continuous
        return slice(first, len(self.widths) - int(self.is_positive.sum()))

    def spread(self, values: Float[np.ndarray, "*b G"]) -> Float[np.ndarray, "*b V"]:
        """A number of each variable at all of its units."""
        return np.repeat(values, self.widths, axis=-1)

    def units(self, variable: int) -> slice:
        """The units of a variable."""
        start = int(self.starts[variable])
        return slice(start, start + int(self.widths[variable]))

    def observed(self, rows: Float[np.ndarray, "rows V"]) -> tuple[np.ndarray, np.ndarray]:
        """Units of rows with 0 where one is missing, and which variables are observed, as 0/1."""
        seen = ~np.isnan(rows)
        return np.where(seen, rows, 0.0).astype(float), seen[:, self.starts].astype(float)

    def log_sums(
        self, fields: Float[np.ndarray, "*b V"], variance: Float[np.ndarray, " C"]
    ) -> Float[np.ndarray, "*b G"]:
        """The log normaliser of each variable."""
        found = np.logaddexp.reduceat(fields, self.starts, axis=-1)
        on = found[..., self.is_binary]
        found[..., self.is_binary] = np.logaddexp(0.0, on)
        a = fields[..., self.discrete :] * np.sqrt(variance)
        cut = self._log_shares(a)
        normal = 0.5 * (a**2 + np.log(2 * np.pi * variance))
        found[..., len(self.widths) - self.continuous :] = normal + cut
        return found

    def _log_shares(self, a: Float[np.ndarray, "*b C"]) -> Float[np.ndarray, "*b C"]:
        """log of the share of a normal of mean a and variance 1 that each continuous unit keeps."""
        if not self.is_positive.any():
            return np.zeros(a.shape)
        from scipy.special import log_ndtr  # takes as long to import as a small query

        return np.where(self.is_positive, log_ndtr(a), 0.0)

    def moments(
        self, fields: Float[np.ndarray, "*b V"], variance: Float[np.ndarray, " C"]
    ) -> tuple[Float[np.ndarray, "*b V"], Float[np.ndarray, "*b C"]]:
        """Means of all units, and second moments of the continuous ones."""
        s, at = np.sqrt(variance), self.discrete
        p = fields - self.spread(self.log_sums(fields, variance))
        p[..., :at] = np.exp(p[..., :at])
        a = fields[..., at:] * s
        first, second = a, 1 + a**2
        if self.is_positive.any():
            pairs = zip((first, second), _cut_moments(a), strict=True)
            first, second = (np.where(self.is_positive, cut, own) for own, cut in pairs)
        p[..., at:] = s * first
        return p, variance * second

    def draw(
        self,
        fields: Float[np.ndarray, "rows V"],
        variance: Float[np.ndarray, " C"],
        rng: np.random.Generator,
    ) -> Float[np.ndarray, "rows V"]:
        """A state of every variable, given the fields of each row."""
        found = fields + rng.gumbel(size=fields.shape)
        best = self.spread(np.maximum.reduceat(found, self.starts, axis=-1)) == found
        alone = self.spread(self.is_binary)
        found = np.where(alone, found > rng.gumbel(size=fields.shape), best).astype(float)
        from scipy.special import ndtri_exp

        s = np.sqrt(variance)
        a = fields[:, self.discrete :] * s
        logs = np.log1p(-rng.random(a.shape))  # of numbers in (0, 1]
        high = -ndtri_exp(logs + self._log_shares(a))
        found[:, self.discrete :] = s * (a + high)
        return found


def _cut_moments(a: Float[np.ndarray, "*b C"]) -> tuple[np.ndarray, np.ndarray]:
    """First two moments of a normal of mean a and variance 1 that is cut off below 0.

    Far out their terms cancel, and a series in 1 / a^2 takes their place.
    """
    from scipy.special import erfcx

    near, far = np.maximum(a, FAR), 1 / np.minimum(a, FAR)
    mean = near + np.sqrt(2 / np.pi) / erfcx(-near / np.sqrt(2))
    square = 2 * far**2 - 10 * far**4 + 74 * far**6
    first = np.where(a < FAR, (square - 1) * far, mean)
    return first, np.where(a < FAR, square, 1 + near * mean)


@dataclass(frozen=True, eq=False)
class EnumeratedRBM:
    """A `MixedRBM` in NumPy: -E = c' h + sum_i v_i (b_i + W_i h) - v_i^2 / (2 s_i^2).

    Args:
        visible: the visible variables.
        weights: W (V, H).
        bias: b (V,).
        log_precision: log 1 / s^2 of the continuous units.
        hidden_bias: c (H,).
    """

    visible: Visible
    weights: Float[np.ndarray, "V H"]
    bias: Float[np.ndarray, " V"]
    log_precision: Float[np.ndarray, " C"]
    hidden_bias: Float[np.ndarray, " H"]

    @classmethod
    def of(cls, model: MixedRBM) -> "EnumeratedRBM":
        """The parameters of a model."""
        visible = Visible(model.table)
        arrays = model.weights, model.visible_bias, model.hidden_bias, model.log_variance
        weights, bias, hidden, logs = (np.array(a, np.float64) for a in arrays)
        variance = np.exp(logs) + LEAST_VARIANCE
        real = visible.discrete + np.flatnonzero(~visible.is_positive)
        own = variance[~visible.is_positive]
        weights[real] /= np.sqrt(own)[:, None]
        bias[real] /= own
        return cls(visible, weights, bias, -np.log(variance), hidden)

    def model(self) -> MixedRBM:
        """The model with these parameters."""
        import jax

        weights, bias, variance = self.weights.copy(), self.bias.copy(), self.variance
        real = self.visible.discrete + np.flatnonzero(~self.visible.is_positive)
        own = variance[~self.visible.is_positive]
        weights[real] *= np.sqrt(own)[:, None]
        bias[real] *= own
        parts = weights, bias, self.hidden_bias, np.log(variance - LEAST_VARIANCE)
        # Narrowed by NumPy: JAX would compile a program for each shape.
        first, second, third, fourth = (jax.device_put(part.astype(np.float32)) for part in parts)
        return MixedRBM(first, second, third, fourth, self.visible.table)

    @cached_property
    def states(self) -> Float[np.ndarray, "S H"]:
        """All states of the hidden units."""
        return hidden_states(len(self.hidden_bias))

    @property
    def variance(self) -> Float[np.ndarray, " C"]:
        """s^2, of the continuous units given the hidden ones."""
        return np.exp(-self.log_precision)

    @cached_property
    def fields(self) -> Float[np.ndarray, "S V"]:
        """What multiplies each visible unit, for every hidden state."""
        return self.states @ self.weights.T + self.bias

    @cached_property
    def log_sums(self) -> Float[np.ndarray, "S G"]:
        """Log normalisers of the variables, for every hidden state."""
        return self.visible.log_sums(self.fields, self.variance)

    @cached_property
    def moments(self) -> tuple[Float[np.ndarray, "S V"], Float[np.ndarray, "S C"]]:
        """Means and second moments of the visible units, for every hidden state."""
        return self.visible.moments(self.fields, self.variance)

    @cached_property
    def _log_masses(self) -> Float[np.ndarray, " S"]:
        """log of the sum of exp(-E) over the visible states, for every hidden state."""
        return self.states @ self.hidden_bias + self.log_sums.sum(1)

    @property
    def log_z(self) -> float:
        """log Z of the `MixedRBM`, whose real units have the energy (v - b)^2 / (2 s^2)."""
        real = self.visible.discrete + np.flatnonzero(~self.visible.is_positive)
        own = self.variance[~self.visible.is_positive]
        return float(log_sum(self._log_masses)[0][0] - 0.5 * (self.bias[real] ** 2 * own).sum())

    @cached_property
    def log_weights(self) -> Float[np.ndarray, " S"]:
        """log p(h)."""
        return self._log_masses - log_sum(self._log_masses)[0]

    def joint(self, v: np.ndarray, seen: np.ndarray) -> Float[np.ndarray, "rows S"]:
        """log p(v, h) of the observed part of rows, as `Visible.observed` has it."""
        squares = v[:, self.visible.discrete :] ** 2 @ np.exp(self.log_precision)
        found = v @ self.fields.T
        found -= seen @ self.log_sums.T
        found += self.log_weights
        found -= 0.5 * squares[:, None]
        return found

    def log_likelihood(self, rows: Float[np.ndarray, "rows V"]) -> Float[np.ndarray, " rows"]:
        """log p of the observed part of each row."""
        return np.concatenate([log_sum(self.joint(*c))[0][:, 0] for c in self._chunks(rows)])

    def answers(
        self, rows: Float[np.ndarray, "rows V"]
    ) -> tuple[Float[np.ndarray, "rows V"], Float[np.ndarray, "rows V"]]:
        """Means of all units given the observed ones, and their standard deviations.

        The latter are 0 for what is observed and for discrete units.
        """
        std = np.zeros(rows.shape)
        parts = [self._expected(*chunk) for chunk in self._chunks(rows)]
        found, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
        std[:, self.visible.discrete :] = np.sqrt(np.maximum(variance, 0.0))
        seen = ~np.isnan(rows)
        return np.where(seen, rows, found), np.where(seen, 0.0, std)

    def _expected(
        self, v: np.ndarray, seen: np.ndarray
    ) -> tuple[Float[np.ndarray, "rows V"], Float[np.ndarray, "rows C"]]:
        """Means, and variances of continuous units, given what is observed."""
        posterior = log_sum(self.joint(v, seen))[1]
        means, squares = (posterior @ each for each in self.moments)
        return means, squares - means[:, self.visible.discrete :] ** 2

    def entry_losses(
        self, rows: Float[np.ndarray, "rows V"], asked: Bool[np.ndarray, "rows V"]
    ) -> tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " rows"]]:
        """Nats of the asked variables of each row given the others, and how many they are."""
        losses, which = np.zeros(len(rows)), asked[:, self.visible.starts]
        v, _ = self.visible.observed(rows)
        known = self.visible.observed(np.where(asked, np.nan, rows))
        posterior = log_sum(self.joint(*known))[1]
        for g in np.flatnonzero(which.any(0)).tolist():
            some = which[:, g]
            with np.errstate(divide="ignore"):  # states of no weight
                logs = np.log(posterior[some]) + self._logs(v[some], g, [k[some] for k in known])
            losses[some] -= log_sum(logs)[0][:, 0]
        return losses, which.sum(1).astype(float)

    def pseudo_log_likelihood(
        self, rows: Float[np.ndarray, "rows V"]
    ) -> Float[np.ndarray, " rows"]:
        """Sum over the variables of log p of each given all others; rows without holes."""
        found = []
        for v, seen in self._chunks(rows):
            joint = self.joint(v, seen)
            total, own = log_sum(joint)[0][:, 0], np.zeros(len(v))
            for g in range(len(self.visible.widths)):
                own += total - log_sum(joint - self._logs(v, g))[0][:, 0]
            found.append(own)
        return np.concatenate(found)

    def _logs(
        self, v: np.ndarray, variable: int, known: Sequence[np.ndarray] | None = None
    ) -> Float[np.ndarray, "rows S"]:
        """log p(v_g | h) of one variable, for every hidden state, whatever else is known."""
        at = self.visible.units(variable)
        logs = v[:, at] @ self.fields[:, at].T - self.log_sums[:, variable]
        if (line := at.start - self.visible.discrete) >= 0:
            logs -= 0.5 * np.exp(self.log_precision[line]) * v[:, at] ** 2
        return logs

    def draw(
        self, row: Float[np.ndarray, " V"], count: int, rng: np.random.Generator
    ) -> Float[np.ndarray, "count n"]:
        """Independent exact samples of visible and hidden units given the known ones of a row."""
        shares = log_sum(self.joint(*self.visible.observed(row[None])))[1][0]
        chosen = rng.choice(len(shares), count, p=shares)
        v = self._draw(row, chosen, rng)
        return np.concatenate([np.where(np.isnan(row), v, row), self.states[chosen]], 1)

    def _draw(self, row: np.ndarray, chosen: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Visible units given hidden states."""
        return self.visible.draw(self.fields[chosen], self.variance, rng)

    def _chunks(self, rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        size = max(1, MOST_NUMBERS // len(self.states))
        starts = range(0, max(1, len(rows)), size)
        return (self.visible.observed(rows[i : i + size]) for i in starts)

    def slope(self, v: np.ndarray, seen: np.ndarray) -> tuple[float, list[np.ndarray]]:
        """The log-likelihood of rows, and its gradient by W, b, log 1 / s^2 and c."""
        total, posterior = log_sum(self.joint(v, seen))
        prior = len(v) * np.exp(self.log_weights)
        gap, second = self._gaps(v, seen, posterior, prior)
        return float(total.sum()), self._moved(gap, second, posterior, prior)

    def _gaps(
        self, v: np.ndarray, seen: np.ndarray, posterior: np.ndarray, prior: np.ndarray
    ) -> tuple[Float[np.ndarray, "S V"], Float[np.ndarray, " C"]]:
        """Moments of rows less those of the model: of units with states, and of squares."""
        means, squares = self.moments
        unseen = self.visible.spread(posterior.T @ (1 - seen)) - prior[:, None]
        at = slice(self.visible.discrete, None)
        second = (v[:, at] ** 2).sum(0) + (unseen[:, at] * squares).sum(0)
        return posterior.T @ v + unseen * means, second

    def _moved(
        self, gap: np.ndarray, second: np.ndarray, posterior: np.ndarray, prior: np.ndarray
    ) -> list[np.ndarray]:
        """The gradient by W, b, log 1 / s^2 and c."""
        moved = [gap.T @ self.states, gap.sum(0), -0.5 * np.exp(self.log_precision) * second]
        return [*moved, (posterior.sum(0) - prior) @ self.states]
