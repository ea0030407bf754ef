"""Markov networks and evidence in the UAI text formats, plain or compressed by gzip or xz.

A network is variables, scopes and a table for each scope; evidence is variables with their states.
"""

import gzip
import lzma
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from undirected.core.cells import parse_float
from undirected.core.errors import BadFile
from undirected.core.files import atomic_write

MOST_AXES = 64
"""Variables of one table: no array has more axes."""
SMALL = 2**12
"""Entries of a table that is checked together with others."""


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
                got = _some(np.shape(table))
                raise ValueError(f"table {number} has shape {got}; wanted {_some(wanted)}")
        for number in _wrong(self.tables):
            raise ValueError(f"table {number} has entries that are negative, NaN or infinite")


def _wrong(tables: Sequence[np.ndarray]) -> list[int]:
    """The numbers of the tables with entries that are negative, NaN or infinite."""

    def fine(table: np.ndarray) -> bool:
        return bool(np.isfinite(table).all() and (table >= 0).all())

    small = [np.ravel(table) for table in tables if np.size(table) <= SMALL]
    if small and fine(np.concatenate(small)):  # one test of all is much faster
        return [k for k, t in enumerate(tables) if np.size(t) > SMALL and not fine(t)]
    return [k for k, t in enumerate(tables) if not fine(t)]


def read_uai(path: str | Path) -> UaiModel:
    """Read a MARKOV file (or a BAYES one, whose conditional tables are factors too)."""
    text = _text(Path(path))
    return _read_plain(text) or _read_checked(Path(path), text)


def _read_plain(text: str) -> UaiModel | None:
    """The network of a text without any fault, quickly; None for any other."""
    if "_" in text or not text.isascii():
        return None
    words = text.split()
    try:
        n = int(words[1])
        cardinalities = tuple(map(int, words[2 : 2 + n]))
        scopes, tables, at = [], [], 3 + n
        for _ in range(int(words[2 + n])):
            stop = at + 1 + int(words[at])
            scopes.append(tuple(map(int, words[at + 1 : stop])))
            at = stop
        if not all(map(str.isdecimal, words[1:at])):
            return None
        values, first = np.array(list(map(float, words[at:]))), at
        for scope in scopes:
            stop = at + 1 + int(words[at] if words[at].isdecimal() else "")
            shape = [cardinalities[v] for v in scope]
            tables.append(values[at + 1 - first : stop - first].reshape(shape))
            at = stop
        known = words[0] in ("MARKOV", "BAYES") and at == len(words)
        return UaiModel(cardinalities, tuple(scopes), tuple(tables)) if known else None
    except (ValueError, IndexError, OverflowError):
        return None


def _read_checked(path: Path, text: str) -> UaiModel:
    """The network of a text, word for word; a fault is told with its line."""
    tokens = _Tokens(path, text)
    kind = tokens.word("MARKOV")
    if kind not in ("MARKOV", "BAYES"):
        raise tokens.error(f"the file starts with {kind!r:.40}; wanted MARKOV or BAYES")
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
        size, wanted = tokens.count(f"the size of table {number}"), prod(shape)
        if size != wanted:
            asked = f"{wanted}" if wanted < 10**18 else f"more than 10^18 ({len(scope)} variables)"
            raise tokens.error(f"table {number} has {size} entries; its scope asks for {asked}")
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


def read_evidence(path: str | Path, model: UaiModel | None = None) -> dict[int, int]:
    """Read an evidence file as {variable: state}; see `read_evidence_sets`.

    Args:
        path: the file, which holds one set of evidence or none.
        model: the network it speaks of: its variables and states are then checked.
    """
    found = read_evidence_sets(path, model)
    if len(found) > 1:
        raise BadFile(
            f"{path}: the file holds {len(found)} sets of evidence; wanted one: read them all with "
            "read_evidence_sets"
        )
    return found[0] if found else {}


def read_evidence_sets(
    path: str | Path, model: UaiModel | None = None
) -> tuple[dict[int, int], ...]:
    """Read every set of evidence of a file, each as {variable: state}.

    Files come in two generations: the number of pairs and the pairs (variable, state); or the
    number of sets, and each set in that form. A file that could be read either way is one set.
    """
    tokens = _Tokens(Path(path))
    numbers = []
    while (word := tokens.next_word()) is not None:
        numbers.append((tokens.whole(word, "a number of the evidence"), tokens.line))
    if not numbers:
        raise tokens.error("the file ends where the number of observed variables should be")
    first = numbers[0][0]
    if len(numbers) == 1 + 2 * first:
        return (_evidence(tokens, numbers, model),)
    wanted = f"{first} pairs (variable, state), or {first} sets of a count and pairs"
    found, rest = [], numbers[1:]
    for number in range(first):
        if not rest:
            raise tokens.error(f"the file ends before set {number}; wanted {wanted}")
        stop = 1 + 2 * rest[0][0]
        tokens.line = rest[0][1]
        if len(rest) < stop:
            raise tokens.error(
                f"{len(rest) - 1} numbers follow where set {number} has {rest[0][0]} observed "
                f"variables; wanted {wanted}"
            )
        found.append(_evidence(tokens, rest[:stop], model))
        rest = rest[stop:]
    if rest:
        tokens.line = rest[0][1]
        raise tokens.error(f"{rest[0][0]} comes after the last pair, where the file should end")
    return tuple(found)


