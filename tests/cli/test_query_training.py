"""What users touch: the command line and the imputer."""

import json
import sys

import numpy as np
import pytest

from undirected.cli import main
from undirected.sklearn import QueryImputer

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


def test_imputer_fills_only_what_is_missing():
    imputer = QueryImputer(n_hidden=6, layers=4, epochs=60, learning_rate=0.03)
    holes = copies(300, 0.1)
    filled = imputer.fit_transform(holes)
    seen = ~np.isnan(holes)
    np.testing.assert_array_equal(filled[seen], holes[seen])
    assert not np.isnan(filled).any() and filled.min() >= 0 and filled.max() <= 1
    answer = imputer.transform([[1, 0, np.nan, np.nan]])[0]
    assert answer[2] > 0.9 and answer[3] < 0.1
    with pytest.raises(ValueError, match="has 3 features, but QueryImputer is expecting 4"):
        imputer.transform([[1, 0, 1]])
    with pytest.raises(ValueError, match="value 7.0"):
        imputer.fit([[7.0, 0]])
    assert imputer.get_params()["n_hidden"] == 6


def test_imputer_knows_its_columns_and_keeps_what_was_seen():
    pandas = pytest.importorskip("pandas")
    imputer = QueryImputer(n_hidden=3, layers=2, epochs=1, random_state=None)
    holes = np.array([[1 / 3, np.nan], [0.1, 0.7], [np.nan, 0.2]])
    filled = imputer.fit(pandas.DataFrame(holes, columns=["a", "b"])).transform(
        pandas.DataFrame(holes, columns=["a", "b"])
    )
    seen = ~np.isnan(holes)
    assert filled.dtype == np.float64
    assert np.array_equal(filled[seen], holes[seen])
    with pytest.raises(ValueError, match="feature names"):
        imputer.transform(pandas.DataFrame(holes, columns=["b", "a"]))
    whole = pandas.DataFrame({"a": [1, None], "b": [0, 1]}, dtype="Int64")
    assert imputer.transform(whole)[:, 1].tolist() == [0.0, 1.0]
    assert imputer.get_feature_names_out().tolist() == ["a", "b"]
    assert list(imputer.set_output(transform="pandas").transform(whole).columns) == ["a", "b"]
