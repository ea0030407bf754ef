"""`kill -9` at random moments: what is given again ends with the same bits as if never stopped.

`UNDIRECTED_KILLS=100 make slow ARGS="-k killed"` kills a hundred times instead of a few.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cli import killed

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("UNDIRECTED_KILLS", "6"))
FIT = """
from pathlib import Path
from tests.cli.killed import run
import undirected.cli.train, undirected.tasks.train_table  # before the processes fork
folder = Path({folder!r})
options = "--model rbm --hidden 16 --epochs 40 --batch 20 --method pcd --seed 0".split()
command = lambda out: ["fit", str(folder / "t.csv"), "--out", str(out), *options]
print(*run(command, lambda out: (out / "model.safetensors").read_bytes(), folder, {kills}, 0))
"""
REPRODUCE = """
import json
from pathlib import Path
from tests.cli.killed import run
import undirected.papers.tempered.two_modes  # before the processes fork
folder = Path({folder!r})
command = lambda out: ["reproduce", "tempered/two-modes", "--profile", "smoke", "--out", str(out)]
def look(out):
    record = json.loads((out / "tempered" / "two-modes-smoke.json").read_text())
    return json.dumps([row for row in record["rows"] if "second" not in row["metric"]]).encode()
print(*run(command, look, folder, {kills}, 0))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
@pytest.mark.parametrize(("code", "kills"), [(FIT, KILLS), (REPRODUCE, KILLS // 2)])
def test_a_command_killed_at_random_moments_goes_on_to_the_same_bits(code, kills, tmp_path):
    """Moments of seed 0."""
    rows = np.random.default_rng(0).integers(0, 2, (400, 12))
    np.savetxt(tmp_path / "t.csv", rows, "%d", delimiter=",")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "programs"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    command = [sys.executable, "-c", code.format(folder=str(tmp_path), kills=kills)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-2000:]
    killed, same = map(int, ended.stdout.split())
    assert killed >= kills and same >= 1


@pytest.mark.parametrize("forgets", [False, True])
def test_a_run_that_differs_after_a_kill_is_found(forgets, tmp_path, monkeypatch):
    """A command that is killed twice and then ends, with or without its work of before."""
    tries = {}

    def attempt(arguments, seconds):
        (out,) = arguments
        tries[out] = tries.get(out, 0) + 1
        if seconds < 1e6 and tries[out] < 3:
            return False
        Path(out).write_text("other" if forgets and tries[out] > 1 else "same")
        return True

    monkeypatch.setattr(killed, "attempt", attempt)
    if forgets:
        with pytest.raises(RuntimeError, match="differs from the run that was never killed"):
            killed.run(lambda out: [str(out)], Path.read_bytes, tmp_path, 4, 0)
    else:
        assert killed.run(lambda out: [str(out)], Path.read_bytes, tmp_path, 4, 0) == (4, 2)
