"""Tables of one column a variable, and the units of a model for them: both ways, in one place.

A cell of a binary column is 0 or 1, of a categorical one the number of its state, of a real one any
number, of a nonnegative one 0 or more; NaN is missing. Units are grouped by kind (binary,
categorical by number of states, real, nonnegative), so that a model has few blocks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from undirected.core.cells import as_numbers
from undirected.core.errors import UndirectedError
from undirected.core.layout import Block, Domain

Kind = str | int
"""What a column is: "binary", "real", "nonnegative", or the number of states of a category."""
WORDS = ("binary", "real", "nonnegative")
_RANK = {Domain.BINARY: 0, Domain.CATEGORICAL: 1, Domain.REAL: 2, Domain.NONNEGATIVE: 3}


@dataclass(frozen=True)
class TableUnits:
    """Which units stand for which column.

    Args:
        kinds: what each column is; see `Kind`.
        names: of the columns; by default their numbers.

    Example:
        >>> import numpy as np
        >>> from undirected.core.table_units import TableUnits
        >>> columns = TableUnits(("real", 3, "binary"))
        >>> print(columns.to_units([[0.5, 2, 1], [0.1, np.nan, 0]]))
        [[1.  0.  0.  1.  0.5]
         [0.  nan nan nan 0.1]]
    """

    kinds: tuple[Kind, ...]
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not self.kinds:
            raise UndirectedError("columns: got none; pass the kind of at least one")
        for i, kind in enumerate(self.kinds):
            _check_kind(i, kind)
        names = self.names
        if names is not None and (len(names) != len(self.kinds) or len(set(names)) < len(names)):
            raise UndirectedError(
                f"columns: {len(names)} names for {len(self.kinds)} columns; pass one for each, "
                "all different"
            )

    @classmethod
    def of(cls, columns: Any) -> "TableUnits":
        """From a list of kinds, from `{name: kind}`, or from what has `columns` with kinds."""
        if isinstance(columns, TableUnits):
            return columns
        if hasattr(columns, "columns"):
            found = {
                c.name: len(c.states) if c.kind == "category" else c.kind for c in columns.columns
            }
            return cls.of(found)
        if isinstance(columns, Mapping):
            kinds, names = tuple(columns.values()), tuple(map(str, columns))
            return cls(tuple(map(_plain, kinds)), names)
        if isinstance(columns, str) or not isinstance(columns, Sequence):
            raise UndirectedError(
                f"columns: got {columns!r:.60}; pass a kind for each column, as in "
                '["binary", 5, "real", "nonnegative"]'
            )
        return cls(tuple(map(_plain, columns)))

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def labels(self) -> tuple[Any, ...]:
        """The names of the columns, or their numbers."""
        return tuple(range(len(self))) if self.names is None else self.names

    @cached_property
    def domains(self) -> tuple[Domain, ...]:
        """The domain of every column."""
        return tuple(Domain.CATEGORICAL if isinstance(k, int) else Domain(k) for k in self.kinds)

    @cached_property
    def order(self) -> Int[np.ndarray, " columns"]:
        """The columns in the order of their units."""
        keys = [(_RANK[d], self.states(i)) for i, d in enumerate(self.domains)]
        return np.asarray(sorted(range(len(keys)), key=lambda i: keys[i]))

    def states(self, column: int) -> int:
        """States of a discrete column, 2 where they do not count."""
        kind = self.kinds[column]
        return kind if isinstance(kind, int) else 2

    def width(self, column: int) -> int:
        """Units of a column."""
        return self.states(column) if self.domains[column] is Domain.CATEGORICAL else 1

    @cached_property
    def first(self) -> Int[np.ndarray, " columns"]:
        """The first unit of every column."""
        widths = np.array([self.width(i) for i in self.order])
        first = np.empty(len(self), int)
        first[self.order] = np.cumsum(widths) - widths
        return first

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The visible blocks, one for each kind."""
        blocks: list[Block] = []
        for i in self.order:
            domain, states, start = self.domains[i], self.states(i), int(self.first[i])
            last = blocks[-1] if blocks else None
            if last is not None and (last.domain, last.states) == (domain, states):
                blocks.pop()
                start = last.start
            name = f"{domain.value}{states}" if domain is Domain.CATEGORICAL else domain.value
            stop = int(self.first[i]) + self.width(i)
            blocks.append(Block(name, start, stop, domain, states))
        return tuple(blocks)

    @property
    def n_units(self) -> int:
        """Number of visible units."""
        return self.blocks[-1].stop

    def units(self, column: int) -> slice:
        """The units of a column."""
        start = int(self.first[column])
        return slice(start, start + self.width(column))

    def to_units(
        self, table: ArrayLike, caller: str = "columns", kind: Any = np.float32
    ) -> Float[np.ndarray, "rows v"]:
        """Rows over the visible units from rows of one cell a column, NaN where missing."""
        rows = self._checked(table, caller, kind)
        found = np.empty((len(rows), self.n_units), kind)
        for i, domain in enumerate(self.domains):
            cell = rows[:, i : i + 1]
            if domain is Domain.CATEGORICAL:
                on = (cell == np.arange(self.states(i))[None]).astype(np.float32)
                cell = np.where(np.isnan(cell), np.float32(np.nan), on)
            found[:, self.units(i)] = cell
        return found

    def to_table(self, units: ArrayLike) -> Float[np.ndarray, "rows columns"]:
        """Rows of one cell a column from units; of probabilities, the most probable state."""
        rows = np.asarray(units)
        found = np.empty((len(rows), len(self)), np.float32)
        for i, domain in enumerate(self.domains):
            part = rows[:, self.units(i)]
            if domain is Domain.CATEGORICAL:
                state = np.where(np.isnan(part), -1, part).argmax(1)
                found[:, i] = np.where(np.isnan(part).all(1), np.nan, state)
            else:
                found[:, i] = part[:, 0]
        return found

    def _checked(
        self, table: ArrayLike, caller: str, kind: Any
    ) -> Float[np.ndarray, "rows columns"]:
        """The table as floats, refused where a cell is not of its column's kind."""
        named = tuple(map(str, getattr(table, "columns", ())))  # of a data frame
        if self.names is not None and named != self.names and set(named) == set(self.names):
            raise UndirectedError(
                f"{caller}: the columns are {', '.join(named[:6])}, those of the model "
                f"{', '.join(self.names[:6])}; pass them in its order: "
                "rows[list(model.table.names)]"
            )
        advice = (
            "pass states as their numbers, NaN for what is not known; a TableModel, of "
            "un.fit_table or un.load_table, takes words and names"
        )
        rows = as_numbers(f"{caller}: rows", table, advice, kind)
        rows = rows[None] if rows.ndim == 1 else rows
        if rows.ndim != 2 or rows.shape[1] != len(self):
            raise UndirectedError(
                f"{caller}: rows have shape {np.shape(table)}; pass (rows, {len(self)}), one cell "
                "for each column"
            )
        for i, domain in enumerate(self.domains):
            wrong, wanted = _wrong(rows[:, i], domain, self.states(i))
            if wrong.any():
                row = int(np.flatnonzero(wrong)[0])
                raise UndirectedError(
                    f"{caller}: the value in row {row}, column {self.labels[i]} is "
                    f"{rows[row, i]:g}; wanted {wanted}, or NaN"
                )
        return rows


