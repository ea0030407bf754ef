"""Parquet and Arrow files through pyarrow, which is imported only here."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from undirected.core.cells import MOST_WHOLE, as_number, as_word
from undirected.core.errors import BadFile

PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".feather", ".ipc")


def read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, tuple[str, ...]]]:
    """The cells of every column, and the words of those columns that have categories."""
    pa = require(path)
    with reading(path):
        if path.suffix.lower() in PARQUET:
            import pyarrow.parquet as parquet  # type: ignore[import-not-found]

            table = parquet.read_table(path)
        else:
            import pyarrow.feather as feather  # type: ignore[import-not-found]

            table = feather.read_table(path)
        table.validate(full=True)  # a damaged offset would lead out of the file's memory
        names = [str(name) for name in table.column_names]
        cells = {n: cells_of(pa, table.column(i), n) for i, n in enumerate(names)}
        return cells, categories_of(pa, table, names)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Errors inside name the file; pyarrow has many ways to say that one is damaged."""
    try:
        yield
    except BadFile as error:
        raise BadFile(f"{path}: {error}") from error
    except FileNotFoundError:
        raise
    except Exception as error:
        raise BadFile(f"{path}: damaged, or not a table ({error!s:.200})") from error


def write(path: Path, columns: dict[str, Any]) -> None:
    """Write columns of words or numbers as Parquet or Arrow."""
    pa = require(path)
    table = pa.table({name: _of_one_kind(cells) for name, cells in columns.items()})
    if path.name.removesuffix(".tmp").endswith(PARQUET) or _kind(path) in PARQUET:
        import pyarrow.parquet as parquet  # type: ignore[import-not-found]

        parquet.write_table(table, path)
    else:
        import pyarrow.feather as feather  # type: ignore[import-not-found]

        feather.write_feather(table, str(path), compression="uncompressed")


def _of_one_kind(cells: Any) -> list[Any]:
    """Cells that are all numbers, or else all words; None for what is missing."""
    words = [None if c is None or c != c or c == "" else c for c in cells]
    if all(c is None or isinstance(c, str) for c in words):
        return words
    if not any(isinstance(c, str) for c in words):
        return [c.item() if isinstance(c, np.generic) else c for c in words]
    numbers = [None if c is None else as_number(as_word(c)) for c in words]
    if all((n is None) == (c is None) for n, c in zip(numbers, words, strict=True)):
        return numbers
    return [None if c is None else as_word(c) for c in words]


def _kind(path: Path) -> str:
    """The suffix of the file that a temporary one will become."""
    parts = [f".{part}" for part in path.name.lower().split(".")]
    return next((part for part in parts if part in PARQUET + ARROW), "")


def require(path: Path) -> Any:
    """pyarrow, or what to install to have it."""
    try:
        import pyarrow  # type: ignore[import-not-found]
    except ImportError as error:
        raise ImportError(
            f'{path}: this kind of table needs pyarrow; pip install "undirected[parquet]"'
        ) from error
    return pyarrow


def cells_of(pa: Any, column: Any, name: str) -> np.ndarray:
    """The cells of a column: numbers, or words and booleans with None for what is missing."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_floating(kind) or (pa.types.is_integer(kind) and not column.null_count):
        return column.to_numpy()
    if pa.types.is_integer(kind):
        cells = column.to_pylist()
        codes = any(cell is not None and abs(cell) > MOST_WHOLE for cell in cells)
        return np.array(cells, object if codes else np.float64)
    if pa.types.is_decimal(kind):
        return column.cast(pa.float64()).to_numpy()
    if pa.types.is_null(kind):
        return np.full(len(column), None, object)
    if pa.types.is_nested(kind) or pa.types.is_binary(kind):
        raise BadFile(f"column '{name}' holds {kind}; leave it out of the file")
    if pa.types.is_boolean(kind):
        return np.array(column.to_pylist(), object)
    return np.array(column.cast(pa.string()).to_pylist(), object)


def categories_of(pa: Any, table: Any, names: list[str]) -> dict[str, tuple[str, ...]]:
    """The words of dictionary-encoded columns, in their order."""
    found = {}
    for i, name in enumerate(names):
        column = table.column(i)
        if pa.types.is_dictionary(column.type) and column.num_chunks:
            words = column.unify_dictionaries().chunk(0).dictionary.to_pylist()
            found[name] = tuple(str(word) for word in words if word is not None)
    return found
