"""What kernels share: the state of chains that carry nothing but x, and the checks of a start."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from undirected.core.errors import UndirectedError, UnsupportedFactor, check_counts
from undirected.core.layout import Domain, Layout, check_discrete, joint_states
from undirected.core.numerics import is_traced
from undirected.core.potentials import Potentials
from undirected.core.protocols import Lowerable
from undirected.core.units import free_variables


class ChainState(eqx.Module):
    """The joint states of the chains."""

    x: Float[Array, "*chains n"]


class Evaluations(NamedTuple):
    """What a step computes for one chain: energies of a state, and gradients.

    A gradient is the fields of all units at one state; those of some units count as their share.
    """

    energies: float
    gradients: float


def discrete_start(kernel: str, model: Any, x: Any) -> ChainState:
    """Chains that start at x, of a discrete model that lowers."""
    check_lowerable(kernel, model, "BlockGibbs")
    check_discrete(kernel, *model.layout.blocks)
    x = joint_states(kernel, model.layout, x)
    check_start(kernel, model.layout, x)
    return ChainState(x)


def flat_chains(
    kernel: str, model: Lowerable, state: ChainState, free: Bool[Array, "*#chains n"]
) -> tuple[Potentials, Float[Array, "chains n"], Bool[Array, "chains n"]]:
    """Potentials, states along one axis of chains, and as many masks of free units."""
    p = model.lower()
    x = state.x.reshape(-1, state.x.shape[-1])
    free = free_variables(kernel, p.layout, free)
    return p, x, jnp.broadcast_to(free, state.x.shape).reshape(x.shape)


def check_lowerable(kernel: str, model: Any, instead: str) -> None:
    """Refuse a model without potentials; `instead` is the kernel that takes it."""
    if not isinstance(model, Lowerable):
        raise UnsupportedFactor(
            f"{kernel}: {type(model).__name__} does not lower to potentials; use {instead}"
        )


def check_sweeps(kernel: str, sweeps: int) -> None:
    """Refuse a step that moves nothing."""
    check_counts(kernel, sweeps=sweeps)


def check_start(kernel: str, layout: Layout, x: Float[Array, "*chains n"]) -> None:
    """Refuse what is no state, where moves from state to state would never make one of it."""
    if is_traced(x):
        return
    for block in layout.blocks:
        part = np.asarray(x[..., block.slice])
        good, wanted = np.isin(part, (0, 1)).all(), "numbers 0 and 1"
        if block.domain is Domain.CATEGORICAL:
            ones = part.reshape(*part.shape[:-1], block.variables, block.states).sum(-1)
            good, wanted = good and (ones == 1).all(), f"one 1 in every {block.states} units"
        if not good:
            raise UndirectedError(
                f"{kernel}: the start of block '{block.name}' is no state; pass {wanted}, or no "
                "start and a number of chains"
            )
