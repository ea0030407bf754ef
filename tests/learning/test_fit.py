"""The loop: it reaches maximum likelihood, stops, guards, reports, and compiles once."""

import importlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests import oracle
from tests.learning import support
from undirected.core.errors import NotFinite, UndirectedError
from undirected.inference import Exact
from undirected.io.metrics import MetricsLog, read
from undirected.learning import (
    Batches,
    ContrastiveDivergence,
    Diverged,
    Persistent,
    PseudoLikelihood,
    TwoPhase,
    fit,
)
from undirected.models import RBM, GaussianRBM, Ising
from undirected.sampling import BlockGibbs, GaussianGibbs, Gibbs


class Mean(eqx.Module):
    """A model that is one vector; tests of the loop alone need no more."""

    value: jax.Array


class Distance:
    """Half the squared distance of the data from the vector; the carry counts steps."""

    def __init__(self):
        self.traces = 0

    def init(self, model, batch, key):
        return jnp.zeros(())

    def __call__(self, model, batch, carry, key):
        self.traces += 1
        error = batch - model.value[None]
        return 0.5 * jnp.mean(jnp.sum(error**2, -1)), (carry + 1, {"worst": jnp.max(error)})


def points(rows: int = 10) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(rows, 2)).astype(np.float32)


def run(objective=None, steps=25, model=None, optimiser=None, **options):
    objective = objective or Distance()
    batches = options.pop("batches", Batches(points(), 4))
    model = model or Mean(jnp.ones(2))
    optimiser = optimiser or optax.adam(0.1)
    return fit(model, objective, optimiser, batches, jax.random.key(1), steps=steps, **options)


def test_ising_reaches_maximum_likelihood(key):
    """At the maximum the model's moments are the data's."""
    states = oracle.binary_states(3)
    v = np.repeat(states, [5, 1, 2, 3, 1, 4, 1, 7], axis=0)
    objective, batches = TwoPhase(support.Enumerate()), Batches(v, len(v))
    result = fit(Ising.create(3), objective, optax.sgd(1.0), batches, key, steps=1500)
    moments = support.truth(result.model, support.parameters(result.model)).moments
    np.testing.assert_allclose(moments, v.T @ v / len(v), atol=1e-5)
    assert result.stopped == "steps"


def test_rbm_reaches_the_entropy_of_the_data(key):
    """Two hidden units can represent any distribution of two visible ones."""
    counts = np.array([6, 1, 2, 7])
    v = np.repeat(oracle.binary_states(2), counts, axis=0)
    start = RBM.create(2, 2, key, scale=1.0)
    objective, batches = TwoPhase(support.Enumerate()), Batches(v, len(v))
    result = fit(start, objective, optax.adam(0.05), batches, key, steps=1500)
    distribution = support.truth(result.model, support.parameters(result.model))
    p = counts / counts.sum()
    loss = support.negative_log_likelihood(distribution, v)
    assert abs(loss + (p * np.log(p)).sum()) < 1e-4
    assert support.negative_log_likelihood(support.truth(start, support.parameters(start)), v) > 1.2


@pytest.mark.parametrize(("temperature", "close"), [(1.0, True), (0.5, False)])
def test_sampled_learning_finds_the_moments_only_with_a_right_kernel(temperature, close, key):
    v = np.repeat(oracle.binary_states(2), [10, 3, 5, 12], axis=0)
    objective = Persistent(support.ExactKernel(temperature), chains=200)
    optimiser = optax.sgd(optax.cosine_decay_schedule(1.0, 400))
    result = fit(Ising.create(2), objective, optimiser, Batches(v, len(v)), key, steps=400)
    moments = support.truth(result.model, support.parameters(result.model)).moments
    assert (np.abs(moments - v.T @ v / len(v)).max() < 0.02) == close


