"""Tables as people have them: words, holes and other delimiters through the commands."""

import csv
import fcntl
import json

import numpy as np
import pytest

import undirected as un
from tests.cli.test_cli import NAMES, QUICK, copies, run, write_csv  # noqa: F401
from undirected.cli import console
from undirected.cli.answer import read_for, saved_with
from undirected.cli.columns import Wishes, read_to_fit, tell_outliers
from undirected.cli.schema_lines import schema_lines


def survey(rows=80, seed=0):
    """Lines of a table: an id, yes/no that smoking follows, sex, -1/1, and a constant."""
    rng = np.random.default_rng(seed)
    lines = ["id;smokes;coughs;sex;spin;country;"]
    for i in range(rows):
        smokes = rng.random() < 0.5
        coughs = "" if rng.random() < 0.1 else "TRUE" if smokes else "FALSE"
        sex = "NA" if rng.random() < 0.1 else rng.choice(["female", "male"])
        spin = rng.choice([-1, 1])
        lines.append(f"p{i};{'yes' if smokes else 'no'};{coughs};{sex};{spin};fr;")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    """A model of such a table, made once."""
    import sys

    from undirected.cli import main

    folder = tmp_path_factory.mktemp("survey")
    (folder / "t.csv").write_text(survey(400))
    how = ["--model", "rbm", "--epochs", 60, "--hidden", 4, "--learning-rate", 0.03]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["undirected", "fit", str(folder / "t.csv")])
        sys.argv += ["--out", str(folder / "m"), *map(str, how)]
        with pytest.raises(SystemExit) as stop:
            main()
    assert not stop.value.code
    return folder / "m"


def test_the_schema_is_kept(answered):
    kept = json.loads((answered / "model.json").read_text())["extra"]["schema"]
    assert {c["name"]: c["states"] for c in kept["columns"]} == {
        "smokes": ["no", "yes"],
        "coughs": ["FALSE", "TRUE"],
        "sex": ["female", "male"],
        "spin": ["-1", "1"],
    }
    assert set(kept["dropped"]) == {"id", "country"}


