import contextlib
import errno
import io
import os
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from undirected.core.errors import BadFile
from undirected.io import csv_text
from undirected.io.tables import read_table, write_table

NAN = np.nan
fixed = settings(deadline=None, derandomize=True, database=None)


def table(tmp_path, text: str | bytes, **options):
    path = tmp_path / "t.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_table(path, **options)


def check(got, names, values):
    assert got.names == names
    assert got.values.dtype == np.float32
    np.testing.assert_array_equal(got.values, np.array(values, np.float32))


@pytest.mark.parametrize(
    ("text", "names", "values"),
    [
        ("a,b\n0,1\n1,0\n", ["a", "b"], [[0, 1], [1, 0]]),
        ("a,b\n0,1\n1,0", ["a", "b"], [[0, 1], [1, 0]]),
        ("a,b\r\n0,1\r\n1,0\r\n", ["a", "b"], [[0, 1], [1, 0]]),
        ("\ufeffa,b\n0,1\n", ["a", "b"], [[0, 1]]),
        ("0,1\n1,0\n\n\r\n\n", ["x0", "x1"], [[0, 1], [1, 0]]),
        ("\ufeff0,1\n", ["x0", "x1"], [[0, 1]]),
        ('"a, b"," c ""d"""\n0,1\n', ["a, b", 'c "d"'], [[0, 1]]),
        ('"two\nlines",b\n0,1\n', ["two\nlines", "b"], [[0, 1]]),
        ("é,ü\n1.5,-2e3\n", ["é", "ü"], [[1.5, -2000]]),
        (",b\n0,1\n", ["x0", "b"], [[0, 1]]),
        ("0,1,2\n1,1,1\n", ["0", "1", "2"], [[1, 1, 1]]),
        ("a,b,c,d\n,NA,?,NaN\n1,,0,nan\n", list("abcd"), [[NAN] * 4, [1, NAN, 0, NAN]]),
        ("a,b,c\n,,\n?,1,\n", list("abc"), [[NAN] * 3, [NAN, 1, NAN]]),
        ("a,b,c\n,,\n0.5,,\n,,1.5\n", list("abc"), [[NAN] * 3, [0.5, NAN, NAN], [NAN, NAN, 1.5]]),
        ("a,b\n 0 , 1\n1,\t0\n", ["a", "b"], [[0, 1], [1, 0]]),
        ("a, b\n0, 1\n1, \n", ["a", "b"], [[0, 1], [1, NAN]]),
        ('a,b\n"0","1"\n"",1\n', ["a", "b"], [[0, 1], [NAN, 1]]),
        ("a\n1\n\n0\n\n", ["a"], [[1], [NAN], [0]]),
        ("NaN,1\n0,1\n", ["x0", "x1"], [[NAN, 1], [0, 1]]),
        ("0.1,.5,5.,+1,-0,1E-2,007\n", [f"x{i}" for i in range(7)], [[0.1, 0.5, 5, 1, 0, 0.01, 7]]),
    ],
)
def test_forms_of_csv(tmp_path, text, names, values):
    check(table(tmp_path, text), names, values)


def test_names_that_are_numbers_are_written_and_read_where_asked(tmp_path):
    for kind in ("csv", "npz"):
        path = tmp_path / f"t.{kind}"
        write_table(path, np.array([[0, 1]]), ["2019", "b"], header=True)
        check(read_table(path, header=True), ["2019", "b"], [[0, 1]])
        with pytest.raises(BadFile, match="--header"):
            read_table(path)


