"""Running: records, resuming after a crash, overrides, and what stays when something fails."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from undirected.core.errors import UndirectedError
from undirected.experiments import provenance, registry, runner, stages
from undirected.experiments import record as records

from .schema import faults

NAME = "toy-paper/table1"


@pytest.fixture
def module(toy):
    """The module of the toy experiment, which counts the calls of its stages."""
    return sys.modules[registry.load(NAME).run.__module__]


def tree(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_run_writes_a_record(toy, tmp_path):
    out = tmp_path / "results"
    record = runner.run(NAME, "smoke", 3, out)
    path = runner.record_path(out, NAME, "smoke")
    assert path == out / "toy-paper" / "table1-smoke.json"
    assert tree(out) == ["toy-paper/table1-smoke.json", "toy-paper/table1-smoke/grid.png"]
    assert not list(path.parent.glob(".*"))
    data = json.loads(path.read_text())
    assert faults(data) == []
    assert data == record.to_dict()
    assert (data["experiment"], data["title"], data["seed"]) == (NAME, "Toy table 1", 3)
    assert data["config"]["steps"] == 2  # what the experiment does to its copy does not matter
    assert data["images"][0]["file"] == "table1-smoke/grid.png"
    assert data["notes"][0] == '{"numbers": [1, 2], "kept": null}'
    assert set(data["timings"]) == {"train / a", "score", "extra"}
    assert 0 <= sum(data["timings"].values()) <= data["seconds"]
    assert data["rows"][1]["ours"] is None


def test_a_list_of_rows_is_enough(toy, tmp_path):
    record = runner.run("toy-paper/table2", "smoke", 5, tmp_path)
    assert [row.ours for row in record.rows] == [5.0]


def test_the_same_seed_gives_the_same_rows(toy, tmp_path):
    first, again, other = (
        runner.run(NAME, "smoke", seed, tmp_path / str(i)).to_dict()["rows"]
        for i, seed in enumerate([1, 1, 2])
    )
    assert first == again
    assert first != other


def test_a_killed_run_goes_on_after_the_last_finished_stage(module, tmp_path):
    clean = runner.run(NAME, "smoke", 0, tmp_path / "clean").to_dict()
    module.CALLS.clear()
    module.FAIL["at"] = "score"
    with pytest.raises(KeyboardInterrupt):
        runner.run(NAME, "smoke", 0, tmp_path / "killed")
    assert module.CALLS == ["train", "score"]
    assert not runner.record_path(tmp_path / "killed", NAME, "smoke").exists()
    module.FAIL["at"] = None
    module.CALLS.clear()
    events = []
    resumed = runner.run(NAME, "smoke", 0, tmp_path / "killed", on_event=events.append)
    assert module.CALLS == ["score"]
    assert resumed.to_dict()["rows"] == clean["rows"]
    assert [(event.kind, event.message) for event in events] == [
        ("start", "Toy table 1"),
        ("resumed", "train / a"),
        ("progress", "half-way"),
        ("stage", "score"),
        ("stage", "extra"),
        ("done", str(runner.record_path(tmp_path / "killed", NAME, "smoke"))),
    ]
    assert {event.experiment for event in events} == {NAME}
    assert events[2].fraction == 0.5


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_a_process_killed_outright_goes_on_too(module, toy, tmp_path):
    code = (
        "from undirected import papers; from undirected.experiments import registry, runner; "
        f"papers.__path__.append({str(toy)!r}); "
        f"import sys, os, signal; m = sys.modules[registry.load({NAME!r}).run.__module__]; "
        "m.score = lambda *_: os.kill(os.getpid(), signal.SIGKILL); "
        f"runner.run({NAME!r}, 'smoke', 0, {str(tmp_path / 'out')!r})"
    )
    source = str(Path(runner.__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": source})
    assert done.returncode == -signal.SIGKILL
    resumed = runner.run(NAME, "smoke", 0, tmp_path / "out")
    assert module.CALLS == ["score"]
    clean = runner.run(NAME, "smoke", 0, tmp_path / "clean")
    assert resumed.to_dict()["rows"] == clean.to_dict()["rows"]


def test_seconds_add_up_over_attempts(module, tmp_path, monkeypatch):
    ticks = iter(range(0, 10_000, 10))
    monkeypatch.setattr("undirected.experiments.stages.time.monotonic", lambda: next(ticks))
    clean = runner.run(NAME, "smoke", 0, tmp_path / "clean")
    module.FAIL["at"] = "score"
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            runner.run(NAME, "smoke", 0, tmp_path / "killed")
    module.FAIL["at"] = None
    resumed = runner.run(NAME, "smoke", 0, tmp_path / "killed")
    assert resumed.seconds > clean.seconds
    assert resumed.timings["train / a"] == clean.timings["train / a"]
    assert resumed.timings["score"] == 4 * clean.timings["score"]  # three attempts and the last


@pytest.mark.parametrize(
    ("seed", "arguments", "calls"),
    [
        (0, {}, ["score"]),
        (1, {}, ["train", "score"]),
        (0, {"overrides": ["steps=3"]}, ["train", "score"]),
        (0, {"overrides": ["steps=2"]}, ["score"]),
        (0, {"resume": False}, ["train", "score"]),
    ],
)
def test_only_the_same_run_is_resumed(module, tmp_path, seed, arguments, calls):
    module.FAIL["at"] = "score"
    with pytest.raises(KeyboardInterrupt):
        runner.run(NAME, "smoke", 0, tmp_path)
    module.FAIL["at"] = None
    module.CALLS.clear()
    runner.run(NAME, "smoke", seed, tmp_path, **arguments)
    assert calls == module.CALLS


def test_another_version_of_the_library_does_not_resume(module, tmp_path, monkeypatch):
    module.FAIL["at"] = "score"
    with pytest.raises(KeyboardInterrupt):
        runner.run(NAME, "smoke", 0, tmp_path)
    module.FAIL["at"] = None
    module.CALLS.clear()
    newer = {**records.versions(), "undirected": "99.0"}
    monkeypatch.setattr(records, "versions", lambda: newer)
    runner.run(NAME, "smoke", 0, tmp_path)
    assert module.CALLS == ["train", "score"]


def test_a_finished_run_starts_afresh(module, tmp_path):
    runner.run(NAME, "smoke", 0, tmp_path)
    runner.run(NAME, "smoke", 0, tmp_path)
    assert module.CALLS == ["train", "score"] * 2


def test_an_unreadable_stage_is_run_again(module, tmp_path):
    module.FAIL["at"] = "score"
    with pytest.raises(KeyboardInterrupt):
        runner.run(NAME, "smoke", 0, tmp_path)
    (stored,) = tmp_path.rglob("train*.npz")
    stored.write_bytes(stored.read_bytes()[:50])
    module.FAIL["at"] = None
    module.CALLS.clear()
    runner.run(NAME, "smoke", 0, tmp_path)
    assert module.CALLS == ["train", "score"]


def test_a_full_disk_keeps_the_old_record_and_the_work(module, tmp_path, monkeypatch):
    runner.run(NAME, "smoke", 0, tmp_path)
    path = runner.record_path(tmp_path, NAME, "smoke")
    before = path.read_bytes()
    module.CALLS.clear()
    with monkeypatch.context() as patch:
        patch.setattr(records, "atomic_write", full_disk)
        with pytest.raises(OSError, match="No space left"):
            runner.run(NAME, "smoke", 1, tmp_path, resume=False)
    assert path.read_bytes() == before
    runner.run(NAME, "smoke", 1, tmp_path)
    assert module.CALLS == ["train", "score"]  # the second attempt only had to write the record
    assert path.read_bytes() != before


def full_disk(path):
    raise OSError(28, "No space left on device")


def test_overridden_records_say_so(toy, tmp_path):
    record = runner.run(NAME, "smoke", 0, tmp_path, overrides=["rate=1"])
    assert record.config["rate"] == 1.0
    assert record.notes[0] == "config of profile 'smoke' changed: rate=1"


@pytest.mark.parametrize(
    ("setting", "key", "value"),
    [
        ("steps=10", "steps", 10),
        ("steps = 10", "steps", 10),
        ("rate=1e-3", "rate", 1e-3),
        ("rate=2", "rate", 2.0),
        ("name=a=b", "name", "a=b"),
        ("name=12", "name", "12"),
        ("fast=false", "fast", False),
        ("sizes=[1,2,3]", "sizes", [1, 2, 3]),
        ("sizes=[]", "sizes", []),
        ('model={"hidden": 7, "bias": 1}', "model", {"hidden": 7, "bias": 1}),
    ],
)
def test_override(toy, setting, key, value):
    config = registry.load(NAME).config("smoke")
    changed = runner.override(config, [setting])
    assert changed == {**config, key: value}
    assert type(changed[key]) is type(value)
    assert config["steps"] == 2  # the original is left alone


def test_override_nested_keys(toy):
    config = registry.load(NAME).config("smoke")
    changed = runner.override(config, ["model.hidden=9", "model.bias=zero", "steps=1"])
    assert changed["model"] == {"hidden": 9, "bias": "zero"}
    assert changed["steps"] == 1


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("epochs=3", "cannot set 'epochs=3'; .* steps, rate, .*model.hidden"),
        ("steps", "write key=value"),
        ("=3", "write key=value"),
        ("steps.x=3", "write key=value"),
        ("model.size=3", "write key=value"),
        ("steps=ten", "cannot set steps to 'ten'; wanted a value of type int like 2"),
        ("steps=2.5", "wanted a value of type int"),
        ("steps=true", "wanted a value of type int"),
        ("rate=true", "wanted a value of type float like 0.1"),
        ("rate=NaN", "wanted a value of type float"),
        ("rate=1e999", "config is not made of JSON values"),
        ("rate=", "wanted a value of type float"),
        ("fast=1", "wanted a value of type bool like true"),
        ("sizes=3", "wanted a value of type list"),
        ('sizes=["a"]', "wanted a value of type list"),
        ('model={"size": 1}', "wanted a value of type dict"),
        ('model={"hidden": 1}', "wanted a value of type dict"),
    ],
)
def test_bad_overrides_start_nothing(module, tmp_path, setting, message):
    with pytest.raises(UndirectedError, match=message):
        runner.run(NAME, "smoke", 0, tmp_path / "out", overrides=[setting])
    assert module.CALLS == []
    assert not (tmp_path / "out").exists()


def test_unknown_experiment_profile_and_seed(toy, tmp_path):
    with pytest.raises(UndirectedError, match="did you mean toy-paper"):
        runner.run("toy-papre/table1", "smoke", 0, tmp_path / "out")
    with pytest.raises(UndirectedError, match="no profile 'quick'"):
        runner.run(NAME, "quick", 0, tmp_path / "out")
    with pytest.raises(TypeError):
        runner.run(NAME, "smoke", 0.5, tmp_path / "out")  # pyright: ignore
    assert not (tmp_path / "out").exists()


RUNS = {
    "twice": ("context.stage('a', dict); context.stage('a', dict)", "'a' occurs twice"),
    "text": ("return 'done'", "run returned str; wanted list.Row. or Outcome"),
    "none": ("pass", "run returned NoneType"),
    "object": ("context.stage('a', object)", "stage result cannot be stored"),
    "ragged": ("context.stage('a', lambda: {'x': np.array([None])})", "'x' of dtype object"),
    "lost": (
        "return Outcome(images=[{'name': 'a', 'caption': '', 'file': 'a.png'}])",
        "image 'a.png' is not in context.out",
    ),
}


@pytest.mark.parametrize("case", RUNS)
def test_mistakes_in_an_experiment_are_named(toy, tmp_path, case):
    body, message = RUNS[case]
    (toy / "toy_broken" / f"{case}.py").write_text(
        "import numpy as np\nfrom undirected.experiments.record import Outcome\n"
        f"TITLE = ''\nCONFIG = {{'smoke': {{}}}}\ndef run(config, seed, context): {body}\n"
    )
    with pytest.raises(UndirectedError, match=message):
        runner.run(f"toy-broken/{case}", "smoke", 0, tmp_path)


def test_config_must_be_json(toy, tmp_path):
    (toy / "toy_broken" / "nan.py").write_text(
        "TITLE = ''\nCONFIG = {'smoke': {'rate': 1e999}}\ndef run(config, seed, context): ..."
    )
    with pytest.raises(UndirectedError, match="config is not made of JSON values"):
        runner.run("toy-broken/nan", "smoke", 0, tmp_path)


def test_stages_give_back_what_was_stored(tmp_path):
    from undirected.experiments.stages import Context

    values = {
        "arrays": {"weights": np.arange(6.0).reshape(2, 3), "step": np.int64(4), "who": "me"},
        "list": [1, 2.5, None, "x", {"y": float("inf")}],
        "empty": {},
        "number": 3,
    }
    for attempt in range(2):
        context = Context("toy", tmp_path, lambda event: None)
        for name, value in values.items():
            got = context.stage(name, lambda v=value, n=attempt: v if n == 0 else 1 / 0)
            if name == "arrays":
                np.testing.assert_array_equal(got["weights"], value["weights"])
                assert got["step"] == 4
                assert str(got["who"]) == "me"
            else:
                assert got == value


def test_the_record_of_another_run_is_not_replaced(toy, tmp_path):
    runner.run(NAME, "smoke", 0, tmp_path)
    path = runner.record_path(tmp_path, NAME, "smoke")
    before = path.read_text()
    with pytest.raises(UndirectedError, match="another seed"):
        runner.run(NAME, "smoke", 1, tmp_path)
    assert path.read_text() == before
    runner.run(NAME, "smoke", 0, tmp_path)  # the same again
    runner.run(NAME, "smoke", 1, tmp_path, resume=False)
    assert path.read_text() != before


def values(record) -> list:
    return [row.values for row in record.rows]


def test_several_seeds_make_one_record(module, tmp_path):
    alone = [runner.run(NAME, "smoke", seed, tmp_path / str(seed)) for seed in (3, 4, 5)]
    record = runner.run(NAME, "smoke", 3, tmp_path / "all", seeds=3)
    path = runner.record_path(tmp_path / "all", NAME, "smoke")
    data = json.loads(path.read_text())
    assert faults(data) == []
    assert (data["seed"], data["seeds"]) == (3, [3, 4, 5])
    wanted = [one.rows[0].ours for one in alone]
    first = record.rows[0]
    assert first.values == tuple(wanted)
    assert first.ours == pytest.approx(np.mean(wanted))
    assert first.stderr == pytest.approx(np.std(wanted, ddof=1) / 3**0.5)
    assert first.n == 3
    assert data["rows"][1]["values"] == [None] * 3  # NaN of every seed
    assert data["images"] == [{**alone[0].images[0], "file": "table1-smoke/grid.png"}]
    assert data["seconds"] >= sum(data["timings"].values())
    assert not list(path.parent.glob(".*"))


def test_seeds_that_ended_are_not_run_again(module, tmp_path, monkeypatch):
    clean = runner.run(NAME, "smoke", 0, tmp_path / "clean", seeds=3)
    module.CALLS.clear()
    train = module.train

    def fails_at_the_last(config, seed):
        module.FAIL["at"] = "score" if seed == 2 else None
        return train(config, seed)

    monkeypatch.setattr(module, "train", fails_at_the_last)
    with pytest.raises(KeyboardInterrupt):
        runner.run(NAME, "smoke", 0, tmp_path / "killed", seeds=3)
    assert module.CALLS == ["train", "score"] * 3
    module.FAIL["at"] = None
    module.CALLS.clear()
    resumed = runner.run(NAME, "smoke", 0, tmp_path / "killed", seeds=3)
    assert module.CALLS == ["score"]  # of seed 2, whose model was kept
    assert resumed.to_dict()["rows"] == clean.to_dict()["rows"]


def test_one_more_seed_goes_on_from_those_before(module, tmp_path, monkeypatch):
    """A run of two seeds that could not write its record leaves them to a run of three."""
    with monkeypatch.context() as patch:
        patch.setattr(records, "atomic_write", full_disk)
        with pytest.raises(OSError, match="No space left"):
            runner.run(NAME, "smoke", 0, tmp_path, seeds=2)
    module.CALLS.clear()
    assert len(values(runner.run(NAME, "smoke", 0, tmp_path, seeds=3))[0]) == 3
    assert module.CALLS == ["train", "score"]


def test_other_seeds_do_not_replace_a_record(toy, tmp_path):
    runner.run(NAME, "smoke", 0, tmp_path, seeds=2)
    for count in (1, 3):
        with pytest.raises(UndirectedError, match=r"another seed \(0, 1\)"):
            runner.run(NAME, "smoke", 0, tmp_path, seeds=count)
    runner.run(NAME, "smoke", 0, tmp_path, seeds=2)
    with pytest.raises(UndirectedError, match="0 seeds are asked for"):
        runner.run(NAME, "smoke", 0, tmp_path, seeds=0)


def test_seeds_side_by_side(toy, tmp_path):
    name = "toy-seeds/together"
    module = sys.modules[registry.load(name).run.__module__]
    record = runner.run(name, "smoke", 2, tmp_path, seeds=3)
    assert module.CALLS == [(2, 3, 4)]
    assert values(record) == [(12.0, 13.0, 14.0)]
    assert set(record.timings) == {"learn"}
    module.CALLS.clear()
    one_by_one = runner.run(name, "smoke", 2, tmp_path, seeds=3, side_by_side=False)
    assert module.CALLS == [2, 3, 4]
    assert one_by_one.rows == record.rows
    module.CALLS.clear()
    runner.run(name, "smoke", 2, tmp_path / "one")
    assert module.CALLS == [2]
    module.COUNT["more"] = 1
    with pytest.raises(UndirectedError, match="one outcome for each of 3 seeds"):
        runner.run(name, "smoke", 2, tmp_path, seeds=3)


def test_runs_inside_an_experiment_are_not_counted_twice(toy, tmp_path):
    name = "toy-seeds/repeated"
    module = sys.modules[registry.load(name).run.__module__]
    record = runner.run(name, "smoke", 1, tmp_path, seeds=4)
    assert module.CALLS == [1]
    assert record.config == {"data": {"runs": 4}}
    assert values(record) == [(1.0, 1.5, 2.0, 2.5)]
    assert (record.rows[0].n, record.seeds) == (4, (1,))
    fewer = runner.run(name, "smoke", 1, tmp_path / "fewer", overrides=["data.runs=3"], seeds=2)
    assert values(fewer) == [(1.0, 1.5, 2.0)]  # no fewer than the experiment asks for


def test_a_record_names_its_source_and_data(toy, tmp_path, monkeypatch):
    file = tmp_path / "data" / "tiny.npz"
    file.parent.mkdir()
    np.savez(file, x=np.arange(3, dtype=np.uint8))
    (toy / "toy_broken" / "load.py").write_text(
        "from pathlib import Path\n"
        "from undirected.data.cache import read_archive\n"
        "TITLE = ''\nCONFIG = {'smoke': {}}\n"
        "def run(config, seed, context):\n"
        f"    read_archive(Path({str(file)!r}))\n"
        "    return []\n"
    )
    record = runner.run("toy-broken/load", "smoke", 0, tmp_path, seeds=2)
    content = b"x |u1 (3,)\0" + bytes([0, 1, 2])
    assert record.provenance == {
        "version": record.versions["undirected"],
        "source": provenance.source_hash(),
        "data": {"tiny.npz": hashlib.sha256(content).hexdigest()},
    }
    assert record.notes == ()


def test_a_record_of_several_sources_says_so(module, tmp_path, monkeypatch):
    module.FAIL["at"] = "score"
    with monkeypatch.context() as patch:
        patch.setattr(stages, "source_hash", lambda: "a" * 64)
        with pytest.raises(KeyboardInterrupt):
            runner.run(NAME, "smoke", 0, tmp_path)
    module.FAIL["at"] = None
    record = runner.run(NAME, "smoke", 0, tmp_path)
    now = provenance.source_hash()
    assert record.provenance["sources"] == sorted(["a" * 64, now])
    assert record.notes[0].startswith("Put together from parts made with 2 states of the source")
    assert faults(record.to_dict()) == []
    assert "sources" not in runner.run(NAME, "smoke", 0, tmp_path).provenance


def test_a_stage_begun_with_another_source_has_both(tmp_path, monkeypatch):
    def fail():
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(stages, "source_hash", lambda: "a" * 64)
        with pytest.raises(KeyboardInterrupt):
            stages.Context("toy", tmp_path, lambda event: None).stage("learn", fail)
    context = stages.Context("toy", tmp_path, lambda event: None)
    context.stage("learn", lambda: 1)
    assert context.origins.sources == {"a" * 64, provenance.source_hash()}


def test_a_record_names_the_machines_of_its_stages_and_not_where_it_was_put_together(
    module, tmp_path, monkeypatch
):
    """A stage of an earlier release says its source alone."""
    module.FAIL["at"] = "score"
    with monkeypatch.context() as patch:
        patch.setattr(stages, "device", lambda: "a fast one")
        patch.setattr(stages, "versions", lambda: records.versions() | {"jax": "0.99"})
        with pytest.raises(KeyboardInterrupt):
            runner.run(NAME, "smoke", 0, tmp_path)
    module.FAIL["at"] = None
    record = runner.run(NAME, "smoke", 0, tmp_path)
    assert record.device == f"a fast one and {records.device()}"
    assert record.versions["jax"] == f"0.99 and {records.versions()['jax']}"
    assert record.versions["python"] == records.versions()["python"]

    origins = stages.Origins(tmp_path / "origins.json")
    (tmp_path / "origins-earlier.json").write_text('{"stages": {"learn": ["abc"]}, "data": {}}')
    assert origins.sources == {"abc"}
    assert origins.machines == [{"device": records.device(), **records.versions()}]
