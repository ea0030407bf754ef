"""`undirected describe`: what it says, that it says the same without the model, and refusals."""

import json

import numpy as np
import pytest

import undirected as un
from tests.cli.test_cli import run  # noqa: F401
from tests.cli.test_mutated import seal
from tests.launch import command_without_jax
from undirected.core.graph import grid
from undirected.io.model_files import save_model
from undirected.io.model_record import describe_model
from undirected.tasks.dependences import strongest_dependences

TABLE = {
    "sky": ["clear", "grey", "dark", "grey"] * 20,
    "mm": [0.2, 1.4, 9.1, np.nan] * 20,
    "wet": ["no", "no", "yes", ""] * 20,
}


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A folder that Python saved, of a table with holes."""
    folder = tmp_path_factory.mktemp("described") / "m"
    un.fit_table(TABLE, hidden=2, label="wet").save(folder)
    return folder


def test_what_is_noted_is_what_the_model_says(run, kept):  # noqa: F811
    code, out, _ = run("describe", kept, "--json")
    told, model = json.loads(out), un.load_table(kept)
    assert code == 0
    own = strongest_dependences(model.model, model.schema, 10)
    assert [tuple(pair) for pair in told["dependences"]] == [tuple(pair) for pair in own]
    assert told["parameters"] == 5 * 2 + 5 + 2 + 1  # weights, biases, a variance


def test_edges_are_no_parameters(run, tmp_path):  # noqa: F811
    un.save(tmp_path / "m", un.Ising.create(grid(2, 2)))
    code, out, _ = run("describe", tmp_path / "m")
    assert code == 0 and "parameters: 9\n" in out  # 4 biases, 4 edges, the offset


def test_holes_scores_and_units_are_readable(run, kept):  # noqa: F811
    code, out, _ = run("describe", kept)
    assert code == 0
    assert "units: 1 binary, 3 categorical, 1 real, 2 hidden" in out
    assert "wet  binary: no, yes, 25% missing  (label)" in out
    start = "validation bits per held-out entry: "
    (score,) = [line for line in out.splitlines() if line.startswith(start)]
    assert len(score.removeprefix(start)) <= 7
    assert "--types" not in out


def test_a_folder_without_those_notes_is_described_by_its_model(run, kept, tmp_path):  # noqa: F811
    record = describe_model(kept)["extra"]
    few = {name: record[name] for name in ("names", "schema")}
    save_model(tmp_path / "few", un.load(kept), few)
    with_notes, without = (
        json.loads(run("describe", folder, "--json")[1]) for folder in (kept, tmp_path / "few")
    )
    same = ("dependences", "columns", "units", "parameters", "class")
    assert {name: with_notes[name] for name in same} == {name: without[name] for name in same}
    code, out, _ = run("describe", tmp_path / "few")
    assert code == 0 and "wet  binary: no, yes, 20 missing" in out


@pytest.mark.parametrize("pairs", [3, [["sky", "mm"]], [["sky", "mn", 1.0]], [["sky", "mm", "x"]]])
def test_dependences_of_another_kind_are_refused(run, kept, tmp_path, pairs):  # noqa: F811
    save_model(tmp_path / "m", un.load(kept), describe_model(kept)["extra"])
    record = describe_model(tmp_path / "m")
    seal(tmp_path / "m", record | {"extra": record["extra"] | {"dependences": pairs}})
    code, _, err = run("describe", tmp_path / "m")
    assert code == 1 and "notes `dependences`" in err


def test_describe_needs_no_jax(kept):
    done = command_without_jax("describe", str(kept))
    assert "tell of each other" in done.stdout
