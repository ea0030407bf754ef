"""Stochastic approximation: when jumps come, resumed runs, MCMC maximum likelihood, schedules."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests import oracle, zoo
from undirected.core.errors import UndirectedError
from undirected.experiments.stages import Context, restore
from undirected.io.checkpoint import Checkpoints
from undirected.learning import Batches, ImportanceSampled, Persistent, fit, hold_then_decay
from undirected.models import RBM, SemiRestrictedBM, tempered
from undirected.ops.hidden_states import log_z_over_hidden, log_z_plain
from undirected.papers.tempered import _common
from undirected.sampling import (
    Alternating,
    BlockGibbs,
    ChainState,
    Gibbs,
    ParallelTempering,
    TemperedTransitions,
    ladder,
)


@dataclass(frozen=True)
class Add:
    """A kernel that adds a number to every unit, and reports it."""

    amount: float

    def init(self, model, x, key):
        return ChainState(x)

    def step(self, model, state, free, key):
        return ChainState(state.x + self.amount), {"moved": jnp.full(len(state.x), self.amount)}


def test_jumps_come_when_they_are_due():
    """Three steps before anything, then a jump after every two."""
    kernel = Alternating(Add(1.0), Add(100.0), every=2, after=3)
    state = kernel.init(None, jnp.zeros((2, 4)), jax.random.key(0))

    def step(state, key):
        state, info = kernel.step(None, state, jnp.ones(4, bool), key)
        return state, (state.x[0, 0], info["jumps"], info["jump_moved"].mean())

    _, (x, jumps, moved) = jax.lax.scan(step, state, jax.random.split(jax.random.key(1), 9))
    assert jumps.tolist() == [0, 0, 0, 0, 0, 1, 0, 1, 0]
    assert x.tolist() == [1, 2, 3, 4, 5, 106, 107, 208, 209]
    assert moved.tolist() == [0, 0, 0, 0, 0, 100, 0, 100, 0]
    with pytest.raises(UndirectedError, match="1 or more steps"):
        Alternating(Add(1.0), Add(1.0), every=0)


def data():
    return (np.random.default_rng(0).random((40, 9)) < 0.4).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["Trans-SAP", "PT-SAP"])
def test_a_resumed_run_gives_the_same_bits(method, tmp_path):
    """Parameters and particles, stopped between two tempered runs and in the falling rate."""
    jump = TemperedTransitions(Gibbs(), tempered, ladder(0.5, 4))
    kernel = {
        "Trans-SAP": Alternating(Gibbs(), jump, every=3, after=4),
        "PT-SAP": ParallelTempering(Gibbs(), tempered, ladder(0.5, 3)),
    }[method]
    start = SemiRestrictedBM.create(9, 3, jax.random.key(0))
    rest = (
        Persistent(kernel, chains=5),
        optax.sgd(hold_then_decay(0.1, 5, 10.0)),
        Batches(data(), 4),
        jax.random.key(1),
    )
    whole = fit(start, *rest, steps=20, log_every=10)
    fit(start, *rest, steps=11, log_every=10, store=Checkpoints(tmp_path))
    parts = fit(start, *rest, steps=20, log_every=10, store=Checkpoints(tmp_path))
    for a, b in zip(
        jax.tree.leaves((whole.model, whole.carry)),
        jax.tree.leaves((parts.model, parts.carry)),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
    moved = jax.tree.leaves(whole.carry)[0]
    assert np.isfinite(moved).all()


@pytest.mark.slow
def test_the_shared_first_part_changes_nothing(tmp_path):
    """Trans-SAP that goes on from SAP's first updates is Trans-SAP learned alone."""
    config = {
        "gibbs": 30,
        "fair": True,
        "chains": 5,
        "tempered": {"betas": 3, "lowest": 0.8, "every": 4, "after": 10},
        "rungs": 2,
        "rate": 0.1,
        "decay": 0.0,
        "hold": 5,
        "offset": 10.0,
        "points": 3,
        "chunk": 5,
    }
    start, batches = RBM.create(9, 3, jax.random.key(0)), Batches(data(), 4)
    context = Context("tempered/test", tmp_path, lambda event: None)
    learning = _common.Learning(start, batches, config, 7, context, lambda model: 0.0)
    found = {name: out for name, _, out in learning.run_all(["SAP", "Trans-SAP"], BlockGibbs())}
    objective, steps = _common.learner("Trans-SAP", config, BlockGibbs())
    assert steps == 10 + 20 * 4 // 8
    schedule = optax.sgd(hold_then_decay(0.1, 5, 10.0))
    alone = fit(start, objective, schedule, batches, jax.random.key(7), steps=steps, log_every=5)
    again = restore(start, found["Trans-SAP"])
    for a, b in zip(jax.tree.leaves(alone.model), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(found["Trans-SAP"]["particles"], alone.carry.x)
    assert (found["SAP"]["leaf0"] != found["Trans-SAP"]["leaf0"]).any()
    assert 0 <= _common.acceptance(found["Trans-SAP"]) <= 1
    assert _common.acceptance(found["SAP"]) is None
    counted = _common.gibbs_updates(found["Trans-SAP"], config, "Trans-SAP")
    assert counted[-1] == steps + 4 * 2  # two tempered runs of two levels, there and back


def test_rates_of_the_paper():
    small, large = hold_then_decay(0.01, 10_000, 1000.0), hold_then_decay(0.05, 50_000, 2000.0)
    for t in (0, 1, 90_000):
        assert float(small(10_000 + t)) == pytest.approx(10 / (1000 + t), rel=1e-6)
        assert float(large(50_000 + t)) == pytest.approx(100 / (2000 + t), rel=1e-6)
    assert float(small(0)) == float(small(9_999)) == pytest.approx(0.01)
    with pytest.raises(UndirectedError, match="offset above 0"):
        hold_then_decay(0.1, 10, 0.0)


def test_importance_sampling_estimates_the_likelihood_ratio(x64):
    """The value from enumerated free energies; near the exact ratio with the proposal's samples."""
    proposal, before = zoo.rbm(0)
    model, _ = zoo.rbm(1)
    close = jax.tree.map(lambda a, b: a + 0.3 * (b - a), proposal, model)
    parts = [np.asarray(leaf) for leaf in jax.tree.leaves(close)]
    near = oracle.rbm(*parts)
    free = [oracle.visible_marginal(truth, 5) for truth in (before, near)]
    rng = np.random.default_rng(2)
    drawn = before.states[rng.choice(256, 20_000, p=before.probabilities), :5]
    rows = near.states[[3, 90, 200], :5]

    def ratio(v):
        """log of the two unnormalised marginals' ratio, row by row."""
        keys = [tuple(row.astype(int)) for row in v]
        return np.array([free[1][k] - free[0][k] for k in keys])

    objective = ImportanceSampled(BlockGibbs(), samples=100)
    carry = jnp.asarray(drawn), proposal.free_energy(jnp.asarray(drawn)), proposal
    value, (_, info) = jax.jit(objective)(close, jnp.asarray(rows), carry, jax.random.key(0))
    weights = np.exp(ratio(drawn))
    np.testing.assert_allclose(value, np.log(weights.mean()) - ratio(rows).mean(), atol=1e-8)
    np.testing.assert_allclose(info["ess"], weights.sum() ** 2 / (weights**2).sum(), rtol=1e-6)
    exact = near.log_z - before.log_z - ratio(rows).mean()
    error = weights.std() / weights.mean() / np.sqrt(len(weights))
    assert abs(float(value) - exact) < 5 * error  # fails once in a million
    assert abs(float(value) - exact + 0.2) > 5 * error

    first = ImportanceSampled(BlockGibbs(), samples=4000, burn_in=30)
    samples, kept, _ = jax.jit(first.init)(proposal, jnp.asarray(rows), jax.random.key(3))
    spread = np.sqrt(before.means * (1 - before.means) / 4000)[:5]
    assert (np.abs(np.asarray(samples).mean(0) - before.means[:5]) < 5 * spread).all()
    np.testing.assert_allclose(kept, proposal.free_energy(samples))


def test_log_z_over_hidden_states(x64):
    """Value and gradient against the oracle, with fields too large for a naive exponential."""
    rng = np.random.default_rng(3)
    parts = 2 * rng.normal(size=(5, 3)), rng.normal(size=5), rng.normal(size=3)
    truth = oracle.rbm(*parts)
    value, slope = jax.value_and_grad(log_z_over_hidden, (0, 1, 2))(*map(jnp.asarray, parts))
    np.testing.assert_allclose(value, truth.log_z, atol=1e-10)
    np.testing.assert_allclose(slope[0], truth.moments[:5, 5:], atol=1e-10)
    np.testing.assert_allclose(jnp.concatenate(slope[1:]), truth.means, atol=1e-10)
    wide = [jnp.asarray(a) for a in (80 * rng.normal(size=(200, 4)), rng.normal(size=200))]
    both = [f(*wide, jnp.zeros(4)) for f in (log_z_over_hidden, log_z_plain)]
    np.testing.assert_allclose(*both, rtol=1e-12)
    with pytest.raises(UndirectedError, match="use AIS"):
        log_z_over_hidden(jnp.zeros((2, 30)), jnp.zeros(2), jnp.zeros(30))


def test_exact_likelihood_is_the_likelihood(x64):
    model, truth = zoo.rbm(4)
    v = truth.states[[5, 60, 130], :5]
    value, _ = _common.ExactLikelihood()(model, jnp.asarray(v), None, jax.random.key(0))
    table = oracle.visible_marginal(truth, 5)
    wanted = np.mean([table[tuple(row.astype(int))] for row in v]) - truth.log_z
    np.testing.assert_allclose(value, -wanted, atol=1e-10)
    assert eqx.filter_grad(lambda m: _common.exact_log_z(m))(model).weights.shape == (5, 3)
