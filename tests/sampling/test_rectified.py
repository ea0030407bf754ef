"""Samplers of rectified Gaussians against quadrature, both modes included, and each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tests import rectified_oracle as oracle
from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.graph import chain, grid
from undirected.models import Ising
from undirected.models.nonnegative import NonnegativeBM
from undirected.sampling.chain import run_chains
from undirected.sampling.hamiltonian import ExactHamiltonian, ReflectiveHamiltonian
from undirected.sampling.rectified import RectifiedGibbs

TWO_MODES = (np.array([2.0, 2.0]), np.array([[1.0, 1.5], [1.5, 1.0]]))
THREE = (
    np.array([0.5, -0.8, 1.0]),
    np.array([[1.0, 0.4, -0.3], [0.4, 1.3, 0.2], [-0.3, 0.2, 0.9]]),
)
CHAINS = 4000
GIBBS = RectifiedGibbs(sweeps=60)
BOUNCING = ReflectiveHamiltonian(step_size=0.5, leaps=6)


class Broken(RectifiedGibbs):
    """Draws every unit from its conditional, then rectifies a shifted copy of it."""

    def step(self, model, state, free, key):
        state, info = super().step(model, state, free, key)
        return type(state)(0.97 * state.x), info


def last_states(kernel, model, steps: int, key, chains: int = CHAINS) -> np.ndarray:
    """One state of many independent chains, long after their random starts."""
    result = run_chains(
        kernel, model, None, key, samples=1, chains=chains, burn_in=steps - 1, keep=True
    )
    return np.asarray(result.x[0], float)


def p_value(x: np.ndarray, bias: np.ndarray, matrix: np.ndarray) -> float:
    """Chi-squared test of x on a grid of cells with about equal mass along every unit."""
    truth = oracle.integrate(bias, matrix, top=9.0, panels=24, order=6)
    cuts = []
    for i in range(len(bias)):
        order = np.argsort(truth.nodes[:, i])
        mass = np.cumsum(truth.probabilities[order])
        cuts.append(np.interp(np.linspace(0, 1, 5)[1:-1], mass, truth.nodes[order, i]))
    share = np.zeros([4] * len(bias))
    # Cells cut through panels of the rule: their mass is taken from a finer Riemann sum.
    fine = np.linspace(0, 9, 181 if len(bias) == 3 else 1801)
    middle = 0.5 * (fine[1:] + fine[:-1])
    nodes = np.stack([a.ravel() for a in np.meshgrid(*[middle] * len(bias), indexing="ij")], 1)
    energy = 0.5 * ((nodes @ matrix) * nodes).sum(1) - nodes @ bias
    weight = np.exp(-energy - truth.log_z)
    cells = tuple(np.searchsorted(cuts[i], nodes[:, i]) for i in range(len(bias)))
    np.add.at(share, cells, weight)
    share /= share.sum()
    seen = np.zeros_like(share)
    np.add.at(seen, tuple(np.searchsorted(cuts[i], x[:, i]) for i in range(len(bias))), 1)
    keep = share * len(x) > 5
    expected = np.append(share[keep], share[~keep].sum()) * len(x)
    counted = np.append(seen[keep], seen[~keep].sum())
    full = expected > 0
    return float(
        stats.chisquare(
            counted[full], expected[full] * counted[full].sum() / expected[full].sum()
        ).pvalue
    )


def dense(case) -> NonnegativeBM:
    return NonnegativeBM.from_matrix(
        jnp.asarray(case[1], jnp.float32), jnp.asarray(case[0], jnp.float32)
    )


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(TWO_MODES, id="two modes"),
        pytest.param(THREE, id="three units", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    ("kernel", "steps"), [(GIBBS, 2), (BOUNCING, 120)], ids=["gibbs", "reflective"]
)
def test_goodness_of_fit(case, kernel, steps, key):
    """Failure rate 1e-5 by chance; states shrunk by 3 % must fail (below)."""
    x = last_states(kernel, dense(case), steps, key)
    assert (x >= 0).all()
    assert p_value(x, *case) > 1e-5


@pytest.mark.slow
def test_exact_hamiltonian_fits(key):
    x = last_states(ExactHamiltonian(), dense(THREE), 20, key)
    assert p_value(x, *THREE) > 1e-5


def test_both_modes_are_visited(key):
    x = last_states(GIBBS, dense(TWO_MODES), 2, key)
    truth = oracle.integrate(*TWO_MODES, top=9.0)
    wanted = truth.probabilities @ (truth.nodes[:, 0] > truth.nodes[:, 1])
    seen = (x[:, 0] > x[:, 1]).mean()
    assert abs(seen - wanted) < 4.5 * np.sqrt(0.25 / CHAINS)


@pytest.mark.slow
def test_a_broken_kernel_fails(key):
    x = last_states(Broken(sweeps=60), dense(TWO_MODES), 2, key, chains=20_000)
    assert p_value(x, *TWO_MODES) < 1e-5


@pytest.mark.slow
def test_chromatic_and_sequential_sweeps_agree(key):
    """The same chain of three units, on a graph and as a matrix."""
    weights = jnp.asarray([0.7, -0.3])
    sparse = NonnegativeBM.on_graph(chain(3), weights, jnp.ones(3), jnp.asarray([0.5, 0.2, -0.4]))
    x = last_states(GIBBS, sparse, 2, key)
    assert p_value(x, np.asarray(sparse.bias, float), np.asarray(sparse.matrix, float)) > 1e-5


@pytest.mark.slow
def test_samplers_agree_on_36_units(key):
    g = grid(6, 6)
    bias = jnp.asarray(np.random.default_rng(0).uniform(-0.4, 0.4, 36), jnp.float32)
    m = NonnegativeBM.on_graph(g, jnp.full(60, 0.8), jnp.ones(36), bias)
    a = last_states(RectifiedGibbs(sweeps=40), m, 2, key, chains=3000)
    slow = ReflectiveHamiltonian(step_size=0.15, leaps=20)
    b = last_states(slow, m, 150, jax.random.key(1), chains=3000)
    for f in (lambda x: x, np.square, lambda x: x[:, :-1] * x[:, 1:]):
        u, v = f(a), f(b)
        error = np.sqrt((u.var(0) + v.var(0)) / len(u))
        z = np.abs(u.mean(0) - v.mean(0)) / error
        assert z.max() < 5.1  # 36 two-sided tests at 1e-5 together


def test_held_units_stay(key):
    m = dense(THREE)
    free = jnp.asarray([True, False, True])
    x = jnp.asarray(np.random.default_rng(0).exponential(size=(5, 3)), jnp.float32)
    for kernel in (RectifiedGibbs(), BOUNCING):
        state, _ = kernel.step(m, kernel.init(m, x, key), free, key)
        np.testing.assert_array_equal(state.x[:, 1], x[:, 1])
        assert (np.asarray(state.x[:, 0]) != np.asarray(x[:, 0])).any()


def test_far_tails_stay_finite():
    """Conditional means 40 standard deviations below zero."""
    m = NonnegativeBM.from_matrix(jnp.eye(2), jnp.asarray([-40.0, 1.0]))
    x = last_states(RectifiedGibbs(sweeps=2), m, 2, jax.random.key(2))
    assert np.isfinite(x).all()
    assert x[:, 0].mean() == pytest.approx(1 / 40, rel=0.1)


def test_exact_hamiltonian_refuses_an_indefinite_matrix(key):
    with pytest.raises(UndirectedError, match="use ReflectiveHamiltonian"):
        ExactHamiltonian().init(dense(TWO_MODES), jnp.ones((2, 2)), key)


def test_other_models_are_refused(key):
    with pytest.raises(UnsupportedFactor, match="nonnegative"):
        RectifiedGibbs().init(Ising.create(3), jnp.ones((2, 3)), key)


def test_bad_settings_are_refused(key):
    with pytest.raises(UndirectedError, match="sweeps"):
        RectifiedGibbs(sweeps=0)
    with pytest.raises(UndirectedError, match="step_size"):
        ReflectiveHamiltonian(step_size=0.0)
    with pytest.raises(UndirectedError, match="3 units"):
        RectifiedGibbs().init(dense(THREE), jnp.ones((2, 4)), key)
