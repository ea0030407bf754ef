"""Tempered transitions and parallel tempering: transition matrices, and a crossing of modes."""

from dataclasses import dataclass, replace
from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import undirected as un
from tests import oracle
from tests.sampling import cases
from tests.sampling.kernels import noise_driven
from undirected.core import graph
from undirected.core.errors import UndirectedError
from undirected.models import RBM, Ising, TrainingPath
from undirected.models.model_path import tempered
from undirected.sampling import (
    BlockGibbs,
    Gibbs,
    GibbsWithGradients,
    ParallelTempering,
    TemperedTransitions,
    ladder,
    respace,
    run_chains,
    tempering,
)
from undirected.sampling.tempering import _swapped, bennett, offer_swaps

pytestmark = pytest.mark.usefixtures("x64")


def _swap(path, betas, rungs, odd, key):
    """The rungs after offers of swaps, and all chances."""
    swaps = offer_swaps(path, betas, rungs, odd, key)
    return _swapped(rungs, swaps.taken[..., None]), swaps.chance


class ScriptedState(eqx.Module):
    x: jax.Array
    at: jax.Array
    betas: jax.Array
    backward: jax.Array


@dataclass(frozen=True)
class Scripted:
    """A kernel that moves every chain along a script, and notes how it was called."""

    script: np.ndarray  # (steps, chains, n)
    model: object
    backward: bool = False

    def reversed(self):
        return replace(self, backward=not self.backward)

    def init(self, model, x, key):
        steps = np.zeros((x.shape[0], len(self.script)))
        return ScriptedState(x, jnp.zeros(len(x), int), jnp.asarray(steps), jnp.asarray(steps))

    def step(self, model, state, free, key):
        at = state.at[0]
        probe = jnp.ones(state.x.shape[-1])
        beta = model.energy(probe) / self.model.energy(probe)
        return (
            ScriptedState(
                jnp.asarray(self.script)[at],
                state.at + 1,
                state.betas.at[:, at].set(beta),
                state.backward.at[:, at].set(float(self.backward)),
            ),
            {},
        )


def acceptance(model, states, betas):
    """min(1, ratio) of every trajectory (x_0, x_1, ..., x'_0), by the code; how it was called."""
    steps = 2 * (len(betas) - 1)
    ways = np.array(list(product(range(len(states)), repeat=steps + 1)))
    kernel = Scripted(np.moveaxis(states[ways[:, 1:]], 1, 0), model)
    code = TemperedTransitions(kernel, tempered, betas)
    state = code.init(model, jnp.asarray(states[ways[:, 0]]), jax.random.key(0))
    free = jnp.ones(states.shape[1], bool)
    after, info = code.step(model, state, free, jax.random.key(1))
    chance = np.exp(np.minimum(np.asarray(info["log_ratio"]), 0))
    taken = np.asarray(info["accepted"]) > 0
    moved = (states[ways[:, -1]] == np.asarray(after.x)).all(1)
    assert moved[taken].all()
    stayed = (states[ways[:, 0]] == np.asarray(after.x)).all(1)
    assert stayed[~taken].all()
    assert taken[chance == 1].all()
    calls = np.asarray(after.inside.betas)[taken][0], np.asarray(after.inside.backward)[taken][0]
    return chance.reshape((len(states),) * (steps + 1)), calls


def sweep_matrix(case, beta, backward=False):
    """A Gibbs sweep at this beta: the product of the exact moves of its variables, in order."""
    states, weights = case.truth.states, case.truth.probabilities**beta
    matrix = np.eye(len(states))
    for where in case.order[::-1] if backward else case.order:
        rest = np.delete(states, np.arange(where.start, where.stop), 1)
        alike = (rest[:, None] == rest[None]).all(-1)
        draw = alike * weights
        matrix = matrix @ (draw / draw.sum(1, keepdims=True))
    return matrix


def completed(matrix):
    """What is not accepted stays."""
    return matrix + np.diag(1 - matrix.sum(1))


def small():
    rng = np.random.default_rng(5)
    w, b = 2 * rng.normal(size=(3, 3)), rng.normal(size=3)
    model = Ising(jnp.asarray(w), jnp.asarray(b))
    truth = oracle.pairwise(0.5 * (w + w.T), b)
    return cases.Case(model, truth, [slice(i, i + 1) for i in range(3)])


