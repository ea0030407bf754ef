"""Dense linear algebra that is safe to batch.

On CPUs, jaxlib shares the matrices of a batched LAPACK call out to the pool of threads that runs
the program itself, and can wait there for ever. Under `vmap` these functions therefore take one
matrix after the other on a CPU; elsewhere they are the functions of `jnp.linalg`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, Float


def solve(a: Float[Array, "n n"], b: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """The x with a x = b."""
    return _one_by_one(jnp.linalg.solve)(a, b)


def inv(a: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The inverse of a matrix."""
    return _one_by_one(jnp.linalg.inv)(a)


def cholesky(a: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The lower triangular L with L L' = a; NaN where `a` is not positive definite."""
    return _one_by_one(jnp.linalg.cholesky)(a)


def _one_by_one(function: Callable[..., Array]) -> Callable[..., Array]:
    return sequential_vmap(function) if jax.default_backend() == "cpu" else function
