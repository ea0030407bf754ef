"""Tables of any kind of cell: forms of text, arrays, frames; faults named by their place."""

import errno
import gzip
import os

import numpy as np
import pytest

from undirected.core.errors import BadFile, UndirectedError
from undirected.io import delimited
from undirected.io.frames import as_frame, read_frame, write_frame
from undirected.io.tables import read_table


def cells(frame):
    return {name: [str(c) for c in column] for name, column in frame.cells.items()}


TABLE = {"name": ["ann", "bob", ""], "age": ["31", "", "7"], "likes tea": ["yes", "no", "yes"]}
LINES = [["name", "age", "likes tea"], ["ann", "31", "yes"], ["bob", "", "no"], ["", "7", "yes"]]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("trailing", [False, True])
def test_delimiters_are_found(tmp_path, delimiter, end, trailing):
    text = end.join(delimiter.join(line) + delimiter * trailing for line in LINES) + end + end
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert cells(read_frame(tmp_path / "t.csv")) == TABLE
    (tmp_path / "t.txt.gz").write_bytes(gzip.compress(text.encode()))
    assert cells(read_frame(tmp_path / "t.txt.gz")) == TABLE


def test_a_delimiter_inside_quotes_and_cells_is_text(tmp_path):
    (tmp_path / "t.csv").write_text('a;b\n"x; y";1,5\n"two\nlines";2,25\n')
    frame = read_frame(tmp_path / "t.csv")
    assert cells(frame) == {"a": ["x; y", "two\nlines"], "b": ["1.5", "2.25"]}
    assert frame.place(1, "b").endswith("t.csv, line 3, column 2 (b)")


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_first_line_for_excel_names_the_delimiter(tmp_path, delimiter):
    text = f"sep={delimiter}\r\n" + "\r\n".join(map(delimiter.join, LINES)) + "\r\n"
    (tmp_path / "t.csv").write_text(text, newline="")
    frame = read_frame(tmp_path / "t.csv")
    assert cells(frame) == TABLE
    assert frame.place(0, "age").endswith("line 3, column 2 (age)")


def test_commas_between_thousands_are_no_decimal_commas(tmp_path):
    (tmp_path / "t.txt").write_text('k\tn\na\t"1,234"\nb\t950\nc\t"12,345"\n')
    assert cells(read_frame(tmp_path / "t.txt"))["n"] == ["1,234", "950", "12,345"]
    (tmp_path / "t.csv").write_text("k;n\na;1,234\nb;950\n")  # where commas are decimal
    assert cells(read_frame(tmp_path / "t.csv"))["n"] == ["1.234", "950"]
    (tmp_path / "t.txt").write_text("k\tn\na\t1,234\nb\t0,950\n")
    assert cells(read_frame(tmp_path / "t.txt"))["n"] == ["1.234", "0.950"]


def test_columns_of_numbers_between_spaces(tmp_path):
    (tmp_path / "t.dat").write_text("u  v\n1 2\n3   4.5\n")
    assert cells(read_frame(tmp_path / "t.dat")) == {"u": ["1", "3"], "v": ["2", "4.5"]}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("39,State-gov,13\n50,Private,9\n", ["x0", "x1", "x2"]),  # numbers in line 1
        ("red,yes\nblue,no\nred,yes\nred,no\n", ["x0", "x1"]),  # all text, and it occurs again
        ("colour,answer\nblue,no\nred,yes\n", ["colour", "answer"]),
        ("age,work\n39,a\n50,b\n", ["age", "work"]),
    ],
)
def test_whether_the_first_line_holds_names(tmp_path, text, names):
    (tmp_path / "t.csv").write_text(text)
    assert read_frame(tmp_path / "t.csv").names == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("\n \n\n", "the file is empty"),
        (";;;\n;;;\n", "the file is empty"),
        ("a;b\n", "column names, but no rows"),
        ("a;b\n1;x\n2\n", "line 3: 1 cells; wanted 2 cells"),
        ("a;b\n1;x\n2;y;z\n", "line 3: 3 cells; wanted 2 cells"),
        ("a;a\n1;x\n", "both called 'a'"),
        ('a;b\n1;"x\n', "line 2: not a row of cells"),
        ("a;2019\n1;x\n2;y\n", "line 1: 'a' is a name, but '2019' a number"),
    ],
)
def test_faults_of_text(tmp_path, text, message):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(BadFile, match=message):
        read_frame(tmp_path / "t.csv")


