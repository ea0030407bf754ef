"""Where chains begin: random states, states that users give, and what is refused of these."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from undirected.core.errors import UndirectedError, check_counts, check_offers
from undirected.core.layout import Layout
from undirected.core.numerics import check_finite, is_traced
from undirected.core.protocols import Kernel, Model
from undirected.core.units import random_units
from undirected.sampling.lead_in import LEAD, forbids, led


def init_state(
    model: Model, shape: tuple[int, ...], key: Key[Array, ""]
) -> Float[Array, "*shape n"]:
    """Random states: uniform where a domain is finite, else normal or exponential of scale one."""
    dtype = jnp.result_type(*jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)))
    return random_units(model.layout, key, shape).astype(dtype)


def init_allowed(
    kernel: Kernel, model: Model, chains: int, key: Key[Array, ""]
) -> Float[Array, "chains n"]:
    """Random states; where a model forbids some, led by the kernel to what it allows."""
    x = init_state(model, (chains,), key)
    return led(kernel, model, x, jnp.ones(x.shape, bool), key, LEAD) if forbids(model) else x


def check_run(kernel: Any, model: Any, chains: int | None) -> None:
    """Refuse what is no kernel or no model, before either is asked for what it lacks."""
    check_offers("run_chains", "kernel", kernel, "un.Gibbs()", "init", "step")
    if isinstance(model, type) or not hasattr(model, "layout"):
        raise UndirectedError(
            f"run_chains: the model is {model!r:.60}; pass a model of units, which has a layout"
        )
    check_finite("run_chains", model)
    if chains is not None:
        check_counts("run_chains", chains=chains)


def first_state(
    kernel: Kernel,
    model: Model,
    start: Any,
    chains: int | None,
    free: Array | None,
    start_key: Key[Array, ""],
    init_key: Key[Array, ""],
) -> Any:
    """The state that chains go on from, or a new one at the first states of the chains."""
    if isinstance(start, eqx.Module):
        _check_state(kernel, model, start, chains, init_key)
        return start
    x = _starts(kernel, model, start, chains, free, start_key)
    state = kernel.init(model, x, init_key)
    _check_held(model.layout, x, free)
    return state


def _check_state(
    kernel: Kernel, model: Model, state: Any, chains: int | None, key: Key[Array, ""]
) -> None:
    """Refuse to go on from what this kernel does not make of chains of this model."""
    shape, units = jnp.shape(getattr(state, "x", 0.0)), model.layout.n
    if shape[-1:] != (units,) or chains not in (None, shape[0]):
        raise UndirectedError(
            f"run_chains: start is a state with x of shape {shape}, and chains is {chains}; the "
            f"model has {units} units: pass a state of its chains, without `chains`"
        )
    like = eqx.filter_eval_shape(kernel.init, model, state.x, key)
    if _shapes(state) != _shapes(like):
        raise UndirectedError(
            f"run_chains: start is a {type(state).__name__} that this {type(kernel).__name__} "
            "does not go on from; pass the state of a result of the same kernel, or the `x` of "
            "this one, from which chains begin anew"
        )


def _shapes(tree: Any) -> tuple[Any, list[tuple[int, ...]]]:
    return jax.tree.structure(tree), [jnp.shape(leaf) for leaf in jax.tree.leaves(tree)]


def _check_held(layout: Layout, x: Float[Array, "chains n"], free: Array | None) -> None:
    """Refuse to hold units at what is no value of theirs: no move would ever mend it."""
    if free is None or is_traced((x, free)) or np.shape(free)[-1:] != x.shape[-1:]:
        return  # the kernel says what is wrong with a mask of another length
    values, held = np.asarray(x), ~np.asarray(free, bool)
    inside = layout.is_continuous | ((values >= 0) & (values <= 1))
    wrong = held & ~(inside & np.isfinite(values))
    if wrong.any():
        chain, unit = np.argwhere(wrong)[0].tolist()
        raise UndirectedError(
            f"run_chains: `free` holds unit {unit} at {values[chain, unit]:g}; pass a start where "
            "held units have a state, 0 or 1 (spins s are written as (s + 1) / 2), or a finite "
            "number where they are continuous"
        )


def _starts(
    kernel: Kernel,
    model: Model,
    start: Array | None,
    chains: int | None,
    free: Array | None,
    key: Key[Array, ""],
) -> Float[Array, "chains n"]:
    """The first states of the chains."""
    if start is None:
        if chains is None or free is not None:
            raise UndirectedError(
                "run_chains: a random start needs `chains` and no `free` mask (clamped units would "
                "hold random values); pass `start`, or `chains` alone"
            )
        return init_allowed(kernel, model, chains, key)
    x = jnp.asarray(start)
    if x.ndim == 1:
        x = jnp.broadcast_to(x, (chains or 1, x.shape[0]))
    if x.ndim != 2 or x.shape[0] != (chains or x.shape[0]):
        raise UndirectedError(
            f"run_chains: start has shape {x.shape} and chains is {chains}; pass an array "
            f"(chains, {model.layout.n})"
        )
    return x
