"""What a run keeps of its way, against runs that end where a snapshot was taken."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.learning import resumable
from undirected.core.errors import UndirectedError
from undirected.io.checkpoint import Checkpoints
from undirected.io.snapshots import Snapshots, read_snapshots
from undirected.learning import Batches, Persistent, PseudoLikelihood, fit
from undirected.learning.snapshots import SHOWN, snapshot_of
from undirected.models import RBM, DeepBM, GaussianRBM, Ising
from undirected.sampling.base import ChainState

OBJECTIVE, ADAM = Persistent(resumable.Drift(), chains=5), optax.adam(0.05)
STEPS = 120
"""Thirty chunks, of which every second snapshot is kept."""


def train(folder, snapshots=True, **options):
    """A run of little cost."""
    kept = Snapshots(folder / "snapshots") if snapshots else None
    data = np.random.default_rng(0).integers(2, size=(23, 4)).astype(np.float32)
    return fit(
        RBM.create(4, 3, jax.random.key(7)),
        OBJECTIVE,
        ADAM,
        Batches(data, 4),
        jax.random.key(7),
        **{"steps": STEPS, "log_every": 4, "save_every": 1e9, **options},
        store=Checkpoints(folder / "checkpoints"),
        snapshots=kept,
    )


def test_snapshots_are_the_run_at_their_steps(tmp_path):
    train(tmp_path)
    kept = read_snapshots(tmp_path / "snapshots")
    assert kept.steps[0] == 0 and kept.steps[1] == 8 and kept.steps[-1] == STEPS
    at = 3
    there = train(tmp_path / "short", steps=int(kept.steps[at]))
    weights = np.asarray(there.model.weights, np.float16)
    np.testing.assert_array_equal(kept.arrays["filters"][at], weights.T)
    states = np.rint(np.asarray(there.carry.x)[:, :4])
    np.testing.assert_array_equal(kept.arrays["samples"][at], states)
    assert (kept.arrays["filters"][at] != kept.arrays["filters"][at + 1]).any()


def test_a_run_that_was_cut_keeps_the_same_snapshots(tmp_path):
    class Stop(Exception):
        pass

    def trip(step):
        def tell(progress):
            if progress.step == step:
                raise Stop

        return tell

    for step in (36, 100):
        with pytest.raises(Stop):
            train(tmp_path / "cut", on_event=trip(step))
    train(tmp_path / "cut")
    train(tmp_path / "whole")
    found = [(tmp_path / name / "snapshots").read_bytes() for name in ("cut", "whole")]
    assert found[0] == found[1]


def test_snapshots_change_nothing_of_the_run(tmp_path):
    found = [train(tmp_path / str(kept), snapshots=kept) for kept in (True, False)]
    assert resumable.outcome(found[0]) == resumable.outcome(found[1])


def test_models_show_what_they_have():
    key = jax.random.key(0)
    deep = snapshot_of(DeepBM.create([6, 3, 2], key), None)
    assert list(deep) == ["filters"] and deep["filters"].shape == (3, 6)
    ising = Ising.create(5)
    assert snapshot_of(ising, None) == {}
    chains = ChainState(jnp.ones((40, 5)))
    assert snapshot_of(ising, chains)["samples"].shape == (SHOWN, 5)
    gaussian = GaussianRBM(jnp.ones((2, 30)), jnp.zeros(2), jnp.zeros(30))
    found = snapshot_of(gaussian, ChainState(jnp.full((3, 32), 1e6)))
    assert found["filters"].shape == (SHOWN, 2)
    assert found["samples"].dtype == np.float16 and np.isfinite(found["samples"]).all()
    assert snapshot_of(object(), chains) == {}


def test_snapshots_are_small_whatever_the_model():
    wide = RBM.create(50_000, 2, seed=0)
    assert snapshot_of(wide, ChainState(jnp.zeros((3, 50_002)))) == {}
    some = snapshot_of(RBM.create(5_000, 20, seed=0), None)
    assert some["filters"].shape == (2, 5_000)


def test_snapshots_need_a_store(tmp_path):
    batches = Batches(np.eye(3, dtype=np.float32), 2)
    arguments = RBM.create(3, 2, seed=0), PseudoLikelihood(), optax.sgd(0.1), batches
    with pytest.raises(UndirectedError, match="store="):
        fit(*arguments, jax.random.key(0), steps=1, snapshots=Snapshots(tmp_path / "s"))
    assert Checkpoints(tmp_path).latest(None) is None
