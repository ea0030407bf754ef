"""Sweeps of dense Potts models: what a loop in NumPy draws from the same noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from undirected.ops.dense_potts import BLOCK, sweep_blocks, sweep_plain, sweeps


def model(length, q, seed=0):
    rng = np.random.default_rng(seed)
    couplings = rng.normal(size=(length, q, length, q))
    couplings = couplings + couplings.transpose(2, 3, 0, 1)
    couplings[np.arange(length), :, np.arange(length)] = 0
    return rng.normal(size=(length, q)), couplings


def drawn_by_loop(fields, couplings, states, noise, beta):
    """Positions in turn; the first state whose running share passes the noise."""
    states = states.copy()
    for b in range(len(states)):
        for i in range(len(fields)):
            logits = fields[i].copy()
            for j in range(len(fields)):
                if j != i:
                    logits += couplings[i, :, j, states[b, j]]
            weight = np.exp(beta * logits)
            states[b, i] = np.searchsorted(np.cumsum(weight) / weight.sum(), noise[i, b])
    return states


@pytest.mark.parametrize("sweep", [sweep_blocks, sweep_plain])
@pytest.mark.parametrize("length", [3, BLOCK, 2 * BLOCK + 3])
@pytest.mark.parametrize("beta", [1.0, 0.4])
def test_a_sweep_draws_what_a_loop_draws(x64, sweep, length, beta):
    q, chains = 4, 30
    fields, couplings = model(length, q)
    rng = np.random.default_rng(1)
    states, noise = rng.integers(0, q, (chains, length)), rng.random((length, chains))
    x = jnp.asarray(np.eye(q)[states].reshape(chains, -1).T)
    found = sweep(jnp.asarray(fields), jnp.asarray(couplings), x, jnp.asarray(noise), beta)
    wanted = drawn_by_loop(fields, couplings, states, noise, beta)
    np.testing.assert_array_equal(found.reshape(length, q, chains).argmax(1).T, wanted)
    np.testing.assert_array_equal(found.reshape(length, q, chains).sum(1), 1)
    assert (wanted != drawn_by_loop(fields, 0 * couplings, states, noise, beta)).any()


def test_sweeps_go_on_with_new_noise(x64):
    fields, couplings = (jnp.asarray(part) for part in model(5, 3))
    x = jnp.asarray(np.eye(3)[np.zeros((200, 5), int)].reshape(200, -1).T)
    one, two = (sweeps(fields, couplings, x, jax.random.key(0), count) for count in (1, 2))
    assert (one != two).any() and (one != x).any()
