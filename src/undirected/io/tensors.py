"""Named arrays as the bytes of a safetensors file, and back."""

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from undirected.core.errors import BadFile, NotFinite


def pack(arrays: dict[str, np.ndarray], metadata: dict[str, str] | None = None) -> bytes:
    """The bytes of a safetensors file."""
    return safetensors.numpy.save(arrays, metadata)


def unpack(data: bytes, where: str) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file."""
    try:
        return safetensors.numpy.load(data)
    except (SafetensorError, KeyError, ValueError) as error:
        raise BadFile(f"{where}: not a safetensors file ({error})") from error


def check_finite(array: np.ndarray, path: str) -> None:
    """Refuse NaN and infinities."""
    finite = np.isfinite(array)
    if not finite.all():
        raise NotFinite(f"the array '{path}' has {int((~finite).sum())} NaN or infinite entries")
