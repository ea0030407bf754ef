"""The sequential scan: every form of it moves the chains to the same states."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from undirected.ops.sequential import scan_fused, scan_plain, scan_sites, scan_tiled


def case(n, chains, seed=0):
    """Multiples of 1/64, whose sums are exact in any order: states must agree bit for bit."""
    rng = np.random.default_rng(seed)
    upper = np.triu(np.rint(rng.normal(size=(n, n)) * 24) / 64, 1)
    fields = np.rint(rng.normal(size=(chains, n)) * 64) / 64
    noise = np.rint(rng.logistic(size=(chains, n)) * 64) / 64 + 1 / 256
    x, free = rng.integers(0, 2, (chains, n)), rng.random((chains, n)) < 0.8
    a = (jnp.asarray(a, jnp.float32) for a in (upper + upper.T, fields, x, free, noise))
    weight, fields, x, free, noise = a
    return weight, fields, x, free > 0, noise


def one_by_one(weight, fields, x, free, noise, backward):
    """The definition, in NumPy."""
    weight, fields, x, free, noise = (np.array(a) for a in (weight, fields, x, free, noise))
    n = x.shape[1]
    for chain in range(len(x)):
        for i in range(n)[:: -1 if backward else 1]:
            if free[chain, i]:
                field = fields[chain, i] + noise[chain, i] + weight[i] @ x[chain]
                x[chain, i] = float(field > 0)
    return x


def fused(*args, backward):
    return scan_fused(*args, backward=backward, interpret=True)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("scan", [scan_sites, scan_plain, scan_tiled, fused])
def test_all_forms_follow_the_definition(scan, backward):
    """37 sites: neither a multiple of the tile nor a power of two."""
    args = case(37, 6)
    got = jax.jit(lambda *a: scan(*a, backward=backward))(*args)
    wanted = one_by_one(*args, backward)
    np.testing.assert_array_equal(got, wanted)
    assert (wanted != np.asarray(args[2])).mean() > 0.1
    assert (wanted != one_by_one(*args, not backward)).any()  # the order matters


def test_fused_form_takes_a_weight_for_every_rung():
    weight, *rest = case(20, 3)
    rungs = jnp.stack([weight, weight / 2])
    got = jax.jit(jax.vmap(lambda w: scan_fused(w, *rest, interpret=True)))(rungs)
    for rung, states in zip(rungs, got, strict=True):
        np.testing.assert_array_equal(states, one_by_one(rung, *rest, False))


def test_a_gpu_gets_the_fused_kernel_and_nothing_else_does():
    args = case(20, 3)
    traced = jax.jit(lambda *a: scan_sites(*a)).trace(*args)
    assert "triton" in traced.lower(lowering_platforms=("cuda",)).as_text()
    assert "triton" not in traced.lower(lowering_platforms=("cpu",)).as_text()
