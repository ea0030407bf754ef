"""Models to and from disk, by one word each."""

from collections.abc import Hashable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from undirected.core.errors import BadFile, UndirectedError
from undirected.core.files import atomic_write
from undirected.core.layout import Layout
from undirected.core.numerics import HARD
from undirected.core.potentials import Potentials, lowered
from undirected.inference.elimination import state_levels
from undirected.io.model_files import load_model, save_model
from undirected.io.text import NOT_FINITE, from_json, to_json
from undirected.io.uai import UaiModel, read_uai, write_uai
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
    if not isinstance(folder, str | PathLike):
        raise UndirectedError(
            f"save: folder is a {type(folder).__name__}; pass the folder first: "
            'un.save("folder", model)'
        )
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
    """A network from a UAI file; its variables answer to their names, or numbers in the file.

    Args:
        path: a file of the UAI format, MARKOV or BAYES. Names of variables and states, which the
            format lacks, are taken from `PATH.names.json` where `write_network` put one.

    Returns:
        A factor graph with those names, or 0, 1, ... in the order of the file.

    Example:
        >>> import pathlib, tempfile
        >>> import undirected as un
        >>> path = pathlib.Path(tempfile.mkdtemp(), "coin.uai")
        >>> _ = path.write_text("MARKOV 1 2 1 1 0 2 0.3 0.7")
        >>> un.query(un.read_network(path))
        {0: {0: 0.3, 1: 0.7}}
    """
    if not isinstance(path, str | PathLike):
        raise UndirectedError(
            f"read_network: got a {type(path).__name__}; pass the path of a UAI file"
        )
    found = read_uai(path)
    words = _names(Path(path), found)
    if words is None:
        return markov_network(found.cardinalities, zip(found.scopes, found.tables, strict=True))
    words, tables = _without_unnamed(words, found)
    names = list(words)
    scopes = [tuple(names[v] for v in scope) for scope in found.scopes]
    return markov_network(words, list(zip(scopes, tables, strict=True)))


def _without_unnamed(
    words: dict[Hashable, Any], found: UaiModel
) -> tuple[dict[Hashable, Any], list[np.ndarray]]:
    """A variable of one state is written with a second one, which is forbidden and has no name."""
    two = {
        v
        for v, states in enumerate(words.values())
        if isinstance(states, list) and states[1:] == [None]
    }
    one = {
        v
        for scope, table in zip(found.scopes, found.tables, strict=True)
        for axis, v in enumerate(scope)
        if v in two and not table.take(1, axis).any()
    }
    if not one:
        return words, list(found.tables)
    kept = {name: said[:1] if v in one else said for v, (name, said) in enumerate(words.items())}
    tables = [
        table[tuple(slice(0, 1) if v in one else slice(None) for v in scope)]
        for scope, table in zip(found.scopes, found.tables, strict=True)
    ]
    return kept, tables


def write_network(path: str | Path, network: Any) -> None:
    """Write a model of discrete variables as a UAI file, and its names beside it.

    Args:
        path: the file to write; `PATH.names.json` gets the names of variables and states where
            there are any.
        network: a factor graph, or another model whose factors can be written as tables.

    Returns:
        Nothing; `read_network` gives the same distribution and log Z.

    Example:
        >>> import pathlib, tempfile
        >>> import undirected as un
        >>> path = pathlib.Path(tempfile.mkdtemp(), "coin.uai")
        >>> coin = un.markov_network({"coin": ["heads", "tails"]}, {"coin": [3, 7]})
        >>> un.write_network(path, coin)
        >>> un.query(un.read_network(path))
        {'coin': {'heads': 0.3, 'tails': 0.7}}
    """
    if not isinstance(path, str | PathLike):
        raise UndirectedError(
            f"write_network: path is a {type(path).__name__}; pass the path first: "
            'un.write_network("net.uai", network)'
        )
    p, path = lowered("write_network", network), Path(path)
    words = _words(p.layout)
    write_uai(path, as_tables(p))
    if words is None:
        _beside(path).unlink(missing_ok=True)  # of a network that was there before
        return
    with atomic_write(_beside(path)) as temporary:
        temporary.write_text(to_json(words) + "\n", encoding="utf-8")


MOST_ENTRIES = 2**20
"""Entries of one table of a file."""
MOST_LOG = 700.0
"""Logarithm of the largest and least number of a file."""


