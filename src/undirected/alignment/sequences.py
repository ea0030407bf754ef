"""Alignments of proteins, RNA or DNA: letters as integer states, files in and out."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, UInt8

from undirected.core.cells import unmasked
from undirected.core.errors import BadFile, UndirectedError
from undirected.core.files import atomic_write, check_place, path_of

GAP = "-"
ALPHABETS = {
    "protein": "-ACDEFGHIKLMNPQRSTVWY",
    "rna": "-ACGU",
    "dna": "-ACGT",
}
"""Letters in the order of their states; the gap is state 0."""
NUCLEIC = {"rna": ("U", "BDHKMNRSVWXY"), "dna": ("T", "N")}
"""Its own base, and letters for one of several bases: with T most of those are a protein's too."""
MARK = b"\xef\xbb\xbf"
"""With which some programs begin a text."""
COMMENT, STOCKHOLM = ("#", ";"), "# STOCKHOLM"
"""What lines that are no sequences begin with, and what the other form of files begins with."""
DAMAGED = OSError, EOFError, lzma.LZMAError, zlib.error
"""What packed files raise that are cut or have wrong bytes."""
OPENERS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
UNKNOWN, DROPPED = 255, 254


@dataclass(frozen=True, eq=False)
class Alignment:
    """Aligned sequences, one integer a position.

    Args:
        states: (sequences, positions): the place of a letter in `letters`.
        letters: the alphabet, such as `"-ACGU"`.
        names: one a sequence.

    Example:
        >>> import undirected as un
        >>> family = un.Alignment.of(["AC-U", "GCAU"], "rna")
        >>> family.states.tolist()
        [[1, 2, 0, 4], [3, 2, 1, 4]]
        >>> family.sequences
        ['AC-U', 'GCAU']
    """

    states: UInt8[np.ndarray, "N L"]
    letters: str
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        kind = getattr(unmasked(self.states), "dtype", None)
        if kind is None or not np.issubdtype(kind, np.integer) or (self.states < 0).any():
            raise UndirectedError(
                f"Alignment: states are {self.states!r:.60}; pass an array of whole numbers from "
                "0, or texts to Alignment.of"
            )
        if self.states.ndim != 2 or len(self.names) != len(self.states):
            raise UndirectedError(
                f"Alignment: states of shape {self.states.shape} and {len(self.names)} names; "
                "pass (sequences, positions) and a name for each sequence"
            )
        if self.states.size and self.states.max() >= len(self.letters):
            raise UndirectedError(
                f"Alignment: state {self.states.max()} with an alphabet of {len(self.letters)} "
                f"letters; pass numbers from 0 to {len(self.letters) - 1}"
            )

    @classmethod
    def of(
        cls,
        sequences: Sequence[str],
        alphabet: str = "auto",
        names: Sequence[str] | None = None,
        unknown: str = "error",
    ) -> "Alignment":
        """An alignment from texts; the arguments are those of `read_fasta`."""
        records = _of_texts("Alignment.of", sequences, names)
        return _align(records, alphabet, unknown, "Alignment.of")

    def __len__(self) -> int:
        return len(self.states)

    @property
    def n_positions(self) -> int:
        """The number of columns."""
        return self.states.shape[1]

    @property
    def n_states(self) -> int:
        """The number of letters, the gap among them."""
        return len(self.letters)

    @property
    def sequences(self) -> list[str]:
        """The rows as texts."""
        return to_text(self.states, self.letters)


class _Record(NamedTuple):
    """One sequence of a file: its name, the line of its name, and its lines."""

    name: str
    line: int
    parts: list[tuple[int, str]]


Lines = list[tuple[int, str]]
"""The lines of a file with their numbers, without white space around them."""


def read_fasta(path: str | Path, alphabet: str = "auto", unknown: str = "error") -> Alignment:
    r"""Read an alignment; what is wrong with it is reported with its line and name.

    Lower-case letters are inserts of that one sequence and are dropped, and so are dots where there
    are inserts (the A2M and A3M forms); in a file without lower-case letters a dot is a gap. Lines
    that begin with # or ; are comments.

    Args:
        path: a FASTA file, or one of the Stockholm form with one alignment; also of gzip, bzip2 or
            xz.
        alphabet: "protein", "rna", "dna", or the letters themselves with the gap first; "auto"
            takes RNA or DNA where no other letters occur but those for any base: N, and beside U
            the rest of IUPAC's.
        unknown: what to do with letters that the alphabet does not have, such as X: "error", "gap"
            (take them for gaps) or "drop" (leave out the sequence).

    Returns:
        An `Alignment`: `states`, `letters` and `names`.

    Example:
        >>> import pathlib, tempfile
        >>> import undirected as un
        >>> path = pathlib.Path(tempfile.mkdtemp(), "family.fasta")
        >>> _ = path.write_text(">one\nAC-U\n>two\nGCaaAU\n")
        >>> un.read_fasta(path).sequences
        ['AC-U', 'GCAU']
    """
    path = path_of("read_fasta", path)
    if path.is_dir():
        raise IsADirectoryError(f"{path}: this is a folder; name a FASTA file")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    return _align(list(_records(path)), alphabet, unknown, str(path))


