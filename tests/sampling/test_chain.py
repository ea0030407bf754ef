"""The chain driver: schedule, streamed moments, diagnostics, observers, starts, retracing."""

import warnings
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import oracle
from tests.sampling import cases
from undirected import factors
from undirected.core import graph
from undirected.core.diagnostics import ess, rhat
from undirected.core.errors import NotFinite, UndirectedError, UnsupportedFactor
from undirected.core.layout import Block, Domain, Layout
from undirected.factors import Edges
from undirected.inference import Exact
from undirected.models import RBM, FactorGraph, Ising, Potts, discrete, tempered
from undirected.sampling import (
    BlockGibbs,
    DiscreteLangevin,
    Energies,
    Gibbs,
    GibbsWithGradients,
    HammingBall,
    Mean,
    Moments,
    ParallelTempering,
    PathAuxiliary,
    States,
    SwendsenWang,
    Trace,
    Wolff,
    init_state,
    run_chains,
)


class Count(eqx.Module):
    """A model of one real unit."""

    scale: jnp.ndarray = eqx.field(default_factory=lambda: jnp.ones(()))

    @property
    def layout(self) -> Layout:
        return Layout((Block("count", 0, 1, Domain.REAL),))

    def energy(self, x):
        return jnp.zeros(x.shape[:-1])


class Counted(eqx.Module):
    x: jnp.ndarray
    steps: jnp.ndarray


@dataclass(frozen=True)
class Counting:
    """A kernel that counts: x = height + its number of steps, modulo `period`."""

    period: int = 10**6
    height: float = 0.0

    def init(self, model, x, key):
        return Counted(x, jnp.zeros((), jnp.int32))

    def step(self, model, state, free, key):
        steps = state.steps + 1
        x = jnp.full_like(state.x, self.height) + (steps % self.period).astype(state.x.dtype)
        return Counted(x, steps), {"steps": steps}


def rbm() -> RBM:
    return cases.make("rbm").model


# Schedule.


def test_burn_in_and_thinning_count_kernel_steps(key):
    result = run_chains(Counting(), Count(), jnp.zeros((2, 1)), key, samples=4, burn_in=5, thin=3)
    np.testing.assert_array_equal(result.x[:, 0, 0], [8, 11, 14, 17])
    np.testing.assert_array_equal(result.x[:, 1, 0], [8, 11, 14, 17])
    assert int(result.state.steps) == 17
    assert float(result.info["steps"]) == np.mean(np.arange(6, 18))


def test_a_result_can_be_continued(key):
    first = run_chains(Counting(), Count(), jnp.zeros((1, 1)), key, samples=3)
    more = run_chains(Counting(), Count(), first.state, key, samples=2)
    np.testing.assert_array_equal(more.x[:, 0, 0], [4, 5])


def test_same_key_same_chains_bit_for_bit(key):
    runs = [
        run_chains(BlockGibbs(), rbm(), None, k, chains=5, samples=30, burn_in=3, thin=2)
        for k in (key, key, jax.random.key(1))
    ]
    np.testing.assert_array_equal(runs[0].x, runs[1].x)
    np.testing.assert_array_equal(runs[0].mean, runs[1].mean)
    assert (runs[0].x != runs[2].x).any()


def test_storing_nothing_gives_the_same_summary(key):
    kept, streamed = (
        run_chains(BlockGibbs(), rbm(), None, key, chains=3, samples=50, keep=keep)
        for keep in (True, False)
    )
    assert streamed.x is None
    np.testing.assert_allclose(streamed.mean, kept.x.mean((0, 1)), atol=1e-6)
    np.testing.assert_array_equal(streamed.state.x, kept.x[-1])


# Summaries against NumPy on the stored draws.


def error_of(x: np.ndarray) -> np.ndarray:
    """Standard error of the mean of draws (draws, chains, n) by batches or by chains."""
    batches = np.array_split(x, min(20, int(np.sqrt(len(x)))))
    both = np.concatenate([batch.mean(0) for batch in batches]), x.mean(0)
    return np.max([means.std(0, ddof=1) / np.sqrt(len(means)) for means in both], 0)


