"""Columns of a table and their kinds: cells in the table's own words and units, rows as numbers.

A schema stands between a table as people have it and a model. `encode` gives one number for each
variable of a row (0 or 1, the number of a state, a standardised real), NaN where it is missing, and
`decode` goes back to words and units.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float, Float32

from undirected.core.cells import as_number, as_word, holds_codes, is_code, unmasked
from undirected.core.errors import UndirectedError

Kind = Literal["binary", "category", "real", "nonnegative"]
KINDS: tuple[str, ...] = get_args(Kind)
TRUTH = {("false", "true"), ("no", "yes"), ("f", "t"), ("n", "y")}
"""Words of states that truth values stand for; elsewhere they are the numbers 0 and 1."""
Cells = Sequence[Any] | np.ndarray
Place = Callable[[int, str], str]
"""Where a value stands in its file, in words, from its row and the name of its column."""


@dataclass(frozen=True)
class Column:
    """One variable of a table.

    Args:
        name: of the column.
        kind: "binary", "category", "real" or "nonnegative".
        states: the words of its states, that of 0 (false) first; none for numbers.
        mean: taken from a real before it is divided by `scale`; 0 for a nonnegative one.
        scale: the standard deviation of a real, the root mean square of a nonnegative one.
        decimals: digits after the point that its numbers have in the table.
        missing: how many of its cells were missing in the table that it was inferred from.

    Example:
        >>> import undirected as un
        >>> un.Column("answer", "binary", ("no", "yes")).is_discrete
        True
    """

    name: str
    kind: Kind
    states: tuple[str, ...] = ()
    mean: float = 0.0
    scale: float = 1.0
    decimals: int = 6
    missing: int = 0

    def __post_init__(self) -> None:
        complaint = _complaint(self)
        if complaint:
            raise UndirectedError(f"column '{self.name!s:.60}': {complaint}")

    @property
    def is_discrete(self) -> bool:
        """Whether it has states; numbers have none."""
        return self.kind in ("binary", "category")

    @property
    def n_states(self) -> int:
        """Number of states; 0 for numbers."""
        return len(self.states)

    @cached_property
    def number(self) -> dict[Any, int]:
        """The number of a state by its word, by its word in lower case, and by its value.

        So 1 and 1.0 are one state and so are yes and Yes, unless the table has both as two.
        """
        found: dict[Any, int] = {}
        values = [_value(word) for word in self.states]
        for key in (values, [word.lower() for word in self.states], self.states):
            counts = Counter(key)
            found |= {k: i for i, k in enumerate(key) if k is not None and counts[k] == 1}
        return found

    def encode(self, cells: Cells, place: Place | None = None) -> Float32[np.ndarray, " rows"]:
        """Its cells as numbers for a model, NaN where one is missing."""
        cells = unmasked(cells)
        array = np.asarray(cells)
        if array.dtype.kind in "buif" and not (self.is_discrete and holds_codes(array)):
            return self._encode_numbers(array, place)
        words = [as_word(cell) for cell in np.asarray(cells, object)]
        if self.is_discrete:
            find = self._find_state
            return np.array([find(w, i, place) for i, w in enumerate(words)], np.float32)
        numbers = [self._find_number(w, i, place) for i, w in enumerate(words)]
        return self._standardised(np.array(numbers, np.float64), place)

    def decode(self, values: Float[np.ndarray, " rows"]) -> np.ndarray:
        """Words of states, or numbers in the units of the table; None and NaN where missing."""
        values = np.asarray(values, np.float64)
        if not self.is_discrete:
            return values * self.scale + self.mean
        states = np.where(np.isnan(values), 0, values).astype(int)
        if ((states < 0) | (states >= self.n_states)).any():
            raise UndirectedError(
                f"column '{self.name}': {states.max()} is not a state; pass 0 to "
                f"{self.n_states - 1}"
            )
        words = np.array(self.states, object)[states]
        words[np.isnan(values)] = None
        return words

    def text(self, value: Any) -> str:
        """A cell as a CSV file has it, a number with the digits of the table; text as it is."""
        if value is None or value != value:
            return ""
        if self.is_discrete or isinstance(value, str):
            return as_word(value)
        # Adding 0 turns -0.0, which rounding makes, into 0.0.
        return f"{round(float(value), self.decimals) + 0.0:.{self.decimals}f}"

    def _encode_numbers(self, array: np.ndarray, place: Place | None) -> np.ndarray:
        if not self.is_discrete:
            return self._standardised(array.astype(np.float64), place)
        number = bool if array.dtype.kind == "b" else float  # for what an error says
        if array.dtype.kind == "b":
            words = [word.lower() for word in self.states]
            if tuple(sorted(words)) in TRUTH:
                return (array == (words[1] > words[0])).astype(np.float32)
        numbers = array.astype(np.float64)
        values, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
        codes = [
            math.nan if v != v else self._find_state(number(v), int(row), place)
            for v, row in zip(values, first, strict=True)
        ]
        return np.array(codes, np.float32)[inverse].reshape(array.shape)

    def _find_state(self, word: str | float, row: int, place: Place | None) -> float:
        if word == "":
            return math.nan
        found = self.number.get(word)
        if found is None and isinstance(word, str):
            found = self.number.get(word.lower(), self.number.get(_value(word)))
        elif found is None and not float(word).is_integer():  # a number that was rounded to float32
            found = self.number.get(float(f"{word:.7g}"))
        if found is None:
            some = ", ".join(self.states[:8]) + (", ..." if self.n_states > 8 else "")
            raise UndirectedError(
                f"{_at(place, row, self.name)}: {word!r:.60} is none of the states {some}; mend "
                "it, or leave it blank to have it answered"
            )
        return found

    def _find_number(self, word: str, row: int, place: Place | None) -> float:
        if word == "":
            return math.nan
        value = as_number(word)
        if value is None:
            raise UndirectedError(
                f"{_at(place, row, self.name)}: {word!r:.60} is not a finite number (missing "
                "values are blank, NA, NaN or null)"
            )
        return value

    def _standardised(self, numbers: np.ndarray, place: Place | None) -> np.ndarray:
        with np.errstate(over="ignore"):
            found = ((numbers - self.mean) / self.scale).astype(np.float32)
        wrong = np.isinf(found) | ((numbers < 0) if self.kind == "nonnegative" else False)
        if wrong.any():
            row = int(np.argmax(wrong))
            where = f"{_at(place, row, self.name)}: {numbers[row]:g}"
            if numbers[row] < 0 and self.kind == "nonnegative":
                raise UndirectedError(
                    f"{where} is not a number from 0 on, as all in this column were; mend it, or "
                    f"fit with --types {self.name}=real"
                )
            raise UndirectedError(
                f"{where} is not a finite number, or too large beside the others; mend it, or "
                "leave it blank to have it answered"
            )
        return found


@dataclass(frozen=True)
class Schema:
    """The variables of a table, in the order of a model's rows, and the columns left out.

    Args:
        columns: the variables.
        dropped: why each of the other columns is left out, by its name.
        label: the column that is to be predicted from the others, where there is one.

    Example:
        >>> import undirected as un
        >>> schema = un.Schema(
        ...     (
        ...         un.Column("sky", "category", ("clear", "grey", "dark")),
        ...         un.Column("mm", "real", mean=5.0, scale=2.0),
        ...     )
        ... )
        >>> rows = schema.encode({"mm": ["7", ""], "sky": ["grey", "dark"]})
        >>> rows.tolist()
        [[1.0, 1.0], [2.0, nan]]
        >>> {name: cells.tolist() for name, cells in schema.decode(rows).items()}
        {'sky': ['grey', 'dark'], 'mm': [7.0, nan]}
    """

    columns: tuple[Column, ...]
    dropped: Mapping[str, str] = field(default_factory=dict, hash=False)
    label: str | None = None

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UndirectedError(f"schema: two columns are called '{twice[0]}'; rename one")
        if self.label is not None and self.label not in names:
            raise UndirectedError(
                f"schema: the label '{self.label}' is not a column; there are {_some(names)}"
            )

    def __len__(self) -> int:
        return len(self.columns)

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"no column '{name}'; there are {_some(self.names)}")

    @property
    def names(self) -> list[str]:
        """The names of the variables."""
        return [column.name for column in self.columns]

    @property
    def kinds(self) -> set[str]:
        """The kinds that occur."""
        return {column.kind for column in self.columns}

    @property
    def is_zero_one(self) -> bool:
        """Whether every column holds 0 and 1, as a table of numbers has them."""
        return all(column.states == ("0", "1") for column in self.columns)

    def encode(
        self, table: Mapping[str, Cells], place: Place | None = None
    ) -> Float32[np.ndarray, "rows variables"]:
        """The rows of a table as numbers, one for each variable, NaN where one is missing.

        Args:
            table: the cells of every column, text or numbers, by its name; others are left alone.
            place: says where a value stands, for messages.
        """
        absent = [name for name in self.names if name not in table]
        if absent:
            raise UndirectedError(
                f"the table lacks the column '{absent[0]}'; it has {_some(list(table))}"
            )
        parts = [column.encode(table[column.name], place) for column in self.columns]
        return np.stack(parts, 1) if parts else np.zeros((0, 0), np.float32)

    def decode(self, rows: Float[np.ndarray, "rows variables"]) -> dict[str, np.ndarray]:
        """The cells of every column in the table's own words and units."""
        rows = np.asarray(rows)
        if rows.ndim != 2 or rows.shape[1] != len(self):
            raise UndirectedError(
                f"schema: rows of shape {rows.shape}; pass (rows, {len(self)}), one a variable"
            )
        return {column.name: column.decode(rows[:, j]) for j, column in enumerate(self.columns)}

    def to_json(self) -> dict[str, Any]:
        """A description in plain lists, numbers and text."""
        columns = [asdict(column) | {"states": list(column.states)} for column in self.columns]
        return {"columns": columns, "dropped": dict(self.dropped), "label": self.label}

    @classmethod
    def from_json(cls, found: Any) -> "Schema":
        """The schema of `to_json`; anything else is refused."""
        if not isinstance(found, Mapping) or not isinstance(found.get("columns"), list):
            raise UndirectedError("schema: wanted an object with a list of columns")
        dropped, label = found.get("dropped", {}), found.get("label")
        if not isinstance(dropped, Mapping) or not (label is None or isinstance(label, str)):
            raise UndirectedError("schema: `dropped` must be an object and `label` text")
        return cls(tuple(map(_column, found["columns"])), dict(dropped), label)