def in_letters(
    caller: str, sequences: Sequence[str], letters: str, names: Sequence[str] | None = None
) -> Alignment:
    """An alignment from texts by the letters of a model; others are refused."""
    advice = f"write {letters[0]} for it, as un.Alignment.of(rows, '{letters}', unknown='gap') does"
    return _align(_of_texts(caller, sequences, names), letters, "error", caller, advice)


def write_fasta(path: str | Path, alignment: Alignment) -> None:
    r"""Write an alignment as FASTA, one line a sequence; a name that ends in .gz is compressed.

    Args:
        path: the file to write, whole or not at all.
        alignment: its sequences and names.

    Returns:
        Nothing.

    Example:
        >>> import pathlib, tempfile
        >>> import undirected as un
        >>> path = pathlib.Path(tempfile.mkdtemp(), "family.fasta")
        >>> un.write_fasta(path, un.Alignment.of(["AC-U"], "rna", ["one"]))
        >>> path.read_text()
        '>one\nAC-U\n'
    """
    if not isinstance(alignment, Alignment):
        raise UndirectedError(
            f"write_fasta: got a {type(alignment).__name__}; pass an Alignment, as Alignment.of "
            "makes one of texts"
        )
    path = Path(path)
    check_place(path)
    rows = zip(alignment.names, alignment.sequences, strict=True)
    text = "".join(f">{name}\n{row}\n" for name, row in rows).encode()
    with atomic_write(path) as temporary:
        temporary.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def to_text(states: Int[np.ndarray, "N L"], letters: str) -> list[str]:
    """Rows of states as texts."""
    table = np.frombuffer(letters.encode(), np.uint8)
    return [row.tobytes().decode() for row in table[np.asarray(states)]]


def letters_of(alphabet: str) -> str:
    """The letters of an alphabet, by its name or as they are given."""
    if alphabet in ALPHABETS:
        return ALPHABETS[alphabet]
    good = isinstance(alphabet, str) and alphabet.isascii() and alphabet == alphabet.upper()
    if not good or len(alphabet) < 2 or len(set(alphabet)) < len(alphabet):
        raise UndirectedError(
            f"alphabet '{alphabet}' is unknown; pass auto, {', '.join(ALPHABETS)}, or different "
            "capital letters with the gap first, such as -HP"
        )
    return alphabet


def is_fasta(path: str | Path) -> bool:
    """Whether a file begins, after comments, with the > of FASTA, or as the Stockholm form does."""
    path = Path(path)
    if not path.is_file():
        return False
    try:
        with _open(path) as file:
            text = file.read(4096).removeprefix(MARK).decode("latin-1").lstrip()
    except DAMAGED:
        return False
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith(COMMENT)), "")
    return text.startswith(STOCKHOLM) or first.startswith(">")


def _open(path: Path):  # of three kinds, which share no class
    with open(path, "rb") as file:
        magic = file.read(6)
    opener = next((opener for sign, opener in OPENERS.items() if magic.startswith(sign)), open)
    return opener(path, "rb")


def _records(path: Path) -> Iterator[_Record]:
    """The sequences of a file, as they stand."""
    try:
        with _open(path) as file:
            text = file.read().removeprefix(MARK).decode()
    except (*DAMAGED, UnicodeDecodeError) as error:
        raise BadFile(f"{path}: cannot be read as text ({error}); pass a FASTA file") from error
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    if text.lstrip().startswith(STOCKHOLM):
        return _stockholm(path, lines)
    return _fasta(path, lines)


def _stockholm(path: Path, lines: Lines) -> Iterator[_Record]:
    """The sequences of the Stockholm form, whose lines of a name and letters come in blocks."""
    found: dict[str, _Record] = {}
    ended = False
    for number, line in lines:
        if not line or line.startswith("#"):
            continue
        if ended:
            raise BadFile(f"{path}: a second alignment begins at line {number}; pass one a file")
        name, *letters = line.split(maxsplit=1)
        ended = line == "//"
        if not ended:
            record = found.setdefault(name, _Record(name, number, []))
            record.parts.append((number, "".join(letters)))
    return iter(found.values())


def _fasta(path: Path, lines: Lines) -> Iterator[_Record]:
    """The sequences of the FASTA form: a line of a name, and lines of letters below it."""
    record = None
    for number, line in lines:
        if line.startswith(COMMENT):
            continue
        if line.startswith(">"):
            if record is not None:
                yield record
            record = _Record(line[1:].strip(), number, [])
        elif line and record is None:
            raise BadFile(
                f"{path}: line {number} is '{line[:40]}' before any name; a FASTA file begins with "
                ">NAME"
            )
        elif line and record is not None:
            record.parts.append((number, line))
    if record is not None:
        yield record


