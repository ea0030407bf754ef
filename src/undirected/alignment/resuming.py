"""Learning by chains that goes on where it was stopped."""

import time
from typing import Any, TypeVar

from undirected.core.errors import UndirectedError
from undirected.learning.checkpointing import Store

EVERY = 60.0
"""Seconds from one checkpoint to the next: of a long family each is some hundred megabytes."""

T = TypeVar("T")


class Saver:
    """Checkpoints of a run now and then; without a store it does nothing.

    `identity` is what must not change between the parts of a run: data, settings and seed.
    """

    def __init__(self, store: Store | None, identity: str):
        self.store, self.meta, self.last = store, {"identity": identity}, time.monotonic()

    def resume(self, start: T) -> T:
        """The run as it was saved last, or `start` where there is none."""
        found = None if self.store is None else self.store.latest(start)
        if found is None:
            return start
        _, run, meta = found
        if meta.get("identity") != self.meta["identity"]:
            raise UndirectedError(
                "boltzmann_potts: the checkpoints are of another alignment, other settings or "
                "another seed; pass those, or an empty folder (at the command line: --fresh)"
            )
        return run

    def save(self, step: int, run: Any) -> None:
        """Keep a run, if the last one kept is old enough."""
        if self.store is not None and time.monotonic() - self.last >= EVERY:
            self.store.prepare(step, run, self.meta, ())()
            self.last = time.monotonic()
