"""Models to and from disk, by one word each."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from undirected.io.model_files import load_model, save_model
from undirected.io.uai import read_uai
from undirected.models import FactorGraph, markov_network


def save(folder: str | Path, model: Any, notes: dict[str, Any] | None = None) -> None:
    """Save a model in a folder, as the command line reads it.

    Args:
        folder: made where it does not exist; a model in it is replaced as a whole.
        model: any model of the library, or an equinox Module of your own.
        notes: JSON values to keep with it, such as names of columns.

    Returns:
        Nothing; a save that is interrupted leaves the old model or the new.

    Example:
        >>> import tempfile
        >>> import undirected as un
        >>> folder = tempfile.mkdtemp()
        >>> un.save(folder, un.Ising.create(3))
        >>> un.load(folder).n
        3
    """
    save_model(folder, model, notes)


def load(folder: str | Path, classes: Iterable[type] | Mapping[str, type] = ()) -> Any:
    """The model saved in a folder, to the bit; no code of the file is run.

    Args:
        folder: where `save` or `undirected fit` put it.
        classes: your own model classes, where the folder may hold one.

    Returns:
        The model.

    Example:
        >>> import tempfile
        >>> import undirected as un
        >>> folder = tempfile.mkdtemp()
        >>> un.save(folder, un.RBM.create(4, 2))
        >>> type(un.load(folder)).__name__
        'RBM'
    """
    return load_model(folder, classes)


def read_network(path: str | Path) -> FactorGraph:
    """A network from a UAI file; its variables answer to their numbers in the file.

    Args:
        path: a file of the UAI format, MARKOV or BAYES.

    Returns:
        A factor graph with names 0, 1, ... in the order of the file.

    Example:
        >>> import pathlib, tempfile
        >>> import undirected as un
        >>> path = pathlib.Path(tempfile.mkdtemp(), "coin.uai")
        >>> _ = path.write_text("MARKOV 1 2 1 1 0 2 0.3 0.7")
        >>> un.query(un.read_network(path))
        {0: {0: 0.3, 1: 0.7}}
    """
    found = read_uai(path)
    return markov_network(found.cardinalities, zip(found.scopes, found.tables, strict=True))
