import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from tests.io.damage import damaged, seal
from tests.io.toy import Toy
from undirected.core.errors import BadFile, UndirectedError
from undirected.io import model_files, model_record
from undirected.io.model_files import load_model, save_model
from undirected.io.model_record import describe_model

KNOWN = {"Toy": Toy}


def same(a, b) -> bool:
    """Equal structure, dtypes and bits."""
    return jax.tree.structure(a) == jax.tree.structure(b) and all(
        np.asarray(x).dtype == np.asarray(y).dtype
        and np.asarray(x).tobytes() == np.asarray(y).tobytes()
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


def rewrite(folder: Path, **changes) -> None:
    """Change fields of model.json and seal it again, as a careful forger would."""
    seal(folder, json.loads((folder / "model.json").read_text()) | changes)


def swap_tensors(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    """Put other arrays under model.json, with their right checksum."""
    data = safetensors.numpy.save(arrays)
    (folder / "model.safetensors").write_bytes(data)
    rewrite(folder, tensors_sha256=hashlib.sha256(data).hexdigest())


def test_round_trip_is_exact_and_leaves_two_files(tmp_path):
    model = Toy(
        jnp.asarray(np.array([[3e38, -0.0], [-0.1, 1e-45]], np.float32)),
        jnp.asarray(np.array([1, 2], np.float32)),
        jnp.asarray(np.array([7, -1], np.int32)),
        scale=0.1,
        name="mine",
    )
    extra = {"image": (2, 1), "names": ["α", "b"], "loss": float("nan"), "n": np.int64(3)}
    save_model(tmp_path / "a" / "b", model, extra)
    loaded = load_model(tmp_path / "a" / "b", KNOWN)
    assert same(model, loaded)
    assert loaded.scale == 0.1
    assert isinstance(loaded.scale, float)
    assert {p.name for p in (tmp_path / "a" / "b").iterdir()} == {"model.json", "model.safetensors"}
    record = describe_model(tmp_path / "a" / "b")
    assert record["extra"]["image"] == [2, 1]
    assert record["extra"]["n"] == 3
    assert record["extra"]["names"] == ["α", "b"]
    assert np.isnan(record["extra"]["loss"])
    assert record["class"] == "Toy"
    assert record["model"]["fields"]["name"] == "mine"
    assert [block["size"] for block in record["layout"]] == [2, 2]


def test_files_are_what_the_format_says(tmp_path):
    save_model(tmp_path, Toy.filled(2))
    arrays = safetensors.numpy.load_file(tmp_path / "model.safetensors")
    assert set(arrays) == {"weights", "bias", "wiring"}
    assert arrays["weights"].tolist() == np.full((4, 3), 2).tolist()

    def refuse(word):
        raise AssertionError(f"{word} is not strict JSON")

    record = json.loads((tmp_path / "model.json").read_text(), parse_constant=refuse)
    data = (tmp_path / "model.safetensors").read_bytes()
    assert record["tensors_sha256"] == hashlib.sha256(data).hexdigest()


def test_saving_the_same_model_gives_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        save_model(tmp_path / name, Toy.filled(1), {"k": 1})
    for file in ("model.json", "model.safetensors"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_transposed_arrays_keep_their_values(tmp_path):
    weights = np.arange(6, dtype=np.float32).reshape(2, 3).T
    model = eqx.tree_at(lambda m: m.weights, Toy.filled(0, (3, 2)), weights)
    save_model(tmp_path, model)
    assert load_model(tmp_path, KNOWN).weights.tolist() == weights.tolist()


def test_dtypes_survive(tmp_path):
    model = jax.tree.map(
        lambda x: x.astype(jnp.bfloat16) if eqx.is_inexact_array(x) else x, Toy.filled(1.5)
    )
    save_model(tmp_path, model)
    assert load_model(tmp_path, KNOWN).weights.dtype == jnp.bfloat16
    assert same(model, load_model(tmp_path, KNOWN))


def test_float64_is_not_narrowed_silently(tmp_path):
    with jax.enable_x64(True):
        model = eqx.tree_at(lambda m: m.bias, Toy.filled(1), jnp.asarray(np.full(4, 0.1)))
        save_model(tmp_path, model)
        assert same(model, load_model(tmp_path, KNOWN))
    with pytest.raises(BadFile, match=r"'bias' is float64.*jax_enable_x64"):
        load_model(tmp_path, KNOWN)


@pytest.mark.slow
def test_cuts_and_turned_bits_are_noticed(tmp_path):
    model = Toy.filled(3, (2, 2))
    save_model(tmp_path, model, {"note": "x"})
    for name in ("model.json", "model.safetensors"):
        good = (tmp_path / name).read_bytes()
        for what, data in damaged(good):
            (tmp_path / name).write_bytes(data)
            if data.strip() == good.strip():  # only the last line's end is gone
                assert same(model, load_model(tmp_path, KNOWN))
                continue
            with pytest.raises(BadFile, match=f"^{re.escape(str(tmp_path))}.*$"):
                pytest.fail(f"{name} {what} loads as {load_model(tmp_path, KNOWN)}")
        (tmp_path / name).write_bytes(good)
    assert same(model, load_model(tmp_path, KNOWN))


def test_without_the_checksums_turned_bits_would_load_as_other_values(tmp_path, monkeypatch):
    """The damage of the test above is real: it is the checksums that catch it."""
    model = Toy.filled(3, (2, 2))
    save_model(tmp_path, model)

    class Blind:
        def __init__(self, data):
            pass

        def hexdigest(self):
            return "0" * 64

    monkeypatch.setattr(model_files.hashlib, "sha256", Blind)
    save_model(tmp_path, model)
    silent = 0
    for _, data in damaged((tmp_path / "model.safetensors").read_bytes(), flips=500):
        (tmp_path / "model.safetensors").write_bytes(data)
        with contextlib.suppress(BadFile):
            silent += not same(model, load_model(tmp_path, KNOWN))
    assert silent > 50


def test_any_moment_of_a_save_leaves_the_old_model_or_the_new(tmp_path, monkeypatch):
    """A copy of the folder before and after every change of a name is what a crash would leave."""
    folder, copies = tmp_path / "model", []
    old, new = Toy.filled(1), Toy.filled(2)
    save_model(folder, old, {"which": "old"})

    def watched(act):
        def copy():
            copies.append(tmp_path / f"copy{len(copies)}")
            shutil.copytree(folder, copies[-1])

        def call(*args, **kwargs):
            copy()
            result = act(*args, **kwargs)
            copy()
            return result

        return call

    monkeypatch.setattr(os, "replace", watched(os.replace))
    monkeypatch.setattr(Path, "unlink", watched(Path.unlink))
    monkeypatch.setattr(Path, "write_bytes", watched(Path.write_bytes))
    save_model(folder, new, {"which": "new"})
    monkeypatch.undo()

    seen = []
    for copy in copies:
        loaded, extra = load_model(copy, KNOWN), describe_model(copy)["extra"]
        assert same(loaded, old if extra == {"which": "old"} else new)
        seen.append(extra["which"])
    assert seen == sorted(seen, reverse=True)
    assert set(seen) == {"old", "new"}
    assert sorted(p.name for p in folder.iterdir()) == ["model.json", "model.safetensors"]


def test_leftovers_of_a_crash_are_removed_and_other_files_are_not(tmp_path):
    digest = "0123456789abcdef" * 4
    leftovers = [f"model-{digest}.safetensors", f".model-{digest}.safetensors.1a2b3c4d.tmp"]
    leftovers.append(".model.json.1a2b3c4d.tmp")
    mine = ["model-best.safetensors", "notes.txt", ".model.txt"]
    for name in leftovers + mine:
        (tmp_path / name).write_text("x")
    save_model(tmp_path, Toy.filled(1))
    assert {p.name for p in tmp_path.iterdir()} == {*mine, "model.json", "model.safetensors"}


def test_a_full_disk_leaves_the_old_model(tmp_path, monkeypatch):
    old = Toy.filled(1)
    save_model(tmp_path, old)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def half(path, data, *args, **kwargs):
        with open(path, "wb") as file:
            file.write((data if isinstance(data, bytes) else data.encode())[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    for writer in ("write_bytes", "write_text"):
        monkeypatch.setattr(Path, writer, half)
        with pytest.raises(OSError, match=r"not saved .*No space left.* intact") as caught:
            save_model(tmp_path, Toy.filled(2))
        assert caught.value.errno == errno.ENOSPC
        monkeypatch.undo()
        assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
        assert same(old, load_model(tmp_path, KNOWN))


def test_a_save_between_two_reads_is_not_an_error(tmp_path, monkeypatch):
    """The reader got the old model.json, then a whole save happened."""
    save_model(tmp_path, Toy.filled(1))
    old = (tmp_path / "model.json").read_text()
    save_model(tmp_path, Toy.filled(2))
    real, answers = model_record._read_text, [old]
    monkeypatch.setattr(
        model_record, "_read_text", lambda folder: answers.pop() if answers else real(folder)
    )
    assert same(Toy.filled(2), load_model(tmp_path, KNOWN))


def test_no_model_here(tmp_path):
    with pytest.raises(FileNotFoundError, match="no model here"):
        load_model(tmp_path / "nowhere", KNOWN)
    save_model(tmp_path, Toy.filled(1))
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(BadFile, match=r"model.safetensors is missing"):
        load_model(tmp_path, KNOWN)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "JSON object"),
        ("null", "JSON object"),
        ("{}", "format 'undirected-model'"),
        ("", "not JSON"),
        ("{" * 10, "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        (
            '{"format": "undirected-model", "version": 3}',
            "format version 3, but this library reads 1 to 2",
        ),
        ('{"format": "undirected-model"}', "format version None"),
        ('{"format": "undirected-model", "version": [1]}', r"format version \[1\]"),
        ('{"format": "undirected-model", "version": 2}', "checksum"),
        ('{"format": "undirected-model", "version": 1}', "checksum"),
    ],
)
def test_json_that_is_not_a_model(tmp_path, text, message):
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(BadFile, match=message):
        load_model(tmp_path, KNOWN)


def test_text_that_is_not_utf8(tmp_path):
    (tmp_path / "model.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(BadFile, match="not UTF-8"):
        load_model(tmp_path, KNOWN)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class": 3}, "the field 'class' is missing or not a str"),
        ({"model": 3}, "the field 'model' is missing or not a dict"),
        ({"model": {}}, "'' is {}, which describes no value"),
        ({"model": {"tuple": []}}, "it describes a tuple, not a model"),
        ({"tensors_sha256": "../" * 20}, "not a SHA-256"),
        ({"tensors_sha256": "0" * 64}, "does not match the checksum"),
    ],
)
def test_forged_records_are_refused(tmp_path, changes, message):
    save_model(tmp_path, Toy.filled(1))
    rewrite(tmp_path)
    assert same(Toy.filled(1), load_model(tmp_path, KNOWN))
    rewrite(tmp_path, **changes)
    with pytest.raises(BadFile, match=message):
        load_model(tmp_path, KNOWN)


def test_forged_arrays_are_refused(tmp_path):
    save_model(tmp_path, Toy.filled(1))
    good = safetensors.numpy.load_file(tmp_path / "model.safetensors")
    cases = {
        "it does not describe the array 'more'": {**good, "more": np.zeros(1)},
        "the array of 'bias' is missing": {k: v for k, v in good.items() if k != "bias"},
        r"'bias' is float32 \(2,\), but described as float32 \(4,\)": {
            **good,
            "bias": good["bias"][:2],
        },
        r"'bias' is int32 \(4,\), but described as": {
            **good,
            "bias": good["bias"].astype(np.int32),
        },
    }
    for message, arrays in cases.items():
        swap_tensors(tmp_path, arrays)
        with pytest.raises(BadFile, match=message):
            load_model(tmp_path, KNOWN)
    (tmp_path / "model.safetensors").write_bytes(b"junk")
    rewrite(tmp_path, tensors_sha256=hashlib.sha256(b"junk").hexdigest())
    with pytest.raises(BadFile, match="not a safetensors file"):
        load_model(tmp_path, KNOWN)


def test_what_is_not_a_model_is_refused(tmp_path):
    with pytest.raises(UndirectedError, match="got a dict; pass a model, which is an equinox"):
        save_model(tmp_path, {"weights": 1.0})  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_notes_that_are_not_json_are_refused_before_anything_is_written(tmp_path):
    save_model(tmp_path, Toy.filled(1))
    with pytest.raises(TypeError, match="a object cannot be written as JSON"):
        save_model(tmp_path, Toy.filled(2), {"bad": object()})
    assert same(Toy.filled(1), load_model(tmp_path, KNOWN))


def test_a_folder_of_an_interrupted_fit_says_so(tmp_path):
    (tmp_path / "training").mkdir()
    with pytest.raises(FileNotFoundError, match="the fit that was interrupted again"):
        load_model(tmp_path)
