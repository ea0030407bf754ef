"""Potts models of a family by maximum likelihood: persistent chains and natural steps.

A step moves every coupling by the difference of the centred correlations of data and chains over
f_i(a) f_j(b), its second derivative where letters are independent; a floor beneath that product
keeps rare pairs from following the noise of the chains. Where many positions vary together, second
derivatives are larger by the square of the variance of that mode, hundreds of times in long
families, and chains are slow: there a step is divided by the variance in the data times that in the
chains, the natural gradient of a Gaussian, or the model would be far past the data before chains
tell. Between groups of sequences that chains seldom leave, the noise of the steps tilts the model
to and fro, and chains that start anew fall to one side; the mean of the latest models is tilted
less, and is what is learned. Chains that follow a model flatter it; the last word about the mean
have chains that start anew, and where they belie the others, learning begins again, slower. Some
thousand draws from the data themselves have a Pearson of no more than 0.87 to 0.96 with them, by
their noise; half of the chains against the other half tells how much of it is noise, so that
Pearson is that of the model.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from undirected.alignment.resuming import Saver
from undirected.alignment.weights import Frequencies
from undirected.core.errors import UndirectedError, check_counts
from undirected.core.random import make_key, uniform
from undirected.learning.checkpointing import Store
from undirected.learning.fingerprint import fingerprint
from undirected.models import Potts
from undirected.ops.dense_potts import pick, sweeps

EXACT = jax.lax.Precision.HIGHEST
LOOKS, APART = 10, 5
"""Means over chains that started anew are over so many looks at them, so many sweeps apart."""
LATEST = 5
"""The mean of the models gives the t-th a weight of t to this power: most to the latest sixth."""
NEAR = 0.02
"""Where persistent chains and those that start anew differ by less, learning was slow enough."""
SLOWEST = 4
"""Times slower than at first at most: chains that need more take days on a CPU."""


@dataclass(frozen=True)
class BoltzmannSettings:
    """How a Potts model is learned by persistent chains.

    Args:
        target: the Pearson correlation of connected two-point correlations, of data and of the
            model that chains that start anew come from, at which learning stops.
        chains: number of chains.
        sweeps: of all chains, at every step. Where Pearson of chains that started anew is below
            that of persistent ones by 0.02, these could not follow: learning begins again with half
            the rate, four times the sweeps and twice `anew`, and once more if need be.
        rate: of the first steps; less, and for longer, where there are fewer chains than letters at
            all positions together, since their noise would freeze the model.
        decay: steps after which the rate is half of the first.
        floor: added to f_i(a) f_j(b), by which a step is divided.
        l2: shrinks couplings.
        memory: of the running mean of the persistent chains' frequencies; where its Pearson is the
            target, chains start anew; and again after a sixth of the steps before.
        anew: sweeps of chains that start anew at independent positions before they are measured.
        steps: at most.
        every: steps from one look at Pearson to the next.
    """

    target: float = 0.95
    chains: int = 2000
    sweeps: int = 3
    rate: float = 0.08
    decay: float = 50.0
    floor: float = 0.01
    l2: float = 0.0
    memory: float = 0.8
    anew: int = 100
    steps: int = 2000
    every: int = 10


class Learned(NamedTuple):
    """A model, the Pearson of chains that start anew, the steps, and whether it is the target."""

    model: Potts
    pearson: float
    steps: int
    converged: bool


class _Data(NamedTuple):
    """Frequencies, and the modes of scaled letters whose variance is above that of a free one."""

    single: Float[Array, "L q"]
    pairs: Float[Array, "L q L q"]
    scale: Float[Array, " Lq"]
    modes: Float[Array, "Lq M"]
    variance: Float[Array, " M"]


class _Parameters(NamedTuple):
    fields: Float[Array, "L q"]
    couplings: Float[Array, "L q L q"]


class _State(NamedTuple):
    """The newest model, the mean of all so far, the chains, their mean frequencies, the steps."""

    model: _Parameters
    average: _Parameters
    x: Float[Array, "Lq B"]
    mean: Float[Array, "Lq Lq"]
    steps: Float[Array, ""]


class _Run(NamedTuple):
    """Where learning stands: all that it takes to go on, and the best model by new chains."""

    state: _State
    key: Key[Array, ""]
    best: _Parameters
    pearson: float = -1.0
    done: int = 0
    slower: int = 1
    again: int = 0


def boltzmann_potts(
    found: Frequencies,
    settings: BoltzmannSettings | None = None,
    seed: int = 0,
    progress: Callable[[int, float], None] | None = None,
    store: Store | None = None,
) -> Learned:
    """Learn fields and couplings whose one- and two-letter frequencies are those of the data.

    What is learned is a mean over the latest steps, and Pearson that of chains that start anew; of
    several tries, the one that has most of it.

    Args:
        found: weighted frequencies, with a small pseudocount (1 / effective number is common).
        settings: target and schedule; the defaults without them.
        seed: of the chains.
        progress: told the steps done and Pearson: of the persistent chains, and where they are at
            the target once more, of those that start anew.
        store: where checkpoints go, so that a stopped run goes on to the same bits.
    """
    settings, tell = settings or BoltzmannSettings(), progress or (lambda *_: None)
    _check(found, settings)
    data, key = _data_of(found, settings.floor), make_key("fit_family", None, seed)
    saver = Saver(store, fingerprint((settings, seed, found.single, found.pairs)))
    start = _start(data.single, settings.chains, key)
    run = saver.resume(_Run(start, key, jax.tree.map(jnp.copy, start.model)))
    while run.done < settings.steps and run.pearson < settings.target:
        saver.save(run.done, run)
        state, key, best, top, done, slower, again = run
        key, now, later = jax.random.split(key, 3)
        state = _learn(state, data, now, slower, settings)
        done, own = done + settings.every, int(state.steps)
        said = float(_pearson(data, state.mean, settings.memory**own))
        if not np.isfinite(said):
            raise UndirectedError("boltzmann_potts: learning diverged; pass a smaller rate")
        tell(done, said)
        if (said >= settings.target and done >= again) or done >= settings.steps:
            anew = profile_chains(data.single, settings.chains, later)
            halves = _look(state.average, anew, later, slower * settings.anew)
            pearson, again = float(_pearson_of_model(data, halves)), done + own // 6
            tell(done, pearson)
            if pearson > top:
                top, best = pearson, jax.tree.map(jnp.copy, state.average)
            if said - pearson > NEAR and slower < SLOWEST:
                slower, again = 2 * slower, 0
                state = _start(data.single, settings.chains, jax.random.fold_in(later, LOOKS))
        run = _Run(state, key, best, top, done, slower, again)
    fields, couplings = (np.asarray(part) for part in run.best)
    model = Potts.dense(fields, couplings).zero_sum()
    return Learned(model, run.pearson, run.done, run.pearson >= settings.target)


@partial(jax.jit, static_argnames="chains")
def profile_chains(
    single: Float[Array, "L q"], chains: int, key: Key[Array, ""]
) -> Float[Array, "Lq B"]:
    """One-hot states of independent positions, a chain a column."""
    noise = uniform(key, (single.shape[0], chains))
    logs = jnp.log(jnp.maximum(single, 1e-9))

    def draw(fields: Array, u: Array) -> Array:
        return pick(jnp.broadcast_to(fields[:, None], (len(fields), chains)), u)

    return jax.vmap(draw)(logs, noise).reshape(-1, chains).astype(single.dtype)


def pearson_of(
    data: Frequencies, single: Float[np.ndarray, "L q"], pairs: Float[np.ndarray, "L q L q"]
) -> float:
    """Pearson correlation of the connected two-point correlations of data and of another source."""
    first = _connected(jnp.asarray(data.single), jnp.asarray(data.pairs))
    second = _connected(jnp.asarray(single), jnp.asarray(pairs))
    return float(_correlation(first, second))


def _data_of(found: Frequencies, floor: float) -> _Data:
    scale = (found.single.reshape(-1) ** 2 + floor) ** -0.25
    scaled = scale[:, None] * found.connected.reshape(len(scale), -1) * scale
    variance, modes = _wide_modes(scaled.astype(np.float32))
    parts = (found.single, found.pairs, scale, modes, variance)
    return _Data(*(jnp.asarray(part, jnp.float32) for part in parts))


def _wide_modes(matrix: Float[np.ndarray, "n n"]) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues above 1 and their vectors: those alone by LAPACK, all of them on a GPU."""
    if jax.default_backend() == "cpu":
        from scipy.linalg import eigh

        return eigh(matrix, subset_by_value=(1.0, np.inf))
    values, vectors = (np.asarray(part) for part in jnp.linalg.eigh(matrix))
    return values[values > 1], vectors[:, values > 1]


