"""Tables for the commands: read with their schema to fit, and by a model's schema afterwards."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from undirected.cli import console
from undirected.cli.schema_lines import schema_lines
from undirected.core.cells import as_number, as_word
from undirected.core.columns import Column, Schema, listed
from undirected.core.errors import BadFile, UndirectedError
from undirected.io.delimited import Rows, delimiter_told, sniff
from undirected.io.frames import Frame, kind_of, read_frame
from undirected.io.infer import infer_schema, parse_types, zero_one_schema
from undirected.io.tables import Table, read_table


@dataclass(frozen=True)
class Wishes:
    """What the user says about the columns of a table; what is None is found out."""

    header: bool | None = None
    types: str | None = None
    drop: str | None = None
    columns: str | None = None
    label: str | None = None
    delimiter: str | None = None
    given: str | None = None

    @property
    def are_plain(self) -> bool:
        """Whether nothing is said that a table of 0 and 1 would not know."""
        return not (self.types or self.drop or self.columns or self.delimiter)


NUMBERS = {"gaussian": "real", "nonnegative": "nonnegative"}
"""The kind as which a model takes all columns of numbers."""
NARROW, FAR = 1e-3, 5.0
"""Standard deviations that hold all numbers near a column's median where others are outliers, and
how far from it one of these is."""


def read_to_fit(
    path: Path, wishes: Wishes, grey: bool, model: str = "auto"
) -> tuple[Table, Schema]:
    """The rows of a table as a model has them, and its schema.

    A table of 0 and 1 is read by the reader for those, and keeps all its columns; so is one of
    grey values where they are wanted. Every other table goes by the schema that its cells suggest.
    """
    types = parse_types(wishes.types)
    refusal: Exception | None = None
    if wishes.are_plain and model not in NUMBERS and kind_of(path) in (".csv", ".npy", ".npz"):
        try:
            table = read_table(path, binary=not grey, grey=grey, header=wishes.header)
        except BadFile as error:
            refusal = error
        else:
            return table, zero_one_schema(table.values, table.names, wishes.label)
    frame = read_frame(path, header=wishes.header, delimiter=_delimiter(wishes.delimiter))
    if refusal and grey and _is_of_greys(frame, model):
        raise refusal
    if refusal and not grey:
        wrong = _rows_of_others(frame)
        if not wrong and len(frame) > 1:  # between other delimiters
            table = _of_zeros_and_ones(frame)
            return table, zero_one_schema(table.values, table.names, wishes.label)
        if len(frame) > 1 and wrong <= max(1, len(frame) // 100):
            raise refusal
    chosen = {"drop": names_in(wishes.drop), "columns": names_in(wishes.columns) or None}
    schema = infer_schema(frame, types=types, label=wishes.label, **chosen)
    if model in NUMBERS:
        kinds = {c.name: NUMBERS[model] for c in schema if _is_of_numbers(c)}
        schema = infer_schema(frame, types=kinds | types, label=wishes.label, **chosen)
    return Table(schema.encode(frame.cells, frame.place), schema.names), schema


def read_by_schema(path: Path, schema: Schema, header: bool | None) -> tuple[np.ndarray, Frame]:
    """The rows of a table for a model with that schema, and the table as it was read.

    Columns are found by their names; one that the table does not have is missing throughout.
    """
    frame = read_frame(path, header=header)
    known = [name for name in schema.names if name in frame.cells]
    strange = [n for n in frame.names if n not in schema.names and n not in schema.dropped]
    if not known:
        raise UndirectedError(
            f"{path}: no column of the model is there; it knows {_some(schema.names)}, the table "
            f"has {_some(frame.names)}"
        )
    if strange:
        console.say(f"{path}: the model does not know {listed(strange)}, which is left alone")
    absent = [name for name in schema.names if name not in frame.cells]
    if absent:
        console.say(f"{path}: {listed(absent)} is not there and counts as missing")
    cells = dict(frame.cells) | {name: np.full(len(frame), np.nan) for name in absent}
    return schema.encode(cells, frame.place), frame


def _some(names: list[str]) -> str:
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")


def tell_schema(schema: Schema, rows: int) -> None:
    """Print what the columns hold, and which are left out and why."""
    for line in schema_lines(schema, rows):
        console.say(line)
    if any(why != "as asked" for why in schema.dropped.values()):
        console.say("  --types NAME=KIND keeps a column")


def tell_outliers(schema: Schema, values: np.ndarray) -> None:
    """Warn of numbers so far from the others that a model sees no difference between these."""
    for column, cells in zip(schema, values.T, strict=True):
        if column.kind != "real":
            continue
        middle = float(np.nanmedian(cells))
        away = cells[~np.isnan(cells)] - middle
        near, far = away[np.abs(away) < 1], float(away[np.abs(away).argmax()])
        if np.ptp(near) < NARROW and abs(far) > FAR:
            number = (far + middle) * column.scale + column.mean
            console.say(
                f"note: '{column.name}' has numbers, such as {number:g}, beside which most others "
                "are all the same; mend or blank them, or give their logarithms"
            )


def _delimiter(text: str | None) -> str | None:
    words = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " "}
    found = None if text is None else words.get(text, text)
    if found is not None and (len(found) != 1 or found in '\n\r"'):
        raise UndirectedError(f"delimiter: got {text!r:.20}; pass one character, or tab")
    return found


def names_in(text: str | None) -> list[str]:
    """Names with commas between."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _is_of_numbers(column: Column) -> bool:
    return all(as_number(word) is not None for word in column.states)


