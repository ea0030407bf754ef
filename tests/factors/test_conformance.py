"""Every factor group of the table, before every check of its own answers and every algorithm."""

from functools import cache

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from tests.factors.conformance import NO, ROWS, Row
from tests.marks import mostly_slow
from tests.sampling import cases
from tests.sampling.kernels import noise_driven
from undirected import factors
from undirected.core.errors import UnsupportedFactor
from undirected.core.layout import Block, Domain, Layout
from undirected.core.potentials import shift
from undirected.core.units import means
from undirected.factors import Factor, Squares
from undirected.inference import (
    MPLP,
    BeliefPropagation,
    Elimination,
    Exact,
    LinearProgram,
    MeanField,
    TreeReweighted,
)
from undirected.learning import PseudoLikelihood
from undirected.models import FactorGraph
from undirected.sampling import DiscreteLangevin, Gibbs, PerturbAndMap
from undirected.sampling import gibbs_with_gradients as gwg
from undirected.sampling.adjusted import place
from undirected.sampling.dmala import log_proposal

pytestmark = pytest.mark.usefixtures("x64")
each_row = pytest.mark.parametrize("name", ROWS)
GROUPS = [
    "bilinear loop",
    "mixed bilinear",
    "symmetric loop",
    "edges",
    "tables",
    "mixed tables",
    "or",
    "pool",
    "counts",
    "convolutional or",
    "potts",
    "third order",
    "sparse tables",
]
"""One row of every group: what it says of itself is checked on all rows, and algorithms see no more
of it than that."""
each_group = pytest.mark.parametrize("name", mostly_slow(ROWS, GROUPS))
FEW = ["mixed bilinear", "tables", "pool", "counts", "potts", "third order"]
"""Groups for what takes longest: pairs, tables, hard factors and products of three."""
few_groups = pytest.mark.parametrize("name", mostly_slow(ROWS, FEW))
ROUNDS = 8
"""Rounds of messages after which no tree of the table changes any more."""


@cache
def model_of(name: str) -> FactorGraph:
    return ROWS[name].model()


def takes(row: Row, name: str, algorithm: str, call) -> bool:
    """Whether an algorithm is to take the group; otherwise it must refuse by name."""
    if algorithm not in row.refuses:
        return True
    group = type(model_of(name).factors[0]).__name__
    words = algorithm.replace("sum product", "belief propagation").replace("cut", "linear program")
    with pytest.raises(UnsupportedFactor) as caught:
        call()
    message = str(caught.value)
    assert words.lower() in message.lower(), message
    assert group in message, message
    assert "use " in message or "build " in message, message
    return False


def expected(row: Row, probabilities: np.ndarray) -> np.ndarray:
    """The mean of the oracle's statistic."""
    found = np.array([row.statistic(s) for s in row.world.states])
    return np.tensordot(probabilities, found, 1)


def test_every_group_has_a_row():
    built = {type(model_of(name).factors[0]) for name in ROWS} | {Squares}
    public = {c for c in vars(factors).values() if isinstance(c, type) and issubclass(c, Factor)}
    assert public - {Factor, factors.Wired} == built
    assert {type(model_of(name).factors[0]) for name in GROUPS} | {Squares} == built


# What a group says of itself.


@eqx.filter_jit
def _own_answers(group, layout, x, m):
    return (
        group.value(layout, x),
        group.local_field(layout, x),
        group.mean_statistic(layout, x).weight,
        group.statistic(layout, m).weight,
    )