@pytest.mark.parametrize("samples", [4, 11, 437])
def test_streamed_summaries_equal_those_of_the_stored_draws(x64, key, samples):
    result = run_chains(
        BlockGibbs(), rbm(), None, key, chains=7, samples=samples, burn_in=2, moments=True
    )
    x = np.asarray(result.x)
    np.testing.assert_allclose(result.mean, x.mean((0, 1)), atol=1e-12)
    np.testing.assert_allclose(result.variance, x.var((0, 1)), atol=1e-12)
    np.testing.assert_allclose(result.chain_means, x.mean(0), atol=1e-12)
    np.testing.assert_allclose(result.error, error_of(x), rtol=1e-9)
    products = np.einsum("tci,tcj->ij", x[..., :3], x[..., 3:]) / (samples * 7)
    np.testing.assert_allclose(result.beliefs.factors[0].weight, products, atol=1e-12)
    np.testing.assert_allclose(result.beliefs.unary, result.mean, atol=0)
    assert int(result.beliefs.iterations) == samples


@pytest.mark.parametrize("name", ["dense", "cycle of three colours"])
def test_moments_of_pairwise_groups(x64, key, name):
    model = cases.make(name).model
    result = run_chains(Gibbs(), model, None, key, chains=4, samples=20, moments=True)
    x = np.asarray(result.x).reshape(-1, 5)
    products = x.T @ x / len(x)
    if model.graph is None:
        wanted = products * (1 - np.eye(5))
    else:
        wanted = products[tuple(np.asarray(model.graph.edges).T)]
    np.testing.assert_allclose(result.beliefs.factors[0].weight, wanted, atol=1e-12)


@pytest.mark.slow
def test_moments_of_a_long_run_match_the_truth(key):
    case = cases.make("labelled rbm")
    result = run_chains(
        BlockGibbs(), case.model, None, key, chains=100, samples=2000, keep=False, moments=True
    )
    z = (np.asarray(result.mean) - case.truth.means) / np.asarray(result.error)
    assert np.abs(z).max() < 5
    assert float(result.error.max()) < 3e-3
    wanted = case.truth.moments
    for factor, rows in zip(result.beliefs.factors, (slice(0, 2), slice(2, 5)), strict=True):
        np.testing.assert_allclose(factor.weight, wanted[rows, 5:], atol=0.01)
    assert bool(result.beliefs.converged)


def test_single_precision_over_a_million_draws(key):
    """x = 1000 + (0, 1, 2, 0, ...): mean 1001, variance 2/3. Plain float32 sums lose both."""
    draws = 999_999
    kernel = Counting(period=3, height=1000.0)
    result = run_chains(kernel, Count(), jnp.zeros((1, 1)), key, samples=draws, keep=False)
    assert result.mean.dtype == jnp.float32
    np.testing.assert_allclose(result.mean, 1001.0, atol=1e-3)
    np.testing.assert_allclose(result.variance, 2 / 3, rtol=1e-3)
    series = (1000 + np.arange(1, draws + 1) % 3).astype(np.float32)
    plain = np.cumsum(series, dtype=np.float32)[-1] / np.float32(draws)
    plain_square = np.cumsum(series**2, dtype=np.float32)[-1] / np.float32(draws)
    assert abs(plain - 1001) > 1
    assert abs(plain_square - plain**2 - 2 / 3) > 1


# Diagnostics.