def test_two_levels_leave_the_truth_invariant():
    """Every trajectory on eight states, two levels down and back, with irreversible sweeps."""
    case, betas = small(), (1.0, 0.6, 0.3)
    chance, (called, backward) = acceptance(case.model, case.truth.states, betas)
    np.testing.assert_allclose(called, [0.6, 0.3, 0.3, 0.6], atol=1e-12)
    assert backward.tolist() == [0, 0, 1, 1]
    there = [sweep_matrix(case, beta) for beta in betas[1:]]
    back = [sweep_matrix(case, beta, backward=True) for beta in betas[1:]]
    plain = cases.transition_matrix(
        noise_driven(Gibbs(), tempered(case.model)(betas[1])),
        case.truth.states,
        case.truth.states,
        case.order,
    )
    np.testing.assert_allclose(plain, there[0], atol=1e-10)
    pi = case.truth.probabilities

    def moved(first, second, third, fourth, chance):
        matrix = np.einsum("ab,bc,cd,de,abcde->ae", first, second, third, fourth, chance)
        return np.abs(pi @ completed(matrix) - pi).max()

    assert moved(*there, *back[::-1], chance) < 1e-10
    assert moved(*there, *there[::-1], chance) > 1e-4  # not reversed on the way back
    swapped = np.minimum(1, chance.transpose(4, 1, 2, 3, 0))
    assert moved(*there, *back[::-1], swapped) > 1e-4  # the ratio upside down


LARGER = {
    "rbm 4x3": lambda: cases.rbm(pixels=4, hidden=3),
    "semi-restricted 4x3": lambda: cases.lateral(pixels=4, hidden=3),
    "grid 3x3": lambda: cases.sparse(graph.grid(3, 3)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGER)
def test_sweeps_of_the_larger_models_leave_the_truth_invariant(name):
    """The code's sweep is the product of exact moves, forwards and backwards, which keeps pi.

    Of the grid's 512 rows every eighth is read from the code.
    """
    case, beta = LARGER[name](), 0.4
    pi = case.truth.probabilities**beta
    pi = pi / pi.sum()
    states = case.truth.states
    some = slice(None, None, 8 if len(states) > 128 else 1)
    variants = [Gibbs(), Gibbs().reversed()]
    variants += [BlockGibbs(), BlockGibbs().reversed()] if name.startswith("rbm") else []
    for kernel in variants:
        sweep = noise_driven(kernel, tempered(case.model)(beta))
        rows = cases.transition_matrix(sweep, states[some], states, case.order)
        matrix = sweep_matrix(case, beta, kernel.backward)
        np.testing.assert_allclose(rows, matrix[some], atol=1e-10)
        np.testing.assert_allclose(pi @ matrix, pi, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGER)
def test_one_level_leaves_the_truth_invariant(name):
    """With one level the ratio depends on the two ends alone: larger models are enumerated."""
    case = LARGER[name]()
    beta, states, model = 0.4, case.truth.states, case.model
    ends = np.array(list(product(range(len(states)), repeat=2)))
    script = np.stack([states[ends[:, 0]], states[ends[:, 1]]])
    code = TemperedTransitions(Scripted(script, model), tempered, (1.0, beta))
    state = code.init(model, jnp.asarray(script[0]), jax.random.key(0))
    free = jnp.ones(states.shape[1], bool)
    _, info = code.step(model, state, free, jax.random.key(1))
    chance = np.exp(np.minimum(np.asarray(info["log_ratio"]), 0)).reshape(len(states), -1)
    there, back = sweep_matrix(case, beta), sweep_matrix(case, beta, backward=True)
    pi = case.truth.probabilities

    def moved(proposal, chance):
        return np.abs(pi @ completed(proposal * chance) - pi).max()

    assert moved(there @ back, chance) < 1e-10
    assert moved(there @ back, chance.T) > 1e-4  # the ratio upside down
    assert moved(there @ there, chance) > 1e-6  # not reversed on the way back


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGER)
def test_parallel_tempering_leaves_the_product_invariant(name):
    """Two rungs of the larger models: a sweep of each, then a swap, over all pairs of states."""
    case, betas = LARGER[name](), jnp.asarray([1.0, 0.4])
    states, count = case.truth.states, len(case.truth.states)
    pi = [case.truth.probabilities ** float(beta) for beta in betas]
    joint = np.outer(*(p / p.sum() for p in pi))
    pairs = np.array(list(product(range(count), repeat=2)))
    rungs = jnp.asarray(np.moveaxis(states[pairs], 1, 0))
    path = tempered(case.model)
    _, chance = _swap(path, betas, rungs, jnp.asarray(0), jax.random.key(0))
    chance = np.asarray(chance)[0].reshape(count, count)
    cold, hot = (sweep_matrix(case, float(beta)) for beta in betas)

    def moved(chance):
        swept = cold.T @ joint @ hot
        swapped = swept * (1 - chance) + (swept * chance).T
        return np.abs(swapped - joint).max()

    assert moved(chance) < 1e-10
    assert moved(chance.T) > 1e-5  # the ratio upside down


