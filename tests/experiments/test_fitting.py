"""Learning inside an experiment: interrupted runs are no results, seeds side by side are apart."""

import ast
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests import zoo
from tests.marks import mostly_slow
from undirected import learning, papers
from undirected.data import Split
from undirected.experiments.fitting import EachModel, PersistentSeeds, SeedBatches, fit
from undirected.experiments.stages import Context
from undirected.learning import Batches, ContrastiveDivergence, Persistent, member, stack
from undirected.models import RBM, tempered
from undirected.papers.query_training import grid
from undirected.sampling import (
    Alternating,
    BlockGibbs,
    ChainState,
    Gibbs,
    ParallelTempering,
    ladder,
)


def learn(how, on_event=None):
    data = np.random.default_rng(0).integers(0, 2, (20, 6)).astype(np.float32)
    return how(
        RBM.create(6, 3, jax.random.key(0)),
        ContrastiveDivergence(BlockGibbs()),
        optax.sgd(0.1),
        Batches(data, 10),
        jax.random.key(1),
        steps=20,
        log_every=5,
        on_event=on_event,
    )


def interrupt(progress):
    if progress.step == 10:
        raise KeyboardInterrupt


def test_an_interrupted_stage_is_not_stored(tmp_path):
    assert learn(learning.fit, interrupt).stopped == "interrupted"
    context = Context("toy/toy", tmp_path, lambda event: None)
    with pytest.raises(KeyboardInterrupt):
        context.stage("learn", lambda: learn(fit, interrupt).step)
    again = Context("toy/toy", tmp_path, lambda event: None)
    assert again.stage("learn", lambda: learn(fit).step) == 20


def test_experiments_learn_in_no_other_way():
    (folder,) = papers.__path__
    plain = [
        str(path)
        for path in Path(folder).glob("*/*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("undirected.learning")
        and any(alias.name == "fit" for alias in node.names)
    ]
    assert plain == []


@pytest.mark.slow
def test_border_ownership_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 2, (8, 900)).astype(np.uint8), rng.integers(0, 3, (8, 900))
    setting, noise = grid._Setting((0.05, 0.1), 0.99, 4), np.array([0.8, 0.03, 1e-10])
    work = Split(x, y), noise, grid.CONFIG["smoke"], setting, (0, 1), 4
    whole = grid._learn(*work, grid.Checkpoints(tmp_path / "whole"))

    def stopped(*args, **kwargs):
        learning.fit(*args, **{**kwargs, "epochs": kwargs["epochs"] / 2})
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(grid, "fit", stopped)
        with pytest.raises(KeyboardInterrupt):
            grid._learn(*work, grid.Checkpoints(tmp_path / "parts"))
    assert list((tmp_path / "parts").glob("step-00000004.*"))
    parts = grid._learn(*work, grid.Checkpoints(tmp_path / "parts"))
    np.testing.assert_array_equal(parts["potentials"], whole["potentials"])
    assert parts["step"].tolist() == whole["step"].tolist()


def test_each_seed_has_its_own_rows_in_its_own_order(key):
    x = np.arange(10)[:, None] * np.ones(3)
    both = SeedBatches(x, 4, seeds=(5, 7))
    assert (both.rows, both.size, both.steps(1)) == (10, 8, 3)
    found = both.indices(1, 6)
    for i, seed in enumerate((5, 7)):
        alone = Batches(x, 4, seed).indices(1, 6)
        np.testing.assert_array_equal(found[:, 4 * i : 4 * i + 4], alone)
    batch = both.take(both.data, jnp.asarray(found[0]), key)
    np.testing.assert_array_equal(batch, x[found[0]].reshape(2, 4, 3))
    some = np.array([[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]])
    apart = SeedBatches(x, 4, seeds=(5, 7), subsets=list(some))
    assert (apart.rows, apart.steps(2)) == (5, 3)
    rows = apart.indices(0, 5)
    assert sorted(rows[:, :4].ravel()) == sorted(np.repeat(some[0], 4))
    assert sorted(rows[:, 4:].ravel()) == sorted(np.repeat(some[1], 4))


