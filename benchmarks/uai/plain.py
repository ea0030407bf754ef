"""log Z by the plainest elimination there is, to check references and the library by.

Variables go one after the other, that of the fewest neighbours first; all tables that have it are
added as logs, and it is summed out. Nothing of the library is used, and nothing is simplified.
"""

import heapq
from collections.abc import Mapping, Sequence

import numpy as np

WIDEST = 24
"""Neighbours of a variable that are too many for one table."""
Scope = tuple[int, ...]


class Tables:
    """Log tables by number, and the numbers of those of every variable."""

    def __init__(self, variables: int):
        self.scopes: dict[int, Scope] = {}
        self.logs: dict[int, np.ndarray] = {}
        self.of: list[set[int]] = [set() for _ in range(variables)]

    def add(self, scope: Scope, logs: np.ndarray) -> None:
        number = len(self.scopes)
        self.scopes[number], self.logs[number] = scope, logs
        for v in scope:
            self.of[v].add(number)

    def neighbours(self, v: int) -> set[int]:
        return {u for number in self.of[v] for u in self.scopes[number]} - {v}

    def take(self, v: int) -> list[tuple[Scope, np.ndarray]]:
        """Remove all tables of a variable, and give them."""
        numbers = sorted(self.of[v])
        for number in numbers:
            for u in self.scopes[number]:
                self.of[u].discard(number)
        return [(self.scopes[number], self.logs.pop(number)) for number in numbers]


def plain_log_z(
    sizes: Sequence[int],
    scopes: Sequence[Scope],
    tables: Sequence[np.ndarray],
    seen: Mapping[int, int],
) -> float:
    """The log of the sum over all states that agree with what is seen."""
    rest, total = Tables(len(sizes)), 0.0
    with np.errstate(divide="ignore"):
        for scope, table in zip(scopes, tables, strict=True):
            place = tuple(seen.get(v, slice(None)) for v in scope)
            logs = np.log(np.asarray(table, float)[place])
            loose = tuple(v for v in scope if v not in seen)
            if loose:
                rest.add(loose, logs)
            else:
                total += float(logs)
    heap = [(len(rest.neighbours(v)), v) for v in range(len(sizes)) if v not in seen]
    heapq.heapify(heap)
    gone: set[int] = set()
    while heap:
        count, v = heapq.heappop(heap)
        near = () if v in gone else sorted(rest.neighbours(v))
        if v in gone or len(near) != count:
            continue  # there is another entry of it, or will be
        if count > WIDEST:
            raise ValueError(f"a table of {count + 1} variables would be needed")
        message = _summed(v, tuple(near), sizes, rest.take(v))
        gone.add(v)
        if near:
            rest.add(tuple(near), message)
        else:
            total += float(message)
        for u in near:
            heapq.heappush(heap, (len(rest.neighbours(u)), u))
    return total


def _summed(
    v: int, near: Scope, sizes: Sequence[int], tables: list[tuple[Scope, np.ndarray]]
) -> np.ndarray:
    """The sum over v of the product of tables, as a log table over its neighbours."""
    scope = (v, *near)
    total = np.zeros([sizes[u] for u in scope])
    for own, logs in tables:
        order = sorted(range(len(own)), key=lambda i: scope.index(own[i]))
        shape = [sizes[u] if u in own else 1 for u in scope]
        total = total + logs.transpose(order).reshape(shape)
    top = total.max(0)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return top + np.log(np.exp(total - top).sum(0))
