"""Kill a command at random moments until it has ended, over and over: `python -m tests.cli.killed`.

Every attempt is a process of its own, forked from one that has imported the library and has not
used JAX yet, and saves its state every 0.3 s.
"""

import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

MOST_SECONDS = 8.0
"""An attempt is left alone for up to that long."""
PAUSE = 0.3
"""Seconds between two checkpoints."""


def attempt(arguments: list[str], seconds: float) -> bool:
    """Run a command and kill it after some seconds; whether it came to its end before."""
    child = os.fork()
    if child == 0:
        _become(arguments)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            if code:
                raise RuntimeError(f"{arguments} ended with {code}")
            return True
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def _become(arguments: list[str]) -> None:
    """Be the command, and nothing after it."""
    from undirected.cli import main
    from undirected.learning import checkpointing

    kept = checkpointing.Saver.__init__

    def often(self, store, every, *rest):
        kept(self, store, PAUSE, *rest)

    checkpointing.Saver.__init__ = often
    sys.argv = ["undirected", *arguments]
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
        try:
            main()
        except SystemExit as ended:
            os._exit(ended.code if isinstance(ended.code, int) else bool(ended.code))
    os._exit(0)


def run(
    command: Callable[[Path], list[str]],
    look: Callable[[Path], bytes],
    folder: Path,
    kills: int,
    seed: int,
) -> tuple[int, int]:
    """Kill `command(out)` so many times, and compare what `look` finds of all that ended.

    Returns:
        How often it was killed, and how many runs came to their end and were the same.
    """
    moments, done, ended = random.Random(seed), 0, 0
    clean = folder / "clean"
    begun = time.monotonic()
    if not attempt(command(clean), 1e6):
        raise RuntimeError("the clean run was killed")
    most = min(MOST_SECONDS, time.monotonic() - begun)
    wanted = look(clean)
    while done < kills or not ended:
        out, whole = folder / f"run-{ended}", False
        while not whole:
            left_alone = moments.uniform(0, most) if done < kills else 1e6
            whole = attempt(command(out), left_alone)
            done += not whole
        if look(out) != wanted:
            raise RuntimeError(f"{out} differs from the run that was never killed")
        ended += 1
    return done, ended
