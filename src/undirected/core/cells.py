"""Cells of a table: which are missing, and which are numbers."""

import math
import re
from typing import Any

import numpy as np
from jaxtyping import Float

from undirected.core.errors import UndirectedError

MISSING_WORDS = frozenset({"", "?", "na", "n/a", "nan", "+nan", "-nan", "null", "<na>", "#n/a"})
"""What stands for a missing value, in lower case and without spaces around it."""
DIGITS = re.compile(r"-?\d+")
MOST_WHOLE = 2**53
"""Up to here a double holds every whole number."""
LARGEST = float(np.finfo(np.float32).max)
"""The largest number of single precision."""


def parse_float(text: str) -> float:
    """The number written in `text`, in plain ASCII and without Python's `1_000` form."""
    if not text.isascii() or "_" in text:
        raise ValueError(f"{text!r} is not a number")
    return float(text)


def as_number(text: str) -> float | None:
    """The finite number that a cell is, or None."""
    try:
        value = parse_float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def is_code(word: str) -> bool:
    """Whether digits are so many that a double would round them: a code, not a number."""
    return (
        len(word) > 15
        and bool(DIGITS.fullmatch(word))
        and (len(word) > 300 or int(float(word)) != int(word))  # doubles end at 1.8e308
    )


def holds_codes(array: np.ndarray) -> bool:
    """Whether an array has whole numbers that are too large for doubles."""
    if array.dtype.kind not in "iu" or not array.size:
        return False
    return int(array.max()) > MOST_WHOLE or int(array.min()) < -MOST_WHOLE


def as_numbers(
    what: str, values: Any, advice: str, kind: Any = np.float32
) -> Float[np.ndarray, "..."]:
    """Values as an array of numbers, NaN where one is masked; all else is refused with advice.

    Of whatever kind, what single precision, in which models compute, has no room for is infinite.
    """
    try:
        found = np.asarray(_without_na(unmasked(values)), kind)
    except (TypeError, ValueError, OverflowError) as error:
        raise UndirectedError(f"{what} are no table of numbers ({error}); {advice}") from error
    if found.dtype == np.float32:
        return found
    large = np.abs(found) > LARGEST
    return np.where(large, np.copysign(np.inf, found), found) if large.any() else found


def _without_na(values: Any) -> Any:
    """Values as they are, but for cells of pandas' NA, which NumPy takes for no number."""
    if not hasattr(values, "convert_dtypes"):  # of pandas, which alone has it
        return values
    cells = np.asarray(values)
    if cells.dtype != object:
        return values
    nothing = [is_nothing(cell) for cell in cells.ravel()]
    return np.where(np.reshape(nothing, cells.shape), np.nan, cells)


def unmasked(values: Any) -> Any:
    """Values as they are; in a masked array of NumPy's the masked cells are NaN, or None in words.

    Whole numbers become floats, which have a NaN. `np.asarray` would show what lies below a mask.
    """
    if not isinstance(values, np.ma.MaskedArray):
        return values
    mask = np.ma.getmaskarray(values)
    if not mask.any():
        return values.data
    kind = values.dtype.kind
    wanted = np.float64 if kind in "bui" else values.dtype if kind in "fmM" else object
    found = values.data.astype(wanted)
    found[mask] = None
    return found


def is_nothing(cell: Any) -> bool:
    """Whether a cell is None, NaN, or what pandas has for them."""
    if isinstance(cell, float):
        return cell != cell
    if getattr(cell, "ndim", 0):  # an array in a cell
        return False
    # Compared with itself, pandas' NA is neither equal nor unequal.
    return cell is None or str(cell) in ("<NA>", "NaT") or bool(cell != cell)


def is_missing(cell: Any) -> bool:
    """Whether a cell stands for a missing value: None, NaN, or one of the words for it."""
    if isinstance(cell, str):
        return cell.strip().lower() in MISSING_WORDS
    return is_nothing(cell)


def as_word(cell: Any) -> str:
    """The text of a cell, as a CSV file would have it; a missing one is empty."""
    if isinstance(cell, str):
        word = cell.strip()
        return "" if word.lower() in MISSING_WORDS else word
    if is_missing(cell):
        return ""
    if getattr(cell, "ndim", 0):
        return str(cell)
    real = isinstance(cell, float) or getattr(getattr(cell, "dtype", None), "kind", "") == "f"
    if real and float(cell).is_integer() and abs(cell) < MOST_WHOLE:
        return str(int(cell))
    return str(cell)