@pytest.mark.slow
@pytest.mark.parametrize(
    "objective",
    [
        ContrastiveDivergence(BlockGibbs(), steps=5),
        Persistent(Gibbs(), steps=10),
        TwoPhase(Exact(), positive=Exact()),
    ],
    ids=lambda objective: type(objective).__name__,
)
def test_the_parts_of_the_house_fit_together(objective, key):
    """From data with missing entries, an RBM learns that two units agree and a label follows."""
    v = np.tile([[0, 0, 1, 0, 0], [1, 1, 0, 0, 1], [1, 1, 0, 1, 0], [0, 0, 1, 0, 0]], (10, 1))
    v = v.astype(float)
    seen = v.copy()
    seen[::5, 0] = np.nan
    seen[3::7, 2:] = np.nan
    start = RBM.create(5, 2, key, label_states=3, scale=0.5)
    optimiser = optax.adam(optax.cosine_decay_schedule(0.05, 300))
    result = fit(start, objective, optimiser, Batches(seen, 20), key, steps=300)

    def loss(model):
        return support.negative_log_likelihood(support.truth(model, support.parameters(model)), v)

    assert loss(start) > 2.3
    assert loss(result.model) < 1.25  # the entropy of the data is 1.04


def test_one_trace_whatever_the_chunks():
    objective = Distance()
    result = run(objective, steps=23, log_every=5, validate=lambda m, k: 0.0, validate_every=7)
    assert objective.traces == 1
    assert [row["step"] for row in result.history] == [5, 7, 10, 14, 15, 20, 21, 23]


def test_a_weakly_typed_or_numpy_model_is_trained_and_traced_once():
    for value in (np.ones(2, np.float32), jnp.asarray(1.0) * jnp.ones(2)):
        objective = Distance()
        result = run(objective, model=Mean(value), log_every=5)
        assert objective.traces == 1
        assert (np.asarray(result.model.value) != 1).all()


def test_chunks_do_not_change_the_steps():
    whole, pieces = run(log_every=100), run(log_every=3)
    assert eqx.tree_equal(whole.model, pieces.model)
    assert (whole.step, float(whole.carry)) == (25, 25.0)
    np.testing.assert_allclose(
        whole.history[0]["surrogate"],
        np.average([r["surrogate"] for r in pieces.history], weights=[3] * 8 + [1]),
        rtol=1e-5,
    )


def counted(monkeypatch) -> list[int]:
    """From here on full chunks are compiled for their number of steps, as on a GPU."""
    seen = []

    def known(rows, steps):
        seen.append(steps)
        return steps if steps == rows else None

    monkeypatch.setattr(importlib.import_module("undirected.learning.train_step"), "_known", known)
    return seen


def test_a_known_number_of_steps_makes_the_same_ones(monkeypatch):
    plain, objective = run(steps=23, log_every=5), Distance()
    seen = counted(monkeypatch)
    result = run(objective, steps=23, log_every=5)
    assert eqx.tree_equal(result.model, plain.model)
    assert result.history == plain.history
    assert seen == [5, 5, 5, 5, 3]


def test_steps_are_those_of_plain_gradient_descent():
    batches = Batches(points(), 4, seed=5)
    result = run(optimiser=optax.sgd(0.5), batches=batches, steps=7)
    value = np.ones(2)
    for index in batches.indices(0, 7):
        value -= 0.5 * (value - points()[index].mean(0))
    np.testing.assert_allclose(result.model.value, value, rtol=1e-5)


def test_transform_is_fresh_at_every_step():
    def binarise(batch, key):
        return jax.random.bernoulli(key, jnp.full(batch.shape, 0.3)).astype(jnp.float32)

    batches = Batches(points(1), 1, transform=binarise)
    result = run(batches=batches, optimiser=optax.sgd(0.01), steps=2000)
    np.testing.assert_allclose(result.model.value, 0.3, atol=0.15)
    steady = Batches(points(1), 1, transform=lambda b, k: binarise(b, jax.random.key(0)))
    stuck = run(batches=steady, optimiser=optax.sgd(0.01), steps=2000)
    assert np.abs(stuck.model.value - 0.3).max() > 0.25


def test_metrics_go_to_the_history_the_log_and_the_listener(tmp_path):
    log, events = MetricsLog(tmp_path / "metrics.jsonl"), []
    result = run(log=log, on_event=events.append, log_every=10)
    assert read(log.path) == result.history
    assert set(result.history[0]) == {"step", "epoch", "surrogate", "worst"}
    assert result.history[-1]["epoch"] == 25 * 4 / 10
    assert [(e.step, e.total) for e in events] == [(0, 25), (10, 25), (20, 25), (25, 25)]
    assert events[0].metrics == {}
    assert events[-1].metrics == result.history[-1]
    assert events[-1].rate > 0


