"""Sum-product on a dense bipartite binary model with one message array, renewed in place.

Messages are odds ratios s = exp(m), so that a half-sweep needs one division per message and no
exponential (crbm-bp, eqs 13-14): with the cavity odds exp(f) = E / s of the sender,
r = (1 + exp(w) E / s) / (1 + E / s) = (s + exp(w) E) / (s + E).
"""

import operator
from functools import reduce

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from undirected.core.iterate import iterate, largest

STEEPEST = 80.0
"""Largest |weight| whose exponential float32 holds with room: beyond it messages must be logs."""
GENTLE = 5.0
"""Largest |weight| for which a product of `GROUP` ratios stays in range."""
GROUP = 16
NARROWEST = 16
"""Neighbouring columns that are multiplied with others at a time, so that vectors are full."""

Loop = tuple[
    Float[Array, "a b"], Float[Array, " a"], Float[Array, " b"], Float[Array, ""], Int[Array, ""]
]


def steepest(weight: Float[Array, "*batch a b"]) -> Float[Array, ""]:
    """The largest |weight|, of all models under vmap: they then choose between forms together.

    Of a choice made for each of them, vmap would compute every branch.
    """
    return _steepest(jax.lax.stop_gradient(weight))


@jax.custom_batching.custom_vmap
def _steepest(weight: Array) -> Float[Array, ""]:
    return jnp.maximum(weight.max(initial=0.0), -weight.min(initial=0.0))


@_steepest.def_vmap
def _(size: int, batched: list[bool], weight: Array) -> tuple[Array, bool]:
    return _steepest(weight), False


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
    <= GENTLE where `gentle`, which takes one logarithm per `GROUP` messages: for CPUs, on a GPU a
    logarithm per message costs less. Then both sides are filled up with units of weight 0 to whole
    groups, whose ratios stay 1. Damping keeps a share of the old log message, and needs a second
    array.
    """
    a, b = weight.shape
    more = (-a % group_size(a, 0), -b % group_size(b, 1)) if gentle else (0, 0)
    weight = jnp.pad(weight, ((0, more[0]), (0, more[1])))
    # Half the weight, as if the sender preferred no state. XLA would take two exponentials.
    neutral = jax.lax.optimization_barrier(jnp.exp(0.5 * weight))
    odds = neutral * neutral
    row_fields = jnp.pad(row_fields, (0, more[0]))
    col_fields = jnp.pad(col_fields, (0, more[1]))

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

    first = neutral if damping else None, neutral, 0.5 * weight.sum(1), 0.5 * weight.sum(0)
    unroll = 2 if jax.default_backend() == "cpu" else 1  # on a GPU two take a sixth longer
    end, change, count = iterate(step, first, iterations, tolerance, unroll)
    return jnp.log(end[1])[:a, :b], end[2][:a], end[3][:b], change, count


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
    """Sum of log ratios along an axis.

    A group holds one ratio of each of some contiguous parts, so that whole vectors multiply.
    """
    if not gentle:
        return jnp.log(ratio).sum(axis)
    count = group_size(ratio.shape[axis], axis)
    size = ratio.shape[axis] // count
    *parts, rest = jnp.split(ratio, [size * (k + 1) for k in range(count)], axis)
    return jnp.log(reduce(operator.mul, parts)).sum(axis) + jnp.log(rest).sum(axis)


def group_size(length: int, axis: int) -> int:
    """How many ratios are multiplied before a logarithm: `GROUP`, fewer along a short row."""
    if axis == 0:
        return GROUP
    return min(GROUP, 2 ** max((length // NARROWEST).bit_length() - 1, 0))