def _wrong(cells: np.ndarray, domain: Domain, states: int) -> tuple[np.ndarray, str]:
    """Which cells no unit of this domain can have, and what was wanted."""
    seen = ~np.isnan(cells)
    if domain is Domain.REAL:
        return np.isinf(cells), "a finite number"
    if domain is Domain.NONNEGATIVE:
        return seen & ~((cells >= 0) & np.isfinite(cells)), "a finite number of 0 or more"
    known = (cells >= 0) & (cells < states) & (cells == np.floor(cells))
    return seen & ~known, f"a whole number from 0 to {states - 1}"


def _plain(kind: Any) -> Any:
    """NumPy's whole numbers as Python's."""
    whole = isinstance(kind, Integral) and not isinstance(kind, bool)
    return int(kind) if whole else kind


def _check_kind(column: int, kind: Any) -> None:
    states = isinstance(kind, int) and not isinstance(kind, bool)
    if not (kind >= 2 if states else kind in WORDS):
        raise UndirectedError(
            f"columns: column {column} is {kind!r:.40}; pass one of {', '.join(WORDS)}, or the "
            "number of states of a category, 2 or more"
        )


def part_of(table: TableUnits, columns: Sequence[int]) -> TableUnits:
    """Some columns of a table, as a table."""
    names = None if table.names is None else tuple(table.names[i] for i in columns)
    return TableUnits(tuple(table.kinds[i] for i in columns), names)


def same_states(table: TableUnits) -> TableUnits:
    """The columns as categories of as many states as the largest has, for a Potts model."""
    most = max(kind if isinstance(kind, int) else 2 for kind in table.kinds)
    return TableUnits((most,) * len(table), table.names)
