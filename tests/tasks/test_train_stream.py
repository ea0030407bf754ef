"""Models of tables that are read as they are needed."""

import json

import numpy as np
import pytest

import undirected as un
from undirected.cli.columns import Wishes
from undirected.cli.streams import rows_to_stream
from undirected.cli.train import fit_table
from undirected.core.errors import UndirectedError
from undirected.tasks.train_stream import ZeroOneRows, choose_stream, sample_places


def test_rows_without_those_held_out():
    rows = np.arange(20)[:, None] >> np.arange(5) & 1  # each row is its number, in bits
    held = np.array([4, 0, 3, 11, 19])
    kept = np.delete(np.arange(20), held)
    source = ZeroOneRows(rows, held)
    assert source.shape == (15, 5)
    for start in range(15):
        for stop in range(start + 1, 16):
            assert (source[start:stop] @ 2 ** np.arange(5) == kept[start:stop]).all()


def test_a_cell_that_is_neither_0_nor_1_is_named():
    rows = np.zeros((9, 3), np.float32)
    rows[5, 1] = 0.5
    rows[6, 2] = np.nan
    assert np.isnan(ZeroOneRows(rows, np.array([1]))[5:7]).sum() == 1
    with pytest.raises(UndirectedError, match="0.5 stands near row 5 in column 1"):
        ZeroOneRows(rows, np.array([1]))[0:8]


def test_a_sample_comes_from_all_over_the_table():
    places = sample_places(10**9, 0)
    assert len(np.unique(places)) == 20_000 and (np.diff(places) > 0).all()
    assert places[0] < 10**8 and places[-1] > 9 * 10**8
    assert (sample_places(7, 0) == np.arange(7)).all()


def test_models_that_need_all_rows_are_refused():
    with pytest.raises(UndirectedError, match="model mixed is not learned"):
        choose_stream(un.Settings(model="mixed"), 10**9, np.zeros((10, 2)))
    with pytest.raises(UndirectedError, match="not learned by exact"):
        choose_stream(un.Settings(model="rbm", method="exact"), 10**9, np.zeros((10, 2)))


def test_only_what_can_be_read_in_parts_is_streamed(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((3, 2), np.uint8))
    (tmp_path / "a.csv").write_text("0,1\n1,0\n")
    assert rows_to_stream(tmp_path / "a.npy", None) is None
    assert rows_to_stream(tmp_path / "a.npy", True).shape == (3, 2)
    assert rows_to_stream(tmp_path / "a.csv", None) is None
    with pytest.raises(UndirectedError, match="only .npy files, Parquet files"):
        rows_to_stream(tmp_path / "a.csv", True)


@pytest.mark.slow
def test_fit_streams_a_table(tmp_path, capsys):
    rng = np.random.default_rng(0)
    hidden = rng.random((3000, 1)) < 0.5
    rows = (rng.random((3000, 6)) < np.where(hidden, 0.9, 0.1)).astype(np.uint8)
    np.save(tmp_path / "rows.npy", rows)
    settings = un.Settings(model="rbm", hidden=2, epochs=12, learning_rate=0.05)
    out = tmp_path / "model"
    fit_table(tmp_path / "rows.npy", Wishes(), out, settings, False, True, stream=True)
    summary = json.loads(capsys.readouterr().out)
    assert summary["rows"] == 3000 and summary["steps"] == 12 * 2700 // 100
    model = un.load(out)
    asked = [[1, 1, 1, 1, 1, np.nan], [0, 0, 0, 0, 0, np.nan]]
    found = un.query(model, asked, method="exact")[:, 5]
    assert found[0] > 0.75 and found[1] < 0.25