def _evidence(
    tokens: "_Tokens", numbers: list[tuple[int, int]], model: UaiModel | None
) -> dict[int, int]:
    """One set of evidence from a count and pairs, each number with its line."""
    found: dict[int, int] = {}
    for (variable, line), (state, _) in zip(numbers[1::2], numbers[2::2], strict=True):
        tokens.line = line
        if variable in found:
            raise tokens.error(f"variable {variable} is observed twice")
        if model is not None and variable >= len(model.cardinalities):
            last = len(model.cardinalities) - 1
            raise tokens.error(f"variable {variable} is observed; variables are 0 to {last}")
        if model is not None and state >= model.cardinalities[variable]:
            most = model.cardinalities[variable] - 1
            raise tokens.error(f"variable {variable} has no state {state}; pass one of 0 to {most}")
        found[variable] = state
    return found


def _text(path: Path) -> str:
    """The text of a file, decompressed where its first bytes say so."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    raw = path.read_bytes()
    try:
        if raw.startswith(b"\x1f\x8b"):
            raw = gzip.decompress(raw)
        elif raw.startswith(b"\xfd7zXZ\x00"):
            raw = lzma.decompress(raw)
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        raise BadFile(f"{path}: the compressed file is damaged or cut off: {error}") from error
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadFile(f"{path}: not UTF-8 text") from error


class _Tokens:
    """The words of a file, taken one after the other, with the line of the last one."""

    def __init__(self, path: Path, text: str | None = None):
        lines = (_text(path) if text is None else text).splitlines()
        self.path, self.line = path, 1
        self.words = ((word, at) for at, line in enumerate(lines, 1) for word in line.split())

    def next_word(self) -> str | None:
        """The next word, None at the end."""
        word, self.line = next(self.words, (None, self.line))
        return word

    def word(self, wanted: str) -> str:
        word = self.next_word()
        if word is None:
            raise self.error(f"the file ends where {wanted} should be")
        return word

    def count(self, wanted: str) -> int:
        return self.whole(self.word(wanted), wanted)

    def whole(self, word: str, wanted: str) -> int:
        """A word as a whole number."""
        if not (word.isascii() and word.isdecimal() and len(word) < 19):
            raise self.error(f"{word!r:.40} should be {wanted}, a whole number")
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
                raise self.error(f"{word!r:.40} in table {table} is not a number") from error
        return values

    def end(self) -> None:
        word = self.next_word()
        if word is not None:
            raise self.error(f"{word!r:.40} comes after the last table, where the file should end")

    def error(self, message: str) -> BadFile:
        return BadFile(f"{self.path}, line {self.line}: {message}")


def _shape(cardinalities: tuple[int, ...], scope: tuple[int, ...], number: int) -> tuple[int, ...]:
    """The table shape of a scope, whose variables must exist and differ."""
    if len(scope) > MOST_AXES:
        raise ValueError(
            f"scope {number} joins {len(scope):,} variables; a table of more than {MOST_AXES} axes "
            "cannot be held"
        )
    if len(set(scope)) < len(scope):
        raise ValueError(f"scope {number} names a variable twice: {_some(scope)}")
    if any(not 0 <= variable < len(cardinalities) for variable in scope):
        last = len(cardinalities) - 1
        raise ValueError(f"scope {number} is {_some(scope)}; variables are 0 to {last}")
    return tuple(cardinalities[variable] for variable in scope)


def _some(numbers: Sequence[int]) -> str:
    """Numbers for a message, cut off where they are many."""
    shown = tuple(int(number) for number in numbers)
    return f"{shown}" if len(shown) <= 8 else f"({', '.join(map(str, shown[:8]))}, ...)"


def _join(values: tuple | list) -> str:
    return " ".join(map(str, values))


def write_marginals(path: str | Path, marginals: Sequence[np.ndarray]) -> None:
    """Write marginals as the competition does: for each variable its states and probabilities."""
    own = [_join([len(table), *map("{:.12g}".format, table.tolist())]) for table in marginals]
    _write_result(path, "MAR", _join([len(marginals), *own]))


def write_partition(path: str | Path, log_z: float) -> None:
    """Write log10 Z."""
    _write_result(path, "PR", f"{log_z / np.log(10.0):.12g}")


def write_state(path: str | Path, state: Sequence[int]) -> None:
    """Write the state of every variable."""
    _write_result(path, "MAP", _join([len(state), *map(int, state)]))


def write_partial_state(path: str | Path, state: Mapping[int, int]) -> None:
    """Write the states of some variables."""
    pairs = [f"{int(v)} {int(x)}" for v, x in state.items()]
    _write_result(path, "MMAP", _join([len(pairs), *pairs]))


def _write_result(path: str | Path, kind: str, line: str) -> None:
    with atomic_write(Path(path)) as temporary:
        temporary.write_text(f"{kind}\n{line}\n", encoding="ascii")
