"""The mixture that learning starts from, on rows of clusters in many columns."""

import numpy as np
import pytest

from undirected.evaluation import AISResult
from undirected.learning.mixture import Mixture, fit_mixture
from undirected.tasks.mixture_start import learnable, likely_most, start_mixture


def clusters_in_variants(columns: int = 1400, clusters: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Each cluster has two variants, which differ in a fifth of the columns: 24 in all."""
    rng = np.random.default_rng(0)
    corners = rng.random((clusters, columns)) < 0.3
    moving = rng.random((clusters, columns)) < 0.2
    cluster, variant = rng.integers(0, clusters, 700), rng.random(700) < 0.5
    chance = np.where(corners[cluster], 0.93, 0.04)
    chance = np.where(moving[cluster], np.where(variant[:, None], 0.8, 0.2), chance)
    rows = (rng.random(chance.shape) < chance).astype(np.float32)
    return rows[:500], rows[500:]


@pytest.mark.slow
def test_all_variants_of_clusters_are_found():
    """20 components, what many columns allowed before, are the broken twin: far below the best."""
    train, valid = clusters_in_variants()
    best = max(fit_mixture(train, k).log_likelihood(valid).mean() for k in (50, 100))
    found = start_mixture(train, valid, None, seed=0).log_likelihood(valid).mean()
    few = start_mixture(train, valid, 20, seed=0).log_likelihood(valid).mean()
    assert found > 1.01 * best
    assert few < 1.04 * best


def test_learning_starts_from_few_components_where_columns_are_many():
    """100 chains cannot keep 100 components filled that they do not go between."""
    rng = np.random.default_rng(0)
    wide, narrow = (Mixture(np.full(100, -np.log(100)), rng.random((100, v))) for v in (401, 400))
    rows = (rng.random((60, 401)) < 0.5).astype(np.float32)
    assert learnable(wide, rows, seed=0).means.shape == (20, 401)
    assert learnable(narrow, rows[:, :400], seed=0) is narrow
    few = Mixture(wide.log_weights[:20], wide.means[:20])
    assert learnable(few, rows, seed=0) is few


def test_one_heavy_chain_does_not_make_log_z_endless():
    """The t interval of a mean that one of 100 chains carries ends thousands of nats above it."""
    weights = np.append(np.zeros(99), 30.0)
    lone = AISResult(30 - np.log(100), 1.0, (20.0, 4000.0), weights, 1.0, None)
    assert likely_most(lone) == 30.0
    known = AISResult(0.0, 0.1, (-0.3, 0.3), np.linspace(-1, 1, 100), 90.0, None)
    assert likely_most(known) == 0.3