def test_the_objective_may_name_its_value(key):
    batches = Batches(oracle.binary_states(3), 8)
    result = fit(Ising.create(3), PseudoLikelihood(), optax.sgd(0.1), batches, key, epochs=2)
    assert result.step == 2
    loss = result.history[0]["negative_log_pseudo_likelihood"]
    np.testing.assert_allclose(loss, 3 * np.log(2), rtol=1e-5)
    assert "surrogate" not in result.history[0]


def test_only_trainable_parameters_move(key):
    model = support.models()["rbm"]
    fixed = eqx.tree_at(lambda m: m.weights, jax.tree.map(lambda _: False, model), True)
    batches = Batches(support.data(model), 3)
    result = fit(model, PseudoLikelihood(), optax.sgd(1.0), batches, key, steps=3, trainable=fixed)
    assert (result.model.weights != model.weights).all()
    np.testing.assert_array_equal(result.model.visible_bias, model.visible_bias)
    nothing = jax.tree.map(lambda _: False, model)
    with pytest.raises(UndirectedError, match="no parameter of RBM is trainable"):
        fit(model, PseudoLikelihood(), optax.sgd(1.0), batches, key, steps=1, trainable=nothing)
    words: Any = "weights"
    with pytest.raises(UndirectedError, match="trainable is 'weights'; pass a function"):
        fit(model, PseudoLikelihood(), optax.sgd(1.0), batches, key, steps=1, trainable=words)


@pytest.mark.parametrize("mode", ["max", "min"])
def test_patience_keeps_the_best_model(mode):
    values = {5: 1.0, 10: 3.0, 15: 2.0, 20: float("nan"), 25: 3.0, 30: 9.0}
    models = {}

    def validate(model, key):
        step = 5 * len(models) + 5
        models[step] = model
        return values[step] if mode == "max" else -values[step]

    result = run(steps=30, validate=validate, validate_every=5, mode=mode, patience=3)
    assert (result.stopped, result.step, result.best_step) == ("patience", 25, 10)
    assert abs(result.best or 0) == 3.0
    assert eqx.tree_equal(result.best_model, models[10])
    assert eqx.tree_equal(result.model, models[25])
    assert [row["step"] for row in result.history if "validation" in row] == [5, 10, 15, 20, 25]


def test_validation_happens_every_epoch_and_at_the_end_with_its_own_keys():
    keys = []
    result = run(steps=7, validate=lambda m, k: keys.append(k) or 0.0)
    assert [row["step"] for row in result.history] == [3, 6, 7]
    assert len({tuple(np.asarray(jax.random.key_data(k))) for k in keys}) == 3


def test_without_validation_the_best_model_is_the_last():
    result = run()
    assert result.best_model is result.model
    assert (result.best, result.best_step) == (None, None)


class Trap(Distance):
    """Blows up at step 8: in the loss, in the gradient alone, or in the carry alone."""

    def __init__(self, what: str):
        super().__init__()
        self.what = what

    def __call__(self, model, batch, carry, key):
        loss, (count, info) = super().__call__(model, batch, carry, key)
        now = carry == 7
        if self.what == "loss":
            loss = jnp.where(now, jnp.inf, loss)
        if self.what == "gradient":
            gap = jnp.sum((model.value - jax.lax.stop_gradient(model.value)) ** 2)
            loss = loss + jnp.sqrt(jnp.where(now, gap, 1.0))
        if self.what == "carry":
            count = jnp.where(now, jnp.inf, count)
        return loss, (count, info)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("loss", "fit: loss became"),
        ("gradient", "fit: gradient of value"),
        ("carry", "fit: carried"),
    ],
)
def test_divergence_keeps_the_last_good_step(what, message):
    with pytest.raises(
        NotFinite, match=f"{message}.* at step 8 of 25.*Lower the learning rate"
    ) as e:
        run(Trap(what), log_every=5)
    assert isinstance(e.value, Diverged)
    assert "missing entries" not in str(e.value)
    result, clean = e.value.result, run(Trap(what), steps=7, log_every=5)
    assert (result.stopped, result.step) == ("not finite", 7)
    assert eqx.tree_equal(result.model, clean.model)
    assert result.history == clean.history


