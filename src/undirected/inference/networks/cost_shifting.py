"""An upper bound on the best value by shifting logs between the clusters of a join graph.

The sum of the clusters' maxima bounds the value of every state. Neighbours share out the maxima
that they see on their separator; what one gains the other loses, so the sum of all tables stays,
and the bound never rises: coordinate descent on the dual of the linear program over the clusters.
"""

import time
from dataclasses import dataclass
from math import inf

import numpy as np

from undirected.inference.networks.clock import check_time
from undirected.inference.networks.join_graph import Shape, Structure, Table, join_graph
from undirected.inference.networks.network import Network
from undirected.inference.networks.simplify import aligned


@dataclass
class CostShifting:
    """Cluster tables whose sum is the network.

    Args:
        network: the network.
        structure: its clusters.
        tables: their logs, flat.
        constant: what no cluster has.
    """

    network: Network
    structure: Structure
    tables: list[Table]
    constant: float

    @classmethod
    def start(
        cls, network: Network, order: list[int], bound: float, deadline: float = inf
    ) -> "CostShifting":
        structure = join_graph(network, order, bound, deadline)
        sizes = network.cardinalities
        tables = [np.zeros([sizes[v] for v in scope]) for scope in structure.scopes]
        constant = network.offset
        for scope, table, home in zip(network.scopes, network.tables, structure.homes, strict=True):
            check_time(deadline)
            if home < 0:
                constant += float(table)
            else:
                tables[home] += aligned(table, scope, structure.scopes[home])
        return cls(network, structure, [table.ravel() for table in tables], constant)

    def bound(self) -> float:
        """No state's value exceeds this."""
        return self.constant + float(sum(table.max() for table in self.tables))

    def sweep(self, deadline: float = inf) -> bool:
        """Share out along every edge, forth and back; False where time ran out on the way."""
        edges = list(self.structure.edges.items())
        for (a, b), separator in [*edges, *reversed(edges)]:
            if time.monotonic() >= deadline:
                return False
            one, two = (Shape.of(self.structure.scopes[c], separator, self.sizes) for c in (a, b))
            here, there = one.reduce(self.tables[a], True), two.reduce(self.tables[b], True)
            known = np.isfinite(here) & np.isfinite(there)
            half = (np.where(known, there, 0.0) - np.where(known, here, 0.0)) / 2
            # What one end forbids is forbidden.
            for c, shape, shift in ((a, one, half), (b, two, -half)):
                view = self.tables[c].reshape(shape.full)
                view += shape.spread(np.where(known, shift, -inf))
        return True

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.network.cardinalities

    def shifted(self) -> Network:
        """The same network with the clusters as its tables."""
        tables = tuple(
            table.reshape([self.sizes[v] for v in scope])
            for scope, table in zip(self.structure.scopes, self.tables, strict=True)
        )
        return Network(self.sizes, tuple(self.structure.scopes), tables, self.constant)


def tighten(
    network: Network, order: list[int], bound: float, deadline: float, least: float = 1e-6
) -> CostShifting:
    """Sweeps until the bound falls by less than `least` in one, or time is over.

    Raises:
        OutOfTime: the deadline passed before the first sweep.
    """
    shifting = CostShifting.start(network, order, bound, deadline)
    last = shifting.bound()
    while shifting.sweep(deadline):
        now = shifting.bound()
        if not last - now > least:
            break
        last = now
    return shifting
