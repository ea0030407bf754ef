"""Learning nonnegative models through the one loop, and inverting moments in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests import oracle as binary_oracle
from tests import rectified_oracle as oracle
from undirected.core.errors import NotFinite, UndirectedError
from undirected.core.graph import chain
from undirected.inference.quadrature import Quadrature
from undirected.inference.susceptibility import ImprovedSusceptibility, Susceptibility
from undirected.inference.tap import TAP
from undirected.learning import Batches, Persistent, TwoPhase, fit
from undirected.learning.moment_matching import ising as inverse_ising
from undirected.learning.moment_matching.rectified import inverse_susceptibility
from undirected.models.nonnegative import NonnegativeBM, sigma_points
from undirected.sampling.rectified import RectifiedGibbs


def data() -> np.ndarray:
    rng = np.random.default_rng(0)
    common = rng.normal(size=(400, 1))
    return np.abs(rng.normal(size=(400, 3)) + 0.5 * common + 0.5).astype(np.float32)


def moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return x.mean(0), x.T @ x / len(x)


@pytest.mark.slow
def test_gradient_with_exact_inference_is_the_difference_of_moments(x64):
    x = data().astype(np.float64)
    matrix = np.array([[1.0, 0.2, -0.1], [0.2, 1.2, 0.3], [-0.1, 0.3, 0.9]])
    m = NonnegativeBM.from_matrix(jnp.asarray(matrix), jnp.asarray([0.1, 0.4, -0.2]))
    objective = TwoPhase(Quadrature())

    def loss(m, batch):
        return objective(m, batch, None, jax.random.key(0))[0]

    truth = oracle.integrate(m.bias, m.matrix)
    first, second = moments(x)
    for batch in (jnp.asarray(x), sigma_points(x)):
        slope = jax.jit(jax.grad(loss))(m, batch)
        np.testing.assert_allclose(slope.bias, truth.means - first, atol=1e-8)
        wanted = 0.5 * (np.diag(second) - np.diag(truth.moments))
        np.testing.assert_allclose(slope.diagonal, wanted, atol=1e-8)
        pair = slope.weights[0, 1] + slope.weights[1, 0]
        assert float(pair) == pytest.approx(second[0, 1] - truth.moments[0, 1], abs=1e-8)


@pytest.mark.slow
def test_fit_matches_the_moments(key):
    """Exact learning of three units ends where the moments of model and data are the same."""
    x = data()
    start = NonnegativeBM.from_data(x)
    batches = Batches(np.asarray(sigma_points(x)), 6, shuffle=False)
    rate = optax.cosine_decay_schedule(0.1, 300, 0.01)
    m = fit(start, TwoPhase(Quadrature(nodes=60)), optax.adam(rate), batches, key, steps=300).model
    truth = oracle.integrate(m.bias, m.matrix)
    first, second = moments(x.astype(np.float64))
    np.testing.assert_allclose(truth.means, first, atol=5e-3)
    np.testing.assert_allclose(truth.moments, second, atol=2e-2)


@pytest.mark.slow
def test_persistent_chains_learn_too(key):
    x = data()
    start = NonnegativeBM.from_data(x)
    batches = Batches(x, 400, shuffle=False)
    rate = optax.cosine_decay_schedule(0.05, 300, 0.01)
    objective = Persistent(RectifiedGibbs(), chains=500)
    m = fit(start, objective, optax.adam(rate), batches, key, steps=300).model
    truth = oracle.integrate(m.bias, m.matrix)
    first, second = moments(x.astype(np.float64))
    np.testing.assert_allclose(truth.means, first, atol=0.05)
    np.testing.assert_allclose(truth.moments, second, atol=0.12)


@pytest.mark.slow
@pytest.mark.parametrize("improved", [True, False])
def test_inverse_susceptibility_inverts_the_inference(x64, improved):
    matrix = np.array([[1.0, 0.3, -0.2], [0.3, 1.4, 0.25], [-0.2, 0.25, 0.9]])
    m = NonnegativeBM.from_matrix(jnp.asarray(matrix), jnp.asarray([0.3, -0.5, 0.8]))
    infer = (
        ImprovedSusceptibility(tolerance=1e-12)
        if improved
        else Susceptibility(TAP(tolerance=1e-12))
    )
    b = infer(m.lower())
    own = jnp.diag(b.factors[0].weight - b.unary**2)
    covariance = b.covariance * (1 - jnp.eye(3)) + own
    W, bias = inverse_susceptibility(b.unary, covariance, improved=improved)
    np.testing.assert_allclose(W, matrix, atol=1e-6)
    np.testing.assert_allclose(bias, m.bias, atol=1e-6)


@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_damping_keeps_its_share_of_the_couplings_before(x64, damping):
    """From no couplings, which leave the cumulants diagonal, one round goes towards C^-1."""
    covariance = np.array([[0.5, 0.1, -0.05], [0.1, 0.4, 0.08], [-0.05, 0.08, 0.6]])
    mean = np.array([0.9, 0.8, 1.1])
    how = {"iterations": 1, "damping": damping}
    W, _ = inverse_susceptibility(jnp.asarray(mean), jnp.asarray(covariance), **how)
    off = ~np.eye(3, dtype=bool)
    wanted = (1 - damping) * np.linalg.inv(covariance)
    np.testing.assert_allclose(np.asarray(W)[off], wanted[off], atol=1e-9)


def spin_truth(scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Couplings and fields of five spins, with their exact means and covariances."""
    rng = np.random.default_rng(1)
    J = np.triu(rng.normal(size=(5, 5)), 1) * scale
    h = 0.5 * rng.normal(size=5)
    truth = binary_oracle.spins(J, h)
    s = 2 * truth.states - 1
    mean = truth.probabilities @ s
    return J + J.T, h, mean, (s * truth.probabilities[:, None]).T @ s - np.outer(mean, mean)


