"""Spin glasses of couplings +1 and -1 on any sparse graph, 32 replicas to a word.

Bit k of word (i, g) is spin i of replica k of group g. A neighbour's word, turned over where the
coupling is -1, says in which replicas it wants the spin up; words that say where at least 1, 2, ...
neighbours do (a thermometer) are made by inserting one neighbour after the other. The spin goes
with the majority, except where a uniform number u is below q(a) = sigmoid(-2 beta a), a the size of
its field. They are compared one binary digit of all 32 replicas at a time, lowest digit first: word
r of the digits of u and digit p of q change "u < q so far" into majority(not r, p, before). Every
bit has random digits of its own.

Spins of one colour are drawn at once. A missing neighbour is a pair of opposite opinions, so that
of each colour only spins with an odd and with an even number of neighbours are kept apart.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key, UInt

from undirected.core.graph import Graph
from undirected.core.random import random_words
from undirected.ops.lattice import WARM_UP, WORD, _next_word

DIGITS = 32
"""Binary digits of a uniform number."""
FULL = np.uint32(0xFFFFFFFF)
BLOCK = 1024
"""Words of one block of the fused kernel."""
WARPS = 4

Words = UInt[Array, "n g"]


class SpinClass(eqx.Module):
    """Spins that are drawn at once: where they lie, and which opinions they hear.

    Opinion d of spin i is (word of neighbour & use) ^ turn.
    """

    neighbour: Int[Array, "m d"]
    use: UInt[Array, "m d"]
    turn: UInt[Array, "m d"]
    start: int = eqx.field(static=True)

    @property
    def size(self) -> int:
        return self.neighbour.shape[0]


class Glass(eqx.Module):
    """A graph of couplings +1 and -1, its spins in the order in which they are drawn.

    `order` are the spins of the user in the order of the words; `ends` and `turn` are the couplings
    in this order.
    """

    classes: list[SpinClass]
    order: Int[Array, " n"]
    ends: Int[Array, "E 2"]
    turn: UInt[Array, " E"]


def glass(graph: Graph, signs: Int[np.ndarray, " E"]) -> Glass:
    """The words' wiring of a graph with the sign of every coupling."""
    edges, n = np.asarray(graph.edges), graph.n
    negative = np.where(np.asarray(signs) < 0, FULL, np.uint32(0))
    degree = np.bincount(edges.reshape(-1), minlength=n)
    colour = np.zeros(n, int)
    for k, members in enumerate(np.asarray(graph.colours)):
        colour[members[members < n]] = k
    kind = 2 * colour + degree % 2
    order = np.argsort(kind, kind="stable")
    place = np.empty(n, int)
    place[order] = np.arange(n)
    source, target = place[edges].T
    heard = np.concatenate([source, target]), np.concatenate([target, source])
    classes, start = [], 0
    for k in np.unique(kind):
        size = int((kind == k).sum())
        classes.append(_spin_class(start, size, heard, np.tile(negative, 2)))
        start += size
    return Glass(classes, jnp.asarray(order), jnp.asarray(place[edges]), jnp.asarray(negative))


def _spin_class(
    start: int, size: int, heard: tuple[np.ndarray, np.ndarray], negative: np.ndarray
) -> SpinClass:
    """The opinions of the spins start .. start + size, missing ones in opposite pairs."""
    speaker, listener = heard
    mine = np.flatnonzero((listener >= start) & (listener < start + size))
    mine = mine[np.argsort(listener[mine], kind="stable")]
    spin = listener[mine] - start
    count = np.bincount(spin, minlength=size)
    width = int(count.max(initial=0))
    slot = np.arange(len(mine)) - (np.cumsum(count) - count)[spin]
    neighbour = np.zeros((size, width), np.int32)
    use = np.zeros((size, width), np.uint32)
    # Every second missing opinion is "up", the others are "down".
    turn = np.where((np.arange(width)[None] - count[:, None]) % 2 == 0, FULL, np.uint32(0))
    turn = turn.astype(np.uint32)
    neighbour[spin, slot], use[spin, slot] = speaker[mine], FULL
    turn[spin, slot] = negative[mine]
    return SpinClass(jnp.asarray(neighbour), jnp.asarray(use), jnp.asarray(turn), start)


def pack(spins: Array, wiring: Glass) -> Words:
    """Words of replicas (32 g, n) that are up where `spins` is above 0."""
    up = (jnp.asarray(spins)[:, wiring.order] > 0).astype(jnp.uint32)
    groups = up.reshape(-1, WORD, up.shape[1])
    places = jnp.arange(WORD, dtype=jnp.uint32)[None, :, None]
    return (groups << places).sum(1, dtype=jnp.uint32).T


