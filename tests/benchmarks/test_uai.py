"""Scores of UAI answers, from numbers worked out by hand."""

import tarfile
from math import log, sqrt

import numpy as np
import pytest
from benchmarks.uai import page, score
from benchmarks.uai.run import ARCHIVE, Kept, Result, problems, proofs, rows, troubles, unpack

from undirected.core.errors import DataNotFound
from undirected.io.uai import UaiModel, write_marginals, write_partition, write_state

MODEL = UaiModel((2, 3), ((0, 1), (1,)), (np.arange(6.0).reshape(2, 3), np.array([1.0, 2.0, 0.0])))


def test_marginals(tmp_path):
    truth = [np.array([1.0, 0.0]), np.array([0.2, 0.3, 0.5])]
    write_marginals(tmp_path / "a.MAR", truth)
    again = score.read_marginals(tmp_path / "a.MAR")
    assert [table.tolist() for table in again] == [table.tolist() for table in truth]
    assert score.score_marginals(truth, truth) == 100
    uniform = [np.full(2, 0.5), np.full(3, 1 / 3)]
    assert score.score_marginals(uniform, truth) == 0
    wrong = [np.array([0.0, 1.0]), truth[1]]
    assert score.hellinger(wrong, truth) == pytest.approx(0.5)
    assert score.score_marginals(wrong, truth) == 0
    half = [np.array([0.5, 0.5]), truth[1]]
    own, all_uniform = sqrt(1 - sqrt(0.5)) / 2, score.hellinger(uniform, truth)
    assert score.score_marginals(half, truth) == pytest.approx(100 * (1 - own / all_uniform))


def test_partition(tmp_path):
    write_partition(tmp_path / "a.PR", log(1000.0))
    assert score.read_partition(tmp_path / "a.PR") == pytest.approx(log(1000.0))
    assert score.trivial_log_z(MODEL, {}) == pytest.approx(log(6) + log(2.5) + log(1.0))
    assert score.trivial_log_z(MODEL, {1: 1}) == pytest.approx(log(2) + log(2.5) + log(2.0))
    assert score.score_partition(5.0, 4.0, 8.0) == 75
    assert score.score_partition(-np.inf, 4.0, 8.0) == 0


def test_states(tmp_path):
    write_state(tmp_path / "a.MAP", [1, 1])
    state = score.read_state(tmp_path / "a.MAP")
    assert score.log_value(MODEL, state) == pytest.approx(log(4 * 2))
    assert score.log_value(MODEL, np.array([1, 2])) == -np.inf
    assert score.map_gap(-102.0, -100.0) == pytest.approx(0.02)
    assert score.score_map(-100.0, -100.0) == 100
    assert score.score_map(-np.inf, -100.0) == 0


def test_rows_and_bars():
    results = [
        Result("Grids_1", "ours", "mar", 90.0, 1.0),
        Result("Grids_2", "ours", "mar", 70.0, 3.0),
        Result("DBN_1", "ours", "mar", 50.0, 2.0, trouble="late"),
    ]
    record = {"rows": [vars(row) for row in rows(results)]}
    assert page.by_family(record)["mar"] == {
        "all": {"ours": 70.0},
        "Grids": {"ours": 80.0},
        "DBN": {"ours": 50.0},
    }
    assert page.chart({"ours": 70.0, "peer": 30.0}).count("<rect") == 2


def test_means_without_the_doubtful_references():
    results = [
        Result("Grids_1", "ours", "pr", 90.0, 1.0),
        Result("relational_4", "ours", "pr", 10.0, 3.0),
    ]
    record = {"rows": [vars(row) for row in rows(results)]}
    found = page.by_family(record)["pr"]
    assert found["all"] == {"ours": 50.0}
    assert found["all but relational"] == {"ours": 90.0}


def test_peers_have_a_column_of_the_page():
    results = [
        Result("Grids_1", "ours", "mar", 90.0, 1.0),
        Result("Grids_1", "pgmpy", "mar", 40.0, 9.0),
    ]
    record = {"rows": [vars(row) for row in rows(results)]}
    assert page.contestants(record, "mar") == ["pgmpy"]
    assert page.family_lines(record, "mar")[-1] == "| Grids | 1 | 90.0 | 1.0 | 40.0 |"
    assert page.contestants(record, "map") == []


def test_results_are_kept_for_their_limits_and_their_source(tmp_path):
    file, limits = tmp_path / "results.jsonl", {"seconds": 20.0, "cores": 2, "only": ""}
    ours, peer = Result("Grids_1", "ours", "mar", 90.0, 1.0), Result("DBN_1", "pgmpy", "mar", 1, 2)
    kept = Kept(file, limits, "a")
    kept.add(ours)
    kept.add(peer)
    same = Kept(file, limits | {"only": "Grids"}, "a")
    assert same.find("ours", "mar", "Grids_1") == ours
    assert same.find("ours", "mar", "Grids_2") is None
    changed = Kept(file, limits, "b")
    assert changed.find("ours", "mar", "Grids_1") is None
    assert changed.find("pgmpy", "mar", "DBN_1") == peer
    assert Kept(file, limits | {"cores": 1}, "a").find("pgmpy", "mar", "DBN_1") is None
    assert Kept(file, limits, "a", fresh=True).find("pgmpy", "mar", "DBN_1") is None


def test_states_that_a_peer_proves():
    def one(problem, who, gap, proved=False):
        return Result(problem, who, "map", 50.0, 1.0, gap, "", proved)

    results = [
        one("Grids_1", "toulbar2", 0.0, True),
        one("Grids_2", "toulbar2", 0.0, True),
        one("Grids_3", "toulbar2", 0.2),
        one("Grids_1", "ours", 0.0),
        one("Grids_2", "ours", 0.001),
        one("Grids_3", "ours", 0.3),
    ]
    text = "toulbar2 proves its state on 2 problems; ours: as good on 1, not on Grids_2"
    assert proofs(results) == [text]
    assert proofs(results[2:]) == []


@pytest.mark.parametrize("top", ["", "uai2014/"])
def test_problems_are_found_in_the_archive(tmp_path, monkeypatch, top):
    file = tmp_path / "Grids_1.uai"
    file.write_text("MARKOV 0 0")
    with tarfile.open(tmp_path / ARCHIVE, "w:xz") as archive:
        for kind in ("MAR", "MAP"):
            archive.add(file, f"{top}{kind}/{file.name}")
    monkeypatch.setenv("UNDIRECTED_DATA", str(tmp_path))
    for _ in range(2):
        folder = unpack(tmp_path / "there")
        assert [path.name for path in problems(folder, "map", "")] == ["Grids_1.uai"]
    with pytest.raises(DataNotFound, match="no \\*.uai whose name contains 'DBN'"):
        problems(folder, "mar", "DBN")


def test_troubles_are_counted():
    def one(problem, trouble, who="pgmpy"):
        return Result(problem, who, "mar", 0.0, 1.0, trouble=trouble)

    results = [
        one("Grids_1", "late"),
        one("Grids_2", "late"),
        one("Grids_3", "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 4 TiB"),
        one("Grids_4", "ValueError: array is too big; size"),
        one("Grids_5", "ValueError: min() arg is an empty sequence"),
        one("Grids_6", "", "ours"),
    ]
    text = "mar: pgmpy: no answer to 5 problems: 2 late, 2 out of memory, 1 ValueError"
    assert troubles(results) == [text]
