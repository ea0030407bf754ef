"""Which settings make the same program: objects compared by what they are made of.

`optax.adam(1e-3)` made twice gives functions that Python calls different, though they have the same
code and close over the same numbers. A compiled step found by such a key need not be made again.
"""

import dataclasses
import functools
import hashlib
import types
from typing import Any

import equinox as eqx
import jax
import numpy as np

PLAIN = bool, int, float, complex, str, bytes, np.generic, types.NoneType
Seen = dict[int, tuple[int, Any]]
"""Objects met on the way, by id: their number, and they themselves, so that no id is used twice."""


class Structure:
    """A value as the key of a cache: equal to another one that is made the same way.

    Functions are the same if their code, their defaults, what they close over and the globals they
    name are; containers, frozen dataclasses and equinox modules if their parts are; arrays if
    their entries are. Of other objects each is its own, and stays so until an attribute is set.
    """

    def __init__(self, value: Any):
        self.value, self.key = value, _key(value, {})

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and self.key == other.key


class _Itself:
    """One object and no other; holding it keeps its id from being given to another."""

    def __init__(self, value: Any):
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.value is other.value


def _key(value: Any, seen: Seen) -> tuple:
    """A hashable description of the value."""
    if isinstance(value, PLAIN):
        return type(value), repr(value)  # repr tells 0.0 from -0.0, and NaN equals itself
    if id(value) in seen:  # shared, or a function that closes over itself
        return "seen", seen[id(value)][0]
    seen[id(value)] = len(seen), value
    if isinstance(value, types.ModuleType):
        return (_Itself(value),)
    if isinstance(value, type):
        return _Itself(value), *(_key(f, seen) for f in vars(value).values() if _typed(f))
    return _key(type(value), seen), *_parts(value, seen)


def _parts(value: Any, seen: Seen) -> tuple:
    """The keys of what an object is made of."""
    match value:
        case np.ndarray() | jax.Array():
            return _array(value)
        case types.FunctionType():
            return _function(value, seen)
        case types.CellType():
            parts = contents(value)
        case types.MethodType():
            parts = value.__self__, value.__func__
        case functools.partial():
            parts = value.func, value.args, value.keywords
        case tuple() | list():
            parts = value
        case dict():
            parts = value.items()
        case _ if isinstance(value, eqx.Module) or is_frozen(value):
            parts = [getattr(value, field.name, None) for field in dataclasses.fields(value)]
        case _ if type(value).__eq__ is not object.__eq__ and type(value).__hash__:
            return (value,)
        case _:
            attributes = getattr(value, "__dict__", {})
            return _Itself(value), *((name, _Itself(a)) for name, a in attributes.items())
    return tuple(_key(part, seen) for part in parts)


def _array(value: np.ndarray | jax.Array) -> tuple:
    """Arrays by their entries: those of NumPy can be written to after they were traced."""
    plain = isinstance(value.dtype, np.dtype) and not value.dtype.hasobject
    if not plain or (isinstance(value, jax.Array) and not value.is_fully_addressable):
        return (_Itself(value),)
    weak = getattr(value, "weak_type", False)
    return value.shape, str(value.dtype), weak, hashlib.sha256(np.asarray(value).tobytes()).digest()


def _function(f: types.FunctionType, seen: Seen) -> tuple:
    parts = f.__defaults__, f.__kwdefaults__, f.__closure__
    named = {name: f.__globals__[name] for name in _names(f.__code__) if name in f.__globals__}
    # What was typed into a session may be typed again: such globals are compared by their parts.
    outside = [(n, _key(g, seen) if _typed(g) else _Itself(g)) for n, g in sorted(named.items())]
    return f.__code__, _Itself(f.__globals__), *outside, *(_key(part, seen) for part in parts)


def _names(code: types.CodeType) -> set[str]:
    """The names that a function, and those defined inside of it, may take from the globals."""
    inside = [_names(part) for part in code.co_consts if isinstance(part, types.CodeType)]
    return {*code.co_names}.union(*inside)


def contents(cell: types.CellType) -> tuple:
    """What a cell of a closure holds, as a tuple of one; of none where it is not bound yet."""
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def _typed(value: Any) -> bool:
    kinds = types.FunctionType, type
    return isinstance(value, kinds) and value.__module__ == "__main__"


def is_frozen(value: Any) -> bool:
    """Whether a value is a frozen dataclass."""
    return dataclasses.is_dataclass(value) and value.__dataclass_params__.frozen  # pyright: ignore
