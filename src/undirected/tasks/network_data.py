"""Data about the variables of a discrete network as states by number, -1 where one is missing."""

from collections.abc import Hashable, Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from undirected.core.cells import as_word
from undirected.core.columns import Column, Schema
from undirected.core.errors import UndirectedError
from undirected.core.layout import Layout, marginals
from undirected.core.table_units import TableUnits
from undirected.io.frames import declared_states
from undirected.tasks.named_columns import (
    columns,
    has_names,
    is_lazy,
    names_of,
)
from undirected.tasks.rows import visible_rows

Rows = Int[np.ndarray, "rows variables"]
FEW, LEAST = 20, 5
"""Different numbers with fractions that may be states; rows from which on an id is told."""
NO_STATE = "(no other)"
"""The text for the forbidden second state of a variable of one."""
MOST_TOLD = 8
"""Variables of a row that an error tells."""


def states_by_name(caller: str, layout: Layout, data: Any) -> Rows:
    """States from columns by name; variables without a column are missing everywhere."""
    found = columns(caller, data)
    count = len(next(iter(found.values())))
    rows = np.full((count, len(layout.variables)), -1)
    for name, column in found.items():
        v = layout.variable(caller, name)
        number = {x: layout.state(caller, v, x) for x in set(column) - {None}}
        rows[:, v] = [-1 if x is None else number[x] for x in column]
    return rows


def states_of_units(caller: str, layout: Layout, data: Any) -> Rows | None:
    """States from rows over the visible units; None where entries are probabilities.

    Hidden variables are missing in all rows, and so is one of several units that are not all known.
    """
    units = visible_rows(caller, layout, data, grey=True)
    if not np.isin(units[~np.isnan(units)], (0, 1)).all():
        return None
    every = np.full((len(units), layout.n), np.nan, np.float32)
    every[:, : units.shape[1]] = units
    owner = layout.variables.owner
    missing = np.zeros((len(every), len(layout.variables)), bool)
    for unit, v in enumerate(owner):
        missing[:, v] |= np.isnan(every[:, unit])
    states = np.asarray(marginals(layout, np.nan_to_num(every))).argmax(-1)
    return np.where(missing, -1, states)


def declared(caller: str, data: Any) -> tuple[dict[Hashable, list[Hashable]], Rows]:
    """The states of the columns of data, and the rows by their numbers.

    They are those that a categorical column was declared with, elsewhere the entries, sorted.
    """
    found = columns(caller, data)
    words: dict[Hashable, list[Hashable]] = {}
    rows = np.full((len(next(iter(found.values()))), len(found)), -1)
    for i, (name, column) in enumerate(found.items()):
        seen, own = set(column) - {None}, declared_states(data[name])
        if own is None:
            _check_states(caller, name, column, seen)
        words[name] = own or _sorted(seen)
        if not seen:
            raise UndirectedError(f"{caller}: column {name!r} has no entries; leave it out")
        number = {x: k for k, x in enumerate(words[name])}
        rows[:, i] = [-1 if x is None else number[x] for x in column]
    return words, rows


def _check_states(caller: str, name: Hashable, column: list[Any], seen: set[Any]) -> None:
    """Refuse entries that can hardly be states: real numbers, and a value of its own a row."""
    there, why = sum(x is not None for x in column), ""
    if len(seen) > FEW and any(isinstance(x, float) and not x.is_integer() for x in seen):
        why = f"{len(seen):,} different real numbers: cut it into intervals"
    elif len(seen) == there >= LEAST:
        why = f"a value of its own in each of {there:,} rows, as an id has: leave it out"
    if why:
        raise UndirectedError(
            f"{caller}: column {name!r:.40} has {why}, or declare its states by a categorical "
            "column of pandas or an Enum of polars"
        )


def _sorted(words: set[Any]) -> list[Any]:
    try:
        return sorted(words)
    except TypeError:  # of different types
        return sorted(words, key=lambda x: (type(x).__name__, str(x)))


def row_in_words(layout: Layout, states: Int[np.ndarray, " variables"]) -> str:
    """What is known of one row, as `name=state` in the order of answers, cut off where it is long.

    States are by number, -1 where one is missing.
    """
    pairs = zip(layout.order, layout.names, strict=True)
    known = [f"{x}={layout.states_of(v)[states[v]]!r:.40}" for v, x in pairs if states[v] >= 0]
    return ", ".join(known[:MOST_TOLD]) + (", ..." if len(known) > MOST_TOLD else "")


def network_schema(layout: Layout) -> Schema | None:
    """The variables of a network as columns, words as text; None where they have no names.

    Names or words that would be the same text are told apart as Python writes them.
    """
    if layout.labels is None or any(not block.visible for block in layout.blocks):
        return None
    columns = []
    for v, name in zip(layout.order, _texts(layout.names), strict=True):
        states = layout.states_of(v)
        one = len(states) == 2 and states[1] is None  # the second is forbidden, and has no word
        words = _texts((states[0], NO_STATE) if one else states)
        columns.append(Column(name, "binary" if len(words) == 2 else "category", words))
    return Schema(tuple(columns))


def network_units(layout: Layout, schema: Schema) -> TableUnits | None:
    """The units of columns that are the variables of a network in the order of their names."""
    table = TableUnits.of(schema)
    first = layout.variables.first[list(layout.order)]
    alike = layout.labels is not None and np.array_equal(table.first, first)
    return table if alike and table.n_units == layout.n_visible else None


def _texts(words: Sequence[Hashable]) -> tuple[str, ...]:
    found = tuple(map(as_word, words))
    return found if len(set(found)) == len(found) and "" not in found else tuple(map(repr, words))


def unit_table(layout: Layout, rows: Rows) -> Float[np.ndarray, "rows v"]:
    """Rows over the visible units, NaN where a variable is missing."""
    owner = layout.variables.owner
    step = np.arange(len(owner)) - layout.variables.first[owner]
    state = np.where(layout.variables.width[owner] == 1, 1, step)
    own = rows[:, owner]
    return np.where(own < 0, np.nan, own == state)[:, : layout.n_visible].astype(np.float32)


def units_of(caller: str, layout: Layout, data: Any) -> Any:
    """Rows over the visible units from columns by name; other data as they are.

    See `goes_by_name` for data frames.
    """
    if goes_by_name(layout, data):
        return unit_table(layout, states_by_name(caller, layout, data))
    return data


def goes_by_name(layout: Layout, data: Any) -> bool:
    """Whether data are columns that name variables.

    Where variables have no names, a data frame has the units by position; but it may number
    variables, if there are not as many as units.
    """
    if isinstance(data, Mapping) or not has_names(data):
        return isinstance(data, Mapping)
    if layout.labels is not None or is_lazy(data):
        return True
    names = list(names_of(data))
    return len(names) != layout.n_visible and all(isinstance(name, Integral) for name in names)
