"""Cross-entropy of predicted probabilities, and whether they mean what they say."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from undirected.core.errors import UndirectedError
from undirected.evaluation.estimate import Estimate, check_mask, ratio

_UNITS = {"bits": np.log(2.0), "nats": 1.0}


class CalibrationBin(NamedTuple):
    """Predictions in [low, high): their number, their mean, and the share of ones that came."""

    low: float
    high: float
    count: int
    predicted: float
    observed: float


def binary_cross_entropy(
    p: ArrayLike,
    target: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    unit: str = "bits",
    epsilon: float = 1e-7,
) -> Estimate:
    """-t log p - (1 - t) log(1 - p) per target under the mask; QT, Sec. 5 (NCE).

    `p` is the probability of a one, kept at least `epsilon` away from 0 and 1 (the default is what
    float32 resolves near 1); `target` may be soft, in [0, 1]. Rows lead in all arrays.
    """
    p, t = _probabilities("binary_cross_entropy", p), _probabilities("targets", target)
    _same_shape("binary_cross_entropy", p.shape, t.shape)
    p = np.clip(p, epsilon, 1 - epsilon)
    loss = -(t * np.log(p) + (1 - t) * np.log1p(-p))
    return _per_target("binary_cross_entropy", loss, mask, unit)


def categorical_cross_entropy(
    p: ArrayLike,
    target: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    unit: str = "bits",
    epsilon: float = 1e-7,
) -> Estimate:
    """-log p(target) per target under the mask; `target` are state numbers 0..K-1."""
    p, t = _probabilities("categorical_cross_entropy", p), np.asarray(target)
    _same_shape("categorical_cross_entropy", p.shape[:-1], t.shape)
    outside = t.size and (t.min() < 0 or t.max() >= p.shape[-1])
    if not np.issubdtype(t.dtype, np.integer) or outside:
        raise UndirectedError(
            f"categorical_cross_entropy: targets are {t.dtype} from {t.min()} to {t.max()}; wanted "
            f"state numbers 0..{p.shape[-1] - 1}"
        )
    chosen = np.take_along_axis(p, t[..., None], -1)[..., 0]
    loss = -np.log(np.maximum(chosen, epsilon))
    return _per_target("categorical_cross_entropy", loss, mask, unit)


def calibration(
    p: ArrayLike, target: ArrayLike, mask: ArrayLike | None = None, *, bins: int = 10
) -> list[CalibrationBin]:
    """Predicted probability against observed frequency, in those equal bins that are not empty."""
    p, t = _probabilities("calibration", p), _probabilities("targets", target)
    _same_shape("calibration", p.shape, t.shape)
    chosen = check_mask("calibration", mask, t.shape)
    if not chosen.any():
        raise UndirectedError("calibration: there are no rows, or the mask selects no entry")
    p, t = p[chosen], t[chosen]
    place = np.minimum((p * bins).astype(int), bins - 1)
    count = np.bincount(place, minlength=bins)
    predicted, observed = (np.bincount(place, weights=a, minlength=bins) for a in (p, t))
    return [
        CalibrationBin(
            i / bins, (i + 1) / bins, int(c), float(predicted[i] / c), float(observed[i] / c)
        )
        for i, c in enumerate(count)
        if c
    ]


def calibration_error(table: list[CalibrationBin]) -> float:
    """Mean |observed - predicted| over the bins, each by its number of predictions."""
    count = np.array([row.count for row in table])
    gap = np.array([abs(row.observed - row.predicted) for row in table])
    return float((count * gap).sum() / count.sum())


def _per_target(caller: str, loss: np.ndarray, mask: ArrayLike | None, unit: str) -> Estimate:
    if unit not in _UNITS:
        raise UndirectedError(f"{caller}: unit is {unit!r}; wanted one of {', '.join(_UNITS)}")
    chosen = check_mask(caller, mask, loss.shape)
    rest = tuple(range(1, loss.ndim))
    return ratio((loss * chosen).sum(rest) / _UNITS[unit], chosen.sum(rest))


def _probabilities(caller: str, p: ArrayLike) -> np.ndarray:
    p = np.asarray(p, np.float64)
    if not ((p >= -1e-6) & (p <= 1 + 1e-6)).all():
        bad = p[~((p >= -1e-6) & (p <= 1 + 1e-6))][0]
        raise UndirectedError(f"{caller}: got {bad}; wanted probabilities between 0 and 1")
    return np.clip(p, 0, 1)


def _same_shape(caller: str, p: tuple[int, ...], target: tuple[int, ...]) -> None:
    if p != target or not target:
        raise UndirectedError(
            f"{caller}: probabilities are for {p} variables, targets are {target}; wanted the same "
            "shape, rows first"
        )
