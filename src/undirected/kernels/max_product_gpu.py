"""Max-product on dense binary models as fused kernels for NVIDIA GPUs.

A message answers the one that comes back, so that plain array operations read all messages twice,
and those of a symmetric model once across their lines. Here one program renews both messages of a
pair: each is read once and written once. The derivatives are those of the plain forms.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

from undirected.kernels.max_product import (
    Decoded,
    bipartite_plain,
    fields_of_both,
    renew,
    rounds,
    symmetric_plain,
)

TILE = 32
"""Side of the tile of weights that one program has."""
WARPS = 4
"""Warps of a program."""


def symmetric_fused(
    weight: Float[Array, "n n"],
    fields: Float[Array, " n"],
    iterations: int | Array,
    tolerance: float | None,
    damping: float,
    *,
    interpret: bool = False,
) -> Decoded:
    """`symmetric` with a Pallas kernel, a program of which has the tiles (I, J) and (J, I)."""
    n = len(fields)

    def run(weight: Array, fields: Array) -> Decoded:
        half, padded = 0.5 * _padded(weight), _padded(fields)
        size, tiles = len(padded), len(padded) // TILE
        shapes = (size, size), (tiles, size)
        renew_all = _kernel(_renew_pair, shapes, (tiles, tiles), {2: 0}, half, damping, interpret)

        def sweep(totals: Array, sent: Array) -> tuple[Array, Array]:
            sent, parts = renew_all(half, totals, sent)
            return sent, parts.sum(0)

        totals, change, count = rounds(
            sweep, padded + half.sum(1), -half, -half.sum(0), iterations, tolerance
        )
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
    """`bipartite`, in parallel, with a Pallas kernel, a program of which has one tile."""
    a, b = weight.shape

    def run(weight: Array, rows: Array, cols: Array) -> Decoded:
        half = 0.5 * _padded(weight)
        fields, quiet = fields_of_both(half, _padded(rows), _padded(cols))
        above, across = (side // TILE for side in half.shape)
        shapes = half.shape, half.shape, (across, half.shape[0]), (above, half.shape[1])
        renew_all = _kernel(
            _renew_tile, shapes, (above, across), {3: 0, 4: 1}, half, damping, interpret
        )

        def sweep(totals: tuple, sent: tuple) -> tuple[tuple, tuple]:
            down, up, to_rows, to_cols = renew_all(half, *totals, *sent)
            return (down, up), (to_rows.sum(0), to_cols.sum(0))

        (at_rows, at_cols), change, count = rounds(
            sweep, fields, (-half, -half), quiet, iterations, tolerance
        )
        return jnp.concatenate([at_rows[:a], at_cols[:b]]), change, count

    return _like(bipartite_plain, run, iterations, tolerance, damping)(weight, rows, cols)


def _padded(a: Array) -> Array:
    """With zeros up to whole tiles on every axis."""
    return jnp.pad(a, [(0, -side % TILE) for side in a.shape])


def _like(plain: Callable, fused: Callable, *bounds: Any) -> Callable:
    """`fused` with the derivatives of `plain`, which is told the bounds."""
    run = jax.custom_jvp(fused)
    run.defjvp(lambda at, along: jax.jvp(lambda *a: plain(*a, *bounds), at, along))
    return run


def _kernel(
    body: Callable,
    shapes: tuple[tuple[int, ...], ...],
    grid: tuple[int, int],
    aliases: dict[int, int],
    like: Array,
    damping: float,
    interpret: bool,
) -> Callable:
    """A Pallas call that renews all messages in place and gives their sums over each tile."""
    return pl.pallas_call(
        partial(body, damping),
        out_shape=[jax.ShapeDtypeStruct(shape, like.dtype) for shape in shapes],
        grid=grid,
        input_output_aliases=aliases,
        compiler_params=triton.CompilerParams(num_warps=WARPS),
        interpret=interpret,
        name="renew_messages",
    )


def _renew_pair(damping: float, half, totals, _, sent, parts) -> None:
    """Messages between the units of two tiles of one layer, both ways."""
    here, there = pl.program_id(0), pl.program_id(1)

    @pl.when(here <= there)
    def _() -> None:
        rows, cols = pl.ds(here * TILE, TILE), pl.ds(there * TILE, TILE)
        weight, down, up = half[rows, cols], sent[rows, cols], sent[cols, rows].T
        new_down, new_up = _both_ways(weight, totals[rows], totals[cols], down, up, damping)
        sent[rows, cols] = new_down
        sent[cols, rows] = new_up.T
        parts[here, cols] = new_down.sum(0)
        parts[there, rows] = new_up.sum(1)


def _renew_tile(damping: float, half, at_rows, at_cols, _, __, down, up, to_rows, to_cols) -> None:
    """Messages between a tile of one layer and one of the other, both ways."""
    here, there = pl.program_id(0), pl.program_id(1)
    rows, cols = pl.ds(here * TILE, TILE), pl.ds(there * TILE, TILE)
    weight, old_down, old_up = half[rows, cols], down[rows, cols], up[rows, cols]
    new_down, new_up = _both_ways(weight, at_rows[rows], at_cols[cols], old_down, old_up, damping)
    down[rows, cols] = new_down
    up[rows, cols] = new_up
    to_rows[there, rows] = new_up.sum(1)
    to_cols[here, cols] = new_down.sum(0)


def _both_ways(
    weight: Array, rows: Array, cols: Array, down: Array, up: Array, damping: float
) -> tuple[Array, Array]:
    """New messages from rows to columns and back, given the totals of both and the old ones."""
    return (
        renew(weight, rows[:, None] - up, down, damping),
        renew(weight, cols[None, :] - down, up, damping),
    )
