"""Where data sets live: one `.npz` archive per set, in UNDIRECTED_DATA or in the user's cache.

A binary matrix is stored packed: key `k` holds `np.packbits(x, axis=1)` and `k_shape` its shape.
"""

import hashlib
import io
import math
import os
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from undirected.core.errors import BadFile
from undirected.core.files import atomic_write
from undirected.data.dataset import Split

VARIABLE = "UNDIRECTED_DATA"
Arrays = Mapping[str, np.ndarray]


def data_folder() -> Path | None:
    """Return the folder named by UNDIRECTED_DATA, if the variable is set."""
    name = os.environ.get(VARIABLE)
    return Path(name).expanduser() if name else None


def cache_folder() -> Path:
    """Return the folder this library keeps converted and generated sets in."""
    import pooch

    return Path(pooch.os_cache("undirected"))


def find(file: str) -> Path | None:
    """Return where an archive lies: UNDIRECTED_DATA first, then the cache."""
    for locate in (data_folder, cache_folder):
        folder = locate()
        if folder is not None and (folder / file).is_file():
            return folder / file
    return None


_seen: ContextVar[dict[str, str] | None] = ContextVar("_seen", default=None)


@contextmanager
def recorded(seen: dict[str, str]) -> Iterator[None]:
    """Within this, every archive that is loaded adds its file name and checksum to `seen`."""
    token = _seen.set(seen)
    try:
        yield
    finally:
        _seen.reset(token)


def obtain(file: str, make: Callable[[], Arrays]) -> "Archive":
    """Read an archive where it lies; where there is none, make its arrays and keep them."""
    path = find(file)
    return read_archive(path) if path is not None else _noted(keep(file, make()))


def _noted(archive: "Archive") -> "Archive":
    seen = _seen.get()
    if seen is not None:
        seen[archive.path.name] = archive.checksum
    return archive


def keep(file: str, arrays: Arrays) -> "Archive":
    """Write an archive to the cache; where that fails, warn and go on with the arrays at hand."""
    path = cache_folder() / file
    try:
        with atomic_write(path) as temporary, open(temporary, "wb") as stream:
            np.savez_compressed(stream, allow_pickle=False, **arrays)
    except OSError as error:
        warnings.warn(
            f"{file} was made but could not be kept in {path.parent}: {error}; "
            "it will be made again the next time",
            stacklevel=2,
        )
    return Archive(path, arrays)


def read_archive(path: Path) -> "Archive":
    """Read every array of an archive; the checksum in it is verified before any is used."""
    with open(path, "rb") as stream:
        try:
            with zipfile.ZipFile(stream) as archive:
                arrays = {
                    name.removesuffix(".npy"): _array(archive.read(name))
                    for name in archive.namelist()
                }
        except MemoryError:
            raise
        except Exception as error:  # whatever the parsers trip over, the file is bad
            raise BadFile(
                f"{path} is not a sound .npz archive ({type(error).__name__}: {error}); "
                "delete or replace it, then load the set again"
            ) from error
    return _noted(Archive(path, arrays))


def _array(content: bytes) -> np.ndarray:
    return np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)


def packed(key: str, x: np.ndarray) -> dict[str, np.ndarray]:
    """Return the two entries a binary matrix (N, n) takes in an archive."""
    return {key: np.packbits(x.astype(bool), axis=1), f"{key}_shape": np.array(x.shape)}


@dataclass(frozen=True)
class Archive:
    """The arrays of one file, handed out only with the shape and type a loader asks for."""

    path: Path
    arrays: Arrays

    @property
    def checksum(self) -> str:
        """SHA-256 over the arrays, by name: the same however the file was compressed."""
        total = hashlib.sha256()
        for name, array in sorted(self.arrays.items()):
            total.update(f"{name} {array.dtype.str} {array.shape}\0".encode())
            total.update(array.tobytes())
        return total.hexdigest()

    def array(self, key: str, *shape: int | None, of: type = np.uint8) -> np.ndarray:
        """Return an array of a given shape (None: any length) and kind of number."""
        if key not in self.arrays:
            raise self.bad(f"it has no array '{key}', only {', '.join(self.arrays) or 'nothing'}")
        array = self.arrays[key]
        fits = array.ndim == len(shape) and all(
            want in (None, got) for got, want in zip(array.shape, shape, strict=True)
        )
        if not fits or not np.issubdtype(array.dtype, of):
            wanted = ", ".join("any" if size is None else str(size) for size in shape)
            raise self.bad(
                f"'{key}' is {array.dtype} of shape {array.shape}, wanted {of.__name__} ({wanted})"
            )
        return array

    def bits(self, key: str, columns: int) -> np.ndarray:
        """Return a packed binary matrix as uint8 {0,1} (N, columns)."""
        packed_rows = self.array(key, None, math.ceil(columns / 8))
        return np.unpackbits(packed_rows, axis=1, count=columns)

    def split(self, part: str, *shape: int, binary: bool = False, labels: bool = False) -> Split:
        """Return x_part as flat rows, packed (`binary`) or not, and y_part where asked for."""
        key = f"x_{part}"
        size = math.prod(shape)
        if binary:
            x = self.bits(key, size)
            stored = self.array(f"{key}_shape", 2, of=np.integer).tolist()
            if stored != list(x.shape):
                raise self.bad(f"{key} holds {x.shape}, {key}_shape says {stored}")
        else:
            x = self.array(key, None, *shape).reshape(-1, size)
        return Split(x, self.array(f"y_{part}", len(x), of=np.integer) if labels else None)

    def bad(self, problem: str) -> BadFile:
        """Return the error to raise when the file's content is not what it should be."""
        return BadFile(f"{self.path}: {problem}; delete or replace it, then load the set again")
