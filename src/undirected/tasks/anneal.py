"""Best states by simulated annealing with restarts, and by what restarts have in common."""

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key

from undirected.core.errors import check_counts
from undirected.core.graph import Graph
from undirected.core.numerics import HARD, full_precision
from undirected.core.potentials import without_constant
from undirected.core.protocols import Kernel, Lowerable
from undirected.core.random import make_key
from undirected.factors import Edges
from undirected.models import tempered
from undirected.ops import multispin
from undirected.ops.components import graph_components
from undirected.sampling import init_state
from undirected.sampling.lead_in import forbids, state_energies
from undirected.tasks.choose import check_model, kernel_for

HOT, COLD = 0.3, 3.0
"""Inverse temperatures, in units of the coupling, from which and to which glasses are cooled."""
WARM = 0.9
"""Where they are cooled from again, to be combined with what they were."""
PAIRED = 2
"""A population combines pairs before every so manieth of these coolings."""
GAIN, PATIENCE = 0.2, 5
"""It gives way to a new one when so many coolings have not lowered its mean energy by so much."""
FIRST, LAST, FROZEN = 0.2, 12.0, 1e3
"""Inverse temperatures, in units of what a move typically costs: cooling goes from the first to the
last, and its last tenth on to where the model's smallest differences count too. Where states are
forbidden, a third of it goes from none to 1, where they wholly are."""
LEVELS = 24
DIGITS = 20
"""Temperatures of one cooling, and binary digits of a uniform number in it."""


@dataclass(frozen=True)
class Annealed:
    """The best state that annealing found.

    Attributes:
        x: its units (n,).
        energy: its energy.
        energies: of the last states of all restarts.
        rounds: coolings made.
        seconds: taken in all, compilation included.
    """

    x: Float[np.ndarray, " n"]
    energy: float
    energies: Float[np.ndarray, " restarts"]
    rounds: int
    seconds: float


def anneal(
    model: Any,
    *,
    restarts: int = 256,
    sweeps: int = 500,
    rounds: int = 1,
    seconds: float | None = None,
    target: float | None = None,
    kernel: Kernel | None = None,
    key: Key[Array, ""] | None = None,
    seed: int | None = None,
) -> Annealed:
    """The state of lowest energy found by cooling chains from random states.

    Glasses (an `Ising` model on a graph whose couplings have one size and whose spins feel no
    field) go 32 restarts to a word; from the second round on they are cooled again from half-way,
    and each is combined with what it was, from time to time also with another. Where two states
    differ, coupled spins form clusters, each of which either state has better: the better of every
    one is taken. Restarts that no longer gain by this begin again from random states. Other models
    are cooled by `kernel`, each round from new random states, at temperatures in units of what a
    move of theirs typically costs.

    Args:
        model: any discrete model.
        restarts: chains; those of glasses are rounded up to a multiple of 64.
        sweeps: of one cooling.
        rounds: coolings, at most.
        seconds: no round begins after so many; None for no limit.
        target: an energy at which to stop.
        kernel: what moves chains; by default the Gibbs kernel that suits the model.
        key: of all draws.
        seed: the same as a number; pass one of the two.

    Returns:
        An `Annealed`: the best state, its energy, those of all restarts.

    Example:
        >>> import undirected as un
        >>> ring = un.graph.from_edges(3, [(0, 1), (1, 2), (0, 2)])
        >>> frustrated = un.Ising.from_spins([1.0, 1.0, -1.0], [0.0, 0.0, 0.0], ring)
        >>> float(un.anneal(frustrated, restarts=64, sweeps=48, seed=0).energy)
        -1.0
    """
    check_model("anneal", model)
    restarts, sweeps, rounds = check_counts(
        "anneal", restarts=restarts, sweeps=sweeps, rounds=rounds
    )
    own = make_key("anneal", key, seed)
    begun, best, energies, done = time.monotonic(), None, np.zeros(0), 0
    glass = glass_of(model) if kernel is None else None
    if glass is None:
        cooling = _chains(model, kernel_for(model) if kernel is None else kernel, restarts, sweeps)
    else:
        cooling = _replicas(*glass, restarts, sweeps)
    state: Any = None
    for done in range(1, rounds + 1):
        state, x = cooling(state, jax.random.fold_in(own, done))
        with full_precision():
            energies = np.asarray(model.energy(jnp.asarray(x)), np.float64)
        if best is None or energies.min() < best[0]:
            best = float(energies.min()), np.asarray(x[int(energies.argmin())])
        late = seconds is not None and time.monotonic() - begun > seconds
        if late or (target is not None and best[0] <= target):
            break
    assert best is not None
    return Annealed(best[1], best[0], energies, done, time.monotonic() - begun)


