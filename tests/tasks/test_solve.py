"""`un.solve` by names and in order, its errors, its limits, and its command."""

import json
import subprocess
import sys
import time

import numpy as np
import pytest

import undirected as un
from tests.inference.networks.random_networks import joint_logs, log_sum, marginal, random_network
from undirected.core.errors import NotFinite, UndirectedError
from undirected.inference.networks import engines
from undirected.io.uai import UaiModel, read_uai, write_uai
from undirected.tasks.solve import memory_bytes

SIZES = {"a": 2, "b": ["x", "y", "z"], "c": 2}
TABLES = {("a", "b"): [[1, 2, 3], [4, 0, 6]], ("b", "c"): [[1, 5], [2, 1], [3, 3]]}


def joint() -> np.ndarray:
    ab, bc = (np.array(table, float) for table in TABLES.values())
    return ab[:, :, None] * bc[None]


def test_all_tasks_by_name() -> None:
    net, p = un.markov_network(SIZES, TABLES), joint()
    found = un.solve(net)
    assert found.exact and found.names == ("a", "b", "c")
    wanted = p.sum((0, 2)) / p.sum()
    assert list(found.marginals["b"]) == ["x", "y", "z"]
    np.testing.assert_allclose(list(found.marginals["b"].values()), wanted, rtol=1e-6)
    assert found.log_z == pytest.approx(np.log(p.sum()), rel=1e-6)
    best = np.unravel_index(p.argmax(), p.shape)
    state = un.solve(net, "map").state
    assert state == {"a": best[0], "b": "xyz"[best[1]], "c": best[2]}
    given = un.solve(net, "mmap", maximise=["c"], given={"a": 1})
    assert given.state == {"c": int(p[1].sum(0).argmax())}
    assert given.log_value == pytest.approx(np.log(p[1].sum(0).max()), rel=1e-6)
    seen = un.solve(net, "pr", given={"b": "y"})
    assert seen.log_z == pytest.approx(np.log(p[:, 1].sum()), rel=1e-6)
    assert seen.lower == seen.upper == seen.log_z


def test_random_networks_in_file_order() -> None:
    for seed in range(40):
        network, given = random_network(seed)
        logs = joint_logs(network, given)
        if logs.max() == -np.inf:
            with pytest.raises(NotFinite, match="inconsistent"):
                un.solve(network, given=given)
            assert un.solve(network, "pr", given=given).log_z == -np.inf
            continue
        found = un.solve(network, given=given)
        assert found.exact and found.tables is not None
        for v, table in enumerate(found.tables):
            np.testing.assert_allclose(table, marginal(logs, v), atol=1e-9)
        log_z = un.solve(network, "pr", given=given).log_z
        assert log_z == pytest.approx(float(log_sum(logs)), rel=1e-9, abs=1e-9)
        best = un.solve(network, "map", given=given)
        assert logs[tuple(best.states)] == pytest.approx(logs.max(), rel=1e-9, abs=1e-9)
        assert best.log_value == pytest.approx(logs.max(), rel=1e-9, abs=1e-9)
        kept = [v for v in range(logs.ndim) if v % 2 == 0]
        some = un.solve(network, "mmap", maximise=kept, given=given)
        sums = log_sum(logs, tuple(v for v in range(logs.ndim) if v % 2))
        assert some.log_value == pytest.approx(float(sums.max()), rel=1e-9, abs=1e-9)
        own = sums[tuple(some.state[v] for v in kept)]
        assert own == pytest.approx(float(sums.max()), rel=1e-9, abs=1e-9)


def dense(n: int, seed: int = 0) -> UaiModel:
    """Every pair of n binary variables has a table: 2^n entries for any order."""
    rng = np.random.default_rng(seed)
    pairs = tuple((i, j) for i in range(n) for j in range(i))
    return UaiModel((2,) * n, pairs, tuple(np.exp(0.1 * rng.normal(size=(2, 2))) for _ in pairs))


def test_beyond_memory_is_approximate_and_says_so() -> None:
    start = time.monotonic()
    found = un.solve(dense(40), seconds=3, memory="1M")
    assert not found.exact and found.tables is not None
    assert time.monotonic() - start < 60
    for table in found.tables:
        assert table.sum() == pytest.approx(1.0) and (table >= 0).all()
    assert found.lower <= found.upper