def test_faults_of_bytes(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"a,b\nx,y\n\xff,z\n")
    with pytest.raises(BadFile, match="line 3: not UTF-8"):
        read_frame(tmp_path / "t.csv")
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a,b\nx,y\n" * 99)[:20])
    with pytest.raises(BadFile, match="not a gzip file"):
        read_frame(tmp_path / "t.csv.gz")
    with pytest.raises(BadFile, match="unknown kind of table '.xlsx'"):
        read_frame(tmp_path / "t.xlsx")
    with pytest.raises(FileNotFoundError, match="this is a folder; name a file"):
        read_frame(tmp_path)
    (tmp_path / "t.csv").write_bytes(b"a,b\rx,y\rz,w\r")
    with pytest.raises(BadFile, match="line 1: a carriage return inside a row; save"):
        read_frame(tmp_path / "t.csv")


@pytest.mark.parametrize("other", ["0.5", "x"])
def test_numbers_keep_all_their_digits(tmp_path, other):
    """As the words of a table do, whatever its other columns hold."""
    rows = [["20240115", "1234567.89", "02139"], ["20240116", "1234568.91", "90210"]]
    lines = [",".join([*row, other]) for row in rows]
    (tmp_path / "t.csv").write_text("day,money,zip,other\n" + "\n".join(lines) + "\n")
    frame = read_frame(tmp_path / "t.csv")
    assert [float(cell) for cell in frame.cells["day"]] == [20240115, 20240116]
    assert [float(cell) for cell in frame.cells["money"]] == [1234567.89, 1234568.91]
    assert frame.cells["zip"].tolist() == ["02139", "90210"]


def test_whole_numbers_beyond_those_of_a_float_stay_text(tmp_path):
    (tmp_path / "t.csv").write_text("id,x\n105845656512745123,0.5\n105845656512745124,0.7\n")
    found = read_frame(tmp_path / "t.csv").cells["id"]
    assert found.tolist() == ["105845656512745123", "105845656512745124"]


def test_numbers_of_unknown_columns_are_written_as_they_are(tmp_path):
    numbers = np.array([1234567, 20240116, 0.1])
    columns = {"id": numbers, "single": numbers.astype(np.float32), "none": [None, float("nan"), 2]}
    write_frame(tmp_path / "t.csv", columns)
    lines = (tmp_path / "t.csv").read_text().splitlines()
    assert lines[1:] == ["1234567,1234567,", "20240116,20240116,", "0.1,0.1,2"]


def test_arrays_by_name(tmp_path):
    np.savez(tmp_path / "t.npz", train=np.eye(2), words=np.array([["a", "b"]]))
    with pytest.raises(BadFile, match="train, words; name one as t.npz:train"):
        read_frame(tmp_path / "t.npz")
    assert cells(read_frame(tmp_path / "t.npz:words")) == {"x0": ["a"], "x1": ["b"]}
    np.testing.assert_array_equal(read_table(tmp_path / "t.npz:train").values, np.eye(2))
    with pytest.raises(BadFile, match="no array is called 'test'"):
        read_frame(tmp_path / "t.npz:test")


@pytest.mark.parametrize(
    "change", [(10, b"{'descr'"), (70, b"("), (60, b"9999999999"), (8, b"\xff")]
)
def test_damaged_headers_of_arrays(tmp_path, change):
    np.save(tmp_path / "t.npy", np.zeros((5, 4)))
    data = bytearray((tmp_path / "t.npy").read_bytes())
    at, new = change
    data[at : at + len(new)] = new[::-1] if at == 10 else new
    (tmp_path / "t.npy").write_bytes(bytes(data))
    with pytest.raises(BadFile, match=r"t\.npy"):
        read_table(tmp_path / "t.npy")


def test_a_header_that_promises_too_much_takes_no_memory(tmp_path):
    with open(tmp_path / "t.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f8", "fortran_order": False, "shape": (10**9, 10**6)}
        )
    with pytest.raises(BadFile, match="too short"):
        read_table(tmp_path / "t.npy")


def test_pandas_frames_keep_names_and_categories():
    pandas = pytest.importorskip("pandas")
    frame = as_frame(
        pandas.DataFrame(
            {
                "size": pandas.Categorical(["s", None, "l"], categories=["s", "m", "l"]),
                "n": [1.0, None, 3.0],
                "on": [True, False, True],
                "when": pandas.to_datetime(["2020-01-01", None, "2020-01-03"]),
            }
        )
    )
    assert frame.names == ["size", "n", "on", "when"]
    assert frame.categories == {"size": ("s", "m", "l")}
    np.testing.assert_array_equal(frame.cells["n"], [1, np.nan, 3])
    assert frame.cells["when"][0].startswith("2020-01-01") and frame.cells["when"][1] is None


