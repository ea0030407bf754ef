"""The best state by large-neighbourhood search: random blocks are maximised exactly.

A move fixes a random cutset at its present states and finds the best states of all other variables
by elimination. No move makes the state worse. When moves stop paying, blocks become larger.
"""

import time
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from undirected.inference.networks.clock import OutOfTime
from undirected.inference.networks.cutsets import around, condition, random_block
from undirected.inference.networks.mini_buckets import decode, eliminate
from undirected.inference.networks.network import Network
from undirected.inference.networks.orders import neighbours

HUBS = 10
"""Fewer variables than this that many others hang on are free together."""
PENALTY = 1e5
"""What a forbidden entry costs while no allowed state is known."""


def soften(network: Network, penalty: float = PENALTY) -> Network:
    """The network with forbidden entries allowed at a price."""
    tables = tuple(
        np.where(table == -np.inf, -penalty, table) if (table == -np.inf).any() else table
        for table in network.tables
    )
    return Network(network.cardinalities, network.scopes, tables, network.offset)


@dataclass
class BlockSearch:
    """A state that improves.

    Args:
        network: the network, softened.
        state: the best state so far.
        value: its log value.
    """

    network: Network
    state: Int[np.ndarray, " n"]
    value: float = field(init=False)
    near: list[set[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.value = self.network.value(self.state)
        self.near = neighbours(len(self.network.cardinalities), self.network.scopes)

    def move(
        self, order: list[int], bound: float, key: np.random.Generator, deadline: float
    ) -> float:
        """Maximise a random block; by how much the value rose, 0 where time ran out."""
        wish = self._reluctance(key)
        try:
            block = random_block(self.network, order, bound, key, self.near, wish, deadline)
        except OutOfTime:
            return 0.0
        free = sorted(block.order)
        place = {v: i for i, v in enumerate(free)}
        small = condition(self.network, block, self.state)
        found = eliminate(
            small, [place[v] for v in block.order], np.inf, "max", False, deadline=deadline
        )
        if found is None:
            return 0.0
        trial = self.state.copy()
        trial[free] = decode(found)
        gain = self.network.value(trial) - self.value
        if gain >= 0:
            self.state, self.value = trial, self.value + gain
        return max(gain, 0.0)

    def _reluctance(self, key: np.random.Generator) -> Float[np.ndarray, " n"] | None:
        """Which variables stay: those far from one, or those that many hang on but a few."""
        kind, n = key.integers(4), len(self.near)
        if kind == 0:
            return None
        centre = int(key.integers(n))
        if kind == 1:
            return around(centre, self.near, key)
        hubs = np.array([len(own) for own in self.near]) * key.random(n)
        close = {centre}.union(self.near[centre], *(self.near[u] for u in self.near[centre]))
        free = sorted(close, key=lambda v: -hubs[v])[: int(key.integers(1, HUBS))]
        hubs[free] = -1.0
        return hubs


def climb(
    search: BlockSearch,
    orders: list[list[int]],
    key: np.random.Generator,
    deadline: float,
    first: float = 8.0,
    last: float = 18.0,
    patience: int = 6,
) -> None:
    """Moves until the deadline, or until the largest blocks have not helped for a while."""
    bound, idle, count = first, 0, 0
    while time.monotonic() < deadline:
        gain = search.move(orders[count % len(orders)], bound, key, deadline)
        count += 1
        idle = 0 if gain > 1e-9 else idle + 1
        if idle >= patience:
            if bound >= last:
                return
            bound, idle = bound + 2, 0
