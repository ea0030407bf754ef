"""Columns by name out of mappings and the tables of other libraries, which are not imported."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np

from undirected.core.errors import UndirectedError


def has_names(data: Any) -> bool:
    """Whether data are columns by name: a mapping, or a table of pandas, polars or Arrow."""
    return hasattr(data, "__getitem__") and (is_lazy(data) or names_of(data) is not None)


def is_lazy(data: Any) -> bool:
    """Whether data are a query of polars that has not run yet."""
    return hasattr(data, "collect_schema") and hasattr(data, "collect")


def check_collected(caller: str, data: Any) -> None:
    """Refuse a query of polars that has not run yet."""
    if is_lazy(data):
        raise UndirectedError(
            f"{caller}: data are a {type(data).__name__}, which has no rows yet; pass "
            "data.collect()"
        )


def names_of(data: Any) -> Any:
    """The names of columns; None where there are none."""
    if hasattr(data, "keys"):
        return data.keys()
    return getattr(data, "column_names", getattr(data, "columns", None))


def columns(caller: str, data: Any) -> dict[Hashable, list[Any]]:
    """Columns of one length by name, None where an entry is missing."""
    check_collected(caller, data)
    if not has_names(data):
        raise UndirectedError(
            f"{caller}: data are a {type(data).__name__}; pass {{name: column}} or a data frame"
        )
    names = list(names_of(data))
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UndirectedError(
            f"{caller}: {len(names)} columns, of which several are called {twice[0]!r:.40}; "
            "rename or drop all but one"
        )
    if any(isinstance(data[x], str) or not isinstance(data[x], Iterable) for x in names):
        raise UndirectedError(
            f"{caller}: data are single values by name; pass {{name: column}}, each column a list, "
            "or what is known of one row as `given`"
        )
    found = {name: [_cell(caller, name, x) for x in data[name]] for name in names}
    lengths = {len(own) for own in found.values()}
    if len(lengths) != 1 or lengths == {0}:
        told = {name: len(own) for name, own in list(found.items())[:4]}
        raise UndirectedError(
            f"{caller}: columns have lengths {told}; pass columns of one length above 0"
        )
    return found


def _cell(caller: str, name: Hashable, x: Any) -> Any:
    """A plain value; None for None, NaN, a masked cell and what else stands for nothing."""
    x = x.item() if isinstance(x, np.generic) else x.as_py() if hasattr(x, "as_py") else x
    if x is np.ma.masked:
        return None
    if not isinstance(x, Hashable):
        raise UndirectedError(
            f"{caller}: column {name!r:.40} has the entry {x!r:.40}, a {type(x).__name__}; pass "
            "one state for each row: text or a number"
        )
    try:
        return None if x is None or bool(x != x) else x
    except (TypeError, ValueError):  # pandas.NA has no truth value
        return None


def known_by_name(caller: str, given: Any) -> Any:
    """One row of a table as `{name: value}` of what is known of it; anything else as it is."""
    if isinstance(given, Mapping):
        return given
    if is_series(given):
        names, row = list(given.index), list(given)
        if len(set(names)) < len(names):
            raise UndirectedError(
                f"{caller}: the labels of `given` are {names!r:.60}, of which several are one; "
                "pass each name once"
            )
        cells = {name: _cell(caller, name, x) for name, x in zip(names, row, strict=True)}
    elif has_names(given):
        found = columns(caller, given)
        cells = {name: column[0] for name, column in found.items()}
        count = len(next(iter(found.values())))
        if count != 1:
            raise UndirectedError(f"{caller}: `given` has {count} rows; pass one")
    else:
        return given
    return {name: x for name, x in cells.items() if x is not None}


def is_series(data: Any) -> bool:
    """Whether data are values with labels, as a row or a column of pandas is."""
    return all(hasattr(data, name) for name in ("index", "items", "dtype", "iloc"))


def in_order(rows: Any) -> Any:
    """A table or row of pandas whose labels are 0, 1, ... in that order; anything else as it is."""
    if not hasattr(rows, "iloc"):
        return rows
    labels = list(rows.index if is_series(rows) else rows.columns)
    numbers = list(range(len(labels)))
    if labels == numbers or set(labels) != set(numbers):
        return rows
    return rows.loc[numbers] if is_series(rows) else rows[numbers]
