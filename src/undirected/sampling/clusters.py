"""Cluster moves: whole groups of aligned variables change together (Swendsen-Wang, Wolff).

In a move every variable chooses between the state it is in and one other. What that changes in the
negative energy is an Ising model of the choices: a gain g_i for every variable that changes alone,
and K_ij more where both ends of a coupling change. A coupling with K_ij > 0 joins its ends with
probability 1 - exp(-K_ij / 2); given these bonds, clusters are independent of each other, and one
changes with the log-odds sum_i (g_i + sum_j K_ij / 2) over its variables: fields need no ghost.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.graph import Graph
from undirected.core.layout import Block, Domain, Layout, check_discrete, joint_states
from undirected.core.potentials import Potentials, local_fields
from undirected.core.protocols import Info, Lowerable
from undirected.core.random import logistic, random_words
from undirected.core.units import free_variables
from undirected.factors import require
from undirected.ops.components import components, graph_components
from undirected.sampling.base import (
    ChainState,
    Evaluations,
    check_lowerable,
    check_start,
    check_sweeps,
)

NEVER = -1e12
"""Log-odds of a cluster with a variable that is held."""
LARGEST = 2**16
"""Entries of the largest table of two variables."""


class Choice(NamedTuple):
    """The other state of every variable, and what changing to it does; columns are chains."""

    other: Float[Array, "c units"]
    gain: Float[Array, "n c"]
    ends: Int[Array, "E 2"]
    both: Float[Array, "E c"]
    graph: Graph | None


@dataclass(frozen=True)
class SwendsenWang:
    """Bonds between aligned neighbours, then a new state for every cluster (1987).

    For any model of discrete variables coupled in pairs, with any fields: Ising and Potts models on
    any graph, dense ones, RBMs. In a step the states are paired at random, the same way for all
    variables of so many states, and a cluster chooses within pairs (Wang, Swendsen and Kotecky
    1989): so tables of couplings may be any, with either sign. It is fast where neighbours agree,
    as near the critical point of a ferromagnet; where couplings are frustrated or fields are
    strong, clusters are too large or too rarely moved, and `ParallelTempering` is better.

    Args:
        sweeps: times that bonds are drawn in one step.

    Example:
        >>> import undirected as un
        >>> grid = un.graph.torus(4, 4)
        >>> potts = un.Potts.standard(grid, states=3, coupling=1.0)
        >>> un.run_chains(un.SwendsenWang(), potts, chains=2, samples=5, seed=0).x.shape
        (5, 2, 48)
    """

    sweeps: int = 1

    def __post_init__(self) -> None:
        check_sweeps(type(self).__name__, self.sweeps)

    def reversed(self) -> "SwendsenWang":
        """The kernel is its own time reversal."""
        return self

    def init(
        self, model: Lowerable, x: Float[Array, "*chains n"], key: Key[Array, ""]
    ) -> ChainState:
        """Chains that start at x."""
        x = joint_states(type(self).__name__, model.layout, x)
        check_start(type(self).__name__, model.layout, x)
        return ChainState(x)

    def step(
        self,
        model: Lowerable,
        state: ChainState,
        free: Bool[Array, "*#chains n"],
        key: Key[Array, ""],
    ) -> tuple[ChainState, Info]:
        """`sweeps` moves of every chain; `info["flips"]` is the share of free units that moved."""
        name = type(self).__name__
        check_lowerable(name, model, "BlockGibbs")
        p = model.lower()
        check_pairwise(name, p)
        x = state.x.reshape(-1, p.layout.n)
        free = jnp.broadcast_to(free_variables(name, p.layout, free), state.x.shape)
        loose = free.reshape(x.shape)

        def move(i: Int[Array, ""], x: Array) -> Array:
            return self.move(p, x, loose, jax.random.fold_in(key, i))

        after = lax.fori_loop(0, self.sweeps, move, x).reshape(state.x.shape)
        moved = (after != state.x).sum(-1) / jnp.maximum(free.sum(-1), 1)
        return ChainState(after), {"flips": moved.astype(x.dtype)}

    def evaluations(self, model: Lowerable) -> Evaluations:
        """A gradient a sweep; bonds and clusters are looked for besides."""
        return Evaluations(0, self.sweeps)

    def move(
        self, p: Potentials, x: Float[Array, "c units"], free: Array, key: Key[Array, ""]
    ) -> Float[Array, "c units"]:
        """Pair the states, draw bonds, change clusters."""
        pair_key, bond_key, flip_key = jax.random.split(key, 3)
        choice = choose(p, x, pair_key)
        bonds = self.bonds(choice.both, bond_key)
        label = _labels(choice.ends, choice.graph, bonds, len(choice.gain))
        loose = by_variable(p.layout, free.astype(x.dtype), "min").T
        gain = jnp.where(loose > 0, self.cluster_gain(choice), NEVER)
        changes = self.changes(label, cluster_sum(label, gain), flip_key)
        return jnp.where(to_units(p.layout, changes.T), choice.other, x)

    def bonds(self, both: Float[Array, "E c"], key: Key[Array, ""]) -> Bool[Array, "E c"]:
        """Which couplings join their ends: with probability 1 - exp(-K / 2) where K > 0."""
        chance = -jnp.expm1(-0.5 * jnp.maximum(both, 0.0))
        return _uniform(key, both.shape).astype(both.dtype) < chance

    def cluster_gain(self, choice: Choice) -> Float[Array, "n c"]:
        """What each variable adds to the log-odds that its cluster changes."""
        return choice.gain + sum_at_ends(choice, 0.5 * choice.both)

    def changes(
        self, label: Int[Array, "n c"], gain: Float[Array, "n c"], key: Key[Array, ""]
    ) -> Bool[Array, "n c"]:
        """Which variables change: every cluster draws from its odds, `gain`."""
        noise = logistic(key, label.shape).astype(gain.dtype)
        return gain + jnp.take_along_axis(noise, label, 0) > 0


@dataclass(frozen=True)
class Wolff(SwendsenWang):
    """One cluster at a time, that of a random variable, changed wherever Metropolis allows (1989).

    Without fields the cluster always changes. All bonds are drawn at once, so that a step takes as
    long as one of `SwendsenWang`, which moves all clusters: here the moved cluster tends to be
    large, and nothing is moved back by chance.

    Args:
        sweeps: clusters of one step.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> un.run_chains(un.Wolff(), model, chains=2, samples=4, seed=0).x.shape
        (4, 2, 3)
    """

    def changes(
        self, label: Int[Array, "n c"], gain: Float[Array, "n c"], key: Key[Array, ""]
    ) -> Bool[Array, "n c"]:
        """Which variables change: the cluster of one random variable of each chain."""
        site_key, accept_key = jax.random.split(key)
        columns = label.shape[1]
        site = jax.random.randint(site_key, (1, columns), 0, len(label))
        chosen = label == jnp.take_along_axis(label, site, 0)
        level = jnp.log1p(-jax.random.uniform(accept_key, (1, columns), gain.dtype))
        return chosen & (level <= gain)


@dataclass(frozen=True)
class Houdayer:
    """A kernel whose chains also exchange clusters: pairs of them swap where they differ (2001).

    After a step of `kernel` chains are paired at random. Where the two of a pair differ, coupled
    variables form clusters; the pair exchanges the states of one of them, that of a random
    variable that differs. Together their energy stays, so that nothing is rejected (isoenergetic
    cluster moves, Zhu, Ochoa and Katzgraber 2015). Inside `ParallelTempering` the chains at each
    temperature are paired. Useful where differing variables do not percolate: at low temperatures,
    in two dimensions, on sparse graphs.

    Args:
        kernel: what moves a chain; the exchange alone reaches few states.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> kernel = un.ParallelTempering(un.Houdayer(un.Gibbs()), un.tempered, (1.0, 0.5))
        >>> un.run_chains(kernel, model, chains=2, samples=4, seed=0).x.shape
        (4, 2, 3)
    """

    kernel: Any

    def init(self, model: Lowerable, x: Float[Array, "*chains n"], key: Key[Array, ""]) -> Any:
        """Chains that start at x; two or more."""
        state = self.kernel.init(model, x, key)
        if state.x.size // model.layout.n < 2:
            raise UndirectedError(
                f"Houdayer: states of shape {state.x.shape} are one chain; pass two or more, which "
                "exchange clusters"
            )
        return state

    def step(
        self, model: Lowerable, state: Any, free: Bool[Array, "*#chains n"], key: Key[Array, ""]
    ) -> tuple[Any, Info]:
        """A step of the kernel, then an exchange; `exchanged` is the share of units in it."""
        move_key, swap_key = jax.random.split(key)
        state, info = self.kernel.step(model, state, free, move_key)
        p = model.lower()
        check_pairwise("Houdayer", p)
        x = state.x.reshape(-1, p.layout.n)
        loose = jnp.broadcast_to(free_variables("Houdayer", p.layout, free), state.x.shape)
        after = self.exchange(p, x, loose.reshape(x.shape), swap_key)
        share = (after != x).mean(-1, dtype=x.dtype).reshape(state.x.shape[:-1])
        state = self.kernel.init(model, after.reshape(state.x.shape), move_key)
        return state, info | {"exchanged": share}

    def evaluations(self, model: Lowerable) -> Evaluations:
        """Those of the kernel: the exchange needs none."""
        return self.kernel.evaluations(model)

    def exchange(
        self, p: Potentials, x: Float[Array, "c units"], free: Array, key: Key[Array, ""]
    ) -> Float[Array, "c units"]:
        """Pair the chains, and swap one cluster of every pair; of an odd number one sits out."""
        pair_key, site_key = jax.random.split(key)
        order = jax.random.permutation(pair_key, len(x))
        half = len(x) // 2
        first, second = order[:half], order[half : 2 * half]
        a, b = x[first], x[second]
        differs = by_variable(p.layout, jnp.abs(a - b), "sum").T > 0
        held = ~(free[first] & free[second])
        held = by_variable(p.layout, held.astype(x.dtype), "sum").T * differs
        chosen = self.clusters(p, differs, site_key)
        blocked = (chosen * held).sum(0) > 0
        moves = to_units(p.layout, (chosen & ~blocked[None]).T)
        swapped = jnp.where(moves, b, a), jnp.where(moves, a, b)
        return x.at[first].set(swapped[0]).at[second].set(swapped[1])

    def clusters(
        self, p: Potentials, differs: Bool[Array, "n c"], key: Key[Array, ""]
    ) -> Bool[Array, "n c"]:
        """The cluster of a random variable that differs, of every pair."""
        ends, graph = wiring(p)
        bonds = differs[ends[:, 0]] & differs[ends[:, 1]]
        label = _labels(ends, graph, bonds, len(differs))
        noise = jax.random.uniform(key, differs.shape)
        site = jnp.where(differs, noise, -1.0).argmax(0)[None]
        return differs & (label == jnp.take_along_axis(label, site, 0))


def check_pairwise(name: str, p: Potentials) -> None:
    """Refuse what is not made of discrete variables coupled in pairs."""
    check_discrete(name, *p.layout.blocks)
    if p.layout.is_binary and all(factor.offers("pairs") for factor in p.factors):
        return
    require(name, p, "tables", "use Gibbs")
    for factor in p.factors:
        widest = max((group.scopes.shape[1] for group in _tables(p.layout, factor)), default=0)
        if widest > 2:
            raise UnsupportedFactor(
                f"{name}: a {type(factor).__name__} group joins {widest} variables; clusters need "
                "couplings of two, use Gibbs"
            )


def choose(p: Potentials, x: Float[Array, "c units"], key: Key[Array, ""]) -> Choice:
    """Another state for every variable, by a random pairing of states, and what it changes."""
    other = _other(p.layout, x, key)
    fields = jnp.broadcast_to(p.fields, x.shape) + local_fields(p, x)
    gain = by_variable(p.layout, (other - x) * fields, "sum").T
    graph = wiring(p)[1]
    if p.layout.is_binary and all(factor.offers("pairs") for factor in p.factors):
        change = (1 - 2 * x).T
        found = [factor.pairs(p.layout) for factor in p.factors]
        ends = [group.edges for group in found]
        both = [g.weight[:, None] * change[g.edges[:, 0]] * change[g.edges[:, 1]] for g in found]
    else:
        states = (_numbers(p.layout, x).T, _numbers(p.layout, other).T)
        groups = [g for f in p.factors for g in _tables(p.layout, f) if g.scopes.shape[1] == 2]
        ends, both = [g.scopes for g in groups], [_mixed(g, *states) for g in groups]
    if not ends:
        ends, both = [jnp.zeros((0, 2), jnp.int32)], [jnp.zeros((0, len(x)), x.dtype)]
    return Choice(other, gain, jnp.concatenate(ends), jnp.concatenate(both), graph)


def wiring(p: Potentials) -> tuple[Int[Array, "E 2"], Graph | None]:
    """Which variables are coupled in pairs, and the graph of them where there is one."""
    if p.layout.is_binary and all(factor.offers("pairs") for factor in p.factors):
        ends = [factor.pairs(p.layout).edges for factor in p.factors]
    else:
        groups = [g for f in p.factors for g in _tables(p.layout, f) if g.scopes.shape[1] == 2]
        ends = [group.scopes for group in groups]
    graphs = [getattr(factor, "graph", None) for factor in p.factors]
    graph = graphs[0] if len(graphs) == 1 else None
    if graph is not None and graph.n != len(p.layout.variables):
        graph = None
    return jnp.concatenate([*ends, jnp.zeros((0, 2), jnp.int32)]), graph


def _labels(ends: Array, graph: Graph | None, bonds: Bool[Array, "E c"], n: int) -> Array:
    if graph is None:
        return components(ends, bonds, n)
    return graph_components(graph, bonds)


def _uniform(key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "E c"]:
    """Uniform numbers in [0, 1), from both words of every block of random bits."""
    words = jnp.concatenate(random_words(key, (-(-shape[0] // 2), shape[1])))[: shape[0]]
    return (words >> jnp.uint32(8)).astype(jnp.float32) * jnp.float32(2.0**-24)


def _tables(layout: Layout, factor: object) -> list:
    return factor.tables(layout, LARGEST)  # pyright: ignore[reportAttributeAccessIssue]


def _mixed(group: tuple, now: Int[Array, "n c"], then: Int[Array, "n c"]) -> Float[Array, "E c"]:
    """W[t_i, t_j] - W[t_i, s_j] - W[s_i, t_j] + W[s_i, s_j] of tables of two variables."""
    scopes, logs, _ = group
    rows, columns = logs.shape[1:]
    base = (jnp.arange(len(scopes)) * (rows * columns))[:, None]
    flat = logs.reshape(-1)

    def at(first: Array, second: Array) -> Array:
        return flat[base + first[scopes[:, 0]] * columns + second[scopes[:, 1]]]

    found = at(then, then) - at(then, now) - at(now, then) + at(now, now)
    return jnp.where((scopes >= 0).all(1)[:, None], found, 0.0)


def _other(layout: Layout, x: Float[Array, "c units"], key: Key[Array, ""]) -> Array:
    """The other state of a binary unit; that of a categorical variable by a random pairing."""
    parts = []
    for block in layout.blocks:
        part = x[:, block.slice]
        if block.domain is Domain.BINARY:
            parts.append(1 - part)
        else:
            partner = _pairing(block.states, jax.random.fold_in(key, block.states))
            parts.append(_grouped(block, part)[..., partner].reshape(part.shape))
    return jnp.concatenate(parts, -1)


def _pairing(states: int, key: Key[Array, ""]) -> Int[Array, " states"]:
    """A random partner for every state, each other's; of an odd number one stays alone."""
    order = jax.random.permutation(key, states)
    place = np.arange(states)
    mate = np.where(place ^ 1 < states, place ^ 1, place)
    return jnp.zeros_like(order).at[order].set(order[mate])


