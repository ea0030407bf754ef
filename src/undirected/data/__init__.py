"""Data sets: one loader each, one cache, corruption and synthetic sets.

`load(name)` or a loader gives a `Dataset`; `corruption` and `synthetic` are modules of this room.
"""

import difflib
from collections.abc import Callable
from functools import partial

from undirected.core.errors import UndirectedError
from undirected.data.binary import NAMES as _NADE_NAMES
from undirected.data.binary import nade, rcv1_valid_only
from undirected.data.dataset import Dataset, Split, hold_out, rescale
from undirected.data.deconvolution import blind_deconvolution
from undirected.data.digits import digits8x8, mnist5k
from undirected.data.images import (
    caltech101_silhouettes,
    fashion_mnist,
    frey_faces,
    mnist,
    small_norb,
)
from undirected.data.ownership import border_ownership
from undirected.data.words import ocr_words

__all__ = [
    "Dataset",
    "Split",
    "blind_deconvolution",
    "border_ownership",
    "caltech101_silhouettes",
    "digits8x8",
    "fashion_mnist",
    "frey_faces",
    "hold_out",
    "load",
    "mnist",
    "mnist5k",
    "nade",
    "names",
    "ocr_words",
    "rcv1_valid_only",
    "rescale",
    "small_norb",
]

_LOADERS: dict[str, Callable[[], Dataset]] = {
    "blind_deconvolution": blind_deconvolution,
    "border_ownership": border_ownership,
    "caltech101_silhouettes": caltech101_silhouettes,
    "digits8x8": digits8x8,
    "fashion_mnist": fashion_mnist,
    "frey_faces": frey_faces,
    "mnist": mnist,
    "mnist5k": mnist5k,
    "ocr_words": ocr_words,
    "rcv1_valid_only": rcv1_valid_only,
    "small_norb": small_norb,
    **{name: partial(nade, name) for name in _NADE_NAMES},
}


def names() -> tuple[str, ...]:
    """Return the names `load` takes, sorted."""
    return tuple(sorted(_LOADERS))


def load(name: str) -> Dataset:
    """Load a data set by name; it is downloaded or made on first use and kept in the cache."""
    if name not in _LOADERS:
        close = difflib.get_close_matches(name, _LOADERS, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        raise UndirectedError(
            f"load: no data set is called '{name}'; {hint}pass one of {', '.join(names())}"
        )
    return _LOADERS[name]()
