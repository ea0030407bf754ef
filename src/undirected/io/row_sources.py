"""Files as rows that are read when they are asked for: memory maps and Parquet sets."""

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from undirected.core.errors import BadFile
from undirected.io.arrow import PARQUET, reading, require


def open_rows(path: str | Path, columns: Sequence[str] | None = None) -> Any:
    """Rows of a table on disk: `shape`, `dtype`, and an array for `rows[start:stop]`.

    Args:
        path: a .npy file, which is mapped into memory, a Parquet file or a folder of them.
        columns: of a Parquet set; by default all, which must be numbers.

    Returns:
        What `StreamedBatches` takes.

    Example:
        >>> import tempfile, pathlib
        >>> import numpy as np
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "rows.npy"
        >>> np.save(path, np.eye(4, dtype=np.uint8))
        >>> open_rows(path)[1:3].tolist()
        [[0, 1, 0, 0], [0, 0, 1, 0]]
    """
    path = Path(path)
    if path.suffix.lower() == ".npy":
        try:
            rows = np.load(path, mmap_mode="r", allow_pickle=False)
        except ValueError as error:
            raise BadFile(f"{path}: damaged, or not a .npy file ({error!s:.100})") from error
        if rows.ndim < 2:
            raise BadFile(f"{path}: the array has shape {rows.shape}; wanted (rows, columns)")
        return rows
    if path.is_dir() or path.suffix.lower() in PARQUET:
        return ParquetRows(path, columns)
    raise BadFile(f"{path}: rows are read from .npy and Parquet files; convert the table first")


class ParquetRows:
    """The numeric columns of a Parquet file, or of all in a folder in the order of their names.

    `block` is the number of rows of the largest row group. One group is kept in memory, so rows
    should be asked for in such blocks.
    """

    def __init__(self, path: Path, columns: Sequence[str] | None = None):
        require(path)
        import pyarrow.parquet as parquet  # type: ignore[import-not-found]

        files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        if not files:
            raise BadFile(f"{path}: the folder holds no .parquet file")
        self.paths, self.files = files, []
        for file in files:
            with reading(file):
                self.files.append(parquet.ParquetFile(file, memory_map=True))
        schema = self.files[0].schema_arrow
        self.names = list(columns) if columns is not None else list(schema.names)
        for file, place in zip(self.files, files, strict=True):
            if missing := [n for n in self.names if n not in file.schema_arrow.names]:
                raise BadFile(f"{place}: there is no column '{missing[0]}'")
        self.groups = [
            (number, group)
            for number, file in enumerate(self.files)
            for group in range(file.metadata.num_row_groups)
        ]
        sizes = [self.files[n].metadata.row_group(g).num_rows for n, g in self.groups]
        self.block = max(sizes)
        self.starts = np.concatenate([[0], np.cumsum(sizes)]).tolist()
        self.dtype = _common_dtype(path, [schema.field(name) for name in self.names])
        self.shape = self.starts[-1], len(self.names)
        self._kept: tuple[int, np.ndarray] | None = None

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, step = rows.indices(len(self))
        found, at = [np.zeros((0, len(self.names)), self.dtype)], start
        while at < stop:
            number = bisect_right(self.starts, at) - 1
            first, last = self.starts[number], min(self.starts[number + 1], stop)
            found.append(self._group(number)[at - first : last - first])
            at = last
        return (found[1] if len(found) == 2 else np.concatenate(found))[::step]

    def _group(self, number: int) -> np.ndarray:
        """The rows of one row group; NaN where a cell is missing."""
        if self._kept is None or self._kept[0] != number:
            self._kept = None  # before the next is read: one is in memory, not two
            file, group = self.groups[number]
            with reading(self.paths[file]):
                whole = self._read(self.files[file], group)
            self._kept = number, whole
        return self._kept[1]

    def _read(self, file: Any, group: int) -> np.ndarray:
        table = file.read_row_group(group, columns=self.names)
        whole = np.empty((table.num_rows, len(self.names)), self.dtype)
        for i, name in enumerate(self.names):
            column = table.column(name)
            if column.null_count and self.dtype.kind != "f":
                raise BadFile(
                    f"column '{name}' has missing cells in a type without NaN ({column.type}); "
                    "write it as float"
                )
            whole[:, i] = column.to_numpy()
        return whole


def _common_dtype(path: Path, fields: list[Any]) -> np.dtype:
    """The smallest type that holds all columns; reals as float32."""
    import pyarrow as pa  # type: ignore[import-not-found]

    kinds = []
    for field in fields:
        kind = field.type
        if not (
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
        ):
            raise BadFile(
                f"{path}: column '{field.name}' holds {kind}; pass columns= with those that are "
                "numbers"
            )
        kinds.append(np.uint8 if pa.types.is_boolean(kind) else kind.to_pandas_dtype())
    found = np.result_type(*kinds)
    return np.dtype(np.float32) if found.kind == "f" else found
