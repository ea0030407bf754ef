"""Learning rates of stochastic approximation."""

from collections.abc import Callable

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array

from undirected.core.errors import UndirectedError


def hold_then_decay(rate: float, hold: int, offset: float) -> Callable[[ArrayLike], Array]:
    """`rate` for `hold` steps, then rate * offset / (offset + t), t counted from there.

    This is a / (b + t) with a = rate * offset and b = offset, which starts where the constant ends;
    its sum diverges and the sum of its squares does not, as Robbins and Monro (1951) ask.
    """
    if hold < 0 or not offset > 0:
        raise UndirectedError(
            f"hold_then_decay: hold is {hold} and offset {offset}; pass 0 or more steps and an "
            "offset above 0"
        )

    def schedule(step: ArrayLike) -> Array:
        late = jnp.maximum(jnp.asarray(step) - hold, 0)
        return jnp.asarray(rate * offset / (offset + late))

    return schedule