def test_a_small_part_beside_a_large_one_is_exact() -> None:
    large = dense(40)
    lone = np.array([[1.0, 2.0], [3.0, 4.0]])
    net = UaiModel((2,) * 42, (*large.scopes, (40, 41)), (*large.tables, lone))
    found = un.solve(net, seconds=3, memory="1M")
    assert not found.exact and found.tables is not None
    np.testing.assert_allclose(found.tables[41], lone.sum(0) / lone.sum(), rtol=1e-9)


def test_an_exact_engine_that_is_late_is_given_up(monkeypatch) -> None:
    monkeypatch.setattr(engines, "RATES", dict.fromkeys(engines.RATES, 0.0))
    monkeypatch.setattr(engines, "PATIENCE", 0.0)
    monkeypatch.setattr(engines, "ALONE", 0.0)
    found = un.solve(dense(16), seconds=2)
    assert "junction tree" not in found.method and found.tables is not None


def test_what_is_wrong_is_said() -> None:
    net = un.markov_network(SIZES, TABLES)
    for wrong, match in [
        ({"task": "best"}, "one of mar, pr, map, mmap"),
        ({"given": {"d": 1}}, "no variable is called 'd'"),
        ({"given": {"b": "w"}}, "has no state 'w'"),
        ({"given": ["a"]}, "pass a dictionary"),
        ({"task": "mmap"}, "one or more"),
        ({"maximise": ["a"]}, "other tasks none"),
        ({"given": {"a": np.array([1, 0])}}, "has no state array"),
        ({"seconds": 0}, "above 0"),
        ({"seconds": "5"}, "above 0"),
        ({"memory": "much"}, "such as 500M or 4G"),
    ]:
        with pytest.raises(UndirectedError, match=match):
            un.solve(net, **wrong)
    with pytest.raises(UndirectedError, match="states come with"):
        _ = un.solve(net).state


def test_sizes_of_memory() -> None:
    told = ["4G", "500M", "1.5k", "12", 7, "2 GiB"]
    assert [memory_bytes(m) for m in told] == [2**32, 500 * 2**20, 1536, 12, 7, 2**31]


def run(*arguments: str, **more) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "undirected", "solve", *arguments]
    return subprocess.run(command, capture_output=True, text=True, **more)


