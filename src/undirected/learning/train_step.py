"""Training steps on the device: one compiled loop, made again with care if it was not finite."""

import dataclasses
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key, PyTree

from undirected.core.errors import UndirectedError
from undirected.core.mesh import split_chains, whole
from undirected.core.protocols import Objective, Optimiser
from undirected.learning.batches import take
from undirected.learning.structure import Structure

PROGRAMS = 32
"""Settings whose compiled steps are kept: they hold memory, and what functions close over."""


class TrainState(eqx.Module):
    """All that a step changes: the model, the optimiser's state, what the objective carries."""

    model: Any
    optimiser: Any
    carry: Any


def trainable_leaves(model: PyTree, trainable: PyTree | Callable[[Any], bool]) -> PyTree:
    """True at every inexact array of the model that the filter lets through."""
    _check_floats(model)
    if isinstance(trainable, str) or any(isinstance(a, str) for a in jax.tree.leaves(trainable)):
        raise UndirectedError(
            f"fit: trainable is {trainable!r:.60}; pass a function of an array, or a copy of the "
            "model with True and False for its arrays: those of True are learned"
        )
    chosen = eqx.filter(eqx.filter(model, trainable), eqx.is_inexact_array)
    if not jax.tree.leaves(chosen):
        raise UndirectedError(
            f"fit: no parameter of {type(model).__name__} is trainable; "
            "check the filter passed as trainable"
        )
    return jax.tree.map(lambda leaf: leaf is not None, chosen, is_leaf=lambda leaf: leaf is None)


def _check_floats(model: PyTree) -> None:
    """Refuse parameters of whole numbers, which have no gradient and would stay as they are."""
    for field in dataclasses.fields(model) if isinstance(model, eqx.Module) else ():
        value, wanted = getattr(model, field.name), str(field.type)
        if eqx.is_array(value) and value.dtype.kind in "iub" and "Float[" in wanted:
            raise UndirectedError(
                f"fit: {type(model).__name__}.{field.name} is of {value.dtype}, which cannot be "
                "learned; pass floats, such as jnp.asarray(numbers, float)"
            )


def make_advance(
    objective: Objective,
    optimiser: Optimiser,
    transform: Callable | None,
    trainable: PyTree,
) -> Callable:
    """`advance(state, data, rows, start, stop, key) -> (state, step, metrics, finite)`.

    Makes steps start..stop-1 on the batches in `rows`, of which only the first stop - start count.
    Whether all went well shows at the end, where what is not finite stays so. If it did not, the
    steps are made again, up to one whose loss, gradient, new parameters or new carry are not
    finite: `finite` says what is, `step` counts the good steps, and a call with that `stop` gives
    the good state. `metrics` are means over the steps.

    A GPU makes a step's work ready while it is busy with the step before, unless the host must look
    whether there is another step: so a call that uses all rows is compiled for their number.

    Settings made the same way get the same function, and so what was compiled for it.
    """
    mask = tuple(jax.tree.leaves(trainable)), jax.tree.structure(trainable)
    return _advance(Structure((objective, optimiser, transform, mask)))


def make_first_carry(objective: Objective, transform: Callable | None) -> Callable:
    """`first_carry(model, data, rows, key)`: what the objective carries before the first step."""
    return _init(Structure((objective, transform)))


@lru_cache(maxsize=PROGRAMS)
def _init(settings: Structure) -> Callable:
    objective, transform = settings.value

    @eqx.filter_jit
    def init(model: Any, data: PyTree, rows: Array, key: Key[Array, ""]) -> Any:
        batch_key, carry_key = jax.random.split(key)
        carry = objective.init(model, take(transform, data, rows, batch_key), carry_key)
        return split_chains(carry)

    return init


