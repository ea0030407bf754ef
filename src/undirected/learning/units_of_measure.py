"""Steps in the units of measure of a model: a learning rate means the same in metres and miles."""

from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from undirected.core.protocols import Optimiser, Rescalable


class _State(NamedTuple):
    inner: Any
    near: Any
    means: Float[Array, " v"]
    scale: Float[Array, " v"]


def in_own_units(optimiser: Optimiser, model: Rescalable) -> Optimiser:
    """The optimiser on the parameters that the model has where its means are 0 and its scales 1.

    The model is the same, and so are the objective, the chains and all that is saved: only the
    steps are made there, and told in the units of the data. Without it a step of 0.002 is nothing
    for a mean of 1000, and far too long for values of 0.001. All parameters must be learned.
    """
    import optax

    _, rest = eqx.partition(model, eqx.is_inexact_array)

    def told(params: Any, means: Array, scale: Array) -> Any:
        found = eqx.combine(params, rest).rescaled(means, scale)
        return eqx.filter(found, eqx.is_inexact_array)

    def init(params: Any) -> _State:
        means, scale = eqx.combine(params, rest).units_of_measure()
        near = told(params, -means / scale, 1 / scale)
        return _State(optimiser.init(near), near, means, scale)

    def update(gradient: Any, state: _State, params: Any = None) -> tuple[Any, _State]:
        _, pull = jax.vjp(lambda near: told(near, state.means, state.scale), state.near)
        steps, inner = optimiser.update(pull(gradient)[0], state.inner, state.near)
        near = optax.apply_updates(state.near, steps)
        updates = jax.tree.map(jnp.subtract, told(near, state.means, state.scale), params)
        return updates, _State(inner, near, state.means, state.scale)

    return optax.GradientTransformation(init, cast(Any, update))
