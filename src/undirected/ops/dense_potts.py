"""Gibbs sweeps of Potts models in which every pair is coupled, as matrix products.

Positions are drawn in turn, each given the newest states of all others. A block of positions gets
its fields by one product of its rows of the couplings with the one-hot states; within the block
each move corrects the fields of the positions that follow. Columns are chains, so that the inner
steps run along them.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Key

from undirected.core.random import uniform

BLOCK = 8
"""Positions per product: 8 x 21 rows keep a product busy, and corrections stay few."""
EXACT: Any = lax.Precision.HIGHEST

Chains = Float[Array, "Lq B"]


def sweep_blocks(
    fields: Float[Array, "L q"],
    couplings: Float[Array, "L q L q"],
    x: Chains,
    noise: Float[Array, "L B"],
    beta: float | Float[Array, ""] = 1.0,
) -> Chains:
    """One sweep of one-hot states over positions 0, 1, ...: the state whose share holds `noise`.

    Args:
        fields: (L, q).
        couplings: symmetric, with empty blocks i, i.
        x: one-hot states, a chain a column.
        noise: uniform in (0, 1).
        beta: the inverse temperature.
    """
    length, q = fields.shape
    matrix, size = couplings.reshape(length * q, length * q), min(BLOCK, length)

    def visit(k: Array, x: Array) -> Array:
        return _draw_block(fields, matrix, x, noise, beta, k * size, size)

    return lax.fori_loop(0, -(-length // size), visit, x)


def _draw_block(
    fields: Array, matrix: Array, x: Array, noise: Array, beta: Any, first: Array, size: int
) -> Array:
    """Draw `size` positions from `first` on, or those that are left.

    The last block begins early enough to be whole, and leaves alone what has been drawn.
    """
    length, q = fields.shape
    start = jnp.minimum(first, length - size)
    rows = lax.dynamic_slice_in_dim(matrix, start * q, size * q, 0)
    inner = lax.dynamic_slice_in_dim(rows, start * q, size * q, 1)
    own = lax.dynamic_slice_in_dim(fields, start, size, 0).reshape(-1, 1)
    u = lax.dynamic_slice_in_dim(noise, start, size, 0)
    old = lax.dynamic_slice_in_dim(x, start * q, size * q, 0)
    logits = jnp.dot(rows, x, precision=EXACT) + own
    new = []
    for t in range(size):
        here = slice(t * q, (t + 1) * q)
        unit = pick(beta * logits[here], u[t]).astype(x.dtype)
        new.append(jnp.where(start + t >= first, unit, old[here]))
        if t + 1 < size:
            # Of one shape on a GPU, where compilers try many programs for each.
            later = slice(here.stop if jax.default_backend() == "cpu" else 0, None)
            change = jnp.dot(inner[later, here], new[t] - old[here], precision=EXACT)
            logits = logits.at[later].add(change)
    return lax.dynamic_update_slice_in_dim(x, jnp.concatenate(new, 0), start * q, 0)


def pick(logits: Float[Array, "q B"], noise: Float[Array, " B"]) -> Float[Array, "q B"]:
    """One-hot: the state where the running sum of the probabilities passes a uniform number."""
    q = logits.shape[0]
    weight = jnp.exp(logits - logits.max(0, keepdims=True))
    # A triangle of ones makes running sums in one product; XLA's own are slow on CPUs.
    running = jnp.dot(jnp.tril(jnp.ones((q, q), weight.dtype)), weight, precision=EXACT)
    state = (running <= noise[None] * running[-1:]).sum(0)
    return state[None] == jnp.arange(q)[:, None]


def sweep_plain(
    fields: Float[Array, "L q"],
    couplings: Float[Array, "L q L q"],
    x: Chains,
    noise: Float[Array, "L B"],
    beta: float | Float[Array, ""] = 1.0,
) -> Chains:
    """The same, as plainly as can be: every field is summed when its position is drawn."""
    length, q = fields.shape

    def visit(i: Array, x: Array) -> Array:
        logits = jnp.dot(couplings[i].reshape(q, -1), x, precision=EXACT) + fields[i][:, None]
        unit = pick(beta * logits, noise[i]).astype(x.dtype)
        return lax.dynamic_update_slice_in_dim(x, unit, i * q, 0)

    return lax.fori_loop(0, length, visit, x)


def sweeps(
    fields: Float[Array, "L q"],
    couplings: Float[Array, "L q L q"],
    x: Chains,
    key: Key[Array, ""],
    count: int | Int[Array, ""],
    beta: float | Float[Array, ""] = 1.0,
) -> Chains:
    """So many sweeps, with random numbers made on the way."""

    def one(k: Array, x: Array) -> Array:
        noise = uniform(jax.random.fold_in(key, k), (fields.shape[0], x.shape[1]))
        return sweep_blocks(fields, couplings, x, noise, beta)

    return lax.fori_loop(0, count, one, x)
