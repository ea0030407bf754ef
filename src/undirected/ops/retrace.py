"""Many steps of a recursion, and the way back through them with few of the states stored.

On the way there every stride-th state is kept; on the way back the states between two of them are
made again. With a stride of the square root of the number of steps, that many states are held.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

SMALL = 2**28
"""Bytes of states that are all stored for the reverse pass."""

State = tuple[Array, ...]


def stride_of(steps: int, state_bytes: int) -> int:
    """Steps from one stored state to the next: one where all of them are small."""
    return 1 if steps * state_bytes <= SMALL else math.isqrt(steps - 1) + 1


def there(
    step: Callable[[State], State], state: State, steps: int, stride: int
) -> tuple[State, State]:
    """The state after all steps, and every stride-th before it, one above the other."""
    if steps == 0:
        return state, _room(0, state)
    count = -(-steps // stride)

    def segment(k: Array, both: tuple[State, State]) -> tuple[State, State]:
        now, stored = both
        stored = _put(stored, now, k)
        many = jnp.minimum(stride, steps - k * stride)
        return jax.lax.fori_loop(0, many, lambda _, s: step(s), now), stored

    return jax.lax.fori_loop(0, count, segment, (state, _room(count, state)))


def back(
    step: Callable[[State], State],
    undo: Callable[[State, Any], Any],
    stored: State,
    slopes: Any,
    steps: int,
    stride: int,
) -> Any:
    """`slopes` taken back through all steps; `undo(state, slopes)` goes through one, given the
    state before it.
    """
    if steps == 0:
        return slopes
    count = -(-steps // stride)

    def segment(k: Array, slopes: Any) -> Any:
        k = count - 1 - k
        now = _take(stored, k)
        if stride == 1:
            return undo(now, slopes)
        many = jnp.minimum(stride, steps - k * stride)

        def again(i: Array, both: tuple[State, State]) -> tuple[State, State]:
            now = step(both[0])
            return now, _put(both[1], now, i)

        kept = _put(_room(stride, now), now, 0)
        _, kept = jax.lax.fori_loop(1, many, again, (now, kept))
        return jax.lax.fori_loop(0, many, lambda i, s: undo(_take(kept, many - 1 - i), s), slopes)

    return jax.lax.fori_loop(0, count, segment, slopes)


def _room(count: int, like: State) -> State:
    return jax.tree.map(lambda a: jnp.zeros((count, *a.shape), a.dtype), like)


def _put(stack: State, values: State, at: int | Array) -> State:
    return jax.tree.map(lambda a, v: a.at[at].set(v), stack, values)


def _take(stack: State, at: Array) -> State:
    return jax.tree.map(lambda a: a[at], stack)