def test_header_may_be_forced(tmp_path):
    check(table(tmp_path, "2019,2020\n0,1\n", header=True), ["2019", "2020"], [[0, 1]])
    check(
        table(tmp_path, "0,1,2\n1,1,1\n", header=False), ["x0", "x1", "x2"], [[0, 1, 2], [1, 1, 1]]
    )


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, r"t.csv: the file is empty"),
        ("\n\r\n\n", {}, r"t.csv: the file is empty"),
        ("  \n", {}, r"t.csv: the file is empty"),
        ("\ufeff", {}, r"t.csv: the file is empty"),
        ("a,b\n", {}, r"t.csv: the file has column names, but no rows"),
        ("a,b", {}, r"t.csv: the file has column names, but no rows"),
        ("\na,b\n0,1\n", {}, r"line 1: an empty line"),
        ("a,b\n0,1\n0\n", {}, r"line 3: 1 cells; wanted 2 cells"),
        ("a,b\n0,1,1\n0\n", {}, r"line 2: 3 cells; wanted 2 cells"),
        ("a,b\n0,1\n\n0,1\n", {}, r"line 3: an empty line; wanted 2 cells"),
        ("a,b\n0,1\n0,1,\n", {}, r"line 3: 3 cells; wanted 2"),
        ("a,b\n0,1\n0,yes\n", {}, r"line 3, column 2 \(b\): 'yes' is not a number"),
        ("a,b\n0,1\n0,0x10\n", {}, r"line 3, column 2 \(b\): '0x10' is not a number"),
        ("a,b\n0,1_0\n", {}, r"line 2, column 2 \(b\): '1_0' is not a number"),
        ("a,b\n0,1 0\n", {}, r"line 2, column 2 \(b\): '1 0' is not a number"),
        ("a,b\n0,nan(1)\n", {}, r"line 2, column 2 \(b\): 'nan\(1\)' is not a number"),
        ("a\n0;1\n", {}, r"'0;1' is not a number .*; cells are separated by commas"),
        ("0,1\nx,1\n", {}, r"line 2, column 1 \(x0\): 'x' is not a number"),
        ("0,x\n1,1\n", {}, r"line 1: 'x' is a name, but '0' a number; rename the column"),
        ("a,b,a\n0,1,0\n", {}, r"columns 1 and 3 are both called 'a'"),
        ("a,b\n0,1\n2,0\n", {"binary": True}, r"line 3, column 1 \(a\): 2 is neither 0 nor 1"),
        ("a,b\n0,0.5\n", {"binary": True}, r"line 2, column 2 \(b\): 0.5 is neither 0 nor 1"),
        ("a,b\n0,-1\n", {"binary": True}, r"line 2, column 2 \(b\): -1 is neither 0 nor 1"),
        ("a,b\n,-1\n1,-1\n", {"binary": True}, r"-1 is neither.*for spins write \(s \+ 1\) / 2"),
        ("a,b\n0,1\n,1\n", {"missing": False}, r"line 3, column 1 \(a\): nan is a missing value"),
        ("a,b\n0,inf\n", {}, r"line 2, column 2 \(b\): inf is beyond the range of float32"),
        ("a,b\n0,1e39\n", {}, r"line 2, column 2 \(b\): inf is beyond the range of float32"),
        ('"x\ny",b\n0,1\n0,z\n', {}, r"line 4, column 2 \(b\): 'z'"),
        ('a,b\n"0,1\n1,1\n', {}, r"line 3: not a CSV row \(a quoted cell goes over"),
        ("a,b\n0\r1,1\n", {}, r"line 2: not a CSV row"),
        ("a,b\r0,1\r", {}, r"line 1: not a CSV row"),
        (b"a,b\n0,1\n0,\xff\n", {}, r"line 3: not UTF-8"),
        (b"\xff\xfea\0", {}, r"line 1: not UTF-8"),
        (b"a\0,b\n0,1\0\n", {}, r"line 2, column 2 \(b\): '1\\x00' is not a number"),
    ],
)
def test_each_fault_has_its_message(tmp_path, text, options, message):
    with pytest.raises(BadFile, match=message):
        table(tmp_path, text, **options)


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none.csv: no such file"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(FileNotFoundError, match="this is a folder"):
        read_table(tmp_path / "d.csv")
    for act in (read_table, lambda path: write_table(path, np.zeros((1, 1)))):
        with pytest.raises(
            BadFile, match=r"unknown kind of table '.xlsx'; wanted .csv, .npy or .npz"
        ):
            act(tmp_path / "a.xlsx")


def test_lines_are_counted_across_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_text, "CHUNK", 50)
    rows = [[i % 2, (i + 1) % 2, i] for i in range(200)]
    text = "a,b,c\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)
    check(table(tmp_path, text), ["a", "b", "c"], rows)
    check(table(tmp_path, text.replace("\n", "\r\n") + "\r\n" * 80), ["a", "b", "c"], rows)
    with pytest.raises(BadFile, match=r"line 152, column 3 \(c\): 'x' is not"):
        table(tmp_path, text.replace(",150\n", ",x\n"))
    with pytest.raises(BadFile, match=r"line 152: 2 cells"):
        table(tmp_path, text.replace(",150\n", "\n"))
    with pytest.raises(BadFile, match=r"line 152: not UTF-8"):
        table(tmp_path, text.encode().replace(b",150\n", b",\xff\n"))
    with pytest.raises(BadFile, match=r"line 4, column 3 \(c\): 2 is neither"):
        table(tmp_path, text, binary=True)


CELLS = ["0", "1", "9", "", "?", "NA", "nan", "NaN", "0.5", "-1", "+2", "1e3", "1E-3", ".5", "3."]
ODD = [
    *CELLS,
    " 1",
    "1 ",
    "-",
    "e",
    "1e",
    "NA1",
    "??",
    "n",
    "na",
    "--1",
    "1.2.3",
    "x",
    '"1"',
    "inf",
]


