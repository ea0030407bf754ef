"""Approximate marginals and log Z that improve until the time is up.

Belief propagation comes first, then propagation on join graphs of ever larger clusters, then two
chains of Gibbs sampling in large blocks. Runs of propagation are averaged with weights in
proportion to their estimates of Z, so that those that found less of the mass count little; that
average and the chains are combined with the weights that make the expected square error least.
"""

import time
from math import inf, log2

import numpy as np

from undirected.inference.networks.answers import Approximation
from undirected.inference.networks.belief_propagation import LoopyBeliefPropagation
from undirected.inference.networks.block_gibbs import BlockGibbs, Chains, distance
from undirected.inference.networks.clock import OutOfTime
from undirected.inference.networks.join_graph import Propagation, Structure, entries, join_graph
from undirected.inference.networks.local_search import BlockSearch, soften
from undirected.inference.networks.mini_buckets import decode, eliminate
from undirected.inference.networks.network import Network
from undirected.inference.networks.search import (
    BYTES_PER_ENTRY,
    SECONDS_PER_ENTRY,
    SETTLED,
    Run,
    Search,
    State,
    Tables,
    affordable,
    attempt,
    begin,
    find_orders,
)

FIRST_BOUND, LAST_BOUND = 8.0, 26.0
"""log2 of the entries of the largest cluster, in the first and in the last step."""
SECONDS_PER_EDGE, SWEEPS = 1e-4, 8
"""What a small message takes, and the sweeps that a join graph is given at least."""
SECONDS_PER_TABLE = 2e-5
"""To line up tables for messages of all of them at once."""


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


def quick_propagation(search: Search) -> None:
    """Belief propagation on the tables as they are, where there is time to line them up."""
    if len(search.network.tables) * SECONDS_PER_TABLE > search.left:
        return
    quick = LoopyBeliefPropagation(dampings=(0.5,), iterations=200, tolerance=SETTLED)
    found = quick(search.network, search.until(0.08))
    residual = 0.0 if found.note == "converged" else float(found.note.split()[-1])
    if np.isfinite(found.log_z):
        search.runs.append(Run(found.marginals, found.log_z, residual, found.method))


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
            bound = affordable(search, search.network, order, 0.02)
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
        value = run.log_z
        return Approximation(run.marginals, value, value, value, run.method, "exact", exact=True)
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
