"""Snapshots of a run: small arrays at a few of its steps, in one file."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from undirected.core.errors import BadFile
from undirected.core.files import atomic_write
from undirected.io.tensors import pack, unpack

MOST = 24
"""Snapshots of a run, however long it is."""


class Kept(NamedTuple):
    """The snapshots of a file: their numbers and steps, and each array with one more axis."""

    numbers: Int[np.ndarray, " kept"]
    steps: Int[np.ndarray, " kept"]
    arrays: dict[str, np.ndarray]


class Snapshots:
    """A few snapshots of a run, evenly spread over it, the first and the last among them.

    A run offers them with numbers 0, 1, 2, ...; up to number n every `spacing(n)`-th stays. That
    depends on the numbers alone, so a run that was stopped and goes on keeps the same ones.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.kept: dict[int, tuple[int, dict[str, np.ndarray]]] = {}

    def wants(self, number: int) -> bool:
        """Whether the snapshot of this number is one to keep."""
        return number % spacing(number) == 0

    def add(self, number: int, step: int, arrays: dict[str, np.ndarray]) -> None:
        """Keep a snapshot, and of the earlier ones those that are still wanted."""
        every = spacing(number)
        self.kept = {n: s for n, s in self.kept.items() if n < number and n % every == 0}
        self.kept[number] = step, arrays

    def save(self) -> None:
        """Write the file, whole or not at all; none where there is nothing to show."""
        if not self.kept:
            return
        taken = list(self.kept.values())
        names = sorted(taken[-1][1])
        if not names:
            return
        stacked = {name: np.stack([shown[name] for _, shown in taken]) for name in names}
        arrays = {name: np.ascontiguousarray(array) for name, array in stacked.items()}
        arrays["numbers"] = np.array(list(self.kept), np.int64)
        arrays["steps"] = np.array([step for step, _ in taken], np.int64)
        with atomic_write(self.path) as temporary:
            temporary.write_bytes(pack(arrays))

    def resume(self, step: int) -> None:
        """Go on with what the file has up to this step."""
        self.kept = {}
        if not self.path.exists():
            return
        numbers, steps, arrays = read_snapshots(self.path)
        for i, number in enumerate(numbers.tolist()):
            if steps[i] <= step:
                own = {name: array[i] for name, array in arrays.items()}
                self.kept[number] = int(steps[i]), own


def spacing(number: int) -> int:
    """The least power of two whose multiples up to `number`, with `number` itself, are few."""
    every = 1
    while number // every + 2 > MOST:
        every *= 2
    return every


def read_snapshots(path: str | Path) -> Kept:
    """The snapshots of a file, in the order of their steps."""
    path = Path(path)
    advice = "remove the file, which nothing but pictures of the run depends on"
    try:
        arrays = unpack(path.read_bytes(), str(path))
    except (OSError, BadFile) as error:
        raise BadFile(f"{path}: these snapshots cannot be read ({error}); {advice}") from error
    numbers, steps = (arrays.pop(name, np.zeros(0)) for name in ("numbers", "steps"))
    whole = all(a.ndim == 3 and len(a) == len(steps) for a in arrays.values())
    counts = all(a.ndim == 1 and a.dtype == np.int64 for a in (numbers, steps))
    if not (whole and counts and len(numbers) == len(steps) > 0 and (np.diff(steps) >= 0).all()):
        raise BadFile(f"{path}: this is not a file of snapshots; {advice}")
    return Kept(numbers, steps, arrays)
