"""Max-product on dense binary models: messages without their constant part.

The message of the factor w x y is w / 2 + m with |m| <= |w| / 2. With the halves of the weights
added to the fields, m_ij = sign(w) clip(t_i - m_ji, -|w| / 2, |w| / 2), where t_i = field + sum of
all m_ki: one clip per message, and one array of weights to read. The neutral message, with which
all rounds begin, is m = 0.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from undirected.core.iterate import iterate, largest
from undirected.core.mesh import on_mesh

Decoded = tuple[Float[Array, " n"], Float[Array, ""], Int[Array, ""]]


def symmetric(
    weight: Float[Array, "n n"],
    fields: Float[Array, " n"],
    iterations: int | Array,
    tolerance: float | None,
    damping: float,
) -> Decoded:
    """Fields with all messages added, the last change and the number of rounds.

    `weight` is symmetric with a zero diagonal; `damping` is the share of the old message kept. On
    an NVIDIA GPU a fused kernel, elsewhere plain array operations.
    """
    bounds = iterations, tolerance, damping
    return _choose(symmetric_plain, "symmetric_fused", (weight, fields), bounds)


def bipartite(
    weight: Float[Array, "a b"],
    rows: Float[Array, " a"],
    cols: Float[Array, " b"],
    iterations: int | Array,
    tolerance: float | None,
    damping: float,
    parallel: bool = True,
) -> Decoded:
    """The same between two layers; fields of the rows, then of the columns.

    Both directions are sent at once where `parallel`, otherwise rows to columns first: then,
    without damping, one array holds the messages of both directions in turn.
    """
    bounds = iterations, tolerance, damping
    if not parallel:
        return bipartite_plain(weight, rows, cols, *bounds, parallel=False)
    return _choose(bipartite_plain, "bipartite_fused", (weight, rows, cols), bounds)


def _choose(plain: Callable, fused: str, arrays: tuple[Array, ...], bounds: tuple) -> Decoded:
    """The fused form, by its name, on an NVIDIA GPU, elsewhere the plain one."""

    def bounded(form: Callable) -> Callable:
        return lambda *a: form(*a, *bounds)

    # The fused forms take half a second to import, and XLA cannot split them over devices.
    if jax.default_backend() != "gpu" or on_mesh():
        return bounded(plain)(*arrays)
    from undirected.ops import max_product_gpu

    kernel = getattr(max_product_gpu, fused)
    return lax.platform_dependent(*arrays, cuda=bounded(kernel), default=bounded(plain))


def symmetric_plain(
    weight: Float[Array, "n n"],
    fields: Float[Array, " n"],
    iterations: int | Array,
    tolerance: float | None,
    damping: float,
) -> Decoded:
    """`symmetric` by array operations."""
    half = 0.5 * weight

    def sweep(totals: Array, sent: Array) -> tuple[Array, Array]:
        sent = update_messages(half, totals[:, None] - sent.T, sent, damping)
        return sent, sent.sum(0)

    return rounds(sweep, fields + half.sum(1), jnp.zeros_like(half), iterations, tolerance)


def bipartite_plain(
    weight: Float[Array, "a b"],
    rows: Float[Array, " a"],
    cols: Float[Array, " b"],
    iterations: int | Array,
    tolerance: float | None,
    damping: float,
    parallel: bool = True,
) -> Decoded:
    """`bipartite` by array operations."""
    half = 0.5 * weight
    fields = rows + half.sum(1), cols + half.sum(0)
    keep = parallel or damping > 0

    def sweep(totals: tuple, sent: tuple) -> tuple[tuple, tuple]:
        down, up = sent
        new_down = update_messages(half, totals[0][:, None] - up, down, damping)
        fresh = new_down.sum(0)
        answered, seen = (down, totals[1]) if parallel else (new_down, fields[1] + fresh)
        new_up = update_messages(half, seen[None, :] - answered, up, damping)
        return (new_down if keep else None, new_up), (new_up.sum(1), fresh)

    neutral = jnp.zeros_like(half)
    start = neutral if keep else None, neutral
    totals, change, count = rounds(sweep, fields, start, iterations, tolerance)
    return jnp.concatenate(totals), change, count


def rounds(
    sweep: Callable[[Any, Any], tuple[Any, Any]],
    fields: Any,
    messages: Any,
    iterations: int | Array,
    tolerance: float | None,
) -> tuple[Any, Float[Array, ""], Int[Array, ""]]:
    """Rounds of `sweep`, from totals and messages to new messages and their sums at each unit.

    The totals begin with the fields: neutral messages add nothing.
    """

    def step(state: tuple[Any, Any]) -> tuple[tuple[Any, Any], Array]:
        messages, totals = state
        messages, incoming = sweep(totals, messages)
        new = jax.tree.map(jnp.add, fields, incoming)
        moves = jax.tree.map(moved, new, totals)
        return (messages, new), jax.tree.reduce(jnp.maximum, moves)

    (_, totals), change, count = iterate(step, (messages, fields), iterations, tolerance, peel=True)
    return totals, change, count


def moved(new: Array, old: Array) -> Float[Array, ""]:
    """The largest change of a total; one that is and stays infinite does not move."""
    return largest(jnp.where(new == old, 0.0, new - old))


def update_messages(half: Array, cavity: Array, old: Array | None, damping: float) -> Array:
    """sign(w) clip(cavity, -|w| / 2, |w| / 2), mixed with the old message."""
    limit = jnp.abs(half)
    inside = jnp.clip(cavity, -limit, limit)
    new = jnp.where(half > 0, inside, -inside)
    return new if old is None or not damping else (1 - damping) * new + damping * old
