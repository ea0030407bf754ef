"""Interleaving, agreement, failures and memory, with contestants written for the test."""

import json
import os
import sys
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.harness import OURS, Case, Entry

from benchmarks import __main__ as program
from benchmarks import checks, counters, environments, harness, page, parts

CONTESTANT = """
import time
import numpy as np

def right(given):
    return lambda: {"x": 2 * given["a"], "late": lambda: given["a"]}

def wrong(given):
    return lambda: {"x": 2 * given["a"] + 1}

def half(given):
    def run():
        time.sleep(0.01)
        return {"x": 2 * given["a"]}
    run.share = 0.5
    return run

def broken(given):
    print("words on standard output are no replies")
    raise ValueError("cannot do this")

def gone(given):
    import os
    os._exit(3)
"""


@pytest.fixture
def contestants(tmp_path, monkeypatch):
    (tmp_path / "fake.py").write_text(CONTESTANT)
    (tmp_path / "missing.txt").write_text("no-such-package-anywhere==0\n")
    monkeypatch.setattr(harness, "FOLDER", tmp_path)
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    return tmp_path


def entry(name: str, function: str, environment: str = OURS) -> Entry:
    return Entry(name, "fake", function, environment)


def case(*entries: Entry) -> Case:
    return Case("a case", lambda: {"a": np.arange(3.0)}, entries, checks.same(1e-6), steps=2)


@pytest.mark.slow
def test_contestants_are_timed_and_compared(contestants, tmp_path):
    one = case(
        entry(OURS, "right"),
        entry("slow", "half"),
        entry("wrong", "wrong"),
        entry("broken", "broken"),
        entry("gone", "gone"),
    )
    found = {t.name: t for t in harness.run(one, tmp_path, repeats=3, seconds=5.0)}
    assert [len(found[name].seconds) for name in (OURS, "slow")] == [3, 3]
    assert found["slow"].cost(one) > 0.01
    assert found[OURS].memory > 1e6
    assert found["wrong"].problem.startswith("the answers differ: x by 1")
    assert "cannot do this" in found["broken"].problem
    assert "ended by itself" in found["gone"].problem
    one = replace(one, goals={"slow": 1.5}, most={"slow": 1e-9})
    rows, notes = (
        make(one, list(found.values())) for make in (program.case_rows, program.case_notes)
    )
    assert {row.method for row in rows} == {OURS, "slow"}
    ratio = next(r for r in rows if r.metric == page.RATIO and r.method == "slow")
    assert ratio.ours == found["slow"].cost(one) / found[OURS].cost(one)
    assert sum("gave no result" in note for note in notes) == 3
    assert any("goal 1.5: reached" in note for note in notes)
    assert any("goal 1e-09: not reached" in note for note in notes)
    assert not any("nothing that makes them" in note for note in notes)
    bound = replace(one, goals={"slow": 1e9}, floor=OURS)
    notes = program.case_notes(bound, list(found.values()))
    assert any("nothing that makes them so is 1e+09 times as fast" in note for note in notes)


def test_a_slow_contestant_sits_out(contestants, tmp_path):
    found = harness.run(case(entry(OURS, "right"), entry("slow", "half")), tmp_path, 4, 0.015)
    assert [len(t.seconds) for t in found] == [4, 1]


@pytest.mark.slow
def test_a_peer_that_does_not_install_is_reported(contestants, tmp_path, monkeypatch):
    """The environment is this one, without an index to install from."""

    def bare(home, **_):
        (home / "bin").mkdir(parents=True)
        (home / "bin" / "python").symlink_to(sys.executable)

    monkeypatch.setattr(environments.venv, "create", bare)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    found = harness.run(case(entry(OURS, "right"), entry("p", "right", "missing")), tmp_path, 1, 1)
    assert not found[0].problem
    assert "does not install" in found[1].problem


def test_checks_tell_agreement_from_difference():
    rng = np.random.default_rng(0)
    a, b, c = (rng.random((400, 5)) < p for p in (0.3, 0.3, 0.5))
    assert not checks.same_moments({}, {"samples": a}, {"samples": b})
    assert "standard errors" in checks.same_moments({}, {"samples": a}, {"samples": c})
    ours = {"value": np.asarray(1.0), "error": np.asarray(0.1)}
    assert not checks.within_error({}, ours, {"value": np.asarray(1.3)})
    assert checks.within_error({}, ours, {"value": np.asarray(2.3)})
    states = {"s": np.eye(10)}
    assert not checks.mostly_same(0.2)({}, states, {"s": np.zeros((2, 10))})
    assert checks.mostly_same(0.05)({}, states, {"s": np.zeros((2, 10))})
    data = (rng.random((200, 6)) < 0.5).astype(float)
    model = {"w": np.zeros((6, 2)), "b": np.zeros(6), "c": np.zeros(2)}
    assert not checks.same_reconstruction({"data": data}, model, model)
    assert checks.same_reconstruction({"data": data}, model, {**model, "b": np.full(6, 3.0)})


def test_page_and_documentation(tmp_path):
    rows = [
        {"case": "c", "method": m, "metric": k, "ours": v, "stderr": None, "n": 3, "paper": None,
         "better": "lower"}
        for m, v in (("ours", 1.0), ("<peer>", 20.0)) for k in (page.TIME, page.RATIO)
    ]  # fmt: skip
    record = {
        "experiment": "benchmarks/cpu", "profile": "quick", "config": {}, "seed": 0,
        "device": "CPU", "versions": {"platform": "Linux"}, "seconds": 1.0, "rows": rows,
        "title": "Speed beside its peers", "notes": ["c: peer gave no result: x"],
    }  # fmt: skip
    page.write([record], tmp_path / "page.html")
    assert "data:image/svg+xml" in (tmp_path / "page.html").read_text()
    svg = page.bars(record)["c"]
    assert "&lt;peer&gt;" in svg and "(20 ×)" in svg
    text = page.markdown([json.loads(json.dumps(record))])
    assert "| c" in text and "- c: peer gave no result: x" in text


def test_counters_are_read_from_the_profiler(tmp_path, monkeypatch):
    names = ["ID", "Kernel Name", *counters.READINGS]
    lines = [names, ["", "", *["%"] * len(counters.READINGS)], ["0", "on_chip", *["1,000.5"] * 99]]
    text = "\n".join(",".join(f'"{cell}"' for cell in line[: len(names)]) for line in lines)
    (tmp_path / "ncu").write_text(f"#!/bin/sh\necho ==PROF== words\ncat <<'END'\n{text}\nEND\n")
    (tmp_path / "ncu").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    rows = {row.case: row.ours for row in counters.record(counters.read()).rows}
    assert rows["issue slots in use (%)"] == 1000.5
    assert rows["instructions per message"] == pytest.approx(32 * 1000.5 / 1_027_604_480)


def test_a_profiler_that_fails_is_quoted(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="Nsight Compute"):
        counters.read()
    (tmp_path / "ncu").write_text("#!/bin/sh\necho no permission\nexit 1\n")
    (tmp_path / "ncu").chmod(0o755)
    with pytest.raises(RuntimeError, match="no permission"):
        counters.read()


@pytest.mark.slow
def test_the_parts_of_our_loops_are_timed(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["benchmarks.parts", "--quick", "--out", str(tmp_path)])
    parts.main()
    found = json.loads((tmp_path / "parts-quick.json").read_text())["rows"]
    assert {row["method"] for row in found} >= {"all", "without sums", "products alone"}
    assert all(row["ours"] > 0 for row in found)
