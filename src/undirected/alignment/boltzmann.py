"""Potts models of a family by maximum likelihood: persistent chains and scaled steps.

A step moves every coupling by the difference of the centred correlations of data and chains over
f_i(a) f_j(b), its second derivative where letters are independent (natural gradient there); a floor
beneath that product keeps rare pairs from following the noise of the chains. Steps shrink, so that
chains follow the model. Means over chains of a model that moves flatter it: the last word has a
look for which the model is held still.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from undirected.alignment.weights import Frequencies
from undirected.core.errors import UndirectedError
from undirected.core.random import uniform
from undirected.models import Potts
from undirected.ops.dense_potts import pick, sweeps

EXACT = jax.lax.Precision.HIGHEST
LOOKS = 10
"""Means over the chains of a model that is held still are over so many looks at them."""


@dataclass(frozen=True)
class BoltzmannSettings:
    """How a Potts model is learned by persistent chains.

    Args:
        target: the Pearson correlation of connected two-point correlations, of data and of chains,
            at which learning stops.
        chains: number of chains.
        sweeps: of all chains, at every step.
        rate: of the first steps.
        decay: steps after which the rate is half of the first.
        floor: added to f_i(a) f_j(b), by which a step is divided.
        l2: shrinks couplings.
        memory: of the running mean of the chains' frequencies; where its Pearson is the target,
            the model is held still and measured, and again after half as many steps as before.
        still: sweeps of a model that is held still before it is measured, and while it is.
        steps: at most.
        every: steps from one look at Pearson to the next.
    """

    target: float = 0.95
    chains: int = 2000
    sweeps: int = 3
    rate: float = 0.05
    decay: float = 20.0
    floor: float = 0.01
    l2: float = 0.0
    memory: float = 0.8
    still: int = 20
    steps: int = 2000
    every: int = 10


class Learned(NamedTuple):
    """A model, the Pearson correlation reached, the steps, and whether it is the target."""

    model: Potts
    pearson: float
    steps: int
    converged: bool


class _State(NamedTuple):
    fields: Float[Array, "L q"]
    couplings: Float[Array, "L q L q"]
    x: Float[Array, "Lq B"]
    mean: Float[Array, "Lq Lq"]
    steps: Float[Array, ""]


def boltzmann_potts(
    found: Frequencies,
    settings: BoltzmannSettings | None = None,
    seed: int = 0,
    progress: Callable[[int, float], None] | None = None,
) -> Learned:
    """Learn fields and couplings whose one- and two-letter frequencies are those of the data.

    Args:
        found: weighted frequencies, with a small pseudocount (1 / effective number is common).
        settings: target and schedule; the defaults without them.
        seed: of the chains.
        progress: told the steps done and Pearson.
    """
    settings = settings or BoltzmannSettings()
    _check(found, settings)
    single = jnp.asarray(found.single, jnp.float32)
    pairs = jnp.asarray(found.pairs, jnp.float32)
    key = jax.random.key(seed)
    state = _start(single, settings.chains, key)
    done, pearson, reached, again = 0, 0.0, False, 0
    while done < settings.steps and not reached:
        key, now, later = jax.random.split(key, 3)
        state = _learn(state, single, pairs, now, settings)
        done += settings.every
        pearson = float(_pearson(single, pairs, state.mean, settings.memory**done))
        if not np.isfinite(pearson):
            raise UndirectedError("boltzmann_potts: learning diverged; pass a smaller rate")
        if (pearson >= settings.target and done >= again) or done >= settings.steps:
            mean, x = _hold_still(state, later, settings.still)
            state = state._replace(x=x)
            pearson = float(_pearson(single, pairs, mean, 0.0))
            reached = pearson >= settings.target
            again = done + done // 2  # the moving chains flattered it: not at once again
        if progress is not None:
            progress(done, pearson)
    model = Potts.dense(np.asarray(state.fields), np.asarray(state.couplings)).zero_sum()
    return Learned(model, pearson, done, reached)


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


@partial(jax.jit, static_argnames="chains")
def _start(single: Array, chains: int, key: Key[Array, ""]) -> _State:
    (length, q), x = single.shape, profile_chains(single, chains, key)
    zero = jnp.zeros((length, q, length, q), single.dtype)
    mean = jnp.zeros((length * q, length * q), single.dtype)
    return _State(jnp.log(jnp.maximum(single, 1e-9)), zero, x, mean, jnp.zeros(()))


@partial(jax.jit, static_argnames="settings", donate_argnums=0)
def _learn(
    state: _State, single: Array, pairs: Array, key: Key[Array, ""], settings: BoltzmannSettings
) -> _State:
    """So many steps as lie between two looks."""
    length, q = single.shape
    apart = (1 - jnp.eye(length))[:, None, :, None]
    product = jnp.multiply.outer(single, single)

    def step(k: Array, state: _State) -> _State:
        fields, couplings, x, mean, steps = state
        x = sweeps(fields, couplings, x, jax.random.fold_in(key, k), settings.sweeps)
        now = jnp.dot(x, x.T, precision=EXACT) / x.shape[1]
        lack = single - jnp.diagonal(now).reshape(length, q)
        # Correlations about the data's means: a step of the couplings leaves the means alone.
        slope = pairs - now.reshape(pairs.shape) - jnp.multiply.outer(single, lack)
        slope = slope - jnp.multiply.outer(lack, single)
        rate = settings.rate / (1 + steps / settings.decay)
        move = rate * apart * (slope / (product + settings.floor) - settings.l2 * couplings)
        shift = jnp.tensordot(move, single, 2, precision=EXACT)
        fields = fields + rate * lack / (single + settings.floor) - shift
        mean = settings.memory * mean + (1 - settings.memory) * now
        return _State(fields, couplings + move, x, mean, steps + 1)

    return jax.lax.fori_loop(0, settings.every, step, state)


@jax.jit
def _hold_still(state: _State, key: Key[Array, ""], still: int) -> tuple[Array, Array]:
    """Mean pair frequencies of the chains of a model that does not move, and where they end."""
    fields, couplings, x = state.fields, state.couplings, state.x

    def look(k: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        total, x = carry
        x = sweeps(fields, couplings, x, jax.random.fold_in(key, k), still // LOOKS + 1)
        return total + jnp.dot(x, x.T, precision=EXACT) / (LOOKS * x.shape[1]), x

    x = sweeps(fields, couplings, x, key, still)
    return jax.lax.fori_loop(0, LOOKS, look, (jnp.zeros_like(state.mean), x))


@jax.jit
def _pearson(single: Array, pairs: Array, mean: Array, lacking: float) -> Array:
    """Of a mean of pair frequencies whose weights sum to 1 - lacking."""
    mean = mean / (1 - lacking)
    there = jnp.diagonal(mean).reshape(single.shape)
    return _correlation(_connected(single, pairs), _connected(there, mean.reshape(pairs.shape)))


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
    if settings.chains < 2 or settings.every < 1 or settings.sweeps < 1:
        raise UndirectedError("boltzmann_potts: pass at least 2 chains, 1 sweep, and every 1 step")
    if (found.single <= 0).any():
        raise UndirectedError(
            "boltzmann_potts: letters of frequency 0 would have fields without bounds; use "
            "frequencies with a pseudocount, such as 1 / the effective number of sequences"
        )
