"""Several processes as one run: found in the environment, and joined before JAX starts."""

import os

import jax

from undirected.core.errors import UndirectedError

HEARTBEAT = 60
"""Seconds without a sign of life after which a process is taken for dead, and the others end."""
OWN = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
LAUNCHERS = "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"
"""How many processes a launcher started; JAX finds out the rest from the same launcher."""


def join_processes() -> bool:
    """Join the other processes of this run, if the environment names any.

    Either all of `JAX_COORDINATOR_ADDRESS` (host:port of process 0), `JAX_NUM_PROCESSES` and
    `JAX_PROCESS_ID` are set, or SLURM or Open MPI has started more than one process. To be called
    before anything is computed; a second call does nothing.

    Returns:
        Whether there are other processes.
    """
    if jax.distributed.is_initialized():
        return jax.process_count() > 1
    given = {name: os.environ[name] for name in OWN if os.environ.get(name)}
    if len(given) == len(OWN):
        address, *numbers = given.values()
        if not all(number.isdecimal() for number in numbers):
            raise UndirectedError(
                f"devices: {OWN[1]} is {numbers[0]!r} and {OWN[2]} {numbers[1]!r}; both must be "
                "whole numbers"
            )
        count, own = map(int, numbers)
        jax.distributed.initialize(address, count, own, heartbeat_timeout_seconds=HEARTBEAT)
    elif given and not _launched():
        missing = [name for name in OWN if name not in given]
        raise UndirectedError(
            f"devices: {', '.join(given)} is set, but not {', '.join(missing)}; set all three, or "
            "start the processes by srun or mpirun"
        )
    elif _launched():
        jax.distributed.initialize(heartbeat_timeout_seconds=HEARTBEAT)
    return jax.process_count() > 1


def _launched() -> bool:
    """Whether a launcher that JAX knows has started several processes."""
    counts = (os.environ.get(name, "1") for name in LAUNCHERS)
    return any(count.isdecimal() and int(count) > 1 for count in counts)