def oracle(cell: str) -> float:
    cell = cell.strip().strip('"')
    return NAN if cell in ("", "NA", "?") else float(cell)


@fixed
@given(st.lists(st.lists(st.sampled_from(CELLS), min_size=3, max_size=3), min_size=1, max_size=5))
def test_the_fast_way_reads_what_a_plain_reader_reads(rows):
    chunk = "".join(",".join(row) + "\n" for row in rows).encode()
    wanted = np.array([[oracle(cell) for cell in row] for row in rows])
    np.testing.assert_array_equal(csv_text.parse(chunk, 3), wanted)
    source = csv_text.Source(Path("t"), ["a", "b", "c"], 1)
    np.testing.assert_array_equal(csv_text.parse_slowly(chunk, 0, source), wanted)


@fixed
@given(st.lists(st.lists(st.sampled_from(ODD), min_size=1, max_size=3), min_size=1, max_size=4))
def test_the_fast_way_declines_what_it_does_not_understand(rows):
    chunk = "".join(",".join(row) + "\n" for row in rows).encode()
    got = csv_text.parse(chunk, 2)
    if got is not None:
        wanted = np.array([[oracle(cell) for cell in row] for row in rows])
        np.testing.assert_array_equal(got, wanted)


@fixed
@given(st.binary(max_size=60))
def test_any_bytes_give_a_table_or_a_clear_error(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(data)
    with contextlib.suppress(BadFile):
        got = read_table(path)
        assert got.values.ndim == 2
        assert 0 not in got.values.shape
        assert len(got.names) == got.values.shape[1]


@pytest.mark.parametrize("suffix", [".csv", ".npy", ".npz"])
@fixed
@given(
    values=arrays(
        np.float32,
        array_shapes(min_dims=2, max_dims=2, max_side=4),
        elements=st.floats(width=32, allow_infinity=False) | st.sampled_from([0.0, 1.0, -0.0, NAN]),
    )
)
def test_round_trip_is_exact(tmp_path_factory, suffix, values):
    path = tmp_path_factory.getbasetemp() / f"round{suffix}"
    names = [f"v,{i}" for i in range(values.shape[1])]
    write_table(path, values, names)
    got = read_table(path)
    assert got.names == (names if suffix != ".npy" else [f"x{i}" for i in range(len(names))])
    np.testing.assert_array_equal(got.values, values)
    known = ~np.isnan(values)
    np.testing.assert_array_equal(np.signbit(got.values)[known], np.signbit(values)[known])


def test_binary_with_missing_values_is_written_blank(tmp_path):
    write_table(tmp_path / "a.csv", np.array([[0, NAN, 1], [1, 1, NAN]]), ["a", "b", "c"])
    assert (tmp_path / "a.csv").read_text() == "a,b,c\n0,,1\n1,1,\n"
    write_table(tmp_path / "b.csv", np.array([[0.5, NAN], [10, 1e-5]]))
    assert (tmp_path / "b.csv").read_text() == "x0,x1\n0.5,\n10,1e-05\n"
    write_table(tmp_path / "c.csv", np.array([[1], [NAN]]))
    assert (tmp_path / "c.csv").read_text() == "x0\n1\nnan\n"


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int8, np.int64, np.float16, np.float64])
def test_arrays_of_any_number_type(tmp_path, dtype):
    values = np.array([[0, 1], [1, 1]], dtype)
    np.save(tmp_path / "a.npy", values)
    np.savez(tmp_path / "a.npz", values)
    np.savez_compressed(tmp_path / "b.npz", x=values, other=np.zeros(3))
    for name in ("a.npy", "a.npz", "b.npz"):
        check(read_table(tmp_path / name, binary=True, missing=False), ["x0", "x1"], values)


@pytest.mark.parametrize(
    ("array", "options", "message"),
    [
        (np.zeros(3), {}, r"shape \(3,\); wanted 2 axes: reshape\(-1, 1\)"),
        (np.zeros(()), {}, r"shape \(\); wanted 2 axes"),
        (np.zeros((2, 2, 2)), {}, r"shape \(2, 2, 2\); wanted 2 axes: reshape\(len\(x\), -1\)"),
        (np.zeros((3, 0)), {}, r"shape \(3, 0\), no values"),
        (np.zeros((0, 3)), {}, r"shape \(0, 3\), no values"),
        (np.array([["a"]]), {}, r"dtype <U1; wanted numbers"),
        (np.array([[1j]]), {}, r"dtype complex128; wanted numbers"),
        (np.array([[1e39]]), {}, r"entry \[0, 0\]: inf is beyond the range of float32"),
        (np.array([[0, 2]]), {"binary": True}, r"entry \[0, 1\]: 2 is neither 0 nor 1"),
        (np.array([[0], [NAN]]), {"missing": False}, r"entry \[1, 0\]: nan is a missing value"),
    ],
)
def test_arrays_that_are_not_tables(tmp_path, array, options, message):
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", x=array)
    for name in ("a.npy", "a.npz"):
        with pytest.raises(BadFile, match=f"{name}.*{message}"):
            read_table(tmp_path / name, **options)


