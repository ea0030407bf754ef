"""Rows of files, read in slices."""

import numpy as np
import pytest

from undirected.core.errors import BadFile
from undirected.io.row_sources import open_rows


def test_an_array_file_is_mapped(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(12).reshape(6, 2))
    rows = open_rows(tmp_path / "a.npy")
    assert isinstance(rows, np.memmap) and rows[2:4].tolist() == [[4, 5], [6, 7]]


def test_other_files_are_refused(tmp_path):
    np.save(tmp_path / "line.npy", np.arange(3))
    (tmp_path / "bad.npy").write_bytes(b"no array")
    for name, told in (
        ("line.npy", r"wanted \(rows, columns\)"),
        ("bad.npy", "damaged"),
        ("t.csv", "convert"),
    ):
        with pytest.raises(BadFile, match=told):
            open_rows(tmp_path / name)


def test_a_folder_of_parquet_files_is_one_table(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="needs the extra parquet")
    parquet = pytest.importorskip("pyarrow.parquet")
    whole = np.arange(60).reshape(20, 3) % 2
    for name, part in (("b", whole[13:]), ("a", whole[:13])):
        table = pa.table({c: part[:, i].astype(np.uint8) for i, c in enumerate("xyz")})
        parquet.write_table(table, tmp_path / f"{name}.parquet", row_group_size=4)
    rows = open_rows(tmp_path)
    assert rows.shape == (20, 3) and rows.dtype == np.uint8 and rows.block == 4
    for start, stop in ((0, 20), (3, 5), (2, 15), (12, 14), (19, 20), (7, 7)):
        assert (rows[start:stop] == whole[start:stop]).all()
    assert (open_rows(tmp_path, ["z", "x"])[4:9] == whole[4:9][:, [2, 0]]).all()
    with pytest.raises(BadFile, match="there is no column 'w'"):
        open_rows(tmp_path, ["w"])


def test_columns_of_words_and_holes_without_nan_are_refused(tmp_path):
    pa = pytest.importorskip("pyarrow", reason="needs the extra parquet")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pa.table({"w": ["a", "b"], "n": pa.array([1, None], pa.int32())})
    parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(BadFile, match="column 'w' holds string"):
        open_rows(tmp_path / "t.parquet")
    with pytest.raises(BadFile, match="'n' has missing cells"):
        open_rows(tmp_path / "t.parquet", ["n"])[0:2]


def test_damaged_parquet_files_are_named(tmp_path):
    """A file that is cut off, and one whose pages are not what they were."""
    pa = pytest.importorskip("pyarrow", reason="needs the extra parquet")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pa.table({"x": np.random.default_rng(0).integers(0, 2, 2000)})
    parquet.write_table(table, tmp_path / "t.parquet")
    good = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(good[:-20])
    with pytest.raises(BadFile, match=r"t\.parquet: damaged"):
        open_rows(tmp_path / "t.parquet")
    (tmp_path / "t.parquet").write_bytes(good[:4] + b"\xff" * 60 + good[64:])
    with pytest.raises(BadFile, match=r"t\.parquet: damaged"):
        open_rows(tmp_path / "t.parquet")[0:2000]
