"""Modules as JSON, described field by field, beside named arrays; and back, checked throughout.

    None, bool, int, float, str, list      as JSON has them
    {"float": "nan"}, {"str": "'NaN'"}     where JSON would lose the difference
    {"tuple": [...]}, {"dict": [[key, value], ...]}
    {"array": "layers[0].bias", "kind": "jax", "dtype": "float32", "shape": [3]}
    {"class": "RBM", "module": "undirected.models.rbm", "fields": {...}}
    {"enum": "Domain", "module": "undirected.core.layout", "member": "BINARY"}

A class is rebuilt by setting its fields, as JAX does, and then checks itself.
"""

import dataclasses
import enum
import math
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np

from undirected.core.errors import UndirectedError
from undirected.io.classes import ADDED, ALIASES, Classes, is_saveable
from undirected.io.leaves import ARRAYS, as_native, decode, describe_leaf
from undirected.io.tensors import check_finite
from undirected.io.text import NOT_FINITE

ARRAY_TYPES = jax.Array | np.ndarray | np.generic
FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def describe(model: eqx.Module) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The description of a model, and its arrays by the path of their place (`rbm.weights`)."""
    arrays: dict[str, np.ndarray] = {}
    return encode(model, "", arrays), arrays


def rebuild(node: Any, arrays: dict[str, np.ndarray], classes: Classes, where: str) -> Any:
    """The model of a description; an `UndirectedError` says what is wrong with it."""
    source = _Source(arrays, classes, where)
    model = _decode(node, "", source)
    if not isinstance(model, eqx.Module):
        raise UndirectedError(f"it describes a {type(model).__name__}, not a model")
    unknown = sorted(set(arrays) - source.used)
    if unknown:
        raise UndirectedError(f"it does not describe the array '{unknown[0]}'")
    return model


def encode(value: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    """The description of one value at `path`; its arrays are added to `arrays`."""
    kind = type(value)
    if value is None or kind in (bool, int):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if kind is str:
        return {"str": f"'{value}'"} if value in NOT_FINITE else value
    if isinstance(value, ARRAY_TYPES):
        _check_finite(value, path)
        spec = describe_leaf(path, value)
        arrays[path] = as_native(value)
        return {"array": spec.pop("name")} | spec
    if kind in (tuple, list):
        items = [encode(item, f"{path}[{i}]", arrays) for i, item in enumerate(value)]
        return {"tuple": items} if kind is tuple else items
    if kind is dict:
        pairs = ((key, f"{path}[{key!r}]", item) for key, item in value.items())
        return {"dict": [[encode(k, at, {}), encode(item, at, arrays)] for k, at, item in pairs]}
    if isinstance(value, enum.Enum):
        return {"enum": kind.__name__, "module": kind.__module__, "member": value.name}
    if is_saveable(kind):
        return _encode_object(value, path, arrays)
    raise UndirectedError(
        f"'{path}' is a {kind.__name__}, which cannot be saved; keep to arrays, numbers, text, "
        "tuples, lists, dicts, Enums, frozen dataclasses and equinox Modules"
    )


def _encode_object(value: Any, path: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    kind = type(value)
    values = {name: getattr(value, name) for name in fields_of(kind)}
    _check_kinds(kind, values)
    if isinstance(value, eqx.Module):
        _check_self(value)
    fields = {name: encode(item, _join(path, name), arrays) for name, item in values.items()}
    return {"class": kind.__name__, "module": kind.__module__, "fields": fields}


@dataclass(frozen=True)
class _Source:
    """What a description is read with; `used` are the arrays that were asked for."""

    arrays: dict[str, np.ndarray]
    classes: Classes
    where: str
    used: set[str] = field(default_factory=set)


def _decode(node: Any, path: str, source: _Source) -> Any:
    if node is None or isinstance(node, bool | int | float | str):
        return node
    if isinstance(node, list):
        return [_decode(item, f"{path}[{i}]", source) for i, item in enumerate(node)]
    read = FORMS.get(frozenset(node))
    if read is None:
        raise UndirectedError(f"'{path}' is {node!r:.80}, which describes no value")
    return read(node, path, source)


def _decode_tuple(node: dict[str, Any], path: str, source: _Source) -> tuple:
    return tuple(_decode(_of(list, node, "tuple", path), path, source))


def _decode_dict(node: dict[str, Any], path: str, source: _Source) -> dict:
    found = {}
    for pair in _of(list, node, "dict", path):
        key = _decode(pair[0], path, source)
        found[key] = _decode(pair[1], f"{path}[{key!r}]", source)
    return found


def _decode_float(node: dict[str, Any], path: str, source: _Source) -> float:
    return FLOATS[node["float"]]


def _decode_str(node: dict[str, Any], path: str, source: _Source) -> str:
    return _of(str, node, "str", path)[1:-1]


def _decode_enum(node: dict[str, Any], path: str, source: _Source) -> enum.Enum:
    found = source.classes.find(_of(str, node, "enum", path), _of(str, node, "module", path))
    member = _of(str, node, "member", path)
    if not issubclass(found, enum.Enum) or member not in found.__members__:
        raise UndirectedError(f"'{path}' is '{member}', which {found.__name__} does not have")
    return found[member]


def _decode_array(node: dict[str, Any], path: str, source: _Source) -> Any:
    shape = _of(list, node, "shape", path)
    if not all(type(side) is int and side >= 0 for side in shape):
        raise UndirectedError(f"'{path}' has the shape {shape!r:.80}; wanted whole numbers")
    if node["array"] != path or node["kind"] not in ARRAYS:
        raise UndirectedError(f"'{path}' is described as {node!r:.200}, which no array is")
    _of(str, node, "dtype", path)
    value = decode({**node, "name": path}, source.arrays.get(path), None, source.where)
    _check_finite(value, path)
    source.used.add(path)
    return value


def _decode_object(node: dict[str, Any], path: str, source: _Source) -> Any:
    name, given = _of(str, node, "class", path), _of(dict, node, "fields", path)
    kind = source.classes.find(name, _of(str, node, "module", path))
    if not dataclasses.is_dataclass(kind):
        raise UndirectedError(f"'{path}' is of class {name}, which has no fields")
    values: dict[str, Any] = {
        ALIASES.get(f"{name}.{key}", str(key)): _decode(item, _join(path, key), source)
        for key, item in given.items()
    }
    known = fields_of(kind)
    for key in known.keys() - values.keys():
        if f"{kind.__name__}.{key}" in ADDED:
            values[key] = _default(known[key])
    different = sorted(known.keys() ^ values.keys())
    if different:
        what = "is missing" if different[0] in known else "is not one of its fields"
        raise UndirectedError(f"the field '{different[0]}' of {kind.__name__} {what}")
    _check_kinds(kind, values)
    return _build(kind, values)


FORMS: dict[frozenset[str], Callable[[dict[str, Any], str, _Source], Any]] = {
    frozenset(["tuple"]): _decode_tuple,
    frozenset(["dict"]): _decode_dict,
    frozenset(["float"]): _decode_float,
    frozenset(["str"]): _decode_str,
    frozenset(["enum", "module", "member"]): _decode_enum,
    frozenset(["array", "kind", "dtype", "shape"]): _decode_array,
    frozenset(["array", "kind", "dtype", "shape", "impl"]): _decode_array,
    frozenset(["class", "module", "fields"]): _decode_object,
}


def _build(kind: type, values: dict[str, Any]) -> Any:
    """A module with these fields, without its own `__init__`; a dataclass by its constructor."""
    if not issubclass(kind, eqx.Module):
        return kind(**values)
    value = object.__new__(kind)
    for name, item in values.items():
        object.__setattr__(value, name, item)
    _check_self(value)
    return value


def fields_of(kind: Any) -> dict[str, dataclasses.Field]:
    """The fields that make a value: all of a module, those of the constructor of a dataclass."""
    every = issubclass(kind, eqx.Module)
    return {f.name: f for f in dataclasses.fields(kind) if every or f.init}


def _default(where: dataclasses.Field) -> Any:
    if where.default_factory is not dataclasses.MISSING:
        return where.default_factory()
    return where.default


def _check_self(value: eqx.Module) -> None:
    """Run the checks of the class and of its bases, as equinox does after `__init__`."""
    for base in type(value).__mro__:
        if "__check_init__" in vars(base):
            vars(base)["__check_init__"](value)


def _check_finite(value: Any, path: str) -> None:
    if jnp.issubdtype(value.dtype, jnp.inexact):
        check_finite(np.asarray(value), path)


def _check_kinds(kind: type, values: dict[str, Any]) -> None:
    """Every field must be of the kind that its annotation says; shapes are left to the class."""
    try:
        hints = typing.get_type_hints(kind)
    except Exception:  # annotations that only a type checker can read
        return
    for name, value in values.items():
        hint = hints.get(name, Any)
        if not _fits(value, hint):
            shown = getattr(hint, "__name__", str(hint)) if isinstance(hint, type) else str(hint)
            raise UndirectedError(
                f"the field '{name}' of {kind.__name__} is {value!r:.60}; wanted {shown:.80}"
            )


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of the kind of an annotation; what is not understood fits."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, arg) for arg in args)
    if origin is tuple:
        return isinstance(value, tuple) and _fits_items(value, args)
    if origin in (list, dict):
        return isinstance(value, origin)
    if origin is typing.Literal:
        return any(type(value) is type(arg) and value == arg for arg in args)
    if hint in (bool, int, float):
        wanted = (int, float) if hint is float else (hint,)
        return type(value) in wanted or (isinstance(value, ARRAY_TYPES) and value.shape == ())
    if not isinstance(hint, type):
        return value is None if hint is None else True
    if hint in (jax.Array, np.ndarray) or issubclass(hint, jaxtyping.AbstractArray):
        number = getattr(hint, "dims", ()) == () and type(value) in (bool, int, float)
        return number or isinstance(value, ARRAY_TYPES)
    try:
        return isinstance(value, hint)
    except TypeError:  # a protocol that cannot be asked
        return True


def _fits_items(items: tuple, args: tuple) -> bool:
    if len(args) == 2 and args[1] is Ellipsis:
        return all(_fits(item, args[0]) for item in items)
    return len(items) == len(args) and all(map(_fits, items, args))


def _of(kind: type, node: dict[str, Any], key: str, path: str) -> Any:
    """A part of a node, which must be of this kind."""
    if type(node[key]) is not kind:
        raise UndirectedError(f"'{key}' of '{path}' is {node[key]!r:.80}; wanted a {kind.__name__}")
    return node[key]


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
