"""The commands on saved networks: columns by names and words, against sums in NumPy."""

import csv
import json

import numpy as np
import pytest

import undirected as un
from tests.cli.test_cli import run  # noqa: F401

WORDS = {"sky": ["clear", "grey", "dark"], (0, 1): 2, "rain": ["no", "yes"], "one": ["only"]}
RAIN_SKY = np.array([[6, 3, 1], [1, 3, 6.0]])
AT_RAIN = np.array([[1, 2], [3, 0.0]])
JOINT = np.einsum("rs,ar->sar", RAIN_SKY, AT_RAIN)
HEAD = 'rain,sky,"(0, 1)"\n'


@pytest.fixture
def folder(tmp_path):
    tables = [(("rain", "sky"), RAIN_SKY), (((0, 1), "rain"), AT_RAIN)]
    un.save(tmp_path / "m", un.markov_network(WORDS, tables))
    return tmp_path / "m"


def test_answers_are_in_words(run, folder, tmp_path):  # noqa: F811
    rows = tmp_path / "r.csv"
    rows.write_text(HEAD + "yes,,\n,dark,1\n")
    code, out, _ = run("query", folder, rows, "--json")
    told = {(a["row"], a["column"]): a["answer"] for a in json.loads(out)["answers"]}
    sky = JOINT[:, :, 1].sum(1) / JOINT[:, :, 1].sum()
    assert code == 0
    wanted = dict(zip(WORDS["sky"], sky, strict=True))
    assert told[1, "sky"] == pytest.approx(wanted, abs=1e-5)
    assert told[1, "(0, 1)"] == {"0": 1.0, "1": 0.0} and told[2, "rain"] == {"no": 1.0, "yes": 0.0}
    assert told[1, "one"]["only"] == 1.0
    best = tmp_path / "c.csv"
    assert run("query", folder, rows, "--completion", best)[0] == 0
    assert best.read_text().splitlines()[1:] == ["dark,0,yes,only", "dark,1,no,only"]


def test_samples_are_in_words_and_can_be_scored(run, folder, tmp_path):  # noqa: F811
    drawn = tmp_path / "s.csv"
    assert run("sample", folder, "--out", drawn, "--count", 400)[0] == 0
    with drawn.open() as file:
        head, *rows = csv.reader(file)
    assert head == ["sky", "(0, 1)", "rain", "one"]
    numbers = [(WORDS["sky"].index(s), int(a), WORDS["rain"].index(r)) for s, a, r, _ in rows]
    share = JOINT / JOINT.sum()
    counts = np.zeros_like(JOINT)
    np.add.at(counts, tuple(np.transpose(numbers)), 1)
    error = np.sqrt(share * (1 - share) / 400)
    assert (np.abs(counts / 400 - share) <= 5 * error).all()
    code, out, _ = run("evaluate", folder, drawn, "--json")
    wanted = np.mean([np.log(share[row]) for row in numbers])
    assert code == 0 and json.loads(out)["log_likelihood"] == pytest.approx(wanted, abs=1e-4)


def test_columns_and_refusals_are_in_words(run, folder, tmp_path):  # noqa: F811
    _, out, _ = run("describe", folder)
    assert "sky     category: clear, grey, dark" in out and "(0, 1)  binary: 0, 1" in out
    rows = tmp_path / "r.csv"
    rows.write_text("rain\nmaybe\n")
    code, _, err = run("query", folder, rows)
    assert code == 1 and "'maybe' is none of the states no, yes" in err
    rows.write_text('rain,"(0, 1)"\nyes,1\n')
    code, _, err = run("query", folder, rows)
    assert code == 1 and "((0, 1)=1, rain='yes') contradicts itself" in err


def test_words_that_look_alike_are_told_apart(run, tmp_path):  # noqa: F811
    net = un.markov_network({"a": [1, "1", 2], "1": 2, 1: 2}, {"a": [1, 2, 5]})
    un.save(tmp_path / "m", net)
    code, out, _ = run("describe", tmp_path / "m")
    assert code == 0
    assert "'a'  category: 1, '1', 2" in out and "'1'  binary: 0, 1" in out