def _is_of_greys(frame: Frame, model: str) -> bool:
    """Whether a table for query training holds numbers alone, which are then to be grey values."""
    return model != "mixed" and all(c.dtype.kind in "buif" for c in frame.cells.values())


def is_plain(path: Path) -> bool:
    """Whether the reader of tables of 0 and 1 takes a file: commas, or an array."""
    kind = kind_of(path)
    if kind != ".csv" or not path.is_file():
        return kind in (".csv", ".npy", ".npz")
    return path.suffix.lower() == ".csv" and sniff(path) == "," and not delimiter_told(path)


def names_other_columns(
    path: Path, header: bool | None, names: list[str], fewer: bool = True
) -> bool:
    """Whether the first line of a table of 0 and 1 names these columns and more, or with `fewer`
    some of them.

    Where it names these alone, or none of them, the reader of such tables is enough.
    """
    if header is False or kind_of(path) != ".csv" or not (path.is_file() and is_plain(path)):
        return False
    _, first = next(iter(Rows(path, ",")), (1, []))
    first = first[:-1] if first[-1:] == [""] else first
    if not header and all(as_number(cell) is not None for cell in first):
        return False
    known = set(first) & set(names)
    return bool(known) and set(first) != set(names) and (fewer or known == set(names))


def _of_zeros_and_ones(frame: Frame) -> Table:
    """A table of 0, 1 and holes as numbers."""
    binary = {name: Column(name, "binary", ("0", "1")) for name in frame.names}
    values = [binary[name].encode(frame.cells[name], frame.place) for name in frame.names]
    return Table(np.stack(values, 1), frame.names)


def _rows_of_others(frame: Frame) -> int:
    """How many rows have cells that are not 0, 1 or missing.

    Where it is one row, or one in a hundred, the table was meant to be of 0 and 1, and the cell
    that is not is a slip, or a header that was not taken for one.
    """
    wrong = np.zeros(len(frame), bool)
    for cells in frame.cells.values():
        if cells.dtype.kind == "f":
            wrong |= ~(np.isnan(cells) | (cells == 0) | (cells == 1))
        else:
            wrong |= [as_word(cell) not in ("0", "1", "") for cell in cells]
    return int(wrong.sum())
