"""Variables with at most two neighbours, eliminated many at once.

In every round a random independent set of them goes: a variable without neighbours leaves a
constant, one with a single neighbour a message to it, one with two neighbours a table on both.
Chains and trees are gone after a number of rounds that grows with the logarithm of their size.
Eliminations of one round and one shape are a single operation on arrays, all in logarithms.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np
from jaxtyping import Bool, Float, Int

from undirected.inference.networks.messages import normalised
from undirected.inference.networks.network import Network
from undirected.inference.networks.simplify import Inconsistent

Indices = Int[np.ndarray, " m"]
Logs = Float[np.ndarray, "m *states"]

MOST_NEW = 2**10
"""Entries of a table that an elimination may leave."""
CHUNK = 2**20
"""Entries that are worked on at once."""
LEAST_SHARE = 0.02
"""Of the variables that are left: a round that eliminates fewer is the last one."""


@dataclass(frozen=True, eq=False)
class Elimination:
    """Variables of one shape that went in the same round, with 0, 1 or 2 neighbours each.

    Args:
        variables: which.
        edges: for each its edges, to neighbours in rising order.
        near: these neighbours.
        left: for each with two neighbours the edge on which it left its table.
    """

    variables: Indices
    edges: Int[np.ndarray, "m d"]
    near: Int[np.ndarray, "m d"]
    left: Indices


@dataclass
class PairwiseGraph:
    """Log tables of single variables and of edges, each kind in one flat array.

    Args:
        sizes: the number of states of each variable.
        field_at: where the table of each variable begins in `fields`.
        fields: the tables of all variables.
        ends: the two variables of each edge, the smaller first.
        edge_at: where the table of each edge begins in `tables`.
        tables: the tables of all edges.
        there: the edges between variables that are not eliminated; they join different pairs.
    """

    sizes: Indices
    field_at: Indices
    fields: Float[np.ndarray, " f"]
    ends: Int[np.ndarray, "e 2"]
    edge_at: Indices
    tables: Float[np.ndarray, " t"]
    there: Indices

    @classmethod
    def of(cls, network: Network, given: Mapping[int, int]) -> "PairwiseGraph":
        """The tables of one and of two variables; evidence forbids all other states."""
        sizes = np.array(network.cardinalities, int)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        graph = cls(
            sizes,
            starts[:-1],
            np.zeros(starts[-1]),
            np.zeros((0, 2), int),
            np.zeros(0, int),
            np.zeros(0),
            np.zeros(0, int),
        )
        lengths = np.fromiter(map(len, network.scopes), int, len(network.scopes))
        for k in np.flatnonzero(lengths == 1).tolist():
            at = starts[network.scopes[k][0]]
            graph.fields[at : at + network.tables[k].size] += network.tables[k]
        for v, state in given.items():
            own = graph.fields[starts[v] : starts[v + 1]]
            own[np.arange(len(own)) != state] = -np.inf
        pairs = np.flatnonzero(lengths == 2).tolist()
        if pairs:
            scopes = np.array([network.scopes[k] for k in pairs])
            graph.add(scopes, [network.tables[k].ravel() for k in pairs])
        return graph

    def field_index(self, variables: Indices) -> Int[np.ndarray, "m k"]:
        """Where the entries of variables with equal numbers of states are."""
        return self.field_at[variables][:, None] + np.arange(int(self.sizes[variables[0]]))

    def edge_index(self, edges: Indices, first: Indices) -> Int[np.ndarray, "m j k"]:
        """Where the entries of edges of one shape are; the first axis is of the variable given."""
        a, b = self.ends[edges].T
        forward = first == a
        other = np.where(forward, b, a)
        j, k = int(self.sizes[first[0]]), int(self.sizes[other[0]])
        rows = np.arange(j)[:, None] * np.where(forward, k, 1)[:, None, None]
        columns = np.arange(k) * np.where(forward, 1, j)[:, None, None]
        return self.edge_at[edges][:, None, None] + rows + columns

    def edges_of(self, ends: Int[np.ndarray, "m 2"]) -> Indices:
        """The edge that the tables of each pair of variables, in any order, are part of."""
        keys, first = np.unique(self._keys(self.ends), return_index=True)
        return first[np.searchsorted(keys, self._keys(np.sort(ends, 1)))]

    def _keys(self, ends: Int[np.ndarray, "m 2"]) -> Indices:
        """A number for every pair of variables."""
        return ends[:, 0] * len(self.sizes) + ends[:, 1]

    def add(self, ends: Int[np.ndarray, "m 2"], logs: list[Logs]) -> Indices:
        """New edges, whose tables follow their ends; the edge that each of them is now part of."""
        new = np.arange(len(self.ends), len(self.ends) + len(ends))
        entries = self.sizes[ends].prod(1)
        starts = len(self.tables) + np.cumsum(entries) - entries
        self.ends = np.concatenate([self.ends, ends])
        self.edge_at = np.concatenate([self.edge_at, starts])
        self.tables = np.concatenate([self.tables, *logs])
        backward = new[ends[:, 0] > ends[:, 1]]
        for own in self.same_shape(self.sizes[self.ends[backward]]):
            edges = backward[own]
            values = self.tables[self.edge_index(edges, self.ends[edges, 0])]
            self.ends[edges] = self.ends[edges, ::-1]
            index = self.edge_index(edges, self.ends[edges, 0])
            self.tables[index] = values.transpose(0, 2, 1)
        return self._merge(new)

    def _merge(self, new: Indices) -> Indices:
        """Add tables of the same pair of variables to the oldest of them; that one for each."""
        every = np.concatenate([self.there, new])
        keys = self._keys(self.ends[every])
        order = np.argsort(keys, kind="stable")
        first = np.ones(len(every), bool)
        first[1:] = np.diff(keys[order]) > 0
        oldest = every[order[first]]
        into = np.empty(len(every), int)
        into[order] = oldest[np.cumsum(first) - 1]
        again = into != every
        source, target = every[again], into[again]
        for own in self.same_shape(self.sizes[self.ends[source]].prod(1, keepdims=True)):
            entries = np.arange(int(self.sizes[self.ends[source[own[0]]]].prod()))
            values = self.tables[self.edge_at[source[own]][:, None] + entries]
            np.add.at(self.tables, self.edge_at[target[own]][:, None] + entries, values)
        self.there = np.sort(oldest)
        return into[len(every) - len(new) :]

    def same_shape(self, shapes: Int[np.ndarray, "m d"]) -> Iterator[Indices]:
        """The places of equal rows, in pieces of at most `CHUNK` entries."""
        if len(shapes) == 0:
            return
        base, keys = int(shapes.max(initial=0)) + 1, np.zeros(len(shapes), int)
        for column in shapes.T:
            keys = np.unique(keys * base + column, return_inverse=True)[1]
        order = np.argsort(keys, kind="stable")
        for own in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1):
            step = max(CHUNK // int(shapes[own[0]].prod()), 1)
            for at in range(0, len(own), step):
                yield own[at : at + step]

    def joint(self, one: Elimination) -> Logs:
        """The sum of a variable's tables: axis 0 the eliminations, axis 1 the variable."""
        found = self.fields[self.field_index(one.variables)]
        for i, edges in enumerate(one.edges.T):
            own = self.tables[self.edge_index(edges, one.variables)]
            own = own[:, :, None, :] if i == 1 else own
            found = found[..., None] + own
        return found