def unpack(words: Words, wiring: Glass) -> Int[Array, "replicas n"]:
    """The spins, -1 or 1, of all replicas: the inverse of `pack`."""
    places = jnp.arange(WORD, dtype=jnp.uint32)[None, :, None]
    bits = (words.T[:, None] >> places & 1).reshape(-1, words.shape[0])
    place = jnp.argsort(wiring.order)
    return (2 * bits.astype(jnp.int8) - 1)[:, place]


def random_spins(wiring: Glass, groups: int, key: Key[Array, ""]) -> Words:
    """Replicas at infinite temperature."""
    return random_words(key, (len(wiring.order), groups))[0]


@jax.jit
def energies(wiring: Glass, words: Words) -> Int[Array, "g 32"]:
    """-sum J s s' of every replica."""
    ends = words[wiring.ends]
    broken = ends[:, 0] ^ ends[:, 1] ^ wiring.turn[:, None]
    places = jnp.arange(WORD, dtype=jnp.uint32)

    def count(place: Array) -> Array:
        return (broken >> place & 1).sum(0, dtype=jnp.int32)

    return (2 * lax.map(count, places) - len(wiring.turn)).T


@partial(jax.jit, static_argnames=("sweeps", "digits", "fused"))
def glass_sweeps(
    wiring: Glass,
    words: Words,
    betas: Float[Array, " #g"],
    key: Key[Array, ""],
    sweeps: int,
    digits: int = DIGITS,
    fused: bool = False,
) -> Words:
    """Replicas after so many sweeps of Gibbs sampling, each group at its own inverse temperature.

    `fused` draws with a kernel of its own, which keeps its generators from sweep to sweep: for an
    NVIDIA GPU and one temperature.
    """
    bits = {d: probability_bits(betas, d, digits) for d in {c.use.shape[1] for c in wiring.classes}}
    widest = max(c.size for c in wiring.classes) * words.shape[1]
    state = _seeds(key, widest) if fused else ()
    proper = (betas == betas).all()

    def sweep(i: Array, carry: tuple) -> tuple:
        words, state = carry
        for number, own in enumerate(wiring.classes):
            heard = hear(words, own, proper)
            flat = bits[own.use.shape[1]]
            if fused:
                new, state = draw_fused(heard, flat, state, i)
            else:
                draw_key = jax.random.fold_in(key, i * len(wiring.classes) + number)
                new = draw(heard, flat, draw_key)
            words = lax.dynamic_update_slice(words, new, (own.start, 0))
        return words, state

    return lax.fori_loop(0, sweeps, sweep, (words, state))[0]


class Levels(NamedTuple):
    """Where the majority is up, and where the field is at least so large, a = 2, 4, ... or 3, 5."""

    majority: Words
    above: list[Words]


def hear(words: Words, own: SpinClass, proper: Array) -> Levels:
    """What the spins of a class hear; `proper` is True."""
    said = kept(lambda w: opinions(w, own), words, proper)
    return kept(levels, said, proper)


def kept(function: Callable[[Any], Any], given: Array, proper: Array) -> Any:
    """function(given), stored before it is used.

    XLA would otherwise compute it again inside every loop that uses it. A barrier keeps it from
    that on a GPU; on a CPU it cannot look through a choice that depends on data.
    """

    def chosen(given: Array, proper: Array) -> Any:
        nothing = jax.tree.map(jnp.zeros_like, jax.eval_shape(function, given))
        return lax.cond(proper, function, lambda _: nothing, given)

    def barrier(given: Array, proper: Array) -> Any:
        return lax.optimization_barrier(function(given))

    return lax.platform_dependent(given, proper, cuda=barrier, default=chosen)


def opinions(words: Words, own: SpinClass) -> UInt[Array, "d m g"]:
    """The words of all neighbours, turned over where the coupling is -1."""
    said = words.at[own.neighbour.T].get(mode="promise_in_bounds")
    return (said & own.use.T[..., None]) ^ own.turn.T[..., None]


