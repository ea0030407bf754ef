"""How much memory this process may still take."""

from contextlib import suppress
from math import inf
from pathlib import Path

GROUP = Path("/sys/fs/cgroup")
MACHINE, PROCESS = Path("/proc/meminfo"), Path("/proc/self/statm")
MOST_UNITS = 2**26
"""States of all variables together: beyond it no array of fields would fit."""


def available_memory() -> float:
    """Bytes left by the machine, its control group and the limit of the process; inf if unknown."""
    return min(_machine(), _group(), _process())


def _machine() -> float:
    with suppress(OSError, ValueError, IndexError):
        lines = MACHINE.read_text().splitlines()
        told = [line.split()[1] for line in lines if line.startswith("MemAvailable")]
        return 1024.0 * int(told[0])
    return inf


def _group() -> float:
    with suppress(OSError, ValueError):
        most, now = ((GROUP / f"memory.{name}").read_text() for name in ("max", "current"))
        return float(int(most) - int(now))
    return inf


def _process() -> float:
    with suppress(ImportError, OSError, ValueError):
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most != resource.RLIM_INFINITY:
            return most - resource.getpagesize() * float(PROCESS.read_text().split()[0])
    return inf
