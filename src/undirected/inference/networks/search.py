"""What an approximate search knows so far, and what all of them need: time, orders, i-bounds."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf

import numpy as np
from jaxtyping import Float, Int

from undirected.inference.networks.answers import BestState
from undirected.inference.networks.block_gibbs import Chains
from undirected.inference.networks.clock import OutOfTime
from undirected.inference.networks.mini_buckets import largest_bound
from undirected.inference.networks.network import Network
from undirected.inference.networks.orders import find_order
from undirected.inference.networks.reduction import Reduced

Tables = list[Float[np.ndarray, " k"]]
State = Int[np.ndarray, " n"]

ORDERS = 3
"""How many elimination orders take turns."""
SECONDS_PER_ENTRY = 4e-8
"""Of one sweep over a join graph, or of one elimination; a little on the safe side."""
BYTES_PER_ENTRY = 24
PER_VARIABLE = 4e-5
"""Seconds to put an answer together, for each variable."""
REDUCED_SHARE = 0.1
"""Of the time: for maximising out variables in small cliques."""
SETTLED = 1e-6
"""The change of messages at which propagation stops."""


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


def attempt(search: Search, step: Callable[[Search], None]) -> None:
    """A step, which ends where its share of the time does, whatever it is doing."""
    with suppress(OutOfTime):
        step(search)


def find_orders(search: Search) -> None:
    """A few elimination orders from different draws."""
    sizes, scopes = search.network.cardinalities, search.network.scopes
    for _ in range(ORDERS):
        until = time.monotonic() + 0.03 * (search.deadline - search.start)
        seed = int(search.key.integers(2**31))
        order = find_order(sizes, scopes, until, seed, restarts=8, latest=search.until(0.5))
        if order is None:
            return
        search.orders.append([clique[0] for clique in order.cliques])
        if not order.complete:
            return  # all others would be the same


def affordable(search: Search, network: Network, order: list[int], share: float) -> float:
    """The i-bound of mini-buckets that take a share of the time, and fit into memory."""
    seconds = share * (search.deadline - search.start)
    most = min(seconds / SECONDS_PER_ENTRY, search.memory / BYTES_PER_ENTRY)
    until = min(search.deadline, time.monotonic() + seconds)
    return float(largest_bound(network, order, most, deadline=until))


def offer(search: Search, state: State, method: str) -> None:
    """Keep a state where it is the best so far."""
    value = search.network.value(state)
    if search.best is None or value > search.best.value:
        search.best = BestState(state.copy(), value, inf, method)


def forbids(network: Network) -> bool:
    """Whether some entry is forbidden."""
    return any((table == -inf).any() for table in network.tables)
