"""The mixture that learning starts from, on rows of clusters in many columns."""

import numpy as np

from undirected.learning.mixture import fit_mixture
from undirected.tasks.mixture_start import start_mixture


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


def test_all_variants_of_clusters_are_found():
    """20 components, what many columns allowed before, are the broken twin: far below the best."""
    train, valid = clusters_in_variants()
    best = max(fit_mixture(train, k).log_likelihood(valid).mean() for k in (50, 100))
    found = start_mixture(train, valid, None, seed=0).log_likelihood(valid).mean()
    few = start_mixture(train, valid, 20, seed=0).log_likelihood(valid).mean()
    assert found > 1.01 * best
    assert few < 1.04 * best
