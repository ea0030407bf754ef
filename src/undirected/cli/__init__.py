"""The command line: demo, fit, sample, query, evaluate, reproduce, report and data.

This module and `app` import nothing heavy, so that `--help` answers at once; each command imports
its work when it runs.
"""

import os
import sys
from pathlib import Path


def main() -> None:
    """Run the command line: exit code 0 for success, 1 for a failure, 2 for wrong usage."""
    from undirected.cli.app import app
    from undirected.cli.console import complain

    _keep_compiled_programs()
    try:
        app(prog_name="undirected")
    except KeyboardInterrupt:
        complain("interrupted")
        sys.exit(1)
    except (ValueError, OSError, ImportError, MemoryError) as error:
        complain(str(error) or type(error).__name__)
        sys.exit(1)


def _keep_compiled_programs() -> None:
    """Let JAX keep what it compiles in the user's cache; its own variables overrule this."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache / "undirected" / "compiled"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
