"""The nine sets of the NADE papers: eight binary ones and nudged grey digits."""

from pathlib import Path

import numpy as np

from undirected.core.errors import UndirectedError
from undirected.data import sources
from undirected.data.cache import Arrays, obtain, packed, read_archive
from undirected.data.dataset import Dataset, Split, no_rows
from undirected.data.digits import digits8x8
from undirected.data.download import fetch

_CITATION = "Larochelle, Murray, AISTATS 2011; Germain et al., ICML 2015"
_COLUMNS = {
    "adult": 123,
    "connect4": 126,
    "dna": 180,
    "mushrooms": 112,
    "nips": 500,
    "ocr_letters": 128,
    "rcv1": 150,
    "web": 300,
}
NAMES = (*_COLUMNS, "digits")


def nade(name: str) -> Dataset:
    """One of the nine: adult connect4 dna mushrooms nips ocr_letters rcv1 web, or digits.

    Values are plain {0,1} (digits: 0..16); `rescale` gives those the query-training programs use.
    Where rcv1 cannot be had, `rcv1_valid_only` may still have its validation rows.
    """
    if name not in NAMES:
        raise UndirectedError(f"nade: '{name}' is unknown; pass one of {', '.join(NAMES)}")
    return _nudged_digits() if name == "digits" else _binary_set(name)


def _binary_set(name: str) -> Dataset:
    file = f"uci_{name}.npz"
    columns = _COLUMNS[name]
    archive = obtain(file, lambda: _from_made(columns, *fetch(file, sources.NADE[name])))
    parts = ("train", "valid", "test")
    train, valid, test = (archive.split(part, columns, binary=True) for part in parts)
    shape = (16, 8) if name == "ocr_letters" else None
    return Dataset(name, train, valid, test, f"{name}, binary", _CITATION, image_shape=shape)


def _from_made(columns: int, path: Path) -> Arrays:
    """Convert a published archive of float {0,1} matrices train_data, valid_data, test_data."""
    archive = read_archive(path)
    arrays: dict[str, np.ndarray] = {}
    for part in ("train", "valid", "test"):
        x = archive.array(f"{part}_data", None, columns, of=np.floating)
        if not np.isin(x, (0, 1)).all():
            raise archive.bad(f"'{part}_data' holds values other than 0 and 1")
        arrays |= packed(f"x_{part}", x)
    return arrays


def rcv1_valid_only() -> Dataset:
    """The 10,000 validation rows of rcv1, for where the full set cannot be had."""
    archive = obtain(
        "uci_rcv1_valid_only.npz", lambda: packed("x_valid", _binary_set("rcv1").valid.x)
    )
    valid = archive.split("valid", _COLUMNS["rcv1"], binary=True)
    none = no_rows(valid)
    description = "rcv1, binary, validation rows only"
    return Dataset("rcv1_valid_only", none, valid, none, description, _CITATION)


def _nudged_digits() -> Dataset:
    """8x8 digits, each also shifted by one pixel up, left, right, down: 7,185 + 1,800.

    The validation split is the training split, as in the query-training programs.
    """
    digits = digits8x8()
    train = _nudge(digits.train)
    return Dataset(
        "digits",
        train,
        train,
        _nudge(digits.test),
        "8x8 digits in 0..16 and their shifts by one pixel; validation rows are the training rows",
        digits.citation,
        image_shape=(8, 8),
    )


def _nudge(split: Split) -> Split:
    """Append the images shifted by one pixel, zero filled: blocks as is, up, left, right, down."""
    padded = np.pad(split.x.reshape(-1, 8, 8), ((0, 0), (1, 1), (1, 1)))
    corners = ((1, 1), (2, 1), (1, 2), (1, 0), (0, 1))  # of the window on the padded image
    blocks = [padded[:, row : row + 8, column : column + 8] for row, column in corners]
    labels = None if split.y is None else np.tile(split.y, len(blocks))
    return Split(np.concatenate(blocks).reshape(-1, 64), labels)
