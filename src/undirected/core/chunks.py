"""Many rows in chunks of bounded memory and few shapes: the engine of every query."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

BUDGET = 512 * 2**20
"""Bytes that one chunk of rows may take."""


def map_rows(
    function: Callable[[Array, int], PyTree],
    rows: np.ndarray,
    row_bytes: int,
    *,
    budget: int = BUDGET,
    progress: Callable[[int, int], None] | None = None,
    fill: float = 0.0,
) -> PyTree:
    """`function(chunk, start)` of all rows, put together again on the host.

    A chunk has a power of two of rows, filled up with rows of 0, so that 101 rows need no other
    program than 100.

    Args:
        function: from a chunk of rows and the number of its first to arrays of as many rows.
        rows: one row an example.
        row_bytes: memory that one row takes.
        budget: memory that a chunk may take.
        progress: told the rows done and the rows in all.
        fill: what the rows hold that fill up a chunk.

    Returns:
        What the function gives, as NumPy arrays of all rows.
    """
    count = len(rows)
    fits = max(1, budget // max(row_bytes, 1))
    size = 1 << min(int(fits).bit_length() - 1, max(count - 1, 0).bit_length())
    parts = []
    for start in range(0, max(count, 1), size):
        part = rows[start : start + size]
        padded = np.full((size, *rows.shape[1:]), fill, rows.dtype)
        padded[: len(part)] = part
        found = function(jnp.asarray(padded), start)
        kept = len(part)
        parts.append([np.asarray(leaf)[:kept] for leaf in jax.tree.leaves(found)])
        if progress is not None:
            progress(start + len(part), count)
    whole = [np.concatenate(leaves) for leaves in zip(*parts, strict=True)]
    return jax.tree.unflatten(jax.tree.structure(found), whole)


def potential_bytes(p: Any) -> int:
    """About the memory that inference on one instance of these potentials takes."""
    couplings = sum(np.size(leaf) for leaf in jax.tree.leaves([f.weight for f in p.factors]))
    return 24 * couplings + 40 * p.layout.n
