"""Markov networks in the UAI text format: variables, scopes and a table for each scope."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from undirected.core.errors import BadFile
from undirected.core.files import atomic_write
from undirected.io.text import parse_float


@dataclass(frozen=True, eq=False)
class UaiModel:
    """p(x) ∝ ∏_k tables[k][x[scopes[k]]]; a table has one axis for each variable of its scope."""

    cardinalities: tuple[int, ...]
    scopes: tuple[tuple[int, ...], ...]
    tables: tuple[np.ndarray, ...]

    def __post_init__(self) -> None:
        if len(self.scopes) != len(self.tables):
            raise ValueError(f"{len(self.scopes)} scopes, but {len(self.tables)} tables")
        if any(states < 1 for states in self.cardinalities):
            raise ValueError(f"a variable of {min(self.cardinalities)} states; wanted 1 or more")
        for number, (scope, table) in enumerate(zip(self.scopes, self.tables, strict=True)):
            wanted = _shape(self.cardinalities, scope, number)
            if np.shape(table) != wanted:
                raise ValueError(f"table {number} has shape {np.shape(table)}; wanted {wanted}")
            if not (np.isfinite(table).all() and (table >= 0).all()):
                raise ValueError(f"table {number} has entries that are negative, NaN or infinite")


def read_uai(path: str | Path) -> UaiModel:
    """Read a MARKOV file (or a BAYES one, whose conditional tables are factors too)."""
    tokens = _Tokens(Path(path))
    kind = tokens.word("MARKOV")
    if kind not in ("MARKOV", "BAYES"):
        raise tokens.error(f"the file starts with {kind!r}; wanted MARKOV or BAYES")
    cardinalities = tokens.counts(tokens.count("the number of variables"), "a number of states")
    scopes = []
    for number in range(tokens.count("the number of tables")):
        size = tokens.count(f"the size of scope {number}")
        scopes.append(tokens.counts(size, f"a variable of scope {number}"))
    tables = []
    for number, scope in enumerate(scopes):
        try:
            shape = _shape(cardinalities, scope, number)
        except ValueError as error:
            raise tokens.error(str(error)) from error
        size, wanted = (
            tokens.count(f"the size of table {number}"),
            int(np.prod(shape, dtype=object)),
        )
        if size != wanted:
            raise tokens.error(f"table {number} has {size} entries; its scope asks for {wanted}")
        tables.append(np.array(tokens.numbers(size, number)).reshape(shape))
    tokens.end()
    try:
        return UaiModel(cardinalities, tuple(scopes), tuple(tables))
    except ValueError as error:
        raise BadFile(f"{path}: {error}") from error


def write_uai(path: str | Path, model: UaiModel) -> None:
    """Write a MARKOV file; numbers are written so that reading gives the same float64 values."""
    lines = ["MARKOV", str(len(model.cardinalities)), _join(model.cardinalities)]
    lines += [str(len(model.scopes)), *(_join((len(scope), *scope)) for scope in model.scopes)]
    for table in model.tables:
        flat = np.asarray(table, np.float64).ravel()
        lines += ["", str(flat.size), _join(flat.tolist())]
    with atomic_write(Path(path)) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="ascii")


class _Tokens:
    """The words of a file, taken one after the other, with the line of the last one."""

    def __init__(self, path: Path):
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file")
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            raise BadFile(f"{path}: not UTF-8 text") from error
        self.path, self.line = path, 1
        self.words = ((word, at) for at, line in enumerate(lines, 1) for word in line.split())

    def word(self, wanted: str) -> str:
        word, at = next(self.words, (None, self.line))
        self.line = at
        if word is None:
            raise self.error(f"the file ends where {wanted} should be")
        return word

    def count(self, wanted: str) -> int:
        word = self.word(wanted)
        if not (word.isascii() and word.isdecimal() and len(word) < 19):
            raise self.error(f"{word!r} should be {wanted}, a whole number")
        return int(word)

    def counts(self, size: int, wanted: str) -> tuple[int, ...]:
        return tuple(self.count(wanted) for _ in range(size))

    def numbers(self, size: int, table: int) -> list[float]:
        values = []
        for _ in range(size):
            word = self.word(f"an entry of table {table}")
            try:
                values.append(parse_float(word))
            except ValueError as error:
                raise self.error(f"{word!r} in table {table} is not a number") from error
        return values

    def end(self) -> None:
        word, self.line = next(self.words, (None, self.line))
        if word is not None:
            raise self.error(f"{word!r} comes after the last table, where the file should end")

    def error(self, message: str) -> BadFile:
        return BadFile(f"{self.path}, line {self.line}: {message}")


def _shape(cardinalities: tuple[int, ...], scope: tuple[int, ...], number: int) -> tuple[int, ...]:
    """The table shape of a scope, whose variables must exist and differ."""
    if len(set(scope)) < len(scope):
        raise ValueError(f"scope {number} names a variable twice: {scope}")
    if any(not 0 <= variable < len(cardinalities) for variable in scope):
        raise ValueError(f"scope {number} is {scope}; variables are 0 to {len(cardinalities) - 1}")
    return tuple(cardinalities[variable] for variable in scope)


def _join(values: tuple | list) -> str:
    return " ".join(map(str, values))