def as_tables(p: Potentials) -> UaiModel:
    """Potentials of discrete variables as tables, the variables in the order of their names."""
    layout, place = p.layout, {v: i for i, v in enumerate(p.layout.order)}
    scopes, logs = _unary_tables(p, place)
    for factor in p.factors:
        for group in factor.tables(layout, MOST_ENTRIES):
            for scope, table in zip(np.asarray(group.scopes), np.asarray(group.logs), strict=True):
                scopes.append(tuple(place[int(v)] for v in scope if v >= 0))
                logs.append(np.asarray(table, np.float64)[group.place(scope)])
    tables = tuple(np.exp(table) for table in _in_range(logs))
    counts = tuple(int(layout.variables.states[v]) for v in layout.order)
    return UaiModel(counts, tuple(scopes), tables)


def _in_range(logs: list[np.ndarray]) -> list[np.ndarray]:
    """The same product of tables with largest entries that are numbers: all tables share it."""
    tops = np.array([table.max() for table in logs])
    tops[tops < -HARD] = 0.0  # a table that forbids everything goes on doing so
    if (np.abs(tops) <= MOST_LOG).all():
        return logs
    share = float(tops.sum()) / len(logs)
    if abs(share) > MOST_LOG:
        raise UndirectedError(
            f"network: each of its tables would have entries of about e^{share:.0f}, which is no "
            "number; take a constant off its energy"
        )
    return [table - top + share for table, top in zip(logs, tops, strict=True)]


def _unary_tables(
    p: Potentials, place: dict[int, int]
) -> tuple[list[tuple[int, ...]], list[np.ndarray]]:
    """One table for the field and the evidence of each variable; the first has the constant too."""
    if p.unary.ndim != 1:
        raise UndirectedError(
            f"network: got {p.unary.shape[:-1]} instances; pass a model or one instance"
        )
    levels = state_levels(p)
    scopes: list[tuple[int, ...]] = [(i,) for i in place.values()]
    logs = [levels[v] for v in place]
    logs[0] += float(p.offset)
    return scopes, logs


def _words(layout: Layout) -> dict[str, list[Any]] | None:
    """The names of variables and states as JSON; None where there are none."""
    if layout.labels is None:
        return None
    states = [layout.labels.states[v] for v in layout.order]
    own = [None if words is None else list(map(_spelled, words)) for words in states]
    return {"names": list(map(_spelled, layout.names)), "states": own}


def _spelled(word: Any) -> Any:
    """A name or the word for a state as JSON, which has no tuples and takes "NaN" for a number."""
    word = word.item() if isinstance(word, np.generic) else word
    if isinstance(word, tuple):
        return {"tuple": list(map(_spelled, word))}
    if isinstance(word, str) and word in NOT_FINITE:
        return {"str": [word[0], word[1:]]}
    if word is None or isinstance(word, str | bool | int | float):
        return word
    raise UndirectedError(
        f"write_network: a {type(word).__name__} names a variable or a state: {word!r:.40}; a file "
        "holds text, numbers, None and tuples of them: give others such names first"
    )


def _meant(word: Any) -> Any:
    """What `_spelled` had of a name or word."""
    if not isinstance(word, dict):
        return word
    ((kind, parts),) = word.items()
    return {"tuple": tuple, "str": "".join}[kind](map(_meant, parts))


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.names.json")


def _names(path: Path, found: UaiModel) -> dict[Hashable, Any] | None:
    """The names and states that stand beside a file; None where there are none."""
    beside = _beside(path)
    if not beside.is_file():
        return None
    try:
        words = from_json(beside.read_text(encoding="utf-8"))
        own = [None if states is None else list(map(_meant, states)) for states in words["states"]]
        named = dict(zip(map(_meant, words["names"]), own, strict=True))
        pairs = zip(found.cardinalities, named.values(), strict=False)
        counts = [k if states is None else len(states) for k, states in pairs]
    except (ValueError, TypeError, KeyError) as error:
        raise BadFile(f"{beside}: damaged, or not names of a network ({error!s:.100})") from error
    if len(named) != len(found.cardinalities) or counts != list(found.cardinalities):
        raise BadFile(
            f"{beside}: names of {len(named)} variables, which are not those of {path.name}; "
            "remove it, or write both again"
        )
    sizes = zip(named.items(), found.cardinalities, strict=True)
    return {name: k if states is None else states for (name, states), k in sizes}