def test_the_command_writes_both_formats_without_jax(tmp_path) -> None:
    model, out = tmp_path / "m.uai", tmp_path / "m.MAR"
    tables = tuple(np.array(table, float) for table in TABLES.values())
    write_uai(model, UaiModel((2, 3, 2), ((0, 1), (1, 2)), tables))
    (tmp_path / "m.evid").write_text("1 0 1\n")
    done = run(
        str(model), "--evidence", str(tmp_path / "m.evid"), "--out", str(out), "--json",
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONPROFILEIMPORTTIME": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "jax._src" not in done.stderr and "equinox" not in done.stderr
    assert json.loads(done.stdout)["exact"]
    kind, line = out.read_text().splitlines()
    words = line.split()
    assert kind == "MAR" and words[:4] == ["3", "2", "0", "1"]
    p = joint()[1].sum(1) / joint()[1].sum()
    np.testing.assert_allclose([float(word) for word in words[5:8]], p, rtol=1e-9)
    beside = json.loads((tmp_path / "m.MAR.json").read_text())
    np.testing.assert_allclose(beside["marginals"][1], p, rtol=1e-9)
    assert read_uai(model).cardinalities == (2, 3, 2)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits the address space")
def test_a_limit_of_address_space_does_not_kill(tmp_path) -> None:
    """A clique of 2^28 entries in 1.5 GB: an answer comes, by whichever engine."""
    model, out = tmp_path / "m.uai", tmp_path / "m.MAR"
    write_uai(model, dense(28))
    limit = f"ulimit -v 1500000; exec {sys.executable} -m undirected solve {model} --out {out}"
    done = subprocess.run(
        ["bash", "-c", f"{limit} --seconds 4 --memory 200M --json"],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path), "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert out.is_file() and json.loads(done.stdout)["seconds"] > 0


def test_many_variables_as_few(monkeypatch) -> None:
    """Networks of many variables lose those with few neighbours first; no answer changes."""
    methods = []
    for seed in range(40):
        network, given = random_network(seed)
        logs = joint_logs(network, given)
        kept = [v for v in range(logs.ndim) if v % 2 == 0]
        tasks = {"mar": {}, "pr": {}, "map": {}, "mmap": {"maximise": kept}}
        if logs.max() == -np.inf:
            continue
        for task, more in tasks.items():
            monkeypatch.setattr(sys.modules["undirected.tasks.solve"], "MANY", 10**9)
            few = un.solve(network, task, given=given, **more)
            monkeypatch.setattr(sys.modules["undirected.tasks.solve"], "MANY", 0)
            many = un.solve(network, task, given=given, **more)
            assert many.exact and many.method
            methods.append(many.method)
            wanted = [few.log_z or 0.0, few.log_value or 0.0, *(few.tables or ())]
            found = [many.log_z or 0.0, many.log_value or 0.0, *(many.tables or ())]
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
            if task == "map":
                assert logs[tuple(many.states)] == pytest.approx(logs.max(), rel=1e-9, abs=1e-9)
            if task == "mmap":
                sums = log_sum(logs, tuple(v for v in range(logs.ndim) if v % 2))
                best = sums[tuple(many.states[kept])]
                assert best == pytest.approx(float(sums.max()), rel=1e-9, abs=1e-9)
    assert sum("eliminated first" in method for method in methods) > 50
    assert not any(method.startswith("0 ") for method in methods)


def test_one_variable_may_be_maximised_by_its_name():
    net = un.markov_network({"rain": 2, (0, 1): 2}, [(("rain", (0, 1)), [[1, 5], [4, 3]])])
    assert un.solve(net, "mmap", maximise="rain").state == {"rain": 1}
    assert un.solve(net, "mmap", maximise=(0, 1)).state == {(0, 1): 1}
    with pytest.raises(un.UndirectedError, match="no variable is called 'wind'"):
        un.solve(net, "mmap", maximise="wind")
    with pytest.raises(un.UndirectedError, match="maximise is 5; pass a list of names"):
        un.solve(net, "mmap", maximise=5)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_no_evidence(wrong: float) -> None:
    """log Z was NaN and "exact", or minus infinity because of evidence that nobody gave."""
    layout = un.discrete(x=2)
    fields = un.FactorGraph.create(layout, [], [wrong, 0.0])
    pairs = un.FactorGraph.create(layout, [un.tables(layout, [[0, 1]], [[wrong, 0], [0, 0]])])
    for model in (fields, pairs):
        for task in ("mar", "pr", "map"):
            with pytest.raises(NotFinite, match="NaN or infinite"):
                un.solve(model, task)
        with pytest.raises(NotFinite, match="NaN or infinite"):
            un.Elimination().sample(model, 2, seed=0)


def test_a_variable_of_many_states() -> None:
    """A square of its states, of 75 GB here, was made to say which one evidence holds."""
    weights = np.arange(1, 100_001.0)
    net = un.markov_network({"a": len(weights), "b": 2}, {"a": weights, "b": [1, 3]})
    found = un.solve(net)
    np.testing.assert_allclose(found.tables[0], weights / weights.sum(), rtol=1e-4)
    assert un.solve(net, "map").state == {"a": 99_999, "b": 1}
    assert un.query(net, given={"a": 7})["b"][1] == pytest.approx(0.75, abs=1e-6)


def test_names_that_are_numbers_of_numpy():
    """They compare with tuples entry by entry, which has no truth."""
    a, b = np.int64(0), np.float64(1)
    network = un.markov_network({a: 2, b: 2}, {(a, b): [[3, 1], [1, 3]], (b,): [1, 2]})
    assert un.solve(network, task="map").state == {0: 1, 1.0: 1}
    assert un.solve(network, given={b: 0}).marginals[0][0] == pytest.approx(0.75)


@pytest.mark.parametrize("seed", ["3", 1.5, -1, True])
def test_what_is_no_seed(seed):
    with pytest.raises(UndirectedError, match=f"solve: seed is {seed!r}; pass a whole number"):
        un.solve(un.markov_network([2], {0: [1, 2]}), seed=seed)


def test_a_file_of_more_states_than_fit(tmp_path):
    path = tmp_path / "huge.uai"
    path.write_text("MARKOV\n1\n99999999999\n0\n")
    with pytest.raises(UndirectedError, match="99,999,999,999 states together; at most"):
        un.solve(path)
