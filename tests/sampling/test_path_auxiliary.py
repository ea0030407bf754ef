"""The path-auxiliary sampler: exact transition matrices over all paths, broken twins."""

from dataclasses import dataclass
from itertools import permutations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tests.sampling import cases
from tests.sampling.kernels import one_step_p_value, step
from tests.sampling.test_dmala import uneven, with_rest
from undirected.core.errors import UndirectedError
from undirected.models import FactorGraph, Ising, discrete
from undirected.sampling import GibbsWithGradients, HammingBall, PathAuxiliary, run_chains
from undirected.sampling.adjusted import Place, gain, place
from undirected.sampling.path_auxiliary import _half_gains, log_path


@dataclass(frozen=True)
class Stale(PathAuxiliary):
    """Broken: the way back is weighed by the slopes at the start."""

    def log_ratio(self, p, here, there, free, path, taken):
        away = log_path(p.layout, here, there.x, free, path, taken)
        stale = Place(there.x, here.slope, there.value)
        back = log_path(p.layout, stale, here.x, free, path[:, ::-1], taken[:, ::-1])
        return gain(p, here, there) + back - away


@dataclass(frozen=True)
class Greedy(PathAuxiliary):
    """Broken: every path is accepted."""

    def log_ratio(self, p, here, there, free, path, taken):
        return jnp.zeros(len(path), here.x.dtype)


def ends(layout, state, variables):
    """All states that differ from this one in exactly these variables."""
    found = [state]
    for v in variables:
        first, width = int(layout.variables.first[v]), int(layout.variables.width[v])
        where, more = slice(first, first + width), []
        for one in found:
            others = 1 - np.asarray([[one[first]]]) if width == 1 else np.eye(width)
            for other in others:
                if width == 1 or (other != state[where]).any():
                    new = one.copy()
                    new[where] = other
                    more.append(new)
        found = more
    return found


def all_paths(layout, states, free, most):
    """Start, end, order and number of changes of every path, the frozen ones left out."""
    loose = np.flatnonzero(free[layout.variables.first])
    rows = []
    for state in states:
        for count in range(1, most + 1):
            for order in permutations(loose, min(count, len(loose))):
                path = np.array([*order, *(v for v in range(most) if v not in order)])[:most]
                for end in ends(layout, state, order):
                    rows.append((state, end, path, len(order)))
    start, end, path, count = (np.array(part) for part in zip(*rows, strict=True))
    return start, end, path, np.arange(most)[None] < count[:, None]


@eqx.filter_jit
def _paths(kernel, p, x, y, free, path, taken):
    here, there = place(p, x), place(p, y)
    away = log_path(p.layout, here, y, free, path, taken)
    return away, kernel.log_ratio(p, here, there, free, path, taken)


def exact_matrix(kernel, p, states, free):
    """P[start, end]: the sum over all paths, each length as likely."""
    most = 2 * kernel.length - 1
    start, end, path, taken = all_paths(p.layout, states, free, most)
    mask = np.broadcast_to(free, start.shape)
    away, ratio = (
        np.asarray(a) for a in _paths(kernel, p, *map(jnp.asarray, (start, end, mask, path, taken)))
    )
    code = {tuple(state): i for i, state in enumerate(states)}
    i, j = ([code[tuple(state)] for state in part] for part in (start, end))
    proposed, matrix = (np.zeros((len(states), len(states))) for _ in range(2))
    np.add.at(proposed, (i, j), np.exp(away) / most)
    np.testing.assert_allclose(proposed.sum(1), 1, atol=1e-10)
    np.add.at(matrix, (i, j), np.exp(away + np.minimum(ratio, 0)) / most)
    return with_rest(matrix)


CASES = [("rbm", 2), ("labelled rbm", 2), ("dense", 2), ("path", 1), ("labelled lateral", 2)]


@pytest.mark.parametrize(("name", "length"), CASES)
def test_transition_matrix_is_reversible(x64, name, length):
    case = cases.make(name)
    free = np.ones(case.model.layout.n, bool)
    p, states = case.model.lower(), case.truth.states
    matrix = exact_matrix(PathAuxiliary(length), p, states, free)
    flow = case.truth.probabilities[:, None] * matrix
    np.testing.assert_allclose(flow, flow.T, atol=1e-12)
    assert (np.linalg.matrix_power(matrix, 8) > 0).all()


@pytest.mark.parametrize("broken", [Stale(2), Greedy(2)], ids=str)
@pytest.mark.parametrize("name", ["labelled rbm", "dense"])
def test_transition_matrix_of_broken_kernels_moves_the_truth(x64, name, broken):
    case = cases.make(name)
    pi, free = case.truth.probabilities, np.ones(case.model.layout.n, bool)
    moved = pi @ exact_matrix(broken, case.model.lower(), case.truth.states, free)
    assert np.abs(moved - pi).max() > 1e-3


def test_held_units_stay_and_the_conditional_is_invariant(x64):
    """Paths are longer than the free variables suffice for."""
    case = cases.make("labelled rbm")
    held = np.zeros(case.model.layout.n, bool)
    held[[0, 1, -1]] = True
    given = case.truth.given(held, case.truth.states[-1])
    matrix = exact_matrix(PathAuxiliary(2), case.model.lower(), given.states, ~held)
    flow = given.probabilities[:, None] * matrix
    np.testing.assert_allclose(flow, flow.T, atol=1e-12)


