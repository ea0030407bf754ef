"""Estimates of log Z from the log weights of independent chains, and how far to trust them."""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Array, Float

from undirected.core.errors import NotFinite


@dataclass(frozen=True)
class AISResult:
    """An estimate of log Z in nats from independent chains.

    `interval` holds log Z with the confidence asked for; `log_weights` is each chain's own estimate
    of log Z; `ess` is the number of equally weighted chains that would be worth as much: with less
    than a handful take more betas; `samples` are the chains' last states (chains, n).
    """

    log_z: float
    stderr: float
    interval: tuple[float, float]
    log_weights: Float[np.ndarray, " chains"] = field(repr=False)
    ess: float
    samples: Float[Array, "chains n"] = field(repr=False)


@dataclass(frozen=True)
class Bracket:
    """log Z from both sides: `lower` is low and `upper` is high in expectation.

    The two agree where their intervals meet and span no more than `width` nats together. Where they
    do not meet the chains do not mix, where they span more too little is known: take more betas.
    """

    lower: AISResult
    upper: AISResult
    width: float = 1.0

    @property
    def agree(self) -> bool:
        """Whether the sides meet within `width` nats: log Z is known that well."""
        return self.meet and self.spread <= self.width

    @property
    def meet(self) -> bool:
        """Whether the two intervals have a point in common, however wide they are."""
        low, high = self.lower.interval, self.upper.interval
        return max(low[0], high[0]) <= min(low[1], high[1])

    @property
    def spread(self) -> float:
        """The length of `interval` in nats."""
        return self.interval[1] - self.interval[0]

    @property
    def log_z(self) -> float:
        """The middle of the two estimates."""
        return 0.5 * (self.lower.log_z + self.upper.log_z)

    @property
    def interval(self) -> tuple[float, float]:
        """From the lowest to the highest end of the two intervals."""
        low, high = self.lower.interval, self.upper.interval
        return min(low[0], high[0]), max(low[1], high[1])


def estimate_log_z(
    log_w: Array, base_log_z: Array | float, sign: int, confidence: float, samples: Array
) -> AISResult:
    """The estimate from the chains' log weights of Z / Z_base (sign 1) or Z_base / Z (sign -1)."""
    signed = np.asarray(log_w, np.float64) + sign * float(base_log_z)
    if not np.isfinite(signed).all():
        bad = (~np.isfinite(signed)).sum()
        raise NotFinite(f"ais: the weights of {bad} of {len(signed)} chains are not finite")
    value, stderr, ess, low, high = log_mean(signed, confidence)
    interval = (low, high) if sign > 0 else (-high, -low)
    return AISResult(sign * value, stderr, interval, sign * signed, ess, samples)


def log_mean(a: np.ndarray, confidence: float) -> tuple[float, float, float, float, float]:
    """log mean exp(a), its standard error, the effective sample size, and a confidence interval.

    A t interval with ess - 1 degrees of freedom opens up when few chains carry the mean. Its lower
    end stops where Markov's inequality, P(mean w > Z / p) < p, already holds. Its upper end goes at
    least as far as for a log-normal with the median of `a` and the spread of `a` above it: a mean
    of skewed weights is mostly too low.
    """
    from scipy import stats  # takes a second to import, and queries do without

    n, top, miss = len(a), a.max(), (1 - confidence) / 2
    w = np.exp(a - top)
    value = float(top + np.log(w.mean()))
    ess = float(w.sum() ** 2 / (w**2).sum())
    stderr = float(w.std(ddof=1) / w.mean() / np.sqrt(n))
    half = stderr * stats.t.isf(miss, max(ess - 1, 0.5))
    middle = np.median(a)
    spread = 2 * (np.maximum(a - middle, 0) ** 2).mean()
    wide = np.sqrt((np.pi / 2 * spread + spread**2) / n)
    tail = middle + spread / 2 + wide * stats.t.isf(miss, n - 1)
    low, high = value - min(half, -np.log(miss)), max(value + half, tail)
    return value, stderr, ess, float(low), float(high)
