"""Steps that leave the diagonal of a nonnegative model above 0, without which it has no density."""

from typing import Any, cast

import equinox as eqx
import jax.numpy as jnp

from undirected.core.protocols import Optimiser

LEAST = 1e-2
"""Of an entry where the unit has a mean of about 1: an exponential has 0."""


def positive_diagonal(optimiser: Optimiser) -> Optimiser:
    """The optimiser, but no step takes an entry of the `diagonal` below LEAST, or its own value.

    Data with tails like an exponential or longer draw it towards 0, and a step would pass it.
    """
    import optax

    def update(gradient: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        updates, state = optimiser.update(gradient, state, params)
        if updates.diagonal is None:  # held
            return updates, state
        kept = jnp.maximum(updates.diagonal, jnp.minimum(LEAST - params.diagonal, 0.0))
        return eqx.tree_at(lambda u: u.diagonal, updates, kept), state

    return optax.GradientTransformation(cast(Any, optimiser.init), cast(Any, update))
