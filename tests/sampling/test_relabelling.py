"""Samplers favour no state: the relabelled model with the noise turned around mirrors the draws."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.relabelled import PAIRS, dense_weights, turned
from undirected.core.potentials import shift
from undirected.inference import MPLP, Exact, LinearProgram, MaxProduct
from undirected.ops import lattice
from undirected.ops.flips import flip_fused, flip_looped
from undirected.ops.sequential import scan_fused, scan_tiled
from undirected.sampling import BlockGibbs, Gibbs, PerturbAndMap
from undirected.sampling.adjusted import place
from undirected.sampling.gibbs_with_gradients import log_proposal, propose

pytestmark = pytest.mark.usefixtures("x64")


def start(n: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """States of six chains, which of their units are free, and logistic noise."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (6, n)).astype(float)
    return (
        jnp.asarray(x),
        jnp.asarray(rng.random((6, n)) < 0.8),
        jnp.asarray(rng.logistic(size=x.shape)),
    )


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("name", ["dense", "torus", "rbm gentle", "factor graph"])
def test_gibbs_sweeps(name, backward):
    pair = PAIRS[name]()
    x, free, noise = start(pair.model.layout.n)
    kernel = Gibbs(backward=backward)
    sweep = jax.jit(lambda p, *a: kernel.sweep(p, *a))
    here = sweep(pair.model.lower(), x, free, noise)
    there = sweep(pair.relabelled.lower(), 1 - x, free, -noise)
    np.testing.assert_array_equal(there, 1 - here)
    assert (here != x).any()
    assert not np.array_equal(sweep(pair.relabelled.lower(), 1 - x, free, noise), 1 - here)


def test_block_gibbs_sweeps():
    pair = PAIRS["rbm gentle"]()
    x, free, noise = start(9)
    here = BlockGibbs().sweep(pair.model, x, free, noise)
    np.testing.assert_array_equal(
        BlockGibbs().sweep(pair.relabelled, 1 - x, free, -noise), 1 - here
    )


@pytest.mark.parametrize("name", ["dense", "torus", "rbm gentle", "factor graph"])
def test_gibbs_with_gradients_proposes_and_accepts_alike(name):
    pair = PAIRS[name]()
    x, free, _ = start(pair.model.layout.n)
    unit = jnp.arange(6) % x.shape[1]

    @jax.jit
    def moves(p, x):
        now = place(p, x)
        moved, log_ratio = propose(p, now, free, unit)
        return log_proposal(p.layout, now, free), moved.x, log_ratio

    here, there = moves(pair.model.lower(), x), moves(pair.relabelled.lower(), 1 - x)
    np.testing.assert_allclose(there[0], here[0], atol=1e-9)
    np.testing.assert_array_equal(there[1], 1 - here[1])
    np.testing.assert_allclose(there[2], here[2], atol=1e-8)


@pytest.mark.parametrize(
    "form", [flip_looped, partial(flip_fused, interpret=True)], ids=["looped", "fused"]
)
def test_flips_of_dense_models(form):
    w, (fields,) = dense_weights(7, 12, 12)
    (other,) = turned(w, [fields])
    x, free, _ = (np.asarray(a, np.float32) for a in start(12))
    uniform = np.random.default_rng(1).random((6, 20, 2), np.float32)
    found = [
        form(*map(jnp.asarray, (w, (f + s @ w).astype(np.float32), s, free > 0, uniform)))
        for f, s in ((fields, x), (other, 1 - x))
    ]
    np.testing.assert_array_equal(found[1][0], 1 - found[0][0])
    np.testing.assert_array_equal(found[1][1], found[0][1])
    assert float(found[0][1].sum()) > 0


@pytest.mark.parametrize(
    "form", [scan_tiled, partial(scan_fused, interpret=True)], ids=["tiled", "fused"]
)
def test_scans_of_dense_models(form):
    w, (fields,) = dense_weights(8, 20, 20)
    (other,) = turned(w, [fields])
    x, free, noise = start(20)
    x, noise = (jnp.asarray(a, jnp.float32) for a in (x, noise))
    one = lambda f: jnp.broadcast_to(jnp.float32(f), x.shape)  # noqa: E731
    here = form(jnp.asarray(w), one(fields), x, free, noise)
    there = form(jnp.asarray(w), one(other), 1 - x, free, -noise)
    np.testing.assert_array_equal(there, 1 - here)


def test_spins_in_words_have_mirrored_probabilities():
    """32 bits of sigmoid(f) and of sigmoid(-f) add up to 1, but for single precision."""
    fields = jnp.asarray([-3.0, -0.4, 0.0, 0.7, 2.0], jnp.float32)
    power = 2.0 ** np.arange(32)
    up, down = (
        ((np.asarray(lattice._probability_bits(sign * fields)) & 1) * power).sum(1)
        for sign in (1, -1)
    )
    np.testing.assert_allclose(up + down, 2.0**32, rtol=2e-7)


@pytest.mark.parametrize(
    "infer",
    [MaxProduct(5, None), Exact(0.0), MPLP(), LinearProgram("cut")],
    ids=lambda i: type(i).__name__,
)
@pytest.mark.parametrize("name", ["torus", "rbm gentle"])
def test_perturbed_maxima(name, infer):
    pair = PAIRS[name]()
    noise = start(pair.model.layout.n)[2]
    sampler, key = PerturbAndMap(infer), jax.random.key(0)
    here = sampler.solve(shift(pair.model.lower(), noise), key)
    there = sampler.solve(shift(pair.relabelled.lower(), -noise), key)
    np.testing.assert_array_equal(there.x, 1 - here.x)
    total = pair.constant + noise.sum(1)
    np.testing.assert_allclose(here.log_z, there.log_z + total, atol=1e-8)
