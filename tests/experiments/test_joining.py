"""Parts of an experiment that are run apart make one record, whatever their order."""

import json
import threading

import pytest

from undirected.core.errors import UndirectedError
from undirected.experiments import provenance, registry, runner
from undirected.experiments import record as records

NAME = "toy-seeds/parted"
pytestmark = pytest.mark.usefixtures("toy")


def run(tmp_path, *overrides, **how):
    return runner.run(NAME, "smoke", out=tmp_path, overrides=overrides, **how)


def stored(tmp_path):
    return records.read(runner.record_path(tmp_path, NAME, "smoke"))


def test_parts_in_any_order_have_the_rows_of_the_whole(tmp_path):
    whole = run(tmp_path / "whole")
    for methods in ('["c"]', '["a"]', '["b"]'):
        run(tmp_path / "parts", f"methods={methods}")
    found = stored(tmp_path / "parts")
    both = [[(row.name, row.ours) for row in one.rows] for one in (found, whole)]
    assert both[0] == both[1]
    assert len(found.rows) == 6
    assert found.config == whole.config  # so the whole is known to be there
    assert run(tmp_path / "parts").rows == whole.rows  # no other record is in the way
    (curve,) = found.curves
    assert sorted(line["name"] for line in curve["series"]) == ["a", "b", "c"]
    assert [image["caption"] for image in found.images] == ["of b"]  # one file: the last written
    assert found.timings == dict.fromkeys(
        ["learn a", "learn b", "learn c"], pytest.approx(0, abs=9)
    )


def test_a_rectangle_grows_along_either_side(tmp_path):
    one = 'cases=["x"]'
    run(tmp_path, one, 'methods=["a"]')
    run(tmp_path, one, 'methods=["b","c"]')
    run(tmp_path, 'cases=["y"]')
    found = stored(tmp_path)
    assert {row.name[:2] for row in found.rows} == {(c, m) for c in "xy" for m in "abc"}
    assert found.config["cases"] == ["x", "y"]


@pytest.mark.parametrize(
    ("then", "how"),
    [
        (['methods=["b"]', 'cases=["x"]'], {}),  # two settings differ
        (['methods=["b"]', "offset=3"], {}),
        (['methods=["a","b"]'], {}),  # "a" is there
        (['methods=["b"]'], {"seed": 1}),
        (['methods=["b"]'], {"seeds": 2}),
    ],
)
def test_what_does_not_belong_together_is_refused_before_it_is_run(tmp_path, then, how):
    run(tmp_path, 'methods=["a"]')
    before = stored(tmp_path)
    with pytest.raises(UndirectedError, match="another config or of another seed"):
        run(tmp_path, *then, **how)
    assert stored(tmp_path) == before


def test_rows_that_are_there_are_refused_and_what_was_computed_is_kept(tmp_path, monkeypatch):
    run(tmp_path, 'methods=["a"]')
    module = registry.importlib.import_module("undirected.papers.toy_seeds.parted")
    monkeypatch.setitem(module.SAME, "row", True)
    run(tmp_path / "2", 'methods=["b"]')
    path = runner.record_path(tmp_path / "2", NAME, "smoke")
    path.rename(runner.record_path(tmp_path, NAME, "smoke"))
    with pytest.raises(UndirectedError, match="record of other methods has the row x / same / v"):
        run(tmp_path, 'methods=["c"]')
    calls = len(module.CALLS)
    with pytest.raises(UndirectedError, match="choose another --out"):
        run(tmp_path, 'methods=["c"]')
    assert len(module.CALLS) == calls