@pytest.mark.slow
def test_error_and_effective_size_of_a_known_chain(key):
    """Two coupled units: the exact asymptotic variance comes from the transition matrix."""
    model = Ising.from_spins(jnp.array([[0.0, 1.0], [1.0, 0.0]]), jnp.zeros(2))
    result = run_chains(Gibbs(), model, None, key, chains=50, samples=4000, burn_in=50)
    truth = oracle.spins([[0.0, 1.0], [1.0, 0.0]], [0.0, 0.0])
    matrix = np.zeros((4, 4))
    stick = 1 / (1 + np.exp(-2.0))
    for i, x in enumerate(truth.states):
        for j, y in enumerate(truth.states):
            first = stick if y[0] == x[1] else 1 - stick
            matrix[i, j] = first * (stick if y[1] == y[0] else 1 - stick)
    f = truth.states[:, 1] - 0.5
    pi = truth.probabilities
    solved = np.linalg.solve(np.eye(4) - matrix + pi[None], f)
    asymptotic = 2 * (pi * f) @ solved - pi @ f**2
    wanted = 4000 * 50 * (pi @ f**2) / asymptotic
    assert wanted < 0.4 * 4000 * 50
    np.testing.assert_allclose(result.ess[1], wanted, rtol=0.1)
    np.testing.assert_allclose(result.error[1], np.sqrt(asymptotic / (4000 * 50)), rtol=0.1)


def test_chains_have_the_diagnostics_of_arviz(key):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arviz = pytest.importorskip("arviz")
    result = run_chains(BlockGibbs(), rbm(), None, key, chains=7, samples=60, burn_in=2)
    for unit in range(5):
        x = np.asarray(result.x[:, :, unit], np.float64).T
        assert result.rhat[unit] == pytest.approx(float(arviz.rhat(x)), rel=1e-6)
        assert result.ess[unit] == pytest.approx(float(arviz.ess(x, method="bulk")), rel=1e-6)
    np.testing.assert_array_equal(rhat(result), result.rhat)
    np.testing.assert_array_equal(rhat(result.x), result.rhat)
    np.testing.assert_array_equal(ess(result), result.ess)


def test_independent_draws_are_worth_what_they_are(key):
    model = RBM(jnp.zeros((3, 2)), jnp.zeros(3), jnp.zeros(2))
    result = run_chains(BlockGibbs(), model, None, key, chains=50, samples=400)
    np.testing.assert_allclose(result.ess, 50 * 400, rtol=0.25)
    np.testing.assert_allclose(result.error, 0.5 / np.sqrt(50 * 400), rtol=0.15)
    np.testing.assert_allclose(result.rhat, 1.0, atol=2e-3)


def test_errors_of_chains_that_remember_cover_the_truth():
    """Of 160 intervals of two errors 153 should, and 152 do; by batches alone 91."""
    couplings, fields = jnp.full(3, 2.0), jnp.array([0.1, 0.0, 0.0, 0.2])
    model = Ising.from_spins(couplings, fields, graph.chain(4))
    truth, hit = np.asarray(Exact()(model).unary), 0
    for seed in range(40):
        found = run_chains(
            Gibbs(), model, None, jax.random.key(seed), chains=30, samples=50, burn_in=500
        )
        hit += (np.abs(np.asarray(found.mean) - truth) < 2 * np.asarray(found.error)).sum()
    assert hit >= 142  # units of a seed go together: 11 below, some 2.5 standard deviations


def test_chains_that_disagree_are_reported(key):
    model = Ising.from_spins(4 * (1 - jnp.eye(6)), jnp.zeros(6))
    start = jnp.repeat(jnp.array([0.0, 1.0]), 5)[:, None] * jnp.ones((1, 6))
    result = run_chains(Gibbs(), model, start, key, samples=100, moments=True)
    assert (np.asarray(result.rhat) > 2).all()
    assert not bool(result.beliefs.converged)


def test_what_never_moves_has_no_diagnostics(key):
    start = jnp.zeros((4, 5))
    free = jnp.ones(5, bool).at[0].set(False)
    result = run_chains(BlockGibbs(), rbm(), start, key, samples=100, free=free, moments=True)
    assert np.isnan(result.rhat[0])
    assert np.isnan(result.ess[0])
    assert float(result.error[0]) == 0.0
    assert np.isfinite(result.rhat[1:]).all()
    assert bool(result.beliefs.converged)


