"""What users touch: query training at the command line."""

import json
import sys

import numpy as np
import pytest

from undirected.cli import main

pytestmark = pytest.mark.slow


def copies(rows, missing, seed=0):
    """Two fair bits and two copies of them."""
    rng = np.random.default_rng(seed)
    half = rng.integers(0, 2, (rows, 2)).astype(float)
    values = np.concatenate([half, half], 1)
    values[rng.random(values.shape) < missing] = np.nan
    return values


def test_fit_and_query_by_query_training(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["undirected", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code
        return json.loads(capsys.readouterr().out)

    np.save("table.npy", copies(300, 0.05))
    how = ["--method", "query-training", "--hidden", 6, "--learning-rate", 0.05, "--epochs", 40]
    summary = call("fit", "table.npy", "--out", "model", *how, "--json")
    assert summary["validation_bits_per_target"] < 0.6
    np.save("rows.npy", np.array([[1, 0, np.nan, np.nan], [np.nan, 1, 0, np.nan]]))
    call("query", "model", "rows.npy", "--out", "answers.npy", "--json")
    got = np.load("answers.npy")
    np.testing.assert_allclose(got[[0, 0, 1, 1], [0, 1, 1, 2]], [1, 0, 1, 0])
    assert got[0, 2] > 0.9 and got[0, 3] < 0.1 and got[1, 0] < 0.1 and got[1, 3] > 0.9
    saved = json.loads((tmp_path / "model" / "model.json").read_text())
    assert saved["extra"]["query"]["layers"] == 10
    report = (tmp_path / "model" / "report.html").read_text()
    assert "Calibration" in report and all(f">{name}<" in report for name in ("x0", "x3"))
    assert summary["report"] == "model/report.html"


def test_grey_tables(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["undirected", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code, capsys.readouterr()

    grey = np.where(copies(300, 0.0) > 0, 0.9, 0.1)
    grey[0, 0] = np.nan
    np.save("grey.npy", grey)
    how = ["--method", "query-training", "--hidden", 6, "--learning-rate", 0.05, "--epochs", 40]
    assert not call("fit", "grey.npy", "--out", "model", *how)[0]
    np.save("rows.npy", np.array([[0.9, 0.1, np.nan, np.nan]]))
    assert not call("query", "model", "rows.npy", "--out", "answers.npy")[0]
    got = np.load("answers.npy")[0]
    np.testing.assert_allclose(got[:2], [0.9, 0.1], rtol=1e-6)
    assert 0.7 < got[2] <= 0.95 and 0.05 <= got[3] < 0.3
    code, said = call("fit", "grey.npy", "--out", "other", "--hidden", 6, "--model", "rbm")
    assert code and "takes binary columns; 'x0' is real" in said.err
    np.save("loud.npy", 255 * grey)
    code, said = call("fit", "loud.npy", "--out", "other", *how)
    assert code and "is not between 0 and 1; divide" in said.err