def _column(found: Any) -> Column:
    known = Column.__dataclass_fields__
    if not isinstance(found, Mapping) or not {"name", "kind"} <= set(found) <= set(known):
        raise UndirectedError(f"schema: {found!r:.80} does not describe a column")
    states = found.get("states", [])
    if not isinstance(states, list | tuple):
        raise UndirectedError(f"schema: the states of a column are {states!r:.60}; wanted a list")
    fields: dict[str, Any] = {**found, "states": tuple(states)}
    return Column(**fields)


def _complaint(column: Column) -> str | None:
    """What is wrong with a column, if anything."""
    states, numbers = column.states, (column.mean, column.scale)
    if not isinstance(column.name, str) or not column.name:
        return f"its name is {column.name!r:.40}; pass text"
    if not isinstance(column.kind, str) or column.kind not in KINDS:
        return f"its kind is {column.kind!r:.40}; pass one of {', '.join(KINDS)}"
    if not isinstance(states, tuple) or not all(isinstance(word, str) for word in states):
        return f"its states are {states!r:.60}; pass a tuple of words"
    if len(set(states)) < len(states) or "" in states:
        return f"its states {states!r:.60} are not all different, or one is empty"
    if column.kind == "binary" and len(states) != 2:
        return f"it is binary, but has {len(states)} states; pass two words"
    if column.kind == "category" and len(states) < 2:
        return f"it has {len(states)} state; pass at least 2, or drop the column"
    if not column.is_discrete and states:
        return f"it is {column.kind}, but has states; pass none"
    if any(type(value) not in (int, float) or not -1e300 < value < 1e300 for value in numbers):
        return f"its mean and scale are {numbers!r:.60}; pass finite numbers"
    if column.scale <= 0 or (column.kind == "nonnegative" and column.mean != 0):
        return f"its mean and scale are {numbers}; the scale is over 0, a nonnegative one's mean 0"
    counts = (column.decimals, column.missing)
    if any(type(value) is not int or value < 0 for value in counts) or column.decimals > 100:
        return f"its decimals and its count of missing cells are {counts!r:.60}"
    return None


def _value(word: str) -> float | None:
    """The number that a state is; None for words, and for digits that a double would round."""
    return None if is_code(word) else as_number(word)


def _at(place: Place | None, row: int, name: str) -> str:
    return place(row, name) if place else f"row {row + 1}, column '{name}'"


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(str, names[:6])) + (", ..." if len(names) > 6 else "")


def some_names(caller: str, names: Any) -> list[str]:
    """Names of columns, all different, as they are given: some, a single one, or None for none."""
    if names is None or isinstance(names, str):
        return [] if names is None else [names]
    if not isinstance(names, Iterable):
        raise UndirectedError(f"{caller}: got {names!r:.40}; pass names of columns, as in ['a']")
    return list(dict.fromkeys(map(str, names)))


def listed(names: list[str]) -> str:
    """Some names in words."""
    return ", ".join(f"'{name}'" for name in names[:4]) + (", ..." if len(names) > 4 else "")