def test_one_draw_of_one_chain(key):
    result = run_chains(BlockGibbs(), rbm(), None, key, chains=1, samples=1, moments=True)
    np.testing.assert_array_equal(result.mean, result.x[0, 0])
    assert np.isnan(result.error).all()
    assert not bool(result.beliefs.converged)
    for name in ("rhat", "ess"):
        with pytest.raises(UndirectedError, match="at least 4 are needed"):
            getattr(result, name)


def test_without_states_there_is_no_rhat_and_no_ess(key):
    result = run_chains(BlockGibbs(), rbm(), None, key, chains=3, samples=50, keep=False)
    for name in ("rhat", "ess"):
        with pytest.raises(UndirectedError, match="kept no states; pass observe=States"):
            getattr(result, name)


# Observers.


def magnetisation(x):
    return 2 * x[:3].sum() - 3


def both(x):
    return {"pairs": jnp.outer(x[:3], x[3:]), "any": x.any()}


def test_observers_equal_sums_over_the_stored_draws(x64, key):
    observe = (States(), Energies(), Trace(both), Mean(magnetisation), Mean(both, name="averaged"))
    result = run_chains(
        BlockGibbs(), rbm(), None, key, chains=4, samples=30, burn_in=2, thin=2, observe=observe
    )
    assert set(result.observed) == {"states", "energies", "both", "magnetisation", "averaged"}
    x = np.asarray(result.x)
    model = rbm()
    w, b, c = (np.asarray(a) for a in (model.weights, model.visible_bias, model.hidden_bias))
    v, h = x[..., :3], x[..., 3:]
    energy = -np.einsum("tci,ij,tcj->tc", v, w, h) - v @ b - h @ c
    np.testing.assert_allclose(result.observed["energies"], energy, atol=1e-12)
    pairs = v[..., :, None] * h[..., None, :]
    np.testing.assert_array_equal(result.observed["both"]["pairs"], pairs)
    np.testing.assert_array_equal(result.observed["both"]["any"], x.any(-1))
    wanted = (2 * v.sum(-1) - 3).mean(0)
    np.testing.assert_allclose(result.observed["magnetisation"], wanted, atol=1e-12)
    averaged = result.observed["averaged"]
    np.testing.assert_allclose(averaged["pairs"], pairs.mean(0), atol=1e-12)
    np.testing.assert_allclose(averaged["any"], x.any(-1).mean(0), atol=1e-12)
    assert rhat(result.observed["energies"]) < 1.2


def test_observers_do_not_change_the_chains(key):
    plain, observed, nothing = (
        run_chains(BlockGibbs(), rbm(), None, key, chains=3, samples=50, observe=observe)
        for observe in (None, (Energies(), States(every=7)), ())
    )
    np.testing.assert_array_equal(observed.x, plain.x[6::7])
    assert observed.x.shape[0] == 7
    np.testing.assert_array_equal(observed.mean, plain.mean)
    np.testing.assert_array_equal(nothing.mean, plain.mean)
    assert nothing.observed == {}
    assert nothing.x is None
    assert nothing.beliefs is None


