"""Model files: a folder with `model.safetensors` (parameters) and `model.json` (all the rest)."""

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx

import undirected
from undirected.core.errors import BadFile, UndirectedError
from undirected.core.files import atomic_write
from undirected.io.classes import Classes
from undirected.io.leaves import pack, unpack
from undirected.io.structure import describe, rebuild
from undirected.io.text import from_json, to_json
from undirected.io.version1 import complete, upgrade

FORMAT = "undirected-model"
VERSION = 2
COMMON = {"library": str, "class": str, "layout": list, "tensors_sha256": str, "extra": dict}
FIELDS = {
    1: COMMON | {"config": dict, "parameters": list},
    VERSION: COMMON | {"model": dict},
}
DIGEST = "[0-9a-f]" * 64


def save_model(folder: str | Path, model: eqx.Module, extra: dict[str, Any] | None = None) -> None:
    """Save a model and JSON notes of the caller (image shape, column names, training).

    Any equinox Module can be saved whose fields hold arrays, numbers, text, tuples, lists, dicts,
    Enums, frozen dataclasses and other Modules; the file describes it field by field. Arrays must
    be finite, and what would not load again is refused.

    A save that stops at any moment leaves the old model or the new, never a mix, because the rename
    of `model.json` alone decides: it holds the checksum of its parameters, which by then are on
    disk as `model-<checksum>.safetensors` and only afterwards become `model.safetensors`. The
    loader takes whichever of the two has that checksum. One writer a folder.
    """
    folder, name = Path(folder), type(model).__name__
    if not isinstance(model, eqx.Module):
        raise UndirectedError(
            f"save_model: got a {name}; pass a model, which is an equinox Module whose fields "
            "are its parameters"
        )
    try:
        structure, arrays = describe(model)
    except UndirectedError as error:
        raise UndirectedError(f"save_model: this {name} cannot be saved: {error}") from error
    data = pack(arrays)
    record = {
        "format": FORMAT,
        "version": VERSION,
        "library": undirected.__version__,
        "class": name,
        "model": structure,
        "layout": _layout_summary(model),
        "extra": extra or {},
        "tensors_sha256": hashlib.sha256(data).hexdigest(),
    }
    text = to_json(record | {"sha256": _digest(record)}, indent=1) + "\n"
    pending = folder / f"model-{record['tensors_sha256']}.safetensors"
    try:
        with atomic_write(folder / "model.json") as temporary:
            temporary.write_text(text, encoding="utf-8")
            with atomic_write(pending) as parameters:
                parameters.write_bytes(data)
    except OSError as error:
        raise OSError(
            error.errno,
            f"{folder}: the model was not saved ({error.strerror or error}); a model that was "
            "there is intact, make room or choose another folder",
        ) from error
    os.replace(pending, folder / "model.safetensors")
    _remove_leftovers(folder)


def load_model(folder: str | Path, classes: Iterable[type] | Mapping[str, type] = ()) -> Any:
    """The model saved in `folder`, to the bit; runs no code of the file.

    The classes of this library are found by name; hand over your own: `classes=[Mine]`. The class
    checks the model as if it had been made anew. Raises `BadFile` in one sentence.
    """
    folder, known = Path(folder), Classes(classes)
    record, data = _read(folder)
    arrays = unpack(data, str(folder))
    try:
        if record["version"] == 1:
            return complete(rebuild(upgrade(record, known), arrays, known, str(folder)))
        return rebuild(record["model"], arrays, known, str(folder))
    except BadFile:
        raise
    except UndirectedError as error:
        raise BadFile(f"{folder}: model.json cannot be loaded: {error}") from error
    except Exception as error:  # whatever a forged description makes a class run into
        raise BadFile(
            f"{folder}: model.json does not describe a {record['class']} ({error!r:.200})"
        ) from error


def describe_model(folder: str | Path) -> dict[str, Any]:
    """What `model.json` says: class, fields, layout, versions, the caller's extra."""
    folder = Path(folder)
    return _check_record(_read_text(folder), folder / "model.json")


def _read(folder: Path) -> tuple[dict[str, Any], bytes]:
    """The record and the parameter file that belongs to it."""
    text = _read_text(folder)
    while True:
        record = _check_record(text, folder / "model.json")
        digest = record["tensors_sha256"]
        for name in ("model.safetensors", f"model-{digest}.safetensors"):
            data = (folder / name).read_bytes() if (folder / name).is_file() else b""
            if hashlib.sha256(data).hexdigest() == digest:
                return record, data
        text, before = _read_text(folder), text
        if text == before:  # otherwise a save came in between
            raise BadFile(
                f"{folder}: model.safetensors is missing, damaged or of another model: it does "
                "not match the checksum in model.json; copy both files again"
            )


def _read_text(folder: Path) -> str:
    path = folder / "model.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder}: no model here: there is no model.json in this folder")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadFile(f"{path}: damaged, or not a model: not UTF-8 text") from error


def _check_record(text: str, path: Path) -> dict[str, Any]:
    try:
        record = from_json(text)
    except ValueError as error:
        raise BadFile(f"{path}: damaged, or not a model: not JSON ({error})") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise BadFile(f"{path}: not a model: wanted a JSON object of format '{FORMAT}'")
    version = record.get("version")
    if type(version) is not int or version not in FIELDS:
        raise BadFile(
            f"{path}: format version {version!r:.40}, but this library reads 1 to {VERSION}; load "
            "it with the library that wrote it"
        )
    if record.pop("sha256", None) != _digest(record):
        raise BadFile(f"{path}: damaged or edited: its contents do not match its checksum")
    for field, kind in FIELDS[version].items():
        if not isinstance(record.get(field), kind):
            raise BadFile(f"{path}: the field '{field}' is missing or not a {kind.__name__}")
    if not re.fullmatch(DIGEST, record["tensors_sha256"]):
        raise BadFile(f"{path}: 'tensors_sha256' is not a SHA-256 in lower-case hexadecimal")
    return record


def _digest(record: dict[str, Any]) -> str:
    return hashlib.sha256(to_json(dict(sorted(record.items()))).encode()).hexdigest()


def _layout_summary(model: Any) -> list[dict[str, Any]]:
    """The blocks of a model; a conditional model has none before its features are given."""
    return [
        {
            "name": block.name,
            "size": block.size,
            "domain": block.domain.value,
            "states": block.states,
            "visible": block.visible,
        }
        for block in (model.layout.blocks if hasattr(model, "layout") else ())
    ]


def _remove_leftovers(folder: Path) -> None:
    """Remove what interrupted saves left behind."""
    for pattern in (".model.json.*.tmp", f".model-{DIGEST}.*.tmp", f"model-{DIGEST}.safetensors"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)
