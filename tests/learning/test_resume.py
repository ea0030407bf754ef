"""A run that was stopped, by whatever cause, goes on to the same bits."""

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.learning import resumable, support
from undirected.core.errors import BadFile, UndirectedError
from undirected.io.checkpoint import Checkpoints
from undirected.io.metrics import MetricsLog, read
from undirected.learning import Batches, Diverged, Persistent, PseudoLikelihood, fit
from undirected.models import RBM

ROOT = Path(__file__).parents[2]


def start(folder: Path, pause: float) -> subprocess.Popen:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, "-m", "tests.learning.resumable", str(folder), str(pause)]
    settings = {"PYTHONPATH": path, "JAX_NUMPY_RANK_PROMOTION": "raise"}
    return subprocess.Popen(
        command, env={**os.environ, **settings}, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )


@pytest.mark.slow
def test_five_kills_leave_no_trace(tmp_path):
    """Parameters, chains, optimiser, best model, counters, history and log: the same bits."""
    rng, began = random.Random(0), []
    for _ in range(5):
        with start(tmp_path, pause=0.05) as process:
            assert process.stdout is not None
            began.append(int(process.stdout.readline()))
            for _ in range(rng.randint(1, 5)):
                process.stdout.readline()
            time.sleep(rng.uniform(0, 0.1))
            process.kill()
        assert process.returncode == -9
        assert not (tmp_path / "outcome").exists()
    assert 0 == began[0] < began[1] < began[2] < began[3] < began[4] < resumable.STEPS
    with start(tmp_path, pause=0.0) as process:
        process.communicate()
    assert process.returncode == 0
    whole = resumable.train(tmp_path / "whole")
    assert (tmp_path / "outcome").read_bytes() == resumable.outcome(whole)
    log = (tmp_path / "whole" / "metrics.jsonl").read_bytes()
    assert (tmp_path / "metrics.jsonl").read_bytes() == log
    assert read(tmp_path / "metrics.jsonl") == whole.history


class Stop(Exception):
    pass


def learn(folder, optimiser=None, hidden=3, size=4, objective=None, key=0, flip=False, **options):
    """A short run on three visible units."""
    key = jax.random.key(key)
    data = support.data(support.models()["rbm"], rows=9)
    data = 1 - data if flip else data
    objective = objective or PseudoLikelihood()
    model = RBM.create(3, hidden, jax.random.key(3))
    optimiser = optimiser or optax.sgd(0.1)
    batches = Batches(data, size)
    options = {"steps": 20, "log_every": 5, "store": Checkpoints(folder)} | options
    return fit(model, objective, optimiser, batches, key, **options)


@pytest.mark.parametrize(("cause", "save_every"), [(Stop, 1e9), (KeyboardInterrupt, 0.0)])
def test_an_exception_saves_and_goes_on(tmp_path, cause, save_every):
    """Also where no checkpoint was due: what was computed is saved on the way out."""

    def trip(progress):
        if progress.step == 14:
            raise cause

    def run(folder, **options):
        log = MetricsLog(tmp_path / folder / "metrics.jsonl")
        options = {"validate": resumable.validate, "validate_every": 7, "log": log} | options
        return learn(tmp_path / folder, save_every=save_every, **options)

    def steps(folder):
        return [row["step"] for row in read(tmp_path / folder / "metrics.jsonl")]

    if cause is KeyboardInterrupt:
        result = run("cut", on_event=trip)
        assert (result.stopped, result.step) == ("interrupted", 14)
    else:
        with pytest.raises(Stop):
            run("cut", on_event=trip)
    assert steps("cut") == [5, 7, 10, 14]
    events = []
    result, whole = run("cut", on_event=events.append), run("whole")
    assert [event.step for event in events] == [14, 15, 20]
    assert resumable.outcome(result) == resumable.outcome(whole)
    assert steps("cut") == steps("whole") == [5, 7, 10, 14, 15, 20]


def test_a_finished_run_is_returned_as_it_is_and_can_be_prolonged(tmp_path):
    first = learn(tmp_path, steps=10)
    events = []
    again = learn(tmp_path, steps=10, on_event=events.append)
    assert resumable.outcome(again) == resumable.outcome(first)
    assert [event.step for event in events] == [10]
    assert resumable.outcome(learn(tmp_path)) == resumable.outcome(learn(tmp_path / "whole"))


def test_other_settings_of_an_objective_are_refused(tmp_path):
    """Also such as change no shape: two moves of the chains a step in the place of one."""
    own = {"chains": 2, "kernel": support.ExactKernel()}
    learn(tmp_path, objective=Persistent(**own))
    with pytest.raises(UndirectedError, match="settings of the objective .* use another folder"):
        learn(tmp_path, objective=Persistent(**own, steps=2))
    assert learn(tmp_path, objective=Persistent(**own)).step == 20