def test_answers_come_in_the_words_of_the_table(run, answered, tmp_path):  # noqa: F811
    rows = [["id", "smokes", "sex", "spin", "coughs"], ["a", "yes", "", "1", ""]]
    rows.append(["b", "no", "male", "1", ""])
    (tmp_path / "q.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    code, out, _ = run("query", answered, "q.tsv")
    assert code == 0
    found = [line.split()[:3] for line in out.splitlines()[1:]]
    assert ["1", "coughs", "TRUE"] in found and ["2", "coughs", "FALSE"] in found
    code, out, _ = run("query", answered, "q.tsv", "--out", "a.csv")
    assert code == 0
    lines = (tmp_path / "a.csv").read_text().splitlines()
    assert lines[0] == "id,smokes,sex,sex_p,spin,coughs,coughs_p"
    first, second = csv.DictReader(lines)
    assert first["coughs"] == "TRUE" and 0.8 < float(first["coughs_p"]) <= 1
    assert second["sex"] == "male" and second["sex_p"] == ""
    code, out, _ = run("query", answered, "q.tsv", "--json")
    told = json.loads(out)["answers"]
    assert {a["row"] for a in told} == {1, 2}
    assert all(sum(a["answer"].values()) == pytest.approx(1, abs=1e-5) for a in told)


def test_a_column_that_is_not_there_is_asked_for(run, answered, tmp_path):  # noqa: F811
    (tmp_path / "q.csv").write_text("smokes,extra\nyes,3\n")
    code, out, err = run("query", answered, "q.csv")
    assert code == 0 and "'extra'" in err and "'coughs', 'sex', 'spin' is not there" in err
    assert "coughs  TRUE" in out


@pytest.fixture(scope="module")
def zero_one(tmp_path_factory):
    """The folder of a model of a table of 0 and 1."""
    folder = tmp_path_factory.mktemp("bits") / "m"
    table = dict(zip(NAMES, copies(100).T.astype(float), strict=True))
    un.fit_table(table, model="rbm", hidden=2, epochs=20, seed=0).save(folder)
    return folder


def test_a_table_of_0_and_1_may_have_more_columns_or_fewer(run, zero_one, tmp_path):  # noqa: F811
    """As that of a table of words may: an id is copied, what is not there is asked for."""
    first, *rest = NAMES
    (tmp_path / "few.csv").write_text(f"{first}\n1\n")
    code, out, err = run("query", zero_one, "few.csv", "--json")
    assert code == 0 and f"'{rest[0]}'" in err and "counts as missing" in err
    assert [a["column"] for a in json.loads(out)["answers"]] == rest
    (tmp_path / "more.csv").write_text(f"id,{','.join(NAMES)}\np0012,1{',' * len(rest)}\n")
    code, _, err = run("query", zero_one, "more.csv", "--out", "a.csv")
    assert code == 0 and "does not know 'id'" in err
    (row,) = csv.DictReader((tmp_path / "a.csv").read_text().splitlines())
    assert list(row) == ["id", *NAMES] and (row["id"], row[first]) == ("p0012", "1")
    assert all(0 < float(row[name]) < 1 for name in rest)
    assert run("evaluate", zero_one, "more.csv")[0] == 0
    assert run("sample", zero_one, "--given", "few.csv", "--count", 2, "--out", "s.csv")[0] == 0


def test_numbers_have_no_most_probable_completion(run, tmp_path):  # noqa: F811
    table = {"sky": ["clear", "grey", "dark"] * 20, "mm": [0.2, 1.4, 9.1] * 20}
    un.fit_table(table, epochs=2, hidden=2).save(tmp_path / "m")
    (tmp_path / "q.csv").write_text("sky,mm\ndark,\n")
    code, _, err = run("query", "m", "q.csv", "--out", "a.csv", "--completion", "b.csv")
    assert code == 1 and "--completion: the most probable completion is found of states" in err
    assert not (tmp_path / "a.csv").exists()


def test_samples_and_completions_have_words_too(run, answered, tmp_path):  # noqa: F811
    (tmp_path / "one.csv").write_text("smokes,coughs,sex,spin\nyes,,,\n")
    given = ["--given", "one.csv", "--count", 20, "--sweeps", 50]
    assert run("sample", answered, *given, "--out", "s.csv")[0] == 0
    lines = (tmp_path / "s.csv").read_text().splitlines()
    assert lines[0] == "smokes,coughs,sex,spin"
    assert {line.split(",")[0] for line in lines[1:]} == {"yes"}
    assert {line.split(",")[2] for line in lines[1:]} <= {"female", "male"}
    assert run("query", answered, "one.csv", "--completion", "best.csv")[0] == 0
    assert (tmp_path / "best.csv").read_text().splitlines()[1].startswith("yes,TRUE,")
    code, _, err = run("sample", answered, "--out", "s.npy", "--count", 1, "--sweeps", 1)
    assert code == 1 and "words" in err


def test_a_cell_of_another_word_is_named_by_line_and_column(run, answered, tmp_path):  # noqa: F811
    (tmp_path / "t.csv").write_text("smokes,sex\nyes,male\n\nno,mal\n")
    code, _, err = run("evaluate", answered, "t.csv")
    assert code == 1 and "t.csv, line 4, column 2 (sex): 'mal' is none of the states" in err


def test_the_user_says_what_columns_are(run, tmp_path):  # noqa: F811
    (tmp_path / "t.csv").write_text(survey())
    how = ["fit", "t.csv", "--out", "m", *QUICK]
    code, _, err = run(*how, "--types", "smokes=binry")
    assert code == 1 and "did you mean binary?" in err
    code, _, err = run(*how, "--drop", "smoke")
    assert code == 1 and "no column is called 'smoke'; did you mean 'smokes'?" in err
    code, _, err = run(*how, "--columns", "smokes,sex,coughs", "--label", "smokes", "--drop", "sex")
    assert code == 0 and "(label)" in err
    names = json.loads((tmp_path / "m" / "model.json").read_text())["extra"]["names"]
    assert names == ["smokes", "coughs"]


def test_a_table_of_one_row_is_refused_for_that(run, tmp_path):  # noqa: F811
    """Not for a word in it, as a table of 0 and 1 with a slip would be."""
    (tmp_path / "t.csv").write_text("a,b\n1,x\n")
    code, _, err = run("fit", "t.csv", "--out", "m")
    assert code == 1 and "no column is left to learn from (a: every cell is 1" in err


@pytest.mark.slow
def test_given_columns_make_a_conditional_model(run, tmp_path):  # noqa: F811
    """As they do in Python."""
    (tmp_path / "t.csv").write_text(survey())
    how = ["--given", "smokes", "--columns", "smokes,coughs", "--hidden", 2, "--epochs", 1]
    code, _, err = run("fit", "t.csv", "--out", "m", *how)
    assert code == 0 and "; conditional with 2 hidden units" in err
    assert un.load_table(tmp_path / "m").given == (0,)


def test_numbers_far_from_all_others_are_told(monkeypatch):
    """One of 1e12 takes the spread of its column: the others would all be one number."""
    rng = np.random.default_rng(0)
    far = rng.normal(size=50)
    far[7] = 1e12
    table = {"plain": rng.normal(size=50), "far": far, "word": ["a", "b"] * 25}
    table["log"] = np.exp(2 * rng.normal(size=50))
    schema = un.infer_schema(table)
    told: list[str] = []
    monkeypatch.setattr(console, "say", told.append)
    tell_outliers(schema, schema.encode(table))
    assert len(told) == 1 and told[0].startswith("note: 'far' has numbers, such as 1e+12, beside")


def test_many_columns_that_are_left_out_are_counted():
    schema = un.Schema((un.Column("a", "real"),), {f"b{i}": "as asked" for i in range(300)})
    lines = schema_lines(schema, 10)
    assert len(lines) < 50 and lines[-1] == "  ... and 260 more left out"


def test_a_model_of_other_data_is_not_lost(run, tmp_path):  # noqa: F811
    write_csv(tmp_path / "t.csv", copies(60), NAMES)
    write_csv(tmp_path / "u.csv", 1 - copies(60), NAMES)
    assert run("fit", "t.csv", "--out", "m", *QUICK)[0] == 0
    before = (tmp_path / "m" / "model.json").read_bytes()
    code, _, err = run("fit", "u.csv", "--out", "m", *QUICK)
    assert code == 1 and "model of other data" in err
    assert (tmp_path / "m" / "model.json").read_bytes() == before
    assert run("fit", "u.csv", "--out", "m", *QUICK, "--fresh")[0] == 0


def test_two_fits_do_not_share_a_folder(run, tmp_path):  # noqa: F811
    write_csv(tmp_path / "t.csv", copies(60), NAMES)
    (tmp_path / "m").mkdir()
    with open(tmp_path / "m" / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        code, _, err = run("fit", "t.csv", "--out", "m", *QUICK)
    assert code == 1 and "another process is fitting a model there" in err


def test_a_trailing_comma_is_no_column(run, tmp_path):  # noqa: F811
    (tmp_path / "t.csv").write_text("a,b,\n" + "0,1,\n1,0,\n" * 30)
    assert run("fit", "t.csv", "--out", "m", *QUICK)[0] == 0
    assert json.loads((tmp_path / "m" / "model.json").read_text())["extra"]["names"] == ["a", "b"]


def test_a_word_in_a_column_said_to_hold_numbers(run, tmp_path):  # noqa: F811
    (tmp_path / "t.csv").write_text(survey())
    code, _, err = run("fit", "t.csv", "--types", "sex=real")
    assert code == 1 and "'female' is not a number; mend it, leave it blank, or say --types" in err


def test_a_model_of_0_and_1_has_its_schema_too(run, tmp_path):  # noqa: F811
    write_csv(tmp_path / "t.csv", copies(60), NAMES)
    code, _, err = run("fit", "t.csv", "--out", "m", *QUICK)
    assert code == 0 and "none missing" in err
    model = un.load_table(tmp_path / "m")
    assert model.schema.names == NAMES and model.schema.is_zero_one
    rows = {name: [1.0] for name in NAMES[1:]}
    assert set(model.query(rows)) == {*NAMES, f"{NAMES[0]}_p"}


def test_names_of_the_user_are_printed_as_they_are(capsys):
    from undirected.cli import console

    console.say("a.npz:train: 3 rows of [b]")
    console.result({}, False, [":red_heart: 3"])
    found = capsys.readouterr()
    assert found.err == "a.npz:train: 3 rows of [b]\n" and found.out == ":red_heart: 3\n"


def test_progress_names_the_score_and_has_its_sign(capsys):
    from undirected.cli.train import _bar
    from undirected.learning import Progress

    for model, wanted in [("mixed", "bits per held-out entry 0.500"), ("ising", "hood -0.500")]:
        with _bar("fit", un.Settings(model=model), np.zeros((2, 2))) as show:
            show(Progress(3, 3, 1.0, {"validation": -0.5}))
        assert wanted in capsys.readouterr().err


def test_version(run):  # noqa: F811
    assert run("--version")[1] == f"undirected {un.__version__}\n"
    assert "Usage" in run("fit", "-h")[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "more"),
    [
        ("deep", []),
        ("semi-restricted", []),
        ("gaussian", []),
        ("nonnegative", []),
        ("potts", []),
        ("conditional", ["--given", "a,b"]),
    ],
)
def test_every_model_is_fitted_and_asked(run, tmp_path, model, more):  # noqa: F811
    """Each on columns that it takes; the answers are in the words of the table."""
    rng = np.random.default_rng(0)
    first = rng.integers(0, 2, 80)
    kinds = {
        "gaussian": lambda x: f"{x + 0.1 * rng.normal():.2f}",
        "nonnegative": lambda x: f"{abs(x + 0.1 * rng.normal()):.2f}",
        "potts": lambda x: ["low", "mid", "high"][x + int(rng.random() < 0.3)],
    }
    word = kinds.get(model, lambda x: ["no", "yes"][x])
    lines = ["a,b,c", *(",".join(word(int(x)) for _ in "abc") for x in first)]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "q.csv").write_text(f"a,b,c\n{word(1)},{word(1)},\n")
    how = ["--epochs", 2, "--model", model, *more]
    code, _, err = run("fit", "t.csv", "--out", "m", *how)
    assert code == 0, err
    code, out, err = run("query", "m", "q.csv", "--json")
    assert code == 0, err
    (answer,) = json.loads(out)["answers"]
    wanted = {"gaussian": {"mean", "sd"}, "nonnegative": {"mean", "sd"}}
    states = {"low", "mid", "high"} if model == "potts" else {"no", "yes"}
    assert set(answer["answer"]) == wanted.get(model, states)
    assert run("describe", "m")[0] == 0
    if model == "conditional":
        (tmp_path / "q.csv").write_text("a,b,c\nyes,,no\n")
        code, out, err = run("query", "m", "q.csv")
        assert code == 0 and not out
        assert "'b' has missing entries; the model takes it as given" in err
    code, _, err = run("sample", "m", "--out", "s.csv", "--count", 2, "--sweeps", 2)
    assert code == (1 if model == "conditional" else 0), err


