"""The energies that weights are made of: hidden units are summed out where a model can."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from undirected.core.protocols import Summable
from undirected.core.units import draw


def summed_blocks(model: Any) -> list[int]:
    """The hidden blocks that can be summed out and drawn given the visibles; none if not all."""
    hidden = [i for i, block in enumerate(model.layout.blocks) if not block.visible]
    return hidden if isinstance(model, Summable) and hasattr(model, "conditional") else []


def energy(model: Any, x: Float[Array, "chains n"]) -> Float[Array, " chains"]:
    """The energy of states; that of the visibles where the hidden units can be summed out."""
    if not summed_blocks(model):
        return model.energy(x)
    return model.free_energy(x[..., : model.layout.n_visible])


def refresh_hidden(model: Any, x: Float[Array, "chains n"], key: Key[Array, ""]) -> Array:
    """Draw h from p(h | v): free energies weigh such pairs, not hiddens of an earlier beta."""
    for index in summed_blocks(model):
        block = model.layout.blocks[index]
        own = key if index == summed_blocks(model)[0] else jax.random.fold_in(key, index)
        drawn = draw(block, model.conditional(index, x), own)
        x = jnp.concatenate([x[..., : block.start], drawn, x[..., block.stop :]], -1)
    return x
