"""Products of tables over a clique, worked on in blocks: the product is never held as a whole.

Blocks stay in the processor's cache, and threads share them. An input has one axis for every
variable of the clique, of length 1 where it does not depend on it.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import inf, prod

import numpy as np
from jaxtyping import Float

from undirected.inference.networks.clock import OutOfTime, check_time

Table = Float[np.ndarray, "*states"]
Index = tuple[int, ...]
Combine = Callable[[Table, Table], Table]

BLOCK = 2**17
"""Entries of a block."""
FUSED = 2**22
"""Entries of a product of inputs that is made beforehand."""
THREADS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def multiplied(inputs: Sequence[Table], combine: Combine) -> Table:
    """The product of all inputs, which has length 1 where none depends on a variable."""
    return reduce(combine, inputs)


def fused(inputs: Sequence[Table], shape: tuple[int, ...], combine: Combine) -> list[Table]:
    """Fewer inputs of the same product: small ones are multiplied with each other beforehand."""
    most = min(prod(shape) // 8, FUSED)
    alike: dict[tuple[int, ...], Table] = {}
    for x in inputs:
        alike[x.shape] = combine(alike[x.shape], x) if x.shape in alike else x
    left = sorted(alike.values(), key=lambda x: x.size)
    while len(left) > 1:
        union = [
            prod(max(a, b) for a, b in zip(left[0].shape, x.shape, strict=True)) for x in left[1:]
        ]
        best = min(range(len(union)), key=union.__getitem__)
        if union[best] > max(most, left[best + 1].size):
            break
        joined = combine(left[0], left.pop(best + 1))
        left = sorted([*left[1:], joined], key=lambda x: x.size)
    return left


@dataclass
class Blocks:
    """A clique in blocks: some axes behind the first ones are split into single states.

    Args:
        clique: the shape of the whole.
        first: axes that are never split.
        deadline: when to give up, by `time.monotonic`.
    """

    clique: tuple[int, ...]
    first: int
    deadline: float = inf

    def __post_init__(self) -> None:
        self.stop, size = self.first, prod(self.clique)
        while self.stop < len(self.clique) and size > BLOCK:
            size //= self.clique[self.stop]
            self.stop += 1
        split = self.clique[self.first : self.stop]
        self.indices: list[Index] = list(product(*(range(k) for k in split)))
        self.shape = self.clique[: self.first] + self.clique[self.stop :]
        self.first_size = prod(self.clique[: self.first])
        self.given_up = False

    def at(self, x: Table, index: Index) -> Table:
        """The part of an input that belongs to a block: a view without the axes that are split."""
        own = tuple([i if k > 1 else 0 for i, k in zip(index, x.shape[self.first :], strict=False)])
        return x[(slice(None),) * self.first + own] if own else x

    def within(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the part of a table that belongs to a block."""
        return shape[: self.first] + shape[self.stop :]

    def each(self, work: Callable[[Index], None]) -> None:
        """Do the work for all blocks, by as many threads as there are cores."""

        def some(indices: list[Index]) -> None:
            for index in self._watched(indices):
                work(index)

        self._in_threads(some)

    def each_summing(
        self, work: Callable[[Index, list[Table]], None], shapes: Sequence[tuple[int, ...]]
    ) -> list[Table]:
        """Do the work for all blocks; every thread adds to sums of its own."""

        def some(indices: list[Index]) -> list[Table]:
            sums = [np.zeros(shape) for shape in shapes]
            for index in self._watched(indices):
                work(index, sums)
            return sums

        first, *others = self._in_threads(some)
        for other in others:
            for total, own in zip(first, other, strict=True):
                total += own
        return first

    def _watched(self, indices: list[Index]) -> Iterator[Index]:
        for i, index in enumerate(indices):
            if i % 8 == 0:
                check_time(self.deadline)
            if self.given_up:
                raise OutOfTime
            yield index

    def _in_threads(self, work: Callable[[list[Index]], object]) -> list:
        """Results of the work on as many parts as there are threads.

        Threads take over NumPy's error state, which is a context variable.
        """
        parts = min(THREADS, len(self.indices))
        if parts < 2:
            return [work(self.indices)]
        with ThreadPoolExecutor(parts) as pool:
            step = -(-len(self.indices) // parts)
            some = [self.indices[i : i + step] for i in range(0, len(self.indices), step)]
            try:
                started = [pool.submit(copy_context().run, work, part) for part in some]
            except RuntimeError:  # the system has no room for threads
                return [work(self.indices)]
            try:
                return [one.result() for one in started]
            except BaseException:  # Ctrl-C too: the other threads need not finish
                self.given_up = True
                raise