@partial(jax.jit, static_argnames="chains")
def _start(single: Array, chains: int, key: Key[Array, ""]) -> _State:
    (length, q), x = single.shape, profile_chains(single, chains, key)
    couplings = jnp.zeros((length, q, length, q), single.dtype)
    start = _Parameters(jnp.log(jnp.maximum(single, 1e-9)), couplings)
    mean = jnp.zeros((length * q, length * q), single.dtype)
    return _State(start, start, x, mean, jnp.zeros(()))


@partial(jax.jit, static_argnames="settings", donate_argnums=0)
def _learn(
    state: _State, data: _Data, key: Key[Array, ""], slower: int, settings: BoltzmannSettings
) -> _State:
    """So many steps as lie between two looks, so many times slower than the settings say."""
    length, q = data.single.shape
    single, pairs = data.single.reshape(-1), data.pairs.reshape(length * q, -1)
    apart = jnp.repeat(jnp.repeat(1 - jnp.eye(length), q, 0), q, 1)
    root = jax.lax.rsqrt(single + settings.floor)
    roots = apart * jax.lax.rsqrt(jnp.outer(single, single) + settings.floor)

    def step(k: Array, state: _State) -> _State:
        (fields, couplings), average, x, mean, steps = state
        x = sweeps(fields, couplings, x, jax.random.fold_in(key, k), slower**2 * settings.sweeps)
        now = jnp.dot(x, x.T, precision=EXACT) / x.shape[1]
        lack = single - jnp.diagonal(now)
        # Correlations about the data's means: a step of the couplings leaves the means alone.
        slope = pairs - now - jnp.outer(single, lack) - jnp.outer(lack, single)
        damp, rate = _damping(data, x), _rate(steps / slower, settings, len(single)) / slower
        move = roots * damp(damp(roots * slope).T) - settings.l2 * couplings.reshape(now.shape)
        shift = root * damp(root * lack) - jnp.dot(move, single, precision=EXACT)
        mean = settings.memory * mean + (1 - settings.memory) * now
        fields = fields + rate * shift.reshape(fields.shape)
        couplings = couplings + rate * move.reshape(couplings.shape)
        model, steps = _Parameters(fields, couplings), steps + 1
        return _State(model, _average(average, model, steps), x, mean, steps)

    return jax.lax.fori_loop(0, settings.every, step, state)