@each_row
def test_value_statistic_and_local_field_equal_enumeration(name):
    row, model = ROWS[name], model_of(name)
    world, layout, (group,) = row.world, model.layout, model.factors
    rng = np.random.default_rng(1)
    p = [rng.dirichlet(np.ones(k)) for k in row.sizes]
    m = np.concatenate([a[1:] if len(a) == 2 else a for a in p])
    value, field, mean, at_means = _own_answers(group, layout, jnp.asarray(world.units), m)
    wanted = np.array([row.value(s) for s in world.states])
    np.testing.assert_allclose(value, wanted, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(field_steps(row, np.asarray(field)), steps(row, wanted), atol=1e-6)
    even = np.full(len(world.states), 1 / len(world.states))
    np.testing.assert_allclose(mean, expected(row, even), atol=1e-9)
    independent = np.prod([p[i][world.states[:, i]] for i in range(len(p))], 0)
    np.testing.assert_allclose(at_means, expected(row, independent), atol=1e-9)


def steps(row: Row, value: np.ndarray) -> np.ndarray:
    """For every state and variable: the value of each of its states, less that of the first."""
    shaped, found = value.reshape(row.sizes), []
    for axis, k in enumerate(row.sizes):
        first = np.take(shaped, [0], axis)
        found += [
            np.broadcast_to(np.take(shaped, [state], axis) - first, row.sizes).ravel()
            for state in range(1, k)
        ]
    return np.stack(found, 1)


def field_steps(row: Row, fields: np.ndarray) -> np.ndarray:
    """The same from local fields."""
    parts = [fields[:, s] for s in row.slices]
    return np.concatenate([a if a.shape[1] == 1 else a[:, 1:] - a[:, :1] for a in parts], 1)


@each_row
def test_tables_and_pairs_add_up_to_the_value(name):
    row, model = ROWS[name], model_of(name)
    layout, (group,) = model.layout, model.factors
    wanted = np.array([row.value(s) for s in row.world.states])
    if "elimination" not in row.refuses:
        total = np.zeros(len(wanted))
        for found in group.tables(layout, 2**10):
            for scope, logs in zip(np.asarray(found.scopes), np.asarray(found.logs), strict=True):
                states = np.where(scope >= 0, row.world.states[:, scope], found.idle)
                total += logs[tuple(states.T)]
        np.testing.assert_allclose(total, wanted, rtol=1e-9, atol=1e-9)
    try:
        edges, weight, field, constant = (np.asarray(a) for a in group.pairs(layout))
    except UnsupportedFactor:
        assert "cut" in row.refuses
        return
    x = row.world.units
    total = x[:, edges].prod(-1) @ weight + x @ field + constant
    np.testing.assert_allclose(total, wanted, atol=1e-9)


@each_row
def test_factors_join_only_the_variables_of_their_scopes(name):
    """The value of variables that share no factor is a sum: its second differences vanish."""
    row, model = ROWS[name], model_of(name)
    if name == "convolutional or":
        with pytest.raises(UnsupportedFactor, match="ConvolutionalOr offers no scopes"):
            model.factors[0].scopes(model.layout)
        return
    joined = np.eye(len(row.sizes), dtype=bool)
    for scopes in model.factors[0].scopes(model.layout):
        for scope in scopes:
            own = scope[scope >= 0]
            joined[np.ix_(own, own)] = True
    value = np.array([row.value(s) for s in row.world.states]).reshape(row.sizes)
    for i, j in zip(*np.nonzero(~joined), strict=True):
        # A factor of 0 and -1e9 is a sum too, where nothing is forbidden twice over.
        assert np.allclose(np.diff(np.diff(value, axis=i), axis=j), 0, atol=1e-6)


# Message passing.


def beliefs_of(name: str, model, temperature, rounds):
    """Beliefs after some rounds: temperature and rounds are data, so one program serves all."""
    T = temperature if temperature == 0 else jnp.asarray(temperature)
    return BeliefPropagation(jnp.asarray(rounds), None, 0.0, T)(model)


@each_row
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_sum_product_is_exact_on_a_tree(name, temperature):
    row, model = ROWS[name], model_of(name)
    if not takes(row, name, "sum product", lambda: beliefs_of(name, model, temperature, ROUNDS)):
        return
    beliefs = beliefs_of(name, model, temperature, ROUNDS)
    if row.tree:
        p = row.world.probabilities(temperature)
        np.testing.assert_allclose(beliefs.unary, p @ row.world.units, atol=1e-9)
        np.testing.assert_allclose(beliefs.factors[0].weight, expected(row, p), atol=1e-9)
        assert float(beliefs.log_z) == pytest.approx(row.world.log_z(temperature), abs=1e-8)


@each_row
def test_max_product_finds_the_best_state_of_a_tree(name):
    row = ROWS[name]
    beliefs = beliefs_of(name, model_of(name), 0.0, ROUNDS)
    if row.tree:
        np.testing.assert_allclose(beliefs.unary, row.world.units[row.world.log_weights.argmax()])
        assert float(beliefs.log_z) == pytest.approx(row.world.log_z(0), abs=1e-9)


@few_groups
def test_renaming_the_states_renames_the_beliefs(name):
    """After any number of rounds, so that the start is neutral too."""
    row = ROWS[name]
    if row.flipped is None:
        pytest.skip("the group cannot say what it is when its states are renamed")
    turned = row.flipped_model()
    other = row.flip_means(row.world.units)
    log_weights = -np.asarray(turned.energy(jnp.asarray(other)))
    gap = (log_weights - row.world.log_weights)[row.allowed]
    np.testing.assert_allclose(gap, gap[0], atol=1e-9)  # it is the same distribution
    for rounds in (1, 3):
        for T in (0.0, 1.0):
            plain = beliefs_of(name, model_of(name), T, rounds).unary
            flipped = beliefs_of(name, turned, T, rounds).unary
            np.testing.assert_allclose(flipped, row.flip_means(plain), atol=1e-9)
        plain, flipped = (_mean_field(m, rounds).unary for m in (model_of(name), turned))
        np.testing.assert_allclose(flipped, row.flip_means(plain), atol=1e-9)


# Every other inference routine.


def _mean_field(model, sweeps):
    return MeanField(jnp.asarray(sweeps), None)(model)


@each_group
def test_mean_field_is_a_bound(name):
    row = ROWS[name]
    bounds = [float(_mean_field(model_of(name), k).log_z) for k in (1, 3, 50)]
    assert bounds == sorted(bounds)
    assert 0.5 * NO < bounds[-1] <= row.world.log_z(1.0)


@each_group
def test_exact_is_exact(name):
    row, model = ROWS[name], model_of(name)
    for T in (1.0, 0.5):
        beliefs = Exact(jnp.asarray(T))(model)
        p = row.world.probabilities(T)
        np.testing.assert_allclose(beliefs.unary, p @ row.world.units, atol=1e-9)
        np.testing.assert_allclose(beliefs.factors[0].weight, expected(row, p), atol=1e-9)
        assert float(beliefs.log_z) == pytest.approx(row.world.log_z(T), abs=1e-9)


@each_group
def test_elimination_is_exact(name):
    row, model = ROWS[name], model_of(name)
    if not takes(row, name, "elimination", lambda: Elimination()(model)):
        return
    beliefs = Elimination()(model)
    p = row.world.probabilities(1.0)
    np.testing.assert_allclose(beliefs.unary, p @ row.world.units, atol=1e-9)
    np.testing.assert_allclose(beliefs.factors[0].weight, expected(row, p), atol=1e-9)
    assert float(beliefs.log_z) == pytest.approx(row.world.log_z(1.0), abs=1e-9)
    best = Elimination(0.0)(model)
    np.testing.assert_allclose(best.unary, row.world.units[row.world.log_weights.argmax()])


@few_groups
def test_mplp_bounds_the_best_state(name):
    row, model = ROWS[name], model_of(name)
    if not takes(row, name, "MPLP", lambda: MPLP()(model)):
        return
    routine = MPLP.plan(model, 200, None)
    best = row.world.log_z(0)
    assert float(routine.dual(model)) >= best - 1e-9
    assert float(routine(model).log_z) <= best + 1e-9
    if row.tree:
        assert float(routine.dual(model)) == pytest.approx(best, abs=1e-6)


@each_row
@pytest.mark.parametrize("solver", ["highs", "cut"])
def test_the_linear_program_bounds_the_best_state(name, solver):
    row, model = ROWS[name], model_of(name)
    routine, word = LinearProgram(solver), "cut" if solver == "cut" else "linear program"
    if not takes(row, name, word, lambda: routine(model)):
        return
    found = routine.relax(model)
    assert found.value >= row.world.log_z(0) - 1e-7
    if row.tree:
        assert found.value == pytest.approx(row.world.log_z(0), abs=1e-6)
        np.testing.assert_allclose(
            routine(model).unary, row.world.units[row.world.log_weights.argmax()]
        )


@each_group
def test_tree_reweighted_is_an_upper_bound_and_exact_on_a_tree(name):
    row, model = ROWS[name], model_of(name)
    if not takes(row, name, "tree reweighted", lambda: TreeReweighted()(model)):
        return
    beliefs = TreeReweighted(None, 200, None, 0.3)(model)
    assert float(beliefs.log_z) >= row.world.log_z(1.0) - 1e-9
    if row.tree:
        p = row.world.probabilities(1.0)
        np.testing.assert_allclose(beliefs.unary, p @ row.world.units, atol=1e-8)
        np.testing.assert_allclose(beliefs.factors[0].weight, expected(row, p), atol=1e-8)
        assert float(beliefs.log_z) == pytest.approx(row.world.log_z(1.0), abs=1e-7)


# Samplers and learning.


@few_groups
def test_gibbs_leaves_the_truth_invariant(name):
    row, model = ROWS[name], model_of(name)
    states = row.world.units[row.allowed]
    matrix = cases.transition_matrix(noise_driven(Gibbs(), model), states, states, row.slices)
    pi = row.world.probabilities(1.0)[row.allowed]
    np.testing.assert_allclose(matrix.sum(1), 1.0, atol=1e-10)
    np.testing.assert_allclose(pi @ matrix, pi, atol=1e-10)


@eqx.filter_jit
def _proposals(p, x, unit):
    free = jnp.ones(x.shape, bool)
    here = gwg.place(p, x)
    moved, log_ratio = gwg.propose(p, here, free, unit)
    chosen = jnp.take_along_axis(gwg.log_proposal(p.layout, here, free), unit[:, None], 1)[:, 0]
    return moved.x, chosen, log_ratio


@few_groups
def test_gibbs_with_gradients_leaves_the_truth_invariant(name):
    row, model = ROWS[name], model_of(name)
    states = row.world.units[row.allowed]
    S, n = states.shape
    x, unit = np.repeat(states, n, 0), np.tile(np.arange(n), S)
    moved, there, log_ratio = (
        np.asarray(a) for a in _proposals(model.lower(), jnp.asarray(x), jnp.asarray(unit))
    )
    rate = np.exp(there + np.minimum(log_ratio, 0.0))
    matrix = np.zeros((S, S))
    hit = (moved[:, None] == states[None]).all(-1)
    inside = hit.any(1)
    assert (rate[~inside] < 1e-12).all()
    np.add.at(matrix, (np.repeat(np.arange(S), n)[inside], hit.argmax(1)[inside]), rate[inside])
    matrix[np.arange(S), np.arange(S)] += 1 - matrix.sum(1)
    pi = row.world.probabilities(1.0)[row.allowed]
    assert (matrix >= -1e-12).all()
    apart = (row.world.states[row.allowed][:, None] != row.world.states[row.allowed]).sum(-1)
    assert (matrix[apart == 1] > 0).all()
    np.testing.assert_allclose(pi @ matrix, pi, atol=1e-10)


@eqx.filter_jit
def _langevin(p, x, moved):
    free, kernel = jnp.ones(x.shape, bool), DiscreteLangevin(1.0)
    here, there, numbers = place(p, x), place(p, moved), kernel.numbers(p)
    odds = kernel.odds(p.layout, here, numbers)
    return log_proposal(p.layout, odds, moved, free), kernel.log_ratio(
        p, here, there, free, numbers
    )


@few_groups
def test_discrete_langevin_is_reversible(name):
    row = ROWS[name]
    states = row.world.units[row.allowed]
    S = len(states)
    x, moved = np.repeat(states, S, 0), np.tile(states, (S, 1))
    there, ratio = _langevin(model_of(name).lower(), jnp.asarray(x), jnp.asarray(moved))
    matrix = np.exp(np.asarray(there) + np.minimum(ratio, 0.0)).reshape(S, S)
    pi = row.world.probabilities(1.0)[row.allowed]
    assert (matrix > 0).any() and matrix.sum(1).max() <= 1 + 1e-9
    np.testing.assert_allclose(pi[:, None] * matrix, (pi[:, None] * matrix).T, atol=1e-10)


@pytest.mark.slow
@few_groups
def test_perturb_and_map_finds_the_perturbed_maxima(name):
    row, model = ROWS[name], model_of(name)
    noise = np.random.default_rng(2).logistic(size=(6, row.layout.n))
    sampler = PerturbAndMap(BeliefPropagation(jnp.asarray(ROUNDS), None, 0.0, 0.0))
    found = np.asarray(sampler.solve(shift(model.lower(), jnp.asarray(noise)), None).x)
    assert row.allowed.size and found.shape == noise.shape
    if row.tree:
        for x, extra in zip(found, noise, strict=True):
            world = row.world_at(row.unary + extra)
            np.testing.assert_array_equal(x, world.units[world.log_weights.argmax()])


@eqx.filter_jit
def _conditionals(model, x):
    return model.log_odds(x), model.free_energy(x)


@few_groups
def test_log_odds_are_the_conditionals(name):
    """What pseudo-likelihood needs."""
    row, model = ROWS[name], model_of(name)
    x = row.world.units[row.allowed]
    if not takes(row, name, "log odds", lambda: model.log_odds(jnp.asarray(x))):
        return
    odds, free_energy = _conditionals(model, jnp.asarray(x))
    got = np.asarray(means(model.layout, odds))
    weights = row.world.log_weights.reshape(row.sizes)
    for state, answer in zip(row.world.states[row.allowed], got, strict=True):
        for axis, where in enumerate(row.slices):
            line = weights[tuple(slice(None) if i == axis else s for i, s in enumerate(state))]
            share = np.exp(line - line.max()) / np.exp(line - line.max()).sum()
            wanted = share[1:] if len(share) == 2 else share
            np.testing.assert_allclose(answer[where], wanted, atol=1e-9)
    np.testing.assert_allclose(-free_energy, row.world.log_weights[row.allowed], atol=1e-9)
    PseudoLikelihood().init(model, jnp.asarray(x), None)


# Squares stand on real units, which no discrete algorithm takes.


def test_squares():
    layout = Layout((Block("x", 0, 3, Domain.REAL),))
    weight, x = np.array([-0.5, -1.0, -2.0]), np.random.default_rng(0).normal(size=(4, 3))
    group = Squares(jnp.asarray(weight), 0)
    np.testing.assert_allclose(group.value(layout, jnp.asarray(x)), x**2 @ weight)
    np.testing.assert_allclose(group.local_field(layout, jnp.asarray(x)), 2 * weight * x)
    np.testing.assert_allclose(group.mean_statistic(layout, jnp.asarray(x)).weight, (x**2).mean(0))