def _numbers(layout: Layout, x: Float[Array, "c units"]) -> Int[Array, "c variables"]:
    """The state of every variable."""
    parts = [
        x[:, b.slice].astype(jnp.int32)
        if b.domain is Domain.BINARY
        else _grouped(b, x[:, b.slice]).argmax(-1).astype(jnp.int32)
        for b in layout.blocks
    ]
    return jnp.concatenate(parts, -1)


def by_variable(layout: Layout, x: Float[Array, "c units"], how: str) -> Array:
    """One number a variable from one a unit: their sum or their least."""
    if layout.is_binary:
        return x
    take = {"sum": jnp.sum, "min": jnp.min}[how]
    parts = [take(_grouped(block, x[:, block.slice]), -1) for block in layout.blocks]
    return jnp.concatenate(parts, -1)


def to_units(layout: Layout, x: Array) -> Array:
    """Every unit has what its variable has."""
    return x if layout.is_binary else x[:, layout.variables.owner]


def _grouped(block: Block, part: Array) -> Array:
    return part.reshape(len(part), -1, block.width)


def sum_at_ends(choice: Choice, amount: Float[Array, "E c"]) -> Float[Array, "n c"]:
    """For every variable the sum over the couplings that end there."""
    graph, total = choice.graph, jnp.zeros_like(choice.gain)
    if graph is not None and graph.incoming is not None:
        sent = jnp.concatenate([amount, amount, jnp.zeros_like(amount[:1])])
        for d in range(graph.incoming.shape[1]):
            total = total + sent[graph.incoming[:, d]]
        return total
    return total.at[choice.ends[:, 0]].add(amount).at[choice.ends[:, 1]].add(amount)


def cluster_sum(label: Int[Array, "n c"], amount: Float[Array, "n c"]) -> Float[Array, "n c"]:
    """For every variable the sum over its cluster."""
    columns = label.shape[1]
    at = (label * columns + jnp.arange(columns, dtype=label.dtype)[None]).reshape(-1)
    total = jnp.zeros(at.shape, amount.dtype).at[at].add(amount.reshape(-1))
    return total[at].reshape(label.shape)