def oracle_path(log_weight, layout, start, end, order):
    """Log-probability of a path, one choice after the other, from differences of energies."""
    total, left = 0.0, list(range(len(layout.variables)))
    for v in order:
        odds = {}
        for u in left:
            for other in ends(layout, start, [u]):
                odds[u, tuple(other)] = np.exp(0.5 * (log_weight(other) - log_weight(start)))
        first, width = int(layout.variables.first[v]), int(layout.variables.width[v])
        one = start.copy()
        one[first : first + width] = end[first : first + width]
        total += np.log(odds[v, tuple(one)] / sum(odds.values()))
        left.remove(v)
    return total


@pytest.mark.parametrize("name", ["labelled rbm", "dense"])
def test_paths_have_the_probability_of_their_choices(x64, name):
    """The estimated gains of single changes are exact for pairwise models."""
    case = cases.make(name)
    p, states = case.model.lower(), case.truth.states
    free = np.ones(p.layout.n, bool)
    start, end, path, taken = all_paths(p.layout, states[3:4], free, 3)
    arrays = map(jnp.asarray, (start, end, np.broadcast_to(free, start.shape), path, taken))
    found = np.asarray(_paths(PathAuxiliary(2), p, *arrays)[0])
    weights = {tuple(s): w for s, w in zip(states, case.truth.log_weights, strict=True)}
    want = [
        oracle_path(lambda s: weights[tuple(s)], p.layout, a, b, order[on])
        for a, b, order, on in zip(start, end, path, taken, strict=True)
    ]
    np.testing.assert_allclose(found, want, atol=1e-10)


@pytest.mark.parametrize("name", ["labelled rbm", "dense"])
def test_compiled_steps_keep_draws_from_the_truth(name):
    """Fails by chance once in 10^5 runs a case; the broken kernel must fail."""
    case = cases.make(name)
    assert one_step_p_value(PathAuxiliary(2, updates=3), case) > cases.RATE
    assert one_step_p_value(Greedy(2, updates=3), case) < cases.RATE


def test_compiled_steps_keep_the_conditional():
    """Fails by chance once in 10^5 runs; without the mask units that are held would move."""
    case = cases.make("labelled rbm")
    held = np.arange(case.model.layout.n) == 0
    assert one_step_p_value(PathAuxiliary(2, updates=3), case, held=held) > cases.RATE


@pytest.mark.parametrize("length", [1, 4])
def test_every_number_of_changes_is_as_likely(length):
    """On a flat model every path is accepted: 1 to 2 length - 1 units change.

    Chi-squared of 14,000 paths at 1e-5; numbers from 1 to one less must fail.
    """
    most, x = 2 * length - 1, np.zeros((14_000, 9), np.float32)
    flat = Ising.from_spins(jnp.zeros((9, 9)), jnp.zeros(9))
    state, _ = step(PathAuxiliary(length), flat, x, np.ones(9, bool), jax.random.key(2))
    counts = np.bincount(np.asarray(state.x != x).sum(1), minlength=10)
    assert counts[1 : most + 1].sum() == len(x)
    if length > 1:
        assert stats.chisquare(counts[1 : most + 1]).pvalue > cases.RATE
        fewer = np.bincount(np.arange(len(x)) % (most - 1), minlength=most)
        assert stats.chisquare(fewer).pvalue < cases.RATE


@pytest.mark.slow
def test_adapted_paths_are_accepted_as_often_as_asked():
    model, start = uneven(), jnp.zeros((64, 30))
    before = run_chains(PathAuxiliary(12), model, start, samples=50, seed=1)
    found = PathAuxiliary(12).adapted(model, start, jax.random.key(0), target=0.8, steps=400)
    after = run_chains(*found[:1], model, found[1], samples=200, seed=1)
    assert float(before.info["accepted"].mean()) < 0.7
    assert 1 < found[0].length < 12
    assert abs(float(after.info["accepted"].mean()) - 0.8) < 0.05


def test_half_gains_of_free_variables_are_halves_of_their_differences(x64):
    """Without couplings slopes tell all: two binary units and two of three states."""
    layout, field = discrete(a=2, b=(2, 3)), np.random.default_rng(0).normal(size=8)
    p = FactorGraph.create(layout, [], jnp.asarray(field)).lower()
    x = np.array([[0.0, 1, 1, 0, 0, 0, 1, 0], [1, 0, 0, 0, 1, 1, 0, 0]])
    found = np.asarray(_half_gains(layout, place(p, jnp.asarray(x))))
    for chain, gains in zip(x, found, strict=True):
        own = {2: chain[2:5] @ field[2:5], 5: chain[5:] @ field[5:]}
        for unit in range(8):
            if unit < 2:
                wanted = (1 - 2 * chain[unit]) * field[unit]
            elif chain[unit]:
                assert gains[unit] < -1e8
                continue
            else:
                wanted = field[unit] - own[2 if unit < 5 else 5]
            assert gains[unit] == pytest.approx(wanted / 2)


def test_chains_may_have_several_axes(x64):
    model, key = cases.make("dense").model, jax.random.key(0)
    x = np.random.default_rng(0).integers(0, 2, (2, 3, 5)).astype(float)
    for kernel in (PathAuxiliary(2), GibbsWithGradients(), HammingBall()):
        apart, _ = step(kernel, model, x, np.ones(5, bool), key)
        flat, _ = step(kernel, model, x.reshape(6, 5), np.ones(5, bool), key)
        np.testing.assert_array_equal(apart.x, flat.x.reshape(2, 3, 5))


def test_refusals_say_what_is_wrong():
    for length in (0, 1.5):
        with pytest.raises(UndirectedError, match=rf"length is {length}"):
            PathAuxiliary(length)
    with pytest.raises(UndirectedError, match="PathAuxiliary: the states have shape"):
        step(PathAuxiliary(), cases.make("dense").model, np.zeros(3), np.ones(5), jax.random.key(0))
