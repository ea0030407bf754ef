"""How far long work is: functions that are told what is done, and what there is in all."""

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Told the work done and the work in all, in a unit of the caller's."""


def part_of(progress: Progress | None, index: int, parts: int) -> Progress | None:
    """What tells `progress` of one of several equal parts, which come one after the other."""
    if progress is None:
        return None
    return lambda done, total: progress(index * total + done, parts * total)
