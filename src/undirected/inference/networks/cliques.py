"""The cliques of an elimination order as a tree, with what they cost in memory and time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf, prod

import numpy as np

from undirected.inference.networks.clock import check_time
from undirected.inference.networks.contractions import BLOCK_RATE, Split, find_split
from undirected.inference.networks.orders import Order

Scope = tuple[int, ...]

MOST_TOGETHER = 2**10
"""Joint states of the variables that one clique eliminates: its others can be split into blocks."""

LARGE = 2**13
"""Entries from which on the order of a clique's axes matters."""


@dataclass
class Clique:
    """Variables that are eliminated together, and those they leave a message on.

    Args:
        scope: the eliminated ones, then the separator.
        gone: how many are eliminated here.
        shape: the number of states of each variable of the scope.
        parent: the clique that the message goes to, -1 for a root.
        tables: the numbers of the network's tables that are multiplied here.
        split: its inputs, tables and then messages, in two groups, where that makes sums faster.
    """

    scope: Scope
    gone: int
    shape: tuple[int, ...]
    parent: int = -1
    children: list[int] = field(default_factory=list)
    tables: list[int] = field(default_factory=list)
    split: Split | None = None

    @property
    def separator(self) -> Scope:
        return self.scope[self.gone :]

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def separator_size(self) -> int:
        return prod(self.shape[self.gone :])

    @property
    def work(self) -> float:
        """The entries that would take as long to sum one by one."""
        if self.split is None:
            return self.size
        return self.split.seconds(self.sizes, self.separator) / BLOCK_RATE

    @property
    def sizes(self) -> dict[int, int]:
        """The number of states of each variable."""
        return dict(zip(self.scope, self.shape, strict=True))

    @property
    def held(self) -> int:
        """Entries of the largest table in the work on it."""
        factor = 0 if self.split is None else self.split.largest(self.sizes)
        return max(self.separator_size, factor)

    def axes(self, scope: Scope) -> tuple[int, ...]:
        """The shape in which a table over a part of the clique, in its order, meets the others."""
        wanted = set(scope)
        return tuple([k if v in wanted else 1 for v, k in zip(self.scope, self.shape, strict=True)])

    def aligned(self, table: np.ndarray, scope: Scope) -> np.ndarray:
        """A table over a part of the clique with an axis for each of its variables."""
        if scope == self.scope:
            return table
        places = [self.scope.index(v) for v in scope]
        order = sorted(places)
        if places != order:
            table = table.transpose([places.index(p) for p in order])
            table = np.ascontiguousarray(table) if table.size > LARGE else table
        shape = [1] * len(self.scope)
        for p, k in zip(order, table.shape, strict=True):
            shape[p] = k
        return table.reshape(shape)


@dataclass(frozen=True)
class CliqueTree:
    """Cliques in an order in which children come before parents.

    Args:
        cliques: the cliques.
        when: for each variable the time it is eliminated.
        home: for each variable the clique that eliminates it.
    """

    cliques: list[Clique]
    when: list[int]
    home: list[int]

    @property
    def entries(self) -> int:
        """Of all clique tables together: the work of one pass block by block."""
        return sum(clique.size for clique in self.cliques)

    def work(self, threads: int = 1) -> float:
        """The same where some cliques are summed faster; threads share those that are not."""
        return sum(c.size / threads if c.split is None else c.work for c in self.cliques)

    @property
    def stored(self) -> int:
        """Entries of all messages together."""
        return sum(clique.separator_size for clique in self.cliques)


def clique_tree(
    sizes: Sequence[int],
    scopes: Iterable[Scope],
    order: Order,
    last: frozenset[int] = frozenset(),
    sums: bool = True,
    deadline: float = inf,
) -> CliqueTree:
    """The tree of an order's cliques; those inside their only child's are made one with it.

    Variables of `last` share no clique's elimination with others. With `sums` the axes of large
    cliques are sorted for products of matrices, which maxima cannot use; and cliques that
    eliminate several variables are taken apart where that makes such products possible.

    Raises:
        OutOfTime: the deadline passed.
    """
    scopes = tuple(scopes)
    whole = _joined_tree(sizes, scopes, order, last, sums, frozenset(), deadline)
    slow = [c for c in whole.cliques if c.size > LARGE and c.gone > 1 and c.split is None]
    if not sums or not slow:
        return whole
    alone = frozenset(v for clique in slow for v in clique.scope[: clique.gone])
    apart = _joined_tree(sizes, scopes, order, last, sums, alone, deadline)
    return min(whole, apart, key=lambda tree: tree.work())