def glass_of(model: Any) -> tuple[Graph, Int[np.ndarray, " E"]] | None:
    """The graph and the signs of a model of couplings of one size without fields; None if not."""
    if not isinstance(model, Lowerable):
        return None
    p = model.lower()
    match p.factors:
        case (Edges(weight=weight, graph=graph),) if p.layout.is_binary and graph.n_edges:
            w = np.asarray(weight, np.float64)
        case _:
            return None
    at_units = np.zeros(graph.n)
    for end in np.asarray(graph.edges).T:
        np.add.at(at_units, end, w)
    size = np.abs(w).max()
    fields = 0.5 * np.asarray(p.fields, np.float64) + 0.25 * at_units
    if size == 0 or np.ptp(np.abs(w)) > 1e-5 * size or np.abs(fields).max() > 1e-4 * size:
        return None
    return graph, np.sign(w).astype(int)


def _chains(model: Any, kernel: Kernel, restarts: int, sweeps: int) -> Any:
    """Coolings of a model by a kernel, each from new random states."""
    model = _in_units(model)
    lead = sweeps // 3 if forbids(model) else 0
    end = sweeps // 10
    betas = jnp.concatenate(
        [
            jnp.linspace(0, 1, lead, endpoint=False),
            jnp.linspace(1 if lead else FIRST, LAST, sweeps - lead - end),
            jnp.geomspace(LAST, FROZEN, end),
        ]
    )

    def cooling(state: None, key: Key[Array, ""]) -> tuple[None, Array]:
        return state, _cool_chains(kernel, model, betas, key, restarts)

    return cooling


@eqx.filter_jit
def _cool_chains(
    kernel: Kernel, model: Any, betas: Float[Array, " k"], key: Key[Array, ""], restarts: int
) -> Float[Array, "restarts n"]:
    """The last states of chains that made one step at every temperature."""
    path, free = tempered(model), jnp.ones(model.layout.n, bool)
    start_key, init_key, move_key = jax.random.split(key, 3)
    x = init_state(model, (restarts,), start_key)

    def once(k: Array, x: Array) -> Array:
        colder = path(betas[k])
        state = kernel.init(colder, x, init_key)
        return kernel.step(colder, state, free, jax.random.fold_in(move_key, k))[0].x

    return lax.fori_loop(0, len(betas), once, x)


def _in_units(model: Any) -> Any:
    """The model with energies in units of what one move typically costs between random states.

    What is forbidden stays so, and has no part in the units.
    """
    bare, _ = without_constant(model)

    def scaled(scale: float, hard: float) -> Any:
        return jax.tree.map(
            lambda a: jnp.where(a < -HARD, a * hard, a * scale) if eqx.is_inexact_array(a) else a,
            bare,
        )

    with full_precision():
        x = init_state(model, (256,), jax.random.key(0))
        found = np.asarray(state_energies(scaled(1.0, 0.0), x), np.float64)
    unit = 2 * found.std() / np.sqrt(model.layout.n)
    return scaled(1 / unit, 1.0) if unit > 0 else model


class Population(NamedTuple):
    """Replicas of a glass that are cooled and combined until they no longer gain."""

    spins: Int[Array, "replicas n"]
    rounds: int = 1
    mean: float = np.inf
    idle: int = 0

    def then(self, spins: Int[Array, "replicas n"], mean: float) -> "Population":
        """After another round, with this mean energy."""
        gained = mean < self.mean - GAIN
        best, idle = (mean, 0) if gained else (self.mean, self.idle + 1)
        return Population(spins, self.rounds + 1, best, idle)


