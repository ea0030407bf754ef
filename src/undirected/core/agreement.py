"""Many processes that act as one: what process 0 says, and what all of them found."""

import atexit
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PyTree

from undirected.core.errors import UndirectedError

LOST = re.compile("gloo|nccl|mpi|connection|socket|unavailable|heartbeat|coordination", re.I)
"""Words of the errors of a transport: the other end is gone."""
T = TypeVar("T")


class LostProcess(UndirectedError):
    """Another process of the same run has ended, so that this one cannot go on."""


def shared(mesh: Mesh | None) -> bool:
    """Whether the mesh has devices of several processes, which then run the same program."""
    return mesh is not None and jax.process_count() > 1 and mesh.is_multi_process


def is_first(mesh: Mesh | None) -> bool:
    """Whether this process is the one that writes: process 0 of those that share the mesh."""
    return not shared(mesh) or jax.process_index() == 0


def broadcast(mesh: Mesh | None, tree: PyTree) -> PyTree:
    """The arrays of process 0, at every process."""
    if not shared(mesh):
        return tree
    from jax.experimental import multihost_utils

    with told_of_loss(mesh):
        return multihost_utils.broadcast_one_to_all(tree)


def agree(mesh: Mesh | None, value: T) -> T:
    """What process 0 says: for decisions that look at a clock. The value must be plain JSON."""
    if not shared(mesh):
        return value
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    length = int(broadcast(mesh, np.asarray(len(text), np.int32)))
    padded = text if is_first(mesh) else np.zeros(length, np.uint8)
    return json.loads(bytes(broadcast(mesh, padded)))


def any_process(mesh: Mesh | None, flag: bool) -> bool:
    """Whether the flag is set at any process."""
    if not shared(mesh):
        return flag
    from jax.experimental import multihost_utils

    with told_of_loss(mesh):
        return bool(np.any(multihost_utils.process_allgather(np.asarray(flag))))


def by_first(mesh: Mesh | None, function: Callable[[], T]) -> T | None:
    """Done by process 0 alone, whose result it gets; an error there is raised at all processes."""
    if not shared(mesh):
        return function()
    result, cause = None, None
    if is_first(mesh):
        try:
            result = function()
        except Exception as error:
            cause = error
    told = agree(mesh, None if cause is None else str(cause))
    if cause is not None:
        raise cause
    if told is not None:
        raise UndirectedError(f"process 0: {told}")
    return result


def share_out(
    mesh: Mesh | None, items: np.ndarray, function: Callable[[Any], tuple[np.ndarray, ...]]
) -> tuple[np.ndarray, ...]:
    """The stacked arrays of `function(item)` of all items, each found by one process of the mesh.

    For what runs in NumPy, where devices have nothing to do: process k of P takes the items k,
    k + P, and so on. An error of one process is raised at all.
    """

    def stacked(own: Any) -> tuple[np.ndarray, ...]:
        return tuple(np.stack(parts) for parts in zip(*map(function, own), strict=True))

    count = jax.process_count()
    if not shared(mesh) or len(items) < count:
        return stacked(items)
    own = items[jax.process_index() :: count]
    found, cause = None, None
    try:
        found = stacked(own)
    except Exception as error:
        cause = error
    if any_process(mesh, cause is not None):
        raise cause or UndirectedError("another process of this run failed; see what it says")
    assert found is not None
    short = -(-len(items) // count) - len(own)  # by at most one; all must send as many
    found = (np.concatenate([a, a[:short]]) for a in found)
    return tuple(_interleaved(mesh, a)[: len(items)] for a in found)


def _interleaved(mesh: Mesh | None, a: np.ndarray) -> np.ndarray:
    """Rows of all processes in turn; as bytes, for JAX would narrow float64."""
    from jax.experimental import multihost_utils

    with told_of_loss(mesh):
        all_ = multihost_utils.process_allgather(np.frombuffer(a.tobytes(), np.uint8))
    by_process = np.frombuffer(np.asarray(all_).tobytes(), a.dtype).reshape(-1, *a.shape)
    return by_process.swapaxes(0, 1).reshape(-1, *a.shape[1:])


@contextmanager
def told_of_loss(mesh: Mesh | None) -> Iterator[None]:
    """Say in words that another process has ended, where communication with it failed."""
    try:
        yield
    except (ValueError, RuntimeError) as error:  # which of them depends on the transport
        if not shared(mesh) or not LOST.search(str(error)):
            raise
        atexit.register(_end_at_once)
        raise LostProcess(
            f"process {jax.process_index()} of {jax.process_count()}: another process of this run "
            f"has ended or cannot be reached ({str(error).splitlines()[0]:.200}); give the same "
            "command again at all of them: it goes on from the last checkpoint"
        ) from error


def _end_at_once() -> None:
    """At the end of Python JAX would wait for the processes that are gone, and then abort."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
