"""Scores of trained RBMs are log-likelihoods; runs of one method are gathered over seeds."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks.rbm_kernels import CPU, PEER, SCORE, WIDTH, Digits, notes, renewed, score, settings

import undirected as un
from benchmarks import rbm_kernels
from tests import oracle


@pytest.fixture
def small(monkeypatch):
    """Eight rows of five pixels in place of digits."""
    rows = np.random.default_rng(0).integers(0, 2, (8, 5)).astype(np.float32)
    monkeypatch.setattr(rbm_kernels, "digits", lambda: Digits(rows, rows, rows))
    return rows


def test_scores_are_mean_log_likelihoods(small):
    """Against the sum over all joint states; annealing has 400 temperatures, the seed is fixed."""
    rng = np.random.default_rng(1)
    w, b, c = (rng.normal(size=s) for s in ((5, 3), 5, 3))
    truth = oracle.rbm(w, b, c)
    found = [
        np.log(truth.probabilities[(truth.states[:, :5] == row).all(1)].sum()) for row in small
    ]
    w, b, c = (jnp.asarray(a, jnp.float32) for a in (w, b, c))
    nats, width = score(un.RBM(w, b, c), small, 100, 400, seed=0)
    assert width < 0.5
    assert abs(nats - np.mean(found)) < width
    assert abs(nats - np.mean(found) + 0.7) > width  # a log Z that is 0.7 off would be noticed


def test_runs_of_a_method_are_gathered_by_seed():
    rows = renewed([], "CD-1", 0, {SCORE: -100.0, CPU: 3.0})
    rows = renewed(rows, PEER, 0, {SCORE: -120.0, CPU: 3.0})
    rows = renewed(rows, "CD-1", 1, {SCORE: -90.0, CPU: 4.0})
    found = {(row.method, row.metric): row for row in rows}
    assert found["CD-1", SCORE].ours == -95 and found["CD-1", SCORE].n == 2
    assert found["CD-1", CPU].values == (3.0, 4.0) and found[PEER, SCORE].n == 1
    told = list(notes(rows, {"CD-1": settings("CD-1")[0]}))
    assert told == [
        "Best: CD-1, -95.0 nats.",
        "CD-1 is 25.0 nats above rbms at equal CPU time.",
    ]
    edge = list(notes(rows, {"CD-1": settings("CD-1")[-1]}))
    assert edge == [*told, "The largest rate that was tried was the best one for: CD-1."]
    vague = renewed(rows, PEER, 0, {SCORE: -120.0, WIDTH: 30.0})
    best, unknown = notes(vague, {})
    assert best == told[0]
    assert unknown.startswith("log Z is not known to 10 nats") and unknown.endswith("rbms, PCD.")
    again = renewed(rows, "CD-1", 0, {SCORE: -80.0, CPU: 3.0})
    assert [row.ours for row in again if row.name[1:] == ("CD-1", SCORE)] == [-80]


def test_every_method_has_settings_to_choose_from(small):
    for method in (*rbm_kernels.objectives(), PEER):
        assert len(settings(method)) > 1


def test_what_cannot_be_measured_is_not_chosen(monkeypatch, small):
    """The second rate has the best value, of an interval of thousands of nats."""
    tried = settings("CD-1")
    scores = dict(
        zip((one["rate"] for one in tried), ((-99, 1), (-90, 3000), (-98, 1)), strict=True)
    )
    monkeypatch.setattr(
        rbm_kernels, "train", lambda method, setting, *a, **k: Named(setting["rate"])
    )
    monkeypatch.setattr(rbm_kernels, "score", lambda model, *a, **k: scores[model])
    assert rbm_kernels.choose("CD-1", 1.0, 5, 10) == tried[2]


class Named(NamedTuple):
    """A training whose model is its rate."""

    model: float
