"""Have the chains mixed: R-hat and effective sample size, the one definition of both.

Draws are (samples, chains, ...), as `run_chains` gives them.
"""

from typing import Any

import numpy as np
from jaxtyping import Float

from undirected.core.errors import NotFinite, UndirectedError


def rhat(
    draws: Any, *, draw_axis: int | None = None, chain_axis: int | None = None
) -> Float[np.ndarray, "*shape"]:
    """Rank-normalised split R-hat, the larger of bulk and folded; Vehtari et al. (2021), Sec. 4.

    Args:
        draws: a result of `run_chains` that kept its states, or an array (samples, chains, ...).
        draw_axis: the axis of an array along which one chain goes on.
        chain_axis: the axis of an array that counts the chains.

    Returns:
        One number for every quantity: about 1 where chains agree, above 1.01 they have not mixed,
        NaN where a quantity never moves.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> draws = np.random.default_rng(0).normal(size=(500, 4))
        >>> un.rhat(draws) < 1.01, un.rhat(draws + np.arange(4)) > 1.5
        (np.True_, np.True_)
    """
    halves = _halves("rhat", draws, draw_axis, chain_axis)
    folded = np.abs(halves - np.median(halves, axis=(0, 1), keepdims=True))
    # Folded draws do not vary where 0 and 1 come equally often: fmax passes their NaN by.
    return np.fmax(_potential_reduction(_ranked(halves)), _potential_reduction(_ranked(folded)))


def ess(
    draws: Any, *, draw_axis: int | None = None, chain_axis: int | None = None
) -> Float[np.ndarray, "*shape"]:
    """Effective sample size (bulk): how many independent draws the chains are worth.

    Vehtari et al. (2021), Sec. 3.2 and 4.3, on split chains, rank-normalised. Autocorrelations are
    summed in Geyer's pairs, kept from rising, until the sum of a pair is negative; of that pair the
    first counts once if it is positive.

    Args:
        draws: a result of `run_chains` that kept its states, or an array (samples, chains, ...).
        draw_axis: the axis of an array along which one chain goes on.
        chain_axis: the axis of an array that counts the chains.

    Returns:
        One number for every quantity; NaN where it never moves.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> draws = np.random.default_rng(0).normal(size=(500, 4))
        >>> un.ess(draws) > 1500, un.ess(draws.cumsum(0)) < 100
        (np.True_, np.True_)
    """
    ranked = _ranked(_halves("ess", draws, draw_axis, chain_axis))
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


def _halves(caller: str, draws: Any, draw_axis: int | None, chain_axis: int | None) -> np.ndarray:
    """(half chains, steps, ...): each chain as two, an odd step in the middle left out."""
    x = _draws(caller, draws, draw_axis, chain_axis)
    if x.shape[1] < 4:
        raise UndirectedError(f"{caller}: {x.shape[1]} draws of each chain; at least 4 are needed")
    bad = x.size - np.isfinite(x).sum()
    if bad:
        raise NotFinite(f"{caller}: {bad} of {x.size} entries are NaN or infinite")
    half = x.shape[1] // 2
    return np.concatenate([x[:, :half], x[:, -half:]])


def _draws(caller: str, draws: Any, draw_axis: int | None, chain_axis: int | None) -> np.ndarray:
    """The draws as (chains, steps, ...) in double precision."""
    if hasattr(draws, "x"):  # a result of `run_chains`, which knows its axes
        if draws.x is None:
            raise UndirectedError(
                f"{caller}: these chains kept no states; pass observe=States() to run_chains, or "
                "States(every=10) to keep fewer, or pass the trace of another observer here"
            )
        x, draw_axis, chain_axis = np.asarray(draws.x, np.float64), 0, 1
    else:
        try:
            x = np.asarray(draws, np.float64)
        except (TypeError, ValueError) as error:
            raise UndirectedError(
                f"{caller}: the draws are no array of numbers ({error}); pass one (samples, "
                "chains, ...)"
            ) from error
    if x.ndim < 2 or (draw_axis is None) != (chain_axis is None):
        raise UndirectedError(
            f"{caller}: got shape {x.shape}, draw_axis={draw_axis} and chain_axis={chain_axis}; "
            "pass (samples, chains, ...), or say with both axes what is what"
        )
    if draw_axis is None and x.shape[0] < x.shape[1]:
        raise UndirectedError(
            f"{caller}: got shape {x.shape}, which would be {x.shape[1]} chains of only "
            f"{x.shape[0]} draws; if so pass draw_axis=0, chain_axis=1, or the result of "
            "run_chains itself; if the chains come first pass draw_axis=1, chain_axis=0"
        )
    if draw_axis is None or chain_axis is None:
        draw_axis, chain_axis = 0, 1
    return np.moveaxis(x, (chain_axis, draw_axis), (0, 1))


def _ranked(x: np.ndarray) -> np.ndarray:
    """Normal scores of the ranks over all chains; Vehtari et al. (2021), eq. 14."""
    from scipy import special, stats

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
