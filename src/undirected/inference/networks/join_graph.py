"""Join-graph propagation: belief propagation between clusters of at most 2^i entries.

Mini-buckets along an elimination order give the clusters. The clusters that hold a variable form a
tree for each variable, so the clusters minus the separators count it once; with a bound as large as
the width of the order there is one such tree for all, and the answer is exact.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, log2, prod

import numpy as np
from jaxtyping import Float

from undirected.inference.networks.answers import Approximation
from undirected.inference.networks.clock import check_time
from undirected.inference.networks.network import Network
from undirected.inference.networks.simplify import aligned

Scope = tuple[int, ...]
Table = Float[np.ndarray, "*states"]


@dataclass
class Structure:
    """Clusters and the edges between them, by number.

    Args:
        scopes: the variables of each cluster, in the order in which they are eliminated.
        homes: for each table of the network the cluster that has it.
        edges: pairs of clusters, the one that is eliminated first first, and their separator.
        split: whether some bucket was too large and became several.
    """

    scopes: list[Scope]
    homes: list[int]
    edges: dict[tuple[int, int], Scope]
    split: bool


def join_graph(
    network: Network, order: list[int], bound: float, deadline: float = inf
) -> Structure:
    """Mini-buckets of at most 2^bound entries (or one table), joined as bucket elimination would.

    Each mini-bucket sends what is left of its scope to the bucket of its next variable, and the
    mini-buckets of one variable agree on that variable alone.

    Raises:
        OutOfTime: the deadline passed.
    """
    place = {v: i for i, v in enumerate(order)}
    logs = [log2(k) for k in network.cardinalities]
    buckets: list[list[tuple[Scope, int, bool]]] = [[] for _ in order]
    homes = [-1] * len(network.tables)
    for k, scope in enumerate(network.scopes):
        if scope:
            ordered = tuple(sorted(scope, key=place.__getitem__))
            buckets[place[ordered[0]]].append((ordered, k, True))
    scopes: list[Scope] = []
    edges: dict[tuple[int, int], Scope] = {}
    split = False
    for v in order:
        check_time(deadline)
        items = buckets[place[v]]
        minis = partition([scope for scope, _, _ in items], logs, bound)
        split |= len(minis) > 1
        for number, (union, members) in enumerate(minis):
            cluster, scope = len(scopes), tuple(sorted(union, key=place.__getitem__))
            scopes.append(scope)
            for own, k, original in (items[i] for i in members):
                if original:
                    homes[k] = cluster
                else:
                    edges[k, cluster] = own
            if number:
                edges[cluster - 1, cluster] = (v,)
            if len(scope) > 1:
                buckets[place[scope[1]]].append((scope[1:], cluster, False))
    return contract(Structure(scopes, homes, edges, split), place, deadline)


def partition(
    scopes: Sequence[Scope], logs: list[float], bound: float
) -> list[tuple[set[int], list[int]]]:
    """Scopes in sets whose unions have at most 2^bound entries: each goes where it adds least.

    Returns:
        For each set its union, and the numbers of its scopes.
    """
    sets: list[tuple[set[int], list[int]]] = []
    weights: list[float] = []
    for k in sorted(range(len(scopes)), key=lambda k: -sum(logs[v] for v in scopes[k])):
        scope = scopes[k]
        best, least = -1, inf
        for i, (union, _) in enumerate(sets):
            extra = sum(logs[v] for v in scope if v not in union)
            if extra < least and weights[i] + extra <= bound + 1e-9:
                best, least = i, extra
        if best < 0:
            sets.append((set(scope), [k]))
            weights.append(sum(logs[v] for v in scope))
        else:
            sets[best][0].update(scope)
            sets[best][1].append(k)
            weights[best] += least
    return sets


def contract(s: Structure, place: dict[int, int], deadline: float = inf) -> Structure:
    """Merge clusters into neighbours that have all their variables, and join parallel edges."""
    near: list[dict[int, set[int]]] = [{} for _ in s.scopes]
    for (a, b), separator in s.edges.items():
        near[a][b] = near[b][a] = set(separator)
    into = list(range(len(s.scopes)))
    waiting = list(range(len(s.scopes)))
    while waiting:
        check_time(deadline)
        c = waiting.pop()
        if into[c] != c:
            continue
        size = len(s.scopes[c])
        host = next((d for d, separator in near[c].items() if len(separator) == size), None)
        if host is None:
            continue
        into[c] = host
        del near[host][c]
        for d, separator in near[c].items():
            if d == host:
                continue
            del near[d][c]
            joined = near[host].get(d, set()) | separator
            near[host][d] = near[d][host] = joined
            waiting.append(d)
        waiting.append(host)
    return _renumbered(s, near, into, place)


def _renumbered(
    s: Structure, near: list[dict[int, set[int]]], into: list[int], place: dict[int, int]
) -> Structure:
    def host(c: int) -> int:
        while into[c] != c:
            c = into[c]
        return c

    # A merged cluster stands where its last member stood, so that parents stay after children.
    last = {host(c): c for c in range(len(s.scopes))}
    kept = sorted(last, key=last.__getitem__)
    number = {c: i for i, c in enumerate(kept)}
    edges = {
        (number[c], number[d]): tuple(sorted(separator, key=place.__getitem__))
        for c in kept
        for d, separator in near[c].items()
        if number[c] < number[d]
    }
    homes = [number[host(c)] if c >= 0 else -1 for c in s.homes]
    return Structure([s.scopes[c] for c in kept], homes, edges, s.split)


@dataclass(frozen=True)
class Shape:
    """How a separator lies in a cluster: axes that stay or go together are taken as one.

    Args:
        full: the shape of the cluster's table in those axes.
        kept: the same with 1 for the axes that are summed out.
        gone: which axes these are.
    """

    full: tuple[int, ...]
    kept: tuple[int, ...]
    gone: tuple[int, ...]

    @classmethod
    def of(cls, scope: Scope, separator: Scope, sizes: tuple[int, ...]) -> "Shape":
        inside = set(separator)
        full: list[int] = []
        kept: list[bool] = []
        for v in scope:
            if kept and kept[-1] == (v in inside):
                full[-1] *= sizes[v]
            else:
                full.append(sizes[v])
                kept.append(v in inside)
        shape = tuple(k if stay else 1 for k, stay in zip(full, kept, strict=True))
        return cls(tuple(full), shape, tuple(i for i, stay in enumerate(kept) if not stay))

    def spread(self, message: Table) -> Table:
        return message.reshape(self.kept)

    def reduce(self, table: Table, maximise: bool = False) -> Table:
        own = table.reshape(self.full)
        return (own.max(self.gone) if maximise else own.sum(self.gone)).ravel()


@dataclass
class Propagation:
    """Messages on a join graph, in plain numbers with largest entry 1.

    Args:
        network: the network.
        structure: its clusters.
        tables: for each cluster the product of its tables, largest entry 1.
        log_scale: the logarithm of what the tables were divided by, and the network's offset.
        messages: to and from, for each directed edge a flat table over the separator.
    """

    network: Network
    structure: Structure
    tables: list[Table]
    log_scale: float
    messages: dict[tuple[int, int], Table]
    shapes: dict[tuple[int, int], Shape]
    near: list[list[int]] = field(default_factory=list)
    residual: float = inf
    sweeps: int = 0
    impossible: bool = False

    @classmethod
    def start(cls, network: Network, structure: Structure, deadline: float = inf) -> "Propagation":
        """Tables multiplied into clusters, and uniform messages.

        Raises:
            OutOfTime: the deadline passed.
        """
        sizes = network.cardinalities
        logs = [np.zeros([sizes[v] for v in scope]) for scope in structure.scopes]
        scale = network.offset
        for scope, table, home in zip(network.scopes, network.tables, structure.homes, strict=True):
            check_time(deadline)
            if home < 0:
                scale += float(table)
            else:
                logs[home] += aligned(table, scope, structure.scopes[home])
        for own in logs:
            check_time(deadline)
            top = own.max()
            scale += top
            np.exp(own - (top if top > -inf else 0.0), out=own)
        near: list[list[int]] = [[] for _ in structure.scopes]
        messages, shapes = {}, {}
        for (a, b), separator in structure.edges.items():
            check_time(deadline)
            for c, d in ((a, b), (b, a)):
                near[c].append(d)
                shapes[c, d] = Shape.of(structure.scopes[c], separator, sizes)
                messages[c, d] = np.ones(prod(sizes[v] for v in separator))
        tables = [own.ravel() for own in logs]
        return cls(network, structure, tables, scale, messages, shapes, near)

    def belief(self, c: int) -> Table:
        """The product of a cluster's table and all messages that reach it."""
        product = self.tables[c].copy()
        for d in self.near[c]:
            shape = self.shapes[c, d]
            view = product.reshape(shape.full)
            view *= shape.spread(self.messages[d, c])
        return product

    def send(self, c: int, targets: list[int], damping: float) -> float:
        """Send a cluster's messages; the largest change of one."""
        if not targets:
            return 0.0
        belief, change = self.belief(c), 0.0
        for d in targets:
            out = self.shapes[c, d].reduce(belief)
            got, old = self.messages[d, c], self.messages[c, d]
            out = np.divide(out, got, out=np.zeros_like(out), where=got > 0)
            top = out.max()
            if not top > 0:
                self.impossible = True
                continue
            out /= top
            change = max(change, float(np.abs(out - old).max()))
            self.messages[c, d] = out if damping == 0 else out ** (1 - damping) * old**damping
        return change

    def sweep(self, damping: float = 0.0, deadline: float = inf) -> bool:
        """Messages along the order and back; False where time ran out on the way."""
        change = 0.0
        count = len(self.tables)
        for c in range(count):
            if time.monotonic() >= deadline:
                return False
            change = max(change, self.send(c, [d for d in self.near[c] if d > c], damping))
        for c in reversed(range(count)):
            if time.monotonic() >= deadline:
                return False
            change = max(change, self.send(c, [d for d in self.near[c] if d < c], damping))
        self.residual, self.sweeps = change, self.sweeps + 1
        return True

    def run(
        self,
        iterations: int = 100,
        tolerance: float = 1e-8,
        damping: float = 0.0,
        deadline: float = inf,
    ) -> "Propagation":
        """Sweep until messages change by less than the tolerance, or iterations or time are spent.

        Without a split bucket one sweep is exact.
        """
        for _ in range(iterations if self.structure.split else 1):
            if not self.sweep(damping, deadline) or self.residual <= tolerance:
                break
        return self

    def marginals(self) -> list[Float[np.ndarray, " k"]]:
        """For each variable the marginal of the smallest cluster that has it."""
        sizes = self.network.cardinalities
        best: dict[int, int] = {}
        for c, scope in enumerate(self.structure.scopes):
            for v in scope:
                if v not in best or self.tables[c].size < self.tables[best[v]].size:
                    best[v] = c
        wanted: dict[int, list[int]] = {}
        for v, c in best.items():
            wanted.setdefault(c, []).append(v)
        out = [np.full(k, 1 / k) for k in sizes]
        for c, members in wanted.items():
            belief = self.belief(c)
            for v in members:
                own = Shape.of(self.structure.scopes[c], (v,), sizes).reduce(belief)
                if own.sum() > 0:
                    out[v] = own / own.sum()
        return out

    def log_z(self) -> float:
        """Σ log of cluster sums - Σ log of separator sums: exact on a tree."""
        alone = set(range(len(self.network.cardinalities)))
        alone.difference_update(*self.structure.scopes)
        value = self.log_scale + sum(np.log(self.network.cardinalities[v]) for v in alone)
        with np.errstate(divide="ignore", invalid="ignore"):
            for c in range(len(self.tables)):
                value += np.log(self.belief(c).sum())
            for a, b in self.structure.edges:
                value -= np.log((self.messages[a, b] * self.messages[b, a]).sum())
        return float(value)


