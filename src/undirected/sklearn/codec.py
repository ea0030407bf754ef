"""Arrays of words and numbers as numbers for a model, and back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from undirected.core.cells import as_word, is_missing
from undirected.core.columns import Column, Schema
from undirected.core.errors import UndirectedError

MOST_STATES = 256
"""States that a column may have."""


@dataclass(frozen=True, eq=False)
class CellCodec:
    """One column: its states as they stand in the table, or the mean and scale of its numbers.

    A column of one value, or none, is `constant`: nothing is learned about it.
    """

    name: Any
    values: tuple[Any, ...] = ()
    mean: float = 0.0
    scale: float = 1.0

    @property
    def is_constant(self) -> bool:
        return len(self.values) == 1

    @property
    def is_discrete(self) -> bool:
        return len(self.values) > 1

    @cached_property
    def number(self) -> dict[str, int]:
        """The number of a state by its word."""
        return {as_word(value): i for i, value in enumerate(self.values)}

    @property
    def is_numeric(self) -> bool:
        """Whether its states are 0 and 1."""
        return self.is_discrete and all(_is_number(v) and v in (0, 1) for v in self.values)

    def encode(self, cells: np.ndarray, strict: bool) -> Float[np.ndarray, " rows"]:
        """Cells as numbers, NaN where missing; unknown words are refused, or missing."""
        if not self.is_discrete:
            return (_as_floats(cells, self.name) - self.mean) / self.scale
        words = [as_word(cell) for cell in cells.tolist()]
        unknown = [word for word in words if word and word not in self.number]
        if strict and unknown:
            raise UndirectedError(
                f"column {self.name}: {unknown[0]!r:.60} is none of its {len(self.values)} states "
                f"{', '.join(list(self.number)[:6])}; mend it, or leave it missing"
            )
        return np.array([self.number.get(word, np.nan) for word in words], float)

    def decode(self, codes: np.ndarray) -> list[Any]:
        """Cells of numbers."""
        if self.is_discrete:
            return [self.values[int(code)] for code in codes]
        return (codes * self.scale + self.mean).tolist()


@dataclass(frozen=True, eq=False)
class TableCodec:
    """The columns of a table: codes of the discrete ones, standardised reals, constants."""

    columns: tuple[CellCodec, ...]
    is_object: bool

    @classmethod
    def infer(cls, x: np.ndarray, names: Sequence[Any], types: Mapping[Any, str]) -> "TableCodec":
        """What the columns of an array hold; `types` says "category" or "real" of some."""
        for name, kind in types.items():
            if name not in names or kind not in ("category", "real"):
                raise UndirectedError(
                    f"types: got {name!r:.40}: {kind!r:.40}; wanted a column of "
                    f"{', '.join(map(str, names[:6]))} and category or real"
                )
        pairs = zip(names, x.T, strict=True)
        columns = tuple(_infer(name, cells, types.get(name)) for name, cells in pairs)
        return cls(columns, x.dtype.kind not in "buif")

    @property
    def discrete(self) -> list[int]:
        """Numbers of the columns with states."""
        return [j for j, column in enumerate(self.columns) if column.is_discrete]

    @property
    def real(self) -> list[int]:
        """Numbers of the real columns."""
        some = enumerate(self.columns)
        return [j for j, column in some if not column.is_discrete and not column.is_constant]

    @property
    def widths(self) -> tuple[int, ...]:
        """States of the columns that have them."""
        return tuple(len(self.columns[j].values) for j in self.discrete)

    @property
    def scales(self) -> Float[np.ndarray, " R"]:
        """Of the real columns."""
        return np.array([self.columns[j].scale for j in self.real])

    def encode(self, x: np.ndarray, strict: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """States of the discrete columns and standardised reals, NaN where missing."""
        parts = []
        for which in (self.discrete, self.real):
            own = [self.columns[j].encode(x[:, j], strict) for j in which]
            parts.append(np.stack(own, 1) if own else np.zeros((len(x), 0)))
        return parts[0], parts[1]

    def decode(self, codes: np.ndarray, real: np.ndarray) -> np.ndarray:
        """Rows in words and units; a constant column has its value everywhere."""
        found = np.empty((len(codes), len(self.columns)), object)
        for j, column in enumerate(self.columns):
            if column.is_constant:
                found[:, j] = column.values[0]
        for which, values in ((self.discrete, codes), (self.real, real)):
            for k, j in enumerate(which):
                found[:, j] = self.columns[j].decode(values[:, k])
        return found if self.is_object else found.astype(np.float64)

    def fill(self, x: np.ndarray, shares: np.ndarray, means: np.ndarray, mean: bool) -> np.ndarray:
        """Rows whose missing cells are the most probable state or the mean; the rest as it is."""
        parts = np.split(shares, np.cumsum(self.widths, dtype=int)[:-1], 1) if self.widths else []
        best = np.stack([part.argmax(1) for part in parts], 1) if parts else shares
        answers = self.decode(best, means)
        for j, part in zip(self.discrete, parts, strict=True):
            if mean and self.columns[j].is_numeric:
                answers[:, j] = part[:, self.columns[j].values.index(1)]
        words = self.is_object or x.dtype.kind not in "buif"
        kept = x.astype(object if words else x.dtype if x.dtype.kind == "f" else np.float64)
        return np.where(self.holes(x), answers.astype(kept.dtype), kept)

    def holes(self, x: np.ndarray) -> Bool[np.ndarray, "rows columns"]:
        """Which cells are missing."""
        if x.dtype.kind in "buif":
            return np.isnan(x)
        return np.array([[is_missing(cell) for cell in row] for row in x.tolist()], bool)

    def schema(self) -> Schema:
        """The columns that are learned, as `fit_table` has them."""
        found = []
        for j in self._learned:
            column, name = self.columns[j], str(self.columns[j].name)
            if column.is_discrete:
                kind = "binary" if len(column.values) == 2 else "category"
                found.append(Column(name, kind, tuple(column.number)))
            else:
                found.append(Column(name, "real", mean=column.mean, scale=column.scale))
        return Schema(tuple(found))

    @property
    def _learned(self) -> list[int]:
        return [j for j, column in enumerate(self.columns) if not column.is_constant]

    def together(self, codes: np.ndarray, real: np.ndarray) -> np.ndarray:
        """Rows in the order of `schema`."""
        order = np.argsort(self.discrete + self.real)
        return np.concatenate([codes, real], 1)[:, order].astype(np.float32)

    def apart(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Codes and reals of rows in the order of `schema`."""
        kinds = np.array([self.columns[j].is_discrete for j in self._learned])
        return values[:, kinds], values[:, ~kinds]

    def standardised(self, means: np.ndarray) -> np.ndarray:
        """Reals in the units of the model."""
        return (means - np.array([self.columns[j].mean for j in self.real])) / self.scales


