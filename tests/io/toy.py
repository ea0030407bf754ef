"""A small model of the shape the library asks for, without the library's models."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from undirected.core.layout import Block, Layout


class Toy(eqx.Module):
    weights: Array
    bias: Array
    wiring: Array
    scale: float = 1.0
    name: str = eqx.field(static=True, default="toy")

    @classmethod
    def filled(cls, value: float, shape: tuple[int, int] = (4, 3), name: str = "toy") -> "Toy":
        weights = jnp.asarray(np.full(shape, value, np.float32))
        bias = jnp.asarray(np.full(shape[0], value, np.float32))
        return cls(weights, bias, jnp.asarray(np.arange(2, dtype=np.int32)), float(value), name)

    @property
    def layout(self) -> Layout:
        rows, columns = self.weights.shape
        return Layout(
            (Block("visible", 0, rows), Block("hidden", rows, rows + columns, visible=False))
        )
