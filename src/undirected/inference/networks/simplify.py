"""Networks made smaller without a change of any answer.

Evidence is absorbed, states that zeros exclude are removed (generalised arc consistency), variables
that determine each other are made one, tables inside others are merged, and tables that are
products are split. What is left is answered, and the answer is carried back.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from math import inf

import numpy as np
from jaxtyping import Float, Int

from undirected.core.errors import NotFinite
from undirected.inference.networks.network import Network

Scope = tuple[int, ...]
Logs = Float[np.ndarray, "*states"]

SPLIT_MOST = 2**16
"""Entries of the largest table that is looked at for factors."""
TOGETHER = 2**12
"""Tables of one shape that are looked at together."""
SPLIT_ERROR = 1e-12
"""Relative difference below which a table counts as the product of its parts."""


class Inconsistent(NotFinite):
    """No state agrees with the tables and the evidence: its probability is 0."""

    def __init__(self) -> None:
        super().__init__(
            "the evidence is inconsistent: every state that agrees with it has probability 0; "
            "correct the evidence or the zeros of the tables"
        )


@dataclass(frozen=True, eq=False)
class Simplified:
    """A smaller network, and where the variables of the original are in it.

    Args:
        network: what is left.
        source: for each original variable its variable in `network`, -1 where it has one state.
        states: for each original variable its state for each state of `source`.
    """

    network: Network
    cardinalities: tuple[int, ...]
    source: list[int]
    states: list[Int[np.ndarray, " k"]]

    def marginals(self, found: list[Float[np.ndarray, " k"]]) -> list[Float[np.ndarray, " k"]]:
        """Marginals of all original variables from those of the smaller network."""
        every = []
        for size, v, states in zip(self.cardinalities, self.source, self.states, strict=True):
            own = np.zeros(size)
            own[states] = 1.0 if v < 0 else found[v]
            every.append(own)
        return every

    def state(self, found: Int[np.ndarray, "*batch m"]) -> Int[np.ndarray, "*batch n"]:
        """Joint states of all original variables."""
        own = [
            np.full(found.shape[:-1], states[0]) if v < 0 else states[found[..., v]]
            for v, states in zip(self.source, self.states, strict=True)
        ]
        return np.stack(own, -1) if own else np.zeros((*found.shape[:-1], 0), int)


def simplify(
    network: Network,
    given: Mapping[int, int] | None = None,
    wanted: Iterable[int] | None = None,
    deadline: float = inf,
) -> Simplified:
    """The network given evidence, without what is certain, repeated or a product.

    Args:
        network: any network.
        given: states of observed variables.
        wanted: variables that must stay; others that only one table knows are summed out. All
            stay by default.
        deadline: when to stop, by `time.monotonic`; the network is then less simple than it could
            be. Evidence is always absorbed.

    Raises:
        Inconsistent: zeros leave no state; not every such network is found here.
    """
    work = _Work.of(network, deadline)
    for v, state in (given or {}).items():
        work.restrict(v, np.array([state]))
    waiting, merged = set(work.tables), False
    for _ in range(8):
        work.prune(waiting)
        waiting, merged = work.identify(), False
        if not waiting:
            work.merge()
            waiting = work.split()
            merged = not waiting
        if wanted is not None:
            waiting |= work.sum_out(set(wanted))
        if not waiting or work.late:
            break
    if not merged or waiting:
        work.merge()
    return work.result(network.cardinalities)


@dataclass
class _Work:
    """A network whose tables change; each has a number, and variables know theirs."""

    tables: dict[int, tuple[Scope, Logs]]
    own: list[set[int]]  # the tables of each variable
    source: list[int]
    states: list[Int[np.ndarray, " k"]]
    size: list[int]  # the number of states that each variable still has
    offset: float
    number: int
    deadline: float = inf
    plain: set[int] = field(default_factory=set)  # tables that no split was found for
    # The variables that were made one with another.
    followers: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, network: Network, deadline: float) -> "_Work":
        n = len(network.cardinalities)
        states = [np.arange(k) for k in network.cardinalities]
        size = list(network.cardinalities)
        own, source = [set() for _ in range(n)], list(range(n))
        work = cls({}, own, source, states, size, network.offset, 0, deadline)
        for scope, table in zip(network.scopes, network.tables, strict=True):
            work.add(scope, np.asarray(table, float))
        for v, k in enumerate(network.cardinalities):
            if k == 1:
                work.restrict(v, np.array([0]))
        return work

    @property
    def late(self) -> bool:
        """Whether to leave the rest as it is."""
        return time.monotonic() > self.deadline

    def add(self, scope: Scope, table: Logs) -> int | None:
        """A new table; its number, or None where it is a constant."""
        if not scope:
            self.offset += float(table)
            if self.offset == -np.inf:
                raise Inconsistent
            return None
        self.number += 1
        self.tables[self.number] = scope, table
        for v in scope:
            self.own[v].add(self.number)
        return self.number

    def drop(self, k: int) -> tuple[Scope, Logs]:
        self.plain.discard(k)
        for v in self.tables[k][0]:
            self.own[v].discard(k)
        return self.tables.pop(k)

    def restrict(self, v: int, keep: Int[np.ndarray, " k"]) -> set[int]:
        """Leave variable v these states alone; the tables that changed."""
        if len(keep) == 0:
            raise Inconsistent
        for u in (v, *self.followers[v]):
            self.states[u] = self.states[u][keep]
            if len(keep) == 1:
                self.source[u] = -1
        self.size[v] = len(keep)
        changed = set()
        for k in list(self.own[v]):
            scope, table = self.tables[k]
            axis = scope.index(v)
            if len(keep) > 1:
                self.tables[k] = scope, table.take(keep, axis)
                self.plain.discard(k)
                changed.add(k)
            else:
                self.drop(k)
                new = self.add(scope[:axis] + scope[axis + 1 :], table.take(keep[0], axis))
                changed |= {new} if new is not None else set()
        return changed

    def prune(self, waiting: Iterable[int]) -> None:
        """Remove states without support in some table, until all have it."""
        queue = {k for k in waiting if k in self.tables}
        while queue and not self.late:
            k = queue.pop()
            if k not in self.tables:
                continue
            scope, table = self.tables[k]
            if table.min() > -np.inf:
                continue
            allowed = table > -np.inf
            for axis, v in enumerate(scope):
                others = tuple(i for i in range(len(scope)) if i != axis)
                kept = np.flatnonzero(allowed.any(others))
                if len(kept) < self.size[v]:
                    queue |= self.restrict(v, kept)
                    queue.add(k)
                    break

    def identify(self) -> set[int]:
        """Make one of two variables whose states determine each other; the tables that changed."""
        changed = set()
        for k in list(self.tables):
            if self.late:
                break
            if k in self.plain or k not in self.tables:
                continue
            scope, table = self.tables[k]
            if len(scope) < 2 or table.size > SPLIT_MOST or table.min() > -np.inf:
                continue
            pair = _bijection(table > -np.inf)
            if pair is not None:
                i, j, image = pair
                changed |= self._substitute(scope[i], scope[j], image)
        return changed

    def _substitute(self, kept: int, gone: int, image: Int[np.ndarray, " k"]) -> set[int]:
        """Write x_gone = image[x_kept] into all tables."""
        changed = set()
        for k in list(self.own[gone]):
            scope, table = self.drop(k)
            axis = scope.index(gone)
            table = table.take(image, axis)
            if kept in scope:
                other = scope.index(kept)
                table = np.moveaxis(table.diagonal(0, axis, other), -1, other - (axis < other))
                scope = scope[:axis] + scope[axis + 1 :]
            else:
                scope = (*scope[:axis], kept, *scope[axis + 1 :])
            new = self.add(scope, table)
            changed |= {new} if new is not None else set()
        moved = [gone, *self.followers.pop(gone, ())]
        for v in moved:
            self.source[v], self.states[v] = kept, self.states[v][image]
        self.followers[kept] += moved
        return changed

    def merge(self) -> None:
        """Add tables to a table of more variables that has all of theirs."""
        for k in sorted(self.tables, key=lambda k: len(self.tables[k][0])):
            if self.late:
                break
            scope, table = self.tables[k]
            near = min((self.own[v] for v in scope), key=len)
            if len(near) == 1:
                continue
            wanted = set(scope)
            for other in near:
                target = self.tables[other][0]
                if other != k and len(target) >= len(scope) and wanted.issubset(target):
                    self.drop(k)
                    table = aligned(table, scope, target)
                    self.tables[other] = target, self.tables[other][1] + table
                    self.plain.discard(other)
                    break

    def split(self) -> set[int]:
        """Replace tables that are products by their factors; the new tables.

        Tables of one shape are looked at together.
        """
        shapes = defaultdict(list)
        for k, (_, table) in self.tables.items():
            if k not in self.plain and table.size <= SPLIT_MOST:
                shapes[table.shape].append(k)
        new: set[int] = set()
        for numbers in _pieces(shapes.values()):
            if self.late:
                break
            stack = np.stack([self.tables[k][1] for k in numbers])
            for k, parts in zip(numbers, _factors(stack), strict=True):
                if parts is None:
                    self.plain.add(k)
                    continue
                scope, table = self.drop(k)
                added = [self.add(tuple(scope[i] for i in axes), logs) for axes, logs in parts]
                new |= {k for k in added if k is not None}
        return new

    def sum_out(self, wanted: set[int]) -> set[int]:
        """Sum over variables of one table or none that are not wanted; the new tables."""
        new: set[int] = set()
        wanted = {self.source[v] for v in wanted}
        queue = [v for v, source in enumerate(self.source) if source == v and v not in wanted]
        while queue and not self.late:
            v = queue.pop()
            if self.source[v] != v or len(self.own[v]) > 1:
                continue
            self.source[v] = -1
            if not self.own[v]:
                self.offset += float(np.log(self.size[v]))
                continue
            scope, table = self.drop(next(iter(self.own[v])))
            axis = scope.index(v)
            left = scope[:axis] + scope[axis + 1 :]
            k = self.add(left, np.logaddexp.reduce(table, axis))
            new |= {k} if k is not None else set()
            queue += [u for u in left if u not in wanted]
        return new & self.tables.keys()

    def result(self, cardinalities: tuple[int, ...]) -> Simplified:
        open_ = [v for v, source in enumerate(self.source) if source == v]
        place = {v: i for i, v in enumerate(open_)}
        scopes = tuple(tuple(place[v] for v in scope) for scope, _ in self.tables.values())
        tables = tuple(table for _, table in self.tables.values())
        sizes = tuple(len(self.states[v]) for v in open_)
        small = Network(sizes, scopes, tables, self.offset)
        source = [place.get(v, -1) for v in self.source]
        return Simplified(small, cardinalities, source, self.states)


def _pieces(groups: Iterable[list[int]]) -> Iterator[list[int]]:
    """Groups, the large ones in several pieces."""
    for own in groups:
        yield from (own[i : i + TOGETHER] for i in range(0, len(own), TOGETHER))


def aligned(table: Logs, scope: Scope, target: Scope) -> Logs:
    """A table with an axis for each variable of the target, of length 1 where it has none."""
    place = {v: i for i, v in enumerate(target)}
    axes = sorted(range(len(scope)), key=lambda i: place[scope[i]])
    shape = [1] * len(target)
    for i in axes:
        shape[place[scope[i]]] = table.shape[i]
    return table.transpose(axes).reshape(shape)


def _bijection(allowed: np.ndarray) -> tuple[int, int, Int[np.ndarray, " k"]] | None:
    """Two axes of which each state allows one state of the other, and the map between them."""
    for i, j in combinations(range(allowed.ndim), 2):
        if allowed.shape[i] != allowed.shape[j]:
            continue
        both = allowed.any(tuple(a for a in range(allowed.ndim) if a not in (i, j)))
        if (both.sum(0) == 1).all() and (both.sum(1) == 1).all():
            return i, j, both.argmax(1)
    return None


def _factors(stack: Float[np.ndarray, "b *states"]) -> list[list[tuple[Scope, Logs]] | None]:
    """For each table two factors with fewer axes whose product it is, None where there are none.

    Two axes are independent given the others where t Σ_ij t = Σ_i t Σ_j t; then t is the product
    of Σ_j t and Σ_i t / Σ_ij t. A constant is a product of nothing.
    """
    axes = range(stack.ndim - 1)
    found: list[list[tuple[Scope, Logs]] | None] = [None] * len(stack)
    top = stack.max(tuple(i + 1 for i in axes), keepdims=True)
    constant = (stack == top).all(tuple(i + 1 for i in axes))
    for b in np.flatnonzero(constant):
        found[b] = [((), top[b].reshape(()))]
    left = np.flatnonzero(~constant)
    with np.errstate(under="ignore", invalid="ignore", divide="ignore"):
        t = np.exp(stack - top)
        for i, j in combinations(axes, 2):
            own = t[left]
            over_i, over_j = own.sum(i + 1, keepdims=True), own.sum(j + 1, keepdims=True)
            both = over_i.sum(j + 1, keepdims=True)
            product = over_i * over_j
            same = np.abs(own * both - product) <= SPLIT_ERROR * product
            for b in left[same.all(tuple(k + 1 for k in axes))]:
                # t itself may have lost small entries; its factors are found from the logarithms.
                found[b] = _two_factors(stack[b], i, j)
            left = np.array([b for b in left if found[b] is None], int)
            if len(left) == 0:
                break
    return found


def _two_factors(logs: Logs, i: int, j: int) -> list[tuple[Scope, Logs]] | None:
    """Σ_j t and Σ_i t / Σ_ij t in logarithms, checked there."""
    axes = tuple(range(logs.ndim))
    over_i, over_j = np.logaddexp.reduce(logs, i), np.logaddexp.reduce(logs, j)
    both = np.logaddexp.reduce(over_i, j - 1 if j > i else j)
    ratio = over_i - np.expand_dims(np.where(both > -np.inf, both, 0.0), j - 1 if j > i else j)
    again = np.expand_dims(over_j, j) + np.expand_dims(ratio, i)
    zero = logs == -np.inf
    if not (zero == (again == -np.inf)).all() or np.abs((again - logs)[~zero]).max() > 1e-11:
        return None
    return [
        (tuple(a for a in axes if a != j), over_j),
        (tuple(a for a in axes if a != i), ratio),
    ]