@pytest.mark.slow
def test_a_survey_is_fitted_asked_sampled_and_scored(run, tmp_path):  # noqa: F811
    """Words, numbers, yes/no and holes; smoking goes with youth, and so does spending."""
    rng = np.random.default_rng(0)
    lines = ["who,age,smokes,drink,spends"]
    for i in range(300):
        young = rng.random() < 0.5
        cells = [
            str(round(rng.normal(25 if young else 65, 4))),
            "yes" if young else "no",
            rng.choice(["beer", "wine"], p=[0.9, 0.1]) if young else "tea",
            f"{20 + rng.normal():.2f}" if young else "0",
        ]
        kept = ["" if rng.random() < 0.1 else cell for cell in cells]
        lines.append(",".join([f"p{i}", *kept]))
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    how = ["--out", "m", "--label", "smokes"]
    code, _, err = run("fit", "t.csv", *how)
    assert code == 0 and "left out: who" in err
    (tmp_path / "q.csv").write_text("who,age,smokes,drink,spends\nx,25,,beer,20\ny,,no,tea,\n")
    code, out, _ = run("query", "m", "q.csv", "--json")
    found = {(a["row"], a["column"]): a["answer"] for a in json.loads(out)["answers"]}
    assert code == 0 and found[1, "smokes"]["yes"] > 0.8
    assert found[2, "age"]["mean"] > 50 and 1 < found[2, "age"]["sd"] < 25
    assert run("sample", "m", "--out", "s.csv", "--count", 20)[0] == 0
    drawn = list(csv.DictReader((tmp_path / "s.csv").read_text().splitlines()))
    assert {row["drink"] for row in drawn} <= {"beer", "wine", "tea"}
    assert all(float(row["spends"]) >= 0 for row in drawn)
    code, out, _ = run("evaluate", "m", "t.csv", "--betas", 50, "--chains", 20, "--json")
    told = json.loads(out)
    assert code == 0 and told["label"]["accuracy"] > 0.8
    assert told["beside"]["independent columns"] < told["log_likelihood"]