def test_swaps_leave_the_product_invariant():
    """All product states of three rungs: the swaps' matrix from their chances, either turn."""
    w, b = jnp.asarray([[0.0, 1.7], [1.7, 0.0]]), jnp.asarray([0.4, -0.9])
    model, betas = Ising(w, b), jnp.asarray([1.0, 0.5, 0.2])
    states = np.array(list(product([0.0, 1.0], repeat=2)))
    path = tempered(model)
    pi = [np.exp(-np.asarray(path(beta).energy(jnp.asarray(states)))) for beta in betas]
    joint = np.einsum("a,b,c->abc", *(p / p.sum() for p in pi)).reshape(-1)
    ways = np.array(list(product(range(4), repeat=3)))
    rungs = jnp.asarray(np.moveaxis(states[ways], 1, 0))
    for odd in (0, 1):
        after, chance = _swap(path, betas, rungs, jnp.asarray(odd), jax.random.key(odd))
        matrix = np.zeros((64, 64))
        for way, p in zip(ways, np.asarray(chance)[odd], strict=True):
            other = way.copy()
            other[[odd, odd + 1]] = other[[odd + 1, odd]]
            at, to = (int(np.ravel_multi_index(w, (4, 4, 4))) for w in (way, other))
            matrix[at, to] += p
            matrix[at, at] += 1 - p
        np.testing.assert_allclose(joint @ matrix, joint, atol=1e-12)
        sure = np.asarray(chance)[odd] == 1
        expected = np.asarray(rungs).copy()
        expected[[odd, odd + 1]] = expected[[odd + 1, odd]]
        np.testing.assert_array_equal(np.asarray(after)[:, sure], expected[:, sure])
        untouched = 2 if odd == 0 else 0
        np.testing.assert_array_equal(after[untouched], rungs[untouched])


def two_modes():
    """Two modes that no single sweep crosses: all units off, or all on and a little likelier."""
    visible, hidden, w = 10, 4, 5.0
    weights = jnp.full((visible, hidden), w)
    b = jnp.full(visible, -w * hidden / 2 + 0.05)
    return RBM(weights, b, jnp.full(hidden, -w * visible / 2))


BETAS = ladder(0.02, 40)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "steps"),
    [
        (TemperedTransitions(BlockGibbs(), tempered, BETAS), 120),
        (ParallelTempering(BlockGibbs(), tempered, BETAS[::4]), 800),
    ],
    ids=["tempered", "parallel"],
)
def test_both_modes_are_visited_in_proportion(kernel, steps):
    """Chains that all start in one mode; plain Gibbs would need over a million sweeps to leave."""
    model, chains = two_modes(), 1000
    truth = oracle.rbm(
        *(np.asarray(a) for a in (model.weights, model.visible_bias, model.hidden_bias))
    )
    share = truth.probabilities[truth.states[:, :10].sum(1) > 5].sum()
    assert 0.55 < share < 0.8
    leave = 1 - np.prod(1 / (1 + np.exp(np.asarray(model.hidden_bias))))
    assert leave < 1e-6
    free = jnp.ones(14, bool)

    @jax.jit
    def run(x, key):
        state = kernel.init(model, x, key)

        def move(state, key):
            return kernel.step(model, state, free, key)

        return jax.lax.scan(move, state, jax.random.split(key, steps))

    state, info = run(jnp.zeros((chains, 14)), jax.random.key(3))
    on = int((state.x[:, :10].sum(1) > 5).sum())
    assert stats.binomtest(on, chains, share).pvalue > cases.RATE
    plain, _ = BlockGibbs(sweeps=steps).step(
        model,
        BlockGibbs().init(model, jnp.zeros((chains, 14)), jax.random.key(0)),
        free,
        jax.random.key(1),
    )
    stuck = int((plain.x[:, :10].sum(1) > 5).sum())
    assert stats.binomtest(stuck, chains, share).pvalue < cases.RATE  # the test can fail
    rate = info["accepted"] if "accepted" in info else info["swap_rates"]
    assert 0.05 < float(rate.mean()) < 1


