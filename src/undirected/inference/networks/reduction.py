"""Variables in small cliques maximised out before a search for the best state.

What is left has far fewer variables: chains of deterministic helpers, as noisy ORs are made of,
disappear, and a change of one of the others no longer has to drag them along.
"""

import heapq
import time
from dataclasses import dataclass
from math import inf, log2

import numpy as np
from jaxtyping import Float, Int

from undirected.inference.networks.mini_buckets import combine
from undirected.inference.networks.network import Network
from undirected.inference.networks.orders import join, neighbours

Scope = tuple[int, ...]
Table = Float[np.ndarray, "*states"]


@dataclass(frozen=True, eq=False)
class Reduced:
    """A network whose best value is that of a larger one.

    Args:
        network: over the variables that are left.
        kept: which these are.
        gone: the variables that were maximised out, in that order: scope, its own variable first,
            and what was maximised.
        size: the number of variables of the larger network.
    """

    network: Network
    kept: list[int]
    gone: list[tuple[Scope, Table]]
    size: int

    def state(self, found: Int[np.ndarray, " m"]) -> Int[np.ndarray, " n"]:
        """The best state of the larger network in which the variables kept are as found."""
        state = np.zeros(self.size, int)
        state[self.kept] = found
        for (v, *others), table in reversed(self.gone):
            state[v] = int(table[(slice(None), *(state[u] for u in others))].argmax())
        return state


def reduce_network(network: Network, bound: float, deadline: float = inf) -> Reduced:
    """Maximise out, smallest first, all variables whose cliques have at most 2^bound entries.

    Args:
        network: any network.
        bound: log2 of the entries of the largest table that is made.
        deadline: when to stop, by `time.monotonic`; the variables that are left then stay.
    """
    sizes, n = network.cardinalities, len(network.cardinalities)
    near, logs = neighbours(n, network.scopes), [log2(k) for k in network.cardinalities]
    tables: dict[int, tuple[Scope, Table]] = {}
    own: list[set[int]] = [set() for _ in range(n)]
    offset = network.offset
    for k, (scope, table) in enumerate(zip(network.scopes, network.tables, strict=True)):
        if scope:
            tables[k] = scope, table
            for v in scope:
                own[v].add(k)
        else:
            offset += float(table)
    number, gone = len(network.tables), []
    for v in _small_cliques(near, logs, bound, deadline):
        items = [tables.pop(k) for k in own[v]]
        for scope, _ in items:
            for u in scope:
                if u != v:
                    own[u] -= own[v]
        scope, table = _combined(v, items, sizes)
        gone.append((scope, table))
        if len(scope) > 1:
            tables[number] = scope[1:], table.max(0)
            for u in scope[1:]:
                own[u].add(number)
            number += 1
        else:
            offset += float(table.max())
    kept = sorted(set(range(n)).difference(scope[0] for scope, _ in gone))
    place = {v: i for i, v in enumerate(kept)}
    scopes = tuple(tuple(place[v] for v in scope) for scope, _ in tables.values())
    small = Network(
        tuple(sizes[v] for v in kept), scopes, tuple(t for _, t in tables.values()), offset
    )
    return Reduced(small, kept, gone, n)


def _combined(
    v: int, items: list[tuple[Scope, Table]], sizes: tuple[int, ...]
) -> tuple[Scope, Table]:
    """The sum of a variable's tables, its own axis first."""
    if not items:
        return (v,), np.zeros(sizes[v])
    others = sorted({u for scope, _ in items for u in scope} - {v})
    place = {u: i for i, u in enumerate([v, *others])}
    ordered = []
    for scope, table in items:
        axes = sorted(range(len(scope)), key=lambda i: place[scope[i]])
        ordered.append((tuple(scope[i] for i in axes), table.transpose(axes)))
    return combine(ordered, place)


def _small_cliques(near: list[set[int]], logs: list[float], bound: float, deadline: float):
    """The variables in the order of the sizes of their cliques, as long as these are small."""

    def weight(v: int) -> float:
        return logs[v] + sum([logs[u] for u in near[v]])

    current = {v: weight(v) for v in range(len(near))}
    heap = [(w, v) for v, w in current.items()]
    heapq.heapify(heap)
    while heap:
        w, v = heapq.heappop(heap)
        if current.get(v, inf) != w:
            continue
        if w > bound or time.monotonic() > deadline:
            return
        del current[v]
        yield v
        for u in join(near, v):
            if u in current and (new := weight(u)) != current[u]:
                current[u] = new
                heapq.heappush(heap, (new, u))
