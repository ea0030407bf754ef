"""One program on many devices.

Programs are written for whole arrays. On a mesh the rows of a table, or the chains of a sampler,
are split along its first axis. Dense weights are split by hidden units along the second, if it has
one. Everything else is on every device, and XLA adds the exchange of what a sum over all rows or
units needs. Nothing here depends on how many devices or processes there are.

A class whose arrays are to be split by hidden units names them in `split_by_units`; their last axis
is that of the units.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from undirected.core.agreement import broadcast
from undirected.core.errors import UndirectedError

AXIS, UNITS = "rows", "units"
BY_ROWS = PartitionSpec(AXIS)


def device_mesh(devices: int | Sequence[Any] | None = None, *, units: int = 1) -> Mesh:
    """A mesh of devices over which rows and chains are split, and perhaps dense weights.

    Args:
        devices: how many, or which; by default all, those of other processes included.
        units: parts into which dense weights are split by hidden units, for models too large for
            one device; each part is on as many devices as rows and chains are split over.

    Returns:
        A mesh for the `mesh=` of `fit`, `run_chains`, `ais`, `query` and others.

    Example:
        >>> import undirected as un
        >>> un.device_mesh(1).size
        1
    """
    found = jax.devices() if devices is None or isinstance(devices, int) else list(devices)
    if isinstance(devices, int):
        if not 1 <= devices <= len(found):
            raise UndirectedError(
                f"device_mesh: {devices} devices are asked for, JAX sees {len(found)}; on a CPU "
                "XLA_FLAGS=--xla_force_host_platform_device_count=8 makes 8 of one"
            )
        found = found[:devices]
    if units < 1 or len(found) % units:
        raise UndirectedError(
            f"device_mesh: units is {units}; it must divide the {len(found)} devices"
        )
    return _mesh(np.array(found), units)


def _mesh(devices: np.ndarray, units: int) -> Mesh:
    if units == 1:
        return Mesh(devices.reshape(-1), (AXIS,))
    return Mesh(devices.reshape(-1, units), (AXIS, UNITS))


def check_mesh(caller: str, mesh: Mesh | None, model: PyTree) -> Mesh | None:
    """The mesh with the axes of this module, however it is typed.

    An axis called `units` splits the weights of the model, which must have some; one of any other
    name splits rows and chains.
    """
    if mesh is None:
        return None
    if not isinstance(mesh, Mesh):
        raise UndirectedError(
            f"{caller}: mesh is a {type(mesh).__name__}; pass un.device_mesh(), or a "
            "jax.sharding.Mesh of one axis"
        )
    long = [name for name, size in mesh.shape.items() if size > 1 and name != UNITS]
    if len(long) > 1:
        raise UndirectedError(
            f"{caller}: the mesh has the axes {', '.join(map(str, long))}; rows and chains are "
            "split along one: pass un.device_mesh()"
        )
    owners = {device.process_index for device in mesh.devices.flat}
    if len(owners) > 1 and len(owners) < jax.process_count():
        raise UndirectedError(
            f"{caller}: the mesh has devices of {len(owners)} of {jax.process_count()} processes; "
            "pass the devices of all, un.device_mesh(), or of one alone"
        )
    if (parts := mesh.shape.get(UNITS, 1)) == 1:
        return _mesh(mesh.devices, 1)
    _check_units(caller, parts, model)
    return _mesh(np.moveaxis(mesh.devices, mesh.axis_names.index(UNITS), -1), parts)


def _check_units(caller: str, parts: int, model: PyTree) -> None:
    """Refuse a model without dense weights, or whose hidden units are not so many even parts."""
    last: list[int] = []
    by_units(lambda a, by: last.append(a.shape[-1]) if by else None, model)
    if not last:
        raise UndirectedError(
            f"{caller}: the mesh splits weights by hidden units, and {type(model).__name__} has no "
            "dense weights between visible and hidden ones; pass un.device_mesh() without units"
        )
    if uneven := [size for size in last if size % parts]:
        raise UndirectedError(
            f"{caller}: {uneven[0]} hidden units cannot be split into {parts} equal parts; take a "
            f"multiple of {parts}, or pass un.device_mesh(units=...) with a number that divides "
            "them"
        )


def by_units(function: Callable[[Any, bool], Any], tree: PyTree) -> PyTree:
    """`function(leaf, by)` of all leaves, `by` saying whether one is split by hidden units."""

    def visit(node: Any) -> Any:
        names = _split_names(node)
        leaves, structure = jax.tree_util.tree_flatten_with_path(node)
        found = [
            function(leaf, bool(path) and getattr(path[0], "name", None) in names)
            for path, leaf in leaves
        ]
        return jax.tree.unflatten(structure, found)

    return jax.tree.map(visit, tree, is_leaf=lambda node: bool(_split_names(node)))


def _split_names(node: Any) -> tuple[str, ...]:
    return getattr(type(node), "split_by_units", ())


def use_mesh(mesh: Mesh | None) -> Any:
    """A context in which programs are traced for this mesh; JAX keeps those of others apart."""
    return nullcontext() if mesh is None else jax.set_mesh(mesh)


def on_mesh() -> bool:
    """Whether the program that is being traced runs on a mesh: kernels for one device may not."""
    mesh = jax.sharding.get_abstract_mesh()
    named = mesh.axis_names in ((AXIS,), (AXIS, UNITS))
    return named and set(mesh.axis_types) == {AxisType.Auto}


def mesh_size() -> int:
    """Devices of the program that is being traced."""
    return jax.sharding.get_abstract_mesh().size if on_mesh() else 1


def unit_parts() -> int:
    """Into how many parts weights are split by hidden units in the program that is being traced."""
    return jax.sharding.get_abstract_mesh().shape.get(UNITS, 1) if on_mesh() else 1


def split(tree: PyTree) -> PyTree:
    """Inside a program: arrays with their first axis split over the mesh; off a mesh, as given."""
    if not on_mesh():
        return tree
    return jax.tree.map(lambda a: _constrain(a, BY_ROWS) if _has_rows(a) else a, tree)


def split_chains(state: PyTree) -> PyTree:
    """Inside a program: the state of chains split by chains, the rest of it left to XLA.

    Chains are the first axis of the largest array. Where the devices do not share them out evenly,
    what leaves the program is on every device.
    """
    if not on_mesh():
        return state
    chains = _chains(state)
    even = chains and chains % (mesh_size() // unit_parts()) == 0
    spec = BY_ROWS if even else PartitionSpec()
    return jax.tree.map(
        lambda a: _constrain(a, spec) if _has_rows(a) and a.shape[0] == chains else a, state
    )


def whole(tree: PyTree) -> PyTree:
    """Inside a program: arrays that every device has, but for weights that are split by units."""
    if not on_mesh():
        return tree
    split_ = unit_parts() > 1
    return by_units(
        lambda a, by: _constrain(a, _spec(a, by and split_)) if eqx.is_array(a) else a, tree
    )


def _spec(a: Any, by_units: bool) -> PartitionSpec:
    return PartitionSpec(*([None] * (a.ndim - 1)), UNITS) if by_units else PartitionSpec()


def _constrain(a: jax.Array, spec: PartitionSpec) -> jax.Array:
    return jax.lax.with_sharding_constraint(a, spec)


def _has_rows(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray) and leaf.ndim > 0


def _chains(state: PyTree) -> int:
    """Length of the first axis of the largest array; 0 where there is none."""
    arrays = [leaf for leaf in jax.tree.leaves(state) if _has_rows(leaf)]
    return max(arrays, key=lambda a: (a.ndim > 1, a.size)).shape[0] if arrays else 0


def place(mesh: Mesh | None, tree: PyTree) -> PyTree:
    """The arrays of process 0 on every device of the mesh; dense weights split by its `units`.

    What is there already stays.
    """
    if mesh is None:
        return tree
    arrays, rest = eqx.partition(tree, lambda a: isinstance(a, jax.Array | np.ndarray))
    split_ = mesh.shape.get(UNITS, 1) > 1
    wanted = by_units(lambda a, by: NamedSharding(mesh, _spec(a, by and split_)), arrays)
    there = jax.tree.map(_is_placed, arrays, wanted)
    old, new = eqx.partition(arrays, there)

    def put(like: Any, a: np.ndarray, sharding: NamedSharding) -> jax.Array:
        return _as_kind(like, jax.make_array_from_callback(a.shape, sharding, a.__getitem__))

    on_host = broadcast(mesh, jax.tree.map(_to_host, new))
    found = jax.tree.map(put, new, on_host, eqx.filter(wanted, there, inverse=True))
    return eqx.combine(found, old, rest)


def _is_placed(a: Any, sharding: NamedSharding) -> bool:
    return isinstance(a, jax.Array) and a.committed and a.sharding == sharding


def place_chains(mesh: Mesh | None, state: PyTree) -> PyTree:
    """The state of chains, split by chains where the devices share them out evenly."""
    chains = _chains(state)
    if mesh is None or not chains or chains % mesh.shape[AXIS]:
        return place(mesh, state)
    mine, rest = eqx.partition(state, lambda a: _has_rows(a) and a.shape[0] == chains)
    split_ = jax.tree.map(
        lambda old, a: _as_kind(old, _by_rows(mesh, a, 0)),
        mine,
        broadcast(mesh, jax.tree.map(_to_host, mine)),
    )
    return eqx.combine(split_, place(mesh, rest))


def place_rows(mesh: Mesh | None, tree: PyTree, axis: int = 0) -> PyTree:
    """Arrays split along an axis, which is filled up to a multiple of the parts of the mesh.

    A process reads the rows of its own devices alone.
    """
    if mesh is None:
        return jax.tree.map(jnp.asarray, tree)
    return jax.tree.map(lambda a: _by_rows(mesh, a, axis), tree)


def _by_rows(mesh: Mesh, a: Any, axis: int) -> jax.Array:
    """One array of `place_rows`; the last row is repeated to fill up."""
    a = np.asarray(a) if isinstance(a, jax.Array) else a
    count = a.shape[axis]
    length = -(-count // mesh.shape[AXIS]) * mesh.shape[AXIS]
    shape = (*a.shape[:axis], length, *a.shape[axis + 1 :])
    spec = PartitionSpec(*([None] * axis), AXIS)

    def part(index: Any) -> np.ndarray:
        rows = index[axis]
        start, stop = rows.start or 0, length if rows.stop is None else rows.stop
        before = (slice(None),) * axis
        found = np.asarray(a[(*before, slice(start, min(stop, count)))])
        if stop > count:
            last = np.asarray(a[(*before, slice(count - 1, count))])
            more = np.repeat(last, stop - max(start, count), axis)
            found = np.concatenate([found, more], axis)
        return found.astype(jax.dtypes.canonicalize_dtype(found.dtype), copy=False)

    return jax.make_array_from_callback(shape, NamedSharding(mesh, spec), part)


def own_rows(mesh: Mesh | None, count: int) -> np.ndarray:
    """Which of so many rows, that the devices share out evenly, devices of this process hold."""
    if mesh is None or count % mesh.shape[AXIS]:
        return np.ones(count, bool)
    own = jax.process_index()
    here = [any(d.process_index == own for d in np.ravel(part)) for part in mesh.devices]
    return np.repeat(here, count // len(here))


def gather(mesh: Mesh | None, tree: PyTree) -> PyTree:
    """Arrays of a mesh as ordinary arrays of this process.

    Weights that are split by units stay so where this process has all parts: one device may be too
    small for them.
    """
    if mesh is None:
        return tree
    return jax.tree.map(lambda a: _ordinary(a) if isinstance(a, jax.Array) else a, tree)


def _ordinary(a: jax.Array) -> jax.Array:
    spec = getattr(a.sharding, "spec", ())
    if a.is_fully_addressable and UNITS in spec:
        return a
    return _as_kind(a, jnp.asarray(_gathered(a)))


def _gathered(a: jax.Array) -> np.ndarray:
    data = jax.random.key_data(a) if _is_key(a) else a
    if data.is_fully_addressable or data.is_fully_replicated:
        return np.asarray(data)
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(data, tiled=True))


def _is_key(a: Any) -> bool:
    return isinstance(a, jax.Array) and jnp.issubdtype(a.dtype, jax.dtypes.prng_key)


def _to_host(a: Any) -> np.ndarray:
    found = np.asarray(jax.random.key_data(a) if _is_key(a) else a)
    return found.astype(jax.dtypes.canonicalize_dtype(found.dtype), copy=False)


def _as_kind(like: Any, data: jax.Array) -> jax.Array:
    """Typed keys again where `like` was one: their numbers travel as plain integers."""
    if not _is_key(like):
        return data
    return jax.random.wrap_key_data(data, impl=jax.random.key_impl(like))
