"""What a model folder says of itself, read and checked without JAX."""

import hashlib
import re
from pathlib import Path
from typing import Any

from undirected.core.errors import BadFile
from undirected.io.text import from_json, to_json

FORMAT = "undirected-model"
VERSION = 2
COMMON = {"library": str, "class": str, "layout": list, "tensors_sha256": str, "extra": dict}
FIELDS = {
    1: COMMON | {"config": dict, "parameters": list},
    VERSION: COMMON | {"model": dict},
}
DIGEST = "[0-9a-f]" * 64


def describe_model(folder: str | Path) -> dict[str, Any]:
    """What `model.json` says: class, fields, layout, versions, the caller's extra."""
    folder = Path(folder)
    return _check_record(_read_text(folder), folder / "model.json")


def read_folder(folder: Path) -> tuple[dict[str, Any], bytes]:
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
        begun = (folder / "training").is_dir()
        more = "; give the command of the fit that was interrupted again" if begun else ""
        raise FileNotFoundError(
            f"{folder}: no model here: there is no model.json in this folder{more}"
        )
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
    if record.pop("sha256", None) != digest_of(record):
        raise BadFile(f"{path}: damaged or edited: its contents do not match its checksum")
    for field, kind in FIELDS[version].items():
        if not isinstance(record.get(field), kind):
            raise BadFile(f"{path}: the field '{field}' is missing or not a {kind.__name__}")
    if not re.fullmatch(DIGEST, record["tensors_sha256"]):
        raise BadFile(f"{path}: 'tensors_sha256' is not a SHA-256 in lower-case hexadecimal")
    return record


def digest_of(record: dict[str, Any]) -> str:
    """The checksum of a record without its own."""
    return hashlib.sha256(to_json(dict(sorted(record.items()))).encode()).hexdigest()
