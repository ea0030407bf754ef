"""Max-product on dense binary models: messages without their constant part.

The message of the factor w x y is w / 2 + m with |m| <= |w| / 2. With the halves of the weights
added to the fields, m_ij = sign(w) clip(t_i - m_ji, -|w| / 2, |w| / 2), where t_i = field + sum of
all m_ki: one clip per message, and one array of weights to read. No message sent is m = -w / 2.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from undirected.core.iterate import iterate, largest

TILES = 32, 64
"""Sides of a tile of the fused kernel: the one with less padding, the wider of equals."""
WARPS = 4
"""Warps of one of its programs."""

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
    an NVIDIA GPU a fused kernel per round, elsewhere plain array operations.
    """
    how = {"iterations": iterations, "tolerance": tolerance, "damping": damping}
    if jax.default_backend() != "gpu":  # the import of Pallas takes half a second
        return symmetric_plain(weight, fields, **how)
    fused, plain = partial(symmetric_fused, **how), partial(symmetric_plain, **how)
    return lax.platform_dependent(weight, fields, cuda=fused, default=plain)


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
        sent = _renew(half, totals[:, None] - sent.T, sent, damping)
        return sent, sent.sum(0)

    return _rounds(sweep, half, fields, iterations, tolerance)


def _rounds(
    sweep: Callable[[Array, Array], tuple[Array, Array]],
    half: Float[Array, "n n"],
    fields: Float[Array, " n"],
    iterations: int | Array,
    tolerance: float | None,
) -> Decoded:
    """Rounds of `sweep`, from totals and messages to new messages and their sums at each unit."""
    start = fields + half.sum(1)

    def step(state: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        sent, incoming = state
        sent, fresh = sweep(start + incoming, sent)
        return (sent, fresh), largest(fresh - incoming)

    quiet = -half, -half.sum(0)
    (_, incoming), change, count = iterate(step, quiet, iterations, tolerance)
    return start + incoming, change, count


def symmetric_fused(
    weight: Float[Array, "n n"],
    fields: Float[Array, " n"],
    iterations: int | Array,
    tolerance: float | None,
    damping: float,
    *,
    interpret: bool = False,
) -> Decoded:
    """`symmetric` with a Pallas kernel that renews both messages of a pair at once.

    m_ij answers m_ji, so that a round of the plain form reads the messages twice, once across
    their lines. Here a program has the tiles (I, J) and (J, I): each message is read once and
    written once. Derivatives are those of the plain form.
    """
    n = len(fields)
    tile = min(reversed(TILES), key=lambda side: -n % side)
    more = -n % tile

    @jax.custom_jvp
    def run(weight: Array, fields: Array) -> Decoded:
        half = jnp.pad(0.5 * weight, ((0, more), (0, more)))
        renew_pairs = _pair_sweep(n + more, tile, damping, half.dtype, interpret)

        def sweep(totals: Array, sent: Array) -> tuple[Array, Array]:
            sent, parts = renew_pairs(half, totals, sent)
            return sent, parts.sum(0)

        padded = jnp.pad(fields, (0, more))
        totals, change, count = _rounds(sweep, half, padded, iterations, tolerance)
        return totals[:n], change, count

    @run.defjvp
    def _(primals: tuple, tangents: tuple) -> tuple:
        plain = partial(
            symmetric_plain, iterations=iterations, tolerance=tolerance, damping=damping
        )
        return jax.jvp(plain, primals, tangents)

    return run(weight, fields)


def _pair_sweep(size: int, tile: int, damping: float, dtype, interpret: bool):
    """A function of half the weights, fields and messages: messages, and their sums by tiles."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    tiles = size // tile
    return pl.pallas_call(
        partial(_renew_pair, tile, damping),
        out_shape=[
            jax.ShapeDtypeStruct((size, size), dtype),
            jax.ShapeDtypeStruct((tiles, size), dtype),
        ],
        grid=(tiles, tiles),
        input_output_aliases={2: 0},
        compiler_params=triton.CompilerParams(num_warps=WARPS),
        interpret=interpret,
        name="renew_pairs",
    )


def _renew_pair(tile: int, damping: float, half, fields, _, sent, parts) -> None:
    """The body of the fused kernel: messages between the units of two tiles, both ways."""
    from jax.experimental import pallas as pl

    here, there = pl.program_id(0), pl.program_id(1)

    @pl.when(here <= there)
    def _() -> None:
        rows, cols = pl.ds(here * tile, tile), pl.ds(there * tile, tile)
        weight, down, up = half[rows, cols], sent[rows, cols], sent[cols, rows].T
        new_down = _renew(weight, fields[rows][:, None] - up, down, damping)
        new_up = _renew(weight, fields[cols][None, :] - down, up, damping)
        sent[rows, cols] = new_down
        sent[cols, rows] = new_up.T
        parts[here, cols] = new_down.sum(0)
        parts[there, rows] = new_up.sum(1)


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
