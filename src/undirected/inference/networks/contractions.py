"""Sums over a clique as products of matrices: its inputs are multiplied into two factors first.

Where the inputs of a clique fall into two groups that share few variables, the sum over what the
clique eliminates is Σ_k L[b, l, k] R[b, k, r], with b the variables of the separator that both
groups know. BLAS does it many times faster than the product of all inputs could be written down.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import log2, prod
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from undirected.inference.networks.blocks import multiplied
from undirected.inference.networks.clock import check_time

Table = Float[np.ndarray, "*states"]

BLOCK_RATE = 6e-9
"""Seconds for an entry of a clique that is summed block by block, on one core."""
GEMM_RATE, WRITE_RATE, FACTOR_RATE, CALL = 0.15e-9, 6e-9, 20e-9, 0.5e-6
"""Seconds for an entry of a clique, of its message, of a factor, and for one product of matrices.

Measured on one core of a server with AVX2, with OpenBLAS.
"""
FACTOR_MOST = 2**27
"""Entries of a factor."""
STARTS = 12
"""Pairs of inputs, those that share least first, that groups grow from."""
CHUNK = 2**27
"""Entries between two looks at the clock."""
SAFE = 1e-300
"""Products of entries above this are not lost."""


class Split(NamedTuple):
    """Inputs of a clique in two groups, and the variables of each.

    Args:
        left: the numbers of the inputs of the first group.
        right: those of the second.
        knows: the variables of the first group, and those of the second.
    """

    left: tuple[int, ...]
    right: tuple[int, ...]
    knows: tuple[frozenset[int], frozenset[int]]

    def separator(self, scope: Sequence[int]) -> tuple[int, ...]:
        """The variables of a separator sorted: those of both groups, of the left, of the right."""
        left, right = self.knows
        return tuple(sorted(scope, key=lambda v: (v not in right) + 2 * (v not in left)))

    def largest(self, sizes: Mapping[int, int]) -> int:
        """The entries of the larger factor."""
        return max(_entries(sizes, own) for own in self.knows)

    def seconds(self, sizes: Mapping[int, int], separator: Iterable[int]) -> float:
        """What the sum should take on one core."""
        left, right = self.knows
        kept = frozenset(separator)
        factors = FACTOR_RATE * (_entries(sizes, left) + _entries(sizes, right))
        calls = CALL * _entries(sizes, kept & left & right)
        products = GEMM_RATE * _entries(sizes, left | right)
        return products + WRITE_RATE * _entries(sizes, kept) + factors + calls


def _entries(sizes: Mapping[int, int], variables: Iterable[int]) -> int:
    return prod([sizes[v] for v in variables])


def find_split(
    sizes: Mapping[int, int], separator: Sequence[int], inputs: Sequence[Sequence[int]]
) -> Split | None:
    """Two groups of inputs, each given by its variables; None where that is not faster.

    Two inputs start the groups; the others, large ones first, go where they add fewer entries, and
    then move to the other group as long as that pays. Of several starts the fastest is taken.

    Args:
        sizes: the number of states of each variable of the clique.
        separator: the variables that stay.
        inputs: the variables of each.
    """
    items = _largest_scopes(sizes, inputs)
    if len(items) < 2 or len(frozenset().union(*(own for own, _ in items))) < len(sizes):
        return None  # one input has all variables, or some variable is in no table
    logs = {v: log2(k) for v, k in sizes.items()}
    pairs = sorted(
        combinations(range(len(items)), 2),
        key=lambda pair: -len(items[pair[0]][0] ^ items[pair[1]][0]),
    )
    found = [_grown(logs, sizes, separator, items, *pair) for pair in pairs[:STARTS]]
    best = min(found, key=lambda split: split.seconds(sizes, separator))
    whole = BLOCK_RATE * _entries(sizes, sizes)
    fits = best.largest(sizes) <= FACTOR_MOST
    return best if fits and best.seconds(sizes, separator) < whole else None


def _largest_scopes(
    sizes: Mapping[int, int], inputs: Sequence[Sequence[int]]
) -> list[tuple[frozenset[int], tuple[int, ...]]]:
    """The inputs that are not inside another, each with the numbers of those inside it."""
    order = sorted(range(len(inputs)), key=lambda i: -_entries(sizes, inputs[i]))
    found: list[tuple[frozenset[int], tuple[int, ...]]] = []
    for i in order:
        own = frozenset(inputs[i])
        host = next((k for k, (other, _) in enumerate(found) if own <= other), None)
        if host is None:
            found.append((own, (i,)))
        else:
            found[host] = found[host][0], (*found[host][1], i)
    return found


def _grown(
    logs: Mapping[int, float],
    sizes: Mapping[int, int],
    separator: Sequence[int],
    items: Sequence[tuple[frozenset[int], tuple[int, ...]]],
    first: int,
    second: int,
) -> Split:
    """The groups that grow from two inputs."""
    groups = [[first], [second]]
    knows = [items[first][0], items[second][0]]
    weight = [sum(logs[v] for v in own) for own in knows]
    for i, (own, _) in enumerate(items):
        if i not in (first, second):
            after = [weight[g] + sum(logs[v] for v in own - knows[g]) for g in (0, 1)]
            g = 0 if 2 ** after[0] - 2 ** weight[0] < 2 ** after[1] - 2 ** weight[1] else 1
            groups[g].append(i)
            knows[g], weight[g] = knows[g] | own, after[g]
    best = _as_split(items, groups)
    seconds = best.seconds(sizes, separator)
    for i in range(len(items)):
        g = 0 if i in groups[0] else 1
        if len(groups[g]) > 1:
            trial = [[k for k in groups[g] if k != i], [*groups[1 - g], i]]
            other = _as_split(items, trial if g == 0 else trial[::-1])
            if (new := other.seconds(sizes, separator)) < seconds:
                best, seconds, groups = other, new, trial if g == 0 else trial[::-1]
    return best


def _as_split(
    items: Sequence[tuple[frozenset[int], tuple[int, ...]]], groups: Sequence[Sequence[int]]
) -> Split:
    members = [tuple(k for i in group for k in items[i][1]) for group in groups]
    knows = [frozenset().union(*(items[i][0] for i in group)) for group in groups]
    return Split(members[0], members[1], (knows[0], knows[1]))


@dataclass(frozen=True, eq=False)
class Factors:
    """The two factors of a clique's product.

    Args:
        shape: of the clique.
        gone: how many of its first axes are summed over.
        both: how many axes of the separator both factors know; they come first.
        own: how many only the left one knows; they come next.
        left: the product of the first group, with an axis for every variable of the clique.
        right: that of the second.
        deadline: when to give up, by `time.monotonic`.
    """

    shape: tuple[int, ...]
    gone: int
    both: int
    own: int
    left: Table
    right: Table
    deadline: float

    @classmethod
    def of(
        cls,
        scope: tuple[int, ...],
        shape: tuple[int, ...],
        gone: int,
        split: Split,
        inputs: Sequence[Table],
        deadline: float,
    ) -> "Factors":
        left = joined([inputs[i] for i in split.left])
        right = joined([inputs[i] for i in split.right])
        kept, (a, b) = frozenset(scope[gone:]), split.knows
        return cls(shape, gone, len(kept & a & b), len(kept - b), left, right, deadline)

    @property
    def safe(self) -> bool:
        """Whether no product of two entries can be too small for a plain number."""
        return smallest(self.left) * smallest(self.right) > SAFE

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The joint states of the separator that both know, the left alone, the right alone."""
        kept = self.shape[self.gone :]
        both, own = self.both, self.both + self.own
        return prod(kept[:both]), prod(kept[both:own]), prod(kept[own:])

    def summed(self) -> tuple[Float[np.ndarray, "b l k"], Float[np.ndarray, "b k r"]]:
        """Both factors with what only one of them knows of the eliminated variables summed out."""
        b, l, r = self.sizes
        a, z = self._alone(self.left, self.right), self._alone(self.right, self.left)
        left = self.left.sum(a, keepdims=True) if a else self.left
        right = self.right.sum(z, keepdims=True) if z else self.right
        # The product may lie in memory as its inputs did.
        left = np.ascontiguousarray(left).reshape(-1, b, l)
        right = np.ascontiguousarray(right).reshape(-1, b, r)
        return left.transpose(1, 2, 0), right.transpose(1, 0, 2)

    def _alone(self, x: Table, other: Table) -> tuple[int, ...]:
        return tuple(
            [i for i in range(self.gone) if x.shape[i] > 1 and other.shape[i] < self.shape[i]]
        )

    def message(self) -> Table:
        """The sum over the eliminated variables, over the separator."""
        left, right = self.summed()
        out = np.empty(self.sizes)
        for batch, rows in self._chunks():
            np.matmul(left[batch, rows], right[batch], out=out[batch, rows])
        return out.reshape(self.shape[self.gone :])

    def beliefs(self, weights: Table) -> tuple[Table, Table]:
        """Both factors times the sum over all else of the other factor and these weights."""
        left, right = self.summed()
        b, l, r = self.sizes
        weights = np.ascontiguousarray(weights).reshape(b, l, r)
        # The axes of the result that are next to each other in the factor stay so.
        for_left, for_right = np.empty((b, right.shape[1], l)), np.zeros(right.shape)
        for batch, rows in self._chunks():
            own = weights[batch, rows]
            np.matmul(right[batch], own.transpose(0, 2, 1), out=for_left[batch, :, rows])
            for_right[batch] += np.matmul(left[batch, rows].transpose(0, 2, 1), own)
        shared = [
            k if self.left.shape[i] > 1 and self.right.shape[i] > 1 else 1
            for i, k in enumerate(self.shape[: self.gone])
        ]
        kept, ones = self.shape[self.gone :], (1,) * (len(self.shape) - self.gone)
        both, own = self.both, self.both + self.own
        one = (*shared, *kept[:own], *ones[own:])
        two = (*shared, *kept[:both], *ones[both:own], *kept[own:])
        return (
            self.left * for_left.transpose(1, 0, 2).reshape(one),
            self.right * for_right.transpose(1, 0, 2).reshape(two),
        )

    def _chunks(self) -> Iterator[tuple[slice, slice]]:
        """Slices of the batch and of the left, none of too much work."""
        b, l, _ = self.sizes
        each = max(prod(self.shape) // max(b, 1), 1)
        step = max(CHUNK // each, 1)
        rows = max(min(l, l * CHUNK // each), 1)
        for i in range(0, b, step):
            for j in range(0, l, rows):
                check_time(self.deadline)
                yield slice(i, i + step), slice(j, j + rows)


def smallest(values: Table) -> float:
    """The smallest entry above 0 of those up to 1."""
    return float(np.min(values, where=values > 0, initial=1.0))


def joined(inputs: Sequence[Table]) -> Table:
    """The product of all inputs, small ones first."""
    left = sorted(inputs, key=lambda x: x.size)
    while len(left) > 1:
        first = left.pop(0)
        unions = [
            prod([max(a, b) for a, b in zip(first.shape, x.shape, strict=True)]) for x in left
        ]
        best = min(range(len(unions)), key=unions.__getitem__)
        left[best] = multiplied([first, left[best]], np.multiply)
        left.sort(key=lambda x: x.size)
    return left[0]
