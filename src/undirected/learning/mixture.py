"""Mixtures of independent binary columns by EM: a start for richer models, and their yardstick."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from undirected.core.errors import UndirectedError

SIZES = (2, 5, 10, 20, 50, 100, 200)
"""Numbers of components that are tried one after another, until one is no better."""
BATCH, POWER = 500, 0.6
"""Rows of a stepwise update, and how fast the weight of an update falls with their number."""
SEEDING_ROWS = 2000
LEAST = 1e-6
"""How far means stay from 0 and 1."""
CHUNK = 2**22
"""Entries of the responsibilities worked on at a time."""


@dataclass(frozen=True)
class Mixture:
    """A mixture of independent binary columns: log shares (K,) and means (K, V) of its components.

    Example:
        >>> import numpy as np
        >>> from undirected.learning.mixture import Mixture
        >>> coin = Mixture(np.zeros(1), np.array([[0.5, 0.5]]))
        >>> print(coin.log_likelihood([[0, 1], [1, np.nan]]).round(3))
        [-1.386 -0.693]
    """

    log_weights: Float[np.ndarray, " K"]
    means: Float[np.ndarray, "K V"]

    def log_likelihood(self, rows: np.ndarray) -> Float[np.ndarray, " rows"]:
        """log p of every row; of its observed entries where others are NaN."""
        rows = np.asarray(rows, np.float32)
        parts = [_posterior(self, part)[1] for part in _chunks(rows, len(self.log_weights))]
        return np.concatenate(parts)

    def at_least(self, components: int) -> tuple[np.ndarray, np.ndarray]:
        """Log shares and means of so many components at least: the first is split where needed."""
        extra = max(0, components - len(self.log_weights))
        first = self.log_weights[0] - np.log(1 + extra)
        logs = np.concatenate([np.full(1 + extra, first), self.log_weights[1:]])
        return logs, np.concatenate([np.repeat(self.means[:1], 1 + extra, 0), self.means[1:]])

    def predict(self, rows: np.ndarray) -> Float[np.ndarray, "rows V"]:
        """The probability of a one in every column, given the entries of its row that are known."""
        rows = np.asarray(rows, np.float32)
        parts = [_posterior(self, part)[0] for part in _chunks(rows, len(self.log_weights))]
        return np.concatenate(parts) @ self.means


def independent_columns(rows: np.ndarray) -> Mixture:
    """One component: every column by itself, its mean drawn a little towards 1/2."""
    seen = (~np.isnan(rows)).sum(0)
    means = (np.nansum(rows, 0, dtype=np.float64) + 1.0) / (seen + 2.0)
    return Mixture(np.zeros(1), means[None])


def fit_mixture(
    rows: Float[np.ndarray, "rows V"], components: int, *, epochs: int = 5, seed: int = 0
) -> Mixture:
    """EM in steps over small batches (Cappé & Moulines 2009), then two full steps.

    Component means are drawn towards those of the whole column by one row's weight. It starts from
    rows far apart from each other. Missing entries (NaN) are left out of every sum.
    """
    rows = np.asarray(rows, np.float32)
    if rows.ndim != 2 or not len(rows):
        raise UndirectedError(f"fit_mixture: rows have shape {rows.shape}; pass (rows, columns)")
    if components < 1:
        raise UndirectedError(f"fit_mixture: components is {components}; pass 1 or more")
    base = independent_columns(rows)
    if components == 1:
        return base
    rng, n = np.random.default_rng(seed), len(rows)
    middle = base.means[0]
    means = 0.5 * middle + 0.5 * (0.1 + 0.8 * far_rows(rows, components, middle, rng))
    found = Mixture(np.full(components, -np.log(components)), means)
    sums = _Sums(np.full(components, 1 / components), means / components, None)
    step = 0
    for _ in range(epochs):
        for some in np.array_split(rng.permutation(n), max(1, n // BATCH)):
            new = _sums(found, rows[some])
            sums = sums.mixed(new, (step + 2.0) ** -POWER)
            found, step = _maximised(sums, n, middle), step + 1
    for _ in range(2):
        found = _maximised(_sums(found, rows), n, middle)
    return found


def choose_mixture(
    train: Float[np.ndarray, "rows V"],
    valid: Float[np.ndarray, "held V"],
    *,
    most: int = SIZES[-1],
    seed: int = 0,
) -> Mixture:
    """The mixture, of 1 to `most` components, that is best on held-out rows.

    More components are tried until they are no better. Without held-out rows it is as many as have
    50 rows each, 20 at most.
    """
    if not len(valid):
        return fit_mixture(train, int(np.clip(len(train) // 50, 1, min(20, most))), seed=seed)
    best = independent_columns(train)
    score = best.log_likelihood(valid).mean()
    for size in SIZES:
        if size > min(most, len(train) // 2):
            break
        other = fit_mixture(train, size, seed=seed)
        value = other.log_likelihood(valid).mean()
        if value > score:
            best, score = other, value
        elif size > SIZES[0]:
            break
    return best


@dataclass(frozen=True)
class _Sums:
    """Expected statistics per row: shares (K,), ones (K, V), observed entries (K, V) or None."""

    shares: np.ndarray
    ones: np.ndarray
    seen: np.ndarray | None

    def mixed(self, new: "_Sums", share: float) -> "_Sums":
        """The old statistics with a share of new ones."""

        def mix(old: np.ndarray, own: np.ndarray) -> np.ndarray:
            return (1 - share) * old + share * own

        seen = None
        if new.seen is not None:
            before = self.shares[:, None] if self.seen is None else self.seen
            seen = mix(before, new.seen)
        return _Sums(mix(self.shares, new.shares), mix(self.ones, new.ones), seen)


def _maximised(sums: _Sums, n: int, middle: np.ndarray) -> Mixture:
    """The mixture of these statistics, its means drawn to the column's by the weight of a row."""
    counts = n * (sums.shares[:, None] if sums.seen is None else sums.seen)
    weights = n * sums.shares + 0.1
    means = (n * sums.ones + middle) / (counts + 1)
    # Sums in single precision of a column that is always 1 may come out above their count.
    return Mixture(np.log(weights / weights.sum()), np.clip(means, LEAST, 1 - LEAST))


