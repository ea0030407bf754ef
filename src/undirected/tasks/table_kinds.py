"""Columns as tables of the kind that was given: data frames of pandas and polars, Arrow's tables.

None of those libraries is imported to tell one: they are known by what they offer.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from undirected.core.cells import is_missing


def in_kind_of(table: Any, columns: Mapping[str, list[Any]], answered: Collection[str]) -> Any:
    """The columns as a table of the kind of `table`; all else than frames gives a mapping.

    Columns of the table that were not answered are its own: dates are dates there, not text. Those
    that were keep their type where it can hold the answers.
    """
    if hasattr(table, "column_names"):
        return _in_arrow(table, columns, answered)
    if not (hasattr(table, "columns") and hasattr(table, "dtypes")):
        return columns
    own = {str(name): table[name] for name in table.columns}
    kept = {
        name: like(column, columns[name]) if name in answered else column
        for name, column in own.items()
    }
    found = type(table)({name: kept.get(name, cells) for name, cells in columns.items()})
    if hasattr(table, "index"):  # of pandas, by which rows are matched
        found.index = table.index
    return found


def like(column: Any, cells: Iterable[Any]) -> Any:
    """Cells as a column of a data frame has them, of its type where that can hold them."""
    plain = [cell.item() if isinstance(cell, np.generic) else cell for cell in cells]
    kind = getattr(column, "dtype", None)
    if kind is None:
        return plain
    if _holds_whole(kind) and all(_is_whole(cell) for cell in plain):
        plain = list(map(int, plain))
    return _like_pandas(column, plain) if hasattr(column, "iloc") else _like_polars(column, plain)


def _like_pandas(column: Any, plain: Sequence[Any]) -> Any:
    """A series under the index of the column, where it has one for all of the cells."""
    index = column.index if len(column) == len(plain) else None
    known = getattr(column.dtype, "categories", None)
    if known is None or all(is_missing(cell) or cell in known for cell in plain):
        try:
            return type(column)(plain, index=index, dtype=column.dtype)
        except (TypeError, ValueError):
            pass  # such as a half among integers
    return type(column)(plain, index=index)


def _like_polars(column: Any, plain: Sequence[Any]) -> Any:
    kind = column.dtype
    if any(isinstance(cell, float) for cell in plain):
        plain, kind = list(map(float, plain)), kind if kind.is_float() else None
    return type(column)(column.name, plain, dtype=kind)


def _in_arrow(table: Any, columns: Mapping[str, list[Any]], answered: Collection[str]) -> Any:
    import pyarrow  # type: ignore[import-not-found]

    own = {str(name): table.column(i) for i, name in enumerate(table.column_names)}

    def made(name: str, cells: list[Any]) -> Any:
        column = own.get(name)
        if column is not None and name not in answered:
            return column
        found = pyarrow.array(cells)
        try:
            return found if column is None else found.cast(column.type)
        except pyarrow.ArrowException:  # such as of a half to an integer
            return found

    return pyarrow.table({name: made(name, cells) for name, cells in columns.items()})


def _holds_whole(kind: Any) -> bool:
    return str(kind).lower().startswith(("int", "uint"))


def _is_whole(cell: Any) -> bool:
    return isinstance(cell, Real) and float(cell).is_integer()
