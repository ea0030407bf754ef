"""Whether an accelerator should do the large cliques of a tree.

JAX takes a second or two to import, and longer to compile its programs. So it is asked only where a
device is there to be seen, and where the cliques are worth it.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

from undirected.inference.networks.cliques import CliqueTree

DEVICES = tuple(Path(name) for name in ("/dev/nvidia0", "/dev/nvidiactl", "/dev/kfd", "/dev/dxg"))
"""Files that a system with a graphics processor has."""
LEAST, MOST = 2**22, 2**31
"""Entries of the largest clique with which the device is worth it; and with which it can do it."""
HOST = 2**18
"""Entries of a clique that is done by NumPy, and of a message that NumPy holds."""
STARTING = 10.0
"""Seconds to start the device and to compile."""
RATES = {"pr": 1e-10, "mar": 5e-10}
"""Seconds for an entry of a clique, by task; a little on the safe side."""
SHARE = 0.6
"""Of the device's memory: for the messages."""
ENTRY = 8
"""Bytes."""


def available() -> bool:
    """Whether JAX computes on a graphics processor by default."""
    wanted = os.environ.get("JAX_PLATFORMS", "").lower()
    seen = "jax" in sys.modules or any(file.exists() for file in DEVICES)
    if wanted == "cpu" or not seen:
        return False
    with suppress(ImportError, RuntimeError):
        import jax

        return jax.default_backend() == "gpu"
    return False


def memory() -> float:
    """Bytes of the device, 0 where it does not say."""
    import jax

    told = jax.devices()[0].memory_stats() or {}
    return float(told.get("bytes_limit", 0))


def seconds(tree: CliqueTree, task: str) -> float | None:
    """What a tree should take on the device; None where it is not worth it or has no room."""
    largest = max((clique.size for clique in tree.cliques), default=0)
    if task not in RATES or not LEAST <= largest <= MOST:
        return None
    message = max(clique.separator_size for clique in tree.cliques)
    held = (tree.stored if task == "mar" else 2 * message) + 4 * message
    if ENTRY * held > SHARE * memory():
        return None
    return STARTING + RATES[task] * tree.entries