@dataclass
class LowDegree:
    """What is left of a network, and how to carry answers about it back.

    Args:
        network: what is left.
        kept: the variables of the original network that are left.
        graph: the tables at the time that their variables were eliminated.
        done: the eliminations, in their order.
    """

    network: Network
    kept: Indices
    graph: PairwiseGraph
    done: list[Elimination]

    @property
    def eliminated(self) -> int:
        """How many variables are gone."""
        return len(self.graph.sizes) - len(self.kept)

    def marginals(self, found: list[Float[np.ndarray, " k"]]) -> list[Float[np.ndarray, " k"]]:
        """Marginals of all variables from those of the variables that are left."""
        graph, (single, _) = self.graph, self._carried(found)
        stops = (graph.field_at + graph.sizes).tolist()
        return [single[i:j] for i, j in zip(graph.field_at.tolist(), stops, strict=True)]

    def distribute(self, scopes: Sequence[tuple[int, ...]]) -> list[Float[np.ndarray, "*states"]]:
        """The probabilities of the states of each scope of the network, of which nothing is left.

        A junction tree that has collected answers in the same way.
        """
        graph, (single, pair) = self.graph, self._carried([])
        found = [np.ones(())] * len(scopes)
        lengths = np.fromiter(map(len, scopes), int, len(scopes))
        for d in (1, 2):
            places = np.flatnonzero(lengths == d)
            ends = np.array([scopes[k] for k in places.tolist()], int).reshape(-1, d)
            for own in graph.same_shape(graph.sizes[ends]):
                first = ends[own, 0]
                if d == 1:
                    tables = single[graph.field_index(first)]
                else:
                    tables = pair[graph.edge_index(graph.edges_of(ends[own]), first)]
                for k, table in zip(places[own].tolist(), tables, strict=True):
                    found[k] = table
        return normalised(found)

    def _carried(
        self, found: list[Float[np.ndarray, " k"]]
    ) -> tuple[Float[np.ndarray, " f"], Float[np.ndarray, " t"]]:
        """Probabilities in the place of the tables of variables, and of edges that are gone."""
        graph = self.graph
        single, pair = np.zeros(len(graph.fields)), np.zeros(len(graph.tables))
        for v, table in zip(self.kept.tolist(), found, strict=True):
            single[graph.field_at[v] : graph.field_at[v] + len(table)] = table
        for one in reversed(self.done):
            logs = graph.joint(one)
            p = np.exp(logs - _finite(_log_sum(logs))[:, None])  # of the variable given the others
            if one.near.shape[1] == 2:
                p *= pair[graph.edge_index(one.left, one.near[:, 0])][:, None]
                for i, edges in enumerate(one.edges.T):
                    pair[graph.edge_index(edges, one.variables)] = p.sum(3 - i)
            elif one.near.shape[1] == 1:
                p *= single[graph.field_index(one.near[:, 0])][:, None]
                pair[graph.edge_index(one.edges[:, 0], one.variables)] = p
            own = p.reshape(*p.shape[:2], -1).sum(2)
            single[graph.field_index(one.variables)] = own / own.sum(1, keepdims=True)
        return single, pair

    def state(self, found: Int[np.ndarray, " m"]) -> Int[np.ndarray, " n"]:
        """The best state of all variables, given that of those that are left."""
        state = np.full(len(self.graph.sizes), -1)
        state[self.kept] = found
        for one in reversed(self.done):
            logs = self.graph.joint(one)
            for near in one.near.T:
                index = state[near].reshape(-1, *[1] * (logs.ndim - 1))
                logs = np.take_along_axis(logs, index, 2).squeeze(2)
            state[one.variables] = logs.argmax(1)
        return state


