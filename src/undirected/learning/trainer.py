"""The steps of one run on its devices: where the data are, and the programs that use them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Key, PyTree

from undirected.core.mesh import gather, place, place_rows, told_of_loss, use_mesh
from undirected.core.protocols import Objective
from undirected.learning.batches import Batches
from undirected.learning.train_step import TrainState, make_advance, make_first_carry


class Trainer:
    """Makes steps of a run; on a mesh the rows of a batch and the chains are split over devices."""

    def __init__(
        self,
        objective: Objective,
        optimiser: optax.GradientTransformation,
        batches: Batches,
        trainable: PyTree,
        key: Key[Array, ""],
        mesh: Mesh | None,
    ):
        self.mesh, self.batches = mesh, batches
        self.data = batches.data if mesh is None else place_rows(mesh, batches.data)
        self.key = place(mesh, key)
        self.first_carry = make_first_carry(objective, batches.transform)
        self.steps = make_advance(objective, optimiser, batches.transform, trainable)

    def start(self, model: Any, memory: Any, key: Key[Array, ""]) -> TrainState:
        """The state before the first step."""
        model, memory, key = place(self.mesh, (model, memory, key))
        with use_mesh(self.mesh):
            carry = self.first_carry(model, self.data, self.batches.indices(0, 1)[0], key)
        return TrainState(model, memory, carry)

    def advance(self, state: TrainState, start: int, stop: int, width: int) -> tuple:
        """State, step, metrics and what is finite after steps [start, stop), at most `width`."""
        rows = np.zeros((width, self.batches.size), np.int32)
        rows[: stop - start] = self.batches.indices(start, stop)
        bounds = np.int32(start), np.int32(stop)
        with use_mesh(self.mesh), told_of_loss(self.mesh):
            state, *outcome = self.steps(state, self.data, rows, *bounds, self.key)
            return state, *jax.device_get(outcome)

    def batch(self, step: int) -> PyTree:
        """The batch of a step, as the objective sees it."""
        rows = self.batches.indices(step, step + 1)[0]
        key, _ = jax.random.split(jax.random.fold_in(gather(self.mesh, self.key), step))
        return self.batches.take(self.batches.data, jnp.asarray(rows), key)
