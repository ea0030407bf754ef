"""The experiments of the paper run at their smallest size; ensembles are separate runs."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests import zoo
from undirected.experiments import record, runner
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
    """Two seeds in one program against each by itself, with its own start and order of images."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 2, (12, 900)).astype(np.uint8), rng.integers(0, 3, (12, 900))
    config, rates = {**grid.CONFIG["smoke"], "epochs": 3}, np.array([0.8, 0.03, 1e-10])
    both = grid._learn(x, y, rates, config, (3, 4), grid.Checkpoints(tmp_path))
    alone = []
    for seed in (3, 4):
        batches = Batches((x, y), config["batch"], seed)
        steps = batches.steps(config["epochs"])
        rate = optax.cosine_decay_schedule(config["rate"], steps, config["decay"])
        start = GridMRF.create((30, 30), (config["clones"], 1, 1), jax.random.key(seed))
        learner = grid.LabelQueries(rates, config["layers"])
        how = optax.adam(rate, b2=config["b2"])
        alone.append(fit(start, learner, how, batches, jax.random.key(9), steps=steps).model)
    apart = np.stack([model.potentials for model in alone])
    assert np.abs(apart[0] - apart[1]).max() > 1
    np.testing.assert_allclose(both["potentials"], apart, atol=1e-4)


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
