"""Alignments through the commands: fit, contacts, sample, evaluate, describe; and refusals."""

import csv
import json

import numpy as np
import pytest

import undirected as un
from tests.cli.test_cli import run  # noqa: F401
from undirected.alignment import boltzmann, resuming


def write_family(path, n=300, seed=0):
    """RNA of 8 positions, of which 1 and 8, and 2 and 7, are base pairs."""
    rng = np.random.default_rng(seed)
    states = rng.integers(1, 5, (n, 8))
    for i, j in ((0, 7), (1, 6)):
        states[:, j] = np.where(rng.random(n) < 0.85, 5 - states[:, i], states[:, j])
    rows = ["".join("-ACGU"[a] for a in row) for row in states]
    path.write_text("".join(f">s{k}\n{row}\n" for k, row in enumerate(rows)))


@pytest.fixture
def model(run, tmp_path):  # noqa: F811
    write_family(tmp_path / "family.fasta")
    how = ["--method", "mean-field", "--out", "model"]
    code, _, err = run("fit", "family.fasta", "--model", "potts", *how)
    assert code == 0, err
    return tmp_path / "model"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "pseudo-likelihood", "pcd", "mean-field", "rise"])
def test_fit_and_contacts(run, tmp_path, method):  # noqa: F811
    write_family(tmp_path / "family.fasta")
    how = ["--method", method, "--out", "model", "--json", "--target", 0.9]
    code, out, err = run("fit", "family.fasta", "--model", "potts", *how)
    assert code == 0 and json.loads(out)["sequences"] == 300, err
    code, _, err = run("contacts", "model", "--out", "contacts.csv", "--png", "map.png")
    assert code == 0, err
    rows = list(csv.DictReader((tmp_path / "contacts.csv").read_text().splitlines()))
    assert [(row["i"], row["j"]) for row in rows[:2]] in (
        [("1", "8"), ("2", "7")],
        [("2", "7"), ("1", "8")],
    )
    assert list(rows[0]) == ["i", "j", "score"] and len(rows) == 6
    scores = [float(row["score"]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_fit_by_chains_that_was_stopped_goes_on(run, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(resuming, "EVERY", 0.0)
    write_family(tmp_path / "family.fasta")
    how = ["fit", "family.fasta", "--method", "pcd", "--target", 0.995]
    assert run(*how, "--out", "whole")[0] == 0
    learn, left = boltzmann._learn, [1]

    def stopped(*rest):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        return learn(*rest)

    with monkeypatch.context() as patch:
        patch.setattr(boltzmann, "_learn", stopped)
        assert run(*how, "--out", "model")[0] != 0
    assert list((tmp_path / "model" / "chains").glob("step-*"))
    code, _, err = run(*how, "--seed", 5, "--out", "model")
    assert code != 0 and "--fresh" in err
    code, _, err = run(*how, "--out", "model")
    assert code == 0 and "going on with the interrupted run" in err
    assert not (tmp_path / "model" / "chains").exists()
    one, two = (un.load_family(tmp_path / name) for name in ("whole", "model"))
    np.testing.assert_array_equal(one.potts.couplings, two.potts.couplings)
    assert one.notes == two.notes


def test_sample_writes_sequences(run, model, tmp_path):  # noqa: F811
    how = ["--count", 200, "--sweeps", 20]
    code, _, err = run("sample", model, "--out", "new.fasta", *how)
    assert code == 0, err
    drawn = un.read_fasta(tmp_path / "new.fasta", "rna")
    assert len(drawn) == 200 and drawn.n_positions == 8
    assert (drawn.states[:, 0] + drawn.states[:, 7] == 5).mean() > 0.5


def test_evaluate_and_describe(run, model, tmp_path):  # noqa: F811
    how = ["--betas", 50, "--chains", 50, "--json"]
    code, out, err = run("evaluate", model, tmp_path / "family.fasta", *how)
    assert code == 0, err
    found = json.loads(out)
    energies = un.load_family(model).energies(un.read_fasta(tmp_path / "family.fasta", "rna"))
    assert found["rows"] == 300
    assert found["log_likelihood"] == pytest.approx(-energies.mean() - found["log_z"], abs=1e-3)
    assert found["log_z"] == pytest.approx(found["log_z_integrated"], abs=0.5)
    code, out, err = run("describe", model)
    assert code == 0 and "positions: 8, letters: -ACGU" in out and "1 – 8" in out, err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("query", "model", "family.fasta"), "has no table of columns; use `undirected contacts`"),
        (("sample", "model", "--out", "new.csv"), "written as FASTA; name a .fasta"),
        (
            ("sample", "model", "--out", "n.fasta", "--png", "a.png"),
            "--png is not for an alignment",
        ),
        (("evaluate", "model", "table.csv"), "table.csv is no alignment"),
        (("evaluate", "model", "family.fasta", "--method", "exact"), "leave out --method exact"),
        (("contacts", "model", "--out", "c.csv", "--separation", 7), "smaller --separation"),
        (("fit", "family.fasta", "--model", "rbm", "--out", "m"), "pass --model potts"),
        (("fit", "family.fasta", "--method", "plm", "--out", "m"), "method 'plm' is unknown"),
        (("fit", "other.fasta", "--out", "model"), "model of other data; add --fresh"),
        (("fit", "single.fasta", "--out", "m"), "1 sequence, all the same"),
        (("fit", "ragged.fasta", "--out", "m"), "line 3, sequence 'b' has 3 aligned letters"),
        (("fit", "strange.fasta", "--out", "m"), "line 4, sequence 'b' has the letter 'X'"),
        (("fit", "strange.fasta", "--out", "m"), "at the command line: --unknown gap"),
        (("fit", "none.fasta", "--out", "m"), "none.fasta: no such file"),
        (("fit", "none.fa.gz", "--out", "m"), "none.fa.gz: no such file"),
        (("fit", "empty.fasta", "--out", "m"), "no sequences; a FASTA file has lines >NAME"),
        (("fit", "bytes.fasta", "--out", "m"), "cannot be read as text"),
        (
            ("fit", "family.fasta", "--out", "table.csv"),
            "table.csv: the folder cannot be made (this is a file)",
        ),
        (("fit", "family.fasta", "--label", "x"), "--label is not for an alignment; leave it out"),
        (("fit", "family.fasta", "--learning-rate", 0.1), "--learning-rate is not for"),
        (("fit", "family.fasta", "--no-stream"), "--stream is not for an alignment"),
        (("fit", "table.csv", "--target", 0.9), "--target is for an alignment; leave it out"),
        (("fit", "table.csv", "--unknown", "gap"), "--unknown is for an alignment; leave it out"),
        (("sample", "model", "--out", "n.fasta", "--header"), "--header is not for an alignment"),
        (("evaluate", "model", "none.fasta"), "none.fasta: no such file"),
        (("evaluate", "model", "family.fasta", "--header"), "--header is not for an alignment"),
        (("evaluate", "model", "empty.fasta"), "no sequences; a FASTA file has lines >NAME"),
    ],
)
def test_refusals(run, model, tmp_path, arguments, message):  # noqa: F811
    write_family(tmp_path / "other.fasta", seed=1)
    (tmp_path / "table.csv").write_text("a,b\n1,0\n")
    (tmp_path / "empty.fasta").write_text("\n")
    (tmp_path / "bytes.fasta").write_bytes(bytes(range(256)))
    (tmp_path / "single.fasta").write_text(">a\nMKLV\n")
    (tmp_path / "ragged.fasta").write_text(">a\nMKLV\n>b\nMKL\n")
    (tmp_path / "strange.fasta").write_text(">a\nMKLV\n>b\nMKXV\n")
    code, _, err = run(*arguments)
    assert code == 1 and message in " ".join(err.split())


