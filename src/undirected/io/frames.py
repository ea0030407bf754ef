"""Tables of any kind of cell, from files and from data frames, as named columns."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from undirected.core.cells import MOST_WHOLE, as_word, is_nothing, unmasked
from undirected.core.columns import Schema
from undirected.core.errors import BadFile, UndirectedError
from undirected.core.files import check_place
from undirected.io import arrow, csv_text, delimited, tables

TEXT = (".csv", ".tsv", ".tab", ".txt", ".dat", ".data")
ARRAYS = (".npy", ".npz")
BINARY = arrow.PARQUET + arrow.ARROW
READABLE = TEXT + ARRAYS + BINARY


@dataclass(frozen=True, eq=False)
class Frame:
    """Cells of every column by its name: text or numbers, as they were found.

    Args:
        cells: one array a column, all of one length.
        place: where a cell stands, in words, from its row and the name of its column.
        categories: the words of the states of columns that have them in their file or frame.
        source: what the table is called in messages.

    Example:
        >>> from undirected.io.frames import as_frame
        >>> as_frame({"sky": ["grey", "dark"], "mm": [1.5, 7.0]}).names
        ['sky', 'mm']
    """

    cells: Mapping[str, np.ndarray]
    place: Callable[[int, str], str]
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    source: str = "the table"

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self.cells)

    def __len__(self) -> int:
        return len(next(iter(self.cells.values()), ()))

    def only(self, names: list[str]) -> "Frame":
        """The columns of these names alone, in this order."""
        cells = {name: self.cells[name] for name in names}
        return Frame(cells, self.place, self.categories, self.source)


def read_frame(
    path: str | Path, *, header: bool | None = None, delimiter: str | None = None
) -> Frame:
    """Read a table of any kind of cell.

    Args:
        path: text with any delimiter (`.csv`, `.tsv`, `.txt`, `.dat`, also `.gz`), `.npy`, `.npz`
            (`file.npz:name` for one array of several), Parquet or Arrow.
        header: whether the first line of text holds names; by default it is found out.
        delimiter: of text; by default it is found out.
    """
    path = Path(path)
    suffix = kind_of(path)
    tables.check_there(path)
    if suffix in BINARY:
        cells, categories = arrow.read(path)
        names = csv_text.clean_names(list(cells), path)
        named = dict(zip(names, cells.values(), strict=True))
        return _checked(Frame(named, _row_place(path), categories, str(path)))
    if suffix in ARRAYS:
        return _checked(_from_array(*tables.load_array(path), path))
    numbers = _numbers(path, header) if delimiter in (None, ",") else None
    if numbers is not None:
        return _checked(numbers)
    cells, lines = delimited.read(path, header, delimiter)
    where = {name: j + 1 for j, name in enumerate(cells)}

    def place(row: int, name: str) -> str:
        return f"{path}, line {lines[row]}, column {where[name]} ({name})"

    return Frame(cells, place, {}, str(path))


def as_frame(table: Any, source: str = "the table") -> Frame:
    """The frame of a pandas, polars or Arrow table, a mapping of columns, rows, or a file's path.

    None of those libraries is imported: they are known by what they offer.
    """
    if isinstance(table, Frame):
        return table
    if isinstance(table, str | Path):
        return read_frame(table)
    if isinstance(table, tables.Table):
        table = dict(zip(table.names, table.values.T, strict=True))
    categories: dict[str, tuple[str, ...]] = {}
    if isinstance(table, Mapping):
        names = _distinct(table, source)
        cells = {n: _as_cells(column, n) for n, column in zip(names, table.values(), strict=True)}
    elif hasattr(table, "column_names"):  # pyarrow
        cells, categories = _from_arrow(table)
    elif hasattr(table, "collect"):  # lazy frames of polars
        raise UndirectedError(
            f"{source}: got a {type(table).__name__}, which has no cells yet; pass table.collect()"
        )
    elif hasattr(table, "columns") and hasattr(table, "dtypes"):  # pandas and polars
        cells, categories = _from_data_frame(table)
    else:
        if hasattr(table, "layout"):
            raise UndirectedError(
                f"{source}: got a {type(table).__name__}, which is a model; pass a table, or fit "
                "the model by un.fit(model, rows)"
            )
        array = _array(table)
        if array.ndim != 2:
            raise UndirectedError(
                f"{source}: got a {type(table).__name__} of shape {array.shape}; pass a data "
                "frame, a mapping of columns, or rows"
            )
        cells = {f"x{i}": array[:, i] for i in range(array.shape[1])}
    return _checked(Frame(cells, _row_place(source), categories, source))


def kind_of(path: Path) -> str:
    """The suffix that says what a file holds, that of `a.csv.gz` being `.csv`."""
    path = tables.split_array(path)[0]
    suffix = path.suffix.lower()
    if suffix == ".gz":
        suffix = Path(path.stem).suffix.lower() or ".csv"
        suffix = suffix if suffix in TEXT else f"{suffix}.gz"
    if suffix not in READABLE:
        if path.is_dir():
            tables.check_there(path)
        raise BadFile(
            f"{path}: unknown kind of table '{suffix}'; wanted {', '.join(READABLE)}, or one of "
            "the first six with .gz"
        )
    return suffix


def check_writable(*paths: Path) -> None:
    """Refuse, before any work is done for them, paths that `write_frame` could not write."""
    for path in paths:
        if kind_of(path) in BINARY:
            arrow.require(path)
        check_place(path)
    if len({Path(path).resolve() for path in paths}) < len(paths):
        raise BadFile(f"{paths[0]}: named for two outputs; give each a file of its own")


def write_frame(path: str | Path, columns: Mapping[str, Any], schema: Schema | None = None) -> None:
    """Write columns of words and numbers; a schema says how many digits numbers have."""
    path = Path(path)
    suffix, known = kind_of(path), {c.name: c for c in schema or ()}
    if suffix in ARRAYS:
        _write_arrays(path, columns)
        return
    with tables.writing(path) as temporary:
        if suffix in BINARY:
            arrow.write(temporary, dict(columns))
        else:
            text = [
                [known[n].text(c) if n in known else _text(c) for c in cells]
                for n, cells in columns.items()
            ]
            temporary.write_bytes(delimited.write(path, list(columns), text))


def _text(cell: Any) -> str:
    if cell is None or cell != cell:
        return ""
    return cell if isinstance(cell, str) else as_word(cell)


def _write_arrays(path: Path, columns: Mapping[str, Any]) -> None:
    arrays = [np.asarray(cells) for cells in columns.values()]
    if any(array.dtype.kind not in "buif" for array in arrays):
        raise BadFile(
            f"{path}: the table has words, which arrays of numbers cannot hold; write a .csv or "
            ".parquet file"
        )
    tables.write_table(path, np.stack(arrays, 1), list(columns), header=True)


def _numbers(path: Path, header: bool | None) -> Frame | None:
    """A comma-separated file of numbers alone, by the reader that is quickest; None for others.

    Digits that are no quantity, because they begin with 0 or are too many for a number, are text.
    """
    if kind_of(path) != ".csv" or path.suffix.lower() == ".gz":
        return None
    try:
        values, source = csv_text.read(path, header, np.float64)
    except BadFile:
        return None
    if len(source.names) < 2 or (np.abs(values) >= 2**53).any():
        return None
    whole = (np.isnan(values) | (values == np.floor(values))).all(0)
    if whole.any() and csv_text.has_codes(path):
        return None
    values, names = tables.without_blank_columns(values, source)
    cells = {name: values[:, j] for j, name in enumerate(names)}
    where = {name: j for j, name in enumerate(source.names)}
    return Frame(cells, lambda row, name: source.place(row, where[name]), {}, str(path))


def _from_array(array: np.ndarray, names: list[str], path: Path) -> Frame:
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    if array.dtype.kind not in "buifU":
        raise BadFile(f"{path}: the array is of dtype {array.dtype}; wanted numbers or text")
    if array.ndim != 2:
        advice = "reshape(-1, 1) makes one column" if array.ndim < 2 else "reshape(len(x), -1)"
        raise BadFile(f"{path}: the array has shape {array.shape}; wanted 2 axes: {advice}")
    names = csv_text.clean_names(names or [""] * array.shape[1], path)
    if len(names) != array.shape[1]:
        raise BadFile(f"{path}: {len(names)} names for {array.shape[1]} columns")
    cells = {name: array[:, j] for j, name in enumerate(names)}
    where = {name: j for j, name in enumerate(names)}
    return Frame(cells, lambda row, name: f"{path}, entry [{row}, {where[name]}]", {}, str(path))


def _from_arrow(table: Any) -> tuple[dict[str, np.ndarray], dict[str, tuple[str, ...]]]:
    import pyarrow  # type: ignore[import-not-found]

    names = _distinct(table.column_names, "the table")
    cells = {n: arrow.cells_of(pyarrow, table.column(i), n) for i, n in enumerate(names)}
    return cells, arrow.categories_of(pyarrow, table, names)


def _from_data_frame(table: Any) -> tuple[dict[str, np.ndarray], dict[str, tuple[str, ...]]]:
    cells, categories = {}, {}
    for name, own in zip(_distinct(table.columns, "the table"), table.columns, strict=True):
        column = table[own]
        words = _category_words(column)
        if words:
            categories[name] = words
        coded = _coded_words(column, words)
        cells[name] = _as_cells(column, name) if coded is None else coded
    return cells, categories


def _distinct(names: Iterable[Any], source: str) -> list[str]:
    """Names of columns as text, all different."""
    place: dict[str, int] = {}
    for column, name in enumerate(map(str, names), 1):
        if (first := place.setdefault(name, column)) < column:
            both = f"{first} and {column}"
            raise BadFile(f"{source}: columns {both} are both called '{name}'; rename one")
    return list(place)


def _category_words(column: Any) -> tuple[str, ...]:
    """The declared states of a pandas categorical, or of an Enum of polars; none for others."""
    return tuple(map(as_word, declared_states(column) or ()))


def declared_states(column: Any) -> list[Any] | None:
    """The states that a categorical column of pandas, or an Enum of polars, was declared with.

    Other columns have none: a Categorical of polars knows those alone that it has met.
    """
    dtype = getattr(column, "dtype", None)
    found = getattr(dtype, "categories", None)
    if found is None or type(dtype).__name__ == "Categorical":
        return None
    return [x.item() if isinstance(x, np.generic) else x for x in found]


def _coded_words(column: Any, words: tuple[str, ...]) -> np.ndarray | None:
    """The words of a pandas column whose categories are dates or intervals; None for others.

    Its cells are not written as its categories are: whole bounds of intervals become 1.0 there.
    """
    codes = getattr(getattr(column, "cat", None), "codes", None)
    if not words or codes is None or all(isinstance(c, str | Real) for c in column.cat.categories):
        return None
    return np.array([*words, None], object)[np.asarray(codes)]


def _as_cells(column: Any, name: str) -> np.ndarray:
    """Numbers as an array of numbers, all else as objects with None for what is missing."""
    array = column.to_numpy() if hasattr(column, "to_numpy") else _array(column)
    if array.ndim != 1:
        raise BadFile(f"the column '{name}' has shape {array.shape}; pass one cell for each row")
    if array.dtype == np.float64 and (np.abs(array) >= MOST_WHOLE).any():
        array = np.array(list(column), object)  # perhaps integers beside missing ones
    if array.dtype.kind in "buif":
        return array
    if array.dtype.kind in "mM":
        return np.array([None if cell != cell else str(cell) for cell in array], object)
    array = np.asarray(array, object)
    kept = [cell for cell in array if not is_nothing(cell)]
    kinds = set(map(type, kept))
    codes = kinds == {int} and any(abs(cell) > MOST_WHOLE for cell in kept)
    if kinds and kinds <= {int, float} and not codes:
        return np.array([np.nan if is_nothing(cell) else cell for cell in array], np.float64)
    return array


def _array(values: Any) -> np.ndarray:
    """Values as an array; of objects where they are lists of several lengths."""
    if isinstance(values, np.ma.MaskedArray) and values.dtype.kind == "b":
        values = values.astype(object)  # yes and no stay what they are beside what is not known
    try:
        return np.asarray(unmasked(values))
    except ValueError:
        return np.array([*values, None], object)[:-1]


def _row_place(source: str | Path) -> Callable[[int, str], str]:
    return lambda row, name: f"{source}, row {row + 1}, column '{name}'"


def _checked(frame: Frame) -> Frame:
    lengths = {name: len(cells) for name, cells in frame.cells.items()}
    if len(set(lengths.values())) > 1:
        short = min(lengths, key=lambda name: lengths[name])
        raise BadFile(
            f"{frame.source}: the column '{short}' has {lengths[short]} cells, another "
            f"{max(lengths.values())}"
        )
    if not len(frame):
        raise BadFile(f"{frame.source}: the table has no rows, or no columns")
    return frame
