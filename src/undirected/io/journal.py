"""Rows that only grow in number, in one file; a mark says how much of it was there at a time."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from undirected.core.errors import BadFile
from undirected.io.text import from_json, to_json

Mark = dict[str, Any]
"""Rows, bytes and SHA-256 of the beginning of the file."""


class Journal:
    """A file of one JSON object a line, by one writer; only new rows are written.

    What stands behind the rows that this object knows, as after a crash, is overwritten.
    """

    def __init__(self, path: Path):
        self.path = path
        self.rewind()

    def rewind(self) -> None:
        """Know of no row: the next call writes all of them."""
        self.rows, self.bytes, self.digest = 0, 0, hashlib.sha256()

    def extend(self, rows: Sequence[dict[str, Any]]) -> Mark:
        """Write what is new in `rows`, which are all so far; on disk when this returns."""
        if len(rows) < self.rows:
            self.rewind()
        text = "".join(to_json(row) + "\n" for row in rows[self.rows :]).encode()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "r+b" if self.path.exists() else "w+b") as file:
            file.seek(self.bytes)
            file.write(text)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        self.digest.update(text)
        self.rows, self.bytes = len(rows), self.bytes + len(text)
        return {"rows": self.rows, "bytes": self.bytes, "sha256": self.digest.hexdigest()}

    def read(self, mark: Mark) -> list[dict[str, Any]]:
        """The rows up to a mark, behind which the next call writes."""
        try:
            with open(self.path, "rb") as file:
                text = file.read(mark["bytes"])
        except OSError as error:
            raise BadFile(f"{self.path}: cannot be read ({error.strerror or error})") from error
        digest = hashlib.sha256(text)
        if digest.hexdigest() != mark["sha256"]:
            raise BadFile(f"{self.path}: the file is truncated or damaged (its checksum differs)")
        self.rows, self.bytes, self.digest = mark["rows"], mark["bytes"], digest
        return [from_json(line) for line in text.decode().splitlines()]