def _joined_tree(
    sizes: Sequence[int],
    scopes: Sequence[Scope],
    order: Order,
    last: frozenset[int],
    sums: bool,
    alone: frozenset[int],
    deadline: float,
) -> CliqueTree:
    """The tree in which no variable of `alone` is eliminated together with one before it."""
    when, home = [0] * len(sizes), [-1] * len(sizes)
    for time, clique in enumerate(order.cliques):
        when[clique[0]] = time
    found: list[Clique] = []
    hosts: dict[int, int] = {}  # for a variable the clique below that has its own clique inside
    for v, *near in order.cliques:
        check_time(deadline)
        near.sort(key=when.__getitem__)
        if v in hosts:
            home[v] = hosts.pop(v)
            found[home[v]].gone += 1
        else:
            home[v] = len(found)
            scope = (v, *near)
            found.append(Clique(scope, 1, tuple([sizes[u] for u in scope])))
        if near:
            up = near[0]
            inside = len(order.cliques[when[up]]) == len(near)
            own = found[home[v]].shape[: found[home[v]].gone + 1]
            few = prod(own) <= MOST_TOGETHER
            free = up not in hosts and up not in alone
            if inside and few and free and (up in last) == (v in last):
                hosts[up] = home[v]
    return _wired(scopes, found, when, home, sums, deadline)


def _wired(
    scopes: Sequence[Scope],
    cliques: list[Clique],
    when: list[int],
    home: list[int],
    sums: bool,
    deadline: float,
) -> CliqueTree:
    """Parents, children, and the clique of each table.

    A clique that took over the elimination of others comes at the time of the last one.
    """
    order = sorted(range(len(cliques)), key=lambda c: when[cliques[c].scope[cliques[c].gone - 1]])
    place = [0] * len(order)
    for i, c in enumerate(order):
        place[c] = i
    cliques, home = [cliques[c] for c in order], [place[c] for c in home]
    for c, clique in enumerate(cliques):
        if clique.gone < len(clique.scope):
            clique.parent = home[clique.scope[clique.gone]]
            cliques[clique.parent].children.append(c)
    for k, scope in enumerate(scopes):
        if scope:
            cliques[home[min(scope, key=when.__getitem__)]].tables.append(k)
    for clique in reversed(cliques):  # parents first: their order decides about ties
        check_time(deadline)
        if clique.size > LARGE:
            place = {v: i for i, v in enumerate(cliques[clique.parent].scope)}
            if not (sums and _contract(clique, cliques, scopes, place)):
                _sort_separator(clique, cliques, place)
    return CliqueTree(cliques, when, home)


def _contract(
    clique: Clique, cliques: list[Clique], scopes: Sequence[Scope], place: dict[int, int]
) -> bool:
    """Split the inputs in two where that is faster, and sort the separator for it.

    Variables of one kind keep the order that they have in the parent, so that fewer have to change
    places there.
    """
    inputs = [scopes[k] for k in clique.tables]
    inputs += [cliques[c].separator for c in clique.children]
    sizes = clique.sizes
    clique.split = find_split(sizes, clique.separator, inputs)
    if clique.split is None:
        return False
    separator = sorted(clique.separator, key=place.__getitem__) if place else clique.separator
    clique.scope = clique.scope[: clique.gone] + clique.split.separator(separator)
    clique.shape = tuple([sizes[v] for v in clique.scope])
    return True


def _sort_separator(clique: Clique, cliques: list[Clique], place: dict[int, int]) -> None:
    """Put variables that all large inputs know last: long runs of memory are then in step."""
    weight = dict.fromkeys(clique.scope, 0)
    for c in clique.children:
        for v in cliques[c].separator:
            weight[v] += cliques[c].separator_size
    first, scope = clique.gone, clique.scope
    last = sorted(range(first, len(scope)), key=lambda i: (weight[scope[i]], place[scope[i]]))
    order = [*range(first), *last]
    clique.scope = tuple(scope[i] for i in order)
    clique.shape = tuple(clique.shape[i] for i in order)