class Watched(Checkpoints):
    """Checkpoints whose writing waits until the run is at a step, or fails."""

    def __init__(self, folder, wait_for=0, fails=False):
        super().__init__(folder)
        self.wait_for, self.fails, self.reached = wait_for, fails, threading.Event()

    def tell(self, progress):
        if progress.step >= self.wait_for:
            self.reached.set()

    def _write(self, step, *rest):
        assert self.reached.wait(60), "the run did not go on while a checkpoint was written"
        if self.fails and step == 5:
            raise OSError("no room")
        return super()._write(step, *rest)


def test_steps_go_on_while_a_checkpoint_is_written(tmp_path):
    store = Watched(tmp_path / "slow", wait_for=10)
    result = learn(tmp_path, store=store, save_every=0.0, on_event=store.tell)
    whole = learn(tmp_path / "whole")
    assert resumable.outcome(result) == resumable.outcome(whole)
    assert resumable.outcome(learn(tmp_path / "slow")) == resumable.outcome(whole)


def test_a_checkpoint_that_cannot_be_written_ends_the_run(tmp_path):
    store, events = Watched(tmp_path, fails=True), []
    store.reached.set()
    with pytest.raises(OSError, match="no room"):
        learn(tmp_path, store=store, save_every=0.0, on_event=events.append)
    assert [event.step for event in events] == [0, 5, 10]  # told of at the next, and saved there
    assert learn(tmp_path, steps=10).step == 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": 5}, r"model.weights' is float32 \(3, 3\) in the file; wanted float32 \(3, 5\)"),
        ({"optimiser": optax.adam(0.1)}, "optimiser"),
        ({"optimiser": optax.sgd(0.05)}, "optimiser and rate .* that falls to the end of a run"),
        ({"validate": lambda m, k: 1.0, "patience": 3}, "patience None, not 3"),
        ({"flip": True}, "data"),
        ({"objective": Persistent(support.ExactKernel(), chains=2)}, "carry"),
        ({"size": 3}, "batch size 4, not 3"),
        ({"key": 1}, "key"),
    ],
)
def test_a_changed_configuration_is_refused(tmp_path, change, message):
    learn(tmp_path)
    with pytest.raises(UndirectedError, match=f"{message}.*use another folder"):
        learn(tmp_path, **change)
    assert learn(tmp_path).step == 20


def test_a_damaged_store_is_named(tmp_path):
    learn(tmp_path)
    for path in tmp_path.glob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(BadFile, match="cannot go on with the stored run"):
        learn(tmp_path)


def test_divergence_is_saved_and_can_go_on_with_a_lower_rate(tmp_path):
    wild = optax.sgd(lambda step: jnp.where(step > 6, jnp.inf, 0.1))
    with pytest.raises(Diverged, match="new weights became .* at step 8 of 20") as error:
        learn(tmp_path, optimiser=wild)
    calm = optax.sgd(lambda step: 0.1)
    result = learn(tmp_path, optimiser=calm)
    assert result.step == 20
    assert result.history[:2] == error.value.result.history
    reference = learn(tmp_path / "calm", optimiser=calm)
    np.testing.assert_allclose(result.model.weights, reference.model.weights, rtol=1e-5)


def test_patience_survives_a_restart(tmp_path):
    """The best model and the count of disappointments are part of the run."""
    values = iter([1.0, 3.0, 2.0])
    options = {"validate": lambda m, k: next(values), "validate_every": 2, "patience": 2}

    def trip(progress):
        if progress.step == 6:
            raise KeyboardInterrupt

    first = learn(tmp_path, on_event=trip, **options)
    assert (first.stopped, first.best, first.best_step) == ("interrupted", 3.0, 4)
    values = iter([2.5, 9.0])
    options["validate"] = lambda m, k: next(values)
    second = learn(tmp_path, **options)
    assert (second.stopped, second.step, second.best, second.best_step) == ("patience", 8, 3.0, 4)
    assert eqx.tree_equal(second.best_model, first.best_model)
    third = learn(tmp_path, **options)
    assert (third.stopped, third.step) == ("patience", 8)


def test_a_failing_validation_is_repeated(tmp_path):
    def fail(model, key):
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        learn(tmp_path, validate=fail, validate_every=10)
    result = learn(tmp_path, validate=lambda m, k: 1.0, validate_every=10)
    assert [row["step"] for row in result.history if "validation" in row] == [10, 20]
    assert [row["step"] for row in result.history] == [5, 10, 15, 20]


def test_the_users_model_is_left_alone(tmp_path, key):
    model = RBM.create(3, 2, key)
    before = np.array(model.weights)
    batches = Batches(support.data(support.models()["rbm"]), 3)
    fit(model, PseudoLikelihood(), optax.sgd(1.0), batches, key, steps=3)
    np.testing.assert_array_equal(model.weights, before)
