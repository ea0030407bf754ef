"""Delimited text of any kind of cell: comma, tab, semicolon..., plain or gzipped, as columns."""

import csv
import gzip
import io
import itertools
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from undirected.core.cells import as_number, is_missing
from undirected.core.errors import BadFile
from undirected.io.csv_text import BOM, SAY_HEADER, clean_names, counts

DELIMITERS = ",;\t|"
SAMPLE = 50
"""Lines that are looked at to find the delimiter, and rows to find out about a header."""
STEP = 20_000
"""Rows that are held as Python lists at a time."""
SEP = re.compile(r"sep=(.)\W*")
"""The first line of some files made for Excel: the delimiter, and nothing of the table."""
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})*")
LONGEST = 1 << 20
"""Characters of a cell: beyond that a quote was never closed."""


class Lines:
    """The lines of a file as text; a byte that is not UTF-8 is reported with its line."""

    def __init__(self, path: Path):
        self.path = path

    def __iter__(self) -> Iterator[str]:
        number = 0
        try:
            with _open(self.path) as file:
                for number, line in enumerate(file, 1):
                    text = (line.removeprefix(BOM) if number == 1 else line).decode()
                    yield text.removesuffix("\n").removesuffix("\r") + "\n"
        except UnicodeDecodeError as error:
            raise BadFile(
                f"{self.path}, line {number}: not UTF-8 text; save the file as UTF-8"
            ) from error
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise BadFile(f"{self.path}: damaged, or not a gzip file ({error})") from error


class Rows:
    """The rows of a file as lists of cells, each with the line on which it starts."""

    def __init__(self, path: Path, delimiter: str):
        self.path, self.delimiter = path, delimiter

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        csv.field_size_limit(LONGEST)
        if self.delimiter == " ":
            yield from ((i, line.split()) for i, line in enumerate(Lines(self.path), 1))
            return
        reader, line = csv.reader(Lines(self.path), delimiter=self.delimiter, strict=True), 1
        try:
            for cells in reader:
                if line == 1 and SEP.fullmatch(self.delimiter.join(cells)):
                    line = 2
                    continue
                yield line, [cell.strip() for cell in cells]
                line = reader.line_num + 1
        except csv.Error as error:
            if "new-line character" in str(error):
                raise BadFile(
                    f"{self.path}, line {line}: a carriage return inside a row; save the file with "
                    "lines that end in LF or CRLF"
                ) from error
            raise BadFile(
                f"{self.path}, line {line}: not a row of cells ({error}); is a quote open?"
            ) from error


