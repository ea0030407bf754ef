"""Approximate answers that improve until the time is up.

Marginals: belief propagation first, then propagation on join graphs of ever larger clusters, then
two chains of Gibbs sampling in large blocks. Runs of propagation are averaged with weights in
proportion to their estimates of Z, so that those that found less of the mass count little; that
average and the chains are combined with the weights that make the expected square error least.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf, log2

import numpy as np
from jaxtyping import Float, Int

from undirected.inference.networks import toulbar2
from undirected.inference.networks.annealing import Annealing
from undirected.inference.networks.answers import Approximation, BestState
from undirected.inference.networks.belief_propagation import (
    FactorGraphArrays,
    LoopyBeliefPropagation,
    arrays,
    propagate,
)
from undirected.inference.networks.block_gibbs import BlockGibbs, Chains, distance
from undirected.inference.networks.clock import OutOfTime
from undirected.inference.networks.cost_shifting import tighten
from undirected.inference.networks.join_graph import Propagation, Structure, entries, join_graph
from undirected.inference.networks.local_search import BlockSearch, climb, soften
from undirected.inference.networks.mini_buckets import decode, eliminate, largest_bound
from undirected.inference.networks.network import Network
from undirected.inference.networks.orders import find_order
from undirected.inference.networks.reduction import Reduced, reduce_network

Tables = list[Float[np.ndarray, " k"]]
State = Int[np.ndarray, " n"]

FIRST_BOUND, LAST_BOUND = 8.0, 26.0
"""log2 of the entries of the largest cluster, in the first and in the last step."""
SECONDS_PER_ENTRY = 4e-8
"""Of one sweep over a join graph, or of one elimination; a little on the safe side."""
SECONDS_PER_EDGE, SWEEPS = 1e-4, 8
"""What a small message takes, and the sweeps that a join graph is given at least."""
SECONDS_PER_TABLE = 2e-5
"""To line up tables for messages of all of them at once."""
BYTES_PER_ENTRY = 24
PER_VARIABLE = 4e-5
"""Seconds to put an answer together, for each variable."""
SETTLED = 1e-6
"""The change of messages at which propagation stops."""
REDUCED = 6.0
"""Log2 of the entries of cliques that are maximised out before a search for the best state."""
REDUCED_SHARE = 0.1
"""Of the time: for that."""
MESSAGES = ((8.0, 0.3), (6.0, 0.3), (7.0, 0.3), (8.0, 0.0), (9.0, 0.3), (7.0, 0.5), (6.0, 0.0))
"""The same before max-product messages, and the damping of these."""
ANNEALED = 9.0
"""The same before simulated annealing."""
PERTURBED = (0.1, 0.3, 1.0)
"""The scale of random changes of tables."""
ORDERS = 3
"""How many elimination orders take turns."""


@dataclass(frozen=True, eq=False)
class Run:
    """The fixed point of one approximation."""

    marginals: Tables
    log_z: float
    residual: float
    method: str


@dataclass
class Search:
    """What was found so far about a network.

    Args:
        network: the network.
        start: when the search began.
        deadline: when it must be over.
        memory: bytes for tables.
        key: of all random draws.
        orders: of elimination.
        runs: of propagation.
        chains: of Gibbs sampling.
        exact: a run without approximation.
        lower: on log Z, or on the best value.
        upper: likewise.
        best: the best allowed state so far.
        reduced: the network with variables of cliques up to a size maximised out.
    """

    network: Network
    start: float
    deadline: float
    memory: int
    key: np.random.Generator
    orders: list[list[int]] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    chains: Chains | None = None
    exact: Run | None = None
    lower: float = -inf
    upper: float = inf
    best: BestState | None = None
    reduced: dict[float, Reduced] = field(default_factory=dict)

    def until(self, share: float) -> float:
        """The time at which this share of the whole time is over."""
        return self.start + share * (self.deadline - self.start)

    @property
    def left(self) -> float:
        return self.deadline - time.monotonic()


def begin(network: Network, deadline: float, memory: int, seed: int) -> Search:
    """A search that keeps a little of the time back, to be home in time."""
    now = time.monotonic()
    spare = 0.03 * (deadline - now) + PER_VARIABLE * len(network.cardinalities)
    return Search(network, now, deadline - spare, memory, np.random.default_rng(seed))


def marginals(network: Network, deadline: float, memory: int, seed: int) -> Approximation:
    """Approximate marginals and log Z, the better the later the deadline.

    Args:
        network: best simplified, and one connected part.
        deadline: when to be back, by `time.monotonic`.
        memory: bytes for tables.
        seed: of random draws.

    Returns:
        The best answer so far, also where Ctrl-C ends the search.
    """
    search = begin(network, deadline, memory, seed)
    try:
        for step in (quick_propagation, find_orders, propagation, bounds, gibbs):
            if search.exact is None and search.left > 0:
                attempt(search, step)
    except (KeyboardInterrupt, MemoryError):
        pass
    return answer(search)


def attempt(search: Search, step: Callable[[Search], None]) -> None:
    """A step, which ends where its share of the time does, whatever it is doing."""
    with suppress(OutOfTime):
        step(search)


def quick_propagation(search: Search) -> None:
    """Belief propagation on the tables as they are, where there is time to line them up."""
    if len(search.network.tables) * SECONDS_PER_TABLE > search.left:
        return
    quick = LoopyBeliefPropagation(dampings=(0.5,), iterations=200, tolerance=SETTLED)
    found = quick(search.network, search.until(0.08))
    residual = 0.0 if found.note == "converged" else float(found.note.split()[-1])
    if np.isfinite(found.log_z):
        search.runs.append(Run(found.marginals, found.log_z, residual, found.method))


def find_orders(search: Search) -> None:
    """A few elimination orders from different draws."""
    sizes, scopes = search.network.cardinalities, search.network.scopes
    for _ in range(ORDERS):
        until = time.monotonic() + 0.03 * (search.deadline - search.start)
        seed = int(search.key.integers(2**31))
        order = find_order(sizes, scopes, until, seed, restarts=8, latest=search.deadline)
        if order is None:
            return
        search.orders.append([clique[0] for clique in order.cliques])
        if not order.complete:
            return  # all others would be the same


def propagation(search: Search, share: float = 0.5) -> None:
    """Join graphs of clusters as large as a share of the time allows, order after order."""
    turn, most = 0, LAST_BOUND
    while search.orders and time.monotonic() < search.until(share):
        order = search.orders[turn % len(search.orders)]
        turn += 1
        left = search.until(share) - time.monotonic()
        chosen = largest_join_graph(search, order, most, left / 2)
        if chosen is None:
            return
        structure, bound = chosen
        until = min(search.until(share), time.monotonic() + left / 2)
        run = Propagation.start(search.network, structure, until)
        run.run(40, SETTLED, deadline=until - seconds_of(search, structure))
        method = f"join-graph propagation, clusters of 2^{bound:.0f} entries"
        own = Run(run.marginals(), run.log_z(), run.residual, method)
        if run.sweeps and not structure.split:
            search.exact = own
            return
        if np.isfinite(own.log_z) and run.sweeps:
            search.runs.append(own)
        if turn % len(search.orders) == 0:
            most = bound - 2


def largest_join_graph(
    search: Search, order: list[int], most: float, seconds: float
) -> tuple[Structure, float] | None:
    """The join graph of the largest clusters of which several sweeps fit into the time."""
    best, until = None, time.monotonic() + seconds / 2
    for bound in np.arange(FIRST_BOUND, most + 1, 2.0).tolist():
        try:
            structure = join_graph(search.network, order, bound, until)
        except OutOfTime:
            break
        size = entries(structure, search.network.cardinalities)
        fits = size * BYTES_PER_ENTRY <= search.memory
        if not fits or SWEEPS * seconds_of(search, structure) > seconds:
            break
        best = structure, bound
        if not structure.split:
            break
    return best


def seconds_of(search: Search, structure: Structure) -> float:
    """What a sweep over a join graph takes, or reading its marginals and log Z."""
    size = entries(structure, search.network.cardinalities)
    return size * SECONDS_PER_ENTRY + len(structure.edges) * SECONDS_PER_EDGE


def bounds(search: Search) -> None:
    """Mini-buckets above and below log Z; the value of a state is below it too."""
    for order in search.orders[:1]:
        for kind, matching in (("upper", True), ("lower", True), ("lower", False)):
            if time.monotonic() >= search.until(0.6):
                return
            bound = _affordable(search, search.network, order, 0.02)
            until = time.monotonic() + 0.06 * (search.deadline - search.start)
            found = eliminate(search.network, order, bound, kind, matching, False, until)
            if found is not None and kind == "upper":
                search.upper = min(search.upper, found.value)
            elif found is not None:
                search.lower = max(search.lower, found.value)


def first_state(search: Search, order: list[int], share: float) -> State | None:
    """An allowed state by mini-buckets and moves of blocks, None where none is found in time."""
    soft = soften(search.network)
    found = eliminate(soft, order, 8.0, "max", deadline=search.until(share))
    sizes = search.network.cardinalities
    state = decode(found) if found else np.array([search.key.integers(k) for k in sizes])
    climber = BlockSearch(soft, state)
    count = 0
    while search.network.value(climber.state) == -inf and time.monotonic() < search.until(share):
        turn = search.orders[count % len(search.orders)]
        bound = min(8.0 + count // 4, 20.0)
        climber.move(turn, bound, search.key, search.until(share))
        count += 1
    return climber.state if search.network.value(climber.state) > -inf else None


def gibbs(search: Search) -> None:
    """Two chains from different starts, for the rest of the time.

    What they differ by is their error, so one start is not enough: then propagation goes on.
    """
    starts = [first_state(search, order, 0.6) for order in search.orders[:2]]
    allowed = [state for state in starts if state is not None]
    if len(allowed) < 2 or (allowed[0] == allowed[1]).all():
        propagation(search, 1.0)
        return
    search.lower = max(search.lower, *(search.network.value(state) for state in allowed))
    own = [BlockGibbs(search.network, state.copy()) for state in allowed]
    most = log2(max(search.memory / BYTES_PER_ENTRY / 16, 2))
    search.chains = Chains(
        own, search.orders, min(12.0, most), min(most, 22.0), search.memory / BYTES_PER_ENTRY / 2
    )
    search.chains.run(search.key, search.deadline)


def answer(search: Search) -> Approximation:
    """The exact run, else propagation and chains together."""
    if search.exact is not None:
        run = search.exact
        return Approximation(run.marginals, run.log_z, run.log_z, run.log_z, run.method, "exact")
    sizes = search.network.cardinalities
    tables, log_z, method, note = averaged(search)
    if not search.runs:
        log_z = search.network.offset + float(np.log(sizes).sum())
    log_z = min(max(log_z, search.lower), search.upper)
    if search.chains is not None and search.chains.error() < inf:
        drawn, error = search.chains.marginals(), search.chains.error()
        apart = distance(drawn, tables)
        # The chains' square error is known; what else lies between is the error of propagation.
        trust = max(1 - error / apart, 0.0) if apart > 0 and search.runs else 1.0
        tables = [trust * p + (1 - trust) * q for p, q in zip(drawn, tables, strict=True)]
        count = sum(chain.moves for chain in search.chains.chains)
        method = f"{method}; block Gibbs sampling"
        note += f"; {count} moves of blocks of 2^{search.chains.bound:.0f} entries,"
        note += f" weight {trust:.2f}, root mean square error {error**0.5:.2g}"
    return Approximation(tables, log_z, search.lower, search.upper, method, note)


def averaged(search: Search) -> tuple[Tables, float, str, str]:
    """The runs of propagation that settled, weighted by their estimates of Z."""
    if not search.runs:
        sizes = search.network.cardinalities
        return [np.full(k, 1 / k) for k in sizes], -inf, "uniform", "nothing was found in time"
    joined = [run for run in search.runs if run.method != "belief propagation"] or search.runs
    runs = next(
        few
        for limit in (1e-3, 0.1, inf)
        if (few := [run for run in joined if run.residual <= limit])
    )
    values = np.array([run.log_z for run in runs])
    weights = np.exp(values - values.max())
    weights /= weights.sum()
    tables = [
        np.einsum("r,rk->k", weights, np.array(own))
        for own in zip(*(run.marginals for run in runs), strict=True)
    ]
    best = runs[int(weights.argmax())]
    note = f"{len(runs)} runs of propagation, the best with last change {best.residual:.2g}"
    return tables, best.log_z, best.method, note


def best_state(network: Network, deadline: float, memory: int, seed: int) -> BestState:
    """The best state that is found until the deadline, and a bound on all values.

    Args:
        network: best simplified, and one connected part.
        deadline: when to be back, by `time.monotonic`.
        memory: bytes for tables.
        seed: of random draws.

    Returns:
        The best state so far, also where Ctrl-C ends the search. It is proved where its value is
        the bound.
    """
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
            if search.best.value < search.upper - 1e-9 and search.left > 0:
                attempt(search, step)
    except (KeyboardInterrupt, MemoryError):
        pass
    best, state = search.best, reduced.state(search.best.state)
    value = network.value(state)
    return BestState(state, value, max(search.upper, value), best.method)


def offer(search: Search, state: State, method: str) -> None:
    """Keep a state where it is the best so far."""
    value = search.network.value(state)
    if search.best is None or value > search.best.value:
        search.best = BestState(state.copy(), value, inf, method)


def mini_bucket_states(search: Search) -> None:
    """States and upper bounds from mini-buckets with moment matching."""
    for order in search.orders:
        bound = _affordable(search, search.network, order, 0.01)
        until = time.monotonic() + 0.04 * (search.deadline - search.start)
        found = eliminate(search.network, order, bound, "max", deadline=until)
        if found is not None:
            search.upper = min(search.upper, found.value)
            offer(search, decode(found), "mini-buckets")


def shifted_states(search: Search) -> None:
    """Shift logs between clusters first, then eliminate: tighter bounds and better states."""
    for order in search.orders[:1]:
        bound = min(_affordable(search, search.network, order, 0.005), 12.0)
        shifting = tighten(search.network, order, bound, search.until(0.85), 1e-4)
        search.upper = min(search.upper, shifting.bound())
        shifted = shifting.shifted()
        bound = _affordable(search, shifted, order, 0.03)
        found = eliminate(shifted, order, bound, "max", deadline=search.until(0.9))
        if found is not None:
            search.upper = min(search.upper, found.value)
            offer(search, decode(found), "cost shifting")


def _affordable(search: Search, network: Network, order: list[int], share: float) -> float:
    """The i-bound of mini-buckets that take a share of the time, and fit into memory."""
    seconds = share * (search.deadline - search.start)
    most = min(seconds / SECONDS_PER_ENTRY, search.memory / BYTES_PER_ENTRY)
    until = min(search.deadline, time.monotonic() + seconds)
    return float(largest_bound(network, order, most, deadline=until)[0])


def max_product_states(search: Search) -> None:
    """The states that max-product messages prefer, after different variables were maximised out."""
    for bound, damping in MESSAGES:
        if time.monotonic() > search.until(0.3):
            return
        max_product(search, bound, damping, 0.0)


def perturbed_states(search: Search) -> None:
    """The same with random changes of the tables, which lead to other good states."""
    turn, share = 0, 0.8 if forbids(search.network) else 0.35
    while time.monotonic() < search.until(share):
        bound, damping = MESSAGES[turn % len(MESSAGES)]
        max_product(search, bound, damping, PERTURBED[turn % len(PERTURBED)])
        turn += 1


def max_product(search: Search, bound: float, damping: float, noise: float) -> None:
    """Offer the states that messages prefer every few sweeps."""
    if bound not in search.reduced:
        until = time.monotonic() + REDUCED_SHARE * (search.deadline - search.start)
        search.reduced[bound] = reduce_network(search.network, bound, until)
    small = search.reduced[bound]
    network = perturbed(small.network, noise, search.key) if noise else small.network
    graph, flat = arrays(network), None
    until = time.monotonic() + 0.06 * (search.deadline - search.start)
    for _ in range(8):
        run = propagate(graph, flat, damping, 20, SETTLED, until, maximise=True)
        offer(search, small.state(_preferred(graph, run.beliefs(graph))), "max-product")
        if run.residual <= SETTLED or time.monotonic() >= until:
            return
        flat = run.flat


def perturbed(network: Network, noise: float, key: np.random.Generator) -> Network:
    """The network with random numbers added to the log values of single variables."""
    scopes = tuple((v,) for v in range(len(network.cardinalities)))
    extra = tuple(noise * key.gumbel(size=k) for k in network.cardinalities)
    return Network(
        network.cardinalities, network.scopes + scopes, network.tables + extra, network.offset
    )


def forbids(network: Network) -> bool:
    """Whether some entry is forbidden."""
    return any((table == -inf).any() for table in network.tables)


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


def _preferred(graph: FactorGraphArrays, logs: Float[np.ndarray, " states"]) -> State:
    return np.array([int(own.argmax()) for own in graph.split(logs)], int)


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


def prove(search: Search) -> None:
    """The optional solver, from the best state so far."""
    if not toulbar2.available() or search.best is None:
        return
    until = search.until(0.8)
    found = toulbar2.solve(search.network, search.best.state, until)
    if found is not None:
        offer(search, found.state, found.method)
        search.upper = min(search.upper, found.upper)
        if found.upper <= found.value:
            search.best = found


STEPS = (
    max_product_states,
    prove,
    find_orders,
    mini_bucket_states,
    perturbed_states,
    anneal,
    improve,
    shifted_states,
    improve,
)
"""A first state, a proof where the solver is there, then searches and bounds to the end."""