@pytest.mark.slow
def test_clamped_units_stay():
    model = cases.rbm(pixels=4, hidden=3).model
    x = jnp.asarray(np.random.default_rng(0).integers(0, 2, (50, 7)).astype(float))
    free = jnp.ones(7, bool).at[jnp.asarray([0, 5])].set(False)
    for kernel in (
        TemperedTransitions(BlockGibbs(), tempered, ladder(0.5, 4)),
        ParallelTempering(BlockGibbs(), tempered, ladder(0.5, 3)),
    ):
        state = kernel.init(model, x, jax.random.key(0))
        after, _ = kernel.step(model, state, free, jax.random.key(1))
        np.testing.assert_array_equal(after.x[:, [0, 5]], x[:, [0, 5]])
        assert (after.x != x).any()


def test_ladders_and_counts_that_are_none_are_refused():
    infinite = (1.0, -np.inf)
    for betas in ((1.0, np.nan, 0.0), (1.0, np.nan), infinite, 1.0, "falling", ("1", "0"), None):
        for kernel in (TemperedTransitions, ParallelTempering):
            with pytest.raises(UndirectedError, match="pass at least two that fall from 1"):
                kernel(Gibbs(), tempered, betas)
    with pytest.raises(UndirectedError, match="ladder: count is 2.5; pass a whole number"):
        ladder(0.5, 2.5)
    model, key = Ising.create(3), jax.random.key(0)
    kernel = ParallelTempering(Gibbs(), tempered, (1.0, 0.0))
    state = kernel.init(model, jnp.zeros((4, 3)), key)
    for samples in (0, -1, 1.5):
        with pytest.raises(UndirectedError, match=f"samples is {samples}; pass a whole number"):
            kernel.log_partition(model, state, key, samples=samples)
    for counts in ({"rounds": 1.5}, {"steps": 0}):
        with pytest.raises(UndirectedError, match="; pass a whole number from 1"):
            kernel.adapted(model, jnp.zeros((4, 3)), key, **counts)


def test_paths_that_are_none_are_refused():
    model = Ising(jnp.zeros((3, 3)), jnp.zeros(3))
    through = TrainingPath.through([model, model])
    for kernel in (TemperedTransitions, ParallelTempering):
        for path in (tempered(model), through, model, None):
            with pytest.raises(UndirectedError, match="such as un.tempered, or TrainingPath.along"):
                kernel(Gibbs(), path, (1.0, 0.0))
        for path, sampled in ((lambda beta: model, model), (through.along, model)):
            with pytest.raises(UndirectedError, match=r"path\(model\) is a Ising"):
                kernel(Gibbs(), path, (1.0, 0.0)).init(sampled, jnp.zeros(3), jax.random.key(0))


def test_log_z_is_read_off_the_state_of_the_same_ladder_alone():
    model, key = Ising(jnp.zeros((3, 3)), jnp.zeros(3)), jax.random.key(0)
    kernel, x = ParallelTempering(Gibbs(), tempered, (1.0, 0.0)), jnp.zeros((4, 3))
    longer = ParallelTempering(Gibbs(), tempered, (1.0, 0.5, 0.0)).init(model, x, key)
    result = run_chains(kernel, model, x, seed=0, samples=1)
    for state, told in [
        (x, "a ArrayImpl"),
        (Gibbs().init(model, x, key), "a ChainState"),
        (result, "a ChainResult"),
        (longer, "that of a ladder of 3 betas"),
    ]:
        with pytest.raises(UndirectedError, match=f"is {told}; pass that of a ladder of 2 betas"):
            kernel.log_partition(model, state, key, samples=4)
    value, _ = kernel.log_partition(model, result.state, key, samples=4)
    assert value == pytest.approx(3 * np.log(2))


