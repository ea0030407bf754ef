"""Maximum mean discrepancy between two sets of binary vectors."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int
from numpy.typing import ArrayLike

from undirected.core.cells import unmasked
from undirected.core.errors import UndirectedError
from undirected.evaluation.estimate import check_binary


def log_mmd(x: ArrayLike, y: ArrayLike, *, unbiased: bool = False, tile: int = 2048) -> float:
    """log MMD^2 = log [mean k(x, x') + mean k(y, y') - 2 mean k(x, y)], k = exp(-Hamming / d).

    PMP, Sec. 5. The distances are whole numbers: their exact histograms are summed tile by tile, so
    that nothing cancels before the last line, and memory is one tile x tile block.

    Args:
        x: rows of 0 and 1, such as samples of a model.
        y: rows of 0 and 1 to compare them with.
        unbiased: leave a row's pair with itself out of the means.
        tile: rows worked on at a time.

    Returns:
        The logarithm; -inf where MMD^2 is not positive.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> un.log_mmd(np.eye(3), np.eye(3))
        -inf
        >>> round(un.log_mmd(np.eye(3), 1 - np.eye(3), tile=4), 3)
        -1.893
    """
    x, y = _rows("x", x), _rows("y", y)
    if x.shape[1] != y.shape[1]:
        raise UndirectedError(f"log_mmd: x has {x.shape[1]} columns, y has {y.shape[1]}")
    if unbiased and min(len(x), len(y)) < 2:
        raise UndirectedError("log_mmd: unbiased needs at least two rows in x and in y")
    kernel = np.exp(-np.arange(x.shape[1] + 1) / x.shape[1])
    between = 2 * _pairs(x, y, tile) / (len(x) * len(y))
    squared = float(kernel @ (_within(x, unbiased, tile) + _within(y, unbiased, tile) - between))
    return float(np.log(squared)) if squared > 0 else -np.inf


def _within(x: Bool[np.ndarray, "n d"], unbiased: bool, tile: int) -> np.ndarray:
    """Frequencies of the distances among the rows of one set."""
    counts = _pairs(x, None, tile)
    if unbiased:
        counts[0] -= len(x)
    return counts / counts.sum()


def _pairs(x: np.ndarray, y: np.ndarray | None, tile: int) -> Int[np.ndarray, " d+1"]:
    """How often each Hamming distance occurs between the rows of x and of y (None: x itself)."""
    counts = np.zeros(x.shape[1] + 1, np.int64)
    for i in range(0, len(x), tile):
        left = _padded(x[i : i + tile], tile)
        for j in range(0 if y is not None else i, len(x if y is None else y), tile):
            right = _padded((x if y is None else y)[j : j + tile], tile)
            twice = 2 if y is None and j > i else 1
            counts += twice * np.asarray(_histogram(*left, *right), np.int64)
    return counts


@jax.jit
def _histogram(x: Array, x_real: Array, y: Array, y_real: Array) -> Int[Array, " d+1"]:
    """Counts of |x| + |y| - 2 x'y over the real rows of two tiles."""
    d = x.shape[1]
    x, y = x.astype(jnp.float32), y.astype(jnp.float32)
    distance = x.sum(1)[:, None] + y.sum(1)[None, :] - 2 * (x @ y.T)
    bins = jnp.where(x_real[:, None] & y_real[None, :], distance.astype(jnp.int32), d + 1)
    return jnp.zeros(d + 2, jnp.int32).at[bins.ravel()].add(1)[: d + 1]


def _padded(rows: np.ndarray, tile: int) -> tuple[np.ndarray, np.ndarray]:
    """A full tile, and which of its rows are real."""
    missing = tile - len(rows)
    return np.pad(rows, [(0, missing), (0, 0)]), np.arange(tile) < len(rows)


def _rows(name: str, x: ArrayLike) -> Bool[np.ndarray, "n d"]:
    x = np.asarray(unmasked(x))
    if x.ndim != 2 or 0 in x.shape:
        raise UndirectedError(f"log_mmd: {name} has shape {x.shape}; pass (rows, variables)")
    check_binary(f"log_mmd: {name}", x)
    return x.astype(bool)
