"""Snapshots of a run: which are kept, and the file they are in."""

import errno
import os

import numpy as np
import pytest

from undirected.core.errors import BadFile
from undirected.io import snapshots
from undirected.io.snapshots import MOST, Snapshots, read_snapshots


def content(number):
    filters = 0.5 * number + np.arange(6.0).reshape(3, 2).T  # in the memory order of a transpose
    return {"samples": np.full((2, 3), number % 251, np.uint8), "filters": filters}


def run(path, start, stop, last):
    """Offer the snapshots of a run from number `start` to `stop`, whose step is 10 a number."""
    kept = Snapshots(path)
    kept.resume(10 * start)
    for number in range(start, stop + 1):
        if kept.wants(number) or number == last:
            kept.add(number, 10 * number, content(number))
    kept.save()
    return kept


@pytest.mark.parametrize("last", [0, 1, 22, 23, 24, 47, 48, 100, 1000, 4097])
def test_few_are_kept_evenly_from_the_first_to_the_last(tmp_path, last):
    run(tmp_path / "s", 0, last, last)
    steps = read_snapshots(tmp_path / "s").steps
    assert steps[0] == 0 and steps[-1] == 10 * last
    assert len(steps) <= MOST
    assert len(steps) >= min(last + 1, MOST // 2)
    gaps = np.diff(steps[:-1])
    assert (gaps == gaps[:1]).all()
    assert last == 0 or steps[-1] - steps[-2] <= (gaps[0] if len(gaps) else 10)


@pytest.mark.parametrize("seed", range(5))
def test_a_run_that_was_cut_and_goes_on_keeps_the_same(tmp_path, seed):
    """Cut anywhere, after a file that was written later than the run goes on from."""
    last, rng = 300, np.random.default_rng(seed)
    cuts = np.sort(rng.integers(0, last, 3))
    start = 0
    for cut in cuts:
        run(tmp_path / "cut", start, int(cut), last)
        start = max(0, int(cut) - int(rng.integers(0, 20)))
    run(tmp_path / "cut", start, last, last)
    run(tmp_path / "whole", 0, last, last)
    assert (tmp_path / "cut").read_bytes() == (tmp_path / "whole").read_bytes()


def test_a_run_that_becomes_longer_forgets_its_old_end(tmp_path):
    run(tmp_path / "cut", 0, 37, 37)  # 37 is none of every second
    run(tmp_path / "cut", 37, 60, 60)
    run(tmp_path / "whole", 0, 60, 60)
    assert (tmp_path / "cut").read_bytes() == (tmp_path / "whole").read_bytes()


def test_arrays_come_back(tmp_path):
    run(tmp_path / "s", 0, 3, 3)
    found = read_snapshots(tmp_path / "s")
    assert found.steps.tolist() == [0, 10, 20, 30]
    assert found.arrays["samples"].dtype == np.uint8
    np.testing.assert_array_equal(found.arrays["samples"][2], np.full((2, 3), 2))
    np.testing.assert_array_equal(found.arrays["filters"][3], [[1.5, 3.5, 5.5], [2.5, 4.5, 6.5]])


def test_without_arrays_there_is_no_file(tmp_path):
    kept = Snapshots(tmp_path / "s")
    kept.resume(0)
    kept.add(0, 0, {})
    kept.save()
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("broken", ["cut", "noise", "other"])
def test_a_damaged_file_is_named(tmp_path, broken):
    path = tmp_path / "s"
    run(path, 0, 3, 3)
    data = path.read_bytes()
    if broken == "cut":
        path.write_bytes(data[:-7])
    elif broken == "noise":
        path.write_bytes(b"noise")
    else:
        path.write_bytes(snapshots.pack({"steps": np.zeros(2, np.int64)}))
    with pytest.raises(BadFile, match="remove"):
        read_snapshots(path)
    with pytest.raises(BadFile, match="remove"):
        Snapshots(path).resume(5)


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    kept = run(tmp_path / "s", 0, 3, 3)
    before = (tmp_path / "s").read_bytes()

    def full(path, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    kept.add(4, 40, content(4))
    with pytest.raises(OSError, match="space") as caught:
        kept.save()
    assert caught.value.errno == errno.ENOSPC
    assert (tmp_path / "s").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["s"]
