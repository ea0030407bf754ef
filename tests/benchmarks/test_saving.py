"""Records that are renewed in part."""

from pathlib import Path

import pytest
from benchmarks.__main__ import check_device
from benchmarks.saving import make_record, others, save

from benchmarks import scaling
from undirected.experiments.record import Row, device


def row(case: str, method: str, value: float) -> Row:
    return Row(case, method, "seconds", value, better="lower")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = [row("a", "ours", 1.0), row("a", "peer", 2.0), row("a: b", "ours", 3.0)]
    notes = ["a: slow.", "a: b: fast.", "Growth with rows: 1.00.", "2 of 3 reached."]
    where = tmp_path / "x-full.json"
    save(make_record("x", "full", {}, 10.0, rows, "X", notes), where)
    return where


def test_other_cases_stay_with_their_notes(file):
    kept = others(file, ["a"])
    assert [(r.case, r.method) for r in kept.rows] == [("a: b", "ours")]
    assert kept.notes == ["a: b: fast."]
    assert kept.seconds == 10.0
    assert not others(file, ["a", "a: b"]).rows


def test_other_methods_of_a_case_stay(file):
    kept = others(file, ["a"], ["ours"])
    assert [(r.case, r.method) for r in kept.rows] == [("a", "peer"), ("a: b", "ours")]
    assert len(kept.notes) == 4


def test_without_a_record_nothing_stays(tmp_path):
    assert others(tmp_path / "none.json", ["a"]) == ([], [], 0.0)
    assert scaling.measured(tmp_path / "none.json") == ([], [])


def test_growth_is_read_from_a_record(file):
    assert scaling.measured(file) == ([], ["Growth with rows: 1.00."])


def test_cases_of_another_machine_are_not_joined(file):
    check_device(file, "a")
    file.write_text(file.read_text().replace(device(), "CPU, 64 cores, m68k"))
    check_device(file, "")  # a whole run replaces the record
    with pytest.raises(SystemExit, match=r"measured on CPU, 64 cores, m68k.*pass another --out"):
        check_device(file, "a")
