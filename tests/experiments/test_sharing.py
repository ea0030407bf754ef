"""Pieces of work held by one process at a time, also when holders die."""

import json
import os
import subprocess
import sys
import time

import pytest

from undirected.experiments.sharing import Claims

HOLD = """
import sys, time
from pathlib import Path
from undirected.experiments.sharing import Claims
with Claims(Path(sys.argv[1])).hold("piece") as mine:
    print(mine, flush=True)
    time.sleep(60)
"""
RACE = """
import sys, os
from pathlib import Path
from undirected.experiments.sharing import Claims
folder, done = Path(sys.argv[1]), Path(sys.argv[2])
claims = Claims(folder)
for name in map(str, range(200)):
    with claims.hold(name) as mine:
        if mine and not (done / name).exists():
            handle = os.open(done / f"{name}.at-work", os.O_CREAT | os.O_EXCL)
            (done / name).touch()
            os.close(handle)
            os.unlink(done / f"{name}.at-work")
            print(name)
"""


def start(program, *arguments):
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_piece_has_one_holder(tmp_path):
    first, second = Claims(tmp_path), Claims(tmp_path)
    with first.hold("a piece") as mine:
        assert mine and second.held_by_another("a piece") and not first.held_by_another("a piece")
        with second.hold("a piece") as too, second.hold("another") as other:
            assert not too and other
        assert second.held_by_another("a piece")
    assert not second.held_by_another("a piece")
    with second.hold("a piece") as mine:
        assert mine
    assert list(tmp_path.iterdir()) == []


def test_who_else_is_here(tmp_path):
    first, second = Claims(tmp_path), Claims(tmp_path)
    with first.hold_any() as here, second.hold_any() as there:
        assert here and there and first.shared and second.shared
    with first.hold_any():
        assert not first.shared and second.shared
    assert not second.shared


def test_an_error_frees_the_piece(tmp_path):
    first, second = Claims(tmp_path), Claims(tmp_path)
    with pytest.raises(RuntimeError), first.hold("piece"):
        raise RuntimeError
    with second.hold("piece") as mine:
        assert mine


def test_a_killed_holder_is_followed(tmp_path):
    claims = Claims(tmp_path)
    with start(HOLD, tmp_path) as holder:
        assert holder.stdout and holder.stdout.readline() == "True\n"
        with claims.hold("piece") as mine:
            assert not mine
        holder.kill()
    assert not claims.held_by_another("piece")
    with claims.hold("piece") as mine:
        assert mine


@pytest.mark.parametrize("content", ['{"host": "elsewhere", "process": 1, "id": "x"}', "", "[1]"])
def test_a_holder_elsewhere_is_gone_when_it_gives_no_sign(tmp_path, content):
    file = tmp_path / "piece.held"
    file.write_text(content)
    claims = Claims(tmp_path, patience=60)
    with claims.hold("piece") as mine:
        assert not mine
    os.utime(file, (time.time() - 100,) * 2)
    with claims.hold("piece") as mine:
        assert mine and json.loads(file.read_text())["process"] == os.getpid()


def test_a_holder_that_works_long_gives_signs(tmp_path):
    claims = Claims(tmp_path, beat=0.01)
    with claims.hold("piece"):
        file = tmp_path / "piece.held"
        os.utime(file, (0, 0))
        for _ in range(1000):
            if file.stat().st_mtime > 0:
                break
            time.sleep(0.01)
        assert file.stat().st_mtime > 0


def test_a_holder_that_was_thought_gone_leaves_its_follower_alone(tmp_path):
    slow, quick = Claims(tmp_path, beat=100), Claims(tmp_path, patience=1, beat=100)
    file = tmp_path / "piece.held"
    with slow.hold("piece"):
        file.write_text(file.read_text().replace(str(os.getpid()), "1"))  # as from elsewhere
        content = json.loads(file.read_text()) | {"host": "elsewhere"}
        file.write_text(json.dumps(content))
        os.utime(file, (0, 0))
        follower = quick.hold("piece")
        assert follower.__enter__()
    assert file.exists()
    follower.__exit__(None, None, None)
    assert not file.exists()


def test_four_processes_do_every_piece_once(tmp_path):
    claims, done = tmp_path / "claims", tmp_path / "done"
    done.mkdir()
    workers = [start(RACE, claims, done) for _ in range(4)]
    outputs = [worker.communicate()[0].split() for worker in workers]
    assert all(worker.returncode == 0 for worker in workers)
    assert sorted(name for own in outputs for name in own) == sorted(map(str, range(200)))
