"""Any pytree as named arrays plus a JSON description of every leaf, and back, bit for bit."""

import ast
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from undirected.core.errors import BadFile

# What every safetensors reader knows; arrays of other dtypes are stored as their bytes.
NATIVE = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NATIVE += ("float16", "float32", "float64")
NUMBERS = {"bool": lambda text: text == "True", "int": int, "float": float}
PLAIN = {**NUMBERS, "str": ast.literal_eval}
EXTENSION = 2  # numpy's mark of dtypes that JAX adds: bfloat16, float8, int4
ARRAYS = ("jax", "numpy", "scalar", "key")


def flatten(tree: PyTree) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """A description of every leaf, named by its path (`weights`, `layers[0].bias`), and its arrays.

    Leaves are arrays, typed keys, None, Python numbers and strings. A callable is only noted: it
    comes back from the tree that is restored into, as the static parts of a module do.
    """
    leaves, _ = _named(tree)
    specs = [describe_leaf(name, leaf) for name, leaf in leaves.items()]
    arrays = {spec["name"]: as_native(leaves[spec["name"]]) for spec in specs if _is_array(spec)}
    return specs, arrays


def restore(
    like: PyTree, specs: list[dict[str, Any]], arrays: dict[str, np.ndarray], where: str
) -> PyTree:
    """The tree that `specs` and `arrays` describe, in the structure of `like`."""
    leaves, structure = _named(like)
    found = {spec["name"]: spec for spec in specs}
    values = [decode(found[name], arrays.get(name), leaf, where) for name, leaf in leaves.items()]
    return jax.tree_util.tree_unflatten(structure, values)


def check_fit(like: PyTree, specs: list[dict[str, Any]], where: str) -> None:
    """Raise `BadFile` naming the first difference between `like` (arrays or shapes) and `specs`.

    A number may be a Python number on one side and an array of shape () on the other.
    """
    leaves, _ = _named(like)
    found = {spec["name"]: spec for spec in specs}
    for name, leaf in leaves.items():
        if name not in found:
            raise BadFile(f"{where}: '{name}' is missing from the file")
        got, wanted = _summary(found[name]), _summary(describe_leaf(name, leaf))
        if got != wanted and not _is_number(got, wanted):
            raise BadFile(f"{where}: '{name}' is {got} in the file; wanted {wanted}")
    for name in found:
        if name not in leaves:
            raise BadFile(
                f"{where}: the file has '{name}', which is not part of what was asked for"
            )


def _named(tree: PyTree) -> tuple[dict[str, Any], Any]:
    """Leaves by path, None among them, and the structure of the tree."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda x: x is None)
    named = {jax.tree_util.keystr(path).lstrip(".") or "value": leaf for path, leaf in leaves}
    if len(named) < len(leaves):
        raise ValueError("two leaves of the tree have the same path; give its keys distinct names")
    return named, structure


def describe_leaf(name: str, leaf: Any) -> dict[str, Any]:
    """The kind of a leaf and, of an array, its dtype and shape; of a number, its value."""
    kind = type(leaf).__name__
    if leaf is None:
        return {"name": name, "kind": "none"}
    if type(leaf) in (bool, int, float, str):
        return {"name": name, "kind": kind, "value": repr(leaf)}
    if isinstance(leaf, jax.Array | jax.ShapeDtypeStruct | np.ndarray | np.generic):
        spec = {"name": name, "dtype": str(leaf.dtype), "shape": list(leaf.shape)}
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            impl = str(jax.random.key_impl(leaf)) if isinstance(leaf, jax.Array) else None
            return {**spec, "kind": "key", "impl": impl}
        dtype = np.dtype(leaf.dtype)
        if dtype.kind not in "biufc" and dtype.isbuiltin != EXTENSION:
            raise TypeError(f"'{name}' is an array of {dtype}, which cannot be saved; keep numbers")
        numpy = "scalar" if isinstance(leaf, np.generic) else "numpy"
        kind = numpy if isinstance(leaf, np.ndarray | np.generic) else "jax"
        return {**spec, "dtype": dtype.name, "kind": kind}
    if callable(leaf):
        return {"name": name, "kind": "callable"}
    raise TypeError(f"'{name}' is a {kind}, which cannot be saved; make it a static field")


def _is_array(spec: dict[str, Any]) -> bool:
    return spec["kind"] in ARRAYS


def as_native(leaf: Any) -> np.ndarray:
    """The leaf as a contiguous array of a dtype that every reader knows."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    array = np.asarray(leaf, dtype=np.dtype(leaf.dtype.name), order="C")
    return array if array.dtype.name in NATIVE else np.frombuffer(array.tobytes(), np.uint8)


def _summary(spec: dict[str, Any]) -> str:
    """What must agree between a file and the tree it is restored into, in words."""
    if not _is_array(spec):
        return f"a Python {spec['kind']}" if spec["kind"] in PLAIN else spec["kind"]
    return f"{spec['dtype']} {tuple(spec['shape'])}"


def _is_number(*summaries: str) -> bool:
    """Whether one is a Python number and the other too or an array of shape ()."""
    python = [s.removeprefix("a Python ") in NUMBERS for s in summaries]
    return any(python) and all(
        p or s.endswith(" ()") for p, s in zip(python, summaries, strict=True)
    )


def decode(spec: dict[str, Any], stored: np.ndarray | None, like: Any, where: str) -> Any:
    """The leaf that `spec` describes; what is not kept in files comes from `like`."""
    kind, name = spec["kind"], spec["name"]
    if kind in PLAIN:
        return PLAIN[kind](spec["value"])
    if not _is_array(spec):
        return like
    if stored is None:
        raise BadFile(f"{where}: the array of '{name}' is missing from the file")
    shape = tuple(spec["shape"])
    if kind == "key":
        keys = jax.random.wrap_key_data(jnp.array(stored), impl=spec["impl"])
        if keys.shape != shape:
            raise BadFile(f"{where}: '{name}' is keys {keys.shape}, but described as {shape}")
        return keys
    dtype = np.dtype(spec["dtype"])
    if dtype.name not in NATIVE:
        stored = np.frombuffer(stored.tobytes(), dtype).reshape(shape)
    if stored.dtype != dtype or stored.shape != shape:
        got, wanted = f"{stored.dtype} {stored.shape}", f"{dtype} {shape}"
        raise BadFile(f"{where}: the array of '{name}' is {got}, but described as {wanted}")
    if kind == "numpy":
        return np.array(stored)
    if kind == "scalar":
        return stored[()]
    value = jax.device_put(stored)  # jnp.array would compile a program for every shape
    if value.dtype != dtype:
        raise BadFile(
            f"{where}: '{name}' is {dtype} and JAX narrows it to {value.dtype}; "
            'call jax.config.update("jax_enable_x64", True) first'
        )
    return value
