"""Goodness of fit of compiled Gibbs steps at failure rate 1e-5; broken kernels must fail it."""

import jax
import numpy as np
import pytest

from tests.sampling import cases
from tests.sampling.kernels import BROKEN, StaleBlocks, StaleSites, merged_colours, step, wrong_sign
from undirected.sampling import BlockGibbs, Gibbs


def one_step_p_value(kernel, case, model) -> float:
    """Draws from the truth must still be draws from it after one step."""
    x = cases.exact_draws(case.truth, 50_000, seed=5).astype(np.float32)
    state, _ = step(kernel, model, x, np.ones(x.shape[1], bool), jax.random.key(6))
    return cases.p_value(case.truth, state.x)


SHORT = [
    (BlockGibbs(), "labelled rbm"),
    (Gibbs(), "labelled rbm"),
    (Gibbs(), "dense"),
    (Gibbs(), "cycle of three colours"),
    (Gibbs(), "odd torus"),
    (Gibbs(), "lateral"),
]


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(("kernel", "name"), SHORT, ids=str)
def test_one_step_keeps_draws_from_the_truth(kernel, name, backward):
    case = cases.make(name)
    kernel = kernel.reversed() if backward else kernel
    assert one_step_p_value(kernel, case, case.model) > cases.RATE


@pytest.mark.parametrize(
    ("kernel", "name", "breaking"), [*BROKEN, (Gibbs(), "odd torus", merged_colours)]
)
def test_one_step_of_broken_kernels_is_caught(kernel, name, breaking):
    case = cases.make(name)
    assert one_step_p_value(kernel, case, breaking(case.model)) < cases.RATE


def many_sweeps_p_value(kernel, case, model, clamped=None) -> float:
    """Chains from anywhere, after many sweeps, are draws from the truth (given what is clamped)."""
    n = case.model.layout.n
    clamped = np.zeros(n, bool) if clamped is None else clamped
    evidence = case.truth.states[len(case.truth.states) // 3]
    x = cases.random_states(case.order, (10_000,), np.random.default_rng(10)).astype(np.float32)
    x[:, clamped] = evidence[clamped]
    state, _ = step(kernel, model, x, ~clamped, jax.random.key(11))
    assert (np.asarray(state.x)[:, clamped] == evidence[clamped]).all()
    return cases.p_value(case.truth.given(clamped, evidence), state.x)


LONG = [
    (BlockGibbs(sweeps=40), "labelled rbm"),
    (Gibbs(sweeps=40), "dense"),
    (Gibbs(sweeps=40), "odd torus"),
    (Gibbs(sweeps=40), "lateral"),
]


@pytest.mark.parametrize(("kernel", "name"), LONG, ids=str)
def test_many_sweeps_reach_the_truth(kernel, name):
    case = cases.make(name)
    assert many_sweeps_p_value(kernel, case, case.model) > cases.RATE


@pytest.mark.parametrize(("kernel", "name"), LONG, ids=str)
def test_clamped_chains_reach_the_conditional(kernel, name):
    case = cases.make(name)
    clamped = np.zeros(case.model.layout.n, bool)
    clamped[[1, -1]] = True
    assert many_sweeps_p_value(kernel, case, case.model, clamped) > cases.RATE


@pytest.mark.parametrize(
    ("kernel", "name", "breaking"),
    [
        (StaleBlocks(sweeps=40), "rbm", lambda m: m),
        (StaleSites(sweeps=40), "dense", lambda m: m),
        (Gibbs(sweeps=40), "odd torus", merged_colours),
        (Gibbs(sweeps=40), "lateral", wrong_sign),
    ],
)
def test_many_sweeps_of_broken_kernels_are_caught(kernel, name, breaking):
    case = cases.make(name)
    assert many_sweeps_p_value(kernel, case, breaking(case.model)) < cases.RATE
