"""Damaged tables and model folders: every command ends with one message, never with a traceback."""

import hashlib
import io
import sys
import zlib
from dataclasses import asdict

import numpy as np
import pytest
import safetensors.numpy

import undirected as un
from tests.io.damage import mutated, seal
from undirected.cli import main
from undirected.core.errors import UndirectedError
from undirected.io.frames import write_frame
from undirected.io.model_files import save_model
from undirected.io.model_record import describe_model
from undirected.tasks.table_model import TableModel

TABLES = 1000
FOLDERS = 500
CELLS = ["", "NA", '"', "1e999", "-inf", "é", "\x00", "0x1", "a;b", "\t", "9" * 400, "1_0", "yes"]


class Stopped(UndirectedError):
    """Raised in place of the work that follows reading."""


@pytest.fixture
def call(monkeypatch, capsys):
    """Run a command that stops before it computes; gives the exit code and standard error."""

    def stop(*_, **__):
        raise Stopped("read to the end")

    monkeypatch.setattr("undirected.cli.train.train_with_bar", stop)
    monkeypatch.setattr(TableModel, "answers_and_status", stop)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["undirected", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or 0, capsys.readouterr().err

    return run


def columns(rows, rng):
    return {
        "id": [f"p{i}" for i in range(rows)],
        "age": rng.integers(18, 90, rows).astype(str).tolist(),
        "answer": rng.choice(["yes", "no", ""], rows).tolist(),
        "colour": rng.choice(["red", "green", "blue"], rows).tolist(),
        "gain": [f"{x:.2f}" for x in np.maximum(0, rng.normal(size=rows))],
    }


def tables(folder, rng):
    """A good file of every kind that is read."""
    own = columns(40, rng)
    write_frame(folder / "t.csv", own)
    write_frame(folder / "t.tsv", own)
    write_frame(folder / "t.csv.gz", own)
    bits = rng.integers(0, 2, (40, 5)).astype(np.float32)
    un.write_table(folder / "b.csv", bits)
    np.save(folder / "b.npy", bits)
    np.savez(folder / "b.npz", x=bits, names=np.array(list("abcde")))
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        pass
    else:
        write_frame(folder / "t.parquet", own)
        write_frame(folder / "t.arrow", own)
    return sorted(path for path in folder.iterdir() if path.is_file())


def mutate(data, rng):
    """Bytes turned over, cut out, put in, or doubled; or a cell that becomes a strange one."""
    data = bytearray(data)
    at = int(rng.integers(len(data)))
    match int(rng.integers(6)):
        case 0:
            data[at] ^= 1 << int(rng.integers(8))
        case 1:
            del data[at:]
        case 2:
            del data[at : at + int(rng.integers(1, 40))]
        case 3:
            data[at:at] = bytes(rng.integers(0, 256, int(rng.integers(1, 20)), np.uint8))
        case 4:
            data[at:at] = data[at : at + int(rng.integers(1, 200))]
        case _:
            cells = bytes(data).split(b",")
            cells[int(rng.integers(len(cells)))] = CELLS[int(rng.integers(len(CELLS)))].encode()
            data = bytearray(b",".join(cells))
    return bytes(data)


@pytest.mark.slow
def test_damaged_tables_are_refused_or_read(call, tmp_path):
    """1,000 files of every kind, seed 0: exit 1 and one message, that of the stop if it is read."""
    rng = np.random.default_rng(0)
    (tmp_path / "good").mkdir()
    files, read = tables(tmp_path / "good", rng), 0
    for number in range(TABLES):
        path = files[number % len(files)]
        bad = tmp_path / path.name
        bad.write_bytes(mutate(path.read_bytes(), rng))
        code, err = call("fit", bad, "--out", tmp_path / "m", "--fresh")
        assert code == 1 and "error:" in err and "Traceback" not in err, (number, path.name, err)
        read += "read to the end" in err
    assert TABLES // 20 < read < TABLES


def folders(place):
    """Model folders with all that a fit writes down."""
    table = un.Schema(
        (
            un.Column("age", "real", mean=40.0, scale=9.0),
            un.Column("colour", "category", ("red", "green", "blue")),
            un.Column("answer", "binary", ("no", "yes"), missing=3),
        ),
        {"id": "nearly unique"},
        "answer",
    )
    notes = {"settings": asdict(un.Settings()), "rows": 40, "scores": {"validation_x": 1.5}}
    mixed = un.MixedRBM.create(table, 3, seed=0)
    columns = [[[0.1, 1.0]], [[0.2, 0.3, 0.5]], [[0.4, 0.6]]]
    own = {"names": table.names, "schema": table.to_json()}
    own |= {"yardsticks": {"alone": {"log_weights": [0.0], "columns": columns}}}
    save_model(place / "mixed", mixed, notes | own)
    half = {"log_weights": [-0.7, -0.7], "means": [[0.2] * 4, [0.7] * 4]}
    more = {"names": list("abcd"), "image": [2, 2], "means": [0.5] * 4, "yardsticks": {"two": half}}
    rbm = un.RBM.create(4, 3, seed=0)
    save_model(place / "rbm", rbm, notes | more | {"query": {"layers": 10, "strength": 1.0}})
    save_model(place / "ising", un.Ising.create(4), notes | {"names": list("abcd")})
    return [place / name for name in ("mixed", "rbm", "ising")]


@pytest.mark.slow
def test_edited_model_folders_are_refused_or_read(call, tmp_path):
    """500 folders with one note or field changed and sealed again, seed 0."""
    rng, answered = np.random.default_rng(0), 0
    places = folders(tmp_path)
    (tmp_path / "mixed.csv").write_text("age,colour,answer\n3,,yes\n")
    for name in ("rbm", "ising"):
        (tmp_path / f"{name}.csv").write_text("a,b,c,d\n0,1,,1\n")
    for number in range(FOLDERS):
        folder = places[number % len(places)]
        before = (folder / "model.json").read_text()
        what, record = mutated(describe_model(folder), rng)
        seal(folder, record)
        for command in (["describe", folder], ["query", folder, tmp_path / f"{folder.name}.csv"]):
            code, err = call(*command)
            assert code in (0, 1) and "Traceback" not in err, (number, folder.name, what, err)
            assert code == 0 or "error:" in err, (number, folder.name, what, err)
            answered += "read to the end" in err
        (folder / "model.json").write_text(before)
    assert FOLDERS // 10 < answered < FOLDERS


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused(call, tmp_path, value):
    place = folders(tmp_path)[1]
    arrays = safetensors.numpy.load_file(place / "model.safetensors")
    name = next(iter(arrays))
    arrays[name] = np.full_like(arrays[name], value)
    data = safetensors.numpy.save(arrays)
    (place / "model.safetensors").write_bytes(data)
    seal(place, describe_model(place) | {"tensors_sha256": hashlib.sha256(data).hexdigest()})
    code, err = call("describe", place)
    assert code == 1 and "NaN or infinite entries" in " ".join(err.split())


def test_a_good_table_reaches_the_work(call, tmp_path):
    for path in tables(tmp_path, np.random.default_rng(0)):
        code, err = call("fit", path, "--out", tmp_path / "m", "--fresh")
        assert code == 1 and "read to the end" in err, err


def test_a_damaged_archive_is_refused(call, tmp_path):
    """A checksum that is right beside numbers that are not of the header's size."""
    buffer = io.BytesIO()
    np.savez(buffer, x=np.zeros((4, 4)))
    data = bytearray(buffer.getvalue())
    place = bytes(data).index(b"(4, 4)")
    data[place : place + 6] = b"(9, 9)"
    start = bytes(data).index(b"\x93NUMPY")
    size = 128 + 4 * 4 * 8
    crc = zlib.crc32(bytes(data[start : start + size]))
    old = zlib.crc32(buffer.getvalue()[start : start + size]).to_bytes(4, "little")
    (tmp_path / "t.npz").write_bytes(bytes(data).replace(old, crc.to_bytes(4, "little")))
    code, err = call("fit", tmp_path / "t.npz", "--out", tmp_path / "m")
    assert code == 1 and "t.npz: damaged" in " ".join(err.split())
