"""The command line: demo, fit, sample, query, evaluate, reproduce, report and data.

This module and `app` import nothing heavy, so that `--help` answers at once; each command imports
its work when it runs.
"""

import sys


def main() -> None:
    """Run the command line: exit code 0 for success, 1 for a failure, 2 for wrong usage."""
    from undirected.cli.app import app
    from undirected.cli.console import complain

    try:
        app(prog_name="undirected")
    except KeyboardInterrupt:
        complain("interrupted")
        sys.exit(1)
    except (ValueError, OSError, ImportError, MemoryError) as error:
        complain(str(error) or type(error).__name__)
        sys.exit(1)
