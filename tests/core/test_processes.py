"""Several processes on 127.0.0.1 that act as one: the same fit, whoever goes on with it."""

import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.launch import launch
from tests.process_program import arrays, run
from undirected.core import agreement
from undirected.core.errors import UndirectedError
from undirected.core.processes import join_processes

STEPS = 10


def processes(count: int, folder: Path, *more: str) -> list[tuple[int, str]]:
    return launch(count, "tests.process_program", str(folder), str(STEPS), *more)


def check_same(folder: Path, expected: dict[str, np.ndarray]) -> None:
    found = np.load(folder / "result.npz")
    for name, value in expected.items():
        assert np.abs(found[name] - value).max() < 1e-6, name
        if value.shape == (8, 10):  # the chains: 8 of 10 units
            assert (found[name] == value).all()


@pytest.mark.slow
def test_a_killed_process_ends_the_run_and_any_number_of_processes_goes_on(tmp_path):
    expected = arrays(run(None, str(tmp_path / "one"), STEPS))
    assert any(value.shape == (8, 10) for value in expected.values())
    first = tmp_path / "two"
    (alive, told), (dead, _) = processes(2, first, "--die-at", "6")
    assert dead == -9 and alive == 1
    assert "another process of this run has ended" in told and "same command again" in told
    kept = sorted(path.name for path in first.glob("step-*"))
    assert kept and kept[-1] == "step-00000004.safetensors"
    for count in (1, 4):
        shutil.copytree(first, tmp_path / str(count))
    for count, folder in ((2, first), (1, tmp_path / "1"), (4, tmp_path / "4")):
        assert [code for code, _ in processes(count, folder)] == [0] * count
        check_same(folder, expected)


def test_half_an_environment_is_refused(monkeypatch):
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "127.0.0.1:1234")
    with pytest.raises(UndirectedError, match="but not JAX_NUM_PROCESSES, JAX_PROCESS_ID; set all"):
        join_processes()


def test_a_process_alone_joins_nobody(monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "1")
    assert not join_processes()


@pytest.mark.parametrize("count", [1, 3])
def test_a_second_call_says_again_whether_there_are_others(monkeypatch, count):
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(jax, "process_count", lambda: count)
    assert join_processes() == (count > 1)


def test_fewer_items_than_processes_are_found_by_every_process(monkeypatch):
    """The third of three processes has no item of its own; it asks nobody, and finds both."""
    monkeypatch.setattr(agreement, "shared", lambda mesh: True)
    monkeypatch.setattr(jax, "process_count", lambda: 3)
    monkeypatch.setattr(jax, "process_index", lambda: 2)
    items = np.array([[1.0, 2.0], [3.0, 5.0]])
    sums, first = agreement.share_out(None, items, lambda row: (row.sum(), row[:1]))
    assert (sums == [3, 8]).all()
    assert (first == [[1], [3]]).all()
