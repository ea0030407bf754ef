"""Model files: a folder with `model.safetensors` (parameters) and `model.json` (all the rest)."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx

import undirected
from undirected.core.errors import BadFile, UndirectedError, instead_of
from undirected.core.files import atomic_write, path_of
from undirected.io.classes import Classes
from undirected.io.model_record import (
    DIGEST,
    FORMAT,
    VERSION,
    digest_of,
    read_folder,
)
from undirected.io.structure import describe, rebuild
from undirected.io.tensors import pack, unpack
from undirected.io.text import to_json
from undirected.io.version1 import complete, upgrade


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
        wanted = "a model, which is an equinox Module whose fields are its parameters"
        raise UndirectedError(f"save_model: got a {name}; {instead_of('save', model, wanted)}")
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
    text = to_json(record | {"sha256": digest_of(record)}, indent=1) + "\n"
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
    folder, known = path_of("load", folder), Classes(classes)
    record, data = read_folder(folder)
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
