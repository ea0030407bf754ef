"""The best state that is found until the time is up, and a bound on the value of all states.

Searches follow each other: states that messages prefer, mini-buckets, simulated annealing,
large-neighbourhood search. Bounds come from mini-buckets, before and after logs were shifted
between clusters. The optional solver goes on beside them.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf

import numpy as np

from undirected.inference.networks import toulbar2
from undirected.inference.networks.annealing import Annealing
from undirected.inference.networks.answers import BestState
from undirected.inference.networks.blocks import THREADS
from undirected.inference.networks.cost_shifting import tighten
from undirected.inference.networks.local_search import BlockSearch, climb, soften
from undirected.inference.networks.max_product import max_product_states, perturbed_states
from undirected.inference.networks.mini_buckets import decode, eliminate
from undirected.inference.networks.network import Network
from undirected.inference.networks.reduction import Reduced, reduce_network
from undirected.inference.networks.search import (
    REDUCED_SHARE,
    Search,
    State,
    affordable,
    attempt,
    begin,
    find_orders,
    forbids,
    offer,
)

REDUCED = 6.0
"""Log2 of the entries of cliques that are maximised out before a search for the best state."""
ANNEALED = 9.0
"""The same before simulated annealing."""
LIGHT = 4.0
"""The same before the optional solver: its bounds are weak where tables have many variables."""
ALONE, SOLVER = (0.15, 0.95) if THREADS > 1 else (0.6, 0.6)
"""Of the time: what the optional solver has for itself, since most of its proofs are there early;
and when it is stopped. On a single core the two would only slow each other down."""
INTERRUPTED = 1.0
"""Seconds for searches after Ctrl-C ended the solver."""


def best_state(network: Network, deadline: float, memory: int, seed: int) -> BestState:
    """The best state that is found until the deadline, and a bound on all values.

    Where the optional solver is installed it goes on beside the searches, in a process of its own.

    Args:
        network: best simplified, and one connected part.
        deadline: when to be back, by `time.monotonic`.
        memory: bytes for tables.
        seed: of random draws.

    Returns:
        The best state so far, also where Ctrl-C ends the search. It is proved where its value is
        the bound.
    """
    if not toulbar2.available():
        return searched(network, deadline, memory, seed, lambda: None)
    now, whole = time.monotonic(), deadline - time.monotonic()
    light = reduce_network(network, LIGHT, now + REDUCED_SHARE * whole)
    solver = toulbar2.Solver.begin(light.network, None, now + SOLVER * whole, seed)
    if solver is None:
        return searched(network, deadline, memory, seed, lambda: None)
    with solver:
        answer = partial(carried_back, solver, light, network)
        try:
            solver.wait(now + ALONE * whole)
        except KeyboardInterrupt:
            deadline = time.monotonic() + INTERRUPTED
        proof = answer()
        if proof is not None and proof.upper <= proof.value:
            return proof
        return searched(network, deadline, memory, seed, answer)


def carried_back(solver: toulbar2.Solver, light: Reduced, network: Network) -> BestState | None:
    """What the solver found about the reduced network, as an answer about the whole."""
    found = solver.answer()
    if found is None:
        return None
    state = light.state(found.state)
    value = network.value(state)
    upper = value if found.upper <= found.value else max(found.upper, value)
    return BestState(state, value, upper, found.method)


def searched(
    network: Network,
    deadline: float,
    memory: int,
    seed: int,
    other: Callable[[], BestState | None],
) -> BestState:
    """The best state of this module's searches and of another that goes on at the same time."""
    until = time.monotonic() + REDUCED_SHARE * (deadline - time.monotonic())
    reduced = reduce_network(network, REDUCED, until)
    small = reduced.network
    search = begin(small, deadline, memory, seed)
    zeros = np.zeros(len(small.cardinalities), int)
    search.best = BestState(zeros, small.value(zeros), inf, "none")
    if not zeros.size:
        search.best, search.upper = replace(search.best, method="elimination"), small.value(zeros)
    try:
        for step in STEPS:
            take(search, other(), reduced)
            if search.best.value < search.upper - 1e-9 and search.left > 0:
                attempt(search, step)
    except (KeyboardInterrupt, MemoryError):
        pass
    take(search, other(), reduced)
    best, state = search.best, reduced.state(search.best.state)
    value = network.value(state)
    return BestState(state, value, max(search.upper, value), best.method)


def take(search: Search, found: BestState | None, reduced: Reduced) -> None:
    """A state and a bound from elsewhere, of the network before it was reduced."""
    if found is None:
        return
    offer(search, found.state[reduced.kept], found.method)
    search.upper = min(search.upper, found.upper)
    if found.upper <= found.value and search.best is not None:
        search.best = replace(search.best, method=found.method)
        search.upper = search.best.value  # equal but for the digits of the solver


def mini_bucket_states(search: Search) -> None:
    """States and upper bounds from mini-buckets with moment matching."""
    for order in search.orders:
        bound = affordable(search, search.network, order, 0.01)
        until = time.monotonic() + 0.04 * (search.deadline - search.start)
        found = eliminate(search.network, order, bound, "max", deadline=until)
        if found is not None:
            search.upper = min(search.upper, found.value)
            offer(search, decode(found), "mini-buckets")


def shifted_states(search: Search) -> None:
    """Shift logs between clusters first, then eliminate: tighter bounds and better states."""
    for order in search.orders[:1]:
        bound = min(affordable(search, search.network, order, 0.005), 12.0)
        shifting = tighten(search.network, order, bound, search.until(0.85), 1e-4)
        search.upper = min(search.upper, shifting.bound())
        shifted = shifting.shifted()
        bound = affordable(search, shifted, order, 0.03)
        found = eliminate(shifted, order, bound, "max", deadline=search.until(0.9))
        if found is not None:
            search.upper = min(search.upper, found.value)
            offer(search, decode(found), "cost shifting")


def anneal(search: Search) -> None:
    """Cool chains down, each time more slowly; forbidden states would hold them up."""
    if forbids(search.network):
        return
    small = reduce_network(search.network, ANNEALED, search.until(0.6))
    chains = Annealing.of(small.network, search.key, deadline=search.until(0.6))
    sweeps = 25
    while time.monotonic() < search.until(0.6):
        before = time.monotonic()
        chains.scatter(search.key)
        state = small.state(chains.cool(sweeps, search.key, search.until(0.7)))
        offer(search, state, "simulated annealing")
        spent = time.monotonic() - before
        sweeps = max(int(sweeps * min(2.0, (search.until(0.7) - time.monotonic()) / spent)), 25)


def improve(search: Search) -> None:
    """Large-neighbourhood search from the best state, then from disturbed copies of it."""
    if not search.orders or search.best is None:
        return
    soft = soften(search.network)
    state = search.best.state.copy()
    until = search.until(0.75) if time.monotonic() < search.until(0.7) else search.deadline
    while time.monotonic() < until:
        climber = BlockSearch(soft, state)
        climb(climber, search.orders, search.key, until)
        offer(search, climber.state, "block search")
        if search.best.value >= search.upper - 1e-9:
            return
        state = disturbed(search, search.best.state)


def disturbed(search: Search, state: State) -> State:
    """A copy with a random tenth of the variables at random states."""
    sizes = np.array(search.network.cardinalities)
    chosen = search.key.random(len(state)) < 0.1
    return np.where(chosen, search.key.integers(0, sizes), state)


STEPS = (
    max_product_states,
    find_orders,
    mini_bucket_states,
    perturbed_states,
    anneal,
    improve,
    shifted_states,
    improve,
)
"""A first state, then searches and bounds to the end."""
