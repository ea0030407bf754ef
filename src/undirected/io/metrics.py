"""The metrics of a run: one JSON object a line, appended as they come, cut back on resume."""

import errno
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from undirected.core.errors import BadFile
from undirected.core.files import atomic_write
from undirected.io.text import from_json, to_json


class MetricsLog:
    """An append-only file of lines `{"step": 3, "loss": 0.5}`.

    Every line is strictly valid JSON: NaN and infinities are written as the strings "NaN",
    "Infinity" and "-Infinity", which `read` turns back into floats.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if _is_torn(self.path):
            self.truncate_after(math.inf)

    def append(self, step: int, metrics: dict[str, Any]) -> None:
        """Write one line and hand it to the system; a line that does not fit is taken back."""
        if "step" in metrics:
            raise ValueError("metrics: 'step' is the first argument of append, not a metric")
        line = (to_json({"step": step, **metrics}) + "\n").encode()
        with open(self.path, "ab", buffering=0) as file:
            start = os.fstat(file.fileno()).st_size
            try:
                if file.write(line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            except OSError:
                file.truncate(start)
                raise

    def truncate_after(self, step: float) -> None:
        """Drop the lines of later steps and a line that a crash left unfinished."""
        if not self.path.exists():
            return
        with atomic_write(self.path) as temporary, open(temporary, "wb") as file:
            for line, row in _rows(self.path):
                if row["step"] <= step:
                    file.write(line.rstrip() + b"\n")


def read(path: str | Path) -> list[dict[str, Any]]:
    """The lines as dicts, without one that a crash left unfinished."""
    return [row for _, row in _rows(Path(path))]


def _rows(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Every line with what it says; an unfinished last line is passed over."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                row = from_json(line.decode())
                if not isinstance(row, dict) or not isinstance(row.get("step"), int):
                    raise ValueError("it has no step")
            except ValueError as error:
                if line.endswith(b"\n"):
                    raise BadFile(
                        f"{path}, line {number}: not a line of metrics ({error}); remove the line"
                    ) from error
                return
            yield line, row


def _is_torn(path: Path) -> bool:
    """Whether the file ends within a line."""
    if not path.exists() or not path.stat().st_size:
        return False
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"
