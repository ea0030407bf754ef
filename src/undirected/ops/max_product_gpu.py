"""Max-product on dense binary models as fused kernels for NVIDIA GPUs.

One program has a tile of pairs of units, and renews the messages of both directions. The messages
of a pair depend on its weight, on the totals of its two units in the rounds before, and on nothing
else: so they are written once in `REPLAYED` rounds only, and each round makes those since again
from the totals, which is cheaper than to write and read them. The first rounds read no messages and
the last ones write none. The derivatives are those of the plain forms.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

from undirected.core.iterate import iterate
from undirected.ops.max_product import (
    Decoded,
    bipartite_plain,
    moved,
    symmetric_plain,
)

SMALL, TILES = 256, ((16, 1), (32, 2))
"""Side of the tile of weights that one program has, and its warps: for models up to this size, and
for larger ones."""
REPLAYED = 5
"""Rounds from one writing of the messages to the next."""


def symmetric_fused(
    weight: Float[Array, "n n"],
    fields: Float[Array, " n"],
    iterations: int | Array,
    tolerance: float | None,
    damping: float,
    *,
    interpret: bool = False,
) -> Decoded:
    """`symmetric` with a Pallas kernel, whose programs have the tiles on and above the diagonal."""
    n = len(fields)

    def run(weight: Array, fields: Array) -> Decoded:
        tile, _ = _tile(weight)
        half = 0.5 * _padded(weight, tile)
        tiles = len(half) // tile
        kernel = _Kernel(half, np.triu_indices(tiles), ((tiles, len(half)),), damping, interpret)
        start = _padded(fields, tile) + half.sum(1)
        (totals,), change, count = _rounds(kernel, (start,), iterations, tolerance)
        return totals[:n], change, count

    return _like(symmetric_plain, run, iterations, tolerance, damping)(weight, fields)


def bipartite_fused(
    weight: Float[Array, "a b"],
    rows: Float[Array, " a"],
    cols: Float[Array, " b"],
    iterations: int | Array,
    tolerance: float | None,
    damping: float,
    *,
    interpret: bool = False,
) -> Decoded:
    """`bipartite`, in parallel, with a Pallas kernel, whose programs have all tiles."""
    a, b = weight.shape

    def run(weight: Array, rows: Array, cols: Array) -> Decoded:
        tile, _ = _tile(weight)
        half = 0.5 * _padded(weight, tile)
        fields = _padded(rows, tile) + half.sum(1), _padded(cols, tile) + half.sum(0)
        above, across = (side // tile for side in half.shape)
        places = np.divmod(np.arange(above * across), across)
        sums = (across, half.shape[0]), (above, half.shape[1])
        kernel = _Kernel(half, places, sums, damping, interpret)
        (at_rows, at_cols), change, count = _rounds(kernel, fields, iterations, tolerance)
        return jnp.concatenate([at_rows[:a], at_cols[:b]]), change, count

    return _like(bipartite_plain, run, iterations, tolerance, damping)(weight, rows, cols)


Totals = tuple[Array, ...]
"""Of all units, or of those of each layer."""
Messages = tuple[Array, Array] | None
"""From rows to columns and back, tile by tile, times the sign of the weight; None where all are
still neutral, that is 0."""


def _rounds(
    kernel: "_Kernel",
    fields: Totals,
    iterations: int | Array,
    tolerance: float | None,
) -> tuple[Totals, Array, Array]:
    """The totals after all rounds, from neutral messages."""

    def window(messages: Messages, totals: Totals, count: int, write: bool) -> tuple:
        """So many rounds; the messages after them, where they are written, and all totals."""
        history, after = [totals], messages
        for k in range(count):
            after, sums = kernel.update_messages(messages, history, write and k == count - 1)
            history.append(_add(fields, tuple(part.sum(0) for part in sums)))
        return after, history

    def change(history: list[Totals]) -> Array:
        moves = [moved(*pair) for pair in zip(history[-1], history[-2], strict=True)]
        return jnp.stack(moves).max()

    start = fields
    if tolerance is None and isinstance(iterations, int) and iterations > 0:
        whole, messages = (iterations - 1) // REPLAYED, None

        def more_rounds(_: Any, state: tuple[Messages, Totals]) -> tuple[Messages, Totals]:
            messages, history = window(state[0], state[1], REPLAYED, True)
            return messages, history[-1]

        if whole:
            messages, start = lax.fori_loop(1, whole, more_rounds, more_rounds(0, (None, start)))
        _, history = window(messages, start, iterations - whole * REPLAYED, False)
        return history[-1], change(history), jnp.full((), iterations, jnp.int32)

    def step(state: tuple[Messages, Totals]) -> tuple[tuple[Messages, Totals], Array]:
        messages, history = window(state[0], state[1], 1, True)
        return (messages, history[-1]), change(history)

    (_, totals), last, count = iterate(step, (kernel.init_messages(), start), iterations, tolerance)
    return totals, last, count


def _add(fields: Totals, incoming: Totals) -> Totals:
    return tuple(map(jnp.add, fields, incoming))


@dataclass(frozen=True, eq=False)
class _Kernel:
    """Rounds of messages on tiles of weights at these places, with their sums over each tile."""

    half: Float[Array, "a b"]
    places: tuple[np.ndarray, ...]
    sums: tuple[tuple[int, ...], ...]
    damping: float
    interpret: bool

    def init_messages(self) -> Messages:
        """Neutral messages, as they are stored."""
        tile, _ = _tile(self.half)
        neutral = jnp.zeros((len(self.places[0]), tile, tile), self.half.dtype)
        return neutral, neutral

    def update_messages(
        self, messages: Messages, history: list[Totals], write: bool
    ) -> tuple[Messages, list[Array]]:
        """Messages, if they are written, and sums after the rounds that these totals begin."""
        dtype, count = self.half.dtype, len(self.places[0])
        tile, warps = _tile(self.half)
        old = messages or ()
        tiles = [jax.ShapeDtypeStruct((count, tile, tile), dtype)] * 2 if write else []
        totals = [(1 - self.damping) * a for at in history for a in at]
        inputs = [self.half, *(jnp.asarray(p, jnp.int32) for p in self.places), *totals, *old]
        first = len(inputs) - len(old)
        call = pl.pallas_call(
            partial(_renew, tile, self.damping, len(self.sums), len(totals), bool(old), write),
            out_shape=[*tiles, *(jax.ShapeDtypeStruct(shape, dtype) for shape in self.sums)],
            grid=(count,),
            input_output_aliases={first: 0, first + 1: 1} if old and write else {},
            compiler_params=triton.CompilerParams(num_warps=warps),
            interpret=self.interpret,
            name="renew_messages",
        )
        found = call(*inputs)
        return (tuple(found[:2]), found[2:]) if write else (None, found)  # type: ignore[return-value]


def _renew(
    tile: int, damping: float, layers: int, totals: int, begun: bool, write: bool, *refs
) -> None:
    """The rounds of one tile. Messages are held times the sign s of their weight.

    Then a message becomes clip(t - s m, -|w| / 2, |w| / 2), where m comes back; the share of the
    new message is multiplied into all of it beforehand, so that four instructions make a message.
    """
    half, above, across, *refs = refs
    history, refs = refs[:totals], refs[totals:]
    old, refs = (refs[:2], refs[2:]) if begun else ((), refs)
    new, sums = (refs[:2], refs[2:]) if write else ((), refs)
    place = pl.program_id(0)
    here, there = above[place], across[place]
    rows, cols = pl.ds(here * tile, tile), pl.ds(there * tile, tile)
    weight, share = half[rows, cols], 1 - damping
    sign = jnp.where(weight > 0, jnp.ones_like(weight), -jnp.ones_like(weight))
    limit, back = share * jnp.abs(weight), share * sign
    down, up = (a[place, :, :] for a in old) if begun else (jnp.zeros_like(weight),) * 2
    for k in range(0, totals, layers):
        at_rows, at_cols = history[k][rows], history[k + layers - 1][cols]
        from_rows = jnp.clip(at_rows[:, None] - back * up, -limit, limit)
        from_cols = jnp.clip(at_cols[None, :] - back * down, -limit, limit)
        down = from_rows + damping * down if damping else from_rows
        up = from_cols + damping * up if damping else from_cols
    for ref, messages in zip(new, (down, up), strict=bool(new)):
        ref[place, :, :] = messages
    sums[-1][here, cols] = (sign * down).sum(0)

    @pl.when((here != there) | (layers > 1))  # a tile on the diagonal of one layer has said it all
    def _() -> None:
        sums[0][there, rows] = (sign * up).sum(1)


def _tile(weight: Array) -> tuple[int, int]:
    """Side and warps of the tiles of this matrix."""
    return TILES[max(weight.shape) > SMALL]


def _padded(a: Array, tile: int) -> Array:
    """With zeros up to whole tiles on every axis."""
    return jnp.pad(a, [(0, -side % tile) for side in a.shape])


def _like(plain: Callable, fused: Callable, *bounds: Any) -> Callable:
    """`fused` with the derivatives of `plain`, which is told the bounds."""
    run = jax.custom_jvp(fused)
    run.defjvp(lambda at, along: jax.jvp(lambda *a: plain(*a, *bounds), at, along))
    return run