def _infer(name: Any, cells: np.ndarray, kind: str | None) -> CellCodec:
    there = [cell for cell in cells.tolist() if not is_missing(cell)]
    first: dict[str, Any] = {}
    for cell in there:
        first.setdefault(as_word(cell), cell)
    if len(first) <= 1:
        return CellCodec(name, (there[0] if there else 0.0,))
    numbers = all(map(_is_number, there))
    is_real = numbers and not set(there) <= {0, 1}
    if kind == "real" or (kind is None and is_real):
        values = _as_floats(cells, name)
        return CellCodec(name, (), float(np.nanmean(values)), float(np.nanstd(values)) or 1.0)
    if len(first) > MOST_STATES:
        raise UndirectedError(
            f"column {name}: {len(first)} different values; wanted at most {MOST_STATES} states: "
            "merge the rare ones, or drop it (free text, ids)"
        )
    key = (lambda v: v) if numbers else as_word
    return CellCodec(name, tuple(sorted(first.values(), key=key)))


def _is_number(cell: Any) -> bool:
    return isinstance(cell, int | float | np.number | np.bool_)


def _as_floats(cells: np.ndarray, name: Any) -> np.ndarray:
    if cells.dtype.kind in "buif":
        return cells.astype(np.float64)
    try:
        return np.array([np.nan if is_missing(c) else float(c) for c in cells.tolist()], float)
    except (TypeError, ValueError) as error:
        raise UndirectedError(
            f"column {name}: wanted numbers, as it is real ({error}); mend it, or say "
            f"types={{{name!r}: 'category'}}"
        ) from error
