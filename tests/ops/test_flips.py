"""Flips proposed by gradients: every form moves the chains as the definition of the method does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from undirected.models import Ising
from undirected.ops import flips as module
from undirected.ops.flips import flip_fused, flip_looped, flip_sites
from undirected.papers.pmp._common import SiteGibbs


def case(n=37, chains=5, updates=60, seed=0):
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.normal(size=(n, n)), 1)
    weight, bias = upper + upper.T, rng.normal(size=n)
    x, free = rng.integers(0, 2, (chains, n)), rng.random((chains, n)) < 0.8
    slope = x @ weight + bias
    uniform = rng.random((chains, updates, 2))
    floats = (jnp.asarray(a, jnp.float32) for a in (weight, slope, x))
    return (*floats, jnp.asarray(free), jnp.asarray(uniform, jnp.float32)), bias


def by_definition(args, bias, accept=True):
    """Metropolis-Hastings in NumPy: energies from scratch, proposals there and back normalised."""
    weight, _, x, free, uniform = (np.asarray(a, float) for a in args)
    x, accepted = x.copy(), np.zeros(len(x))

    def goodness(state):
        return 0.5 * state @ weight @ state + bias @ state

    def proposal(state, loose):
        gains = np.full(len(state), -np.inf)
        for i in np.flatnonzero(loose):
            other = state.copy()
            other[i] = 1 - other[i]
            gains[i] = goodness(other) - goodness(state)
        q = np.exp((gains - gains.max()) / 2)
        return q / q.sum()

    for chain, state in enumerate(x):
        for pick, level in uniform[chain]:
            q = proposal(state, free[chain])
            i = np.searchsorted(q.cumsum(), pick * q.cumsum()[-1], side="right")
            other = state.copy()
            other[i] = 1 - other[i]
            back = proposal(other, free[chain])
            ratio = np.exp(goodness(other) - goodness(state)) * back[i] / q[i]
            if level < ratio or not accept:
                state[:] = other
                accepted[chain] += 1
    return x, accepted


def fused(*args):
    return flip_fused(*args, interpret=True)


@pytest.mark.parametrize("flips", [flip_sites, flip_looped, fused])
def test_all_forms_follow_the_definition(flips):
    """37 sites: neither a multiple of a tile nor a power of two."""
    args, bias = case()
    x, accepted = jax.jit(flips)(*args)
    wanted, count = by_definition(args, bias)
    np.testing.assert_array_equal(x, wanted)
    np.testing.assert_array_equal(accepted, count)
    assert (count < args[-1].shape[1]).any()  # some were refused,
    assert (by_definition(args, bias, accept=False)[0] != wanted).any()  # and that matters


@pytest.mark.parametrize("flips", [flip_looped, fused])
def test_chains_follow_the_definition_down_a_steep_way(flips, monkeypatch):
    """From the first state to the last, sums fall by more than a number can hold."""
    (weight, slope, *rest), bias = case(updates=40)
    args, bias = (25 * weight, 25 * slope, *rest), 25 * bias
    x, accepted = jax.jit(flips)(*args)
    wanted, count = by_definition(args, bias)
    np.testing.assert_array_equal(x, wanted)
    np.testing.assert_array_equal(accepted, count)
    if flips is fused:
        monkeypatch.setattr(module, "LEAST", -1.0)
        assert (jax.jit(lambda *a: fused(*a))(*args)[0] != wanted).any()


@pytest.mark.parametrize("flips", [flip_looped, fused])
def test_sites_that_are_held_stay_even_when_all_are(flips):
    weight, slope, x, _, uniform = case()[0]
    site = int(jnp.abs(slope[0]).argmin())  # both of its states are likely
    free = jnp.zeros(x.shape, bool).at[0, site].set(True)
    got, accepted = jax.jit(flips)(weight, slope, x, free, uniform)
    np.testing.assert_array_equal(got[1:], x[1:])
    np.testing.assert_array_equal(jnp.delete(got[0], site), jnp.delete(x[0], site))
    assert accepted[0] > 0
    assert (accepted[1:] == 0).all()


@pytest.mark.parametrize("flips", [flip_looped, fused])
def test_steep_models_and_extreme_numbers_stay_in_range(flips):
    (weight, _, x, free, uniform), bias = case(updates=8)
    uniform = uniform.at[:, :4, 0].set(1 - 2**-24).at[:, 4:, 0].set(0.0).at[:, ::2, 1].set(0.0)
    steep = x @ (60 * weight) + 1000 * jnp.asarray(bias, jnp.float32)[None]
    got, accepted = jax.jit(flips)(60 * weight, steep, x, free, uniform)
    assert np.isin(got, [0, 1]).all()
    assert np.isfinite(accepted).all()
    np.testing.assert_array_equal(jnp.where(free, x, got), x)


def test_fused_form_takes_a_weight_for_every_model():
    (weight, slope, *rest), bias = case(20, 3)
    models = jnp.stack([weight, weight / 2])
    x = rest[0]
    slopes = jnp.stack([slope, x @ (weight / 2) + jnp.asarray(bias, jnp.float32)[None]])
    got, _ = jax.jit(jax.vmap(lambda w, s: fused(w, s, *rest)))(models, slopes)
    for one, start, states in zip(models, slopes, got, strict=True):
        np.testing.assert_array_equal(states, by_definition((one, start, *rest), bias)[0])


def test_a_gpu_gets_the_fused_kernel_and_nothing_else_does():
    traced = jax.jit(lambda *a: flip_sites(*a)).trace(*case(20, 3)[0])
    assert "triton" in traced.lower(lowering_platforms=("cuda",)).as_text()
    assert "triton" not in traced.lower(lowering_platforms=("cpu",)).as_text()


def test_site_by_site_gibbs_goes_round_where_it_stopped():
    """Two turns of 30 sites each on 37: a field that decides alone shows who was visited."""
    n = 37
    model, kernel = Ising(jnp.zeros((n, n)), jnp.full(n, 1000.0)), SiteGibbs(30)
    state = kernel.init(model, jnp.zeros((2, n)), jax.random.key(0))
    free = jnp.ones(n, bool).at[4].set(False)
    state, _ = kernel.step(model, state, free, jax.random.key(1))
    np.testing.assert_array_equal(state.x[0], (np.arange(n) < 30) & (np.arange(n) != 4))
    state, _ = kernel.step(model, state, free, jax.random.key(2))
    np.testing.assert_array_equal(state.x[1], np.arange(n) != 4)
    assert int(state.site) == 60 % n


def test_site_by_site_gibbs_sees_what_it_has_just_drawn():
    """A chain of strong couplings: each site follows the one before it."""
    n = 9
    couplings = 100 * (jnp.eye(n, k=1) + jnp.eye(n, k=-1))
    model = Ising(couplings, jnp.full(n, -50.0).at[0].set(1000.0))
    kernel = SiteGibbs(2 * n)
    state = kernel.init(model, jnp.zeros((4, n)), jax.random.key(0))
    state, _ = kernel.step(model, state, jnp.ones(n, bool), jax.random.key(1))
    assert (state.x == 1).all()