def test_a_mean_in_single_precision_over_a_million_draws(key):
    result = run_chains(
        Counting(period=3, height=1000.0),
        Count(),
        jnp.zeros((1, 1)),
        key,
        samples=999_999,
        observe=Mean(jnp.sum),
    )
    np.testing.assert_allclose(result.observed["sum"], [1001.0], atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("group", ["count", "shared count", "or", "tables", "edges"])
def test_moments_are_beliefs_as_inference_gives_them(x64, key, group):
    """The same tree as `Exact` answers with, and the averages of the statistics of all draws."""
    layout = discrete(units=4)
    members = np.array([[0, 1, 2], [1, 2, 3]])
    table = np.arange(8.0).reshape(2, 4) / 8
    made = {
        "count": lambda: factors.count(layout, members, table),
        "shared count": lambda: factors.count(layout, members, table[0]),
        "or": lambda: factors.logical_or(layout, members[:, :2], members[:, 2]),
        "tables": lambda: factors.tables(layout, members, np.arange(16.0).reshape(2, 2, 2, 2) / 9),
        "edges": lambda: Edges(jnp.array([0.5, -1.0]), graph.from_edges(4, [(0, 1), (2, 3)])),
    }
    model = FactorGraph.create(layout, [made[group]()])
    result = run_chains(
        GibbsWithGradients(4), model, jnp.zeros(4), key, chains=3, samples=20, moments=True
    )
    found, wanted = result.beliefs, Exact()(model.lower())
    assert jax.tree.structure(found.factors) == jax.tree.structure(wanted.factors)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert a.shape == b.shape
    x = np.asarray(result.x).reshape(-1, 4).astype(int)
    counts = np.stack([np.bincount(c, minlength=4) for c in x[:, members].sum(-1).T]) / len(x)
    mean = np.asarray(found.factors[0].weight)
    if group == "count":
        np.testing.assert_allclose(mean, counts, atol=1e-12)
        assert float(found.factors[0].excess) == 0
    if group == "shared count":
        np.testing.assert_allclose(mean, counts.sum(0), atol=1e-12)
    if group == "or":
        np.testing.assert_allclose(mean, 0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("observe", "message"),
    [
        (States(every=0), "'states' are to be kept every 0 draws of 3"),
        (States(every=4), "every= between 1 and 3"),
        ("states", "observe holds a str"),
        ((Mean(both), Trace(both)), "two observers are called 'both'"),
        (Mean(lambda x: x), "called '<lambda>'; give it a name of its own, as in Mean"),
        (Trace(both, name="states"), "called 'states'; give it a name"),
    ],
)
def test_bad_observers_are_refused(key, observe, message):
    with pytest.raises(UndirectedError, match=message):
        run_chains(BlockGibbs(), rbm(), None, key, chains=2, samples=3, observe=observe)


@pytest.mark.parametrize("short", [{"keep": False}, {"moments": True}])
def test_observers_and_their_shorthands_do_not_mix(key, short):
    with pytest.raises(UndirectedError, match="`observe` alone says what is kept"):
        run_chains(BlockGibbs(), rbm(), None, key, chains=1, samples=3, observe=States(), **short)


# Starts and clamping.


def test_clamped_chains_estimate_the_conditional(key):
    case = cases.make("odd torus")
    clamped = np.zeros(9, bool)
    clamped[[0, 4]] = True
    evidence = np.zeros(9)
    evidence[4] = 1.0
    result = run_chains(
        Gibbs(), case.model, evidence, key, chains=200, samples=400, burn_in=20, free=~clamped
    )
    given = case.truth.given(clamped, evidence)
    assert (np.asarray(result.x)[..., clamped] == evidence[clamped]).all()
    error = np.asarray(result.error)[~clamped]
    z = (np.asarray(result.mean) - given.means)[~clamped] / error
    assert np.abs(z).max() < 5
    unclamped = np.abs((case.truth.means - given.means)[~clamped] / error)
    assert unclamped.max() > 20


def test_random_starts_are_uniform_over_each_domain(key):
    x = np.asarray(init_state(cases.make("labelled rbm").model, (30, 1000), key))
    assert x.shape == (30, 1000, 7)
    np.testing.assert_array_equal(x[..., 2:5].sum(-1), 1.0)
    means = x.mean((0, 1))
    wanted = np.array([0.5, 0.5, 1 / 3, 1 / 3, 1 / 3, 0.5, 0.5])
    assert (np.abs(means - wanted) < 5 * np.sqrt(wanted * (1 - wanted) / 30_000)).all()
    assert init_state(Count(), (3,), key).shape == (3, 1)


def test_start_keeps_the_precision_of_the_model(x64, key):
    model = jax.tree.map(lambda a: a.astype(jnp.float32), rbm())
    assert init_state(model, (2,), key).dtype == jnp.float32
    result = run_chains(BlockGibbs(), model, None, key, chains=2, samples=4)
    assert result.mean.dtype == jnp.float32
    assert run_chains(BlockGibbs(), rbm(), None, key, chains=2, samples=4).mean.dtype == jnp.float64


def test_one_state_starts_all_chains(key):
    free = jnp.zeros(5, bool)
    state = jnp.array([1.0, 0, 1, 0, 1])
    result = run_chains(BlockGibbs(), rbm(), state, key, chains=3, samples=1, free=free)
    np.testing.assert_array_equal(result.x, jnp.tile(state, (1, 3, 1)))


# Compilation.


class Traced(RBM):
    """An RBM that counts how often its conditionals are traced."""

    traces = []  # noqa: RUF012

    def conditional(self, block, x):
        self.traces.append(block)
        return super().conditional(block, x)


class Scaled(eqx.Module):
    """A function with a number of its own."""

    scale: jnp.ndarray
    __name__ = "scaled"

    def __call__(self, x):
        return self.scale * x.sum()


def test_new_weights_starts_masks_keys_and_observers_do_not_recompile(key):
    def run(seed):
        rng = np.random.default_rng(seed)
        model = Traced(*(jnp.asarray(rng.normal(size=s)) for s in ((3, 2), (3,), (2,))))
        start = jnp.asarray(rng.integers(2, size=(4, 5)), float)
        free = jnp.asarray(rng.random(5) < 0.7)
        observe = States(), Energies(), Moments(), Mean(Scaled(jnp.asarray(rng.normal())))
        return run_chains(
            BlockGibbs(),
            model,
            start,
            jax.random.key(seed),
            samples=5,
            free=free,
            observe=observe,
        )

    run(0)
    once = len(Traced.traces)
    assert once > 0
    run(1)
    run(2)
    assert len(Traced.traces) == once


def test_new_wiring_of_the_same_shape_does_not_recompile(key):
    wirings = [[(0, 1), (1, 2), (2, 3)], [(0, 2), (2, 1), (1, 3)]]
    graphs = [graph.from_edges(4, edges) for edges in wirings]
    traces = []

    @dataclass(frozen=True)
    class Tracing(Gibbs):
        def step(self, model, state, free, key):
            traces.append(1)
            return super().step(model, state, free, key)

    kernel = Tracing()
    run_chains(kernel, Ising.create(graphs[0]), None, key, chains=2, samples=4)
    once = len(traces)
    run_chains(kernel, Ising.create(graphs[1]), None, key, chains=2, samples=4)
    assert len(traces) == once


# Errors.


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": 0}, "samples is 0; pass a whole number from 1"),
        ({"burn_in": -1}, "burn_in is -1; pass a whole number from 0"),
        ({"thin": 0}, "thin is 0; pass a whole number from 1"),
        ({"samples": 1.5}, "samples is 1.5; pass a whole number from 1"),
        ({"burn_in": 2.0}, "burn_in is 2.0; pass a whole number from 0"),
        ({"thin": "two"}, "thin is 'two'; pass a whole number from 1"),
        ({"chains": 0}, "chains is 0; pass a whole number from 1"),
        ({"chains": -1}, "chains is -1; pass a whole number from 1"),
        ({"chains": 2.0}, "chains is 2.0; pass a whole number from 1"),
        ({"chains": None}, "needs `chains`"),
        ({"free": np.ones(5, bool)}, "no `free` mask"),
        ({"start": np.zeros((2, 5)), "chains": 3}, r"shape \(2, 5\) and chains is 3"),
        ({"start": np.zeros((2, 3, 5)), "chains": None}, r"pass an array \(chains, 5\)"),
        ({"start": np.zeros((2, 4)), "chains": None}, "5 units"),
    ],
)
def test_bad_arguments_say_what_to_do(key, change, message):
    arguments = {"start": None, "chains": 2, "samples": 3} | change
    with pytest.raises(UndirectedError, match=message):
        run_chains(BlockGibbs(), rbm(), key=key, **arguments)