@pytest.mark.parametrize("first", ["", "sep={}\n"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_tables_of_0_and_1_come_in_all_forms_of_text(tmp_path, delimiter, first):
    lines = [["a", "b", "c"], ["0", "1", "1"], ["1", "null", "1"], ["1", "N/A", "1"]]
    text = first.format(delimiter) + "\n".join(map(delimiter.join, lines)) + "\n"
    (tmp_path / "t.csv").write_text(text)
    table, schema = read_to_fit(tmp_path / "t.csv", Wishes(), grey=False)
    assert schema.is_zero_one and table.names == ["a", "b", "c"]  # constant columns stay
    rows = [[0, 1, 1], [1, np.nan, 1], [1, np.nan, 1]]
    np.testing.assert_array_equal(table.values, rows)
    saved = saved_with(tmp_path, un.RBM.create(3, 2, seed=0), {"names": table.names})
    np.testing.assert_array_equal(read_for(saved, tmp_path / "t.csv"), rows)


def test_a_table_without_any_cell_is_refused(run, tmp_path):  # noqa: F811
    (tmp_path / "t.csv").write_text("a,b\n" + ",\n" * 20)
    code, _, err = run("fit", "t.csv", "--out", "m")
    assert code == 1 and "every cell of the table is missing" in err
    assert not (tmp_path / "m").exists()


def test_states_are_listed_on_one_line():
    schema = un.Schema((un.Column("c", "category", ("a\nb", "c", "d")),))
    assert schema_lines(schema, 9) == ["  c  category: a b, c, d"]
