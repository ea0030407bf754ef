"""The message function and its friends, against float64 arithmetic done the plain way."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from undirected.core.numerics import (
    CERTAIN,
    binary_entropy,
    entropy,
    logsumexp,
    message,
    softplus,
    sum_softplus,
)


def plain_message(field, weight, temperature):
    field, weight = np.float64(field), np.float64(weight)
    if temperature == 0:
        return max(0.0, field + weight) - max(0.0, field)
    T = np.float64(temperature)
    return T * (np.logaddexp(0, (field + weight) / T) - np.logaddexp(0, field / T))


@pytest.mark.parametrize("temperature", [0, 0.1, 0.5, 1, 1.0, 2.0])
@pytest.mark.parametrize("weight", [-60.0, -3.0, -1e-4, 0.0, 1e-4, 2.0, 60.0])
@pytest.mark.parametrize("field", [-1000.0, -60.0, -1.0, 0.0, 0.3, 30.0, 1000.0])
def test_message_in_float32(field, weight, temperature):
    got = float(message(jnp.float32(field), jnp.float32(weight), temperature))
    want = plain_message(np.float32(field), np.float32(weight), temperature)
    assert got == pytest.approx(want, abs=2e-6 * max(1, abs(want)))


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_message_of_certain_units_is_exact(sign):
    weight = jnp.asarray([-60.0, 0.7, 60.0])
    got = message(jnp.full(3, sign * CERTAIN), weight)
    assert np.array_equal(got, weight if sign > 0 else jnp.zeros(3))


def test_message_gradients_are_finite_and_right():
    for field, weight in ((0.3, -1.2), (40.0, 5.0), (-1000.0, 60.0)):
        by_field, by_weight = jax.grad(message, (0, 1))(field, weight, 1.0)
        sigmoid = lambda a: 1 / (1 + np.exp(-a)) if a > -700 else 0.0  # noqa: E731
        assert float(by_weight) == pytest.approx(sigmoid(field + weight), abs=1e-6)
        assert float(by_field) == pytest.approx(sigmoid(field + weight) - sigmoid(field), abs=1e-6)


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_message_has_no_corners(temperature):
    """Where the weight or the field or both are 0, slopes are those of the softplus difference."""
    field, weight = (jnp.ravel(a) for a in jnp.meshgrid(*[jnp.array([-2.0, 0.0, 2.0])] * 2))
    slopes = jax.vmap(jax.grad(lambda f, w: message(f, w, temperature), (0, 1)))(field, weight)
    f, w = (np.asarray(a, float) / temperature for a in (field, weight))
    after, before = 1 / (1 + np.exp(-f - w)), 1 / (1 + np.exp(-f))
    np.testing.assert_allclose(slopes[0], after - before, atol=1e-6)
    np.testing.assert_allclose(slopes[1], after, atol=1e-6)


def test_a_learned_temperature_has_a_gradient(x64):
    at = lambda T: message(jnp.asarray(0.4), jnp.asarray(1.5), T)  # noqa: E731
    step = 1e-6
    slope = (plain_message(0.4, 1.5, 0.8 + step) - plain_message(0.4, 1.5, 0.8 - step)) / (2 * step)
    assert float(jax.grad(at)(0.8)) == pytest.approx(slope, abs=1e-8)


def test_softplus_and_logsumexp_at_temperatures(x64):
    x = jnp.asarray([-2.0, 0.0, 3.0])
    assert np.allclose(softplus(x, 0), [0, 0, 3])
    assert np.allclose(softplus(x, 0.5), 0.5 * np.log1p(np.exp(np.asarray(x) / 0.5)))
    assert float(logsumexp(x, 0)) == 3.0
    assert float(logsumexp(x, 2.0)) == pytest.approx(2 * np.log(np.exp(np.asarray(x) / 2).sum()))


def test_entropies_at_the_edges():
    assert np.array_equal(entropy(jnp.asarray([0.0, 1.0, -1e-9])), [0, 0, 0])
    assert np.allclose(binary_entropy(jnp.asarray([0.0, 0.5, 1.0])), [0, np.log(2), 0])
    assert np.isfinite(jax.grad(lambda p: entropy(p).sum())(jnp.asarray([0.5]))).all()


def test_this_jax_sums_products_right():
    """A compiler of some releases got sums after matrix products wrong: such a JAX is no use."""
    rng = np.random.default_rng(0)
    w, scale = rng.normal(size=(10, 4)), np.linspace(1, 0.02, 10)
    x = rng.integers(0, 2, (10, 500, 14)).astype(np.float32)

    def energy(beta, x):
        return -((x[:, :10] @ (beta * jnp.asarray(w, jnp.float32))) * x[:, 10:]).sum(-1)

    got = jax.jit(lambda x: jax.vmap(energy)(jnp.asarray(scale, jnp.float32), x))(jnp.asarray(x))
    wanted = -np.einsum("bcv,b,vh,bch->bc", x[..., :10], scale, w, x[..., 10:])
    np.testing.assert_allclose(got, wanted, atol=1e-4)


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 500])
def test_softplus_summed_along_the_last_axis(n):
    x = np.random.default_rng(n).normal(scale=8.0, size=(3, 4, n)).astype(np.float32)
    found, slope = jax.value_and_grad(lambda x: (2.0 * sum_softplus(x)).sum())(jnp.asarray(x))
    exact = np.logaddexp(0, x.astype(np.float64)).sum(-1)
    np.testing.assert_allclose(sum_softplus(jnp.asarray(x)), exact, rtol=3e-7, atol=1e-6 * n)
    np.testing.assert_allclose(found, 2 * exact.sum(), rtol=1e-6)
    np.testing.assert_allclose(slope, 2 / (1 + np.exp(-x.astype(np.float64))), rtol=1e-6)


def test_summed_softplus_of_what_is_large_and_of_what_is_no_number():
    x = jnp.array([[1e9, 1.0], [-1e9, 0.0], [jnp.inf, 0.0], [-jnp.inf, 0.0], [jnp.nan, 0.0]])
    found, two = np.asarray(sum_softplus(x)), np.log(2)
    np.testing.assert_allclose(found, [1e9, two, np.inf, two, np.nan], rtol=1e-6)
    assert (sum_softplus(jnp.zeros((2, 1000))) > 690).all()  # a product of all would overflow
    slope = jax.grad(lambda x: sum_softplus(x).sum())(x[:4])
    np.testing.assert_allclose(slope[:, 0], [1, 0, 1, 0])


def test_summed_softplus_has_all_derivatives(x64):
    x = jnp.linspace(-3.0, 3.0, 5)
    second = jax.hessian(sum_softplus)(x)
    on = 1 / (1 + np.exp(-np.asarray(x)))
    np.testing.assert_allclose(second, np.diag(on * (1 - on)), atol=1e-12)