@pytest.mark.parametrize(
    ("kernel", "model", "message"),
    [
        ("gibbs", Ising.create(2), r"kernel is 'gibbs'; pass one such as un.Gibbs\(\)"),
        (Gibbs, Ising.create(2), "kernel is <class .*pass one such as"),
        (BlockGibbs(), RBM, "the model is <class .*pass a model of units"),
        (BlockGibbs(), 3, "the model is 3; pass a model of units"),
    ],
    ids=["text", "class", "class of models", "number"],
)
def test_what_is_no_kernel_or_no_model_is_refused(key, kernel, model, message):
    with pytest.raises(UndirectedError, match=message):
        run_chains(kernel, model, key=key, chains=2, samples=3)


@pytest.mark.parametrize(
    "kernel",
    [
        SwendsenWang(),
        Wolff(),
        PathAuxiliary(2),
        DiscreteLangevin(),
        HammingBall(),
        GibbsWithGradients(),
        ParallelTempering(GibbsWithGradients(), tempered, (1.0, 0.0)),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
def test_a_start_that_is_no_state_is_refused(key, kernel):
    """Such chains stayed at what no model has, and gave it as draws."""
    binary, three = Ising.create(2), Potts.create(2, 3)
    for x in ([0.5, 1.0], [7.0, 0.0], [np.nan, 0.0]):
        with pytest.raises(UndirectedError, match="block 'visible' is no state; pass numbers 0"):
            run_chains(kernel, binary, np.array(x), key, samples=3)
    for x in (np.zeros(6), np.ones(6), np.array([0.5, 0.5, 0, 1, 0, 0])):
        with pytest.raises(UndirectedError, match="no state; pass one 1 in every 3 units"):
            run_chains(kernel, three, x, key, samples=3)


def test_chains_go_on_from_a_state_of_their_own_kernel_and_model(key):
    """Others ended in an error about trees, and a number of chains was passed over."""
    model, start = Ising.create(3), np.zeros((2, 3))
    short, long = (
        ParallelTempering(Gibbs(), tempered, betas) for betas in ((1.0, 0.0), (1.0, 0.5, 0.0))
    )
    plain, pair = (run_chains(k, model, start, key, samples=1) for k in (Gibbs(), short))
    for kernel, other, state, chains, message in (
        (Gibbs(), model, plain, None, "start is a result; pass its `state`"),
        (Gibbs(), model, plain.state, 5, r"x of shape \(2, 3\), and chains is 5"),
        (Gibbs(), Ising.create(4), plain.state, None, "the model has 4 units"),
        (short, model, plain.state, None, "a ChainState that this ParallelTempering"),
        (long, model, pair.state, None, "a LadderState that this ParallelTempering"),
    ):
        with pytest.raises(UndirectedError, match=message):
            run_chains(kernel, other, state, key, samples=2, chains=chains)


@pytest.mark.parametrize("value", [-1.0, np.nan])
def test_no_unit_is_held_at_what_is_no_state(key, value):
    """A spin of -1 was held as it was, and others felt it turned over."""
    start = np.array([value, 0.0, 1.0])
    with pytest.raises(UndirectedError, match=f"holds unit 0 at {value:g}; .*spins"):
        run_chains(Gibbs(), Ising.create(3), start, key, samples=1, free=[False, True, True])


def test_moments_need_potentials(key):
    with pytest.raises(UnsupportedFactor, match="got Count; leave moments out"):
        run_chains(Counting(), Count(), None, key, chains=1, samples=1, moments=True)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_parameters_that_are_not_finite_are_refused(value):
    """Chains of a model that had diverged gave zeros."""
    model = eqx.tree_at(lambda m: m.bias, Ising.create(3), jnp.array([0.0, value, 0.0]))
    with pytest.raises(NotFinite, match="run_chains: bias of the Ising"):
        run_chains(Gibbs(), model, chains=2, samples=2, seed=0)


def test_numbers_of_numpy_count_chains_and_draws(key):
    two, three = np.int64(2), np.int32(3)
    found, wanted = (
        run_chains(BlockGibbs(), rbm(), None, key, chains=a, samples=b, thin=a, burn_in=b)
        for a, b in ((two, three), (2, 3))
    )
    np.testing.assert_array_equal(found.x, wanted.x)
