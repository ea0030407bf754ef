"""What a setting is, as a short text that the next process finds again."""

import dataclasses
import functools
import hashlib
import types
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from undirected.learning.structure import PLAIN, Seen, contents, is_frozen

ROWS = 1024
"""Rows of a table that are looked at, evenly spread: all of a small one."""
STRETCHES = 8
"""Pieces in which they are read where the table is not in memory."""


def fingerprint(value: Any) -> str:
    """Equal for values that are made the same way, in this process or another.

    Functions count by their name, their defaults and what they close over, and so do optimisers of
    optax, which are made of them; frozen dataclasses and equinox modules by their fields, arrays by
    their entries, anything else by its type.
    """
    digest = hashlib.sha256()
    for word in _words(value, {}):
        digest.update(word.encode() + b"\0")
    return digest.hexdigest()[:16]


def data_fingerprint(data: PyTree) -> str:
    """Equal for tables with the same shape and the same rows at evenly spread places."""
    return fingerprint([(tuple(leaf.shape), _some(leaf)) for leaf in jax.tree.leaves(data)])


def _some(leaf: Any) -> np.ndarray:
    """Rows at evenly spread places; of what is read from disk a few stretches of neighbours."""
    rows = leaf.shape[0]
    if isinstance(leaf, np.ndarray | jax.Array) and not isinstance(leaf, np.memmap):
        return np.asarray(leaf[:: max(1, rows // ROWS)])
    length = -(-ROWS // STRETCHES)
    starts = np.linspace(0, max(rows - length, 0), STRETCHES).astype(int).tolist()
    return np.concatenate([np.asarray(leaf[at : at + length]) for at in starts])


def _words(value: Any, seen: Seen) -> Iterator[str]:
    if isinstance(value, PLAIN):
        yield f"{type(value).__name__} {value!r}"
        return
    if isinstance(value, type | types.ModuleType):
        yield f"{getattr(value, '__module__', '')} {value.__name__}"
        return
    if id(value) in seen:  # shared, or a function that closes over itself
        yield f"seen {seen[id(value)][0]}"
        return
    seen[id(value)] = len(seen), value
    yield f"{type(value).__module__} {type(value).__qualname__}"
    for part in _parts(value):
        yield from _words(part, seen)


def _parts(value: Any) -> Any:
    """What a value is made of."""
    match value:
        case np.ndarray() | jax.Array():
            if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
                value = jax.random.key_data(value)
            array = np.ascontiguousarray(value)
            return array.shape, str(array.dtype), hashlib.sha256(array.tobytes()).hexdigest()
        case types.FunctionType():
            cells = [contents(cell) for cell in value.__closure__ or ()]
            name = f"{value.__module__}.{value.__qualname__}"
            return name, value.__defaults__, value.__kwdefaults__, cells
        case types.MethodType():
            return value.__func__.__qualname__, value.__self__
        case functools.partial():
            return value.func, value.args, value.keywords
        case tuple() | list():
            return value
        case dict():
            return [part for item in value.items() for part in item]
    if isinstance(value, eqx.Module) or is_frozen(value):
        return [getattr(value, field.name, None) for field in dataclasses.fields(value)]
    return ()
