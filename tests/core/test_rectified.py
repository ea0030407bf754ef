"""Rectified-normal numerics against quadrature, SciPy and exact limits, in both precisions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from tests import rectified_oracle as oracle
from undirected.core import rectified

POINTS = [
    -1e4,
    -300.0,
    -40.0,
    -9.0,
    -3.001,
    -2.999,
    -2.0,
    -1.001,
    -0.999,
    -1.0,
    -0.1,
    0.0,
    0.3,
    2.0,
    6.0,
    20.0,
]
FUNCTIONS = ("mean", "variance", "third", "spread")


def compare(dtype, rtol):
    for name in FUNCTIONS:
        ours = jax.jit(getattr(rectified, name))(jnp.asarray(POINTS, dtype))
        assert ours.dtype == dtype
        truth = np.array([oracle.standard(a)[name] for a in POINTS])
        floor = np.where(np.array(POINTS) > 0, rtol, 0.0)  # third cumulants vanish there
        error = np.abs(np.asarray(ours, np.float64) - truth)
        assert (error <= rtol * np.abs(truth) + floor).all(), (name, error / truth)


def test_cumulants_match_quadrature_in_float64(x64):
    compare(jnp.float64, 3e-10)


def test_cumulants_match_quadrature_in_float32():
    compare(jnp.float32, 1e-4)


def test_erfcx_matches_scipy(x64):
    x = np.concatenate([np.linspace(-20, 20, 401), [-26.0, 1e3, 1e8]])
    np.testing.assert_allclose(rectified.erfcx(jnp.asarray(x)), special.erfcx(x), rtol=1e-11)


def test_erfcx_in_float32():
    x = np.linspace(-9, 50, 300).astype(np.float32)
    np.testing.assert_allclose(
        rectified.erfcx(jnp.asarray(x)), special.erfcx(x.astype(np.float64)), rtol=3e-5
    )


@pytest.mark.parametrize("a", [-1e6, -1e15, 1e6])
def test_extremes_keep_their_limits(x64, a):
    m, s = float(rectified.mean(jnp.float64(a))), float(rectified.variance(jnp.float64(a)))
    assert m == pytest.approx(a if a > 0 else -1 / a, rel=1e-10)
    assert s == pytest.approx(1.0 if a > 0 else 1 / a**2, rel=1e-10)


def test_each_function_is_the_derivative_of_the_one_before(x64):
    chain = [rectified.log_mass, rectified.mean, rectified.variance, rectified.third]
    a = jnp.linspace(-12, 8, 41) + 0.01
    step = 1e-5 * jnp.maximum(1.0, abs(a))
    for f in chain:
        difference = (f(a + step) - f(a - step)) / (2 * step)
        np.testing.assert_allclose(jax.vmap(jax.grad(f))(a), difference, rtol=2e-6, atol=1e-9)


def test_gradients_are_finite_everywhere_in_float32():
    a = jnp.asarray([-1e8, -1e4, -40.0, -2.0, 0.0, 5.0, 40.0, 1e8], jnp.float32)
    for f in (rectified.log_mass, rectified.mean, rectified.variance, rectified.third):
        assert np.isfinite(jax.vmap(jax.grad(f))(a)).all()


def test_normaliser_and_cumulants_scale(x64):
    l, r = jnp.float64(1.3), jnp.float64(2.7)
    truth = oracle.integrate([1.3], [[2.7]], top=10.0)
    assert float(rectified.log_normaliser(l, r)) == pytest.approx(truth.log_z, abs=1e-12)
    c = rectified.cumulants(l, r)
    d = truth.nodes[:, 0] - truth.means[0]
    assert float(c.mean) == pytest.approx(truth.means[0], rel=1e-11)
    assert float(c.variance) == pytest.approx(truth.covariance[0, 0], rel=1e-11)
    assert float(c.third) == pytest.approx(truth.probabilities @ d**3, rel=1e-10)
    spread = truth.probabilities @ d**4 - truth.covariance[0, 0] ** 2
    assert float(c.spread) == pytest.approx(spread, rel=1e-10)


@pytest.mark.parametrize("a", [-1000.0, -40.0, -8.0, -5.0001, -4.9, 0.0, 3.0])
def test_quantile_inverts_the_survival_function(x64, a):
    upper = np.array([1e-12, 1e-6, 0.01, 0.3, 0.7, 0.99, 1 - 1e-7])
    y = np.asarray(rectified.quantile(jnp.full(upper.shape, a), jnp.asarray(upper)))
    log_survival = special.log_ndtr(a - y) - special.log_ndtr(a)
    # The subtraction itself loses a^2 / 2 ulps of the two logarithms.
    np.testing.assert_allclose(log_survival, np.log(upper), rtol=1e-9, atol=3e-15 * a * a + 1e-13)


@pytest.mark.parametrize("a", [-40.0, -5.1, -4.9, -1.0, 2.0])
def test_samples_pass_kolmogorov_smirnov(a, key):
    """Failure rate 1e-5 by chance; a sampler shifted by 3 % of its scale must fail."""
    x = np.asarray(rectified.draw(jnp.full(40_000, a * 1.5), jnp.full(40_000, 2.25), key), float)

    def survival(x):
        return np.exp(special.log_ndtr(a - 1.5 * x) - special.log_ndtr(a))

    assert (x >= 0).all()
    assert stats.kstest(x, lambda x: 1 - survival(x)).pvalue > 1e-5
    assert stats.kstest(1.03 * x, lambda x: 1 - survival(x)).pvalue < 1e-5


def test_from_moments_inverts(x64):
    l = jnp.asarray([-20.0, -1.0, 0.0, 2.0, 30.0])
    r = jnp.asarray([0.5, 1.0, 3.0, 2.0, 1.0])
    c = rectified.cumulants(l, r)
    found = rectified.from_moments(c.mean, c.variance + c.mean**2)
    np.testing.assert_allclose(found[0], l, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found[1], r, rtol=1e-6)
