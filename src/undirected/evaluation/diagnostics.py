"""Have the chains mixed: split R-hat and effective sample size of scalar traces."""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy import special, stats

from undirected.core.errors import UndirectedError
from undirected.evaluation.estimate import check_finite


def rhat(traces: ArrayLike) -> Float[np.ndarray, "*shape"]:
    """Rank-normalised split R-hat, the larger of bulk and folded; Vehtari et al. (2021), Sec. 4.

    `traces` are (chains, steps, ...); the draws of `run_chains` are turned by `x.swapaxes(0, 1)`.
    About 1 where chains agree; above 1.01 they have not mixed. NaN for a trace that never moves.
    """
    halves = _halves("rhat", traces)
    folded = np.abs(halves - np.median(halves, axis=(0, 1), keepdims=True))
    return np.maximum(_potential_reduction(_ranked(halves)), _potential_reduction(_ranked(folded)))


def effective_sample_size(
    traces: ArrayLike,
) -> Float[np.ndarray, "*shape"]:
    """Number of independent draws worth the traces (bulk); Vehtari et al. (2021), Sec. 3.2 and 4.3.

    `traces` are (chains, steps, ...); the draws of `run_chains` are turned by `x.swapaxes(0, 1)`.
    Split chains, rank-normalised. Autocorrelations are summed in Geyer's pairs, kept from rising,
    until a pair turns negative; of that one the first counts once if it is positive. NaN for a
    trace that never moves.
    """
    ranked = _ranked(_halves("effective_sample_size", traces))
    chains, steps = ranked.shape[:2]
    covariance = _autocovariance(ranked)
    within = covariance[:, 0].mean(0) * steps / (steps - 1)
    total = covariance[:, 0].mean(0) + ranked.mean(1).var(0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = 1 - (within - covariance.mean(0)) / total
    rho[0] = 1
    pairs = rho[: steps // 2 * 2].reshape(steps // 2, 2, *rho.shape[1:])
    alive = np.logical_and.accumulate(pairs.sum(1) > 0, 0)
    kept = np.minimum.accumulate(np.where(alive, pairs.sum(1), 0), 0).sum(0)
    ends = np.logical_xor(alive, np.concatenate([alive[:1], alive[:-1]]))
    tail = np.where(ends, np.maximum(pairs[:, 0], 0), 0).sum(0)
    time = np.maximum(2 * kept - 1 + tail, 1 / np.log10(chains * steps))
    return np.where(total > 0, chains * steps / time, np.nan)


def _halves(caller: str, traces: ArrayLike) -> np.ndarray:
    """Each chain as two, an odd step in the middle left out."""
    traces = np.asarray(traces, np.float64)
    if traces.ndim < 2 or traces.shape[1] < 4:
        raise UndirectedError(
            f"{caller}: traces have shape {traces.shape}; pass (chains, steps, ...) of at least 4 "
            "steps"
        )
    check_finite(caller, traces)
    half = traces.shape[1] // 2
    return np.concatenate([traces[:, :half], traces[:, -half:]])


def _ranked(x: np.ndarray) -> np.ndarray:
    """Normal scores of the ranks over all chains; Vehtari et al. (2021), eq. 14."""
    ranks = stats.rankdata(x.reshape(-1, *x.shape[2:]), axis=0).reshape(x.shape)
    return special.ndtri((ranks - 0.375) / (x.shape[0] * x.shape[1] + 0.25))


def _potential_reduction(x: np.ndarray) -> np.ndarray:
    """sqrt(total / within variance)."""
    steps = x.shape[1]
    within = x.var(1, ddof=1).mean(0)
    between = x.mean(1).var(0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt((steps - 1) / steps + between / within)


def _autocovariance(x: np.ndarray) -> np.ndarray:
    """Autocovariance along steps at every lag, biased (divided by the number of steps)."""
    steps = x.shape[1]
    spectrum = np.fft.rfft(x - x.mean(1, keepdims=True), 2 * steps, axis=1)
    return np.fft.irfft(np.abs(spectrum) ** 2, 2 * steps, axis=1)[:, :steps] / steps
