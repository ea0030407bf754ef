"""Gibbs sampling of a homogeneous Ising model on a torus, 32 spins to a word.

Bit k of a word belongs to chain k of a group of 32, or, where chains are few, to strip k of 32
equal strips of rows. Every colour of the chequerboard is an array (rows, half the columns, groups)
of such words. The number of neighbours that are 1 is kept as a thermometer of four words. A spin is
drawn by comparing 32 random bits with the probability that belongs to this number, one bit of all
32 spins at a time: word r of the uniforms u and bit p of the probabilities change "u < p so far"
into majority(not r, p, before), lowest bit first.
"""

import math

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Key, UInt

from undirected.core.random import random_words

WORD = 32
DIGITS = 32
"""Bits of a uniform number."""
MOST = 2.0**DIGITS - 2.0**8
"""The largest float32 below 2^32: a probability of 1 is that of 1 - 2^-24."""
WARM_UP = 12
"""Numbers of the small generator that are thrown away after its seed."""

Words = UInt[Array, "rows half groups"]


def packs(sides: tuple[int, int], chains: int) -> bool:
    """Whether a torus of these sides with so many chains fills words."""
    rows, cols = sides
    return rows % 2 == 0 and cols % 2 == 0 and (chains % WORD == 0 or rows % (2 * WORD) == 0)


def torus_sweeps(
    x: Float[Array, "chains rows cols"],
    free: Bool[Array, "chains rows cols"],
    weight: Float[Array, ""],
    bias: Float[Array, ""],
    key: Key[Array, ""],
    sweeps: int,
    backward: bool = False,
) -> Float[Array, "chains rows cols"]:
    """The states after some sweeps, even sites first; `backward` draws the odd ones first.

    Units are {0, 1} with fields bias + weight * (number of neighbours that are 1); those that are
    not free stay. Needs `packs`.
    """
    chains = x.shape[0]
    strips = chains % WORD != 0
    state, loose = (_colours(_pack(a, strips)) for a in (x > 0.5, free))
    bits = _probability_bits(bias + weight * jnp.arange(5, dtype=x.dtype))
    first = 1 if backward else 0
    # XLA would compute the neighbours again inside the drawing loop, one by one; it cannot move
    # them through a choice that depends on data.
    proper = weight == weight

    def half(i: Array, colours: tuple[Words, Words]) -> tuple[Words, Words]:
        """Draw one colour given the other, and let them change places."""
        here, there = colours
        colour = (i + first) % 2
        nothing = (jnp.zeros_like(there),) * 4
        near = lax.cond(proper, lambda: _thermometer(there, colour, strips), lambda: nothing)
        drawn = _draw(near, bits, jax.random.fold_in(key, i))
        mask = jnp.where(colour == 0, *loose)
        return there, (drawn & mask) | (here & ~mask)

    order = (state[first], state[1 - first])
    order = lax.fori_loop(0, 2 * sweeps, half, order)
    even, odd = (order[first], order[1 - first])
    return _unpack(_sites(even, odd), chains, strips).astype(x.dtype)


def _draw(near: tuple[Words, ...], bits: UInt[Array, "5 digits"], key: Key[Array, ""]) -> Words:
    """Spins that are 1 with the probability that belongs to their number of neighbours."""
    shape = near[0].shape
    lower, upper = random_words(key, (shape[0], shape[1] * shape[2]))
    state = jnp.zeros(shape, jnp.uint32), lower.reshape(shape), upper.reshape(shape)
    for count in range(1, WARM_UP + 1):
        state, _ = _next_word(state, count)
    below = jnp.zeros(shape, jnp.uint32)
    changes = bits.at[1:].set(bits[1:] ^ bits[:-1])
    for digit in range(DIGITS):
        state, word = _next_word(state, WARM_UP + 1 + digit)
        wanted = jnp.broadcast_to(changes[0, digit], shape)
        for k in range(4):
            wanted = wanted ^ (near[k] & changes[k + 1, digit])
        below = (~word & (below | wanted)) | (below & wanted)
    return below


