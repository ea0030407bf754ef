"""Max-product on dense binary models: messages without their constant part.

The message of the factor w x y is w / 2 + m with |m| <= |w| / 2. With the halves of the weights
added to the fields, m_ij = sign(w) clip(t_i - m_ji, -|w| / 2, |w| / 2), where t_i = field + sum of
all m_ki: one clip per message, and one array of weights to read. No message sent is m = -w / 2.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from undirected.core.iterate import iterate, largest

Decoded = tuple[Float[Array, " n"], Float[Array, ""], Int[Array, ""]]


def symmetric(
    weight: Float[Array, "n n"],
    fields: Float[Array, " n"],
    iterations: int | Array,
    tolerance: float | None,
    damping: float,
) -> Decoded:
    """Fields with all messages added, the last change and the number of rounds.

    `weight` is symmetric with a zero diagonal; `damping` is the share of the old message kept.
    """
    half = 0.5 * weight
    start = fields + half.sum(1)

    def step(state: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        sent, incoming = state
        cavity = (start + incoming)[:, None] - sent.T
        sent = _renew(half, cavity, sent, damping)
        fresh = sent.sum(0)
        return (sent, fresh), largest(fresh - incoming)

    quiet = -half, -half.sum(0)
    (_, incoming), change, count = iterate(step, quiet, iterations, tolerance)
    return start + incoming, change, count


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
    half = 0.5 * weight
    at_rows, at_cols = rows + half.sum(1), cols + half.sum(0)
    keep = parallel or damping > 0

    def step(state: tuple) -> tuple[tuple, Array]:
        down, up, to_rows, to_cols = state
        new_down = _renew(half, (at_rows + to_rows)[:, None] - up, down, damping)
        fresh = new_down.sum(0)
        answered, seen = (down, to_cols) if parallel else (new_down, fresh)
        up = _renew(half, (at_cols + seen)[None, :] - answered, up, damping)
        change = jnp.maximum(largest(up.sum(1) - to_rows), largest(fresh - to_cols))
        return (new_down if keep else None, up, up.sum(1), fresh), change

    quiet = -half if keep else None, -half, -half.sum(1), -half.sum(0)
    (_, _, to_rows, to_cols), change, count = iterate(step, quiet, iterations, tolerance)
    return jnp.concatenate([at_rows + to_rows, at_cols + to_cols]), change, count


def _renew(half: Array, cavity: Array, old: Array | None, damping: float) -> Array:
    """sign(w) clip(cavity, -|w| / 2, |w| / 2), mixed with the old message."""
    limit = jnp.abs(half)
    inside = jnp.clip(cavity, -limit, limit)
    new = jnp.where(half > 0, inside, -inside)
    return new if old is None or not damping else (1 - damping) * new + damping * old