def test_the_transform_of_every_seed_has_its_own_key(key):
    def noise(batch, key):
        return batch + jax.random.uniform(key, batch.shape)

    both = SeedBatches(np.zeros((6, 2)), 3, seeds=(1, 1), transform=noise)
    first, second = both.take(both.data, jnp.asarray(both.indices(0, 1)[0]), key)
    assert first.shape == (3, 2)
    assert (first != second).all()


class Turn:
    """Turns the first unit of every chain over: a kernel without chance."""

    def init(self, model, x, key):
        return ChainState(x)

    def step(self, model, state, free, key):
        x = state.x.at[..., 0].set(1 - state.x[..., 0])
        return ChainState(x), {"flips": jnp.full(x.shape[:-1], 1.0)}


def test_seeds_side_by_side_learn_what_each_learns_alone(key):
    """With chains that move without chance, the parameters are those of two separate runs."""
    data = np.random.default_rng(0).integers(0, 2, (20, 6)).astype(np.float32)
    starts = [RBM.create(6, 3, jax.random.key(seed)) for seed in (0, 1)]
    alone = [
        fit(start, Persistent(Turn(), 4), optax.sgd(0.1), Batches(data, 5, seed), key, steps=9)
        for seed, start in enumerate(starts)
    ]
    both = fit(
        stack(starts),
        PersistentSeeds(Persistent(Turn(), 4), kernel=EachModel(Turn())),
        optax.sgd(0.1),
        SeedBatches(data, 5, seeds=(0, 1)),
        key,
        steps=9,
    )
    for i, one in enumerate(alone):
        mine = member(both.model, i)
        for ours, theirs in zip(jax.tree.leaves(mine), jax.tree.leaves(one.model), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(both.carry.x[i][:, :6], one.carry.x[:, :6])
    assert not np.allclose(both.model.weights[0], both.model.weights[1])
    assert both.history[-1]["flips.1"] == 1.0


RUNGS = ParallelTempering(BlockGibbs(), tempered, ladder(0.5, 2))


@pytest.mark.parametrize("kernel", mostly_slow([BlockGibbs(2), Gibbs(2), RUNGS], [Gibbs(2)]))
def test_chains_of_a_stack_are_those_of_each_model(kernel, key):
    models = [zoo.rbm(seed)[0] for seed in (0, 1, 2)]
    x = jnp.asarray(np.random.default_rng(0).integers(0, 2, (3, 4, 8)), float)
    free, both = jnp.ones(8, bool), EachModel(kernel)
    found, info = both.step(stack(models), both.init(stack(models), x, key), free, key)
    for i, one in enumerate(jax.random.split(key, 3)):
        alone, _ = kernel.step(models[i], kernel.init(models[i], x[i], one), free, one)
        np.testing.assert_array_equal(found.x[i], alone.x)
    assert all(value.shape[0] == 3 for value in info.values())


def test_jumps_of_a_stack_come_when_they_are_due(key):
    kernel = Alternating(EachModel(Stay()), EachModel(Turn()), every=3, after=2)
    models = stack([zoo.rbm(seed)[0] for seed in (0, 1)])
    state = kernel.init(models, jnp.zeros((2, 4, 8)), key)
    turned = []
    for _ in range(9):
        state, info = kernel.step(models, state, jnp.ones(8, bool), key)
        turned.append(float(info["jumps"]))
    assert turned == [0, 0, 0, 0, 0, 1, 0, 0, 1]
    assert (np.asarray(state.x) == 0).all()  # turned over twice


class Stay(Turn):
    """Leaves every chain where it is."""

    def step(self, model, state, free, key):
        return state, {"flips": jnp.zeros(state.x.shape[:-1])}