def _sums(mixture: Mixture, rows: np.ndarray) -> _Sums:
    """Mean statistics of rows under the posterior of their components."""
    size, (K, V) = len(rows), mixture.means.shape
    holes = bool(np.isnan(rows).any())
    shares, ones, seen = np.zeros(K), np.zeros((K, V)), np.zeros((K, V)) if holes else None
    for part in _chunks(rows, K):
        posterior, _ = _posterior(mixture, part)
        shares += posterior.sum(0) / size
        ones += posterior.T @ np.nan_to_num(part) / size
        if seen is not None:
            seen += posterior.T @ (~np.isnan(part)).astype(np.float32) / size
    return _Sums(shares, ones, seen)


def _posterior(mixture: Mixture, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """p(component | row) of every row, and log p(row)."""
    on, off = np.log(mixture.means), np.log1p(-mixture.means)
    fields = np.nan_to_num(rows) @ (on - off).T.astype(np.float32)
    missing = np.isnan(rows)
    offset = mixture.log_weights + off.sum(1)
    logs = fields.astype(np.float64) + offset
    if missing.any():
        logs -= missing.astype(np.float32) @ off.T.astype(np.float32)
    top = logs.max(1, keepdims=True)
    weights = np.exp((logs - top).astype(np.float32))
    total = weights.sum(1, keepdims=True)
    return weights / total, (top + np.log(total))[:, 0]


def far_rows(
    rows: np.ndarray, count: int, middle: np.ndarray, rng: np.random.Generator
) -> Float[np.ndarray, "count V"]:
    """Rows drawn with chances by their squared distance to those drawn before (k-means++)."""
    some = rows[rng.choice(len(rows), min(len(rows), SEEDING_ROWS), replace=False)]
    some = np.where(np.isnan(some), middle.astype(np.float32), some)
    squares = (some**2).sum(1)
    chosen = [int(rng.integers(len(some)))]
    near = np.full(len(some), np.inf)
    for _ in range(count - 1):
        last = chosen[-1]
        distance = squares + squares[last] - 2 * (some @ some[last])
        near = np.minimum(near, np.maximum(distance, 0.0))
        total = near.sum()
        chances = near / total if total > 0 else None
        chosen.append(int(rng.choice(len(some), p=chances)))
    return some[chosen]


def _chunks(rows: np.ndarray, components: int) -> list[np.ndarray]:
    return np.array_split(rows, max(1, len(rows) * max(components, rows.shape[1]) // CHUNK))
