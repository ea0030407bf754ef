"""Ctrl-C in a run of several processes: noted, and acted on when all have made the same steps."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from jax.sharding import Mesh

from undirected.core.agreement import shared


@contextmanager
def held_interrupts(mesh: Mesh | None) -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was typed since; the second time it is raised at once.

    A process on its own mesh, or in another thread than the main one, is left as it is.
    """
    noted = False

    def note(number: int, frame: Any) -> None:
        nonlocal noted
        if noted:
            raise KeyboardInterrupt
        noted = True

    if not shared(mesh) or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: noted
    finally:
        signal.signal(signal.SIGINT, before)
