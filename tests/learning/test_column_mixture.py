"""Mixtures of columns of any kind: their sums against SciPy's densities, and what EM finds."""

import numpy as np
import pytest
from scipy import stats

from undirected.core.errors import UndirectedError
from undirected.learning import column_mixture
from undirected.learning.column_mixture import (
    ColumnMixture,
    choose_columns_mixture,
    fit_columns,
)

KINDS = ("binary", 3, "real", "nonnegative")
PARTS = (
    np.array([[0.9, 0.1], [0.4, 0.6]]),
    np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]),
    np.array([[-1.0, 0.5], [2.0, 1.5]]),
    np.array([[0.7], [3.0]]),
)
SHARES = np.array([0.3, 0.7])


def density(row: np.ndarray, component: int, columns: range) -> float:
    """By SciPy, cell after cell; what is missing counts nothing."""
    one = [part[component] for part in PARTS]
    laws = [
        lambda x: one[0][int(x)],
        lambda x: one[1][int(x)],
        lambda x: stats.norm.pdf(x, *one[2]),
        lambda x: stats.expon.pdf(x, scale=one[3][0]),
    ]
    return float(np.prod([laws[j](row[j]) for j in columns if not np.isnan(row[j])]))


def joint(row: np.ndarray, columns: range = range(4)) -> float:
    return sum(share * density(row, k, columns) for k, share in enumerate(SHARES))


def some_rows(count: int = 40, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    cells = [rng.integers(0, 2, count), rng.integers(0, 3, count), 2 * rng.normal(size=count)]
    rows = np.stack([*cells, rng.exponential(2.0, count)], 1)
    return np.where(rng.random(rows.shape) < 0.2, np.nan, rows)


def test_likelihoods_are_those_of_the_densities():
    mixture = ColumnMixture(KINDS, np.log(SHARES), PARTS)
    rows = some_rows()
    assert np.allclose(mixture.log_likelihood(rows), [np.log(joint(row)) for row in rows])


def test_entries_are_asked_for_given_the_others():
    mixture, rows = ColumnMixture(KINDS, np.log(SHARES), PARTS), some_rows()
    asked = np.random.default_rng(1).random(rows.shape) < 0.5
    wanted = []
    for row, hidden in zip(rows, asked, strict=True):
        for j in np.flatnonzero(hidden & ~np.isnan(row)):
            known = [i for i in range(4) if not hidden[i]]
            wanted.append(np.log(joint(row, known)) - np.log(joint(row, [*known, j])))
    assert np.allclose(mixture.entry_losses(rows, asked), wanted)


def two_clusters(count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    cluster = rng.integers(0, 2, count)
    category = np.where(rng.random(count) < 0.9, cluster * 2, 1)
    real = np.where(cluster, 3.0, -3.0) + rng.normal(size=count)
    waiting = rng.exponential(np.where(cluster, 5.0, 0.5))
    rows = np.stack([rng.random(count) < 0.1 + 0.8 * cluster, category, real, waiting], 1)
    return np.where(rng.random(rows.shape) < 0.1, np.nan, rows.astype(float))


def test_clusters_are_found_by_held_out_rows():
    """A fixed seed. Independent columns, the broken twin, are a nat behind the truth."""
    train, valid, test = two_clusters(600, 0), two_clusters(200, 1), two_clusters(2000, 2)
    found = choose_columns_mixture(train, valid, KINDS)
    alone = fit_columns(train, KINDS, 1)
    truth = ColumnMixture(
        KINDS,
        np.log([0.5, 0.5]),
        (
            np.array([[0.9, 0.1], [0.1, 0.9]]),
            np.array([[0.9, 0.1, 1e-9], [1e-9, 0.1, 0.9]]),
            np.array([[-3.0, 1.0], [3.0, 1.0]]),
            np.array([[0.5], [5.0]]),
        ),
    )
    best = truth.log_likelihood(test).mean()
    assert found.log_likelihood(test).mean() > best - 0.05
    assert alone.log_likelihood(test).mean() < best - 1.0
    assert len(choose_columns_mixture(train, valid[:0], KINDS).log_weights) == 1


def test_of_too_many_rows_each_counts_once_at_most(monkeypatch):
    """Of 20 rows 19 are drawn, so one is left out; of powers of 2 the mean says which."""
    monkeypatch.setattr(column_mixture, "MOST_CELLS", 19)
    monkeypatch.setattr(column_mixture, "LEAST_ROWS", 1)
    rows = 2.0 ** np.arange(20)[:, None]
    found = fit_columns(rows, ("real",), 1).parts[0][0][0]
    without_one = (rows.sum() - rows[:, 0]) / 19
    assert np.isclose(found, without_one, rtol=1e-12).sum() == 1


def test_columns_that_say_nothing_are_taken():
    """A column that is constant, or missing everywhere, has finite scores."""
    rows = np.stack([np.zeros(30), np.full(30, np.nan), np.full(30, 2.5), np.zeros(30)], 1)
    for components in (1, 5):
        assert np.isfinite(fit_columns(rows, KINDS, components).log_likelihood(rows)).all()


@pytest.mark.parametrize(
    "parts",
    [PARTS[:3], (*PARTS[:3], np.array([[0.7], [-1.0]])), (*PARTS[:3], np.array([[np.nan], [1.0]]))],
    ids=["too few", "negative", "not a number"],
)
def test_other_numbers_are_refused(parts):
    with pytest.raises(UndirectedError, match="mixture"):
        ColumnMixture(KINDS, np.log(SHARES), parts)
