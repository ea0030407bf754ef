"""Discrete Langevin moves: exact transition matrices, one compiled step, broken twins."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.sampling import cases
from tests.sampling.kernels import step
from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.potentials import clamp
from undirected.models import FactorGraph
from undirected.sampling import DiscreteLangevin
from undirected.sampling.dmala import log_proposal, proposal

NAMES = ["rbm", "labelled rbm", "dense", "path", "labelled lateral"]
DRAWS = 20_000


@dataclass(frozen=True)
class Unadjusted(DiscreteLangevin):
    """Broken: every proposal is accepted."""

    def log_ratio(self, p, x, moved, free):
        return jnp.zeros(len(x), x.dtype)


@dataclass(frozen=True)
class OneWay(DiscreteLangevin):
    """Broken: the way back is taken for as likely as the way there."""

    def log_ratio(self, p, x, moved, free):
        there, back = (proposal(p, a, self.step_size) for a in (x, moved))
        way = log_proposal(p.layout, there, moved, free) - log_proposal(p.layout, back, x, free)
        return super().log_ratio(p, x, moved, free) + way


@eqx.filter_jit
def _moves(kernel, p, x, moved, free):
    odds = proposal(p, x, kernel.step_size)
    return log_proposal(p.layout, odds, moved, free), kernel.log_ratio(p, x, moved, free)


def exact_matrix(kernel, p, states, free=None):
    """P[start, end]: proposed and accepted, or else nothing happens."""
    S, n = states.shape
    free = np.ones((S * S, n), bool) if free is None else np.broadcast_to(free, (S * S, n))
    x, moved = np.repeat(states, S, 0), np.tile(states, (S, 1))
    there, ratio = (np.asarray(a) for a in _moves(kernel, p, *map(jnp.asarray, (x, moved, free))))
    proposed = np.exp(there).reshape(S, S)
    np.testing.assert_allclose(proposed.sum(1), 1, atol=1e-10)
    matrix = proposed * np.exp(np.minimum(ratio, 0)).reshape(S, S)
    matrix[np.arange(S), np.arange(S)] += 1 - matrix.sum(1)
    return matrix


@pytest.mark.parametrize("step_size", [0.2, 2.0])
@pytest.mark.parametrize("name", NAMES)
def test_transition_matrix_is_reversible(x64, name, step_size):
    case = cases.make(name)
    matrix = exact_matrix(DiscreteLangevin(step_size), case.model.lower(), case.truth.states)
    assert (matrix > 0).all()
    flow = case.truth.probabilities[:, None] * matrix
    np.testing.assert_allclose(flow, flow.T, atol=1e-12)


@pytest.mark.parametrize("broken", [Unadjusted(2.0), OneWay(2.0)])
@pytest.mark.parametrize("name", ["labelled rbm", "dense"])
def test_transition_matrix_of_broken_kernels_moves_the_truth(x64, name, broken):
    case = cases.make(name)
    pi = case.truth.probabilities
    moved = pi @ exact_matrix(broken, case.model.lower(), case.truth.states)
    assert np.abs(moved - pi).max() > 1e-3


def test_held_units_stay_and_the_conditional_is_invariant(x64):
    case = cases.make("labelled rbm")
    held = np.zeros(case.model.layout.n, bool)
    held[[0, -1]] = True
    given = case.truth.given(held, case.truth.states[-1])
    matrix = exact_matrix(DiscreteLangevin(), case.model.lower(), given.states, ~held)
    np.testing.assert_allclose(given.probabilities @ matrix, given.probabilities, atol=1e-12)


def one_step_p_value(kernel, case):
    x = cases.exact_draws(case.truth, DRAWS, 0)
    free = np.ones(case.model.layout.n, bool)
    state, info = step(kernel, case.model, x, free, jax.random.key(1))
    assert 0 < float(info["accepted"].mean()) <= 1
    assert (np.asarray(state.x) != x).any(1).mean() > 0.05
    return cases.p_value(case.truth, np.asarray(state.x))


@pytest.mark.parametrize("name", ["labelled rbm", "dense"])
def test_compiled_steps_keep_draws_from_the_truth(name):
    """Fails by chance once in 10^5 runs a case; the broken kernel must fail."""
    case = cases.make(name)
    assert one_step_p_value(DiscreteLangevin(2.0, updates=3), case) > cases.RATE
    assert one_step_p_value(Unadjusted(2.0, updates=3), case) < cases.RATE


def test_evidence_in_potentials_is_obeyed(x64):
    case = cases.make("dense")
    held = np.array([True, False, False, False, False])
    p = clamp(case.model.lower(), jnp.asarray(held), jnp.ones(5))
    model = FactorGraph(p.unary, p.factors, p.offset, p.layout)
    model = eqx.tree_at(lambda m: m.unary, model, p.fields)
    x = np.concatenate([np.zeros((50, 1)), np.ones((50, 4))], 1)
    kernel = DiscreteLangevin(updates=20)
    state, _ = step(kernel, model, x, np.ones(5, bool), jax.random.key(0))
    assert (np.asarray(state.x)[:, 0] == 1).all()


def test_refusals_say_what_is_wrong():
    with pytest.raises(UndirectedError, match="step_size is 0"):
        DiscreteLangevin(0.0)
    with pytest.raises(UndirectedError, match="updates 0"):
        DiscreteLangevin(updates=0)
    case = cases.make("dense")
    with pytest.raises(UndirectedError, match=r"shape \(3,\).*5"):
        DiscreteLangevin().init(case.model, jnp.zeros(3), jax.random.key(0))
    with pytest.raises(UnsupportedFactor, match="int does not lower"):
        DiscreteLangevin().init(3, jnp.zeros(3), jax.random.key(0))
    assert DiscreteLangevin().reversed() == DiscreteLangevin()
