"""Memory that is left, from files as the system writes them."""

import resource
from math import inf

import pytest

from undirected.core import memory


@pytest.fixture
def system(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "GROUP", tmp_path)
    monkeypatch.setattr(memory, "MACHINE", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "PROCESS", tmp_path / "statm")
    (tmp_path / "statm").write_text("100 1 1 1 0 1 0\n")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    return tmp_path


def test_the_tightest_limit_counts(system, monkeypatch) -> None:
    assert memory.available_memory() == inf
    (system / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    3000 kB\n")
    assert memory.available_memory() == 3000 * 1024
    (system / "memory.max").write_text("max\n")
    (system / "memory.current").write_text("5000\n")
    assert memory.available_memory() == 3000 * 1024
    (system / "memory.max").write_text("15000\n")
    assert memory.available_memory() == 10000
    limit = 100 * resource.getpagesize() + 77
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert memory.available_memory() == 77
