"""How often predictions are wrong."""

import numpy as np
from numpy.typing import ArrayLike

from undirected.core.cells import unmasked
from undirected.core.errors import UndirectedError
from undirected.evaluation.estimate import (
    Estimate,
    check_binary,
    check_finite,
    check_mask,
    mean,
    ratio,
)


def error_rate(predicted: ArrayLike, target: ArrayLike, mask: ArrayLike | None = None) -> Estimate:
    """Share of wrong bits (pixels), over the entries under the mask; rows lead.

    `predicted` are values or probabilities of a one: above a half counts as one, a half is half
    wrong. To look at changed pixels alone pass `mask=corrupted != clean`.
    """
    p, t = _alike("error_rate", predicted, target)
    chosen = check_mask("error_rate", mask, t.shape)
    wrong = (_ones(p) != _ones(t)) & chosen
    if p.dtype.kind != "f":
        return ratio(_per_row(wrong), _per_row(chosen))
    half = (p == 0.5) & chosen
    return ratio(_per_row(wrong & ~half) + 0.5 * _per_row(half), _per_row(chosen))


def intersection_over_union(predicted: ArrayLike, target: ArrayLike) -> Estimate:
    """Mean over rows of |both| / |either| of two sets of ones; two empty sets agree fully."""
    p, t = _alike("intersection_over_union", predicted, target)
    both, either = _per_row(_ones(p) & _ones(t)), _per_row(_ones(p) | _ones(t))
    return mean(np.where(either > 0, both / np.maximum(either, 1), 1.0))


def _ones(values: np.ndarray) -> np.ndarray:
    """Entries above a half; whole numbers are not made real ones first, which takes longer."""
    if values.dtype.kind == "b":
        return values
    return values > (0.5 if values.dtype.kind == "f" else 0)


def _per_row(entries: np.ndarray) -> np.ndarray:
    return entries.sum(tuple(range(1, entries.ndim)))


def _alike(caller: str, predicted: ArrayLike, target: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    p, t = _numbers(predicted), _numbers(target)
    if p.shape != t.shape or t.ndim < 1:
        raise UndirectedError(
            f"{caller}: predictions have shape {p.shape}, targets {t.shape}; wanted equal shapes, "
            "rows first"
        )
    check_finite(f"{caller}: predictions", p)
    check_binary(f"{caller}: targets", t)
    return p, t


def _numbers(values: ArrayLike) -> np.ndarray:
    """An array that compares with numbers: as it is, where NumPy has the type."""
    array = np.asarray(unmasked(values))
    return array if array.dtype.kind in "biuf" else array.astype(np.float64)
