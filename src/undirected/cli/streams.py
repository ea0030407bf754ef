"""Tables that do not fit into memory: which they are, and how `fit` sees them."""

from pathlib import Path
from typing import Any

from undirected.core.errors import UndirectedError
from undirected.core.memory import available_memory
from undirected.io.arrow import PARQUET
from undirected.io.row_sources import open_rows

COPIES = 3
"""Tables of float32 that a fit in memory has at the same time."""
SMALL = 2**26
"""Bytes of a file that is not even looked at: its table fits."""


def rows_to_stream(path: Path, wish: bool | None) -> Any:
    """The rows of a file whose table would not fit into memory; None where it does.

    A wish decides it; only .npy files and Parquet sets can be read in parts.
    """
    path = Path(path)
    kind = path.is_file() and path.name.lower().endswith((".npy", *PARQUET))
    if not kind and not (path.is_dir() and any(path.glob("*.parquet"))):
        if wish:
            raise UndirectedError(
                f"{path}: only .npy files, Parquet files and folders of these are streamed; "
                "convert the table, or leave --stream out"
            )
        return None
    if wish is False or (wish is None and kind and path.stat().st_size < SMALL):
        return None
    rows = open_rows(path)
    needed = 4 * COPIES * rows.shape[0] * rows.shape[1]
    return rows if wish or needed > available_memory() else None


def names_of(rows: Any) -> list[str]:
    """The names of the columns."""
    return list(getattr(rows, "names", None) or [f"x{i}" for i in range(rows.shape[1])])


def identity_of(path: Path) -> str:
    """What tells one version of a large file, or folder, from another, without reading it."""
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    return " ".join(f"{f.name}:{f.stat().st_size}:{f.stat().st_mtime_ns}" for f in files)
