"""`--devices`: over which devices a command splits its work."""

from jax.sharding import Mesh

from undirected.cli import console
from undirected.core.agreement import is_first
from undirected.core.errors import UndirectedError
from undirected.core.mesh import device_mesh
from undirected.core.processes import join_processes


def mesh_of(devices: str | None) -> Mesh | None:
    """The mesh of "all" devices, or of so many; None, one device, where nothing was said.

    With "all" the processes that the environment names are joined; all but the first are silent.
    """
    if devices is None:
        return None
    if devices == "all":
        join_processes()
        mesh = device_mesh()
        if not is_first(mesh):
            console.be_silent()
        return mesh
    if not devices.isdecimal() or int(devices) < 1:
        raise UndirectedError(f"devices: '{devices}' is neither 'all' nor a number from 1")
    return device_mesh(int(devices))
