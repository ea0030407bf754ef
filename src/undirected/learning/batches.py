"""Minibatches as a function of the step alone, so that a resumed run needs no iterator state."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, PyTree

from undirected.core.cells import unmasked
from undirected.core.errors import UndirectedError, check_counts
from undirected.core.mesh import split


@dataclass(frozen=True, eq=False)
class Batches:
    """Minibatches of arrays that share their first axis.

    Epoch after epoch, every row comes once, in an order drawn from (seed, epoch). A batch that
    reaches the end of an epoch goes on with the next one, so that no row is ever left out.

    Args:
        data: an array, or a tuple or dictionary of arrays with as many rows.
        size: rows of a batch; more than there are means all of them.
        seed: of the order.
        shuffle: False keeps the rows in their order.
        transform: `transform(batch, key)` runs on the device inside each step: fresh noise, or a
            new binarisation of grey values every time.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> batches = un.Batches(np.eye(5), size=2, shuffle=False)
        >>> batches.steps(epochs=2), batches.indices(0, 3).tolist()
        (5, [[0, 1], [2, 3], [4, 0]])
    """

    data: PyTree
    size: int
    seed: int = 0
    shuffle: bool = True
    transform: Callable[[PyTree, Key[Array, ""]], PyTree] | None = None

    def __post_init__(self) -> None:
        data = jax.tree.map(_as_array, self.data)
        lengths = sorted({leaf.shape[0] for leaf in jax.tree.leaves(data)})
        if not lengths or lengths[0] == 0:
            raise UndirectedError("batches: the data have no rows; pass at least one")
        if len(lengths) > 1:
            raise UndirectedError(
                f"batches: the arrays have {' and '.join(map(str, lengths))} rows; "
                "all must have as many"
            )
        check_counts("batches", size=self.size)
        check_counts("batches", 0, seed=self.seed)
        object.__setattr__(self, "data", data)
        object.__setattr__(self, "size", min(int(self.size), lengths[0]))

    @property
    def rows(self) -> int:
        """Number of rows of the data."""
        return jax.tree.leaves(self.data)[0].shape[0]

    def steps(self, epochs: float) -> int:
        """Number of batches that cover the data so many times."""
        if not (isinstance(epochs, Real) and 0 <= float(epochs) < np.inf):
            raise UndirectedError(
                f"fit: epochs is {epochs!r:.40}; pass a number of passes, 0 or more"
            )
        return int(np.ceil(epochs * self.rows / self.size))

    def indices(self, start: int, stop: int) -> Int[np.ndarray, "steps size"]:
        """Row numbers of the batches of steps [start, stop)."""
        at, last = start * self.size, stop * self.size
        parts = [np.zeros(0, np.int32)]
        while at < last:
            epoch, place = divmod(at, self.rows)
            order = _order(self.rows, self.seed if self.shuffle else None, epoch)
            parts.append(order[place : place + last - at])
            at += len(parts[-1])
        return np.concatenate(parts).reshape(-1, self.size)

    def take(self, data: PyTree, rows: Int[Array, " size"], key: Key[Array, ""]) -> PyTree:
        """The batch of these rows, transformed; `data` is `self.data`, traced."""
        return take(self.transform, data, rows, key)


def take(
    transform: Callable[[PyTree, Key[Array, ""]], PyTree] | None,
    data: PyTree,
    rows: Int[Array, " size"],
    key: Key[Array, ""],
) -> PyTree:
    """The batch of these rows of the data, transformed."""
    batch = split(jax.tree.map(lambda leaf: leaf[rows], data))
    return batch if transform is None else split(transform(batch, key))


@lru_cache(maxsize=2)
def _order(rows: int, seed: int | None, epoch: int) -> Int[np.ndarray, " rows"]:
    order = np.arange(rows, dtype=np.int32)
    return order if seed is None else np.random.default_rng([seed, epoch]).permutation(order)


def _as_array(leaf: Array | np.ndarray) -> Array:
    if np.ndim(leaf) == 0:
        raise UndirectedError(
            f"batches: got the single value {leaf!r} for data; pass arrays with one row an example "
            "(a nested list: np.array(rows))"
        )
    if isinstance(leaf, jax.Array) and len(leaf.devices()) > 1:
        leaf = np.asarray(leaf)  # split by the caller, in a way that the steps do not know
    return jnp.asarray(unmasked(leaf))
