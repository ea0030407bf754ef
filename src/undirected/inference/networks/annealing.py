"""The best state by simulated annealing of many chains at once.

Chains move side by side: one NumPy call draws a variable in all of them given all others. Forbidden
entries have a price, so that chains can pass through states that are not allowed.
"""

import time
from dataclasses import dataclass
from math import inf

import numpy as np
from jaxtyping import Float, Int

from undirected.inference.networks.clock import check_time
from undirected.inference.networks.network import Network

CHAINS = 96
"""Chains side by side."""
HOT, COLD = 0.2, 30.0
"""The first and the last inverse temperature, times the median change of a log value."""
FORBIDDEN = 10.0
"""What a forbidden entry costs, in median changes."""


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """The tables of one variable.

    Args:
        rows: their numbers.
        strides: how far a step of the variable is in each.
        steps: the same times each of its states.
    """

    rows: Int[np.ndarray, " m"]
    strides: Int[np.ndarray, "m 1"]
    steps: Int[np.ndarray, "m 1 k"]


@dataclass
class Annealing:
    """States of a network that are cooled down together.

    Args:
        network: the network.
        flat: all tables, one after the other, with prices for what is forbidden.
        around: the tables of each variable.
        states: of each variable in each chain.
        places: of the present entry of each table in each chain.
        unit: the median change of a log value when one variable changes.
    """

    network: Network
    flat: Float[np.ndarray, " entries"]
    around: list[Neighbourhood]
    starts: Int[np.ndarray, " tables"]
    states: Int[np.ndarray, "n c"]
    places: Int[np.ndarray, "tables c"]
    unit: float = 1.0

    @classmethod
    def of(
        cls,
        network: Network,
        key: np.random.Generator,
        chains: int = CHAINS,
        deadline: float = inf,
    ) -> "Annealing":
        """Chains at random states.

        Raises:
            OutOfTime: the deadline passed.
        """
        own: list[list[tuple[int, int]]] = [[] for _ in network.cardinalities]
        starts, place = [], 0
        tables = [(s, t) for s, t in zip(network.scopes, network.tables, strict=True) if s]
        for k, (scope, table) in enumerate(tables):
            check_time(deadline)
            stride = table.size
            for v, size in zip(scope, table.shape, strict=True):
                stride //= size
                own[v].append((k, stride))
            starts.append(place)
            place += table.size
        flat = np.concatenate([table.ravel() for _, table in tables]) if tables else np.zeros(0)
        around = [
            _neighbourhood(items, k) for items, k in zip(own, network.cardinalities, strict=True)
        ]
        n = len(network.cardinalities)
        empty = np.zeros((n, chains), int)
        found = cls(network, flat, around, np.array(starts, int), empty, empty)
        found.scatter(key)
        return found._priced(deadline)

    def _priced(self, deadline: float) -> "Annealing":
        """Measure what changes are worth in random states, and put prices to what is forbidden."""
        known = self.flat[np.isfinite(self.flat)]
        spread = float(known.max() - known.min()) if len(known) else 1.0
        bad = self.flat == -inf
        self.flat[bad] = -spread - 1.0
        changes = []
        for v in range(len(self.around)):
            check_time(deadline)
            changes.append(np.abs(np.diff(self.logits(v)[0], axis=1)).ravel())
        every = np.concatenate(changes) if changes else np.zeros(0)
        self.unit = float(np.median(every[every > 0])) if (every > 0).any() else 1.0
        self.flat[bad] = float(known.min() if len(known) else 0.0) - FORBIDDEN * self.unit
        return self

    def scatter(self, key: np.random.Generator) -> None:
        """Random states."""
        sizes = np.array(self.network.cardinalities)[:, None]
        self.put(key.integers(0, sizes, (len(sizes), self.states.shape[1])))

    def put(self, states: Int[np.ndarray, "n c"]) -> None:
        """Set all chains."""
        self.states = states
        places = np.repeat(self.starts[:, None], states.shape[1], 1)
        for v, near in enumerate(self.around):
            places[near.rows] += near.strides * states[v]
        self.places = places

    def logits(self, v: int) -> tuple[Float[np.ndarray, "c k"], Int[np.ndarray, "m c"]]:
        """Log values of the states of a variable given all others, and the places of its first."""
        near = self.around[v]
        base = self.places[near.rows] - near.strides * self.states[v]
        return self.flat[base[:, :, None] + near.steps].sum(0), base

    def sweep(self, beta: float, key: np.random.Generator, deadline: float = inf) -> None:
        """Draw every variable once, at an inverse temperature. Late, the rest stays."""
        count = self.states.shape[1]
        for v in key.permutation(len(self.around)):
            if time.monotonic() >= deadline:
                return
            near = self.around[v]
            logits, base = self.logits(v)
            if logits.shape[1] == 2:
                new = key.logistic(size=count) < beta * (logits[:, 1] - logits[:, 0])
            else:
                new = (beta * logits + key.gumbel(size=logits.shape)).argmax(1)
            self.places[near.rows] = base + near.strides * new
            self.states[v] = new

    def best(self) -> tuple[Int[np.ndarray, " n"], float]:
        """The best chain by prices, and its value."""
        values = self.flat[self.places].sum(0)
        best = int(values.argmax())
        return self.states[:, best].copy(), float(values[best])

    def cool(
        self, sweeps: int, key: np.random.Generator, deadline: float, hot: float = HOT
    ) -> Int[np.ndarray, " n"]:
        """Cool all chains down; the best state on the way. Late, the rest is left out."""
        best, top = self.best()
        for beta in np.geomspace(hot, COLD, sweeps) / self.unit:
            if time.monotonic() >= deadline:
                break
            self.sweep(beta, key, deadline)
            state, value = self.best()
            if value > top:
                best, top = state, value
        return best


def _neighbourhood(items: list[tuple[int, int]], size: int) -> Neighbourhood:
    rows = np.array([k for k, _ in items], int)
    strides = np.array([stride for _, stride in items], int)[:, None]
    return Neighbourhood(rows, strides, strides[:, :, None] * np.arange(size))
