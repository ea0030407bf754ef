"""The benchmark of imputation: right codes, right scores, every imputer gives answers."""

import numpy as np
import pytest
from benchmarks.imputation import (
    BITS,
    COMMON,
    ERROR,
    LINEAR,
    NEIGHBOURS,
    OURS,
    Answers,
    Score,
    Table,
    judge,
    score_rows,
    verdict,
)

from benchmarks import imputation

NAN = np.nan


def small() -> Table:
    """A category of 3 states, a binary column that copies its last state, and a real near it."""
    rng = np.random.default_rng(0)
    state = rng.integers(0, 3, 80).astype(float)
    x = np.stack([state, state == 2, state - 1 + 0.1 * rng.normal(size=80)], 1)
    return Table(x[:60], x[60:], (3, 2, 0))


def test_columns_that_exclude_each_other_are_states_of_one_category():
    rows = np.array([[1, 0, 1, 0, 0], [0, 1, 0, 0, 1], [0, 1, 0, 0, 0], [1, 0, 0, 1, 0]])
    groups = imputation.exclusive(rows)
    assert groups == [range(2), range(2, 5)]
    states = imputation.as_states(rows, groups)
    np.testing.assert_array_equal(states, [[0, 0], [1, 2], [1, NAN], [0, 1]])


def test_numbers_leave_out_the_first_state():
    found = imputation.numbers(np.array([[2, 1, 0.5], [0, NAN, NAN]]), (3, 2, 0))
    np.testing.assert_array_equal(found, [[0, 1, 1, 0.5], [0, 0, NAN, NAN]])


def test_scores_are_those_of_the_hidden_cells():
    whole = Table(np.zeros((0, 3)), np.array([[1, 0, 2.0], [0, 1, 1.0]]), (2, 2, 0))
    test = np.array([[NAN, 0, NAN], [NAN, 1, 1.0]])
    p = np.array([[0.25, 0.75], [0.5, 0.5]])
    found = judge(whole, test, Answers([p, 1 - p, np.array([1.5, 9.0])], 1.0))
    assert found.bits == pytest.approx((-np.log2(0.75) + 1) / 2)
    assert found.accuracy == 1 and found.rmse == 0.5


def test_imputers_answer_and_ours_knows_what_goes_together(monkeypatch):
    makers = {k: v for k, v in imputation.imputers().items() if k in (COMMON, NEIGHBOURS, LINEAR)}
    monkeypatch.setattr(imputation, "imputers", lambda: makers)
    monkeypatch.setattr(imputation, "SPLITS", range(2))
    both = imputation.compare(small(), 0.3)
    found = {name: imputation.mean_score(scores) for name, scores in both.items()}
    runs = [
        imputation.compare_once(imputation.shuffled(small(), seed), 0.3, seed)[COMMON].bits
        for seed in range(2)
    ]
    assert found[COMMON].bits == pytest.approx(np.mean(runs)) and runs[0] != runs[1]
    assert set(found) == {OURS, COMMON, NEIGHBOURS, LINEAR}
    for score in found.values():
        assert 0 <= score.bits < 3 and 0 <= score.accuracy <= 1 and 0 < score.rmse < 2
    assert found[OURS].bits < 0.7 * found[COMMON].bits
    assert found[OURS].rmse < 0.7 * found[COMMON].rmse
    (row,) = [r for r in score_rows("a", both) if (r.method, r.metric) == (COMMON, BITS)]
    assert (row.n, row.stderr) == (2, pytest.approx(abs(runs[0] - runs[1]) / 2))


def test_verdict_counts_cases():
    rows = score_rows(
        "a", {OURS: [Score(0.5, 0.9, None, 1.0)], COMMON: [Score(0.6, 0.9, None, 0.0)]}
    )
    rows += score_rows(
        "b", {OURS: [Score(0.7, 0.9, 0.4, 1.0)], COMMON: [Score(0.6, 0.9, 0.5, 0.0)]}
    )
    assert verdict(rows) == (
        "Ours has the fewest bits on 1 of 2 cases and the smallest error on 1 of 1 cases."
    )
    assert [r.better for r in rows if r.metric in (BITS, ERROR)] == ["lower"] * 6
