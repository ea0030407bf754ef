"""A number to report with its standard error, and the checks on the arrays it comes from."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from undirected.core.cells import unmasked
from undirected.core.errors import NotFinite, UndirectedError
from undirected.core.layout import Domain, Layout, one_hot_hint
from undirected.core.numerics import HARD


@dataclass(frozen=True)
class Estimate:
    """A mean over `n` rows and its standard error (NaN for a single row).

    `rows` are the values it is the mean of, one a row; None where rows have different weights.
    """

    mean: float
    stderr: float
    n: int
    rows: Float[np.ndarray, " n"] | None = field(default=None, repr=False, compare=False)

    def __iter__(self) -> Iterator[float]:
        """`value, error, n = estimate`."""
        return iter((self.mean, self.stderr, self.n))


def mean(values: ArrayLike) -> Estimate:
    """The mean of one value per row."""
    values = np.asarray(values, np.float64)
    return replace(ratio(values, np.ones_like(values)), rows=values)


def mean_log(values: ArrayLike, layout: Layout) -> Estimate:
    """`mean` of log-probabilities of rows: -inf where a hard factor forbids the states of one.

    In single precision that is about -1e9; numbers far out may have such a density.
    """
    values = np.asarray(values, np.float64)
    if not layout.is_continuous.any():
        values = np.where(values < -HARD, -np.inf, values)
    return mean(values)


def ratio(totals: ArrayLike, counts: ArrayLike) -> Estimate:
    """sum(totals) / sum(counts) over rows; the error treats rows as independent (delta method)."""
    totals, counts = np.asarray(totals, np.float64), np.asarray(counts, np.float64)
    if not counts.sum() > 0:
        raise UndirectedError("nothing to average: there are no rows, or the mask selects no entry")
    value, rows = totals.sum() / counts.sum(), len(totals)
    if np.isneginf(value):
        return Estimate(float(value), np.nan, rows)
    spread = np.sqrt(((totals - value * counts) ** 2).sum()) / counts.sum()
    stderr = spread * np.sqrt(rows / (rows - 1)) if rows > 1 else np.nan
    return Estimate(float(value), float(stderr), rows)


def check_data(
    caller: str, layout: Layout, v: ArrayLike, holes: bool = False
) -> Float[np.ndarray, "rows v"]:
    """Rows of visible values, all of which the layout's domains allow; with `holes`, or NaN."""
    v = np.asarray(unmasked(v), np.float32)
    if v.ndim != 2 or v.shape[1] != layout.n_visible:
        raise UndirectedError(
            f"{caller}: data have shape {v.shape}; pass (rows, {layout.n_visible}), one column per "
            f"visible unit{one_hot_hint(layout, v.shape)}"
        )
    check_finite(caller, np.where(np.isnan(v), 0.0, v) if holes else v)
    for block in layout.blocks:
        part = v[:, block.slice].reshape(-1, block.width)
        part = part[~np.isnan(part).all(1)] if holes else part
        if block.domain is Domain.NONNEGATIVE and (part < 0).any():
            raise UndirectedError(
                f"{caller}: block '{block.name}' is nonnegative, but got the value {part.min():.6g}"
            )
        if not block.visible or block.domain in (Domain.REAL, Domain.NONNEGATIVE):
            continue
        check_binary(f"{caller}: block '{block.name}'", part[~np.isnan(part)] if holes else part)
        if block.domain is Domain.BINARY:
            continue
        if (part.sum(-1) != 1).any():
            raise UndirectedError(
                f"{caller}: block '{block.name}' is categorical, but some of its groups of "
                f"{block.states} units are not one-hot{', or NaN in all units' * holes}"
            )
    return v


def check_finite(caller: str, values: np.ndarray) -> None:
    """Raise where an entry is NaN or infinite."""
    bad = values.size - np.count_nonzero(np.isfinite(values))
    if bad:
        raise NotFinite(f"{caller}: {bad} of {values.size} entries are NaN or infinite")


def check_binary(caller: str, values: np.ndarray) -> None:
    """Raise where an entry is neither 0 nor 1."""
    wrong = (values != 0) & (values != 1)
    if wrong.any():
        raise UndirectedError(f"{caller}: got the value {values[wrong][0]}; wanted 0 or 1")


def check_mask(
    caller: str, mask: ArrayLike | None, shape: tuple[int, ...]
) -> Bool[np.ndarray, "..."]:
    """The mask as booleans of this shape; all True without one."""
    chosen = np.ones(shape, bool) if mask is None else np.asarray(mask)
    if chosen.dtype != bool or chosen.shape != shape:
        raise UndirectedError(
            f"{caller}: mask is {chosen.dtype} {chosen.shape}; wanted bool {shape} as the targets"
        )
    return chosen