def test_unknown_letters_can_be_gaps(run, tmp_path):  # noqa: F811
    (tmp_path / "strange.fasta").write_text(">a\nMKLV\n>b\nMKXV\n")
    how = ["--method", "mean-field", "--unknown", "gap", "--out", "m"]
    code, _, err = run("fit", "strange.fasta", *how)
    assert code == 0, err
    look = ["strange.fasta", "--betas", 10, "--chains", 10]
    code, _, err = run("evaluate", "m", *look)
    assert code == 1 and "--unknown gap" in err
    code, out, err = run("evaluate", "m", *look, "--unknown", "drop", "--json")
    assert code == 0 and json.loads(out)["rows"] == 1, err
    code, _, err = run("contacts", "strange.fasta", "--out", "c.csv")
    assert code == 1 and "no model" in err


def test_contacts_of_a_model_of_a_table(run, tmp_path):  # noqa: F811
    un.save(tmp_path / "ising", un.Ising.create(3))
    code, _, err = run("contacts", tmp_path / "ising", "--out", "c.csv")
    assert code == 1 and "not a Potts model of an alignment" in " ".join(err.split())


def test_other_forms_of_alignments_are_fitted(run, tmp_path):  # noqa: F811
    (tmp_path / "family.sto").write_text("# STOCKHOLM 1.0\na MKLV\nb MKFI\n//\n")
    (tmp_path / "family.txt").write_text("#4\t1\n>a\nMKLV\n>b\nMKFI\n")
    for n, name in enumerate(["family.sto", "family.txt"]):
        code, _, err = run("fit", name, "--method", "mean-field", "--out", f"m{n}")
        assert code == 0 and "2 sequences of 4 positions" in err, err