def test_divergence_in_a_known_number_of_steps_is_found_too(monkeypatch):
    counted(monkeypatch)
    with pytest.raises(Diverged, match="at step 8 of 25") as error:
        run(Trap("loss"), log_every=5)
    assert error.value.result.step == 7


def test_overflow_of_the_parameters_is_named():
    with pytest.raises(Diverged, match="new value became") as error:
        run(optimiser=optax.sgd(3e38), model=Mean(jnp.full(2, 1e3)))
    assert error.value.result.step == 0
    assert error.value.result.history == []


def test_missing_entries_are_named_where_an_objective_cannot_take_them(key):
    model = support.models()["rbm"]
    batches = Batches(support.data(model, missing=True), 6)
    with pytest.raises(Diverged, match="gradient of weights.*missing entries"):
        fit(model, PseudoLikelihood(), optax.sgd(0.1), batches, key, steps=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": None}, "steps is None and epochs None"),
        ({"epochs": 2}, "steps is 25 and epochs 2"),
        ({"steps": -1}, "steps is -1; pass a whole number from 0"),
        ({"steps": 2.5}, "steps is 2.5"),
        ({"steps": None, "epochs": float("nan")}, "epochs is nan; pass a number of passes"),
        ({"steps": None, "epochs": "two"}, "epochs is 'two'"),
        ({"log_every": 1.5}, "log_every is 1.5"),
        ({"validate": 3}, r"validate is 3; pass a function of \(model, key\)"),
        ({"validate": lambda m, k: np.zeros(2)}, "validate gave array.*one number"),
        ({"store": "folder"}, "store is 'folder'; pass one such as undirected.io.checkpoint"),
        ({"log_every": 0}, "log_every is 0"),
        ({"patience": 2}, "pass validate="),
        ({"validate": lambda m, k: 0.0, "patience": 0}, "patience is 0"),
        ({"mode": "best"}, "'best'"),
        ({"batches": points()}, r"batches is a ndarray; pass Batches\(data, size\)"),
    ],
)
def test_bad_settings_are_refused(options, message):
    with pytest.raises(UndirectedError, match=message):
        run(**options)


def test_values_that_no_unit_takes_are_refused(key):
    """Spins and grey levels; what a transform makes of them counts, and real units take them."""
    rng = np.random.default_rng(0)
    binary = rng.integers(0, 2, (20, 6))
    spins, levels = 2.0 * binary - 1, (16 * binary).astype(np.uint8)

    def learn(model, objective, batches):
        return fit(model, objective, optax.sgd(0.1), batches, key, steps=1)

    ising, rbm = Ising.create(6), RBM.create(6, 2, key)
    with pytest.raises(UndirectedError, match=r"value -1 in block 'visible', which is binary"):
        learn(ising, PseudoLikelihood(), Batches(spins, 5))
    with pytest.raises(UndirectedError, match=r"value 16 .*x / largest"):
        learn(rbm, ContrastiveDivergence(BlockGibbs()), Batches(levels, 5))
    with pytest.raises(UndirectedError, match=r"value -1"):
        learn(ising, PseudoLikelihood(), Batches(binary, 5, transform=lambda x, _: 2 * x - 1))
    learn(ising, PseudoLikelihood(), Batches(spins, 5, transform=lambda x, _: 0.5 * (x + 1)))
    holes = np.where(rng.random(binary.shape) < 0.2, np.nan, binary / 2)
    learn(rbm, ContrastiveDivergence(BlockGibbs()), Batches(holes, 5))
    real = GaussianRBM.create(6, 2, key)
    learn(real, ContrastiveDivergence(GaussianGibbs()), Batches(spins, 5))


def test_no_steps_return_the_model():
    result = run(steps=0)
    assert (result.step, result.history, result.stopped) == (0, [], "steps")
    np.testing.assert_array_equal(result.model.value, 1.0)