@lru_cache(maxsize=PROGRAMS)
def _advance(settings: Structure) -> Callable:
    """The functions of `make_advance`."""
    objective, optimiser, transform, (leaves, structure) = settings.value
    trainable = jax.tree.unflatten(structure, leaves)
    value_name = getattr(objective, "value_name", "surrogate")
    step = _one_step(objective, optimiser, transform, trainable, value_name)

    @eqx.filter_jit
    def go(
        careful: bool,
        count: int | None,
        state: TrainState,
        data: PyTree,
        rows: Array,
        bounds: tuple,
        key: Array,
    ) -> tuple:
        start, stop = bounds
        arrays, static = eqx.partition(state, eqx.is_array)

        def body(loop: tuple) -> tuple:
            at, arrays, sums, _ = loop
            before = eqx.combine(arrays, static)
            step_key = jax.random.fold_in(key, at)
            after, metrics, finite = step(before, data, rows[at - start], step_key)
            sums = jax.tree.map(jnp.add, sums, metrics)
            if not careful:
                return at + 1, eqx.filter(after, eqx.is_array), sums, fine
            return at + _all(finite), eqx.filter(after, eqx.is_array), sums, finite

        _, metrics, finite = eqx.filter_eval_shape(step, state, data, rows[0], key)
        nothing = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), metrics)
        fine = jax.tree.map(lambda a: jnp.ones(a.shape, a.dtype), finite)
        first = start, arrays, nothing, fine
        if count is None:
            at, arrays, sums, finite = jax.lax.while_loop(
                lambda loop: (loop[0] < stop) & _all(loop[3]), body, first
            )
        else:
            loop = jax.lax.fori_loop(0, count, lambda _, loop: body(loop), first)
            at, arrays, sums, finite = loop
        means = jax.tree.map(lambda total: total / jnp.maximum(at - start, 1), sums)
        after = _spread(eqx.combine(arrays, static))
        parameters = eqx.filter(after.model, trainable)
        well = _all(_finite("", (sums[value_name], parameters, after.carry)))
        return (after, at, means, finite), well

    def advance(
        state: TrainState, data: PyTree, rows: Array, start: Array, stop: Array, key: Array
    ) -> tuple:
        given = state, data, rows, (start, stop), key
        found, well = go(False, _known(len(rows), int(stop - start)), *given)
        return found if well else go(True, None, *given)[0]

    advance.go = go  # the program, for those who want to look at it
    return advance


def _one_step(
    objective: Objective,
    optimiser: Optimiser,
    transform: Callable | None,
    trainable: PyTree,
    value_name: str,
) -> Callable:
    """`step(state, data, rows, key) -> (state, metrics, finite)`."""
    import optax

    @eqx.filter_jit
    def step(state: TrainState, data: PyTree, rows: Array, key: Array) -> tuple:
        batch_key, key = jax.random.split(key)
        batch = take(transform, data, rows, batch_key)
        parameters, rest = eqx.partition(state.model, trainable)

        def value(parameters: PyTree) -> tuple:
            return objective(eqx.combine(parameters, rest), batch, state.carry, key)

        (loss, (carry, info)), gradient = jax.value_and_grad(value, has_aux=True)(parameters)
        updates, memory = optimiser.update(gradient, state.optimiser, parameters)
        parameters = optax.apply_updates(parameters, updates)
        metrics = {value_name: loss, **info}
        metrics = {name: jnp.mean(jnp.asarray(a, loss.dtype)) for name, a in metrics.items()}
        finite = {
            "loss": {"loss": jnp.isfinite(loss)},
            "gradient": _finite("gradient of ", gradient),
            "parameters": _finite("new ", parameters),
            "carry": _finite("carried ", carry),
        }
        after = TrainState(eqx.combine(parameters, rest), memory, carry)
        return _spread(after), metrics, finite

    return step


def _spread(state: TrainState) -> TrainState:
    """The state with its chains split over the devices of the mesh, if there is one."""
    return TrainState(whole(state.model), whole(state.optimiser), split_chains(state.carry))


def _known(rows: int, steps: int) -> int | None:
    """The number of steps to compile for, where that pays."""
    return steps if steps == rows and jax.default_backend() == "gpu" else None


def not_finite(finite: dict[str, dict[str, bool]]) -> str:
    """Names of what blew up, causes before effects; empty where all is well."""
    for kinds in (("loss", "gradient"), ("parameters",), ("carry",)):
        names = [name for kind in kinds for name, fine in finite[kind].items() if not fine]
        if names:
            return ", ".join(names)
    return ""


def _finite(prefix: str, tree: PyTree) -> dict[str, Array]:
    """Whether every entry of each inexact array is finite, by the array's path."""
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(tree, eqx.is_inexact_array))
    return {
        prefix + jax.tree_util.keystr(path, simple=True, separator="."): jnp.isfinite(leaf).all()
        for path, leaf in leaves
    }


def _all(finite: PyTree) -> Array:
    return jnp.stack(jax.tree.leaves(finite)).all()
