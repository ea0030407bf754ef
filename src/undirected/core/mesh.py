"""One program on many devices.

Programs are written for whole arrays. On a mesh the rows of a table, or the chains of a sampler,
are split along its one axis, everything else is on every device, and XLA adds the exchange of what
a sum over all rows needs. Nothing here depends on how many devices or processes there are.
"""

from collections.abc import Sequence
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

AXIS = "rows"


def device_mesh(devices: int | Sequence[Any] | None = None) -> Mesh:
    """A mesh of devices over which rows and chains are split.

    Args:
        devices: how many, or which; by default all, those of other processes included.

    Returns:
        A mesh with one axis, for the `mesh=` of `fit`, `run_chains`, `ais`, `query` and others.

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
    return Mesh(np.array(found), (AXIS,))


def check_mesh(caller: str, mesh: Mesh | None) -> Mesh | None:
    """The mesh with the axis of this module, whatever its own is called and however it is typed."""
    if mesh is None:
        return None
    if not isinstance(mesh, Mesh):
        raise UndirectedError(
            f"{caller}: mesh is a {type(mesh).__name__}; pass un.device_mesh(), or a "
            "jax.sharding.Mesh of one axis"
        )
    long = [name for name, size in mesh.shape.items() if size > 1]
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
    return Mesh(mesh.devices.reshape(-1), (AXIS,))


def use_mesh(mesh: Mesh | None) -> Any:
    """A context in which programs are traced for this mesh; JAX keeps those of others apart."""
    return nullcontext() if mesh is None else jax.set_mesh(mesh)


def on_mesh() -> bool:
    """Whether the program that is being traced runs on a mesh: kernels for one device may not."""
    mesh = jax.sharding.get_abstract_mesh()
    return mesh.axis_names == (AXIS,) and mesh.axis_types == (AxisType.Auto,)


def mesh_size() -> int:
    """Devices of the program that is being traced."""
    return jax.sharding.get_abstract_mesh().size if on_mesh() else 1


def split(tree: PyTree) -> PyTree:
    """Inside a program: arrays with their first axis split over the mesh; off a mesh, as given."""
    if not on_mesh():
        return tree
    return jax.tree.map(lambda a: _constrain(a, AXIS) if _has_rows(a) else a, tree)


def split_chains(state: PyTree) -> PyTree:
    """Inside a program: the state of chains split by chains, the rest of it left to XLA.

    Chains are the first axis of the largest array. Where the devices do not share them out evenly,
    what leaves the program is on every device.
    """
    if not on_mesh():
        return state
    chains = _chains(state)
    axis = AXIS if chains and chains % mesh_size() == 0 else None
    return jax.tree.map(
        lambda a: _constrain(a, axis) if _has_rows(a) and a.shape[0] == chains else a, state
    )


def whole(tree: PyTree) -> PyTree:
    """Inside a program: arrays that every device has; off a mesh, as given."""
    if not on_mesh():
        return tree
    return jax.tree.map(lambda a: _constrain(a, None) if eqx.is_array(a) else a, tree)


def _constrain(a: jax.Array, axis: str | None) -> jax.Array:
    return jax.lax.with_sharding_constraint(a, PartitionSpec(axis) if axis else PartitionSpec())


def _has_rows(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray) and leaf.ndim > 0


def _chains(state: PyTree) -> int:
    """Length of the first axis of the largest array; 0 where there is none."""
    arrays = [leaf for leaf in jax.tree.leaves(state) if _has_rows(leaf)]
    return max(arrays, key=lambda a: (a.ndim > 1, a.size)).shape[0] if arrays else 0


def place(mesh: Mesh | None, tree: PyTree) -> PyTree:
    """The arrays of process 0 on every device of the mesh."""
    if mesh is None:
        return tree
    arrays, rest = eqx.partition(tree, lambda a: isinstance(a, jax.Array | np.ndarray))
    sharding = NamedSharding(mesh, PartitionSpec())

    def put(like: Any, a: np.ndarray) -> jax.Array:
        return _as_kind(like, jax.make_array_from_callback(a.shape, sharding, a.__getitem__))

    on_host = broadcast(mesh, jax.tree.map(_to_host, arrays))
    return eqx.combine(jax.tree.map(put, arrays, on_host), rest)


def place_chains(mesh: Mesh | None, state: PyTree) -> PyTree:
    """The state of chains, split by chains where the devices share them out evenly."""
    chains = _chains(state)
    if mesh is None or not chains or chains % mesh.size:
        return place(mesh, state)
    mine, rest = eqx.partition(state, lambda a: _has_rows(a) and a.shape[0] == chains)
    split_ = jax.tree.map(
        lambda old, a: _as_kind(old, _by_rows(mesh, a, 0)),
        mine,
        broadcast(mesh, jax.tree.map(_to_host, mine)),
    )
    return eqx.combine(split_, place(mesh, rest))


def place_rows(mesh: Mesh | None, tree: PyTree, axis: int = 0) -> PyTree:
    """Arrays split along an axis, which is filled up to a multiple of the number of devices.

    A process reads the rows of its own devices alone.
    """
    if mesh is None:
        return jax.tree.map(jnp.asarray, tree)
    return jax.tree.map(lambda a: _by_rows(mesh, a, axis), tree)


def _by_rows(mesh: Mesh, a: Any, axis: int) -> jax.Array:
    """One array of `place_rows`; the last row is repeated to fill up."""
    a = np.asarray(a) if isinstance(a, jax.Array) else a
    count = a.shape[axis]
    length = -(-count // mesh.size) * mesh.size
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
    if mesh is None or count % mesh.size:
        return np.ones(count, bool)
    here = [device.process_index == jax.process_index() for device in mesh.devices.flat]
    return np.repeat(here, count // mesh.size)


def gather(mesh: Mesh | None, tree: PyTree) -> PyTree:
    """Arrays of a mesh as ordinary arrays of this process."""
    if mesh is None:
        return tree
    return jax.tree.map(
        lambda a: _as_kind(a, jnp.asarray(_gathered(a))) if isinstance(a, jax.Array) else a, tree
    )


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