def test_places_far_down_an_array(tmp_path):
    values = np.zeros((9000, 2), np.float32)
    values[8191, 1] = 2
    np.save(tmp_path / "a.npy", values)
    with pytest.raises(BadFile, match=r"entry \[8191, 1\]: 2 is neither"):
        read_table(tmp_path / "a.npy", binary=True)


def test_archives_name_their_arrays(tmp_path):
    np.savez(tmp_path / "a.npz", train=np.zeros((2, 2)), test=np.zeros((2, 2)))
    with pytest.raises(BadFile, match="one called 'x'; the arrays are: train, test"):
        read_table(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", x=np.zeros((2, 2)), names=np.array(["a"]))
    with pytest.raises(BadFile, match="1 names for 2 columns"):
        read_table(tmp_path / "b.npz")
    np.savez(tmp_path / "c.npz")
    with pytest.raises(BadFile, match="the arrays are: none"):
        read_table(tmp_path / "c.npz")


def test_pickles_are_never_opened(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    objects = np.array([[Trap()]], dtype=object)
    np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "a.npz", x=objects, allow_pickle=True)
    (tmp_path / "b.npy").write_bytes(pickle.dumps(Trap()))
    for name in ("a.npy", "a.npz", "b.npy"):
        with pytest.raises(BadFile, match=f"{name}: damaged, or not an array of numbers"):
            read_table(tmp_path / name)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_cut_arrays_are_noticed(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    write_table(path, np.ones((5, 4), np.float32))
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(BadFile, match="damaged, or not"):
            read_table(path)


def test_writing_refuses_what_could_not_be_read_back(tmp_path):
    path = tmp_path / "a.csv"
    with pytest.raises(ValueError, match="1 names for 2 columns"):
        write_table(path, np.zeros((1, 2)), ["a"])
    with pytest.raises(ValueError, match=r"\['1', '2'\] would be read as numbers"):
        write_table(path, np.zeros((1, 2)), ["1", "2"])
    with pytest.raises(ValueError, match="both called 'a'"):
        write_table(path, np.zeros((1, 2)), ["a", "a"])
    with pytest.raises(ValueError, match=r"entry \[0, 1\]: inf"):
        write_table(path, np.array([[0, np.inf]]))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", [".csv", ".npy", ".npz"])
def test_a_full_disk_leaves_the_old_table(tmp_path, suffix, monkeypatch):
    path = tmp_path / f"a{suffix}"
    write_table(path, np.ones((2, 2)))

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(csv_text, "write", full)
    monkeypatch.setattr(np, "save", full)
    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match=r"not written \(No space left.* intact"):
        write_table(path, np.zeros((2, 2)))
    monkeypatch.undo()
    assert (read_table(path).values == 1).all()
    assert list(tmp_path.iterdir()) == [path]


def test_memory_stays_near_the_size_of_the_result(tmp_path):
    """No Python object a cell: 3 million cells would take over 100 MB as objects."""
    path = tmp_path / "a.csv"
    values = np.random.default_rng(0).integers(0, 2, (10_000, 300)).astype(np.float32)
    write_table(path, values)
    tracemalloc.start()
    got = read_table(path, binary=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(got.values, values)
    assert peak < values.nbytes + 20 * csv_text.CHUNK


def test_names_are_quoted_where_needed():
    file = io.BytesIO()
    csv_text.write(file, np.array([[0, 1]], np.float32), ["a b", 'c"d'])
    assert file.getvalue() == b'a b,"c""d"\n0,1\n'


def test_names_of_an_archive_are_not_numbers(tmp_path):
    for names in (["1", "2", "nan"], ["a", "Infinity", "b"]):
        np.savez(tmp_path / "t.npz", x=np.zeros((2, 3)), names=names)
        with pytest.raises(BadFile, match="would be read as a number; rename it"):
            read_table(tmp_path / "t.npz")
    np.savez(tmp_path / "t.npz", x=np.zeros((2, 3)), names=["0", "1", "2"])
    assert read_table(tmp_path / "t.npz").names == ["0", "1", "2"]