def test_ladders():
    assert ladder(0.9, 3) == (1.0, 0.95, 0.9)
    assert respace((1.0, 0.5, 0.0), (0.5, 0.5)) == (1.0, 0.5, 0.0)
    placed = respace((1.0, 0.5, 0.0), (0.2, 0.8))
    assert placed[0] == 1 and placed[2] == 0 and placed[1] > 0.5  # rungs go where swaps fail
    for bad in ((1.0,), (0.9, 0.5), (2.0, 0.5), (1.0, 0.5, 0.6)):
        with pytest.raises(UndirectedError, match="fall from 1"):
            TemperedTransitions(Gibbs(), tempered, bad)
        with pytest.raises(UndirectedError, match="fall from 1"):
            ParallelTempering(Gibbs(), tempered, bad)
    with pytest.raises(UndirectedError, match=r"GibbsWithGradients has no reversed\(\)"):
        TemperedTransitions(GibbsWithGradients(), tempered, ladder(0.5, 2))
    with pytest.raises(UndirectedError, match="at least 2"):
        ladder(0.5, 1)
    with pytest.raises(UndirectedError, match="got 3 rates"):
        respace((1.0, 0.5), (0.1, 0.2, 0.3))


def test_bennett_finds_the_ratio_of_two_normals():
    """f_0 = exp(-x^2 / 2), f_1 = exp(1 - (x - 1)^2 / 2): log Z_1 / Z_0 = 1."""
    rng = np.random.default_rng(0)
    log_ratio = lambda x: 1 - (x - 1) ** 2 / 2 + x**2 / 2  # noqa: E731
    there, back = log_ratio(rng.normal(size=40_000)), log_ratio(1 + rng.normal(size=40_000))
    assert bennett(there, back) == pytest.approx(1, abs=0.03)  # six standard errors
    assert bennett(there, back + 1) > 1.2  # the test can fail


@pytest.mark.slow
def test_an_adapted_ladder_swaps_evenly_and_its_log_z_is_exact():
    """3 x 3 torus from beta 0; log Z within 5 standard errors of 16 chains (t: once in 6,000)."""
    case = cases.sparse(graph.torus(3, 3), scale=1.5)
    uneven = ParallelTempering(Gibbs(), tempered, (1.0, 0.97, 0.94, 0.9, 0.0))
    x = jnp.zeros((16, 9))
    even, state = uneven.adapted(case.model, x, jax.random.key(0), rounds=4, steps=50)
    assert even.betas[0] == 1 and even.betas[-1] == 0
    free = jnp.ones(9, bool)
    rates = []
    for pt in (uneven, even):
        _, chances = tempering._measure(
            pt, case.model, jnp.asarray(pt.betas), state, free, jax.random.key(1), jnp.asarray(400)
        )
        rates.append(np.asarray(chances))
    assert np.ptp(rates[0]) > 0.3 and np.ptp(rates[1]) < 0.1
    log_z, error = even.log_partition(case.model, state, jax.random.key(2), samples=400)
    assert abs(log_z - case.truth.log_z) < 5 * error and error < 0.05
    warm = ParallelTempering(Gibbs(), tempered, (1.0, 0.5))
    state = warm.init(case.model, x, jax.random.key(2))
    with pytest.raises(UndirectedError, match="betas down to 0"):
        warm.log_partition(case.model, state, jax.random.key(2), samples=10)


@pytest.mark.slow
def test_round_trips_are_counted():
    """Two rungs of a model without energy always swap: each replica returns every second step."""
    model = Ising(jnp.zeros((2, 2)), jnp.zeros(2))
    pt = ParallelTempering(Gibbs(), tempered, (1.0, 0.0))
    state = pt.init(model, jnp.zeros((3, 2)), jax.random.key(0))
    trips, step = [], jax.jit(lambda s, key: pt.step(model, s, jnp.ones(2, bool), key))
    for k in range(9):
        state, info = step(state, jax.random.key(k))
        trips.append(np.asarray(info["round_trips"]))
    # Swaps are on even steps; the first replica is hot from step 0 on, and back in step 2.
    np.testing.assert_array_equal(np.stack(trips)[:, 0], [0, 0, 1, 0, 1, 0, 1, 0, 1])


@pytest.mark.parametrize("name", ["or", "at most"])
def test_log_z_above_constraints_that_stay_at_beta_zero_is_refused(name):
    """There the ladder ends on fewer states than independent units have."""
    layout = un.discrete(x=3)
    groups = {
        "or": un.logical_or(layout, [[0, 1]], [2]),
        "at most": un.at_most(layout, [[0, 1, 2]], 1),
    }
    model = un.FactorGraph.create(layout, [groups[name]])
    kernel = ParallelTempering(Gibbs(), tempered, (1.0, 0.0))
    key = jax.random.key(0)
    state = kernel.init(model, jnp.zeros((4, 3)), key)
    with pytest.raises(UndirectedError, match="where there are hard constraints; pass"):
        kernel.log_partition(model, state, key, samples=4)
