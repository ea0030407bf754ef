"""The steps of one run on its devices: where the data are, and the programs that use them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Key, PyTree

from undirected.core.agreement import told_of_loss
from undirected.core.mesh import AXIS, gather, own_rows, place, place_rows, use_mesh
from undirected.core.protocols import Objective, Optimiser
from undirected.learning.batches import Batches, take
from undirected.learning.streams import Check, Reader, StreamedBatches
from undirected.learning.train_step import TrainState, make_advance, make_first_carry, not_finite

MOST_BYTES = 2**25
"""Rows of a stream that are on the device at a time."""


class Trainer:
    """Makes steps of a run; on a mesh the rows of a batch and the chains are split over devices.

    A table is on the device, and steps take rows of it by their numbers. Of a stream the batches of
    some steps are there, and steps take one after the other.
    """

    def __init__(
        self,
        objective: Objective,
        optimiser: Optimiser,
        batches: Batches,
        trainable: PyTree,
        key: Key[Array, ""],
        mesh: Mesh | None,
        check: Check | None = None,
    ):
        self.mesh, self.batches = mesh, batches
        self.reader, self.data = None, None
        if isinstance(batches, StreamedBatches):
            self.reader = Reader(batches, check, own_rows(mesh, batches.size))
        else:
            self.data = batches.data if mesh is None else place_rows(mesh, batches.data)
        self.key = place(mesh, key)
        self.first_carry = make_first_carry(objective, batches.transform)
        self.steps = make_advance(objective, optimiser, batches.transform, trainable)

    def start(self, model: Any, memory: Any, key: Key[Array, ""]) -> TrainState:
        """The state before the first step."""
        model, memory, key = place(self.mesh, (model, memory, key))
        data, rows = self._feed(0, 1, 1)
        with use_mesh(self.mesh):
            carry = self.first_carry(model, data, rows[0], key)
        return TrainState(model, memory, carry)

    def advance(self, state: TrainState, start: int, stop: int, width: int) -> tuple:
        """State, step, metrics and what is finite after steps [start, stop), at most `width`."""
        width = min(width, self._most())
        if stop - start <= width:
            return self._advance(state, start, stop, width)
        totals, made = {}, start
        while made < stop:
            last = min(made + width, stop)
            after, step, metrics, finite = self._advance(state, made, last, width)
            if not_finite(finite):
                return state, step, metrics, finite
            for name, value in metrics.items():
                totals[name] = totals.get(name, 0.0) + float(value) * (last - made)
            state, made = after, last
        means = {name: total / (stop - start) for name, total in totals.items()}
        return state, stop, means, finite

    def batch(self, step: int) -> PyTree:
        """The batch of a step, as the objective sees it."""
        key, _ = jax.random.split(jax.random.fold_in(gather(self.mesh, self.key), step))
        if self.reader is not None:
            whole = Reader(self.reader.batches).read(step, step + 1)  # of all processes
            rows = jax.tree.map(jnp.asarray, whole)
            return take(self.batches.transform, rows, jnp.asarray(0), key)
        rows = self.batches.indices(step, step + 1)[0]
        return self.batches.take(self.batches.data, jnp.asarray(rows), key)

    def close(self) -> None:
        """End what runs beside the steps."""
        if self.reader is not None:
            self.reader.close()

    def _advance(self, state: TrainState, start: int, stop: int, width: int) -> tuple:
        data, rows = self._feed(start, stop, width)
        bounds = np.int32(start), np.int32(stop)
        with use_mesh(self.mesh), told_of_loss(self.mesh):
            state, *outcome = self.steps(state, data, rows, *bounds, self.key)
            return state, *jax.device_get(outcome)

    def _feed(self, start: int, stop: int, width: int) -> tuple[PyTree, np.ndarray]:
        """Data on the device, and which of it the steps take: numbers of rows, or of batches."""
        if self.reader is None:
            rows = np.zeros((width, self.batches.size), np.int32)
            rows[: stop - start] = self.batches.indices(start, stop)
            return self.data, rows
        chunk = jax.tree.map(lambda a: _padded(a, width), self.reader(start, stop))
        if self.mesh is None:
            return jax.tree.map(jnp.asarray, chunk), np.arange(width, dtype=np.int32)
        even = self.batches.size % self.mesh.shape[AXIS] == 0
        chunk = place_rows(self.mesh, chunk, 1) if even else place(self.mesh, chunk)
        return chunk, np.arange(width, dtype=np.int32)

    def _most(self) -> int:
        """Steps whose batches are on the device at a time."""
        if self.reader is None:
            return np.iinfo(np.int32).max
        leaves = jax.tree.leaves(self.batches.data)
        row = sum(int(np.prod(a.shape[1:])) * np.dtype(a.dtype).itemsize for a in leaves)
        return max(1, MOST_BYTES // max(1, row * self.batches.size))


def _padded(a: np.ndarray, length: int) -> np.ndarray:
    """The array with rows of 0 behind it, up to this length."""
    if len(a) == length:
        return a
    return np.concatenate([a, np.zeros((length - len(a), *a.shape[1:]), a.dtype)])
