"""Gibbs sweeps as functions of their noise: exact transition matrices, a reference sweep."""

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest

from tests.sampling import cases
from tests.sampling.kernels import each_broken, each_kernel, noise_driven
from undirected.core import graph
from undirected.models import RBM, Ising
from undirected.ops import sequential
from undirected.sampling import BlockGibbs, Gibbs


def exact_matrix(kernel, case, model=None):
    sweep = noise_driven(kernel, case.model if model is None else model)
    states = case.truth.states
    return cases.transition_matrix(sweep, states, states, case.order)


@cache
def matrix_of(kernel, name):
    return exact_matrix(kernel, cases.make(name))


@each_kernel
def test_transition_matrix_leaves_the_truth_invariant(x64, kernel, name):
    case = cases.make(name)
    matrix = matrix_of(kernel, name)
    np.testing.assert_allclose(matrix.sum(1), 1.0, atol=1e-12)
    pi = case.truth.probabilities
    np.testing.assert_allclose(pi @ matrix, pi, atol=1e-12)


@each_broken
def test_transition_matrix_of_broken_kernels_moves_the_truth(x64, kernel, name, breaking):
    case = cases.make(name)
    pi = case.truth.probabilities
    moved = pi @ exact_matrix(kernel, case, breaking(case.model))
    assert np.abs(moved - pi).max() > 1e-3


@each_kernel
def test_reversed_is_the_time_reversal(x64, kernel, name):
    """pi(x) P(x, y) = pi(y) Q(y, x), and reversing twice is the kernel itself."""
    case = cases.make(name)
    flow = case.truth.probabilities[:, None] * matrix_of(kernel, name)
    back = case.truth.probabilities[:, None] * matrix_of(kernel.reversed(), name)
    np.testing.assert_allclose(flow, back.T, atol=1e-12)
    assert kernel.reversed().reversed() == kernel


def test_a_sweep_is_not_its_own_reversal(x64):
    case = cases.make("dense")
    flow = case.truth.probabilities[:, None] * matrix_of(Gibbs(), "dense")
    assert np.abs(flow - flow.T).max() > 1e-3


@each_kernel
def test_clamped_transition_matrix_leaves_the_conditional_invariant(x64, kernel, name):
    case = cases.make(name)
    clamped = np.zeros(case.model.layout.n, bool)
    clamped[-1] = clamped[0] = True
    given = case.truth.given(clamped, case.truth.states[-1])
    sweep = noise_driven(kernel, case.model, ~clamped)
    variables = [v for v in case.order if not clamped[v].any()]
    matrix = cases.transition_matrix(sweep, given.states, given.states, variables)
    pi = given.probabilities
    np.testing.assert_allclose(matrix.sum(1), 1.0, atol=1e-12)
    np.testing.assert_allclose(pi @ matrix, pi, atol=1e-12)


def larger_case(name: str) -> cases.Case:
    return {
        "dense of 37": lambda: larger(Ising(normal((37, 37)), normal(37)), range(37)),
        "dense of 16": lambda: larger(Ising(normal((16, 16)), normal(16)), range(16)),
        "torus": lambda: larger_sparse(graph.torus(4, 5)),
        "star without a table": lambda: larger_sparse(
            graph.from_edges(40, [(0, i) for i in range(1, 40)])
        ),
        "complete": lambda: larger_sparse(graph.complete(9)),
        "labelled rbm": lambda: cases.rbm(pixels=4, labels=3, hidden=3),
        "lateral": cases.lateral,
    }[name]()


def normal(shape):
    return jnp.asarray(np.random.default_rng(7).normal(size=shape))


def larger(model, sites) -> cases.Case:
    return cases.Case(model, None, [slice(i, i + 1) for i in sites])


def larger_sparse(wiring) -> cases.Case:
    sites = [int(i) for i in np.asarray(wiring.colours).ravel() if i < wiring.n]
    return larger(Ising(normal(wiring.n_edges), normal(wiring.n), wiring), sites)


LARGER = [
    (Gibbs(), "dense of 37"),
    (Gibbs(), "dense of 16"),
    (Gibbs(), "torus"),
    (Gibbs(), "star without a table"),
    (Gibbs(), "complete"),
    (Gibbs(), "labelled rbm"),
    (Gibbs(), "lateral"),
    (BlockGibbs(), "labelled rbm"),
]


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("clamping", [False, True])
@pytest.mark.parametrize(("kernel", "name"), LARGER, ids=str)
def test_sweep_follows_the_reference(x64, kernel, name, backward, clamping):
    case = larger_case(name)
    model, n = case.model, case.model.layout.n
    rng = np.random.default_rng(8)
    x = cases.random_states(case.order, (2, 3), rng)
    noise = rng.logistic(size=x.shape)
    free = rng.random(n) < 0.7 if clamping else np.ones(n, bool)
    for where in case.order:
        free[where] = free[where].all()
    kernel = kernel.reversed() if backward else kernel
    order = case.order[::-1] if backward else case.order
    got = noise_driven(kernel, model, free)(x, noise)
    log_weight = _log_weight(model)
    for chain in np.ndindex(2, 3):
        wanted = cases.reference_sweep(log_weight, order, x[chain], free, noise[chain])
        np.testing.assert_array_equal(got[chain], wanted)


def _log_weight(model):
    """-E(x) of one state in NumPy."""
    if isinstance(model, Ising):
        bias, w = np.asarray(model.bias), np.asarray(model.weights)
        if model.graph is not None:
            i, j = np.asarray(model.graph.edges).T
            return lambda x: float(bias @ x + (w * x[i] * x[j]).sum())
        upper = np.triu(0.5 * (w + w.T), 1)
        return lambda x: float(bias @ x + x @ upper @ x)
    if isinstance(model, RBM):
        parts = model.weights, model.visible_bias, model.hidden_bias
        w, b, c = (np.asarray(a) for a in parts)
        return lambda x: float(x[: len(b)] @ (w @ x[len(b) :] + b) + x[len(b) :] @ c)
    inside, plain = np.triu(np.asarray(model.lateral), 1), _log_weight(model.rbm)
    return lambda x: plain(x) + float(x[: len(inside)] @ inside @ x[: len(inside)])


@pytest.mark.parametrize("n", [2, 4, 6])
def test_tiles_that_do_not_divide_the_sites(x64, monkeypatch, n):
    """The remainder of the last tile is visited once, in its place, in both directions."""
    monkeypatch.setattr(sequential, "TILE", 3)
    model = Ising(normal((n, n)), normal(n))
    rng = np.random.default_rng(2)
    x = cases.random_states([slice(i, i + 1) for i in range(n)], (40,), rng)
    noise = rng.logistic(size=x.shape)
    for kernel, sites in ((Gibbs(), range(n)), (Gibbs().reversed(), reversed(range(n)))):
        order = [slice(i, i + 1) for i in sites]
        got = noise_driven(kernel, model)(x, noise)
        for chain in range(40):
            wanted = cases.reference_sweep(
                _log_weight(model), order, x[chain], np.ones(n, bool), noise[chain]
            )
            np.testing.assert_array_equal(got[chain], wanted)
