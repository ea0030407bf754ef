"""The command line: demo, fit, sample, query, evaluate, reproduce, report and data.

This module and `app` import nothing heavy, so that `--help` answers at once; each command imports
its work when it runs.
"""

import sys


def main() -> None:
    """Run the command line: exit code 0 for success, 1 for a failure, 2 for wrong usage."""
    import click
    from typer.main import get_command

    from undirected.cli.app import app
    from undirected.cli.console import complain

    try:
        code = get_command(app).main(prog_name="undirected", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (click.exceptions.Abort, KeyboardInterrupt):
        complain("interrupted")
        sys.exit(1)
    except (ValueError, OSError, ImportError, MemoryError) as error:
        complain(str(error) or type(error).__name__)
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)
