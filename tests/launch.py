"""Programs in processes of their own: several that act as one on 127.0.0.1, and commands."""

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def launch(count: int, module: str, *arguments: str, **settings: str) -> list[tuple[int, str]]:
    """Exit code and what was said of each process; `settings` are of their environment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {
        "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
        "JAX_NUM_PROCESSES": str(count),
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        **settings,
    }
    begun = [
        subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env={**os.environ, **common, "JAX_PROCESS_ID": str(number)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    told = [process.communicate(timeout=280)[1] for process in begun]
    return [(process.returncode, text) for process, text in zip(begun, told, strict=True)]


def command_without_jax(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, which must import nothing heavy."""
    code = (
        "import sys\n"
        f"sys.argv = ['undirected', *{words!r}]\n"
        "from undirected.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('HEAVY', sorted({'jax', 'equinox', 'scipy', 'pandas'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "HEAVY []" in done.stdout
    return done
