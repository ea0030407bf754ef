"""Variables by their states instead of their units: numbered block after block, from 0."""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from undirected.core.errors import UndirectedError
from undirected.core.layout import Layout
from undirected.core.potentials import Potentials, clamp
from undirected.core.wiring import Variables


def units(layout: Layout, states: Int[np.ndarray, "*batch variables"]) -> Float[Array, "*batch n"]:
    """The units of joint states: 0 or 1, and one of several for a variable of many states."""
    variables, found = Variables.of(layout), np.asarray(states)
    if found.shape[-1:] != (len(variables),) or not np.issubdtype(found.dtype, np.integer):
        raise UndirectedError(
            f"units: states of shape {found.shape} and type {found.dtype}; pass a whole number for "
            f"each of {len(variables)} variables"
        )
    for variable in np.unique(np.nonzero((found < 0) | (found >= variables.states))[-1]):
        _check_states("units", variables, variable, found[..., variable])
    owner, state = _owners(variables)
    return jnp.asarray(found[..., owner] == state, float)


def marginals(
    layout: Layout, unary: Float[Array, "*batch n"]
) -> Float[Array, "*batch variables most"]:
    """Probability of every state of every variable; 0 beyond the last state of a variable.

    `unary` are means of units, as beliefs have them, or joint states; `.argmax(-1)` gives states.
    """
    variables = Variables.of(layout)
    state = np.arange(int(variables.states.max()))
    exists = state < variables.states[:, None]
    binary = variables.width[:, None] == 1
    place = variables.first[:, None] + np.where(binary | ~exists, 0, state)
    found = jnp.asarray(unary)[..., place]
    found = jnp.where(binary & (state == 0), 1 - found, found)
    return jnp.where(exists, found, 0)


def observe(p: Potentials, states: Mapping[int, int]) -> Potentials:
    """Hard evidence: `{variable: state}`."""
    variables = Variables.of(p.layout)
    value, seen = np.zeros(len(variables), int), np.zeros(len(variables), bool)
    for variable, state in states.items():
        if not 0 <= variable < len(variables):
            raise UndirectedError(
                f"observe: there is no variable {variable}; pass one of 0 to {len(variables) - 1}"
            )
        _check_states("observe", variables, variable, np.asarray([state]))
        value[variable], seen[variable] = state, True
    return clamp(p, jnp.asarray(seen[variables.owner]), units(p.layout, value))


def _owners(variables: Variables) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """The variable of every unit, and the state of it that the unit stands for."""
    owner = variables.owner
    step = np.arange(len(owner)) - variables.first[owner]
    return owner, np.where(variables.width[owner] == 1, 1, step)


def _check_states(
    caller: str, variables: Variables, variable: int, states: Int[np.ndarray, "*batch"]
) -> None:
    bad = states[(states < 0) | (states >= variables.states[variable])]
    if bad.size:
        raise UndirectedError(
            f"{caller}: variable {variable} has no state {bad.flat[0]}; pass one of 0 to "
            f"{variables.states[variable] - 1}"
        )