def eliminate_low_degree(
    network: Network,
    given: Mapping[int, int] | None = None,
    *,
    maximise: bool = False,
    marginals: bool = True,
    keep: Iterable[int] = (),
    deadline: float = inf,
) -> LowDegree:
    """Eliminate variables that share tables with at most two others, all of them pairwise.

    Args:
        network: any network.
        given: states of observed variables.
        maximise: maximise over the variables in place of summing.
        marginals: whether `LowDegree.marginals` will be asked for. Then no table is left on two
            variables that both stay: their joint probabilities would have to be known.
        keep: variables that stay.
        deadline: when to stop, by `time.monotonic`; variables that are there then stay.

    Raises:
        Inconsistent: no state is allowed; not every such network is found here.
    """
    rounds = _Rounds.of(network, given or {}, maximise, keep)
    now = time.monotonic()  # the rounds may have to be done again
    rounds.run(now + (deadline - now) / 2 if marginals else deadline)
    left = [one.left for one in rounds.done if one.near.shape[1] == 2]
    unknown = np.intersect1d(rounds.graph.there, np.concatenate([[], *left]).astype(int))
    if marginals and len(unknown):
        again = _Rounds.of(network, given or {}, maximise, keep)
        part = again.components()
        here = np.isin(part, part[rounds.graph.ends[unknown, 0]])
        again.most[here] = np.minimum(again.most[here], 1)
        again.run(deadline)
        rounds = again
    return rounds.result(network)


