import gzip
import math
import struct
from pathlib import Path

import numpy as np
import pytest

from undirected.core.errors import BadFile
from undirected.data.formats import read_content, read_idx, read_mat, read_norb

IDX_CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}
NORB_CODES = {
    "f4": 0x1E3D4C51,
    "f8": 0x1E3D4C53,
    "i4": 0x1E3D4C54,
    "u1": 0x1E3D4C55,
    "i2": 0x1E3D4C56,
}
SHAPES = [(5,), (2, 3), (2, 3, 4), (2, 2, 3, 2)]


def values(shape: tuple[int, ...], code: str) -> np.ndarray:
    return (np.arange(math.prod(shape)) * 3 + 1).reshape(shape).astype(code)


def idx_bytes(array: np.ndarray, code: str) -> bytes:
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, IDX_CODES[code], array.ndim, *array.shape)
    return header + array.astype(f">{code}").tobytes()


def norb_bytes(array: np.ndarray, code: str) -> bytes:
    sizes = list(array.shape) + [1] * (3 - array.ndim)
    header = struct.pack(f"<Ii{len(sizes)}i", NORB_CODES[code], array.ndim, *sizes)
    return header + array.astype(f"<{code}").tobytes()


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("code", list(IDX_CODES))
def test_idx_round_trip(tmp_path: Path, code: str, shape: tuple[int, ...], zipped: bool) -> None:
    wanted = values(shape, code)
    path = tmp_path / "file"
    content = idx_bytes(wanted, code)
    path.write_bytes(gzip.compress(content) if zipped else content)
    got = read_idx(path)
    assert got.dtype == wanted.dtype
    assert np.array_equal(got, wanted)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("code", list(NORB_CODES))
def test_norb_round_trip(tmp_path: Path, code: str, shape: tuple[int, ...], zipped: bool) -> None:
    wanted = values(shape, code)
    path = tmp_path / "file.mat"
    content = norb_bytes(wanted, code)
    path.write_bytes(gzip.compress(content) if zipped else content)
    got = read_norb(path)
    assert got.dtype == wanted.dtype
    assert np.array_equal(got, wanted)


def test_norb_header_by_hand(tmp_path: Path) -> None:
    """Three labels: the magic number's bytes as they lie on disk, rank 1, sizes 3, 1, 1."""
    path = tmp_path / "cat.mat"
    path.write_bytes(
        bytes.fromhex("544c3d1e 01000000 03000000 01000000 01000000 00000000 04000000 02000000")
    )
    assert read_norb(path).tolist() == [0, 4, 2]


@pytest.mark.parametrize(
    ("read", "write", "code"), [(read_idx, idx_bytes, "u1"), (read_norb, norb_bytes, "i4")]
)
def test_truncated_or_too_long_is_refused(tmp_path: Path, read, write, code) -> None:
    content = write(values((2, 3, 2), code), code)
    path = tmp_path / "cut"
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(BadFile, match=r"cut: it .*delete it or replace it"):
            read(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(BadFile, match="bytes of values"):
        read(path)


@pytest.mark.parametrize("read", [read_idx, read_norb])
def test_truncated_gzip_is_refused(tmp_path: Path, read) -> None:
    array = values((50, 20), "u1")
    content = gzip.compress((idx_bytes if read is read_idx else norb_bytes)(array, "u1"))
    path = tmp_path / "cut.gz"
    for length in (2, 5, 20, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(BadFile, match=r"cut\.gz: it is not a sound gzip file"):
            read(path)


def test_spoilt_gzip_is_refused(tmp_path: Path) -> None:
    content = bytearray(gzip.compress(idx_bytes(values((50, 20), "u1"), "u1")))
    content[-6] ^= 1  # the checksum at the end
    path = tmp_path / "spoilt.gz"
    path.write_bytes(content)
    with pytest.raises(BadFile, match="gzip"):
        read_content(path)


def test_bad_magic_numbers(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(idx_bytes(values((2,), "u1"), "u1"))
    with pytest.raises(BadFile, match="magic number is 0x01080000, not one of a NORB"):
        read_norb(path)
    path.write_bytes(norb_bytes(values((2,), "u1"), "u1"))
    with pytest.raises(BadFile, match="bytes 554c3d1e, not an IDX header"):
        read_idx(path)


@pytest.mark.parametrize("rank", [2**31, 2**32 - 1, 1000])
def test_an_absurd_rank_is_refused(tmp_path: Path, rank: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(struct.pack("<II3I", 0x1E3D4C55, rank, 1, 1, 1))
    with pytest.raises(BadFile, match="inside its header"):
        read_norb(path)


def test_absurd_sizes_do_not_overflow(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(struct.pack("<II4I", 0x1E3D4C55, 4, *[2**32 - 1] * 4))
    with pytest.raises(BadFile, match=str((2**32 - 1) ** 4)):
        read_norb(path)


def test_a_bad_matlab_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.mat"
    for content in (b"", b"hello", b"\0" * 500):
        path.write_bytes(content)
        with pytest.raises(BadFile, match=r"bad\.mat: it is not a sound MATLAB file"):
            read_mat(path)


def test_a_missing_file_is_not_a_bad_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_norb(tmp_path / "nowhere")