def _next_word(state: tuple[Words, ...], count: int) -> tuple[tuple[Words, ...], Words]:
    """The small fast chaotic generator of three words and a count (Doty-Humphrey's sfc32)."""
    a, b, c = state
    word = a + b + jnp.uint32(count)
    turned = c << jnp.uint32(21) | c >> jnp.uint32(11)
    return (b ^ (b >> jnp.uint32(9)), c + (c << jnp.uint32(3)), turned + word), word


def _probability_bits(fields: Float[Array, " 5"]) -> UInt[Array, "5 digits"]:
    """The digits of sigmoid(fields), lowest first, each as a word of equal bits."""
    scaled = jnp.minimum(jax.nn.sigmoid(fields) * 2.0**DIGITS, MOST).astype(jnp.uint32)
    digits = scaled[:, None] >> jnp.arange(DIGITS, dtype=jnp.uint32)[None] & 1
    return jnp.uint32(0) - digits


def _thermometer(there: Words, colour: Array, strips: bool) -> tuple[Words, ...]:
    """Words that say where at least 1, 2, 3 and 4 neighbours are 1."""
    above, below = jnp.roll(there, 1, 0), jnp.roll(there, -1, 0)
    if strips:  # the row above a strip is the last one of the strip before
        above = above.at[0].set(_turn(above[0], 1))
        below = below.at[-1].set(_turn(below[-1], WORD - 1))
    left_row = ((jnp.arange(there.shape[0]) + colour) % 2 == 0)[:, None, None]
    beside = jnp.where(left_row, jnp.roll(there, 1, 1), jnp.roll(there, -1, 1))
    both, any_ = above & below, above | below
    both_too, any_too = there & beside, there | beside
    two = both | both_too | (any_ & any_too)
    three = (both & any_too) | (both_too & any_)
    return any_ | any_too, two, three, both & both_too


def _turn(words: Array, places: int) -> Array:
    return words << jnp.uint32(places) | words >> jnp.uint32(WORD - places)


def _pack(x: Bool[Array, "chains rows cols"], strips: bool) -> UInt[Array, "rows cols groups"]:
    chains, rows, cols = x.shape
    if strips:
        bits = jnp.moveaxis(x.reshape(chains, WORD, rows // WORD, cols), 0, -1)
    else:
        bits = jnp.moveaxis(x.reshape(chains // WORD, WORD, rows, cols), 0, -1)
    places = jnp.arange(WORD, dtype=jnp.uint32).reshape(WORD, 1, 1, 1)
    return (bits.astype(jnp.uint32) << places).sum(0, dtype=jnp.uint32)


def _unpack(words: UInt[Array, "rows cols groups"], chains: int, strips: bool) -> Array:
    """The inverse of `_pack`, as 0 and 1."""
    places = jnp.arange(WORD, dtype=jnp.uint32).reshape(WORD, 1, 1, 1)
    bits = jnp.moveaxis(words[None] >> places & 1, -1, 0)
    rows = math.prod(bits.shape[:3]) // chains
    return bits.reshape(chains, rows, words.shape[1])


def _colours(words: UInt[Array, "rows cols groups"]) -> tuple[Words, Words]:
    """The even and the odd sites; those of a row next to each other."""
    rows, cols, groups = words.shape
    pairs = words.reshape(rows, cols // 2, 2, groups)
    odd_row = (jnp.arange(rows) % 2 == 1)[:, None, None]
    left, right = pairs[:, :, 0], pairs[:, :, 1]
    return jnp.where(odd_row, right, left), jnp.where(odd_row, left, right)


def _sites(even: Words, odd: Words) -> UInt[Array, "rows cols groups"]:
    """The inverse of `_colours`."""
    rows, half, groups = even.shape
    odd_row = (jnp.arange(rows) % 2 == 1)[:, None, None]
    left, right = jnp.where(odd_row, odd, even), jnp.where(odd_row, even, odd)
    return jnp.stack([left, right], 2).reshape(rows, 2 * half, groups)
