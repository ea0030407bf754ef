"""How often predictions are wrong."""

import numpy as np
from numpy.typing import ArrayLike

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
    wrong = np.where(p == 0.5, 0.5, (p > 0.5) != t) * chosen
    return ratio(_per_row(wrong), _per_row(chosen))


def intersection_over_union(predicted: ArrayLike, target: ArrayLike) -> Estimate:
    """Mean over rows of |both| / |either| of two sets of ones; two empty sets agree fully."""
    p, t = _alike("intersection_over_union", predicted, target)
    both, either = _per_row((p > 0.5) & (t > 0.5)), _per_row((p > 0.5) | (t > 0.5))
    return mean(np.where(either > 0, both / np.maximum(either, 1), 1.0))


def _per_row(entries: np.ndarray) -> np.ndarray:
    return entries.sum(tuple(range(1, entries.ndim)))


def _alike(caller: str, predicted: ArrayLike, target: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    p, t = np.asarray(predicted, np.float64), np.asarray(target, np.float64)
    if p.shape != t.shape or t.ndim < 1:
        raise UndirectedError(
            f"{caller}: predictions have shape {p.shape}, targets {t.shape}; wanted equal shapes, "
            "rows first"
        )
    check_finite(f"{caller}: predictions", p)
    check_binary(f"{caller}: targets", t)
    return p, t