def levels(said: UInt[Array, "d m g"]) -> Levels:
    """How many opinions are up, as far as the spin needs to know."""
    width = len(said)
    zero = jnp.zeros(said.shape[1:], jnp.uint32)
    least = [~zero] + [zero] * (width + 1)  # least[k]: at least k opinions are up
    for d in range(width):
        for k in range(d + 1, 0, -1):
            least[k] = least[k] | (least[k - 1] & said[d])
    above = [least[(width + a) // 2] | ~least[(width - a) // 2 + 1] for a in sizes(width)[1:]]
    return Levels(least[width // 2 + 1], above)


def sizes(width: int) -> list[int]:
    """The sizes of fields of so many neighbours."""
    return list(range(width % 2, width + 1, 2))


def probability_bits(
    betas: Float[Array, " #g"], width: int, digits: int
) -> UInt[Array, "sizes digits #g"]:
    """The digits of sigmoid(-2 beta a), lowest first, each as a word of equal bits.

    From the second size on, where a digit differs from that of the size before.
    """
    field = jnp.asarray(sizes(width), jnp.float32)[:, None] * jnp.asarray(betas, jnp.float32)[None]
    scaled = (jax.nn.sigmoid(-2 * field) * 2.0**digits).astype(jnp.uint32)
    places = jnp.arange(digits, dtype=jnp.uint32)[None, :, None]
    bits = jnp.uint32(0) - (scaled[:, None] >> places & 1)
    return bits.at[1:].set(bits[1:] ^ bits[:-1])


def compare(word: Array, bits: list[Array], above: list[Array], below: Array) -> Array:
    """One more digit of the comparison "u < q(a)": majority(not r, p, before).

    The first of `bits` is the digit of the largest q; the others are where the next one differs.
    """
    wanted = bits[0]
    for change, there in zip(bits[1:], above, strict=True):
        wanted = wanted ^ (there & change)
    return (~word & (below | wanted)) | (below & wanted)


def draw(heard: Levels, bits: UInt[Array, "sizes digits #g"], key: Key[Array, ""]) -> Words:
    """Spins by array operations; the generators of all words are seeded anew."""
    shape = heard.majority.shape
    below = jnp.zeros(shape, jnp.uint32)
    state = below, *random_words(key, shape)
    for count in range(1, WARM_UP + 1):
        state, _ = _next_word(state, count)
    for digit in range(bits.shape[1]):
        state, word = _next_word(state, WARM_UP + 1 + digit)
        below = compare(word, [b[digit][None] for b in bits], heard.above, below)
    return heard.majority ^ below


def _seeds(key: Key[Array, ""], size: int) -> tuple[Array, Array, Array]:
    """Generators for so many words, warmed up."""
    first, second = jax.random.split(key)
    state = (random_words(first, (size,))[0], *random_words(second, (size,)))
    for count in range(1, WARM_UP + 1):
        state, _ = _next_word(state, count)
    return state[0], state[1], state[2]


def draw_fused(
    heard: Levels,
    bits: UInt[Array, "sizes digits 1"],
    state: tuple[Array, Array, Array],
    sweep: Array,
    interpret: bool = False,
) -> tuple[Words, tuple[Array, Array, Array]]:
    """Spins by a kernel that goes on with the generators of the last draw."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    shape = heard.majority.shape
    size, block = heard.majority.size, BLOCK
    padded = -(-size // block) * block
    flat = [a.reshape(-1) for a in (heard.majority, *heard.above)]
    own = [a[:size] for a in state]
    if padded != size:
        flat, own = ([jnp.pad(a, (0, padded - size)) for a in part] for part in (flat, own))
    one = pl.BlockSpec((block,), lambda i: (i,))
    whole = pl.BlockSpec(bits.shape[:2], lambda i: (0, 0))
    number = pl.BlockSpec((1,), lambda i: (0,))
    call = pl.pallas_call(
        partial(_draw_block, bits.shape[0], bits.shape[1]),
        grid=(padded // block,),
        in_specs=[number, whole, *[one] * (len(flat) + 3)],
        out_specs=[one] * 4,
        out_shape=[jax.ShapeDtypeStruct((padded,), jnp.uint32)] * 4,
        compiler_params=triton.CompilerParams(num_warps=WARPS),
        interpret=interpret,
    )
    count = (sweep.astype(jnp.uint32) * jnp.uint32(bits.shape[1])).reshape(1)
    new, *after = call(count, bits[..., 0], *flat, *own)
    if padded != len(state[0]):
        after = [old.at[:size].set(a[:size]) for old, a in zip(state, after, strict=True)]
    return new[:size].reshape(shape), (after[0], after[1], after[2])


def _draw_block(events: int, digits: int, count, bits, majority, *refs) -> None:
    """The body of the fused kernel: all digits of one block of words."""
    above, (a, b, c) = refs[: events - 1], refs[events - 1 : events + 2]
    out, *after = refs[events + 2 :]
    state = a[...], b[...], c[...]
    near, below = [ref[...] for ref in above], jnp.zeros_like(state[0])
    begin = count[0] + jnp.uint32(WARM_UP + 1)
    for digit in range(digits):
        state, word = _next_word(state, begin + jnp.uint32(digit))
        below = compare(word, [bits[k, digit] for k in range(events)], near, below)
    out[...] = majority[...] ^ below
    for ref, value in zip(after, state, strict=True):
        ref[...] = value
