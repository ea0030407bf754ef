"""How far long work is: functions that are told what is done, and what there is in all."""

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Told the work done and the work in all, in a unit of the caller's."""


def shares(progress: Progress | None, *sizes: int) -> list[Progress | None]:
    """One function for each part of a work, told of its own share; together they tell of all.

    Parts come one after the other, and `sizes` say how long each takes beside the others.
    """
    if progress is None:
        return [None] * len(sizes)

    def share(before: int, size: int) -> Progress:
        return lambda done, total: progress(before + size * done // max(total, 1), sum(sizes))

    return [share(sum(sizes[:i]), size) for i, size in enumerate(sizes)]


def part_of(progress: Progress | None, index: int, parts: int) -> Progress | None:
    """What tells `progress` of one of several equal parts, which come one after the other."""
    if progress is None:
        return None
    return lambda done, total: progress(index * total + done, parts * total)
