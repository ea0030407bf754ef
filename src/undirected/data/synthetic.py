"""Small sets made on the spot: bars and stripes, exact samples of an enumerated model."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from undirected.core.errors import UndirectedError

MAX_UNITS = 20


def enumerate_states(n: int) -> Float[np.ndarray, "states n"]:
    """Return all 2^n binary states, counting upwards with the first unit as the highest bit."""
    if not 0 < n <= MAX_UNITS:
        raise UndirectedError(
            f"enumerate_states: n is {n}; pass 1 to {MAX_UNITS} units, there are 2^n states"
        )
    numbers = np.arange(2**n)[:, None]
    return (numbers >> np.arange(n - 1, -1, -1) & 1).astype(np.float32)


def bars_and_stripes(side: int) -> Float[np.ndarray, "patterns pixels"]:
    """Return the 2^(side+1) - 2 images whose rows, or whose columns, are each all on or all off."""
    lines = enumerate_states(side)
    bars = np.repeat(lines, side, axis=1)
    stripes = np.tile(lines, side)
    return np.unique(np.concatenate([bars, stripes]), axis=0)


def sample_exact(
    energy: Callable[[Float[Array, "states n"]], Float[Array, " states"]],
    n: int,
    count: int,
    key: Key[Array, ""],
) -> Float[Array, "count n"]:
    """Draw independent samples of p(x) = exp(-energy(x)) / Z, x in {0,1}^n, by enumeration."""
    states = jnp.asarray(enumerate_states(n))
    chosen = jax.random.categorical(key, -energy(states), shape=(count,))
    return states[chosen]
