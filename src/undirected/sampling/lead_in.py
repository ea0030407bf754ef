"""Chains of models that forbid states: led to where something is allowed, and judged at the end."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from undirected.core.numerics import HARD, between, is_traced
from undirected.core.potentials import without_constant
from undirected.core.protocols import Kernel, Lowerable
from undirected.factors import Factor, MixedTables

LEAD, TRIES = 500, 10
"""Sweeps of a way to the model, and how often chains that end in a forbidden state try it."""


def forbids(model: Any) -> bool:
    """Whether a model of states gives some of them probability 0."""
    if not isinstance(model, Lowerable) or is_traced(model) or model.layout.is_continuous.any():
        return False
    p = model.lower()
    return any(
        factor.forbids or any(np.min(own, initial=0.0) < -HARD for own in _weights(factor))
        for factor in p.factors
    ) or bool(np.min(p.unary, initial=0.0) < -HARD)


def _weights(factor: Factor) -> list[np.ndarray]:
    """The log-potentials of a group, without what pads tables of different shapes."""
    if isinstance(factor.weight, jax.Array) and not factor.weight.is_fully_addressable:
        return []  # spread over processes, as the weights of dense models alone may be
    weight = np.asarray(factor.weight)
    return factor.each(weight) if isinstance(factor, MixedTables) else [weight]


def led(
    kernel: Kernel,
    model: Any,
    x: Float[Array, "chains n"],
    free: Bool[Array, "chains n"],
    key: Key[Array, ""],
    sweeps: int,
) -> Float[Array, "chains n"]:
    """States after as many sweeps on the way from no energy at all to the model.

    From a random start, in a model whose constraints hold from the first step on, single moves end
    where several constraints are broken and no move mends one alone. Chains that end so all the
    same set out again, a few times.
    """
    lost = np.ones(len(x), bool)
    for own in jax.random.split(key, TRIES):
        x = jnp.where(lost[:, None], _led(kernel, model, x, free, own, np.asarray(sweeps)), x)
        lost = broken(model, x)
        if not lost.any():
            break
    return x


@eqx.filter_jit
def _led(kernel: Kernel, model: Any, x: Array, free: Array, key: Any, sweeps: Any) -> Array:
    def step(k: Array, x: Array) -> Array:
        init, move = jax.random.split(jax.random.fold_in(key, k))
        here = jax.tree.map(
            lambda a: between((k + 1) / sweeps, 0 * a, a) if eqx.is_inexact_array(a) else a, model
        )
        return kernel.step(here, kernel.init(here, x, init), free, move)[0].x

    return jax.lax.fori_loop(0, sweeps, step, x)


def broken(model: Any, x: Float[Array | np.ndarray, "rows n"]) -> Bool[np.ndarray, " rows"]:
    """Which states the model forbids."""
    bare, _ = without_constant(model)
    return np.asarray(state_energies(bare, jnp.asarray(x)) > HARD)


@eqx.filter_jit
def state_energies(model: Any, x: Array) -> Float[Array, " rows"]:
    """Those of many states, a thousand at a time."""
    return jax.lax.map(model.energy, x, batch_size=1000)