def read(
    path: Path, header: bool | None, delimiter: str | None = None
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The cells of every column as text, and the line of every row."""
    rows = Rows(path, delimiter or sniff(path))
    filled = ((line, cells) for line, cells in rows if any(cells) or line > 1)
    first = list(itertools.islice(filled, SAMPLE))
    while first and not any(first[-1][1]):
        first.pop()
    if not first:
        raise BadFile(f"{path}: the file is empty; wanted rows of cells")
    named = _has_header(path, [cells for _, cells in first]) if header is None else header
    width = _width([cells for _, cells in first], named)
    titles = first[0][1] if named else [""] * width
    names = clean_names(titles[:width] + [""] * (width - len(titles)), path)
    columns, lines = _columns(rows, names, path, skip=named)
    if not len(lines):
        raise BadFile(f"{path}: the file has column names, but no rows")
    nameless = {name for name, title in zip(names, titles, strict=False) if not title}
    kept = {n: c for n, c in columns.items() if n not in nameless or any(c)}
    if not kept:
        raise BadFile(f"{path}: the file is empty; wanted rows of cells")
    return _with_points(kept, rows.delimiter), lines


def sniff(path: Path) -> str:
    """The delimiter: the one that gives every line the same number of cells, and most of them."""
    if path.name.lower().removesuffix(".gz").endswith((".tsv", ".tab")):
        return "\t"
    if told := delimiter_told(path):
        return told
    lines = [line for line in itertools.islice(Lines(path), SAMPLE) if line.strip()]
    scores = {}
    for delimiter in DELIMITERS:
        try:
            widths = [len(cells) for cells in csv.reader(lines, delimiter=delimiter)]
        except csv.Error:
            continue
        usual = max(set(widths), key=widths.count) if widths else 1
        if usual > 1:
            scores[delimiter] = (widths.count(usual) / len(widths), usual)
    if scores:
        return max(scores, key=lambda delimiter: scores[delimiter])
    cells = [line.split() for line in lines]
    numbers = all(as_number(c) is not None or is_missing(c) for row in cells[1:] for c in row)
    return " " if numbers and len(cells) > 1 and {len(r) for r in cells} - {1} else ","


def delimiter_told(path: Path) -> str | None:
    """The delimiter that the first line with anything in it tells, as `sep=;` does."""
    first = next((line for line in Lines(path) if line.strip()), "")
    told = SEP.fullmatch(first.strip("\n"))
    return told[1] if told else None


def _open(path: Path) -> Any:
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else open(path, "rb")


def _width(rows: list[list[str]], named: bool) -> int:
    """Cells of a row: as many as there are names, or as most rows have.

    Those after a trailing delimiter, which nothing fills, do not count.
    """
    widths = [len(row) for row in rows]
    width = widths[0] if named else max(set(widths), key=widths.count)
    while width > 1 and not any(row[width - 1 : width] not in ([], [""]) for row in rows):
        width -= 1
    return width


def _has_header(path: Path, rows: list[list[str]]) -> bool:
    """Whether the first row holds names.

    It does where a column of numbers begins with a word, and does not where one begins with a
    number. Where all is text, it does unless most of its cells turn up again below themselves.
    """
    first, rest = rows[0], rows[1:]
    if counts(first):
        return True
    numbers = [cell for cell in first if as_number(cell) is not None]
    columns = list(itertools.zip_longest(*rest, fillvalue=""))
    pairs = list(zip(first, columns, strict=False))
    named = [
        cell
        for cell, below in pairs
        if cell and not is_missing(cell) and as_number(cell) is None and _are_numbers(below)
    ]
    if numbers and named:
        raise BadFile(
            f"{path}, line 1: '{named[0]}' is a name, but '{numbers[0]}' a number; rename the "
            f"column, mend the cell, or {SAY_HEADER}"
        )
    if numbers or named:
        return not numbers
    again = sum(bool(cell) and cell in below for cell, below in pairs)
    return not rest or 2 * again <= len(first)


def _are_numbers(cells: tuple[str, ...]) -> bool:
    there = [as_number(cell) is not None for cell in cells if not is_missing(cell)]
    return bool(there) and 2 * sum(there) > len(there)


def _columns(
    rows: Rows, names: list[str], path: Path, skip: bool
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The cells column by column; every word is kept once, however often it occurs."""
    words: dict[str, str] = {}
    parts: list[np.ndarray] = []
    lines: list[int] = []
    held: list[list[str]] = []
    for line, cells in itertools.islice(rows, int(skip), None):
        if cells in ([], [""]) and len(names) > 1:  # a line of delimiters is a row of holes
            continue
        held.append([words.setdefault(c, c) for c in _checked(cells, line, names, path)])
        lines.append(line)
        if len(held) == STEP:
            parts.append(np.array(held, object))
            held, words = [], dict(itertools.islice(words.items(), STEP))
    if held:
        parts.append(np.array(held, object))
    while lines and len(names) == 1 and not parts[-1][-1, 0]:  # blank lines at the end
        lines.pop()
        parts[-1] = parts[-1][:-1]
        parts = parts[:-1] if not len(parts[-1]) else parts
    table = np.concatenate(parts) if parts else np.empty((0, len(names)), object)
    return {name: table[:, j] for j, name in enumerate(names)}, np.array(lines, int)


def _checked(cells: list[str], line: int, names: list[str], path: Path) -> list[str]:
    """The cells of a row, one a column; empty ones after a trailing delimiter are left off."""
    extra = cells[len(names) :]
    if len(cells) < len(names) and cells == [""]:
        return [""] * len(names)
    if any(extra) or len(cells) < len(names):
        raise BadFile(
            f"{path}, line {line}: {len(cells)} cells; wanted {len(names)} cells, one a column "
            f"({', '.join(names[:4])}{', ...' if len(names) > 4 else ''})"
        )
    return cells[: len(names)]


def _with_points(columns: dict[str, np.ndarray], delimiter: str) -> dict[str, np.ndarray]:
    """Decimal commas made points, where the delimiter is another and a column has nothing else."""
    if delimiter == ",":
        return columns
    return {name: _with_point(cells, delimiter) for name, cells in columns.items()}


def _with_point(cells: np.ndarray, delimiter: str) -> np.ndarray:
    there = [cell for cell in cells if not is_missing(cell)]
    if not any("," in cell for cell in there):
        return cells
    if delimiter != ";" and all(map(THOUSANDS.fullmatch, there)):  # 1,234 beside 950
        return cells
    turned = [cell.replace(",", ".") for cell in there]
    if any("." in cell for cell in there) or any(as_number(cell) is None for cell in turned):
        return cells
    return np.array([cell.replace(",", ".") for cell in cells], object)


def write(path: Path, names: list[str], columns: list[list[str]]) -> bytes:
    """Text of columns of cells, tabs in a `.tsv` file, commas elsewhere; gzipped for `.gz`."""
    text = io.StringIO()
    tab = path.name.lower().removesuffix(".gz").endswith((".tsv", ".tab"))
    writer = csv.writer(text, delimiter="\t" if tab else ",", lineterminator="\n")
    writer.writerow(names)
    if len(names) == 1:  # a blank line would not be a row
        columns = [[cell or "NA" for cell in columns[0]]]
    writer.writerows(zip(*columns, strict=True))
    data = text.getvalue().encode()
    return gzip.compress(data, mtime=0) if path.suffix.lower() == ".gz" else data
