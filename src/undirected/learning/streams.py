"""Minibatches of tables larger than memory: read block by block, shuffled within a buffer."""

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Int, PyTree

from undirected.core.bijection import bijection
from undirected.core.cells import unmasked
from undirected.core.errors import UndirectedError
from undirected.learning.batches import Batches

BLOCK_BYTES, BUFFER_BYTES = 2**20, 2**26
"""A block is read at once; blocks of one buffer are shuffled together, two buffers are held."""
PIECE = 16
Check = Callable[[PyTree, int], None]


@dataclass(frozen=True, eq=False)
class StreamedBatches(Batches):
    """Minibatches of a table that need not fit into memory.

    Epoch after epoch every row comes once. Blocks of rows come in a random order, and the rows of a
    buffer of consecutive blocks are mixed; the last rows, which fill no block, come last. The
    order is a function of (seed, epoch) that is computed, not stored, so a resumed run goes on with
    the same rows. `fit` reads ahead in a thread while the device computes, checks values as they
    come, and holds two buffers at most.

    Args:
        data: what has `shape` and `dtype` and gives an array for `data[start:stop]`: a NumPy memory
            map, `io.row_sources.open_rows(path)` of a .npy or Parquet file, an HDF5 or Zarr array;
            or a tuple or dictionary of such with as many rows.
        size: rows of a batch.
        seed: of the order.
        shuffle: False keeps the rows in their order.
        transform: `transform(batch, key)` runs on the device inside each step.
        block: rows read at once; by default a megabyte of them, or what the source has as `block`.
        buffer: rows that are mixed; by default 64 megabytes of them.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> batches = un.StreamedBatches(np.eye(6), size=2, block=2, buffer=4)
        >>> sorted(batches.indices(0, 3).ravel().tolist())
        [0, 1, 2, 3, 4, 5]
    """

    block: int | None = None
    buffer: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", jax.tree.map(unmasked, self.data))
        leaves = jax.tree.leaves(self.data)
        if not leaves or not all(hasattr(a, "shape") and hasattr(a, "dtype") for a in leaves):
            raise UndirectedError(
                f"streamed batches: data are {type(self.data).__name__}; pass a memory map, "
                "open_rows(path), or what has shape, dtype and gives arrays for data[start:stop]"
            )
        lengths = sorted({leaf.shape[0] for leaf in leaves})
        if len(lengths) > 1 or lengths[0] == 0:
            raise UndirectedError(
                f"streamed batches: the sources have {' and '.join(map(str, lengths))} rows; all "
                "must have as many, and at least one"
            )
        width = sum(int(np.prod(a.shape[1:])) * np.dtype(a.dtype).itemsize for a in leaves)
        own = max(getattr(leaf, "block", 0) for leaf in leaves)  # of a source that is in pieces
        block = self.block or own or max(1, BLOCK_BYTES // max(width, 1))
        block = min(int(block), lengths[0])
        buffer = self.buffer or max(block, BUFFER_BYTES // max(width, 1))
        if min(self.size, block, buffer) < 1:
            raise UndirectedError(
                f"streamed batches: size is {self.size}, block {self.block} and buffer "
                f"{self.buffer}; pass 1 or more"
            )
        object.__setattr__(self, "size", min(int(self.size), lengths[0]))
        object.__setattr__(self, "block", block)
        object.__setattr__(self, "buffer", max(1, int(buffer) // block) * block)

    @property
    def identity(self) -> dict[str, Any]:
        """What must not change between the parts of a run."""
        return {"block": self.block, "buffer": self.buffer}

    def some_rows(self) -> PyTree:
        """A few rows of eight places, by which a table is known again."""
        starts = np.linspace(0, max(0, self.rows - PIECE), 8).astype(int).tolist()
        return jax.tree.map(
            lambda source: np.concatenate([np.asarray(source[s : s + PIECE]) for s in starts]),
            self.data,
        )

    def indices(self, start: int, stop: int) -> Int[np.ndarray, "steps size"]:
        """Row numbers of the batches of steps [start, stop)."""
        parts = [self.rows_of(*part)[at] for part, at in self.parts(start, stop)]
        return np.concatenate([np.zeros(0, np.int64), *parts]).reshape(-1, self.size)

    def parts(self, start: int, stop: int) -> list[tuple[tuple[int, int], slice]]:
        """(epoch, buffer) and the places in it of the rows of steps [start, stop), in order."""
        found, at, last = [], start * self.size, stop * self.size
        buffer = self.buffer
        assert buffer is not None
        while at < last:
            epoch, place = divmod(at, self.rows)
            number, offset = divmod(place, buffer)
            length = min(buffer, self.rows - number * buffer)
            count = min(length - offset, last - at)
            found.append(((epoch, number), slice(offset, offset + count)))
            at += count
        return found

    def blocks_of(self, epoch: int, number: int) -> Int[np.ndarray, " blocks"]:
        """The blocks of a buffer, in the order of the epoch; one that is not full comes last."""
        assert self.block is not None
        assert self.buffer is not None
        full, size = self.rows // self.block, self.buffer // self.block
        blocks = np.arange(number * size, min((number + 1) * size, -(-self.rows // self.block)))
        if self.shuffle and full > 1:
            inner = blocks < full
            blocks[inner] = bijection(blocks[inner], full, (self.seed, epoch))
        return blocks

    def slots_in(self, epoch: int, number: int, count: int) -> Int[np.ndarray, " count"]:
        """The place in its batch of every row that a buffer gives, in their order."""
        assert self.buffer is not None
        return (epoch * self.rows + number * self.buffer + np.arange(count)) % self.size

    def order_in(self, epoch: int, number: int, count: int) -> Int[np.ndarray, " count"]:
        """The order of the rows of a buffer.

        Each place of a batch takes its rows from a piece of the buffer of its own, in which they
        are mixed. So a batch has rows of all pieces, and who needs some of its places alone, as one
        process of several does, reads some of the blocks alone.
        """
        places = np.arange(count)
        if not self.shuffle:
            return places
        slots = self.slots_in(epoch, number, count)
        piece = np.sort(slots)  # of every row: as many as there are rows with that slot
        mixed = np.lexsort((bijection(places, count, (self.seed, epoch, number)), piece))
        order = np.empty(count, np.int64)
        order[np.argsort(slots, kind="stable")] = mixed
        return order

    def rows_of(self, epoch: int, number: int, mixed: bool = True) -> Int[np.ndarray, " count"]:
        """Numbers of the rows of a buffer, in the order in which they come, or of their blocks."""
        assert self.block is not None
        starts = self.blocks_of(epoch, number) * self.block
        rows = np.concatenate([np.arange(s, min(s + self.block, self.rows)) for s in starts])
        return rows[self.order_in(epoch, number, len(rows))] if mixed else rows


class Reader:
    """Batches of a stream as arrays (steps, size, ...), read ahead of their use.

    `check(rows, first)` looks at all rows when they are read, `first` being the number of the first
    of them. `own` says which places of a batch are needed: other rows are not read, and are 0.
    """

    def __init__(
        self,
        batches: StreamedBatches,
        check: Check | None = None,
        own: Bool[np.ndarray, " size"] | None = None,
    ):
        self.batches, self.check = batches, check
        self.own = np.ones(batches.size, bool) if own is None else own
        self.held: OrderedDict[tuple[int, int], tuple[PyTree, np.ndarray]] = OrderedDict()
        self.thread = ThreadPoolExecutor(1, "undirected-reader")
        self.ahead: tuple[tuple[int, int], Future] | None = None

    def __call__(self, start: int, stop: int) -> PyTree:
        """The batches of steps [start, stop); those of as many steps more are read meanwhile."""
        ahead, self.ahead = self.ahead, None
        if ahead is not None and ahead[0] == (start, stop):
            found = ahead[1].result()
        else:
            found = self.thread.submit(self.read, start, stop).result()
        after = stop, 2 * stop - start
        self.ahead = after, self.thread.submit(self.read, *after)
        return found

    def close(self) -> None:
        """End the thread; what it reads is not waited for."""
        self.thread.shutdown(wait=False, cancel_futures=True)
        self.held.clear()

    def read(self, start: int, stop: int) -> PyTree:
        """In the thread: the rows of these steps, out of the buffers that hold them."""
        count, size = stop - start, self.batches.size
        taken = []
        for part, places in self.batches.parts(start, stop):
            rows, order = self._buffer(*part)
            taken.append(jax.tree.map(lambda a, at=order[places]: a[at], rows))
        whole = jax.tree.map(lambda *a: a[0] if len(a) == 1 else np.concatenate(a), *taken)
        return jax.tree.map(lambda a: a.reshape(count, size, *a.shape[1:]), whole)

    def _buffer(self, epoch: int, number: int) -> tuple[PyTree, np.ndarray]:
        """The rows of a buffer as they lie in their blocks, and the order in which they come."""
        if (epoch, number) not in self.held:
            while len(self.held) > 1:
                self.held.popitem(last=False)
            rows = self.batches.rows_of(epoch, number, mixed=False)
            order = self.batches.order_in(epoch, number, len(rows))
            needed = np.zeros(len(rows), bool)
            needed[order[self.own[self.batches.slots_in(epoch, number, len(rows))]]] = True
            self.held[epoch, number] = self._rows(rows, needed), order
        return self.held[epoch, number]

    def _rows(self, rows: Int[np.ndarray, " count"], needed: Bool[np.ndarray, " count"]) -> PyTree:
        """The rows of these numbers, those that are needed; run by run of consecutive numbers."""
        block = self.batches.block
        assert block is not None
        places = np.flatnonzero(needed)
        numbers = rows[places]
        cut = (np.diff(places) != 1) | (np.diff(numbers) != 1) | (numbers[1:] % block == 0)
        found = jax.tree.map(
            lambda source: np.zeros((len(rows), *source.shape[1:]), source.dtype), self.batches.data
        )
        for run in np.split(np.arange(len(places)), np.flatnonzero(cut) + 1):
            if not len(run):
                continue
            first, last = int(numbers[run[0]]), int(numbers[run[-1]]) + 1
            part = jax.tree.map(lambda a, i=first, j=last: np.asarray(a[i:j]), self.batches.data)
            if self.check is not None:
                self.check(part, first)
            at = slice(int(places[run[0]]), int(places[run[-1]]) + 1)
            jax.tree.map(lambda whole, own, at=at: whole.__setitem__(at, own), found, part)
        return found
