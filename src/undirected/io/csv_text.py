"""Comma-separated text as arrays of numbers, read a few megabytes at a time."""

import csv
import io
import os
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from jaxtyping import Float, Float32

from undirected.core.cells import is_missing, parse_float
from undirected.core.errors import BadFile

CHUNK = 1 << 21  # bytes
BOM = b"\xef\xbb\xbf"
NUMBER_BYTES = b"0123456789+-.eE,naN"
COMMA, NEWLINE = b",\n"
CODE = re.compile(rb'[,\n"] *0\d')
SAY_HEADER = "say --header (in Python header=True)"

# The value of a cell of one character or none by the byte before its end, a separator where empty.
DIGITS = np.full(256, -1, np.float32)
DIGITS[ord("0") : ord("9") + 1] = np.arange(10)
DIGITS[[COMMA, NEWLINE, ord("?")]] = np.nan


@dataclass(frozen=True)
class Source:
    """Where values come from: says the place of a row or a value in words."""

    path: Path
    names: list[str]
    first_line: int
    nameless: frozenset[int] = frozenset()
    """Columns that the file gives no name."""

    def line(self, row: int) -> str:
        """The line of a row."""
        return f"{self.path}, line {self.first_line + row}"

    def place(self, row: int, column: int) -> str:
        """The line and the column of a value."""
        return f"{self.line(row)}, column {column + 1} ({self.names[column]})"


