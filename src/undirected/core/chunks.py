"""Many rows in chunks of bounded memory and few shapes: the engine of every query."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, PyTree

from undirected.core.agreement import told_of_loss
from undirected.core.mesh import gather, place_chains, use_mesh
from undirected.core.numerics import full_precision

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
    mesh: Mesh | None = None,
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
        mesh: devices over which the rows of a chunk are split; each may take the budget.

    Returns:
        What the function gives, as NumPy arrays of all rows.
    """
    count = len(rows)
    devices = 1 if mesh is None else mesh.size
    fits = max(1, budget * devices // max(row_bytes, 1))
    size = 1 << min(int(fits).bit_length() - 1, max(count - 1, 0).bit_length())
    parts = []
    for start in range(0, max(count, 1), size):
        part = rows[start : start + size]
        padded = np.full((size, *rows.shape[1:]), fill, rows.dtype)
        padded[: len(part)] = part
        with full_precision():
            found, kept = _of_chunk(function, padded, start, mesh), len(part)
        parts.append([np.asarray(leaf)[:kept] for leaf in jax.tree.leaves(found)])
        if progress is not None:
            progress(start + len(part), count)
    whole = [np.concatenate(leaves) for leaves in zip(*parts, strict=True)]
    return jax.tree.unflatten(jax.tree.structure(found), whole)


def _of_chunk(
    function: Callable[[Array, int], PyTree], chunk: np.ndarray, start: int, mesh: Mesh | None
) -> PyTree:
    """The function of one chunk, whose rows a mesh shares out where they are enough."""
    if mesh is None:
        return function(jnp.asarray(chunk), start)
    with use_mesh(mesh), told_of_loss(mesh):
        return gather(mesh, function(place_chains(mesh, chunk), start))


def potential_bytes(p: Any) -> int:
    """About the memory that inference on one instance of these potentials takes."""
    couplings = sum(np.size(leaf) for leaf in jax.tree.leaves([f.weight for f in p.factors]))
    return 24 * couplings + 40 * p.layout.n
