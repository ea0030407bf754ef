"""The command line: demo, fit, sample, query, evaluate, reproduce, report and data.

This module and `app` import nothing heavy, so that `--help` answers at once; each command imports
its work when it runs.
"""

import gc
import os
import sys
from contextlib import suppress
from pathlib import Path

INTERRUPTED = 130
"""What Typer makes of Ctrl-C."""
RARELY = 100_000
"""New objects after which Python looks for garbage. It looks through a million objects that imports
make and that stay: as often as by default, that takes a twentieth of a small fit."""
MOST_BYTES = 2**29
"""Compiled programs that are kept: some hundred fits."""


def main() -> None:
    """Run the command line.

    The exit code is 0 for success, 1 for a failure, 2 for wrong usage and 130 after Ctrl-C.
    """
    gc.set_threshold(RARELY)
    from undirected.cli.app import app
    from undirected.cli.console import Interrupted, complain

    keep_compiled_programs()
    try:
        app(prog_name="undirected")
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            complain("interrupted")
        raise
    except Interrupted as stop:
        complain(str(stop))
        sys.exit(INTERRUPTED)
    except (ValueError, OSError, ImportError, MemoryError, OverflowError) as error:
        complain(str(error) or type(error).__name__)
        sys.exit(1)
    except RuntimeError as error:  # JAX says so where memory does not suffice
        told = str(error).lower()
        if "resource_exhausted" not in told and "out of memory" not in told:
            raise
        complain("out of memory; ask for fewer samples, chains or hidden units")
        sys.exit(1)


def keep_compiled_programs() -> None:
    """Let JAX keep what it compiles in the user's cache; its own variables overrule this.

    Programs are kept apart by processor, because one that was compiled for another may not run.
    XLA warns of harmless differences whenever it loads one, so its messages are turned off. JAX's
    own bound of the size needs another package, and reads the whole folder at each program.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = cache / "undirected" / "compiled"
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        remove_unused(place, MOST_BYTES)
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(place / _processor())
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def remove_unused(folder: Path, most: int) -> None:
    """Remove files two levels down, those not used for longest first, until `most` bytes are left.

    Another process may do the same: what is gone is gone.
    """
    found = []
    for path in folder.glob("*/*"):
        with suppress(OSError):
            told = path.stat()
            found.append((max(told.st_atime, told.st_mtime), told.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= most:
            return
        with suppress(OSError):
            path.unlink(missing_ok=True)
        total -= size


def _processor() -> str:
    """A short name of this machine's instruction set."""
    import hashlib
    import platform

    told = Path("/proc/cpuinfo")
    words = [platform.machine(), platform.processor()]
    if told.is_file():
        lines = told.read_text(errors="replace").splitlines()
        words += sorted({line for line in lines if line.startswith(("flags", "Features", "model"))})
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:12]