@pytest.mark.parametrize(("library", "make"), [("polars", "DataFrame"), ("pyarrow", "table")])
def test_polars_and_arrow(tmp_path, library, make):
    own = {"a": ["x", None, "y"], "b": [1, None, 3], "c": [True, None, False]}
    frame = as_frame(getattr(pytest.importorskip(library), make)(own))
    assert [c for c in frame.cells["a"] if c] == ["x", "y"]
    np.testing.assert_array_equal(frame.cells["b"], [1, np.nan, 3])
    pytest.importorskip("pyarrow", reason="needs the extra parquet")
    for name in ("t.parquet", "t.arrow"):
        write_frame(tmp_path / name, own)
        frame = read_frame(tmp_path / name)
        assert frame.cells["a"].tolist() == ["x", None, "y"]
        assert frame.cells["c"].tolist() == [True, None, False]
        data = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(data[: len(data) // 2])
        with pytest.raises(BadFile, match="damaged"):
            read_frame(tmp_path / name)


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz"])
def test_what_is_written_is_read(tmp_path, name):
    write_frame(tmp_path / name, {"a": ['x,"', "", "é\nü"], "b": [1.5, float("nan"), 3.0]})
    assert cells(read_frame(tmp_path / name)) == {"a": ['x,"', "", "é\nü"], "b": ["1.5", "", "3"]}


def test_rows_and_mappings_are_tables():
    assert cells(as_frame([["a", 1], ["b", 2]])) == {"x0": ["a", "b"], "x1": ["1", "2"]}
    with pytest.raises(BadFile, match="'b' has 1 cells"):
        as_frame({"a": [1, 2], "b": [1]})
    for column, shape in ((3, r"\(\)"), (np.zeros((2, 2)), r"\(2, 2\)")):
        with pytest.raises(BadFile, match=rf"'b' has shape {shape}; pass one cell for each row"):
            as_frame({"a": [1, 2], "b": column})
    with pytest.raises(UndirectedError, match=r"a list of shape \(2,\); pass a data frame"):
        as_frame([[1, 2], [3]])


def test_columns_of_one_name_are_refused():
    pandas = pytest.importorskip("pandas")
    twice = pandas.DataFrame([[1, 2], [3, 4]], columns=["a", "a"])
    for table in (twice, {1: [1, 2], "1": [3, 4]}):
        with pytest.raises(BadFile, match="columns 1 and 2 are both called '.'; rename one"):
            as_frame(table)


def test_cells_that_hold_arrays_are_as_text():
    arrays = np.array([np.zeros(2), np.ones(2), None], object)[:-1]
    frame = as_frame({"a": arrays, "b": [[1], [2, 3]]})
    assert cells(frame) == {"a": ["[0. 0.]", "[1. 1.]"], "b": ["[1]", "[2, 3]"]}


def test_an_arrow_file_whose_offsets_lead_astray_is_refused(tmp_path):
    """Words are found by their offsets: read as they are, these would be outside of the file."""
    pytest.importorskip("pyarrow", reason="needs the extra parquet")
    write_frame(tmp_path / "t.arrow", {"word": ["one", "three", "seven"]})
    good = (tmp_path / "t.arrow").read_bytes()
    offsets = np.array([0, 3, 8, 13], np.int32).tobytes()
    assert good.count(offsets) == 1
    astray = np.array([0, 3, 2**30, 2**30 + 5], np.int32).tobytes()
    (tmp_path / "t.arrow").write_bytes(good.replace(offsets, astray))
    with pytest.raises(BadFile, match=r"t\.arrow: damaged"):
        read_frame(tmp_path / "t.arrow")


def test_a_full_disk_leaves_the_old_table_and_is_told_with_what_to_do(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    write_frame(path, {"sky": ["grey"]})

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(delimited, "write", full)
    with pytest.raises(OSError, match=r"a\.csv: the table was not written \(No space.*make room"):
        write_frame(path, {"sky": ["dark"]})
    assert path.read_text() == "sky\ngrey\n"
    assert list(tmp_path.iterdir()) == [path]