def _of_texts(caller: str, sequences: Sequence[str], names: Sequence[str] | None) -> list[_Record]:
    """Texts with their names, or numbers for names; what is no list of texts is refused."""
    if isinstance(sequences, str):
        raise UndirectedError(
            f"{caller}: got the text '{sequences:.40}'; pass a list of sequences, such as "
            f"['{sequences:.40}']"
        )
    for n, sequence in enumerate(sequences, 1):
        if not isinstance(sequence, str):
            raise UndirectedError(
                f"{caller}: sequence {n} is {sequence!r:.40}; pass texts, or integer states to "
                "Alignment"
            )
    known = [f"sequence {i + 1}" for i in range(len(sequences))] if names is None else names
    if len(known) != len(sequences):
        raise UndirectedError(
            f"{caller}: {len(known)} names for {len(sequences)} sequences; pass one for each"
        )
    return [_Record(name, 0, [(0, row)]) for name, row in zip(known, sequences, strict=True)]


def _align(
    records: list[_Record],
    alphabet: str,
    unknown: str,
    where: str,
    advice: str = "pass another alphabet, or unknown='gap' or 'drop' (at the command line: "
    "--unknown gap)",
) -> Alignment:
    """Letters to states; refuse rows of other lengths and letters that are not known."""
    if unknown not in ("error", "gap", "drop"):
        raise UndirectedError(f"unknown is '{unknown}'; pass error, gap or drop")
    if not records:
        raise BadFile(f"{where}: no sequences; a FASTA file has lines >NAME and letters below them")
    texts = ["".join(part for _, part in record.parts) for record in records]
    present = set().union(*texts)
    inserts = any(letter.islower() for letter in present)
    letters = _guess(present) if alphabet == "auto" else letters_of(alphabet)
    table = _codes(letters, inserts)
    rows = [table[np.frombuffer(t.encode("ascii", "replace"), np.uint8)] for t in texts]
    rows = [row[row != DROPPED] for row in rows]
    _check_lengths(rows, records, where, inserts)
    states = np.stack(rows)
    strange = states == UNKNOWN
    if strange.any() and unknown == "error":
        raise _unknown_letter(records[int(strange.any(1).argmax())], table, letters, where, advice)
    states[strange] = 0
    keep = ~strange.any(1) if unknown == "drop" else np.ones(len(states), bool)
    if not keep.any():
        raise BadFile(f"{where}: every sequence has letters that are not of {letters}")
    names = tuple(record.name for record, kept in zip(records, keep, strict=True) if kept)
    return Alignment(states[keep], letters, names)


def _codes(letters: str, inserts: bool) -> UInt8[np.ndarray, "256"]:
    """The state of every byte; inserts and the dots that go with them are dropped."""
    table = np.full(256, UNKNOWN, np.uint8)
    table[np.frombuffer(letters.encode(), np.uint8)] = np.arange(len(letters))
    table[ord("a") : ord("z") + 1] = DROPPED
    if letters[0] == GAP:
        table[ord(".")] = DROPPED if inserts else 0
    return table


def _guess(present: Iterable[str]) -> str:
    """RNA or DNA where nothing else occurs but letters for any base, otherwise protein."""
    found = {letter for letter in present if letter.isupper()}
    for name, (own, several) in NUCLEIC.items():
        others = found - set(ALPHABETS[name])
        if found and (not others or (own in found and others <= set(several))):
            return ALPHABETS[name]
    return ALPHABETS["protein"]


def _check_lengths(
    rows: list[np.ndarray], records: list[_Record], where: str, inserts: bool
) -> None:
    """All rows must be as long as the first, and not empty."""
    wanted = len(rows[0])
    for row, record in zip(rows, records, strict=True):
        if not len(row):
            hint = "; lower-case letters are inserts: write aligned ones in capitals" * inserts
            raise BadFile(f"{_place(where, record)} has no aligned letters{hint}")
        if len(row) != wanted:
            raise BadFile(
                f"{_place(where, record)} has {len(row)} aligned letters, the first sequence "
                f"'{records[0].name}' has {wanted}; align them, with - for gaps"
            )


def _unknown_letter(
    record: _Record, table: np.ndarray, letters: str, where: str, advice: str
) -> UndirectedError:
    """The first letter of a sequence that the alphabet does not have, with its line."""
    for line, part in record.parts:
        for letter in part:
            if table[min(ord(letter), 128)] == UNKNOWN:
                return BadFile(
                    f"{_place(where, record, line)} has the letter {letter!r}, which is not one of "
                    f"{letters}; {advice}"
                )
    raise AssertionError("a state that is unknown comes from a letter that is")


def _place(where: str, record: _Record, line: int | None = None) -> str:
    number = record.line if line is None else line
    at = f"line {number}, " if number else ""
    return f"{where}: {at}sequence '{record.name[:60]}'"