def test_a_part_made_again_takes_the_place_of_its_rows_alone(tmp_path, monkeypatch):
    """Also where it was killed half-way, and of a record that does not name its source."""
    run(tmp_path)
    path = runner.record_path(tmp_path, NAME, "smoke")
    whole = json.loads(path.read_text())
    del whole["provenance"]
    for row in whole["rows"]:
        row["ours"] += 1000
    whole |= {"device": "an abacus", "seconds": 70.0, "timings": {"learn a": 10, "learn b": 20}}
    whole["curves"][0]["series"][1]["y"] = [7, 7]
    path.write_text(json.dumps(whole))
    module = registry.importlib.import_module("undirected.papers.toy_seeds.parted")
    learn = module.learn

    def killed(method):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "learn", killed)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, 'methods=["b"]', resume=False)
    monkeypatch.setattr(module, "learn", learn)
    run(tmp_path, 'methods=["b"]')
    found = stored(tmp_path)
    values = {row.name[:2]: row.ours for row in found.rows}
    assert values == {(c, m): ord(c) * ord(m) + 1000 * (m != "b") for m in "abc" for c in "xy"}
    assert [row.method for row in found.rows] == list("abcabc")
    assert found.config["methods"] == ["a", "b", "c"]
    (curve,) = found.curves
    lines = {line["name"]: line["y"] for line in curve["series"]}
    assert lines == {"a": [0, ord("a")], "b": [0, ord("b")], "c": [0, ord("c")]}
    assert found.timings == {"learn a": 10, "learn b": pytest.approx(0, abs=9)}
    assert found.seconds == pytest.approx(50, abs=9)
    assert found.device.startswith("an abacus and CPU")
    assert found.provenance["sources"] == sorted([provenance.source_hash(), "unknown"])
    assert "2 states of the source" in found.notes[0]


def test_a_part_made_afresh_keeps_other_parts(tmp_path):
    run(tmp_path, 'methods=["a","b"]')
    run(tmp_path, 'methods=["b","c"]', resume=False)
    assert [row.method for row in stored(tmp_path).rows] == list("abcabc")
    run(tmp_path, "offset=5", 'methods=["a"]', resume=False)  # of another config: it replaces all
    assert {row.method for row in stored(tmp_path).rows} == {"a"}


def test_parts_that_run_at_once_both_go_in(tmp_path):
    """Each ends while the other may be at the record; a record that came meanwhile is not lost."""
    module = registry.importlib.import_module("undirected.papers.toy_seeds.parted")
    meet = threading.Barrier(3)
    module.WAIT.append(meet.wait)
    works = [threading.Thread(target=run, args=(tmp_path, f'methods=["{m}"]')) for m in "abc"]
    for work in works:
        work.start()
    for work in works:
        work.join()
    assert {row.method for row in stored(tmp_path).rows} == {"a", "b", "c"}
    assert not list(tmp_path.glob("toy-seeds/.*"))


def test_processes_that_share_a_part_both_end_well(tmp_path):
    """The one that ends last finds its part in the record already, beside others."""
    run(tmp_path, 'methods=["a"]')
    module = registry.importlib.import_module("undirected.papers.toy_seeds.parted")
    part = 'methods=["b"]'
    before = stored(tmp_path)
    joined = run(tmp_path, part)

    def other_ends():  # a record with both comes while the second is at work
        module.WAIT.clear()
        records.write(whole, path)

    path, whole = runner.record_path(tmp_path, NAME, "smoke"), stored(tmp_path)
    records.write(before, path)
    module.WAIT.append(other_ends)
    assert run(tmp_path, part).rows == joined.rows
    assert {row.method for row in stored(tmp_path).rows} == {"a", "b"}
    with pytest.raises(UndirectedError, match="another config"):
        run(tmp_path, part)  # nobody shares it now


def test_a_foreign_record_that_came_meanwhile_is_not_replaced(tmp_path):
    module = registry.importlib.import_module("undirected.papers.toy_seeds.parted")
    module.WAIT.append(lambda: module.WAIT.clear() or run(tmp_path, "offset=5"))
    with pytest.raises(UndirectedError, match="another config"):
        run(tmp_path, 'methods=["a"]')
    assert stored(tmp_path).config["offset"] == 5
    assert any((tmp_path / "toy-seeds").glob(".parted*"))  # what was computed is kept


def test_a_record_that_cannot_be_added_to_is_named(tmp_path):
    run(tmp_path, 'methods=["a"]')
    path = runner.record_path(tmp_path, NAME, "smoke")
    path.write_text(json.dumps({"rows": 3}))
    with pytest.raises(UndirectedError, match="not a record"):
        run(tmp_path, 'methods=["b"]')
