"""The yardsticks of the benchmark of tables: a right tree, right ranks."""

import numpy as np
import pytest
from benchmarks.chow_liu import chow_liu
from benchmarks.tables import (
    MIXTURE,
    NATS,
    OURS,
    RANK,
    Score,
    clustered,
    table_rows,
    verdicts,
    with_holes,
)

from tests import oracle


def chain(rows: int) -> np.ndarray:
    """Each column copies the one before with probability 0.8."""
    rng = np.random.default_rng(0)
    x = np.zeros((rows, 5), np.float32)
    x[:, 0] = rng.random(rows) < 0.4
    for i in range(1, 5):
        x[:, i] = np.where(rng.random(rows) < 0.8, x[:, i - 1], 1 - x[:, i - 1])
    return x[:, [2, 0, 4, 1, 3]]


def test_the_tree_of_a_chain_is_the_chain():
    rows = chain(4000)
    tree = chow_liu(rows)
    edges = {frozenset((i, int(p))) for i, p in enumerate(tree.parents) if p >= 0}
    place = {column: i for i, column in enumerate([2, 0, 4, 1, 3])}
    assert edges == {frozenset((place[i], place[i + 1])) for i in range(4)}
    states = oracle.binary_states(5)
    assert np.exp(tree.log_likelihood(states)).sum() == pytest.approx(1)
    seen = tree.log_likelihood(rows).mean()
    joint = np.bincount((rows @ 2 ** np.arange(5)).astype(int)) / len(rows)
    entropy = -(joint[joint > 0] * np.log(joint[joint > 0])).sum()
    assert -entropy - 0.01 < seen < -entropy


def test_ranks_and_verdicts():
    found = {OURS: Score(-1, -10.0, 0.5, 1.0), MIXTURE: Score(-1, -9.9, None, 1.0)}
    rows = table_rows("a", found, 7) + table_rows("b", {**found, OURS: Score(0, -5.0, 0.1, 1.0)}, 7)
    ranks = {(r.case, r.method): r.ours for r in rows if r.metric == RANK}
    assert ranks == {("a", OURS): 2, ("a", MIXTURE): 1, ("b", OURS): 1, ("b", MIXTURE): 2}
    assert [r.better for r in rows if r.metric == NATS] == ["higher"] * 4
    best, behind = verdicts(rows)
    assert "on 1 of 2 tables" in best
    assert "at most 1.01% (a)" in behind


def test_clustered_tables_have_their_clusters():
    split = clustered(300, 50, 3)
    assert [len(part) for part in split] == [210, 45, 45]
    distance = np.abs(split.train[:, None] - split.train[None]).mean(-1)
    assert (distance < 0.25).mean() > 0.2  # of the same cluster
    assert (distance > 0.35).mean() > 0.3


def test_holes_are_where_one_learns_and_not_in_the_test_rows():
    split = with_holes(clustered(400, 20, 2), 0.1)
    for part in (split.train, split.valid):
        assert 0.05 < np.isnan(part).mean() < 0.15
    assert not np.isnan(split.test).any()
    whole = clustered(400, 20, 2)
    seen = ~np.isnan(split.train)
    np.testing.assert_array_equal(split.train[seen], whole.train[seen])
