"""What kernels share: the state of chains that carry nothing but x, and the checks of a start."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.layout import Layout
from undirected.core.protocols import Lowerable


class ChainState(eqx.Module):
    """The joint states of the chains."""

    x: Float[Array, "*chains n"]


def joint_states(kernel: str, layout: Layout, x: Any) -> Float[Array, "*chains n"]:
    """The start of chains as floating point numbers, one for every unit, hidden ones included."""
    x = jnp.asarray(x)
    if x.shape[-1:] != (layout.n,):
        raise UndirectedError(
            f"{kernel}: the start has shape {x.shape}, the model has {layout.n} units of which "
            f"{layout.n_visible} are visible; pass joint states (*chains, {layout.n})"
        )
    return x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(float)


def check_lowerable(kernel: str, model: Any, instead: str) -> None:
    """Refuse a model without potentials; `instead` is the kernel that takes it."""
    if not isinstance(model, Lowerable):
        raise UnsupportedFactor(
            f"{kernel}: {type(model).__name__} does not lower to potentials; use {instead}"
        )


def check_sweeps(kernel: str, sweeps: int) -> None:
    """Refuse a step that moves nothing."""
    if sweeps < 1:
        raise UndirectedError(f"{kernel}: sweeps is {sweeps}; pass 1 or more")
