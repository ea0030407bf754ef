"""Mixtures of independent columns of any kind by EM: what a model of a mixed table has to beat."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from undirected.core.errors import UndirectedError
from undirected.core.table_units import Kind
from undirected.learning.mixture import far_rows

SIZES = (2, 5, 10, 20)
"""Numbers of components that are tried one after another, until one is no better."""
ROUNDS = 20
MOST_CELLS, LEAST_ROWS = 2**18, 200
"""Cells that are fitted to: of more rows so many are drawn, but not fewer than that."""
CHUNK = 2**22
"""Log-probabilities of cells worked on at a time."""
NARROW = 0.05
"""The least standard deviation of a component, in those of the column."""


@dataclass(frozen=True)
class ColumnMixture:
    """A mixture of independent columns: log shares (K,), and what each component says of a column.

    `parts` has for every column an array whose rows are components: probabilities of its states
    where it is binary or a category, mean and standard deviation of a normal where it is real, and
    the mean of an exponential where it is never negative. Rows have one cell a column: the number
    of a state, or a number; NaN where it is missing.

    Example:
        >>> import numpy as np
        >>> from undirected.learning.column_mixture import ColumnMixture
        >>> coin = ColumnMixture(("binary", "real"), np.zeros(1), ([[0.5, 0.5]], [[0.0, 1.0]]))
        >>> print(coin.log_likelihood([[1, np.nan], [0, 0.0]]).round(3))
        [-0.693 -1.612]
    """

    kinds: tuple[Kind, ...]
    log_weights: Float[np.ndarray, " K"]
    parts: tuple[Any, ...]

    def __post_init__(self) -> None:
        components = len(self.log_weights)
        if len(self.parts) != len(self.kinds):
            raise UndirectedError(f"mixture: {len(self.parts)} parts of {len(self.kinds)} columns")
        for kind, part in zip(self.kinds, self.parts, strict=True):
            found = np.asarray(part, float)
            if found.shape != (components, _width(kind)) or not np.isfinite(found).all():
                raise UndirectedError(f"mixture: {found.shape} numbers for a column of {kind}")
            if (found[:, 1 if kind == "real" else 0 :] <= 0).any():
                raise UndirectedError(f"mixture: numbers of a column of {kind} must be positive")

    def cell_logs(self, rows: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, "rows c K"]:
        """Log-probability, or log-density, of every cell in every component; 0 where it is NaN."""
        logs = [_logs(*column) for column in zip(self.kinds, self.parts, rows.T, strict=True)]
        return np.stack(logs, 1)

    def log_likelihood(self, rows: Any) -> Float[np.ndarray, " rows"]:
        """log p of every row; of its observed cells where others are NaN."""
        parts = self._chunks(np.asarray(rows, float))
        return np.concatenate([_log_sum(self.log_weights + logs.sum(1)) for logs in parts])

    def posterior(self, rows: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, "rows K"]:
        """p(component | row)."""
        found = [self.log_weights + logs.sum(1) for logs in self._chunks(rows)]
        return np.concatenate([np.exp(logs - _log_sum(logs)[:, None]) for logs in found])

    def entry_losses(
        self, rows: Float[np.ndarray, "rows columns"], asked: Bool[np.ndarray, "rows columns"]
    ) -> Float[np.ndarray, " asked"]:
        """Nats of every cell that is asked for, given those of its row that are not."""
        logs = self.cell_logs(rows)
        known = self.log_weights + (logs * ~asked[:, :, None]).sum(1)
        losses = _log_sum(known)[:, None] - _log_sum(known[:, None] + logs)
        return losses[asked & ~np.isnan(rows)]

    def _chunks(self, rows: Float[np.ndarray, "rows columns"]) -> Iterator[np.ndarray]:
        count = max(1, rows.size * len(self.log_weights) // CHUNK)
        return (self.cell_logs(part) for part in np.array_split(rows, count))


def fit_columns(
    rows: Float[np.ndarray, "rows columns"],
    kinds: tuple[Kind, ...],
    components: int,
    seed: int = 0,
) -> ColumnMixture:
    """EM from rows far apart; every component is drawn to the whole column by one row's weight."""
    rng = np.random.default_rng(seed)
    rows = np.asarray(rows, float)
    most = max(MOST_CELLS // rows.shape[1], LEAST_ROWS, 2 * components)
    if len(rows) > most:
        rows = rows[rng.choice(len(rows), most, replace=False)]
    if components == 1:
        return _maximised(rows, kinds, np.ones((len(rows), 1)))
    places = _places(rows, kinds)
    centres = far_rows(places, components, np.zeros(places.shape[1]), rng)
    distance = (centres**2).sum(1) - 2 * places @ centres.T
    found = _maximised(rows, kinds, np.eye(components)[distance.argmin(1)])
    for _ in range(ROUNDS):
        found = _maximised(rows, kinds, found.posterior(rows))
    return found


def choose_columns_mixture(
    train: np.ndarray, valid: np.ndarray, kinds: tuple[Kind, ...], seed: int = 0
) -> ColumnMixture:
    """The mixture that is best on held-out rows; without them independent columns."""
    best = fit_columns(train, kinds, 1)
    if not len(valid):
        return best
    score = best.log_likelihood(valid).mean()
    for size in SIZES:
        if size > len(train) // 2:
            break
        other = fit_columns(train, kinds, size, seed)
        value = other.log_likelihood(valid).mean()
        if value <= score:
            break
        best, score = other, value
    return best


def _maximised(
    rows: np.ndarray, kinds: tuple[Kind, ...], shares: Float[np.ndarray, "rows K"]
) -> ColumnMixture:
    weights = shares.sum(0) + 0.1
    parts = [_part(kind, cells, shares) for kind, cells in zip(kinds, rows.T, strict=True)]
    return ColumnMixture(kinds, np.log(weights / weights.sum()), tuple(parts))


def _part(kind: Kind, cells: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """What components say of a column, from the cells that are known and the whole column."""
    seen = ~np.isnan(cells)
    cells, shares = cells[seen], shares[seen]
    count = shares.sum(0)[:, None] + 1
    if kind == "real":
        middle, spread = (cells.mean(), cells.var()) if len(cells) else (0.0, 1.0)
        mean = (shares.T @ cells + middle)[:, None] / count
        squares = (shares * (cells[:, None] - mean[:, 0]) ** 2).sum(0)[:, None]
        least = NARROW**2 * max(spread, 1e-12)
        return np.concatenate([mean, np.sqrt(np.maximum((squares + spread) / count, least))], 1)
    if kind == "nonnegative":
        middle = cells.mean() if len(cells) else 1.0
        return np.maximum((shares.T @ cells + middle)[:, None] / count, 1e-6)
    states = np.eye(_width(kind))[cells.astype(int)]
    whole = (states.sum(0) + 1) / (len(cells) + _width(kind))
    return (shares.T @ states + whole) / count


def _logs(kind: Kind, part: Any, cells: np.ndarray) -> Float[np.ndarray, "rows K"]:
    part, seen = np.asarray(part, float), ~np.isnan(cells)
    x = np.where(seen, cells, 0.0)
    if kind == "real":
        mean, spread = part.T
        logs = -0.5 * ((x[:, None] - mean) / spread) ** 2 - np.log(spread * np.sqrt(2 * np.pi))
    elif kind == "nonnegative":
        logs = -x[:, None] / part[:, 0] - np.log(part[:, 0])
    else:
        logs = np.log(part.T)[x.astype(int)]
    return logs * seen[:, None]


def _places(rows: np.ndarray, kinds: tuple[Kind, ...]) -> Float[np.ndarray, "rows places"]:
    """Rows as points: numbers in standard deviations, a place for every state; 0 where missing."""
    found = []
    for kind, cells in zip(kinds, rows.T, strict=True):
        seen = ~np.isnan(cells)
        x = np.where(seen, cells, 0.0)
        if kind in ("real", "nonnegative"):
            known = cells[seen]
            middle, spread = (known.mean(), known.std()) if len(known) else (0.0, 1.0)
            found.append(((x - middle) / max(spread, 1e-6) * seen)[:, None])
        else:
            found.append(np.eye(_width(kind))[x.astype(int)] * seen[:, None])
    return np.concatenate(found, 1)


def _width(kind: Kind) -> int:
    return kind if isinstance(kind, int) else {"nonnegative": 1}.get(kind, 2)


def _log_sum(logs: Float[np.ndarray, "*rows K"]) -> Float[np.ndarray, "*rows"]:
    top = logs.max(-1, keepdims=True)
    return (top + np.log(np.exp(logs - top).sum(-1, keepdims=True)))[..., 0]
