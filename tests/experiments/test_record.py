"""Records: round trips, strict JSON, messages that name the fault, no half-written files."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from undirected.core.errors import BadFile, UndirectedError
from undirected.experiments import record as records
from undirected.experiments.record import (
    Outcome,
    Record,
    Row,
    curve,
    join,
    paired_difference,
)

from .schema import faults


def make_record(**changes) -> Record:
    values = {
        "experiment": "toy/table1",
        "title": "A toy",
        "profile": "smoke",
        "config": {"epochs": 3, "rate": 0.1, "sizes": [1, 2]},
        "seed": 7,
        "device": "CPU",
        "versions": records.versions(),
        "seconds": 1.5,
        "rows": [
            Row("digits", "CD", "error", 3.5, 0.25, 10, 3.25, better="lower"),
            Row("digits", "PCD", "error", 2.0, better="lower"),
        ],
        "curves": [curve("loss", "epoch", "nats", {"CD": ([0, 1, 2], [3.0, 2.0, 1.5])})],
        "images": [{"name": "samples", "caption": "Samples", "file": "table1-smoke/samples.png"}],
        "notes": ["a note"],
        "timings": {"train": 1.0},
    }
    return Record(**{**values, **changes})


def strict(text: str):
    """Parse JSON as any other program would: NaN and Infinity are not JSON."""

    def refuse(constant):
        raise AssertionError(f"not JSON: {constant}")

    return json.loads(text, parse_constant=refuse)


def test_round_trip_through_a_file(tmp_path):
    record = make_record()
    path = tmp_path / "new" / "record.json"
    records.write(record, path)
    assert records.read(path) == record
    assert faults(strict(path.read_text(encoding="utf-8"))) == []


def test_optional_keys_are_left_out_when_empty():
    record = make_record(title="", curves=(), images=(), notes=(), timings={})
    data = record.to_dict()
    assert set(data) == {
        *("experiment", "profile", "config", "seed", "seeds"),
        *("device", "versions", "seconds", "rows"),
    }
    assert faults(data) == []
    assert Record.from_dict(data) == record


def test_schema_check_finds_faults():
    data = make_record().to_dict()
    data["rows"][0]["better"] = "bigger"
    data["rows"][1]["ours"] = "2"
    data["extra"] = 1
    del data["seed"]
    assert len(faults(data)) == 4


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_not_finite_is_written_as_null_with_a_note(tmp_path, value):
    path = tmp_path / "record.json"
    row = Row("digits", "CD", "error", value, value, 3, 1.0, better="lower")
    records.write(make_record(rows=[row]), path)
    data = strict(path.read_text())
    assert faults(data) == []
    assert data["rows"][0]["ours"] is None
    assert data["rows"][0]["stderr"] is None
    assert data["notes"] == [
        "a note",
        f"digits / CD / error: ours was {value}, written as null",
        f"digits / CD / error: stderr was {value}, written as null",
    ]
    again = records.read(path)
    assert again.rows[0].ours is None
    assert again.to_dict() == data  # reading and writing once more adds no second note


def test_a_config_that_is_not_json_writes_nothing(tmp_path):
    for value in (math.nan, object()):
        with pytest.raises((ValueError, TypeError), match="JSON"):
            records.write(make_record(config={"rate": value}), tmp_path / "record.json")
    assert list(tmp_path.iterdir()) == []


def test_curves_keep_a_gap_where_a_value_is_not_finite():
    made = curve("loss", "epoch", "nats", {"CD": (np.arange(3), jnp.array([1.0, jnp.nan, 2.0]))})
    assert made["series"] == [{"name": "CD", "x": [0.0, 1.0, 2.0], "y": [1.0, None, 2.0]}]
    assert faults(make_record(curves=[made]).to_dict()) == []


@pytest.mark.parametrize("length", [1, 2, 199, 200, 201, 1000])
def test_long_curves_are_thinned_evenly_and_keep_their_ends(length):
    x = np.arange(length)
    (line,) = curve("loss", "epoch", "nats", {"CD": (x, x**2)})["series"]
    assert len(line["x"]) == min(length, 200)
    assert (line["x"][0], line["x"][-1]) == (0, length - 1)
    np.testing.assert_array_equal(np.square(line["x"]), line["y"])
    gaps = np.diff(line["x"])
    assert length == 1 or gaps.max() - gaps.min() <= 1


def test_rows_take_scalars_of_numpy_and_jax():
    row = Row("c", "m", "e", jnp.float32(0.5), np.float64(0.25), np.int64(4), 1, better="higher")
    assert row.to_dict() == {
        **{"case": "c", "method": "m", "metric": "e", "ours": 0.5},
        **{"stderr": 0.25, "n": 4, "paper": 1.0, "better": "higher"},
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"better": "smaller"}, "better is 'smaller'; wanted 'lower' or 'higher'"),
        ({"ours": "3.5"}, "ours is '3.5'; wanted one number or None"),
        ({"ours": [1.0, 2.0]}, "wanted one number"),
        ({"ours": True}, "wanted one number"),
        ({"n": 2.5}, "n is 2.5; wanted a whole number"),
        ({"case": 3}, "case is 3; wanted text"),
        ({"values": 3.0}, "values is 3.0; wanted a list"),
        ({"values": ["a"]}, "values is 'a'; wanted one number"),
    ],
)
def test_bad_rows(changes, message):
    row = make_record().rows[0]
    with pytest.raises(UndirectedError, match=message):
        Row(**{**vars(row), **changes})


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda d: d.pop("seed"), "record: key 'seed' is missing"),
        (lambda d: d["rows"][0].pop("paper"), "row: key 'paper' is missing"),
        (lambda d: d["rows"][0].update(better="up"), "better is 'up'"),
        (lambda d: d.update(colour=1), "unknown key 'colour'; the keys are .*experiment"),
        (lambda d: d.update(rows={}), "rows is {}; wanted a list"),
        (lambda d: d.update(seed=True), "seed is True; wanted a whole number"),
        (lambda d: d.update(notes=[1]), "notes: entry is 1"),
        (lambda d: d.update(seeds=[7, 0.5]), "seeds: entry is 0.5"),
        (lambda d: d.update(seeds=[8]), "seed is 7, but the first of seeds 8"),
        (lambda d: d["versions"].update(jax=1), "versions: jax is 1"),
        (lambda d: d["curves"][0]["series"][0]["x"].pop(), "has 2 x and 3 y values"),
        (lambda d: d["curves"][0].pop("x_label"), "curve: key 'x_label' is missing"),
        (lambda d: d["images"][0].pop("file"), "image: key 'file' is missing"),
    ],
)
def test_bad_records_name_the_file_and_the_fault(tmp_path, break_it, message):
    data = make_record().to_dict()
    data = json.loads(json.dumps(data))
    break_it(data)
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(data))
    with pytest.raises(BadFile, match=message) as caught:
        records.read(path)
    assert str(path) in str(caught.value)


def test_truncated_file_and_wrong_kind(tmp_path):
    path = tmp_path / "cut.json"
    path.write_text('{"experiment": "to')
    with pytest.raises(BadFile, match=r"cut.json: not a record"):
        records.read(path)
    path.write_text("[1, 2]")
    with pytest.raises(BadFile, match=r"record is .* wanted an object"):
        records.read(path)


def test_outcome_refuses_rows_that_are_not_rows():
    with pytest.raises(UndirectedError, match="rows: entry is 3"):
        Outcome(rows=[3])  # pyright: ignore


def test_a_full_disk_leaves_the_old_record(tmp_path, monkeypatch):
    path = tmp_path / "record.json"
    records.write(make_record(), path)
    before = path.read_bytes()

    def half(self, text, encoding):
        self.write_bytes(text[: len(text) // 2].encode(encoding))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(OSError, match="No space left"):
        records.write(replace(make_record(), seed=8, seeds=(8,)), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_versions_and_device_are_words():
    found = records.versions()
    assert set(found) == {"python", "jax", "numpy", "undirected", "platform"}
    assert all(isinstance(text, str) and text for text in found.values())
    assert records.device().startswith("CPU, ")


def test_reading_a_record_imports_no_jax(tmp_path):
    path = tmp_path / "record.json"
    records.write(make_record(), path)
    code = (
        "import sys; from undirected.experiments import record, registry, runner; "
        f"record.read({str(path)!r}); registry.names(); record.versions(); "
        "heavy = {'jax', 'matplotlib', 'pandas', 'sklearn'} & set(sys.modules); "
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    source = str(Path(records.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": source}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_an_average_has_an_error_where_there_are_several():
    row = Row.average("c", "m", "e", iter([1.0, 2.0, 6.0]), 4.0, better="lower")
    assert (row.ours, row.n, row.paper) == (3.0, 3, 4.0)
    assert row.stderr == pytest.approx(7**0.5 / 3**0.5)
    assert Row.average("c", "m", "e", [5.0], better="higher") == Row(
        "c", "m", "e", 5.0, None, 1, better="higher"
    )


def test_runs_are_kept_beside_their_mean():
    row = Row.over_runs("c", "m", "e", [1.0, None, 2.0, 6.0], 4.0, better="lower")
    assert (row.ours, row.n, row.values) == (3.0, 3, (1.0, None, 2.0, 6.0))
    assert row.stderr == pytest.approx(7**0.5 / 3**0.5)
    assert Row.from_dict(json.loads(json.dumps(row.to_dict()))) == row
    assert faults(make_record(rows=[row]).to_dict()) == []
    none = Row.over_runs("c", "m", "e", [None, None], better="lower")
    assert (none.ours, none.stderr, none.n) == (None, None, None)


def runs(method: str, values) -> Row:
    return Row.over_runs("c", method, "e", values, better="lower")


def test_differences_are_paired():
    """Seeds differ by tens, the methods by about one: pairing finds what the errors hide."""
    ours, theirs = runs("a", [11.0, 22.0, 33.5]), runs("b", [10.0, 21.0, 32.0])
    found = paired_difference(ours, theirs)
    gaps = np.array([1.0, 1.0, 1.5])
    assert found == (pytest.approx(gaps.mean()), pytest.approx(gaps.std(ddof=1) / 3**0.5), 3)
    assert ours.stderr > 10 * found.stderr
    gap = paired_difference(runs("a", [1.0, None, 4.0]), runs("b", [0.0, 5.0, 5.0]))
    assert gap == (0.0, pytest.approx(1.0), 2)
    assert paired_difference(runs("a", [1.0]), runs("b", [3.0])) == (-2.0, None, 1)


def test_differences_that_cannot_be_paired_are_refused():
    plain = Row("c", "a", "e", 1.0, better="lower")
    for first, second, message in (
        (plain, runs("b", [1.0]), "it keeps no values of single runs"),
        (runs("a", [1.0]), runs("b", [1.0, 2.0]), "have 1 and 2 runs"),
        (runs("a", [1.0, None]), runs("b", [None, 1.0]), "no run in common"),
    ):
        with pytest.raises(UndirectedError, match=message):
            paired_difference(first, second)


def test_outcomes_of_seeds_are_joined():
    def outcome(value: float, extra: list[Row], note: str) -> Outcome:
        rows = [Row("c", "m", "e", value, 9.0, 10_000, 4.0, better="lower"), *extra]
        line = curve("loss", "step", "nats", {"m": ([0], [value])})
        return Outcome(rows, [line], notes=["shared", note], timings={"train": value})

    only = Row("c", "other", "e", 5.0, better="higher")
    joined = join({3: outcome(1.0, [], "one"), 4: outcome(3.0, [only], "two")})
    assert joined.rows == (
        Row("c", "m", "e", 2.0, 1.0, 2, 4.0, (1.0, 3.0), better="lower"),
        Row("c", "other", "e", 5.0, None, 1, None, (None, 5.0), better="higher"),
    )
    assert joined.curves[0]["series"][0]["y"] == [1.0]
    assert joined.notes == (
        *("shared", "Seed 3: one", "Seed 4: two"),
        "Curves and images are of seed 3.",
    )
    assert joined.timings == {"train": 4.0}
    alone = outcome(1.0, [], "one")
    assert join({3: alone}) is alone
    twice = Outcome([only, only])
    with pytest.raises(UndirectedError, match="occurs 2 times"):
        join({0: twice, 1: twice})


def test_records_of_earlier_releases_load():
    results = Path(__file__).parents[2] / "results"
    found = sorted(results.glob("*/*.json"))
    assert len(found) > 20
    for path in found:
        if path.parent.name != "benchmarks":
            record = records.read(path)
            assert record.seeds[0] == record.seed
            assert faults(json.loads(path.read_text(encoding="utf-8"))) == []
