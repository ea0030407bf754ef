"""Gibbs with gradients leaves its model invariant; MPLP and HiGHS agree on the relaxation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import chi2

import undirected as un
from tests import oracle
from undirected.core import graph
from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.numerics import HARD
from undirected.core.potentials import Status, clamp
from undirected.factors import logical_or, pool, tables
from undirected.inference import MPLP, LinearProgram
from undirected.inference.linear_program import minimum_cut
from undirected.models import RBM, FactorGraph, Ising, Potts, discrete
from undirected.sampling import GibbsWithGradients, PerturbAndMap, run_chains
from undirected.sampling.gibbs_with_gradients import log_proposal, place, propose

pytestmark = pytest.mark.usefixtures("x64")


def cases():
    """Small models with all their states."""
    rng = np.random.default_rng(0)

    def normal(*shape):
        return jnp.asarray(1.5 * rng.normal(size=shape))

    layout = discrete(x=2, y=(2, 3))
    scopes = [[0, 2], [1, 3]]
    mixed = FactorGraph.create(
        layout,
        [tables(layout, scopes, normal(2, 2, 3)), tables(layout, [[2, 3]], normal(3, 3))],
        normal(8),
    )
    return {
        "dense": (Ising(normal(4, 4), normal(4)), oracle.binary_states(4)),
        "sparse": (Ising(normal(4), normal(4), graph.grid(2, 2)), oracle.binary_states(4)),
        "label rbm": (
            RBM(normal(5, 2), normal(5), normal(2), 3),
            oracle.grouped_states([1, 1, 3, 1, 1]),
        ),
        "factor graph": (mixed, oracle.grouped_states([1, 1, 3, 3])),
        "potts": (
            Potts(normal(3, 3, 3), normal(3, 3), graph.from_edges(3, [(0, 1), (1, 2), (0, 2)])),
            oracle.grouped_states([3, 3, 3]),
        ),
    }


def transition_matrix(model, states, free, accept=True):
    """Probabilities of every move of one update, from proposals and acceptance ratios."""
    p, x = model.lower(), jnp.asarray(states)
    number = {tuple(s): i for i, s in enumerate(states.astype(int).tolist())}

    @jax.jit
    def moves(x):
        here = place(p, x)
        log_q = log_proposal(p.layout, here, free)
        every = jax.vmap(lambda u: propose(p, here, free, jnp.full(len(x), u)))
        moved, log_ratio = every(jnp.arange(p.layout.n))
        return log_q, moved.x, log_ratio

    log_q, moved, log_ratio = (np.asarray(a) for a in moves(x))
    matrix = np.zeros((len(states), len(states)))
    for unit in range(p.layout.n):
        share = np.exp(log_q[:, unit])
        if accept:
            share = share * np.exp(np.minimum(log_ratio[unit], 0.0))
        for i, new in enumerate(moved[unit].astype(int).tolist()):
            if share[i] > 1e-300:
                matrix[i, number[tuple(new)]] += share[i]
    return matrix + np.diag(1 - matrix.sum(1))


@pytest.mark.parametrize("name", ["dense", "sparse", "label rbm", "factor graph", "potts"])
def test_gibbs_with_gradients_leaves_the_model_invariant(name):
    model, states = cases()[name]
    weights = np.exp(-np.asarray(model.energy(jnp.asarray(states))))
    target = weights / weights.sum()
    everything = jnp.ones(states.shape, bool)
    matrix = transition_matrix(model, states, everything)
    assert (matrix >= -1e-12).all()
    assert np.allclose(target @ matrix, target, atol=1e-10)
    broken = transition_matrix(model, states, everything, accept=False)
    assert not np.allclose(target @ broken, target, atol=1e-3)
    powers = np.linalg.matrix_power(matrix, 2000)
    assert np.allclose(powers[0], target, atol=1e-6)


def test_steps_follow_the_transition_matrix():
    """20,000 chains of two updates from one state, chi-square at rate 1e-5; and `free`."""
    model, states = cases()["dense"]
    matrix = transition_matrix(model, states, jnp.ones(states.shape, bool))
    kernel, chains = GibbsWithGradients(updates=2), 20_000
    start = jnp.zeros((chains, 4))
    step = eqx.filter_jit(kernel.step)
    free = jnp.ones(4, bool)
    state, info = step(model, kernel.init(model, start, jax.random.key(0)), free, jax.random.key(1))
    numbers = np.asarray(state.x).astype(int) @ [8, 4, 2, 1]
    expected = chains * (matrix @ matrix)[0]
    counts = np.bincount(numbers, minlength=16)
    seen = expected > 5
    statistic = ((counts - expected)[seen] ** 2 / expected[seen]).sum()
    assert statistic < chi2.ppf(1 - 1e-5, seen.sum() - 1)
    assert 0 < float(info["accepted"].mean()) <= 1
    held = jnp.asarray([True, False, True, False])
    state, _ = step(model, kernel.init(model, start, jax.random.key(0)), held, jax.random.key(2))
    assert not np.asarray(state.x)[:, [1, 3]].any()
    assert np.asarray(state.x)[:, [0, 2]].any()


class Given(eqx.Module):
    """A model under evidence."""

    model: FactorGraph
    held: jax.Array

    @property
    def layout(self):
        return self.model.layout

    def energy(self, x):
        return self.model.energy(x)

    def lower(self):
        return clamp(self.model.lower(), self.held, jnp.ones(self.layout.n))


def test_evidence_in_potentials_counts_where_energies_are_compared():
    """Tables are no pairs of units, so that the gain of a move is that of two energies."""
    model, kernel = cases()["factor graph"][0], GibbsWithGradients(20)
    model = Given(model, jnp.asarray([True] + 7 * [False]))
    start = jnp.tile(jnp.asarray([0.0, 1, 1, 0, 0, 0, 1, 0]), (50, 1))
    state, _ = kernel.step(
        model, kernel.init(model, start, None), jnp.ones(8, bool), jax.random.key(0)
    )
    assert (np.asarray(state.x)[:, 0] == 1).all()


@pytest.mark.parametrize("hard", [logical_or, pool])
def test_units_beside_hard_factors_move(hard):
    """A constraint that holds pulls nowhere: 4 of 5 units are free to move, at the right rate."""
    layout = discrete(x=5)
    model = FactorGraph.create(layout, [hard(layout, [[0, 1]], [2])], jnp.zeros(5))
    start = jnp.asarray([1.0, 0, 1, 0, 0])
    result = run_chains(
        GibbsWithGradients(), model, start, jax.random.key(0), samples=500, chains=20, burn_in=20
    )
    x = np.asarray(result.x).reshape(-1, 5)
    assert ((x[:, 2] == x[:, :2].max(1)) & (x[:, 2] == 1)).all()
    assert np.allclose(x[:, 3:].mean(0), 0.5, atol=0.05)  # standard error 0.01


def relaxed(seed):
    """A random model of ten spins; every other one has weak couplings and a tight relaxation."""
    rng = np.random.default_rng(seed)
    couplings = (0.05 if seed % 2 else 1.0) * rng.uniform(-1, 1, (10, 10))
    fields = rng.uniform(-1, 1, 10)
    return Ising.from_spins(jnp.asarray(couplings), jnp.asarray(fields))


def relaxation(unary, pairs, weight):
    """The optimum of the local polytope of binary pairs, written out for a solver of LPs."""
    n, rows = len(unary), []
    for k, (i, j) in enumerate(pairs):
        for signs in ((-1, 0, 1), (0, -1, 1), (1, 1, -1)):  # y <= x_i, y <= x_j, y >= x_i + x_j - 1
            row = np.zeros(n + len(pairs))
            row[[i, j, n + k]] = signs
            rows.append(row)
    most = np.tile([0, 0, 1], len(pairs))
    found = linprog(-np.concatenate([unary, weight]), np.array(rows), most, bounds=(0, 1))
    return -found.fun


@pytest.mark.parametrize("strength", [0.2, 0.6, 1.0, 2.0, 5.0])
def test_units_whose_fields_decide_are_settled_as_the_relaxation_does(strength):
    """From strong fields, which settle all units, to weak ones, which settle none."""
    rng = np.random.default_rng(3)
    pairs = np.stack(np.triu_indices(9, 1), 1)
    for _ in range(8):
        unary, weight = rng.normal(size=9), strength * rng.normal(size=len(pairs))
        unary -= 0.5 * np.bincount(pairs.ravel(), np.repeat(weight, 2), 9)
        x = minimum_cut(unary, pairs, weight)
        assert set(x) <= {0.0, 0.5, 1.0}
        a, b = x[pairs].T
        y = np.where(weight > 0, np.minimum(a, b), np.maximum(a + b - 1, 0))
        assert unary @ x + weight @ y == pytest.approx(relaxation(unary, pairs, weight), abs=1e-6)


@pytest.mark.slow
def test_mplp_meets_the_relaxation_from_above():
    """50 models of ten spins: the dual is above the optimum of HiGHS and ends within 1e-4."""
    where = graph.complete(10)
    models = [relaxed(seed) for seed in range(50)]
    stacked = jax.tree.map(lambda *a: jnp.stack(a), *models)

    def duals(iterations):
        mplp = MPLP.plan(where, iterations, None)
        return np.asarray(jax.jit(jax.vmap(lambda m: mplp.dual(m.lower())))(stacked))

    early, late = duals(5), duals(3000)
    optimum, cut = (
        np.array([LinearProgram(solver).relax(m.lower()).value for m in models])
        for solver in ("highs", "cut")
    )
    assert np.allclose(cut, optimum, atol=1e-7)
    truth = np.array([oracle.pairwise(*_plain(m)).best_value for m in models])
    assert (late >= optimum - 1e-9).all() and (early >= late - 1e-9).all()
    assert np.allclose(late, optimum, atol=1e-4)
    assert (optimum >= truth - 1e-9).all()
    assert (optimum > truth + 1e-3).any() and (optimum < truth + 1e-6).any()


def _plain(model):
    matrix = np.asarray(model.weights)
    return 0.5 * (matrix + matrix.T), model.bias, float(model.offset)


def test_the_descent_begins_with_means_over_what_is_allowed():
    """The dual bound of those messages: the best of the table less them, and of each field."""
    layout, rng = discrete(x=(2, 3)), np.random.default_rng(1)
    logs, field = rng.normal(size=(3, 3)), rng.normal(size=6)
    allowed = np.array([[True, False, False], [True, True, False], [True, True, True]])
    seen = np.ma.masked_array(logs, ~allowed)
    own = [np.asarray(mean - mean.mean()) for mean in (seen.mean(1), seen.mean(0))]
    rest = np.where(allowed, logs - own[0][:, None] - own[1], -np.inf)
    wanted = rest.max() + (field[:3] + own[0]).max() + (field[3:] + own[1]).max()
    factors = [tables(layout, [[0, 1]], jnp.asarray(np.where(allowed, logs, -1e9)))]
    model = FactorGraph.create(layout, factors, jnp.asarray(field))
    assert float(MPLP.plan(model, 0, None).dual(model.lower())) == pytest.approx(wanted)


@pytest.mark.parametrize("forbidden", [[], [0, 2]])
def test_the_descent_is_the_same_however_tables_and_fields_share_the_energy(forbidden):
    """Also where just one state of the other variable is allowed."""
    layout, rng = discrete(x=(2, 3)), np.random.default_rng(0)
    logs, field, moved = (rng.normal(size=shape) for shape in ((3, 3), 6, 3))
    logs[forbidden] = -1e9
    moved -= moved.mean()

    def dual(table, field):
        factors = [tables(layout, [[0, 1]], jnp.asarray(table))]
        model = FactorGraph.create(layout, factors, jnp.asarray(field))
        return float(MPLP.plan(model, 0, None).dual(model.lower()))

    there = field - np.concatenate([np.zeros(3), moved])
    assert dual(logs, field) == pytest.approx(dual(logs + moved, there), abs=1e-9)


def test_a_tight_relaxation_is_rounded_to_the_best_state():
    """A tree has an integral optimum; evidence is honoured by both solvers."""
    where = graph.from_edges(6, [(0, 1), (1, 2), (1, 3), (3, 4), (3, 5)])
    rng = np.random.default_rng(0)
    model = Ising(jnp.asarray(2 * rng.normal(size=5)), jnp.asarray(rng.normal(size=6)), where)
    truth = oracle.pairwise(oracle.edge_matrix(6, where.edges, model.weights), model.bias)
    mask, x = jnp.arange(6) == 1, 1 - jnp.asarray(truth.best)
    for p, t in (
        (model.lower(), truth),
        (clamp(model.lower(), mask, x), truth.given(np.asarray(mask), np.asarray(x))),
    ):
        for infer in (LinearProgram(), LinearProgram("cut"), MPLP.plan(where)):
            found = infer(p)
            assert np.array_equal(found.unary, t.best)
            assert float(found.log_z) == pytest.approx(t.best_value, abs=1e-6)
        assert float(MPLP.plan(where, 2000).dual(p)) == pytest.approx(t.best_value, abs=1e-4)


def test_perturbed_maxima_by_other_solvers():
    """The relaxations serve the same sampler."""
    where = graph.grid(2, 2)
    model = Ising(jnp.asarray([0.5, -0.5, 0.2, 0.3]), jnp.zeros(4), where)
    key = jax.random.key(0)
    for infer in (LinearProgram(), LinearProgram("cut"), MPLP.plan(where)):
        draws = PerturbAndMap(infer, 20).draw(model.lower(), key)
        assert set(np.unique(draws.x)) == {0.0, 1.0}


def test_refusals():
    model, _ = cases()["factor graph"]
    with pytest.raises(UnsupportedFactor, match="binary units"):
        LinearProgram("cut")(model.lower())
    with pytest.raises(UndirectedError, match="solver is 'simplex'; pass 'highs' or 'cut'"):
        LinearProgram("simplex")
    with pytest.raises(UndirectedError, match=r"planned for groups of \(28,\) factors"):
        MPLP.plan(graph.complete(8))(model.lower())
    with pytest.raises(UndirectedError, match=r"planned for groups of \(3,\) .*MPLP.plan\(model\)"):
        MPLP.plan(graph.chain(4))(cases()["dense"][0].lower())
    with pytest.raises(UndirectedError, match="updates is 0"):
        GibbsWithGradients(0)
    with pytest.raises(UndirectedError, match=r"shape \(3,\)"):
        GibbsWithGradients().init(model, jnp.zeros(3), jax.random.key(0))


def test_a_cut_refuses_categorical_variables_without_factors():
    """One of their units could not be told to be on: a state that evidence excludes was best."""
    layout = un.discrete(x=2, y=(1, 3))
    graph = un.FactorGraph.create(layout, [], jnp.asarray([1.0, -1.0, 0.5, 0.2, 0.1]))
    held = clamp(graph.lower(), jnp.asarray([0, 0, 1, 0, 0], bool), jnp.zeros(5))
    assert LinearProgram()(held).unary.tolist() == [1, 0, 0, 1, 0]
    with pytest.raises(UndirectedError, match="needs binary units, block 'y' is categorical"):
        LinearProgram("cut")(held)


def test_a_state_against_the_evidence_is_no_answer(monkeypatch):
    """Where constraints outweigh evidence the decoded state breaks it, whatever its value is."""
    monkeypatch.setattr("undirected.inference.mplp._decoded", lambda p, _: jnp.zeros_like(p.unary))
    p = Ising.from_spins([0.5, 0.5, 0.5], [1.0, 0.0, 0.0, 0.0], graph.chain(4)).lower()
    for state, status in ((1.0, Status.INFEASIBLE), (0.0, Status.CONVERGED)):
        found = MPLP()(clamp(p, jnp.arange(4) == 1, jnp.full(4, state)))
        assert found.status == status and (float(found.log_z) < -HARD) == (state == 1)