def entries(structure: Structure, sizes: tuple[int, ...]) -> int:
    """The entries of all cluster tables and messages."""
    clusters = sum(prod(sizes[v] for v in scope) for scope in structure.scopes)
    return clusters + 2 * sum(prod(sizes[v] for v in sep) for sep in structure.edges.values())


@dataclass(frozen=True)
class JoinGraphPropagation:
    """Iterative join-graph propagation with an i-bound.

    Args:
        bound: log2 of the entries of the largest cluster.
        iterations: sweeps along the order and back, at most.
        tolerance: the largest change of a message at which it has converged.
        damping: how much of the old messages is kept.
    """

    bound: float = 10.0
    iterations: int = 100
    tolerance: float = 1e-8
    damping: float = 0.0

    def __call__(self, network: Network, order: list[int], deadline: float = inf) -> Approximation:
        """Approximate marginals and log Z; exact where no bucket of the order exceeds the bound."""
        structure = join_graph(network, order, self.bound)
        run = Propagation.start(network, structure)
        run.run(self.iterations, self.tolerance, self.damping, deadline)
        value, exact = run.log_z(), run.sweeps > 0 and not structure.split
        lower, upper = (value, value) if exact else (-inf, inf)
        settled = run.residual <= self.tolerance
        note = "exact" if exact else "converged" if settled else f"residual {run.residual:.2g}"
        return Approximation(run.marginals(), value, lower, upper, "join-graph propagation", note)
