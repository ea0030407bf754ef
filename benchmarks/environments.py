"""Virtual environments of the peers: their pins clash with ours and with each other's."""

import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "peers"


@dataclass(frozen=True)
class Environment:
    """A Python that has the packages of `peers/NAME.txt`, or the reason why there is none."""

    name: str
    python: Path | None
    problem: str = ""


def prepare(name: str, root: Path) -> Environment:
    """Make the environment once; a changed list of packages makes it again."""
    wanted = (FOLDER / f"{name}.txt").read_text()
    home, stamp = root / name, root / name / "installed.txt"
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if stamp.is_file() and stamp.read_text() == wanted and python.exists():
        return Environment(name, python)
    print(f"Installing {name} into {home}", flush=True)
    try:
        venv.create(home, clear=True, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return Environment(name, None, f"no virtual environment: {error}")
    command = [str(python), "-m", "pip", "install", "--quiet", "-r", str(FOLDER / f"{name}.txt")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return Environment(name, None, f"does not install: {done.stderr.strip()[-300:]}")
    stamp.write_text(wanted)
    return Environment(name, python)


def own() -> Environment:
    """The environment this program runs in."""
    return Environment("ours", Path(sys.executable))
