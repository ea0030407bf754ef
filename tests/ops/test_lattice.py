"""Spins in words against a plain sweep with the same random bits, and against the distribution."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from undirected.core import graph
from undirected.core.random import random_words
from undirected.models import Ising
from undirected.ops import lattice
from undirected.sampling import Gibbs, init_state

RATE = 1e-5


def uniforms(key, rows: int, half: int, groups: int) -> np.ndarray:
    """32-bit uniform numbers (32, rows, half, groups), by the small generator in NumPy."""
    lower, upper = random_words(key, (rows, half * groups))
    shape = (rows, half, groups)
    a = np.zeros(shape, np.uint32)
    b, c = (np.asarray(words).reshape(shape) for words in (lower, upper))
    numbers = np.zeros((32, *shape), np.uint64)
    for count in range(1, lattice.WARM_UP + lattice.DIGITS + 1):
        word = a + b + np.uint32(count)
        a, b = b ^ (b >> np.uint32(9)), c + (c << np.uint32(3))
        c = (c << np.uint32(21) | c >> np.uint32(11)) + word
        digit = count - lattice.WARM_UP - 1
        if digit >= 0:
            bits = word[None] >> np.arange(32, dtype=np.uint32)[:, None, None, None] & 1
            numbers += bits.astype(np.uint64) << np.uint64(digit)
    return numbers


def plain_sweeps(x, free, weight, bias, key, sweeps, backward):
    """One site after the other, with the numbers that belong to it."""
    x = np.array(x)
    chains, rows, cols = x.shape
    strips = chains % 32 != 0
    height, groups = (rows // 32, chains) if strips else (rows, chains // 32)
    for i in range(2 * sweeps):
        colour = (i + backward) % 2
        u = uniforms(jax.random.fold_in(key, i), height, cols // 2, groups)
        for k, r, c in itertools.product(range(chains), range(rows), range(cols)):
            if (r + c) % 2 != colour or not free[k, r, c]:
                continue
            near = x[k, r - 1, c] + x[k, (r + 1) % rows, c] + x[k, r, c - 1]
            near += x[k, r, (c + 1) % cols]
            p = np.float32(1 / (1 + np.exp(-np.float32(bias + weight * near))))
            where = (r // height, r % height, c // 2, k) if strips else (k % 32, r, c // 2, k // 32)
            x[k, r, c] = u[where] < np.uint64(min(np.float64(p) * 2**32, lattice.MOST))
    return x


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("shape", [(32, 4, 6), (2, 64, 4)], ids=["chains", "strips"])
def test_words_agree_with_a_plain_sweep(shape, backward):
    rng = np.random.default_rng(0)
    x = (rng.random(shape) < 0.5).astype(np.float32)
    free = rng.random(shape) < 0.9
    weight, bias, key = np.float32(0.9), np.float32(-1.5), jax.random.key(4)
    assert lattice.packs(shape[1:], shape[0])
    run = jax.jit(partial(lattice.torus_sweeps, sweeps=2, backward=backward))
    found = run(x, free, weight, bias, key)
    np.testing.assert_array_equal(
        found, plain_sweeps(x, free, weight, bias, key, 2, backward), strict=True
    )


@pytest.mark.parametrize(("bias", "value"), [(1000.0, 1.0), (-1000.0, 0.0)])
def test_steep_fields_decide(bias, value):
    x = jnp.zeros((1, 64, 4)) + 0.5
    run = jax.jit(partial(lattice.torus_sweeps, sweeps=2, backward=False))
    found = run(x, jnp.ones(x.shape, bool), np.float32(60), np.float32(bias), jax.random.key(0))
    np.testing.assert_array_equal(found, value)


def ising(weight: float, bias: float) -> Ising:
    wiring = graph.torus(4, 4)
    return Ising(jnp.full(wiring.n_edges, weight), jnp.full(16, bias), wiring)


def magnetisation_p_value(model: Ising) -> float:
    """Of the number of ones after many sweeps of independent chains."""
    states = np.array(list(itertools.product([0.0, 1.0], repeat=16)), np.float32)
    weight = np.exp(-np.asarray(jax.jit(lambda s: model.energy(s))(states), np.float64))
    wanted = np.bincount(states.sum(1).astype(int), weight / weight.sum(), minlength=17)
    chains, kernel = 32 * 1024, Gibbs(40)
    x = init_state(model, (chains,), jax.random.key(0))
    step = jax.jit(lambda x, key: kernel.step(model, kernel.init(model, x, key), FREE, key)[0].x)
    found = np.bincount(np.asarray(step(x, jax.random.key(1))).sum(1).astype(int), minlength=17)
    keep = wanted * chains > 10
    wanted, found = wanted[keep] / wanted[keep].sum(), found[keep]
    return float(stats.chisquare(found, wanted * found.sum()).pvalue)


FREE = jnp.ones(16, bool)


def test_gibbs_draws_from_the_distribution():
    assert magnetisation_p_value(ising(0.7, -1.2)) > RATE


def test_a_wrong_count_is_caught(monkeypatch):
    """Two neighbours are taken for one."""
    right = lattice._thermometer

    def wrong(*arguments):
        one, _, three, four = right(*arguments)
        return one, three, three, four

    monkeypatch.setattr(lattice, "_thermometer", wrong)
    assert magnetisation_p_value(ising(0.7, -1.2)) < RATE


def test_unequal_weights_take_the_other_way():
    """Uneven weights or fields are drawn by noise: the same as with a graph that has no sides."""
    torus = graph.torus(4, 4)
    plain = graph.from_edges(16, np.asarray(torus.edges))
    bias = jnp.full(16, -1.2).at[3].set(0.5)
    x = jax.random.bernoulli(jax.random.key(2), 0.5, (32, 16)).astype(jnp.float32)
    kernel, key = Gibbs(2), jax.random.key(3)
    step = jax.jit(lambda m, x: kernel.step(m, kernel.init(m, x, key), FREE, key)[0].x)
    found = [step(Ising(jnp.full(32, 0.7), bias, wiring), x) for wiring in (torus, plain)]
    np.testing.assert_array_equal(found[0], found[1])
