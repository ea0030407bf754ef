"""A small model of the shape the library asks for, without the library's models."""

from typing import Any

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

    def config(self) -> dict[str, Any]:
        return {"shape": self.weights.shape, "name": self.name}

    @classmethod
    def skeleton(cls, config: dict[str, Any]) -> "Toy":
        rows, columns = config["shape"]
        zeros = jnp.zeros((rows, columns)), jnp.zeros(rows), jnp.zeros(2, jnp.int32)
        return cls(*zeros, name=config["name"])
