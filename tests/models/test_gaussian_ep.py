"""The Gaussian RBM: energies, free energy, expectation propagation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import oracle
from undirected.io.model_files import load_model, save_model
from undirected.models import GaussianRBM

NOISE = 1e-3


def make(V, H, seed=0):
    rng = np.random.default_rng(seed)
    parts = 0.6 * rng.normal(size=(V, H)), rng.normal(size=V), rng.normal(size=H)
    return GaussianRBM(*map(jnp.asarray, parts)), parts


def test_energy_and_free_energy(x64):
    model, (w, b, c) = make(4, 3)
    v = np.random.default_rng(1).normal(size=4)
    h = oracle.binary_states(3)
    wanted = 0.5 * ((v - b) ** 2).sum() - h @ c - h @ (v @ w)
    x = jnp.asarray(np.concatenate([np.tile(v, (8, 1)), h], 1))
    np.testing.assert_allclose(model.energy(x), wanted, atol=1e-12)
    np.testing.assert_allclose(model.free_energy(v), -np.log(np.exp(-wanted).sum()), atol=1e-12)


def test_one_hidden_unit_is_answered_exactly(x64):
    """A tree: mean and variance of each target are those of the true mixture of two Gaussians."""
    model, (w, b, c) = make(4, 1, 2)
    v, seen = np.array([0.5, -1.0, 0.0, 0.0]), np.array([True, True, False, False])
    ask = jax.jit(lambda v, seen: model.answer(v, seen, 3, NOISE))
    mean, variance = (np.asarray(a)[0] for a in ask(jnp.asarray(v)[None], jnp.asarray(seen)[None]))
    centre, spread = np.where(seen, v, b), np.where(seen, NOISE, 1.0)
    w = w[:, 0]
    p = 1 / (1 + np.exp(-(c[0] + (w * centre + 0.5 * spread * w**2).sum())))
    np.testing.assert_allclose(mean, centre + p * spread * w, atol=1e-10)
    np.testing.assert_allclose(variance, spread + p * (1 - p) * (spread * w) ** 2, atol=1e-10)


def test_more_layers_than_a_stretch_and_gradients(x64):
    """Any number of layers: the same as sweeps written out, and a gradient by differences."""
    model, (w, _, _) = make(3, 2, 3)
    v = jnp.array([[0.3, -0.2, 0.9]])
    seen = jnp.array([[True, False, False]])

    @jax.jit
    def loss(weights):
        mean, variance = GaussianRBM(weights, *parts).answer(v, seen, 7)
        return (mean + variance).sum()

    parts = model.visible_mean, model.hidden_bias
    wanted = oracle.finite_difference(lambda w: float(loss(jnp.asarray(w))), w.copy())
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(jnp.asarray(w)), wanted, atol=1e-6)


def test_answers_stay_proper_with_strong_weights():
    model, _ = make(20, 10)
    strong = GaussianRBM(20 * model.weights, model.visible_mean, model.hidden_bias)
    seen = jnp.zeros((1, 20), bool).at[0, :5].set(True)
    mean, variance = jax.jit(lambda: strong.answer(jnp.ones((1, 20)), seen, 10))()
    assert bool(jnp.isfinite(mean).all()) and bool((variance > 0).all())


def test_model_files_and_shapes(tmp_path, key):
    model = GaussianRBM.create(5, 3, key)
    save_model(tmp_path / "model", model)
    back = load_model(tmp_path / "model")
    np.testing.assert_array_equal(back.weights, model.weights)
    with pytest.raises(ValueError, match="visible x hidden"):
        GaussianRBM(jnp.zeros((2, 3)), jnp.zeros(3), jnp.zeros(3))
