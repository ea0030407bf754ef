"""The loop of every fixed-point method."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from undirected.core.potentials import Status

UNASKED = 1e-4
"""What counts as settled where the user fixed the number of iterations instead of a tolerance."""


def iterate(
    step: Callable[[Any], tuple[Any, Float[Array, ""]]],
    start: Any,
    iterations: int | Array,
    tolerance: float | None,
    unroll: int = 1,
    peel: bool = False,
) -> tuple[Any, Float[Array, ""], Int[Array, ""]]:
    """Apply `step`, which gives (state, change), until the change is at most `tolerance`.

    Without a tolerance all iterations are made, and reverse-mode autodiff works. Returns the state,
    the last change and the number of iterations. Where their number is fixed, `unroll` of them are
    compiled as one, and with `peel` the last one apart, so that no other change is computed.
    """
    if peel and tolerance is None and isinstance(iterations, int) and iterations > 0:
        before = jax.lax.fori_loop(0, iterations - 1, lambda _, s: step(s)[0], start, unroll=unroll)
        return *step(before), jnp.full((), iterations, jnp.int32)

    def advance(carry: tuple) -> tuple:
        state, change = step(carry[0])
        return state, change, carry[2] + 1

    dtype = jnp.result_type(*jax.tree.leaves(start))
    first = start, jnp.full((), jnp.inf, dtype), jnp.zeros((), jnp.int32)
    if tolerance is None:
        fixed = {"unroll": unroll} if isinstance(iterations, int) else {}
        return jax.lax.fori_loop(0, iterations, lambda _, carry: advance(carry), first, **fixed)
    bound = tolerance
    return jax.lax.while_loop(lambda c: (c[1] > bound) & (c[2] < iterations), advance, first)


def status_of(change: Float[Array, "*batch"], tolerance: float | None) -> Int[Array, "*batch"]:
    """CONVERGED where the last change is within the tolerance, NOT_FINITE or ROUNDS_SPENT else."""
    bound = UNASKED if tolerance is None else tolerance
    stopped = jnp.where(jnp.isnan(change), int(Status.NOT_FINITE), int(Status.ROUNDS_SPENT))
    return jnp.where(change <= bound, int(Status.CONVERGED), stopped).astype(jnp.int32)


def largest(difference: Array) -> Float[Array, ""]:
    """Largest absolute entry, 0 of nothing."""
    return jnp.max(jnp.abs(difference), initial=0.0)
