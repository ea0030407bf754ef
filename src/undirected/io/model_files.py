"""Model files: a folder with `model.safetensors` (parameters) and `model.json` (all the rest)."""

import hashlib
import os
import re
from importlib import metadata
from pathlib import Path
from typing import Any

import equinox as eqx

from undirected.core.errors import BadFile, UndirectedError
from undirected.core.files import atomic_write
from undirected.io.leaves import check_fit, flatten, pack, restore, unpack
from undirected.io.text import from_json, to_json

FORMAT = "undirected-model"
VERSION = 1
FIELDS = {"library": str, "class": str, "config": dict, "layout": list, "parameters": list}
FIELDS |= {"tensors_sha256": str, "extra": dict}
DIGEST = "[0-9a-f]" * 64


def save_model(folder: str | Path, model: Any, extra: dict[str, Any] | None = None) -> None:
    """Save a model and JSON notes of the caller (image shape, column names, training).

    A save that stops at any moment leaves the old model or the new, never a mix, because the rename
    of `model.json` alone decides: it holds the checksum of its parameters, which by then are on
    disk as `model-<checksum>.safetensors` and only afterwards become `model.safetensors`. The
    loader takes whichever of the two has that checksum. One writer a folder.
    """
    folder, name = Path(folder), type(model).__name__
    if not (hasattr(model, "config") and hasattr(model, "skeleton")):
        raise UndirectedError(
            f"save_model: a {name} has no config() and skeleton(config), from which it could be "
            "built again"
        )
    specs, arrays = flatten(model)
    record = {
        "format": FORMAT,
        "version": VERSION,
        "library": _library_version(),
        "class": name,
        "config": from_json(to_json(model.config())),
        "layout": _layout_summary(model),
        "parameters": specs,
        "extra": extra or {},
    }
    skeleton = _skeleton(type(model), record["config"], "save_model")
    check_fit(skeleton, specs, "save_model", any_precision=True)
    data = pack(arrays)
    record["tensors_sha256"] = hashlib.sha256(data).hexdigest()
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


def load_model(folder: str | Path, registry: dict[str, type]) -> Any:
    """The model saved in `folder`, its class found by name in `registry`; runs no code of the file.

    `models.REGISTRY` has the classes of this library; add your own: `REGISTRY | {"Mine": Mine}`.
    Every value is as it was saved, to the bit and in its dtype. Raises `BadFile` in one sentence.
    """
    folder = Path(folder)
    record, data = _read(folder)
    name = record["class"]
    if name not in registry:
        known = ", ".join(sorted(registry))
        raise BadFile(f"{folder}: unknown model class '{name}'; this library knows {known}")
    where = str(folder)
    arrays = unpack(data, where)
    try:
        skeleton = _skeleton(registry[name], record["config"], where)
        unknown = sorted(set(arrays) - {spec["name"] for spec in record["parameters"]})
        if unknown:
            raise BadFile(f"{where}: model.json does not describe the array '{unknown[0]}'")
        check_fit(skeleton, record["parameters"], where, any_precision=True)
        return restore(skeleton, record["parameters"], arrays, where)
    except BadFile:
        raise
    except (KeyError, TypeError, ValueError, SyntaxError) as error:
        raise BadFile(f"{where}: model.json does not describe a {name} ({error!r})") from error


def describe_model(folder: str | Path) -> dict[str, Any]:
    """What `model.json` says: class, config, layout, parameters, versions, the caller's extra."""
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
    if record.get("version") != VERSION:
        raise BadFile(
            f"{path}: format version {record.get('version')!r}, but this library reads {VERSION}; "
            "load it with the library that wrote it"
        )
    if record.pop("sha256", None) != _digest(record):
        raise BadFile(f"{path}: damaged or edited: its contents do not match its checksum")
    for field, kind in FIELDS.items():
        if not isinstance(record.get(field), kind):
            raise BadFile(f"{path}: the field '{field}' is missing or not a {kind.__name__}")
    if not re.fullmatch(DIGEST, record["tensors_sha256"]):
        raise BadFile(f"{path}: 'tensors_sha256' is not a SHA-256 in lower-case hexadecimal")
    return record


def _digest(record: dict[str, Any]) -> str:
    return hashlib.sha256(to_json(dict(sorted(record.items()))).encode()).hexdigest()


def _skeleton(model_class: Any, config: dict[str, Any], where: str) -> Any:
    """The shapes of a model with these hyper-parameters; nothing is allocated."""
    try:
        return eqx.filter_eval_shape(model_class.skeleton, config)
    except Exception as error:
        raise BadFile(
            f"{where}: {model_class.__name__} cannot be built from the hyper-parameters "
            f"{config!r:.200} ({error!r:.200})"
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


def _library_version() -> str:
    try:
        return metadata.version("undirected")
    except metadata.PackageNotFoundError:
        return "not installed"


def _remove_leftovers(folder: Path) -> None:
    """Remove what interrupted saves left behind."""
    for pattern in (".model.json.*.tmp", f".model-{DIGEST}.*.tmp", f"model-{DIGEST}.safetensors"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)
