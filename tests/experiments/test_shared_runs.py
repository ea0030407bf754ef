"""Several processes that share one experiment over a folder: each stage is done once."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from undirected.core.errors import UndirectedError
from undirected.experiments import runner
from undirected.experiments.sharing import Claims

EXPERIMENT = """
import os, time
from undirected.experiments.record import Row

TITLE = "Stages that take a while"
CONFIG = {"smoke": {"stages": 6}}
CALLS = []


def work(i, seed):
    with open(os.environ["DONE"], "a") as log:
        log.write(f"{seed}/{i} ")
    CALLS.append(i)
    if "DIES" in os.environ and len(CALLS) == 2:
        while not os.path.exists(os.environ["DIES"]):
            time.sleep(0.05)
        os.kill(os.getpid(), 9)
    time.sleep(0.15)
    return 10.0 * seed + i


def run(config, seed, context):
    first = context.stage("first", lambda: work(99, seed))
    found = context.map({f"part {i}": lambda i=i: work(i, seed) for i in range(config["stages"])})
    total = context.stage("sum", lambda: first + sum(found.values()))
    return [Row("a", "b", "c", total, better="higher")]
"""
CODE = """
import sys
import time
from pathlib import Path
from undirected import papers
from undirected.experiments import runner
papers.__path__ = [*papers.__path__, sys.argv[1]]
runner.run("shared-paper/parts", "smoke", 0, Path(sys.argv[2]), seeds=int(sys.argv[3]))
"""


@pytest.fixture
def start(tmp_path):
    """A function that starts a process with the experiment."""
    folder = tmp_path / "papers" / "shared_paper"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "parts.py").write_text(EXPERIMENT)
    source = str(Path(runner.__file__).parents[2])

    def begin(out: str, seeds: int = 1, **more: str) -> subprocess.Popen:
        command = [sys.executable, "-c", CODE, tmp_path / "papers", tmp_path / out, str(seeds)]
        log = {"PYTHONPATH": source, "DONE": str(tmp_path / f"{out}.log"), **more}
        return subprocess.Popen(command, env=os.environ | log, stderr=subprocess.PIPE, text=True)

    return begin


def finish(processes) -> None:
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors


def rows(folder: Path):
    return json.loads((folder / "shared-paper" / "parts-smoke.json").read_text())["rows"]


def times_done(log: Path) -> list[int]:
    done = log.read_text().split()
    return [done.count(one) for one in sorted(set(done))]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, 3])
def test_every_stage_is_done_once(start, tmp_path, seeds):
    finish([start("alone", seeds)])
    finish([start("together", seeds) for _ in range(3)])
    assert times_done(tmp_path / "together.log") == [1] * 7 * seeds
    assert rows(tmp_path / "together") == rows(tmp_path / "alone")
    left = [path.name for path in (tmp_path / "together" / "shared-paper").iterdir()]
    assert left == ["parts-smoke.json"]
    record = json.loads((tmp_path / "together" / "shared-paper" / left[0]).read_text())
    assert set(record["timings"]) >= {"first", "part 3", "sum"} or seeds > 1


@pytest.mark.slow
def test_what_a_killed_process_left_is_taken_over(start, tmp_path):
    """It holds one part until the others have done the rest, and then dies."""
    log, signal_to_die = tmp_path / "out.log", tmp_path / "die"
    victim = start("out", DIES=str(signal_to_die))
    while not log.exists() or len(log.read_text().split()) < 2:
        assert victim.poll() is None
        time.sleep(0.05)
    others = [start("out") for _ in range(2)]
    while len(log.read_text().split()) < 7:
        assert all(other.poll() is None for other in others)
        time.sleep(0.05)
    signal_to_die.touch()
    victim.communicate(timeout=120)
    assert victim.returncode == -signal.SIGKILL
    finish(others)
    assert sorted(times_done(log)) == [1] * 6 + [2]
    finish([start("alone")])
    assert rows(tmp_path / "out") == rows(tmp_path / "alone")


def test_a_fresh_start_does_not_take_work_from_others(toy, tmp_path):
    found = {}

    def on_event(event):
        if event.kind == "stage" and not found:
            with pytest.raises(UndirectedError, match="leave --fresh out to share its work"):
                runner.run("toy-paper/table1", "smoke", 0, tmp_path, resume=False)
            found["refused"] = True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Claims, "shared", property(lambda self: "refused" not in found))
        runner.run("toy-paper/table1", "smoke", 0, tmp_path, on_event=on_event)
    assert found == {"refused": True}