@pytest.mark.parametrize(
    ("method", "order"),
    [
        (inverse_ising.naive_mean_field, 2),
        (inverse_ising.tap, 3),
        (inverse_ising.independent_pairs, 2),
        (inverse_ising.sessak_monasson, 3),
    ],
)
def test_inverse_ising_errors_vanish_at_the_right_order(x64, method, order):
    errors = []
    for scale in (0.05, 0.0125):
        J, h, mean, covariance = spin_truth(scale)
        ours, field = method(jnp.asarray(mean), jnp.asarray(covariance))
        errors.append([np.abs(ours - J).max(), np.abs(field - h).max()])
    slopes = np.log(np.array(errors[0]) / np.array(errors[1])) / np.log(4)
    assert slopes[0] > order - 0.3
    assert slopes[1] > min(order, 2) - 0.3


def test_independent_pairs_are_exact_for_a_pair(x64):
    truth = binary_oracle.spins(np.array([[0, 0.7], [0, 0]]), np.array([0.3, -0.4]))
    s = 2 * truth.states - 1
    mean = truth.probabilities @ s
    covariance = (s * truth.probabilities[:, None]).T @ s - np.outer(mean, mean)
    J, h = inverse_ising.independent_pairs(jnp.asarray(mean), jnp.asarray(covariance))
    assert float(J[0, 1]) == pytest.approx(0.7, abs=1e-10)
    np.testing.assert_allclose(h, [0.3, -0.4], atol=1e-10)


@pytest.mark.parametrize("method", [inverse_ising.independent_pairs, inverse_ising.sessak_monasson])
def test_spins_without_fields_are_no_special_case(x64, method):
    """Their means are 0 exactly, and the table of a spin with itself has two empty cells."""
    covariance = jnp.array([[1.0, 0.2, 0.1], [0.2, 1.0, 0.05], [0.1, 0.05, 1.0]])
    J, h = method(jnp.zeros(3), covariance)
    wanted = np.arctanh(np.asarray(covariance) - np.eye(3))  # of two spins alone
    np.testing.assert_allclose(J, wanted, atol=0.03)
    assert not np.diag(J).any() and not h.any()


def test_spin_moments(x64):
    x = np.array([[0, 1], [1, 1], [1, 0], [1, 1]])
    mean, covariance = inverse_ising.spin_moments(x)
    np.testing.assert_allclose(mean, [0.5, 0.5])
    np.testing.assert_allclose(covariance, np.cov(2 * x.T - 1, ddof=0))


def test_frozen_spins_and_wrong_shapes_are_refused():
    with pytest.raises(NotFinite, match="never moves"):
        inverse_ising.tap(jnp.asarray([1.0, 0.0]), jnp.eye(2))
    with pytest.raises(UndirectedError, match=r"pass \(2, 2\)"):
        inverse_ising.naive_mean_field(jnp.zeros(2), jnp.eye(3))
    with pytest.raises(UndirectedError, match=r"pass \(2, 2\)"):
        inverse_susceptibility(jnp.ones(2), jnp.eye(3))


@pytest.mark.slow
def test_moment_matching_on_a_graph_by_improved_susceptibility(key):
    """The beliefs of the learned model carry the moments of the data."""
    x = data()
    infer = ImprovedSusceptibility(tolerance=1e-5, iterations=200)
    start = NonnegativeBM.from_data(x, chain(3))
    batches = Batches(np.asarray(sigma_points(x)), 6, shuffle=False)
    rate = optax.cosine_decay_schedule(0.1, 300, 0.01)
    m = fit(start, TwoPhase(infer), optax.adam(rate), batches, key, steps=300).model
    b = infer(m.lower())
    first, second = moments(x)
    np.testing.assert_allclose(b.unary, first, atol=2e-3)
    np.testing.assert_allclose(b.factors[0].weight, np.diag(second), atol=5e-3)
    np.testing.assert_allclose(b.factors[1].weight, [second[0, 1], second[1, 2]], atol=5e-3)
