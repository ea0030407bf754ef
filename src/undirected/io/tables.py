"""Tables of the user: `.csv`, `.npy` and `.npz` files as float32 arrays, NaN where missing."""

import math
import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float32
from numpy.lib import format as npy

from undirected.core.cells import unmasked
from undirected.core.errors import BadFile
from undirected.core.files import atomic_write, check_place, path_of
from undirected.io import csv_text

ROWS = 4096  # rows checked at a time


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of numbers under column names; NaN marks a missing value."""

    values: Float32[np.ndarray, "rows columns"]
    names: list[str]


def read_table(
    path: str | Path,
    *,
    binary: bool = False,
    grey: bool = False,
    missing: bool = True,
    header: bool | None = None,
) -> Table:
    r"""Read a table; a value that is not allowed is reported with its place in the file.

    A `.csv` file is UTF-8 with commas; blank, NA, ? and NaN are missing. A `.npz` file holds one
    array, or `x` and perhaps `names`. Columns without a name are x0, x1...

    Args:
        path: a `.csv`, `.npy` or `.npz` file.
        binary: allow only 0 and 1.
        grey: allow only 0, 1 and what lies between.
        missing: False allows no missing values.
        header: whether the first line of a `.csv` file holds names. By default it does if it has no
            numbers, or if it counts 0, 1, 2, ... over three columns or more. True also takes names
            of a `.npz` file that are numbers.

    Returns:
        A `Table`: `values` (rows, columns) in float32, NaN where one is missing, and `names`.

    Example:
        >>> import pathlib, tempfile
        >>> import undirected as un
        >>> path = pathlib.Path(tempfile.mkdtemp(), "votes.csv")
        >>> _ = path.write_text("ann,bob\n1,0\nNA,1\n")
        >>> table = un.read_table(path, binary=True)
        >>> table.names, table.values.tolist()
        (['ann', 'bob'], [[1.0, 0.0], [nan, 1.0]])
    """
    path, hint = path_of("read_table", path), ""
    suffix = _suffix(split_array(path)[0])
    check_there(path)
    if suffix == ".csv":
        values, source = csv_text.read(path, header)
        values, names = without_blank_columns(values, source)
        place = source.place
        if header is None and source.first_line == 1:
            hint = f"; if line 1 holds names, {csv_text.SAY_HEADER}"
    else:
        array, names = load_array(path)
        values, place = _to_float32(array, path), _entry(path)
        names = csv_text.clean_names(names or [""] * values.shape[1], path)
        if len(names) != values.shape[1]:
            raise BadFile(f"{path}: {len(names)} names for {values.shape[1]} columns")
        numbers = [name for name in names if csv_text.is_number(name)]
        if numbers and not header and not csv_text.counts(names):
            raise BadFile(
                f"{path}: the name '{numbers[0]}' would be read as a number; rename it, "
                f"or {csv_text.SAY_HEADER}"
            )
    _check(values, place, binary, grey, missing, hint)
    return Table(values, names)


def check_writable(*paths: str | Path) -> None:
    """Refuse, before any work is done for them, paths that `write_table` could not write."""
    places = [Path(path).resolve() for path in paths]
    for place in places:
        _suffix(place)
        check_place(place)
    if len(set(places)) < len(places):
        raise BadFile(f"{paths[0]}: named for two outputs; give each a file of its own")


def write_table(
    path: str | Path,
    values: Float32[np.ndarray, "rows columns"],
    names: list[str] | None = None,
    *,
    header: bool | None = None,
) -> None:
    """Write a table that `read_table` gives back.

    Args:
        path: a `.csv` or `.npz` file, or a `.npy` file, which holds the values without their names.
        values: (rows, columns), NaN where one is missing.
        names: of the columns; by default x0, x1...
        header: True writes names that are numbers too; such a table is read with `header=True`.

    Returns:
        Nothing; a write that fails leaves the old file as it was.

    Example:
        >>> import pathlib, tempfile
        >>> import undirected as un
        >>> path = pathlib.Path(tempfile.mkdtemp(), "votes.csv")
        >>> un.write_table(path, [[1, 0], [float("nan"), 1]], ["ann", "bob"])
        >>> path.read_text().splitlines()
        ['ann,bob', '1,0', ',1']
    """
    path = Path(path)
    suffix = _suffix(path)
    values = _to_float32(np.asarray(unmasked(values)), path)
    _check(values, _entry(path), binary=False, grey=False, missing=True)
    names = csv_text.clean_names(names or [""] * values.shape[1], path)
    if len(names) != values.shape[1]:
        raise ValueError(f"{path}: {len(names)} names for {values.shape[1]} columns")
    if suffix == ".csv" and not header and not csv_text.is_header(names, path):
        raise ValueError(f"{path}: {names[:3]} would be read as numbers; give columns other names")
    with writing(path) as temporary, open(temporary, "wb") as file:
        if suffix == ".csv":
            csv_text.write(file, values, names)
        elif suffix == ".npz":
            np.savez(file, x=values, names=np.array(names))
        else:
            np.save(file, values)


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """`atomic_write` of a table; where there is no room it says what to do."""
    try:
        with atomic_write(path) as temporary:
            yield temporary
    except OSError as error:
        raise OSError(
            error.errno,
            f"{path}: the table was not written ({error.strerror or error}); a file that was "
            "there is intact, make room or choose another folder",
        ) from error


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".npy", ".npz"):
        raise BadFile(f"{path}: unknown kind of table '{suffix}'; wanted .csv, .npy or .npz")
    return suffix


def split_array(path: Path) -> tuple[Path, str | None]:
    """The file and the array of `file.npz:name`; without a name, or where such a file is, None."""
    found = re.fullmatch(r"(.+\.npz):([^:/]+)", str(path), re.IGNORECASE)
    return (path, None) if found is None or path.exists() else (Path(found[1]), found[2])


def check_there(path: Path) -> None:
    """Refuse a path that is not a file."""
    path = split_array(path)[0]
    if not path.is_file():
        what = "this is a folder; name a file" if path.is_dir() else "no such file"
        raise FileNotFoundError(f"{path}: {what}")


def without_blank_columns(
    values: Float[np.ndarray, "rows columns"], source: csv_text.Source
) -> tuple[Float[np.ndarray, "rows columns"], list[str]]:
    """Values and names without a last column that trailing commas made: no name and no value."""
    width = len(source.names)
    while width > 1 and width - 1 in source.nameless and np.isnan(values[:, width - 1]).all():
        width -= 1
    return np.ascontiguousarray(values[:, :width]), source.names[:width]


def load_array(path: Path) -> tuple[np.ndarray, list[str]]:
    """The array of a `.npy` or `.npz` file, and column names where it has them."""
    file, wanted = split_array(path)
    try:
        with open(file, "rb") as opened:
            if opened.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
                opened.seek(0)
                _check_size(opened, file.stat().st_size, file)
                opened.seek(0)
                return np.load(opened, allow_pickle=False), []
        return _pick(file, wanted)
    except BadFile:
        raise
    except MemoryError:
        raise
    except Exception as error:  # a damaged header can make NumPy raise almost anything
        raise BadFile(
            f"{file}: damaged, or not an array of numbers ({error!s:.200}); write it with np.save"
        ) from error


def _check_size(file: Any, size: int, path: Path) -> None:
    """Refuse a header that promises more than the file can hold, before memory is taken for it."""
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject:
        raise BadFile(f"{path}: damaged, or not an array of numbers: it holds Python objects")
    if math.prod(shape) * dtype.itemsize > size:
        raise BadFile(
            f"{path}: damaged: its header says {shape} of {dtype}, which the file is too short for"
        )


def _pick(path: Path, wanted: str | None) -> tuple[np.ndarray, list[str]]:
    """One array of an archive: the one that is wanted, the one called x, or the only one."""
    with zipfile.ZipFile(path) as archive:
        sizes = {
            entry.filename.removesuffix(".npy"): entry.file_size for entry in archive.infolist()
        }
    keys = list(sizes)
    listed = ", ".join(keys) or "none"
    if wanted is not None and wanted not in keys:
        raise BadFile(f"{path}: no array is called '{wanted}'; the arrays are: {listed}")
    if wanted is None and "x" not in keys and len(keys) != 1:
        raise BadFile(
            f"{path}: wanted one array, or one called 'x'; the arrays are: {listed}; name one as "
            f"{path.name}:{keys[0] if keys else 'x'}"
        )
    key = wanted or ("x" if "x" in keys else keys[0])
    with zipfile.ZipFile(path) as archive, archive.open(f"{key}.npy") as entry:
        _check_size(entry, sizes[key], path)
    with np.load(path, allow_pickle=False) as archive:
        array = archive[key]
        named = "names" in keys and key == "x"
        return array, [str(name) for name in archive["names"].ravel()] if named else []


def _to_float32(array: np.ndarray, path: Path) -> Float32[np.ndarray, "rows columns"]:
    if array.dtype.kind not in "buif":
        raise BadFile(f"{path}: the array is of dtype {array.dtype}; wanted numbers")
    if array.ndim != 2:
        advice = "reshape(-1, 1) makes one column" if array.ndim < 2 else "reshape(len(x), -1)"
        raise BadFile(f"{path}: the array has shape {array.shape}; wanted 2 axes: {advice}")
    if 0 in array.shape:
        raise BadFile(f"{path}: the array has shape {array.shape}, no values at all")
    with np.errstate(over="ignore"):  # _check reports what becomes infinite
        return np.asarray(array, np.float32)


def _entry(path: Path) -> Callable[[int, int], str]:
    return lambda row, column: f"{path}, entry [{row}, {column}]"


def _check(
    values: np.ndarray,
    place: Callable[[int, int], str],
    binary: bool,
    grey: bool,
    missing: bool,
    hint: str = "",
) -> None:
    """Refuse infinite values and, where asked, missing ones and those out of the range.

    `hint` ends the message where the first row is at fault.
    """
    for start in range(0, len(values), ROWS):
        part = values[start : start + ROWS]
        absent = np.isnan(part)
        tests = [(np.isinf(part), "is beyond the range of float32")]
        if not missing:
            tests.append((absent, "is a missing value, and every value is needed here"))
        if binary:
            tests.append(((part != 0) & (part != 1) & ~absent, "is neither 0 nor 1"))
        if grey:
            outside = (part < 0) | (part > 1)
            tests.append((outside, "is not between 0 and 1; divide by the largest value there is"))
        for bad, complaint in tests:
            if bad.any():
                row, column = np.argwhere(bad)[0]
                where = place(start + row, column)
                value = part[row, column]
                if binary and value == -1 and (absent | (np.abs(part) == 1)).all():
                    complaint += "; for spins write (s + 1) / 2"
                end = hint if start + row == 0 else ""
                raise BadFile(f"{where}: {value:g} {complaint}{end}")
