"""Named arrays as the bytes of a safetensors file, and back."""

import json
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from undirected.core.errors import BadFile, NotFinite

NAMES = {"bool": "BOOL"}
NAMES |= {f"float{bits}": f"F{bits}" for bits in (16, 32, 64)}
NAMES |= {f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)}
NAMES |= {f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)}
"""Of the types of numbers in such a file."""


def pack(arrays: dict[str, np.ndarray], metadata: dict[str, str] | None = None) -> bytes:
    """The bytes of a safetensors file."""
    return safetensors.numpy.save(arrays, metadata)


def pack_parts(
    arrays: dict[str, np.ndarray], metadata: dict[str, str]
) -> tuple[bytes, list[memoryview]]:
    """The same file as its header and the bytes that follow, which are not copied."""
    entries: dict[str, Any] = {"__metadata__": metadata}
    parts, at = [], 0
    for name, a in sorted(arrays.items(), key=lambda item: -item[1].itemsize):  # so all are aligned
        place = [at, at := at + a.nbytes]
        entries[name] = {"dtype": NAMES[a.dtype.name], "shape": a.shape, "data_offsets": place}
        parts.append(np.frombuffer(a, np.uint8).data if a.size else memoryview(b""))
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, parts


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
