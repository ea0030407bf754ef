"""What the columns of a table hold: a schema from its cells, with advice on those left out."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np

from undirected.core.cells import DIGITS, as_number, as_word, holds_codes, is_code
from undirected.core.columns import KINDS, Column, Schema, some_names
from undirected.core.errors import BadFile, UndirectedError
from undirected.io.frames import Frame, as_frame

MOST_STATES = 256
"""States that a category may have."""
FEW_NUMBERS = 12
"""Whole numbers with no more different values than this are states, as answers from 1 to 5 are."""
REPEATS = 4
"""Times that each of a few whole numbers occurs on average, where they are states."""
RARE = 0.02
"""Share of the cells up to which words among numbers are taken for slips."""
ZEROS = 0.05
"""Share of zeros from which on a column of numbers that are never negative is nonnegative."""
UNIQUE = 0.9
"""Share of different values from which on a column of words tells rows apart."""
FALSE_TRUE = (("0", "1"), ("-1", "1"), ("false", "true"), ("no", "yes"), ("f", "t"), ("n", "y"))
DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ]\d{1,2}:\d{2}.*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}( .*)?|"
    r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?|\d{1,2}[ -][A-Za-z]{3,9}[ -]\d{2,4}"
)
DATES = "dates or times; give what matters of them, such as the month, a column of its own"
SIGNS = re.compile(r"[\s,$€£%'()\u2212]")
"""What stands in written-out numbers beside their digits; brackets and U+2212 are minus signs."""
ID = "every row has a number of its own, as an id has"
ID_NAME = re.compile(
    r"(.*[_\W])?(id|index|idx|key|uuid|guid|row|nr|no|rownames)|unnamed:? ?\d*", re.I
)


class Left(Exception):
    """A column that is left out, and why."""


def infer_schema(
    table: Any,
    *,
    types: Mapping[str, str] | None = None,
    drop: str | Iterable[str] | None = (),
    columns: str | Iterable[str] | None = None,
    label: str | None = None,
) -> Schema:
    r"""Find out what the columns of a table hold.

    A column of two words, or of 0/1, true/false, yes/no or -1/1, is binary; of some words, or of a
    few whole numbers, a category; of other numbers, real, or nonnegative where many are 0. Missing
    are empty cells, NA, NaN, null and ?. Columns that are constant, all missing or nearly unique
    and dates and free text are left out, which `dropped` says with the reason.

    Args:
        table: a file's path, a pandas, polars or Arrow table, a mapping of columns, or rows.
        types: the kind of some columns: "binary", "category", "real" or "nonnegative".
        drop: columns to leave out; a name or some.
        columns: the columns to take, a name or some; by default all.
        label: the column that is to be predicted; it is never left out unasked.

    Returns:
        A `Schema`: the columns of the model's rows, and why others were left out.

    Example:
        >>> import undirected as un
        >>> table = {"smokes": ["yes", "no", ""] * 4, "age": [31, 57, 44] * 4, "plan": ["a"] * 12}
        >>> schema = un.infer_schema(table, types={"age": "real"})
        >>> [(column.name, column.kind) for column in schema]
        [('smokes', 'binary'), ('age', 'real')]
        >>> schema.dropped
        {'plan': 'every cell is a'}
    """
    frame = as_frame(table)
    if types is not None and not isinstance(types, Mapping):
        raise UndirectedError(f"types: got {types!r:.40}; pass kinds by name, as {{'a': 'real'}}")
    types = {str(name): kind for name, kind in (types or {}).items()}
    label, drop = None if label is None else str(label), some_names("drop", drop)
    wanted = frame.names if columns is None else some_names("columns", columns)
    for name in [*wanted, *types, *drop, *([] if label is None else [label])]:
        _check_name(name, frame)
    for name, kind in types.items():
        _check_kind(name, kind)
    kept, dropped = [], {}
    for name in frame.names:
        if name in drop or name not in wanted:
            dropped[name] = "as asked"
            continue
        try:
            kept.append(_column(frame, name, types.get(name), name == label))
        except Left as why:
            if name == label or name in types:
                raise BadFile(f"{frame.source}: the column '{name}': {why}") from why
            dropped[name] = str(why)
    if not kept:
        reasons = "; ".join(f"{name}: {why}" for name, why in list(dropped.items())[:4])
        raise BadFile(f"{frame.source}: no column is left to learn from ({reasons})")
    return Schema(tuple(kept), dropped, label)


def zero_one_schema(values: np.ndarray, names: list[str], label: str | None = None) -> Schema:
    """The schema of a table of 0 and 1, whose columns all stay, constant ones too."""
    missing = np.isnan(values).sum(0)
    columns = [
        Column(name, "binary", ("0", "1"), missing=int(count))
        for name, count in zip(names, missing, strict=True)
    ]
    return Schema(tuple(columns), {}, label)


def parse_types(text: str | None) -> dict[str, str]:
    """Names and kinds of `age=real,colour=category`."""
    found = {}
    for part in (text or "").split(","):
        if not part.strip():
            continue
        name, sign, kind = part.rpartition("=")
        if not sign or not name.strip():
            raise UndirectedError(
                f"types: '{part.strip()}' is not a column and its kind; pass them as in "
                "age=real,colour=category"
            )
        found[name.strip()] = kind.strip()
        _check_kind(name.strip(), kind.strip())
    return found


def _column(frame: Frame, name: str, kind: str | None, label: bool) -> Column:
    """The column of a name, of the given kind or of the kind that its cells suggest."""
    cells = frame.cells[name]
    if name in frame.categories and kind in (None, "category"):
        return _declared(frame, name)
    if cells.dtype.kind == "b":
        if cells.all() == cells.any():
            raise Left(f"every cell is {as_word(cells[0]).lower()}")
        return Column(name, "binary", ("false", "true"))
    if cells.dtype.kind in "iu" and not kind and not label and _are_long_ids(cells):
        raise Left(ID)
    numeric = kind in ("real", "nonnegative")
    if cells.dtype.kind in "uif" and (numeric or not holds_codes(cells)):
        return _of_numbers(name, np.asarray(cells, np.float64), kind, label, frame)
    words = [as_word(cell) for cell in cells]
    numbers = [as_number(word) for word in words]
    odd = [i for i, (w, n) in enumerate(zip(words, numbers, strict=True)) if w and n is None]
    there = sum(map(bool, words))
    if not there:
        raise Left("every cell is missing")
    if not odd and (numeric or not any(map(is_code, words))):
        values = np.array([math.nan if n is None else n for n in numbers])
        return _of_numbers(name, values, kind, label, frame, words)
    if odd and (numeric or (not kind and _are_slips(words, odd, there))):
        more = "" if kind else ", as the other cells of the column are"
        raise BadFile(
            f"{frame.place(odd[0], name)}: {words[odd[0]]!r:.60} is not a number{more}; mend it, "
            f"leave it blank, or say --types {name}=category"
        )
    return _of_words(name, words, kind, label)


def _of_words(name: str, words: list[str], kind: str | None, label: bool) -> Column:
    counts = Counter(word for word in words if word)
    there, missing = sum(counts.values()), len(words) - sum(counts.values())
    states = _states(counts)
    if len(states) == 1:
        raise Left(f"every cell is {states[0]:.40}")
    if not kind and not label and _are_dates(states):
        raise Left(DATES)
    if len(states) == 2 and kind in (None, "binary"):
        return Column(name, "binary", _ordered(states), missing=missing)
    if kind == "binary":
        raise Left(f"it has {len(states)} different words, a binary column has 2")
    why = None if kind or label else _unlike_states(counts, there)
    if len(states) > MOST_STATES:
        why = why or f"{len(states)} different words, more than {MOST_STATES}; merge the rare ones"
    if why:
        raise Left(why)
    return Column(name, "category", _ordered(states), missing=missing)


def _are_long_ids(numbers: np.ndarray) -> bool:
    """Whether whole numbers that doubles would round are all different."""
    return len(np.unique(numbers)) == len(numbers) >= 5 and holds_codes(numbers)


def _are_dates(words: list[str]) -> bool:
    return sum(bool(DATE.fullmatch(word)) for word in words) > 0.8 * len(words)


def _unlike_states(counts: Counter[str], there: int) -> str | None:
    """Why words are not states of a category, if they are not: free text, an id."""
    words = list(counts)
    if np.mean([len(word.split()) > 5 or len(word) > 60 for word in words]) > 0.5:
        return "free text; give what matters of it columns of their own"
    priced = [_is_priced(word) for word in words]
    if len(words) > FEW_NUMBERS and np.mean(priced) > 0.8:
        return f"numbers with signs, such as {words[0]!r:.20}; write plain numbers"
    if len(words) > 2 and there >= 5 and len(words) > UNIQUE * there:
        return "nearly every row has a value of its own, as an id has"
    return None


def _is_priced(word: str) -> bool:
    return as_number(word) is None and as_number(SIGNS.sub("", word)) is not None


def _of_numbers(
    name: str,
    values: np.ndarray,
    kind: str | None,
    label: bool,
    frame: Frame,
    words: Sequence[str] = (),
) -> Column:
    """The column of numbers, which are written as `words` where they are text."""
    there = values[~np.isnan(values)]
    missing = len(values) - len(there)
    if not len(there):
        raise Left("every cell is missing")
    if np.isinf(there).any():
        row = int(np.argmax(np.isinf(values)))
        raise BadFile(f"{frame.place(row, name)}: {values[row]:g} is not a finite number")
    found = np.unique(there)
    whole = bool((there == np.floor(there)).all())
    if len(found) == 1:
        raise Left(f"every cell is {as_word(_unrounded(found[0]))}")
    if kind is None:
        kind = _kind_of_numbers(name, there, found, whole, label)
    if kind in ("binary", "category"):
        if len(found) > MOST_STATES or (kind == "binary" and len(found) != 2):
            raise Left(f"it has {len(found)} different numbers, too many for a {kind} column")
        states = _number_states(found, words)
        return Column(name, kind, states, missing=missing)  # type: ignore[arg-type]
    if kind == "nonnegative" and found[0] < 0:
        row = int(np.argmax(values < 0))
        raise BadFile(
            f"{frame.place(row, name)}: {values[row]:g} is below 0; mend it, or say "
            f"--types {name}=real"
        )
    mean = float(there.mean()) if kind == "real" else 0.0
    with np.errstate(over="ignore"):
        scale = float(np.sqrt(np.mean((there - mean) ** 2)))
    if not (math.isfinite(mean) and 0 < scale < 1e300):
        raise Left(f"its numbers, {found[0]:g} to {found[-1]:g}, cannot be brought to one scale")
    most = min(max(6, 3 - math.floor(math.log10(scale))), 100)
    digits = min(max(map(_digits, words)), max(most, 12)) if words else _decimals(there, most)
    return Column(name, kind, (), mean, scale, digits, missing)  # type: ignore[arg-type]


def _number_states(found: np.ndarray, words: Sequence[str]) -> tuple[str, ...]:
    """Numbers as words of states; digits alone, as of the zip code 02139, as they are written."""
    digits = _states(Counter(word for word in words if DIGITS.fullmatch(word)))
    written = {as_number(word): word for word in digits}
    return tuple(written.get(float(value)) or as_word(_unrounded(value)) for value in found)


def _unrounded(value: float) -> float:
    """A number as it was before it was, perhaps, rounded to float32."""
    is_single = float(np.float32(value)) == value and not value.is_integer()
    return float(f"{value:.7g}") if is_single else float(value)


def _kind_of_numbers(
    name: str, there: np.ndarray, found: np.ndarray, whole: bool, label: bool
) -> str:
    if whole and len(found) == 2:
        return "binary"
    if whole and label and len(found) <= MOST_STATES:
        return "category"
    unique = len(found) == len(there) and len(there) >= 5
    counting = unique and bool((np.diff(there) == 1).all())
    if whole and (counting or (unique and ID_NAME.fullmatch(name))):
        raise Left(ID)
    if whole and len(found) <= FEW_NUMBERS and len(there) >= REPEATS * len(found):
        return "category"
    return "nonnegative" if found[0] == 0 and np.mean(there == 0) >= ZEROS else "real"


def _declared(frame: Frame, name: str) -> Column:
    """A column whose file or frame lists its states, in the order that it lists them."""
    states = tuple(dict.fromkeys(word for word in map(as_word, frame.categories[name]) if word))
    missing = sum(not as_word(cell) for cell in frame.cells[name])
    if missing == len(frame):
        raise Left("every cell is missing")
    if len(states) < 2:
        raise Left(f"every cell is {next(iter(states), ''):.40}")
    if len(states) > MOST_STATES:
        raise Left(f"{len(states)} states, more than {MOST_STATES}; merge the rare ones")
    return Column(name, "binary" if len(states) == 2 else "category", states, missing=missing)


def _are_slips(words: list[str], odd: list[int], there: int) -> bool:
    """Whether the few words among many numbers are slips rather than states."""
    numbers = there - len(odd)
    if numbers <= len(odd):
        return False
    different = len({word for word in words if word})
    return len(odd) <= max(1, RARE * there) or different > FEW_NUMBERS


def _states(counts: Counter[str]) -> list[str]:
    """The words, those that differ by case alone or as 1 and 1.0 do taken as the commonest one."""
    groups: dict[Any, list[str]] = {}
    for word, _ in counts.most_common():
        value = None if is_code(word) else as_number(word)
        groups.setdefault(word.lower() if value is None else value, []).append(word)
    return [group[0] for group in groups.values()]


def _ordered(states: list[str]) -> tuple[str, ...]:
    """States in the order of their numbers or letters; for false and true words, false first."""
    lower = {word.lower(): word for word in states}
    for pair in FALSE_TRUE:
        if set(lower) == set(pair):
            return lower[pair[0]], lower[pair[1]]
    return tuple(sorted(states, key=_rank))


def _rank(word: str) -> tuple[bool, float, str]:
    value = as_number(word)
    return value is None, value or 0.0, word


def _digits(word: str) -> int:
    """Digits after the point of a number as it is written; those of 1.5e-2 are 3."""
    mantissa, _, power = word.lower().partition("e")
    return max(0, len(mantissa.partition(".")[2]) - int(power or 0))


def _decimals(values: np.ndarray, most: int) -> int:
    """Digits after the point with which numbers, perhaps rounded to float32, are written."""
    with np.errstate(over="ignore"):
        is_single = (values.astype(np.float32) == values).all()
    rtol, atol = 1e-6 if is_single else 1e-12, 10.0 ** -(most + 3)
    for digits in range(most):
        if np.allclose(values, np.round(values, digits), rtol=rtol, atol=atol):
            return digits
    return most


def _check_name(name: str, frame: Frame) -> None:
    if name in frame.names:
        return
    near = get_close_matches(name, frame.names, 1)
    hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(frame.names[:8])}"
    raise UndirectedError(f"{frame.source}: no column is called '{name}'; {hint}")


def _check_kind(name: str, kind: str) -> None:
    if kind not in KINDS:
        near = get_close_matches(str(kind), KINDS, 1)
        hint = f"did you mean {near[0]}?" if near else f"pass one of {', '.join(KINDS)}"
        raise UndirectedError(f"types: '{kind}' for '{name}' is not a kind of column; {hint}")
