"""Checkpoints of a run: one sealed file each, written atomically, the newest good one restored."""

import hashlib
import operator
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import PyTree

from undirected.core.errors import BadFile
from undirected.core.files import atomic_write
from undirected.io.journal import Journal
from undirected.io.leaves import check_fit, flatten, restore
from undirected.io.tensors import pack_parts, unpack
from undirected.io.text import from_json, to_json

VERSION = 2
"""Of the files that are written; version 1 kept the history of a run in every file."""
NAME = re.compile(r"step-([0-9]{8,})\.safetensors")
SEAL = b'"undirected":"'  # in the safetensors header, before the 64 digits of the digest
BLANK = b"0" * 64


class Checkpoints:
    """The checkpoints of a run in a folder, by one writer; the newest `keep` good ones stay.

    Each is a safetensors file `step-00001234.safetensors` whose header holds the description of the
    tree, the caller's `meta` and the SHA-256 of the whole file with the digest itself blanked, so
    that a change of any bit is noticed. What only grows, the history of the run, is in one file for
    all, `history.jsonl`; a checkpoint knows how much of it is its own, and its SHA-256.
    """

    def __init__(self, folder: str | Path, keep: int = 2):
        if keep < 1:
            raise ValueError(f"checkpoints: keep is {keep}; keep at least 1")
        self.folder, self.keep = Path(folder), keep
        self._history = Journal(self.folder / "history.jsonl")
        self._written: dict[Path, tuple[int, int]] = {}  # size and time of files known to be good

    def save(
        self,
        step: int,
        tree: PyTree,
        meta: dict[str, Any] | None = None,
        history: Sequence[dict[str, Any]] = (),
    ) -> Path:
        """Write a checkpoint and remove the oldest; a failure leaves the earlier ones as they were.

        `tree` is a pytree of arrays, typed keys, Python numbers, strings and None; `meta` is JSON,
        and so are the rows of `history`, which at the next call may only be longer.
        """
        return self.prepare(step, tree, meta, history)()

    def prepare(
        self,
        step: int,
        tree: PyTree,
        meta: dict[str, Any] | None = None,
        history: Sequence[dict[str, Any]] = (),
    ) -> Callable[[], Path]:
        """`save` in two parts: the tree is brought to the host now, the function writes it.

        The function may run in a thread while the run goes on, one after the other; NumPy arrays
        of the tree must stay as they are until then.
        """
        step = operator.index(step)
        if step < 0:
            raise ValueError(f"checkpoints: step is {step}; steps count from 0")
        specs, arrays = flatten(tree)
        record = {"version": VERSION, "step": step, "leaves": specs, "meta": meta or {}}
        return lambda: self._write(step, arrays, record, history)

    def _write(
        self,
        step: int,
        arrays: dict[str, np.ndarray],
        record: dict[str, Any],
        history: Sequence[dict[str, Any]],
    ) -> Path:
        path = self.folder / f"step-{step:08d}.safetensors"
        for stale in self.folder.glob(".step-*.safetensors.*.tmp"):
            stale.unlink(missing_ok=True)
        try:
            if history:
                record |= {"history": self._history.extend(history)}
            with atomic_write(path) as temporary:
                _write_parts(temporary, _seal(arrays, to_json(record)))
        except OSError as error:
            raise OSError(
                error.errno,
                f"{path}: the checkpoint was not written ({error.strerror or error}); earlier "
                "checkpoints are intact, make room or choose another folder",
            ) from error
        self._written[path] = _stamp(path)
        self._remove_older(step)
        return path

    def latest(self, like: PyTree) -> tuple[int, PyTree, dict[str, Any]] | None:
        """(step, tree, meta) of the newest good checkpoint, or None where there is none at all.

        The tree has the structure of `like`, whose static parts it keeps; `like` may hold shapes
        only (`eqx.filter_eval_shape`). Damaged files are passed over with a `RuntimeWarning` each.
        A history that was saved is `meta["history"]`.
        """
        bad = []
        self._history.rewind()
        for step, path in reversed(self._files()):
            stamp = _stamp(path) if path.exists() else (-1, -1)
            try:
                record, arrays = _open(path, step)
                if "history" in record:
                    record["meta"]["history"] = self._history.read(record["history"])
            except BadFile as error:
                bad.append(error)
                continue
            self._written[path] = stamp
            for error in bad:
                warnings.warn(f"passed over a checkpoint: {error}", RuntimeWarning, stacklevel=2)
            if record["version"] > VERSION:
                raise BadFile(
                    f"{path}: checkpoint format {record['version']}, but this library reads "
                    f"up to {VERSION}; use the library that wrote it"
                )
            check_fit(like, record["leaves"], str(path))
            return step, restore(like, record["leaves"], arrays, str(path)), record["meta"]
        if bad:
            reasons = "; ".join(str(error) for error in bad)
            raise BadFile(f"{self.folder}: no checkpoint can be read: {reasons}")
        return None

    def _files(self) -> list[tuple[int, Path]]:
        """(step, path) of every checkpoint, oldest first; other files in the folder are ignored."""
        found = ((NAME.fullmatch(path.name), path) for path in self.folder.glob("step-*"))
        return sorted((int(match[1]), path) for match, path in found if match)

    def _remove_older(self, step: int) -> None:
        """Remove what is older than the newest `keep` good checkpoints up to `step`."""
        good = 1  # the one of `step`, just written
        for older, path in reversed(self._files()):
            if older < step and good >= self.keep:
                path.unlink(missing_ok=True)
                self._written.pop(path, None)
            elif older < step:
                # What this object wrote, and nobody touched since, need not be read again.
                known = path in self._written and self._written[path] == _stamp(path)
                good += known or _is_good(path, older)


def _seal(arrays: dict[str, np.ndarray], text: str) -> list[Any]:
    """The parts of a safetensors file with `text` and the digest of the whole in its header."""
    header, parts = pack_parts(arrays, {"undirected": f"{BLANK.decode()} {text}"})
    digest = hashlib.sha256(header)
    for part in parts:
        digest.update(part)
    at = header.index(SEAL) + len(SEAL)
    return [header[:at], digest.hexdigest().encode(), header[at + len(BLANK) :], *parts]


def _write_parts(path: Path, parts: list[Any]) -> None:
    with open(path, "wb") as file:
        for part in parts:
            file.write(part)


def _open(path: Path, step: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The record and the arrays of a sealed file; `BadFile` if one bit is not as it was written."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadFile(f"{path}: cannot be read ({error.strerror or error})") from error
    at = data.find(SEAL) + len(SEAL)
    end = at + len(BLANK)
    digest = hashlib.sha256(data[:at])
    digest.update(BLANK)
    digest.update(memoryview(data)[end:])
    if at < len(SEAL) or data[at:end] != digest.hexdigest().encode():
        raise BadFile(f"{path}: the file is truncated or damaged (its checksum does not match)")
    size = int.from_bytes(data[:8], "little")  # of the header: safetensors starts with it
    record = from_json(from_json(data[8 : 8 + size].decode())["__metadata__"]["undirected"][65:])
    if record.get("step") != step:
        raise BadFile(f"{path}: the file holds step {record.get('step')}; it was renamed")
    return record, unpack(data, str(path))


def _stamp(path: Path) -> tuple[int, int]:
    """Size and time of a file."""
    told = path.stat()
    return told.st_size, told.st_mtime_ns


def _is_good(path: Path, step: int) -> bool:
    try:
        _open(path, step)
    except BadFile:
        return False
    return True