def _average(so_far: _Parameters, model: _Parameters, steps: Float[Array, ""]) -> _Parameters:
    """The mean of all models, the last of which is the `steps`-th."""
    share = (LATEST + 1) / (LATEST + steps)
    return jax.tree.map(lambda old, new: old + share * (new - old), so_far, model)


def _rate(steps: Float[Array, ""], settings: BoltzmannSettings, letters: int) -> Float[Array, ""]:
    pace = min(1.0, settings.chains / letters)
    return pace * settings.rate / (1 + pace * steps / settings.decay)


def _damping(data: _Data, x: Float[Array, "Lq B"]) -> Callable[[Array], Array]:
    """Divides the part of a slope along each mode by its standard deviations in data and chains."""
    scaled = data.scale[:, None] * (x - data.single.reshape(-1, 1))
    variance = jnp.square(jnp.dot(data.modes.T, scaled, precision=EXACT)).mean(1)
    lost = data.modes * (1 - jax.lax.rsqrt(data.variance * jnp.maximum(variance, 1)))[None]

    def damp(slope: Float[Array, "Lq N"]) -> Float[Array, "Lq N"]:
        part = jnp.dot(data.modes.T, slope, precision=EXACT)
        return slope - jnp.dot(lost, part, precision=EXACT)

    return damp


