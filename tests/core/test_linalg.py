"""Linear algebra under vmap: right, and never handed to LAPACK as a batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from undirected.core import linalg

_rng = np.random.default_rng(0)
_noise = _rng.normal(size=(7, 5, 5))
MATRICES = _noise @ _noise.transpose(0, 2, 1) + np.eye(5)
CASES = {
    "solve": lambda a: linalg.solve(a, a[:, :2] + 1),
    "inv": linalg.inv,
    "cholesky": linalg.cholesky,
}
ORACLE = {
    "solve": lambda a: np.linalg.solve(a, a[:, :2] + 1),
    "inv": np.linalg.inv,
    "cholesky": np.linalg.cholesky,
}


@pytest.mark.parametrize("name", CASES)
def test_a_batch_equals_numpy(name):
    got = jax.vmap(CASES[name])(jnp.asarray(MATRICES, jnp.float32))
    wanted = np.stack([ORACLE[name](a) for a in MATRICES])
    np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-5)


def _batched_calls(function):
    a = jnp.asarray(MATRICES, jnp.float32)
    lines = jax.jit(jax.vmap(function)).lower(a).as_text().splitlines()
    calls = [line for line in lines if "custom_call" in line and "lapack" in line]
    assert calls
    return [line for line in calls if "tensor<7x" in line]


def test_no_batch_reaches_lapack():
    for function in CASES.values():
        assert not _batched_calls(function)
    assert _batched_calls(jnp.linalg.inv)


def test_no_factor_of_an_indefinite_matrix():
    assert np.isnan(linalg.cholesky(-jnp.eye(3))).any()
