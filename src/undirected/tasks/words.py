"""Answers in the words and units of a table: what stands in its missing cells, and how surely."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from undirected.core.cells import as_number, as_word, is_code, is_missing
from undirected.core.columns import Column, Schema

SHOWN = 4
"""States that are listed beside the most probable one."""


@dataclass(frozen=True, eq=False)
class ColumnAnswer:
    """What a model says of the cells of one column.

    Args:
        column: the column.
        asked: the rows whose cell was missing.
        probabilities: of its states in every row; None for numbers.
        mean: in the units of the table; None for states.
        std: standard deviation in those units; None for states.
    """

    column: Column
    asked: Bool[np.ndarray, " rows"]
    probabilities: Float[np.ndarray, "rows states"] | None = None
    mean: Float[np.ndarray, " rows"] | None = None
    std: Float[np.ndarray, " rows"] | None = None

    @property
    def best(self) -> np.ndarray:
        """The most probable word of every row, or the mean."""
        if self.probabilities is None:
            assert self.mean is not None
            return self.mean
        return self.column.decode(self.probabilities.argmax(1))

    @property
    def certainty(self) -> np.ndarray:
        """The probability of the most probable word, or the standard deviation; NaN if known."""
        found = self.std if self.probabilities is None else self.probabilities.max(1)
        assert found is not None
        return np.where(self.asked, found, np.nan)

    def told(self, row: int) -> dict[str, Any]:
        """The answer of a row: `{state: probability}`, or mean and standard deviation."""
        if self.probabilities is not None:
            pairs = zip(self.column.states, self.probabilities[row], strict=True)
            return {word: round(float(p), 6) for word, p in pairs}
        assert self.mean is not None
        assert self.std is not None
        return {"mean": float(self.mean[row]), "sd": float(self.std[row])}

    def line(self, row: int) -> tuple[str, str, str]:
        """The answer of a row for a reader: word, certainty, and the next states."""
        if self.probabilities is None:
            assert self.mean is not None
            assert self.std is not None
            mean, std = float(self.mean[row]), float(self.std[row])
            digits = self.column.decimals + 1
            return _readable(mean, std, digits), f"± {_readable(std, std, digits)}", ""
        p = self.probabilities[row]
        order = np.argsort(-p)
        words = self.column.states
        rest = [f"{words[k]} {p[k]:.3f}" for k in order[1 : SHOWN + 1] if p[k] >= 0.001]
        return words[order[0]], f"{p[order[0]]:.3f}", ", ".join(rest)


def answers_by_column(
    schema: Schema,
    values: Float[np.ndarray, "rows variables"],
    probabilities: Mapping[str, np.ndarray],
    mean: Mapping[str, np.ndarray] | None = None,
    std: Mapping[str, np.ndarray] | None = None,
) -> list[ColumnAnswer]:
    """Answers in the words of the schema, from those about its encoded rows."""
    found = []
    for j, column in enumerate(schema):
        asked = np.isnan(values[:, j])
        if column.is_discrete:
            found.append(ColumnAnswer(column, asked, np.asarray(probabilities[column.name])))
        else:
            assert mean is not None
            assert std is not None
            own = np.asarray(mean[column.name], np.float64) * column.scale + column.mean
            spread = np.asarray(std[column.name], np.float64) * column.scale
            found.append(ColumnAnswer(column, asked, None, own, spread))
    return found


def ones(
    schema: Schema, values: np.ndarray, p: Float[np.ndarray, "rows variables"]
) -> list[ColumnAnswer]:
    """Answers about binary columns from the probabilities of their true word."""
    shares = {c.name: np.stack([1 - p[:, j], p[:, j]], 1) for j, c in enumerate(schema)}
    return answers_by_column(schema, values, shares)


def filled(
    cells: Mapping[str, np.ndarray], answers: list[ColumnAnswer], rows: int
) -> dict[str, list[Any]]:
    """A table with its missing cells filled in, and how sure each answer is in columns beside.

    Cells that were there stay as they are, and so do columns that the model does not know. Answers
    are numbers or booleans where the cells of their column are, words elsewhere. Beside a column
    with missing cells stands NAME_p, the probability of the word that was filled in, or NAME_sd,
    the standard deviation; NAME_p_ where the table has a column NAME_p of its own.
    """
    by_name = {answer.column.name: answer for answer in answers}
    table: dict[str, list[Any]] = {}
    for name in [*cells, *(n for n in by_name if n not in cells)]:
        answer = by_name.get(name)
        given = list(map(_plain, cells[name])) if name in cells else [None] * rows
        if answer is None or not answer.asked.any():
            table[name] = given
            continue
        best, sure = answer.best, answer.certainty
        digits = answer.column.decimals + 1
        discrete = answer.probabilities is not None
        best = _alike(best, cells.get(name)) if discrete else np.round(best, digits)
        table[name] = [
            b if a else g for a, b, g in zip(answer.asked, best.tolist(), given, strict=True)
        ]
        mark = "p" if answer.column.is_discrete else "sd"
        places = 4 if answer.column.is_discrete else digits
        beside = f"{name}_{mark}"
        while beside in cells or beside in by_name:  # a column of the table is called so
            beside += "_"
        table[beside] = [None if s != s else round(float(s), places) for s in sure]
    return table


def _plain(cell: Any) -> Any:
    """A cell of NumPy's as Python has it; single precision stays, whose digits would grow."""
    exact = isinstance(cell, np.float64 | np.integer | np.bool_)
    return cell.item() if exact else cell


def _alike(words: np.ndarray, cells: np.ndarray | None) -> np.ndarray:
    """Words as numbers or booleans, where the cells of their column are such and the words too."""
    if cells is None:
        return words
    numeric = cells.dtype.kind in "uif"
    there = [] if numeric else [cell for cell in cells if not is_missing(cell)]
    if there and all(isinstance(cell, bool | np.bool_) for cell in there):
        lower = np.array([word.lower() for word in words])
        return lower == "true" if set(lower) <= {"false", "true"} else words
    if numeric or (there and all(isinstance(cell, Real) for cell in there)):
        numbers = [int(word) if is_code(word) else as_number(word) for word in words]
        return words if None in numbers else np.array(numbers, object)
    return words


def read_words(column: Column, words: np.ndarray) -> np.ndarray:
    """Words as numbers or booleans, where all states of their column are written as such."""
    if {state.lower() for state in column.states} == {"false", "true"}:
        return np.array([word.lower() == "true" for word in words])
    read = {state: _whole(state) for state in column.states}
    if all(number is not None and as_word(number) == word for word, number in read.items()):
        return np.array([read[word] for word in words])
    return words


def _whole(word: str) -> int | float | None:
    """The number that a word is, an integer where it is whole."""
    if is_code(word):
        return int(word)
    number = as_number(word)
    return int(number) if number is not None and number.is_integer() else number


def _readable(value: float, std: float, decimals: int) -> str:
    """A number with four digits of its standard deviation, and no more decimals than are known."""
    if not 0 < std < math.inf:
        return f"{value:.{min(decimals, 13)}f}"
    size = math.floor(math.log10(std))
    if -5 < size < 9:
        return f"{value:.{max(0, min(decimals, 3 - size))}f}"
    above = math.floor(math.log10(abs(value))) - size if value else 0
    return f"{value:.{4 + min(max(0, above), 12)}g}"


def asked_cells(answers: list[ColumnAnswer]) -> Iterator[tuple[int, ColumnAnswer]]:
    """Every missing cell, row by row: its row and the answers of its column."""
    asked = np.stack([answer.asked for answer in answers], 1)
    for row, column in np.argwhere(asked):
        yield int(row), answers[column]