@jax.jit
def _look(
    model: _Parameters, x: Float[Array, "Lq B"], key: Key[Array, ""], burn: int
) -> Float[Array, "2 Lq Lq"]:
    """Mean pair frequencies of either half of chains from x, of a model that does not move."""
    fields, couplings = model

    def look(k: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        total, x = carry
        count = jnp.where(k == 0, burn, APART)
        x = sweeps(fields, couplings, x, jax.random.fold_in(key, k), count)
        halves = jnp.stack([x[:, : 2 * (x.shape[1] // 2) : 2], x[:, 1::2]])
        pairs = jnp.einsum("hib,hjb->hij", halves, halves, precision=EXACT)
        return total + pairs / (LOOKS * halves.shape[2]), x

    start = jnp.zeros((2, len(x), len(x)), x.dtype), x
    return jax.lax.fori_loop(0, LOOKS, look, start)[0]


@jax.jit
def _pearson(data: _Data, mean: Array, lacking: float) -> Array:
    """Of a mean of pair frequencies whose weights sum to 1 - lacking."""
    wanted = _connected(data.single, data.pairs)
    return _correlation(wanted, _connected_of(mean / (1 - lacking), data))


@jax.jit
def _pearson_of_model(data: _Data, halves: Float[Array, "2 Lq Lq"]) -> Array:
    """Of the model that two halves of independent chains come from, were there any number of them.

    Noise adds to the length of the chains' correlations and makes Pearson less; it is not in the
    product of one half with the other.
    """
    one, two = (_connected_of(half, data) for half in halves)
    wanted, length = _connected(data.single, data.pairs), (one * two).sum()
    known = (wanted * (one + two)).sum() / 2
    found = known / jnp.sqrt((wanted**2).sum() * jnp.maximum(length, 1e-30))
    return jnp.where(length > 0, found, 0.0)


def _connected_of(mean: Float[Array, "Lq Lq"], data: _Data) -> Array:
    """Of chains: the frequencies of single letters are the diagonal of those of pairs."""
    single = jnp.diagonal(mean).reshape(data.single.shape)
    return _connected(single, mean.reshape(data.pairs.shape))


def _connected(single: Array, pairs: Array) -> Array:
    """Connected correlations of all pairs of different positions; the others are 0."""
    apart = (1 - jnp.eye(single.shape[0]))[:, None, :, None]
    return apart * (pairs - jnp.multiply.outer(single, single))


def _correlation(first: Array, second: Array) -> Array:
    """Pearson; the means of connected correlations are 0, since their rows sum to 0."""
    return (first * second).sum() / jnp.sqrt((first**2).sum() * (second**2).sum())


def _check(found: Frequencies, settings: BoltzmannSettings) -> None:
    if not 0 < settings.target < 1:
        raise UndirectedError(
            f"boltzmann_potts: target {settings.target}; pass a correlation between 0 and 1"
        )
    counts = {name: getattr(settings, name) for name in ("sweeps", "steps", "every", "anew")}
    check_counts("boltzmann_potts", **counts)
    check_counts("boltzmann_potts", 2, chains=settings.chains)
    if not (settings.rate > 0 and settings.decay > 0 and np.isfinite(settings.rate)):
        raise UndirectedError(
            f"boltzmann_potts: rate {settings.rate} and decay {settings.decay}; pass numbers above "
            "0"
        )
    rest = settings.floor, settings.l2, settings.memory
    if not (min(rest) >= 0 and np.isfinite(rest).all() and settings.memory < 1):
        raise UndirectedError(
            f"boltzmann_potts: floor {settings.floor}, l2 {settings.l2} and memory "
            f"{settings.memory}; pass numbers from 0, and a memory below 1"
        )
    if (found.single <= 0).any():
        raise UndirectedError(
            "boltzmann_potts: letters of frequency 0 would have fields without bounds; use "
            "frequencies with a pseudocount, such as 1 / the effective number of sequences"
        )
