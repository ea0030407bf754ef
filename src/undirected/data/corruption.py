"""Spoiling data on purpose: flipped bits, covered patches, missing entries; and binarising greys.

Every corruption returns the spoilt states and `hit`, True where an entry was touched. Missing
entries are NaN; `~hit` is then the mask of what was observed. Each row draws its own corruption.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, Shaped

from undirected.core.errors import UndirectedError

State = Float[Array, "*batch n"]
Hit = Bool[Array, "*batch n"]
SIDES = ("left", "right", "top", "bottom")


def binarise(x: Shaped[Array, "*batch n"], key: Key[Array, ""], *, maximum: float = 255.0) -> State:
    """Draw each unit as 1 with probability its grey value / maximum."""
    return jax.random.bernoulli(key, _floats(x) / maximum).astype(_floats(x).dtype)


def threshold(x: Shaped[Array, "*batch n"], *, level: float = 127.0) -> State:
    """Set each unit to 1 where its grey value is above the level."""
    return (_floats(x) > level).astype(_floats(x).dtype)


def flip(
    x: Shaped[Array, "*batch n"], rate: float | Float[Array, ""], key: Key[Array, ""]
) -> tuple[State, Hit]:
    """Turn each binary entry into its opposite with probability `rate`."""
    x = _floats(x)
    hit = _bernoulli(rate, x, key)
    return jnp.where(hit, 1 - x, x), hit


def occlude(
    x: Shaped[Array, "*batch n"],
    image_shape: Sequence[int],
    size: int,
    key: Key[Array, ""],
    *,
    value: float = 0.0,
) -> tuple[State, Hit]:
    """Set a size x size patch at a random place of each image to one value."""
    x = _floats(x)
    hit = _patches(x, image_shape, size, key)
    return jnp.where(hit, value, x), hit


def drop(
    x: Shaped[Array, "*batch n"], rate: float | Float[Array, ""], key: Key[Array, ""]
) -> tuple[State, Hit]:
    """Make each entry missing (NaN) with probability `rate`."""
    x = _floats(x)
    return _without(x, _bernoulli(rate, x, key))


def drop_patch(
    x: Shaped[Array, "*batch n"], image_shape: Sequence[int], size: int, key: Key[Array, ""]
) -> tuple[State, Hit]:
    """Make a size x size patch at a random place of each image missing (NaN)."""
    x = _floats(x)
    return _without(x, _patches(x, image_shape, size, key))


def drop_half(
    x: Shaped[Array, "*batch n"],
    image_shape: Sequence[int],
    key: Key[Array, ""],
    *,
    sides: Sequence[str] = SIDES,
) -> tuple[State, Hit]:
    """Make one half of each image missing (NaN), the side drawn at random among `sides`."""
    x = _floats(x)
    unknown = [side for side in sides if side not in SIDES]
    if unknown or not sides:
        raise UndirectedError(f"drop_half: sides {list(sides)}; pass some of {', '.join(SIDES)}")
    row, column, (rows, columns) = _grid(x, image_shape)
    half = {
        "left": column < columns // 2,
        "right": column >= columns - columns // 2,
        "top": row < rows // 2,
        "bottom": row >= rows - rows // 2,
    }
    choices = jnp.stack([half[side] for side in sides])
    hit = choices[jax.random.randint(key, x.shape[:-1], 0, len(sides))]
    return _without(x, hit)


def _floats(x: Shaped[Array, "*batch n"]) -> State:
    """Return x as floats: what is float stays as it is, integers and bools become float32."""
    x = jnp.asarray(x)
    return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.float32)


def _without(x: State, hit: Hit) -> tuple[State, Hit]:
    return jnp.where(hit, jnp.nan, x), hit


def _bernoulli(rate: float | Float[Array, ""], x: State, key: Key[Array, ""]) -> Hit:
    if isinstance(rate, int | float) and not 0 <= rate <= 1:
        raise UndirectedError(f"corruption: rate is {rate}; pass a probability from 0 to 1")
    return jax.random.bernoulli(key, rate, x.shape)


def _patches(x: State, image_shape: Sequence[int], size: int, key: Key[Array, ""]) -> Hit:
    """Mark one square per image, its corner uniform over the places where it fits."""
    row, column, (rows, columns) = _grid(x, image_shape)
    if not 0 < size <= min(rows, columns):
        raise UndirectedError(
            f"corruption: a {size}x{size} patch does not fit a {rows}x{columns} image; "
            f"pass a size from 1 to {min(rows, columns)}"
        )
    row_key, column_key = jax.random.split(key)
    batch = (*x.shape[:-1], 1)
    top = jax.random.randint(row_key, batch, 0, rows - size + 1)
    left = jax.random.randint(column_key, batch, 0, columns - size + 1)
    return _within(row, top, size) & _within(column, left, size)


def _within(place: Int[Array, " n"], start: Int[Array, "*batch 1"], size: int) -> Hit:
    offset = place.reshape((1,) * (start.ndim - 1) + place.shape) - start
    return (offset >= 0) & (offset < size)


def _grid(
    x: State, image_shape: Sequence[int]
) -> tuple[Int[Array, " n"], Int[Array, " n"], tuple[int, int]]:
    """Return row and column of each unit; of several channels each is corrupted alike."""
    if len(image_shape) < 2 or math.prod(image_shape) != x.shape[-1]:
        raise UndirectedError(
            f"corruption: image_shape {tuple(image_shape)} does not fit states of {x.shape[-1]} "
            "units; pass the dataset's image_shape"
        )
    rows, columns = image_shape[-2:]
    pixel = jnp.arange(x.shape[-1]) % (rows * columns)
    return pixel // columns, pixel % columns, (rows, columns)
