"""Sum-product on a dense bipartite binary model with one message array, renewed in place.

Messages are odds ratios s = exp(m), so that a half-sweep needs one division per message and no
exponential (crbm-bp, eqs 13-14): with the cavity odds exp(f) = E / s of the sender,
r = (1 + exp(w) E / s) / (1 + E / s) = (s + exp(w) E) / (s + E).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from undirected.core.iterate import iterate, largest

STEEPEST = 80.0
"""Largest |weight| whose exponential float32 holds with room: beyond it messages must be logs."""
GENTLE = 5.0
"""Largest |weight| for which a product of `GROUP` ratios stays in range."""
GROUP = 16

Loop = tuple[
    Float[Array, "a b"], Float[Array, " a"], Float[Array, " b"], Float[Array, ""], Int[Array, ""]
]


def sum_product(
    weight: Float[Array, "a b"],
    row_fields: Float[Array, " a"],
    col_fields: Float[Array, " b"],
    iterations: int | Array,
    tolerance: float | None,
    damping: float,
    gentle: bool,
) -> Loop:
    """Log messages into the rows, sums of messages at rows and columns, last change, iterations.

    One iteration sends rows to columns, then columns to rows. Needs |weight| <= STEEPEST, and
    <= GENTLE where `gentle`, which takes one logarithm per `GROUP` messages. Damping keeps a share
    of the old log message, and needs a second array.
    """
    odds = jnp.exp(weight)

    def step(state: tuple) -> tuple[tuple, Array]:
        down, ratio, at_rows, at_cols = state
        ratio, old = _renew(ratio, odds, (row_fields + at_rows)[:, None]), ratio
        if down is not None:
            down = ratio = _mix(ratio, down, damping)
        to_cols = log_product(ratio, 0, gentle)
        ratio = _renew(ratio, odds, (col_fields + to_cols)[None, :])
        if down is not None:
            ratio = _mix(ratio, old, damping)
        to_rows = log_product(ratio, 1, gentle)
        moved = jnp.maximum(largest(to_rows - at_rows), largest(to_cols - at_cols))
        return (down, ratio, to_rows, to_cols), moved

    ones = jnp.ones_like(weight)
    quiet = jnp.zeros_like(row_fields), jnp.zeros_like(col_fields)
    start = (ones if damping else None, ones, *quiet)
    end, change, count = iterate(step, start, iterations, tolerance)
    return jnp.log(end[1]), end[2], end[3], change, count


def _mix(new: Float[Array, "a b"], old: Float[Array, "a b"], damping: float) -> Array:
    """new^(1 - d) old^d."""
    if damping == 0.5:
        return jnp.sqrt(new) * jnp.sqrt(old)
    return jnp.exp((1 - damping) * jnp.log(new) + damping * jnp.log(old))


def _renew(ratio: Float[Array, "a b"], odds: Float[Array, "a b"], total: Array) -> Array:
    """Messages of the senders whose fields are `total` (broadcast), given the messages into them.

    Both terms of the fraction are scaled by exp(-max(total, 0)), so that no field overflows.
    """
    down = jnp.exp(-jnp.maximum(total, 0.0))
    up = jnp.exp(jnp.minimum(total, 0.0))
    scaled = ratio * down
    return (scaled + odds * up) / (scaled + up)


def log_product(ratio: Float[Array, "a b"], axis: int, gentle: bool) -> Float[Array, " n"]:
    """Sum of log ratios along an axis."""
    if not gentle:
        return jnp.log(ratio).sum(axis)
    length = ratio.shape[axis]
    whole = length - length % GROUP
    head = jax.lax.slice_in_dim(ratio, 0, whole, axis=axis)
    tail = jax.lax.slice_in_dim(ratio, whole, length, axis=axis)
    shape = [*ratio.shape[:axis], whole // GROUP, GROUP, *ratio.shape[axis + 1 :]]
    return jnp.log(head.reshape(shape).prod(axis + 1)).sum(axis) + jnp.log(tail).sum(axis)
