"""The commands as a user types them: what they write, what they print, how they fail."""

import io
import json
import sys

import numpy as np
import pytest
from rich.console import Console

from undirected.cli import console, main
from undirected.cli.console import Interrupted
from undirected.cli.papers import reproduce_paper
from undirected.tasks.train_table import Settings, steps_at_once


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Call the program; gives (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["undirected", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return call


def write_csv(path, values, names=None):
    lines = [",".join(names)] if names else []
    lines += [",".join("" if np.isnan(v) else str(int(v)) for v in row) for row in values]
    path.write_text("\n".join(lines) + "\n")


def copies(rows=400, missing=0.0, seed=0):
    """Three fair bits and three copies of them: the second half is known from the first."""
    rng = np.random.default_rng(seed)
    half = rng.integers(0, 2, (rows, 3)).astype(float)
    values = np.concatenate([half, half], 1)
    values[rng.random(values.shape) < missing] = np.nan
    return values


NAMES = ["a", "b", "c", "a2", "b2", "c2"]
QUICK = ["--epochs", 1, "--hidden", 2, "--model", "rbm", "--method", "cd"]
"""Settings of fits that only have to be: on 60 rows all of them share what is compiled."""


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A model folder, fitted once by the command itself to rows of which some entries miss."""
    folder = tmp_path_factory.mktemp("fitted")
    write_csv(folder / "table.csv", copies(600, 0.1), NAMES)
    arguments = ["fit", folder / "table.csv", "--out", folder / "model", "--image", "2x3"]
    settings = ["--hidden", 12, "--epochs", 40, "--learning-rate", 0.03, "--json"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["undirected", *map(str, [*arguments, *settings])])
        with pytest.raises(SystemExit) as stop:
            main()
    assert not stop.value.code
    return folder / "model"


def test_fit_and_query_learn_the_copies(run, fitted, tmp_path):
    asked = copies(20, seed=1)
    asked[:, 3:] = np.nan
    write_csv(tmp_path / "asked.csv", asked, NAMES)
    code, out, _ = run("query", fitted, "asked.csv", "--out", "p.csv", "--completion", "best.csv")
    assert code == 0
    assert "60 missing entries of 20 rows answered" in out
    p = np.loadtxt(tmp_path / "p.csv", delimiter=",", skiprows=1)
    best = np.loadtxt(tmp_path / "best.csv", delimiter=",", skiprows=1)
    truth = copies(20, seed=1)
    assert np.array_equal(p[:, :3], truth[:, :3])
    assert np.array_equal((p > 0.5).astype(float), truth)
    assert np.array_equal(best, truth)
    assert (tmp_path / "p.csv").read_text().splitlines()[0] == ",".join(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["mf", "gibbs", "exact"])
def test_other_query_methods_agree(run, fitted, tmp_path, method):
    asked = copies(10, seed=2)
    asked[:, 3:] = np.nan
    write_csv(tmp_path / "asked.csv", asked, NAMES)
    code, out, _ = run("query", fitted, "asked.csv", "--out", "p.npy", "--method", method, "--json")
    assert code == 0
    assert json.loads(out)["missing"] == 30
    assert np.array_equal(np.load(tmp_path / "p.npy") > 0.5, copies(10, seed=2) > 0.5)


def test_columns_are_found_by_name(run, fitted, tmp_path):
    asked = copies(5, seed=3)
    asked[:, 3:] = np.nan
    write_csv(tmp_path / "turned.csv", asked[:, ::-1], NAMES[::-1])
    assert run("query", fitted, "turned.csv", "--out", "p.npy")[0] == 0
    assert np.array_equal(np.load(tmp_path / "p.npy") > 0.5, copies(5, seed=3) > 0.5)


def test_sample_writes_rows_and_a_picture(run, fitted, tmp_path):
    code, out, _ = run(
        "sample", fitted, "--out", "s.npz", "--count", 200, "--sweeps", 300, "--png", "s.png"
    )
    assert code == 0
    assert "Wrote s.png" in out
    assert "200 samples (exact draws: a junction tree" in out
    x = np.load(tmp_path / "s.npz")["x"]
    assert x.shape == (200, 6)
    assert (x[:, :3] == x[:, 3:]).mean() > 0.85
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")


def test_sample_given_a_row_keeps_it(run, fitted, tmp_path):
    (tmp_path / "given.csv").write_text("a,b,c,a2,b2,c2\n1,0,1,,,\n")
    assert run("sample", fitted, "--out", "s.npy", "--count", 50, "--given", "given.csv")[0] == 0
    x = np.load(tmp_path / "s.npy")
    assert (x[:, :3] == [1, 0, 1]).all()
    assert (x[:, 3:] == [1, 0, 1]).mean() > 0.85


@pytest.mark.slow
def test_evaluate_exact_and_ais_agree(run, fitted, tmp_path):
    write_csv(tmp_path / "test.csv", copies(100, seed=4), NAMES)
    code, out, _ = run("evaluate", fitted, "test.csv", "--json")
    exact = json.loads(out)
    assert code == 0 and exact["log_z_method"] == "exact"
    assert -6 * np.log(2) < exact["log_likelihood"] < -3 * np.log(2) + 0.01
    sampled = json.loads(run("evaluate", fitted, "test.csv", "--method", "ais", "--json")[1])
    low, high = sampled["log_z_interval"]
    assert low <= exact["log_z"] <= high
    code, out, _ = run("evaluate", fitted, "test.csv")
    assert "nats" in out and "by exact" in out


def test_an_ising_model_by_pseudo_likelihood(run, tmp_path):
    write_csv(tmp_path / "table.csv", copies(300), NAMES)
    code, out, _ = run(
        "fit", "table.csv", "--out", "m", "--model", "ising", "--epochs", 40, "--json"
    )
    assert code == 0
    assert json.loads(out)["settings"]["method"] == "pl"
    write_csv(tmp_path / "test.csv", copies(50, seed=4), NAMES)
    assert run("evaluate", "m", "test.csv")[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("method", ["cd", "bp", "exact"])
def test_every_method_fits(run, tmp_path, method):
    write_csv(tmp_path / "table.csv", copies(60, 0.1), NAMES)
    code, _, err = run("fit", "table.csv", "--out", "m", "--method", method, "--epochs", 2)
    assert code == 0, err


BAD_TABLES = {
    "ragged": ("a,b\n0,1\n1\n", "line 3"),
    "text": ("a,b\n0,yes\n1,0\n", "yes"),
    "two": ("a,b\n0,2\n1,0\n", "2"),
    "fraction": ("a,b\n0,0.5\n1,0\n", "0.5"),
    "empty": ("", "empty"),
    "header only": ("a,b\n", "no rows"),
}


@pytest.mark.parametrize("kind", BAD_TABLES)
def test_malformed_tables_get_their_own_message(run, tmp_path, kind):
    text, wanted = BAD_TABLES[kind]
    (tmp_path / "bad.csv").write_text(text)
    code, out, err = run("fit", "bad.csv")
    assert code == 1 and out == ""
    assert err.startswith("error:") and "bad.csv" in err and wanted in err
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["fit", "none.csv"], "no such file"),
        (["fit", "none.csv", "--model", "dbn"], "model 'dbn' is unknown; pass one of"),
        (["fit", "none.csv", "--model", "isng"], "model 'isng' is unknown; did you mean ising?"),
        (["fit", "none.csv", "--method", "sgd"], "method 'sgd' is unknown"),
        (["fit", "none.csv", "--method", "exakt"], "did you mean exact?"),
        (["query", "nowhere", "table.csv", "--method", "bpp"], "did you mean bp?"),
        (["fit", "table.csv", "--image", "3x3"], "3x3 has 9 pixels, the table has 6 columns"),
        (["fit", "table.csv", "--image", "six"], "not a shape"),
        (["fit", "table.csv", "--hidden", "0"], "hidden is 0"),
        (["fit", "table.csv", "--validation", "1.5"], "validation is 1.5"),
        (["fit", "table.csv", "--patience", "3"], "patience is 3, but no rows are held out"),
        (["fit", "table.csv", "--patience", "3", "--validation", "0"], "leave patience out"),
        (["query", "nowhere", "table.csv", "--out", "o.csv"], "nowhere"),
        (["reproduce", "tempred"], "tempred"),
        (["data", "fetch", "mnits"], "mnist"),
    ],
)
def test_wrong_wishes_are_explained(run, tmp_path, arguments, wanted):
    write_csv(tmp_path / "table.csv", copies(20), NAMES)
    code, _, err = run(*arguments)
    assert code == 1
    assert wanted in " ".join(err.split())


def test_wrong_usage_exits_with_two(run):
    assert run("fit")[0] == 2
    assert run("fit", "table.csv", "--no-such-option")[0] == 2
    assert run("dance")[0] == 2


def test_a_table_of_other_columns_is_refused(run, fitted, tmp_path):
    write_csv(tmp_path / "t.csv", copies(4)[:, :5], NAMES[:5])
    code, _, err = run("evaluate", fitted, "t.csv")
    assert code == 1 and "5 columns, the model has 6" in err
    write_csv(tmp_path / "t.csv", copies(4), [*NAMES[:5], "zz"])
    code, _, err = run("evaluate", fitted, "t.csv")
    assert code == 1 and "no column 'zz'" in err


@pytest.mark.slow
def test_an_interrupted_fit_with_other_settings_is_not_mixed(run, tmp_path):
    write_csv(tmp_path / "table.csv", copies(60), NAMES)
    work = tmp_path / "m" / "training"
    (work / "checkpoints").mkdir(parents=True)
    (work / "plan.json").write_text('{"settings": {}}')
    code, _, err = run("fit", "table.csv", "--out", "m")
    assert code == 1 and "--fresh" in err
    assert run("fit", "table.csv", "--out", "m", *QUICK, "--fresh")[0] == 0


def test_lists(run):
    assert "mnist" in run("data", "list")[1].split()
    assert any(name.startswith("basics/") for name in run("reproduce")[1].split())


def test_help_teaches(run):
    for command in ("fit", "query", "sample", "evaluate", "reproduce", "report", "demo"):
        code, out, _ = run(command, "--help")
        assert code == 0 and "Usage" in out and "--json" in out


def test_fit_leaves_a_folder_that_is_not_its_own_alone(run, tmp_path):
    write_csv(tmp_path / "t.csv", copies(30), NAMES)
    mine = tmp_path / "out" / "training" / "mine.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    for more in ([], ["--fresh"]):
        code, _, err = run("fit", "t.csv", "--out", "out", "--epochs", 1, *more)
        assert (code, mine.read_text()) == (1, "mine")
        assert "not of a fit" in err


def test_an_interrupted_fit_does_not_go_on_with_other_values(run, tmp_path):
    plan, flipped = tmp_path / "out" / "training" / "plan.json", 1 - copies(60)
    write_csv(tmp_path / "t.csv", copies(60), NAMES)
    write_csv(tmp_path / "flipped.csv", flipped, NAMES)
    how = ["--out", "out", *QUICK]
    assert run("fit", "t.csv", *how)[0] == 0
    (plan.parent / "checkpoints").mkdir()  # as if it had been interrupted
    code, _, err = run("fit", "flipped.csv", *how)
    assert code == 1 and "other data" in err
    plan.write_text(plan.read_text()[:20])
    code, _, err = run("fit", "t.csv", *how)
    assert code == 1 and "plan.json: damaged" in err and "--fresh" in err
    assert run("fit", "t.csv", *how, "--fresh")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["query", "model", "t.csv", "--out", "a.xlsx"], "unknown kind of table"),
        (["query", "model", "t.csv", "--out", "a.csv", "--completion", "a.csv"], "two outputs"),
        (["query", "model", "t.csv", "--out", "here.csv"], "this is a folder"),
        (["sample", "model", "--out", "t.csv/a.csv"], "cannot be made"),
        (["compare", "model", "t.csv", "--out", "here.csv"], "this is a folder"),
        (["fit", "t.csv", "--out", "t.csv"], "the folder cannot be made (this is a file); choose"),
        (["demo", "--out", "t.csv"], "the folder cannot be made (this is a file); choose another"),
        (["reproduce", "pmp/toy", "--out", "t.csv"], "the folder cannot be made (this is a file)"),
        (["demo", "--out", "mine"], "mine/model is there and not of a demo; choose another --out"),
    ],
)
def test_places_of_results_are_checked_before_the_work(run, tmp_path, arguments, words):
    """There is no model: to read it would be the first of the work."""
    write_csv(tmp_path / "t.csv", copies(30), NAMES)
    (tmp_path / "here.csv").mkdir()
    (tmp_path / "mine" / "model").mkdir(parents=True)
    code, _, err = run(*arguments)
    assert code == 1 and words in " ".join(err.split())


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--epochs", "inf"], 1, "epochs is inf"),
        (["--epochs", "nan"], 1, "epochs is nan"),
        (["--seed", 10**20], 2, "--seed"),
        (["--seed", -1], 2, "--seed"),
        (["--model", "ising", "--hidden", 3], 1, "no hidden units"),
        (["--image", "²x³"], 1, "is not a shape"),
        (["--hidden", 10**12], 1, "hidden is 1,000,000,000,000; learning their weights takes"),
    ],
)
def test_settings_that_cannot_be_are_refused(run, tmp_path, arguments, code, words):
    write_csv(tmp_path / "t.csv", copies(30), NAMES)
    found, _, err = run("fit", "t.csv", "--out", "out", *arguments)
    assert found == code and words in err


def test_json_has_null_where_a_number_is_not_finite(run, fitted, tmp_path):
    write_csv(tmp_path / "one.csv", copies(1), NAMES)
    code, out, _ = run("evaluate", fitted, "one.csv", "--json")

    def refuse(name):
        raise ValueError(name)

    assert code == 0
    assert json.loads(out, parse_constant=refuse)["stderr"] is None


def test_a_report_of_nothing_is_refused(run, tmp_path):
    (tmp_path / "empty").mkdir()
    code, _, err = run("report", "empty", "--out", "page.html")
    assert code == 1 and "no records here" in err
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (Interrupted("stopped at step 3"), 130, "stopped at step 3"),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating"), 1, "out of memory"),
        (OverflowError("too large"), 1, "too large"),
    ],
)
def test_interrupts_and_lack_of_memory_end_with_a_reason(run, monkeypatch, error, code, words):
    def fail(*_):
        raise error

    monkeypatch.setattr("undirected.cli.papers.list_data", fail)
    found, _, err = run("data", "list")
    assert found == code and words in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("method", "hidden", "steps"), [("pcd", 12, 100), ("query-training", 256, 1), ("bp", 256, 1)]
)
def test_slow_steps_are_looked_at_often(method, hidden, steps):
    """100 rows of 784 by 256 in query training take most of a second on two cores."""
    settings = Settings(method=method, hidden=hidden, batch=100)
    assert steps_at_once(settings, 784) == steps


def test_every_fit_has_a_report_of_its_own(run, tmp_path):
    write_csv(tmp_path / "t.csv", copies(60), NAMES)
    report = tmp_path / "m" / "report.html"
    how = ["fit", "t.csv", "--out", "m", *QUICK]
    assert run(*how, "--method", "query-training")[0] == 0
    page = report.read_text()
    for title in ("Learning", "Held-out cells", "Calibration", "Columns"):
        assert f">{title}<" in page
    assert run("fit", "t.csv", "--out", "e", "--model", "mixed")[0] == 0
    page_of_copies = (tmp_path / "e" / "report.html").read_text()
    assert ">What hangs together<" in page_of_copies and ">bits<" in page_of_copies
    (tmp_path / "m" / "mine.html").write_text("mine")
    assert run(*how, "--model", "rbm")[0] == 0
    assert report.read_text() != page
    assert (tmp_path / "m" / "mine.html").read_text() == "mine"
    report.write_text("<title>Mine</title>")
    code, out, _ = run(*how, "--model", "rbm", "--json")
    assert code == 0 and json.loads(out)["report"] is None
    assert report.read_text() == "<title>Mine</title>"


def test_convergence_is_told_of_models_that_have_it(run, tmp_path):
    """A query network goes through its layers once: there is nothing that could settle."""
    write_csv(tmp_path / "t.csv", copies(60), NAMES)
    asked = copies(3)
    asked[:, 3:] = np.nan
    write_csv(tmp_path / "asked.csv", asked, NAMES)
    for method, converged in (("query-training", None), ("cd", 1.0)):
        how = ["--out", method, *QUICK, "--method", method]
        assert run("fit", "t.csv", *how)[0] == 0
        code, out, err = run("query", method, "asked.csv", "--out", "p.csv", "--json")
        assert code == 0 and "settled" not in err
        assert json.loads(out)["converged"] == converged


YEARS = ["2019", "2020", "2021", "2022", "2023", "2024"]


@pytest.mark.slow
def test_a_header_of_years(run, tmp_path):
    write_csv(tmp_path / "t.csv", copies(60), YEARS)
    how = ["--out", "m", *QUICK]
    code, _, err = run("fit", "t.csv", *how)
    assert code == 1 and "2019 is neither 0 nor 1; if line 1 holds names, say --header" in err
    assert run("fit", "t.csv", *how, "--header")[0] == 0
    assert json.loads((tmp_path / "m" / "model.json").read_text())["extra"]["names"] == YEARS
    asked = copies(3)
    asked[:, 3:] = np.nan
    write_csv(tmp_path / "asked.csv", asked[:, ::-1], YEARS[::-1])
    assert run("query", "m", "asked.csv", "--header", "--out", "p.csv")[0] == 0
    lines = (tmp_path / "p.csv").read_text().splitlines()
    assert lines[0] == ",".join(YEARS) and lines[1].startswith("1,1,1,")
    write_csv(tmp_path / "one.csv", asked[:1], YEARS)
    given = ["--given", "one.csv", "--header", "--count", 2, "--sweeps", 1]
    assert run("sample", "m", *given, "--out", "s.npz")[0] == 0
    assert run("evaluate", "m", "s.npz", "--header")[0] == 0
    assert run("evaluate", "m", "t.csv", "--header")[0] == 0


def test_a_first_row_that_looks_like_a_header(run, tmp_path):
    """The line 0,1,2,... is taken for names unless the user says otherwise."""
    (tmp_path / "t.csv").write_text("0,1,2,3,4,5\n" + "1,1,1,1,1,1\n" * 60)
    how = ["--out", "m", *QUICK]
    code, out, _ = run("fit", "t.csv", *how, "--json")
    assert code == 0 and json.loads(out)["rows"] == 60
    code, _, err = run("fit", "t.csv", *how, "--no-header")
    assert code == 1 and "line 1, column 3 (x2): 2 is neither 0 nor 1" in err


def test_a_damaged_checkpoint_is_met_with_fresh(run, tmp_path):
    write_csv(tmp_path / "t.csv", copies(60), NAMES)
    how = ["fit", "t.csv", "--out", "m", *QUICK]
    assert run(*how)[0] == 0
    damaged = tmp_path / "m" / "training" / "checkpoints" / "step-00000002.safetensors"
    damaged.parent.mkdir()
    damaged.write_bytes(b"half")
    code, _, err = run(*how)
    assert code == 1 and "truncated or damaged" in err and "--fresh" in err
    assert run(*how, "--fresh")[0] == 0


@pytest.mark.smoke
@pytest.mark.parametrize("is_terminal", [False, True])
def test_tables_of_a_reproduction_suit_where_they_go(is_terminal, tmp_path, monkeypatch):
    """Lines and bold type on a terminal, Markdown in a file."""
    shown = Console(file=io.StringIO(), width=120, force_terminal=is_terminal)
    monkeypatch.setattr(console, "out", shown)
    reproduce_paper("pmp/toy", "smoke", tmp_path, [], False, 0, 1, False)
    text = shown.file.getvalue()
    assert ("| :-- |" in text) != is_terminal
    assert ("─────" in text) == is_terminal
    assert ("KL(data || sampler)" if is_terminal else r"KL(data \|\| sampler)") in text