def read(
    path: Path, header: bool | None, dtype: type = np.float32
) -> tuple[Float[np.ndarray, "rows columns"], Source]:
    """The values of a file, and where they come from."""
    with open(path, "rb") as file:
        end, newlines = _measure(file)
        start = len(BOM) if file.read(len(BOM)) == BOM else 0
        file.seek(start)
        source = _read_names(file, path, header, end)
        if source.first_line == 1:
            file.seek(start)
        if file.tell() >= end:
            raise BadFile(f"{path}: the file has column names, but no rows")
        columns, rows = len(source.names), 0
        values = np.empty((min(newlines + 1, end // columns + 1), columns), dtype)
        while file.tell() < end:
            chunk = file.read(min(CHUNK, end - file.tell())) + file.readline()
            chunk = chunk.replace(b"\r\n", b"\n").removesuffix(b"\n") + b"\n"
            part = parse(chunk, columns)
            part = parse_slowly(chunk, rows, source) if part is None else part
            with np.errstate(over="ignore"):  # the caller reports what becomes infinite
                values[rows : rows + len(part)] = part
            rows += len(part)
    return values[:rows], source


def write(file: BinaryIO, values: Float32[np.ndarray, "rows columns"], names: list[str]) -> None:
    """Names and values, blank where missing; reading gives the same float32 values.

    In a table of one column NaN is spelt out, because blank lines at the end are not rows.
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(names)
    file.write(text.getvalue().encode())
    step = max(1, CHUNK // (16 * values.shape[1]))
    for start in range(0, len(values), step):
        part = values[start : start + step]
        digits = (part <= 9) & (part == np.floor(part)) & ~np.signbit(part)
        absent = np.isnan(part)
        if (digits | absent).all() and not (absent.any() and len(names) == 1):
            cells = np.full((len(part), 2 * len(names)), COMMA, np.uint8)
            cells[:, ::2] = np.where(absent, 0, part + ord("0"))
            cells[:, -1] = NEWLINE
            file.write(cells.tobytes().replace(b"\0", b""))
        else:
            lines = "".join(",".join(row) + "\n" for row in part.astype(np.str_).tolist())
            lines = lines.replace(".0,", ",").replace(".0\n", "\n")
            file.write((lines if len(names) == 1 else lines.replace("nan", "")).encode())


def is_header(cells: list[str], path: Path) -> bool:
    """Whether a first line holds names; one that mixes names and numbers is refused."""
    if counts(cells):
        return True
    named = [cell for cell in cells if not is_number(cell)]
    numbers = [cell for cell in cells if is_number(cell) and not is_missing(cell)]
    if named and numbers:
        raise BadFile(
            f"{path}, line 1: '{named[0]}' is a name, but '{numbers[0]}' a number; rename the "
            f"column, mend the cell, or {SAY_HEADER}"
        )
    return bool(named)


def has_codes(path: Path) -> bool:
    """Whether a cell begins with a 0 and another digit, as the zip code 02139 does."""
    with open(path, "rb") as file:
        lines = iter(lambda: file.read(CHUNK) + file.readline(), b"")
        return any(CODE.search(b"\n" + chunk) for chunk in lines)


def counts(names: list[str]) -> bool:
    """Whether names count 0, 1, 2, ... over three columns or more."""
    return len(names) > 2 and names == [str(i) for i in range(len(names))]


def clean_names(names: Iterable[str], path: Path) -> list[str]:
    """Names without spaces around them, all different; a blank one becomes x and its index."""
    cleaned = [name.strip() or f"x{column}" for column, name in enumerate(names)]
    last = {name: column for column, name in enumerate(cleaned)}
    for column, name in enumerate(cleaned):
        if last[name] != column:
            both = f"{column + 1} and {last[name] + 1}"
            raise BadFile(f"{path}: columns {both} are both called '{name}'; rename one")
    return cleaned


def parse(chunk: bytes, columns: int) -> Float[np.ndarray, "rows columns"] | None:
    """The values of whole lines, vectorised; None where there is anything out of the ordinary."""
    chunk = chunk.replace(b", ", b",")
    data = np.frombuffer(chunk, np.uint8)
    ends = np.flatnonzero((data == COMMA) | (data == NEWLINE))
    if len(ends) % columns or not _is_regular(data[ends] == NEWLINE, columns):
        return None
    if np.diff(ends, prepend=-1).max() <= 2:
        values = DIGITS[data[ends - 1]]
        return None if (values < 0).any() else values.reshape(-1, columns)
    text = chunk[:-1].replace(b"\n", b",").replace(b"NA", b"nan").replace(b"?", b"nan")
    text = (b"," + text + b",").replace(b",,", b",nan,").replace(b",,", b",nan,")[1:-1]
    if text.translate(None, NUMBER_BYTES):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        try:
            numbers = np.fromstring(text, sep=",")
        except (DeprecationWarning, ValueError):
            return None
    return numbers.reshape(-1, columns) if len(numbers) == len(ends) else None


def parse_slowly(chunk: bytes, rows: int, source: Source) -> Float[np.ndarray, "rows columns"]:
    """The values of whole lines, cell by cell; names the first cell that is wrong.

    `rows` came before the chunk; quotes are understood, and spaces around a number.
    """
    lines = _decode(chunk, rows, source)[:-1].split("\n")
    values = np.empty((len(lines), len(source.names)))
    reader = csv.reader(lines)
    try:
        for row, cells in enumerate(reader):
            if reader.line_num > row + 1:
                raise csv.Error("a quoted cell goes over the end of the line")
            values[row] = _row(cells or [""], rows + row, source)
    except csv.Error as error:
        raise BadFile(
            f"{source.line(rows + reader.line_num - 1)}: not a CSV row ({error})"
        ) from error
    return values


def _row(cells: list[str], row: int, source: Source) -> list[float]:
    if len(cells) != len(source.names):
        got = f"{len(cells)} cells" if any(cells) else "an empty line"
        raise BadFile(f"{source.line(row)}: {got}; wanted {len(source.names)} cells, one a column")
    values = []
    for column, cell in enumerate(map(str.strip, cells)):
        if not is_number(cell):
            hint = "; cells are separated by commas" if ";" in cell or "\t" in cell else ""
            raise BadFile(
                f"{source.place(row, column)}: {cell[:40]!r} is not a number "
                f"(missing values are blank, NA, NaN or null){hint}"
            )
        values.append(np.nan if is_missing(cell) else parse_float(cell))
    return values


def _read_names(file: BinaryIO, path: Path, header: bool | None, end: int) -> Source:
    """Read the first line, which may hold the names; `first_line` is 1 where it does not."""
    source = Source(path, [], 1)
    lines = (_decode(line, row, source) for row, line in enumerate(iter(file.readline, b"")))
    reader = csv.reader(lines)
    try:
        cells = next(reader, [])
    except csv.Error as error:
        raise BadFile(f"{path}, line {reader.line_num}: not a CSV row ({error})") from error
    if end <= file.tell() and not "".join(cells).strip():
        raise BadFile(f"{path}: the file is empty; wanted rows of numbers")
    if not cells:
        raise BadFile(f"{path}, line 1: an empty line; the table starts on the first line")
    if is_header(cells, path) if header is None else header:
        nameless = frozenset(i for i, cell in enumerate(cells) if not cell.strip())
        return Source(path, clean_names(cells, path), reader.line_num + 1, nameless)
    return Source(path, clean_names([""] * len(cells), path), 1, frozenset(range(len(cells))))


def _decode(chunk: bytes, row: int, source: Source) -> str:
    try:
        return chunk.decode()
    except UnicodeDecodeError as error:
        row += chunk[: error.start].count(b"\n")
        raise BadFile(f"{source.line(row)}: not UTF-8 text; save the file as UTF-8") from error


def _measure(file: BinaryIO) -> tuple[int, int]:
    """Where the last line with anything in it ends, and how many newlines there are in all."""
    newlines = sum(block.count(b"\n") for block in iter(lambda: file.read(CHUNK), b""))
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - CHUNK)
        file.seek(start)
        tail = file.read(end - start).rstrip(b"\r\n")
        end = start + len(tail)
        if tail:
            break
    file.seek(0)
    return end, newlines


def is_number(cell: str) -> bool:
    """Whether a cell is read as a number, or as a missing one."""
    if is_missing(cell):
        return True
    try:
        parse_float(cell.strip())
    except ValueError:
        return False
    return True


def _is_regular(is_newline: np.ndarray, columns: int) -> bool:
    """Whether every line has as many cells as there are columns."""
    grid = is_newline.reshape(-1, columns)
    return bool(grid[:, -1].all() and not grid[:, :-1].any())