def _replicas(graph: Graph, signs: np.ndarray, restarts: int, sweeps: int) -> Any:
    """Coolings of a glass in words: the first of a population from random states, others from
    half-way, after which every replica keeps the better version of each cluster that changed.
    """
    glass, groups = multispin.glass(graph, signs), 2 * -(-restarts // 64)
    each = max(1, sweeps // LEVELS)
    signed = jnp.asarray(signs, jnp.float32)

    def cool(words: Array, hot: float, key: Key[Array, ""]) -> Int[Array, "replicas n"]:
        betas = jnp.linspace(hot, COLD, LEVELS)
        return multispin.unpack(_cool(glass, words, betas, key, each), glass)

    def cooling(before: Population | None, key: Key[Array, ""]) -> tuple[Population, Array]:
        pair_key, cool_key, keep_key = jax.random.split(key, 3)
        if before is None or before.idle >= PATIENCE:
            spins = cool(multispin.random_spins(glass, groups, pair_key), HOT, cool_key)
            found = Population(spins)
        else:
            spins = before.spins
            if before.rounds % PAIRED == 0:
                spins = combine(graph, signed, spins, pair_key)
            moved = cool(multispin.pack(spins, glass), WARM, cool_key)
            spins = better(graph, signed, spins, moved, keep_key)[0]
            found = before.then(
                spins, float(multispin.energies(glass, multispin.pack(spins, glass)).mean())
            )
        return found, (spins > 0).astype(jnp.float32)

    return cooling


@eqx.filter_jit
def _cool(
    glass: multispin.Glass, words: Array, betas: Float[Array, " k"], key: Key[Array, ""], each: int
) -> Array:
    """So many sweeps at every temperature."""

    def level(words: Array, k: Array) -> tuple[Array, None]:
        own = jax.random.fold_in(key, k)
        return multispin.glass_sweeps(glass, words, betas[k][None], own, each, DIGITS), None

    return lax.scan(level, words, jnp.arange(len(betas)))[0]


@eqx.filter_jit
def combine(
    graph: Graph,
    signs: Float[Array, " E"],
    spins: Int[Array, "replicas n"],
    key: Key[Array, ""],
) -> Int[Array, "replicas n"]:
    """Random pairs of states, both with the better version of every cluster where they differ.

    A state and its reverse have one energy: the second is turned over where it is nearer so.
    """
    pair_key, chance_key = jax.random.split(key)
    first, second = jnp.split(jax.random.permutation(pair_key, len(spins)), 2)
    a, b = spins[first], spins[second]
    b = jnp.where((a * b).sum(-1, keepdims=True) < 0, -b, b)
    new = better(graph, signs, a, b, chance_key)
    return spins.at[first].set(new[0]).at[second].set(new[1])


@eqx.filter_jit
def better(
    graph: Graph,
    signs: Float[Array, " E"],
    first: Int[Array, "replicas n"],
    second: Int[Array, "replicas n"],
    key: Key[Array, ""],
) -> Int[Array, "2 replicas n"]:
    """For every pair two states that have the better version of every cluster where it differs.

    Clusters of differing spins do not touch, so that the energy of each can be taken by itself: a
    cluster turned over changes twice the sum of J s s' along its border. One that is as good either
    way is taken from either by chance.
    """
    a, b = first.T.astype(jnp.float32), second.T.astype(jnp.float32)
    differs = a != b
    i, j = graph.edges.T
    label = graph_components(graph, differs[i] & differs[j])
    tension = signs[:, None] * a[i] * a[j]
    border = jnp.zeros_like(a)
    border = border.at[i].add(jnp.where(differs[j], 0.0, tension))
    border = border.at[j].add(jnp.where(differs[i], 0.0, tension))
    column = jnp.arange(a.shape[1])[None]
    cost = jnp.zeros_like(a).at[label, column].add(border)[label, column]
    chance = jax.random.uniform(key, (2, *a.shape)) < 0.5
    take = [differs & jnp.where(cost == 0, own[label, column], cost < 0) for own in chance]
    return jnp.stack([jnp.where(own, b, a).T.astype(first.dtype) for own in take])
