"""The experiments of the paper run at their smallest size; ensembles are separate runs."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests import zoo
from undirected.core.errors import UndirectedError
from undirected.data import Split
from undirected.experiments import record, runner
from undirected.experiments.stages import Context
from undirected.inference import QueryNetwork
from undirected.learning import (
    Batches,
    Ensemble,
    ExactQueries,
    QueryTraining,
    fit,
    member,
    stack,
)
from undirected.models import GridMRF
from undirected.papers.query_training import grid, transfer
from undirected.papers.query_training._common import (
    BestOfEach,
    Perceptron,
    scores,
)


@pytest.mark.smoke
def test_table1_smoke(tmp_path):
    result = runner.run("query-training/table1", "smoke", out=tmp_path)
    methods = {row.method for row in result.rows}
    assert {"QT, RBM", "PCD-BP, RBM", "PCD-Gibbs, RBM", "independent marginals"} <= methods
    assert all(0 < row.ours < 2 for row in result.rows if row.ours is not None)
    path = runner.record_path(tmp_path, "query-training/table1", "smoke")
    assert record.read(path).rows == result.rows


@pytest.mark.data
@pytest.mark.smoke
def test_grid_smoke(tmp_path):
    result = runner.run("query-training/grid", "smoke", out=tmp_path)
    assert {row.metric for row in result.rows} == {"IoU (%)", "NCE (nats)"}
    assert (tmp_path / "query-training" / result.images[0]["file"]).is_file()


@pytest.mark.slow
def test_border_ownership_learns_each_seed_as_if_alone(tmp_path):
    """Two seeds and rates in one program against each by itself, with its own start and order."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 2, (12, 900)).astype(np.uint8), rng.integers(0, 3, (12, 900))
    config, noise = grid.CONFIG["smoke"], np.array([0.8, 0.03, 1e-10])
    setting, saved = grid._Setting((0.05, 0.1), 0.99, 4), grid.Checkpoints(tmp_path)
    both = grid._learn(Split(x, y), noise, config, setting, (3, 4), 3, saved)
    alone = []
    for seed, first in ((3, 0.05), (4, 0.1)):
        batches = Batches((x, y), 4, seed)
        steps = batches.steps(3)
        rate = optax.cosine_decay_schedule(first, steps, config["decay"])
        start = GridMRF.create((30, 30), (config["clones"], 1, 1), jax.random.key(seed))
        learner = grid.LabelQueries(noise, config["layers"])
        how = optax.adam(rate, b2=0.99)
        alone.append(fit(start, learner, how, batches, jax.random.key(9), steps=steps).model)
    apart = np.stack([model.potentials for model in alone])
    assert np.abs(apart[0] - apart[1]).max() > 1
    np.testing.assert_allclose(both["potentials"], apart, atol=1e-4)


@pytest.mark.parametrize("nan", [False, True])
def test_border_ownership_takes_the_setting_of_lowest_cross_entropy(tmp_path, monkeypatch, nan):
    wanted, asked = {(20, 0.99): [0.3, np.nan if nan else 0.2, 0.4]}, []

    def tried(parts, noise, config, setting, seed, saved):
        asked.append(setting)
        return {"nats": np.array(wanted.get((setting.batch, setting.b2), [0.5, 0.6, np.nan]))}

    monkeypatch.setattr(grid, "_try", tried)
    several = {"rates": [0.1, 0.2, 0.3], "b2s": [0.9, 0.99], "batches": [5, 20], "runs": 2}
    context = Context("grid", tmp_path, lambda event: None)
    parts = {"validation": Split(np.zeros((2, 900)))}
    chosen = grid._choose(parts, np.zeros(3), several, 0, context)
    assert chosen == (grid._Setting((0.1 if nan else 0.2,) * 2, 0.99, 20), 12)
    assert [(one.batch, one.b2) for one in asked] == [(5, 0.9), (5, 0.99), (20, 0.9), (20, 0.99)]
    one = {"rates": [0.1], "b2s": [0.9], "batches": [5], "runs": 3}
    assert grid._choose({}, np.zeros(3), one, 0, context) == (
        grid._Setting((0.1,) * 3, 0.9, 5),
        1,
    )
    assert len(asked) == 4
    with pytest.raises(UndirectedError, match="set valid above 0"):
        grid._choose({"validation": Split(np.zeros((0, 900)))}, np.zeros(3), several, 0, context)


@pytest.mark.data
@pytest.mark.smoke
def test_grbm_smoke(tmp_path):
    result = runner.run("query-training/grbm", "smoke", out=tmp_path)
    trivial = [row for row in result.rows if row.method == "independent Gaussians"]
    assert [row.case for row in trivial[::2]] == ["random pixels", "5x5 patches"]
    assert (tmp_path / "query-training" / result.images[0]["file"]).is_file()


def networks():
    return [QueryNetwork(zoo.rbm(seed)[0], jnp.asarray(1.0), 4) for seed in (0, 1)]


def test_an_ensemble_follows_each_gradient_and_keeps_each_best(key):
    """With rate 0 a member stays where it was; the other one moves; each keeps its best."""
    x = np.random.default_rng(0).integers(0, 2, (40, 5)).astype(np.float32)
    targets = jnp.asarray(np.random.default_rng(1).random((40, 5)) < 0.5)
    start = stack(networks())
    best = BestOfEach(lambda models, key: scores(models, x, targets, budget=16 * 2 * 15))
    rates = np.array([0.0, 0.01])
    objective = Ensemble(QueryTraining(ExactQueries(2)), rates=rates)
    found = fit(
        start,
        objective,
        optax.sgd(1.0),
        Batches(x, 40),
        key,
        steps=6,
        log_every=2,
        validate=best,
        validate_every=2,
        mode="min",
    ).model
    np.testing.assert_array_equal(member(found, 0).model.weights, member(start, 0).model.weights)
    assert not np.allclose(member(found, 1).model.weights, member(start, 1).model.weights)
    history = np.array(best.history)
    np.testing.assert_allclose(best.values, history.min(0))
    np.testing.assert_allclose(
        scores(best.models, x, targets, budget=16 * 2 * 15), history.min(0), rtol=1e-5
    )
    assert history[0, 0] == history[-1, 0]


def test_a_perceptron_sees_what_is_known_and_is_no_larger_than_the_rbm(key):
    small = Perceptron.like(10, 6, key)
    count = sum(leaf.size for leaf in jax.tree.leaves(small))
    assert 10 * 6 + 16 - 2 * 10 <= count <= 10 * 6 + 16
    evidence = np.zeros((2, 10), np.float32)
    evidence[:, 3] = 1000.0
    evidence[1, 4] = -1000.0
    hidden = np.maximum(np.sign(evidence) @ np.asarray(small.inner), 0)
    np.testing.assert_allclose(small.logits(evidence), hidden @ np.asarray(small.outer), rtol=1e-4)


def test_every_kind_of_query_is_drawn(key):
    masks = np.asarray(transfer.every_kind(key, 500, 64))
    share = masks.mean(1)
    assert (share < 0.15).any() and (share > 0.8).any()
    right = (masks == transfer._RIGHT).all(1)
    assert 60 < right.sum() < 140
