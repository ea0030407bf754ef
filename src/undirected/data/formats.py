"""The files data sets are published in: IDX (MNIST), NORB matrices, MATLAB files, gzip or not."""

import gzip
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from undirected.core.errors import BadFile

_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_NORB_TYPES = {
    0x1E3D4C51: "<f4",
    0x1E3D4C53: "<f8",
    0x1E3D4C54: "<i4",
    0x1E3D4C55: "<u1",
    0x1E3D4C56: "<i2",
}


def read_idx(path: Path) -> np.ndarray:
    """Read an IDX file: 0, 0, type, rank; one big-endian size per axis; the values, row-major."""
    content = read_content(path)
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _IDX_TYPES:
        raise _bad(path, f"it starts with bytes {content[:4].hex()}, not an IDX header")
    rank = content[3]
    sizes = _integers(path, content, offset=4, count=rank, dtype=">u4")
    return _values(path, content, 4 + 4 * rank, _IDX_TYPES[content[2]], sizes)


def read_norb(path: Path) -> np.ndarray:
    """Read a NORB matrix: magic, rank, at least three sizes; the values, all little-endian."""
    content = read_content(path)
    magic, rank = _integers(path, content, offset=0, count=2, dtype="<u4")
    if magic not in _NORB_TYPES:
        raise _bad(path, f"its magic number is 0x{magic:08X}, not one of a NORB matrix")
    stored = max(3, rank)  # a vector still stores three sizes
    sizes = _integers(path, content, offset=8, count=stored, dtype="<u4")[:rank]
    return _values(path, content, 8 + 4 * stored, _NORB_TYPES[magic], sizes)


def read_mat(path: Path) -> dict[str, Any]:
    """Read a MATLAB file (version 5)."""
    import scipy.io

    with open(path, "rb") as stream:
        try:
            return scipy.io.loadmat(stream)
        except MemoryError:
            raise
        except Exception as error:  # whatever the parser trips over, the file is bad
            raise _bad(path, f"it is not a sound MATLAB file ({error})") from error


def read_content(path: Path) -> bytes:
    """Return a file's bytes, uncompressed where it is a gzip file."""
    content = Path(path).read_bytes()
    if content[:2] != b"\x1f\x8b":
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _bad(path, f"it is not a sound gzip file ({error})") from error


def _integers(path: Path, content: bytes, offset: int, count: int, dtype: str) -> list[int]:
    """Return header numbers as Python integers, which cannot overflow."""
    if len(content) < offset + 4 * count:
        raise _bad(path, f"it ends inside its header, after {len(content)} bytes")
    return np.frombuffer(content, dtype, count, offset).tolist()


def _values(path: Path, content: bytes, offset: int, dtype: str, sizes: list[int]) -> np.ndarray:
    """Return the values behind a header as a native array; their number must be exact."""
    got = len(content) - offset
    wanted = math.prod(sizes) * np.dtype(dtype).itemsize
    if got != wanted:
        raise _bad(path, f"it holds {got} bytes of values, its header {sizes} asks for {wanted}")
    values = np.frombuffer(content, dtype, offset=offset).reshape(sizes)
    return values.astype(values.dtype.newbyteorder("="))


def _bad(path: Path, problem: str) -> BadFile:
    return BadFile(f"{path}: {problem}; delete it or replace it with a sound copy")