@dataclass
class _Rounds:
    """The eliminations themselves.

    Args:
        graph: tables of one and two variables; they change.
        most: the number of neighbours with which a variable may go, -1 where it stays.
        reduce: the sum or maximum over axis 1.
        offset: the logarithm of what variables without neighbours left.
    """

    graph: PairwiseGraph
    most: Indices
    reduce: Callable[[Logs], Logs]
    offset: float = 0.0
    done: list[Elimination] = field(default_factory=list)
    draw: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    @classmethod
    def of(
        cls, network: Network, given: Mapping[int, int], maximise: bool, keep: Iterable[int]
    ) -> "_Rounds":
        most = np.full(len(network.cardinalities), 2)
        for scope in network.scopes:
            if len(scope) > 2:
                most[list(scope)] = -1
        most[list(keep)] = -1
        reduce = _log_max if maximise else _log_sum
        return cls(PairwiseGraph.of(network, given), most, reduce, network.offset)

    def components(self) -> Indices:
        """For each variable the part of the graph that it is in."""
        from scipy.sparse import coo_array  # takes half a second, and few networks need it
        from scipy.sparse.csgraph import connected_components

        n, ends = len(self.most), self.graph.ends
        links = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), (n, n))
        return connected_components(links, directed=False)[1]

    def run(self, deadline: float = inf) -> None:
        open_ = np.ones(len(self.most), bool)
        while time.monotonic() <= deadline:
            chosen = self._choose(open_)
            count = int(chosen.sum())
            if count == 0 or count < LEAST_SHARE * open_.sum():
                return
            self._eliminate(chosen)
            open_ &= ~chosen

    def _choose(self, open_: Bool[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
        """Variables with few neighbours, no two of which are neighbours."""
        graph, n = self.graph, len(open_)
        a, b = graph.ends[graph.there].T
        degree = np.bincount(a, minlength=n) + np.bincount(b, minlength=n)
        found = open_ & (degree <= self.most)
        other = np.bincount(a, graph.sizes[b], n), np.bincount(b, graph.sizes[a], n)
        both = (other[0] + other[1]) ** 2 / 4  # no product of the two sizes is above this
        found &= (degree < 2) | (both <= MOST_NEW)
        rank = self.draw.permutation(n)
        meet = found[a] & found[b]
        a, b = a[meet], b[meet]
        found[np.where(rank[a] > rank[b], a, b)] = False
        return found

    def _eliminate(self, chosen: Bool[np.ndarray, " n"]) -> None:
        graph = self.graph
        ends = graph.ends[graph.there]
        own = chosen[ends]
        touched = own.any(1)
        edges, ends, own = graph.there[touched], ends[touched], own[touched]
        graph.there = graph.there[~touched]
        variable, near = ends[own], ends[~own]
        order = np.lexsort((near, variable))
        edges, variable, near = edges[order], variable[order], near[order]
        degree = np.bincount(variable, minlength=len(chosen))
        for d in range(3):
            variables = np.flatnonzero(chosen & (degree == d))
            here, shape = degree[variable] == d, (len(variables), d)
            self._of_degree(variables, edges[here].reshape(shape), near[here].reshape(shape))

    def _of_degree(
        self, variables: Indices, edges: Int[np.ndarray, "m d"], near: Int[np.ndarray, "m d"]
    ) -> None:
        """Eliminate variables with d neighbours, those of one shape at once."""
        graph, new = self.graph, []
        shapes = np.concatenate([graph.sizes[variables][:, None], graph.sizes[near]], 1)
        for own in graph.same_shape(shapes):
            one = Elimination(variables[own], edges[own], near[own], np.zeros(0, int))
            logs = self.reduce(graph.joint(one))
            if near.shape[1] == 0:
                self.offset += float(logs.sum())
                self.done.append(one)
            elif near.shape[1] == 1:
                np.add.at(graph.fields, graph.field_index(one.near[:, 0]), logs)
                self.done.append(one)
            else:
                new.append((one, logs.ravel()))
        if new:  # all at once: several may leave a table on the same two variables
            ends = np.concatenate([one.near for one, _ in new])
            left = graph.add(ends, [logs for _, logs in new])
            sizes = [len(one.variables) for one, _ in new]
            parts = np.split(left, np.cumsum(sizes)[:-1])
            self.done += [replace(one, left=own) for (one, _), own in zip(new, parts, strict=True)]

    def result(self, network: Network) -> LowDegree:
        """The network of the variables that are left, with all tables of more than two."""
        graph = self.graph
        gone = np.zeros(len(graph.sizes), bool)
        for one in self.done:
            gone[one.variables] = True
        kept = np.flatnonzero(~gone)
        place = np.cumsum(~gone) - 1
        scopes, tables, offset = [], [], self.offset
        for v in kept.tolist():
            at = graph.field_at[v]
            scopes.append((int(place[v]),))
            tables.append(graph.fields[at : at + graph.sizes[v]])
        for e in graph.there.tolist():
            a, b = graph.ends[e]
            shape = int(graph.sizes[a]), int(graph.sizes[b])
            at = graph.edge_at[e]
            scopes.append((int(place[a]), int(place[b])))
            tables.append(graph.tables[at : at + shape[0] * shape[1]].reshape(shape))
        for scope, table in zip(network.scopes, network.tables, strict=True):
            if len(scope) > 2:
                scopes.append(tuple(int(place[v]) for v in scope))
                tables.append(table)
            elif not scope:
                offset += float(table)
        if offset == -np.inf:
            raise Inconsistent
        sizes = tuple(graph.sizes[kept].tolist())
        small = Network(sizes, tuple(scopes), tuple(tables), offset)
        return LowDegree(small, kept, graph, self.done)


def _log_sum(logs: Logs) -> Logs:
    """Log Σ exp over axis 1, -inf where all are."""
    top = _finite(logs.max(1, keepdims=True))
    with np.errstate(divide="ignore", under="ignore"):
        return np.log(np.exp(logs - top).sum(1)) + top.squeeze(1)


def _log_max(logs: Logs) -> Logs:
    return logs.max(1)


def _finite(logs: Logs) -> Logs:
    """0 in place of -inf: nothing is divided by where all is 0."""
    return np.where(logs > -np.inf, logs, 0.0)
