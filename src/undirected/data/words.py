"""Handwritten words, letter by letter (Taskar, Guestrin, Koller)."""

from pathlib import Path

import numpy as np

from undirected.core.errors import BadFile
from undirected.data import sources
from undirected.data.cache import Arrays, obtain, packed
from undirected.data.dataset import Dataset, Split, no_rows
from undirected.data.download import fetch
from undirected.data.formats import read_content

_LETTERS = tuple("abcdefghijklmnopqrstuvwxyz")


def ocr_words() -> Dataset:
    """OCR words: 52,152 letters of 6,877 words, 16x8 binary, labels 0..25 = a..z, words in order.

    `extras["word_length"]` cuts the rows into words; `extras["fold"]` (0..9) is each word's fold.
    """
    archive = obtain(
        "ocr_words.npz", lambda: _from_letters(*fetch("ocr_words.npz", sources.OCR_WORDS))
    )
    x = archive.bits("x", 128)
    letters = Split(x, archive.array("y", len(x), of=np.integer))
    length = archive.array("word_length", None, of=np.integer)
    if length.sum() != len(x):
        raise archive.bad(f"its words have {length.sum()} letters, but it holds {len(x)}")
    return Dataset(
        "ocr_words",
        letters,
        no_rows(letters),
        no_rows(letters),
        "handwritten words letter by letter, 16x8 binary",
        "Taskar, Guestrin, Koller, NIPS 2003 (collected by R. Kassel)",
        image_shape=(16, 8),
        extras={
            "word_length": length,
            "fold": archive.array("fold", len(length), of=np.integer),
        },
    )


def _from_letters(path: Path) -> Arrays:
    """Convert the published table: one letter a line, fields separated by tabs."""
    lines = read_content(path).decode("ascii", errors="replace").splitlines()
    table = [line.rstrip("\t").split("\t") for line in lines]
    wrong = next((number for number, row in enumerate(table, 1) if not _is_letter(row)), None)
    if wrong is not None or not table or table[-1][2] != "-1":
        problem = "it ends inside a word" if wrong is None else f"line {wrong} is not a letter"
        raise BadFile(f"{path}: {problem}; delete or replace it, then load the set again")
    ends = [place for place, row in enumerate(table) if row[2] == "-1"]
    return {
        **packed("x", np.array([row[6:] for row in table]) == "1"),
        "y": np.array([ord(row[1]) - ord("a") for row in table], np.uint8),
        "word_length": np.diff(ends, prepend=-1).astype(np.uint8),
        "fold": np.array([table[end][5] for end in ends]).astype(np.uint8),
    }


def _is_letter(row: list[str]) -> bool:
    """Check one line: id, letter, next id (-1 ends a word), word, position, fold, 128 pixels."""
    if len(row) != 6 + 128:
        return False
    return row[1] in _LETTERS and row[5].isdigit() and set(row[6:]) <= {"0", "1"}
