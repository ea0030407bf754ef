"""Arrays and data frames as rows of numbers for a model, and back with the cells they had."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Float32

from undirected.core.cells import as_word, holds_codes, is_missing
from undirected.core.columns import Column, Schema
from undirected.core.errors import UndirectedError
from undirected.io.frames import Frame, as_frame, declared_states
from undirected.io.infer import infer_schema
from undirected.tasks.words import ColumnAnswer


@dataclass(frozen=True, eq=False)
class TableCodec:
    """What the columns of a table hold.

    Args:
        schema: the columns that are learned.
        names: of all columns.
        states: the cells that stand for the states of each column that has states.
        common: the commonest cell of each column that is left out.
        is_numeric: whether the table is an array of numbers.
    """

    schema: Schema
    names: tuple[str, ...]
    states: Mapping[str, np.ndarray]
    common: Mapping[str, Any]
    is_numeric: bool

    @classmethod
    def infer(
        cls, X: Any, x: np.ndarray, labels: Sequence[Any], types: Mapping[Any, str]
    ) -> "TableCodec":
        """From a table, the same as an array, and what its user calls the columns."""
        names = column_names(labels)
        named = dict(zip(labels, names, strict=True))
        frame = frame_of(X, x, names)
        schema = infer_schema(frame, types={named.get(k, str(k)): v for k, v in types.items()})
        own = dict(zip(names, _own_cells(X, x), strict=True))
        states = {
            c.name: _cells_of(c, frame.cells[c.name], own[c.name], _declared(X, names, c.name))
            for c in schema
            if c.is_discrete
        }
        common = {name: _commonest(own[name]) for name in schema.dropped}
        return cls(schema, tuple(names), states, common, x.dtype.kind in "buif")

    @property
    def log_scales(self) -> Float[np.ndarray, " columns"]:
        """Logs of the units in which the numbers of each column are measured; 0 for states."""
        return np.array([0.0 if c.is_discrete else np.log(c.scale) for c in self.schema])

    def encode(
        self, X: Any, x: np.ndarray, strict: bool = True
    ) -> Float32[np.ndarray, "rows columns"]:
        """Rows for a model; a word that is no state is refused, or taken as missing."""
        frame = frame_of(X, x, self.names)
        cells = dict(frame.cells)
        if not strict:
            for column in self.schema:
                if column.is_discrete:
                    cells[column.name] = _known(column, cells[column.name])
        return self.schema.encode(cells, frame.place)

    def decode(self, values: Float[np.ndarray, "rows columns"]) -> np.ndarray:
        """Rows of the table; a column that is left out has its commonest cell everywhere."""
        found = np.empty((len(values), len(self.names)), object)
        number = {name: j for j, name in enumerate(self.schema.names)}
        for j, name in enumerate(self.names):
            if name in self.common:
                found[:, j] = self.common[name]
            elif name in self.states:
                found[:, j] = self.states[name][values[:, number[name]].astype(int)]
            else:
                found[:, j] = self.schema[name].decode(values[:, number[name]])
        return found.astype(np.float64) if self.is_numeric and not self._has_codes else found

    @property
    def _has_codes(self) -> bool:
        """Whether cells that the table gets back are whole numbers too large for doubles."""
        cells = [*self.common.values(), *(c for own in self.states.values() for c in own)]
        return any(holds_codes(np.asarray(cell)) for cell in cells)

    def fill(
        self, x: np.ndarray, answers: Sequence[ColumnAnswer], mean: bool
    ) -> tuple[np.ndarray, Bool[np.ndarray, "rows columns"]]:
        """Rows whose missing cells are filled in, and which cells these are.

        They are the most probable state or the mean; with `mean` the probability of a 1 in columns
        of 0 and 1.
        """
        numbers = self.is_numeric and x.dtype.kind in "buif"
        same = x.dtype.kind == "f" or holds_codes(x)
        kept = x.astype(object if not numbers else x.dtype if same else np.float64)
        holes = missing_cells(x)
        by_name = {answer.column.name: answer for answer in answers}
        for j in np.flatnonzero(holes.any(0)):
            name, rows = self.names[j], holes[:, j]
            if name in self.common:
                kept[rows, j] = self.common[name]
                continue
            p = by_name[name].probabilities
            if p is None:
                kept[rows, j] = by_name[name].best[rows]
            elif mean and self.schema[name].states == ("0", "1"):
                kept[rows, j] = p[rows, 1]
            else:
                kept[rows, j] = self.states[name][p[rows].argmax(1)]
        return kept, holes


def column_names(labels: Sequence[Any]) -> list[str]:
    """Names of columns as text, all different: x0, x1, ... where the labels are not so."""
    named = all(isinstance(label, str) and label for label in labels)
    if named and len(set(labels)) == len(labels):
        return list(map(str, labels))
    return [f"x{j}" for j in range(len(labels))]


def frame_of(X: Any, x: np.ndarray, names: Sequence[str]) -> Frame:
    """A table as a `Frame`; the columns of a data frame keep their types and categories."""
    if hasattr(X, "set_axis"):
        return as_frame(X.set_axis(list(names), axis=1))
    if hasattr(X, "columns") and hasattr(X, "dtypes"):
        return as_frame(X)
    return as_frame(dict(zip(names, x.T, strict=True)))


def missing_cells(x: np.ndarray) -> Bool[np.ndarray, "rows columns"]:
    """Which cells of an array are missing."""
    if x.dtype.kind in "buif":
        return np.isnan(x)
    holes = [[is_missing(cell) for cell in row] for row in x.tolist()]
    return np.array(holes, bool).reshape(x.shape)


def _own_cells(X: Any, x: np.ndarray) -> list[np.ndarray]:
    """The cells of each column as their user has them, dates as dates and no text."""
    if hasattr(X, "with_columns"):  # of polars
        return [_objects(column.to_list()) for column in X]
    if hasattr(X, "iloc"):
        return [_objects(X.iloc[:, j].tolist()) for j in range(x.shape[1])]
    return list(x.T)


def _objects(cells: list[Any]) -> np.ndarray:
    found = np.empty(len(cells), object)
    found[:] = cells
    return found


def _declared(X: Any, names: Sequence[str], name: str) -> dict[str, Any]:
    """The categories of a column of pandas by their words; none of others."""
    column = X.iloc[:, names.index(name)] if hasattr(X, "iloc") else None
    return {as_word(category): category for category in declared_states(column) or ()}


def _cells_of(
    column: Column, cells: np.ndarray, own: np.ndarray, declared: Mapping[str, Any]
) -> np.ndarray:
    """The cell that stands for each state: the first one, or the word of a state never seen."""
    codes = column.encode(cells)
    seen, first = np.unique(codes, return_index=True)
    there = {int(k): own[i] for k, i in zip(seen, first, strict=True) if k == k}
    example = next(iter(there.values()))
    found = np.empty(column.n_states, object)
    for k, word in enumerate(column.states):
        found[k] = there[k] if k in there else declared.get(word)
        if found[k] is None:
            found[k] = _as_cell(word, example)
    return found


def _as_cell(word: str, example: Any) -> Any:
    """A word as a cell of the type of an example."""
    if isinstance(example, bool | np.bool_):
        return word.lower() == "true"
    return type(example)(word)


def _commonest(cells: np.ndarray) -> Any:
    """The cell that occurs most often; 0 where all are missing."""
    there = Counter(cell for cell in cells.tolist() if not is_missing(cell))
    return there.most_common(1)[0][0] if there else 0.0


def _known(column: Column, cells: np.ndarray) -> np.ndarray:
    """Cells of which those that are no state of the column are missing."""
    codes: dict[str, float] = {}
    for cell in cells:
        if (word := as_word(cell)) not in codes:
            try:
                codes[word] = float(column.encode(np.array([cell], cells.dtype))[0])
            except UndirectedError:
                codes[word] = np.nan
    found = cells.astype(object)
    found[[np.isnan(codes[as_word(cell)]) for cell in cells]] = None
    return found
