"""The exact likelihood of rows with missing entries under a network, and its gradient.

The derivative of log p(seen) by an entry of a log table is how often that entry is expected to be
met given what a row shows, minus how often under the model. Both come from two passes over a clique
tree: one with the variables that a row shows clamped, one with none. Rows that show the same
variables share a tree and are an axis of all its tables. All is done in logarithms.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from jaxtyping import Float, Int

from undirected.core.errors import NotFinite, UndirectedError
from undirected.inference.networks.cliques import Clique, CliqueTree, clique_tree
from undirected.inference.networks.orders import find_order

Scope = tuple[int, ...]
Logs = Float[np.ndarray, "*states"]
Rows = Int[np.ndarray, "rows variables"]

MOST_ENTRIES = 2**22
"""Of the tables of all cliques together, for one row."""
CHUNK = 2**21
"""The same for all rows that are worked on at once."""


class Forbidden(NotFinite):
    """A row of states has probability 0 under the zeros of a network."""

    def __init__(self, row: Int[np.ndarray, " variables"], told: str = "") -> None:
        self.row = row
        super().__init__(
            f"likelihood: the row of states {told or row.tolist()!s:.200} has probability 0 under "
            "the zeros of the network; remove the row, or the zero"
        )


@dataclass(frozen=True, eq=False)
class Pattern:
    """Different rows that show the same variables, and how many there are of each.

    Args:
        sizes: the number of states of each variable.
        scopes: the tables' variables.
        rows: a state of each variable, -1 where it is not shown.
        weight: how often each row was met.
    """

    sizes: tuple[int, ...]
    scopes: tuple[Scope, ...]
    rows: Rows
    weight: Float[np.ndarray, " rows"]

    @cached_property
    def hidden(self) -> list[int]:
        """The variables that no row shows."""
        return np.flatnonzero(self.rows[0] < 0).tolist()

    @cached_property
    def open_scopes(self) -> tuple[Scope, ...]:
        """The hidden variables of each table, numbered anew."""
        place = {v: i for i, v in enumerate(self.hidden)}
        return tuple(tuple(place[v] for v in scope if v in place) for scope in self.scopes)

    @cached_property
    def tree(self) -> CliqueTree:
        """Cliques of the hidden variables.

        Raises:
            UndirectedError: they are too large.
        """
        sizes = [self.sizes[v] for v in self.hidden]
        order = find_order(sizes, self.open_scopes, restarts=12)
        if order is not None and order.complete and order.cost <= np.log2(MOST_ENTRIES):
            return clique_tree(sizes, self.open_scopes, order, sums=False)
        raise UndirectedError(
            f"likelihood: {len(self.hidden)} variables that are not shown need tables of more than "
            f"{MOST_ENTRIES:,} entries; pass an objective to fit, such as PseudoLikelihood()"
        )

    def parts(self) -> "list[Pattern]":
        """The same in pieces that are worked on at once."""
        step = max(CHUNK // max(self.tree.entries, 1), 1)
        found = []
        for at in range(0, len(self.rows), step):
            own = slice(at, at + step)
            part = Pattern(self.sizes, self.scopes, self.rows[own], self.weight[own])
            part.__dict__["tree"] = self.tree  # depends on what is hidden alone
            found.append(part)
        return found

    def given(self, k: int, table: Logs) -> Float[np.ndarray, "*hidden rows"]:
        """A table at the states that the rows show, its hidden axes first."""
        return table[self._index(k)]

    def add_counts(
        self, k: int, share: Float[np.ndarray, "*hidden rows"], counts: Float[np.ndarray, "*states"]
    ) -> None:
        """Add the probabilities of a table's states given each row to the counts of all rows."""
        np.add.at(counts, self._index(k), share * self.weight)

    def _shape(self, k: int) -> tuple[int, ...]:
        return tuple(self.sizes[v] for v in self.scopes[k] if self.rows[0, v] < 0)

    def _index(self, k: int) -> tuple[Int[np.ndarray, "*hidden rows"], ...]:
        """For each axis of a table the states, such that hidden axes come first and rows last."""
        full, found, at = (*self._shape(k), len(self.rows)), [], 0
        for v in self.scopes[k]:
            own = self.rows[:, v]
            if own[0] < 0:
                own = np.arange(full[at]).reshape([-1 if a == at else 1 for a in range(len(full))])
                at += 1
            found.append(np.broadcast_to(own, full))
        return tuple(found)


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The mean log-likelihood of rows as a function of a network's log tables.

    Args:
        sizes: the number of states of each variable.
        scopes: the tables' variables.
        patterns: the rows, by what they show.
        free: a single row that shows nothing.
        count: the number of rows.
    """

    sizes: tuple[int, ...]
    scopes: tuple[Scope, ...]
    patterns: list[Pattern]
    free: Pattern
    count: float

    @classmethod
    def of(cls, sizes: Sequence[int], scopes: Sequence[Scope], rows: Rows) -> "Likelihood":
        """Of rows with a state for each variable, -1 where it is missing."""
        own = tuple(sizes), tuple(scopes)
        different, weight = np.unique(rows, axis=0, return_counts=True)
        masks, which = np.unique(different < 0, axis=0, return_inverse=True)
        which = which.ravel()
        found = [
            Pattern(*own, different[which == i], weight[which == i].astype(float))
            for i in range(len(masks))
        ]
        free = Pattern(*own, np.full((1, len(own[0])), -1), np.ones(1))
        parts = [part for pattern in found for part in pattern.parts()]
        return cls(*own, parts, free.parts()[0], float(len(rows)))

    def __call__(self, tables: Sequence[Logs]) -> tuple[float, list[Float[np.ndarray, "*states"]]]:
        """The mean log-likelihood of a row, and its derivatives by the entries of all tables.

        Raises:
            Forbidden: a row has probability 0 whatever the finite entries are.
        """
        (log_z,), under_model = expected(self.free, tables)
        total, seen = 0.0, [np.zeros(table.shape) for table in tables]
        for pattern in self.patterns:
            own, counts = expected(pattern, tables)
            if not np.isfinite(own).all():
                raise Forbidden(pattern.rows[int(np.isfinite(own).argmin())])
            total += float(own @ pattern.weight)
            for sums, count in zip(seen, counts, strict=True):
                sums += count
        pairs = zip(seen, under_model, strict=True)
        return total / self.count - float(log_z), [a / self.count - b for a, b in pairs]


def expected(
    pattern: Pattern, tables: Sequence[Logs]
) -> tuple[Float[np.ndarray, " rows"], list[Float[np.ndarray, "*states"]]]:
    """Log Σ over the hidden variables for each row, and the weighted expected counts of entries."""
    counts = [np.zeros(table.shape) for table in tables]
    total, given = np.zeros(len(pattern.rows)), {}
    for k, (scope, table) in enumerate(zip(pattern.open_scopes, tables, strict=True)):
        own = pattern.given(k, table)
        if scope:
            given[k] = own
        else:
            total = total + own
            pattern.add_counts(k, np.ones(len(total)), counts[k])
    joints, messages = _collect(pattern, given)
    total = total + sum(messages[c] for c, q in enumerate(pattern.tree.cliques) if q.parent < 0)
    for k, share in _distribute(pattern.tree, pattern.open_scopes, joints, messages):
        pattern.add_counts(k, share, counts[k])
    return total, counts


def _collect(pattern: Pattern, given: dict[int, Logs]) -> tuple[list[Logs], list[Logs]]:
    """The log product of every clique, and its sum over what the clique eliminates."""
    tree, joints, messages = pattern.tree, [], []
    for clique in tree.cliques:
        joint = np.zeros((*clique.shape, len(pattern.rows)))
        for k in clique.tables:
            joint += _aligned(clique, given[k], pattern.open_scopes[k])
        for c in clique.children:
            joint += _aligned(clique, messages[c], tree.cliques[c].separator)
        joints.append(joint)
        messages.append(_log_sum(joint, clique.gone))
    return joints, messages


def _distribute(
    tree: CliqueTree, scopes: Sequence[Scope], joints: list[Logs], messages: list[Logs]
) -> list[tuple[int, Float[np.ndarray, "*hidden rows"]]]:
    """For each table the probabilities of its hidden variables given each row."""
    found, beliefs = [], {}
    for c in reversed(range(len(tree.cliques))):
        clique = tree.cliques[c]
        message = np.where(messages[c] > -np.inf, messages[c], 0.0)
        with np.errstate(under="ignore"):
            p = np.exp(joints[c] - message) * beliefs.pop(c, 1.0)
        for child in clique.children:
            beliefs[child] = _onto(clique, p, tree.cliques[child].separator)
        found += [(k, _onto(clique, p, scopes[k])) for k in clique.tables]
    return found


def _log_sum(logs: Logs, axes: int) -> Logs:
    """Log Σ exp over the first axes."""
    flat = logs.reshape(prod(logs.shape[:axes]), *logs.shape[axes:])
    top = flat.max(0)
    top = np.where(top > -np.inf, top, 0.0)
    with np.errstate(divide="ignore", under="ignore"):
        return np.log(np.exp(flat - top).sum(0)) + top


def _aligned(clique: Clique, table: Logs, scope: Scope) -> Logs:
    """A table with an axis for each variable of the clique, and that of the rows."""
    places = [clique.scope.index(v) for v in scope]
    order = sorted(range(len(places)), key=places.__getitem__)
    table = table.transpose([*order, len(places)])
    return table.reshape([*clique.axes(scope), table.shape[-1]])


def _onto(clique: Clique, p: Logs, scope: Scope) -> Logs:
    """The sum of a clique's table onto some of its variables, in their order; rows stay last."""
    axes = tuple(i for i, v in enumerate(clique.scope) if v not in scope)
    left = [v for v in clique.scope if v in scope]
    return p.sum(axes).transpose([*(left.index(v) for v in scope), len(left)])
