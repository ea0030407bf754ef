"""Random numbers that are made inside the computation that uses them.

JAX's own generator runs as a computation by itself, which on a CPU takes many times as long as what
a Gibbs sweep does with its numbers. Here the same block function, Threefry-2x32 with all its 20
rounds (Salmon et al., 2011), is written out over a counter for every number, so that XLA puts it
into one loop with its use. The numbers differ from those of `jax.random`, their quality does not.

Each round waits for the one before, so that a core with a short memory of instructions idles for
half of the time. There two rows are drawn at once: the same numbers in three fifths of the time.
"""

import math
import platform
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Key, UInt

from undirected.core.errors import UndirectedError, check_counts
from undirected.core.mesh import on_mesh

ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
PARITY = 0x1BD11BDA
ROUNDS = 20
TWO_ROWS = platform.machine() in ("aarch64", "arm64")
"""Whether the processor is of those on which two rows at once were measured to be faster."""
FEWEST = 2**14
"""Numbers for which that pays."""


@partial(jax.jit, static_argnames="shape", inline=True)
def random_words(
    key: Key[Array, ""], shape: tuple[int, ...]
) -> tuple[UInt[Array, "*shape"], UInt[Array, "*shape"]]:
    """Two independent words of 32 random bits for every entry: Threefry of (row, column)."""
    key_words = _two_words(key)
    size = (math.prod(shape[:-1]), shape[-1]) if shape else (1, 1)
    counter = (lax.broadcasted_iota(jnp.uint32, size, axis) for axis in (0, 1))
    first, second = threefry(key_words, *counter)
    return first.reshape(shape), second.reshape(shape)


def threefry(key: tuple[Array, Array], first: Array, second: Array) -> tuple[Array, Array]:
    """The block function Threefry-2x32 of two counters."""
    schedule = (*key, key[0] ^ key[1] ^ jnp.uint32(PARITY))
    first, second = first + schedule[0], second + schedule[1]
    for i in range(ROUNDS):
        turn = ROTATIONS[i % len(ROTATIONS)]
        first = first + second
        second = (second << jnp.uint32(turn) | second >> jnp.uint32(32 - turn)) ^ first
        if i % 4 == 3:
            j = i // 4 + 1
            first = first + schedule[j % 3]
            second = second + schedule[(j + 1) % 3] + jnp.uint32(j)
    return first, second


@partial(jax.jit, static_argnames="shape", inline=True)
def uniform(key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "*shape"]:
    """Uniform numbers inside (0, 1)."""
    return _noise(key, shape, lambda u, rest: u)


@partial(jax.jit, static_argnames="shape", inline=True)
def logistic(key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "*shape"]:
    """Standard logistic noise: the log-odds of a uniform number."""
    return _noise(key, shape, lambda u, rest: jnp.log(u / rest))


@partial(jax.jit, static_argnames="shape", inline=True)
def gumbel(key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "*shape"]:
    """Standard Gumbel noise."""
    return _noise(key, shape, lambda u, rest: -jnp.log(-jnp.log(u)))


def _noise(
    key: Key[Array, ""], shape: tuple[int, ...], of: Callable[[Array, Array], Array]
) -> Float[Array, "*shape"]:
    """A function of a uniform number u and of 1 - u."""
    rows = math.prod(shape[:-1])
    large = rows % 2 == 0 and rows * shape[-1] >= FEWEST
    if TWO_ROWS and large and jax.default_backend() == "cpu" and not on_mesh():
        return _by_two_rows(key, (rows, shape[-1]), of).reshape(shape)
    return of(*_uniform(*random_words(key, shape)))


def _by_two_rows(
    key: Key[Array, ""], shape: tuple[int, int], of: Callable[[Array, Array], Array]
) -> Float[Array, "rows columns"]:
    """The same numbers, those of a row and of one in the other half as parts of a complex one.

    A loop that runs once, which XLA cannot know, keeps it from taking the parts for two
    computations.
    """
    key_words, half = _two_words(key), shape[0] // 2
    row, column = (lax.broadcasted_iota(jnp.uint32, (half, shape[1]), axis) for axis in (0, 1))

    def both(_: Array, found: Array) -> Array:
        words = [threefry(key_words, row + jnp.uint32(start), column) for start in (0, half)]
        return lax.complex(*(of(*_uniform(*pair)) for pair in words))

    once = jnp.minimum(key_words[0] | 1, 1).astype(jnp.int32)
    nothing = jnp.zeros((half, shape[1]), jnp.result_type(complex))
    found = lax.fori_loop(0, once, both, nothing)
    return jnp.concatenate([found.real, found.imag])


def _uniform(first: UInt[Array, "*s"], second: UInt[Array, "*s"]) -> tuple[Array, Array]:
    """u and 1 - u, both exact, on a grid of 2^23 points inside (0, 1); 2^52 in float64."""
    if jnp.zeros(()).dtype == jnp.float64:
        word, digits = first.astype(jnp.uint64) << 20 | second.astype(jnp.uint64) >> 12, 52
    else:
        word, digits = (first >> jnp.uint32(9)).astype(jnp.int32), 23
    count = word.astype(float) + 0.5
    scale = 0.5**digits
    return count * scale, (2.0**digits - count) * scale


def _two_words(key: Key[Array, ""]) -> tuple[Array, Array]:
    """The key as two words; a longer one, of another generator, is mixed down to them."""
    words = jax.random.key_data(key)
    pair = words[0], words[1]
    for k in range(2, words.shape[0], 2):
        pair = threefry(pair, words[k], words[k + 1])
    return pair


def make_key(caller: str, key: Key[Array, ""] | None, seed: int | None) -> Key[Array, ""]:
    """The key given, or that of a seed, which is 0 where neither is."""
    check_key(caller, key, seed)
    if key is not None:
        return key
    rest, word = divmod(int(seed or 0), 2**32)
    key = jax.random.key(word)
    while rest:  # a key is made of 32 bits
        rest, word = divmod(rest, 2**32)
        key = jax.random.fold_in(key, word)
    return key


def check_key(caller: str, key: Key[Array, ""] | None, seed: int | None) -> None:
    """Refuse a key together with a seed, what is no key, and a seed that is no whole number."""
    if key is not None and seed is not None:
        raise UndirectedError(f"{caller}: got both key and seed; pass one of them")
    if key is not None and not _is_key(key):
        raise UndirectedError(
            f"{caller}: key is {key!r:.40}; pass one such as jax.random.key(0), or seed=0"
        )
    if seed is not None:
        check_counts(caller, 0, seed=seed)


def _is_key(key: Any) -> bool:
    """Whether this is one key, of the newer kind or two words."""
    if not isinstance(key, jax.Array | np.ndarray):
        return False
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    return key.shape == () if typed else key.ndim == 1 and key.dtype == np.uint32
