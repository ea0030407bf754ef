import io
import resource
from pathlib import Path

import numpy as np
import pytest

from undirected.core.errors import BadFile
from undirected.data import cache

ARRAYS = {"x": np.arange(12, dtype=np.uint8).reshape(3, 4), "y": np.array([1, 2, 3])}


def archive_bytes(compress: bool = True, **arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    (np.savez_compressed if compress else np.savez)(stream, **arrays)
    return stream.getvalue()


def true_arrays(got: cache.Archive) -> bool:
    """Whether every loaded array is the one written; a lost one is missed when asked for."""
    return set(got.arrays) <= set(ARRAYS) and all(
        array.dtype == ARRAYS[key].dtype and np.array_equal(array, ARRAYS[key])
        for key, array in got.arrays.items()
    )


def same(got: cache.Archive) -> bool:
    return true_arrays(got) and set(got.arrays) == set(ARRAYS)


def test_the_data_folder_comes_before_the_cache(data_folder: Path, cache_folder: Path) -> None:
    cache_folder.mkdir()
    (cache_folder / "a.npz").write_bytes(archive_bytes(x=np.zeros(1)))
    assert cache.find("a.npz") == cache_folder / "a.npz"
    (data_folder / "a.npz").write_bytes(archive_bytes(x=np.ones(1)))
    assert cache.find("a.npz") == data_folder / "a.npz"
    assert cache.find("b.npz") is None


def test_made_once_then_read(cache_folder: Path, no_data_folder: None) -> None:
    calls = []

    def make() -> cache.Arrays:
        calls.append(1)
        return ARRAYS

    assert same(cache.obtain("made.npz", make))
    assert same(cache.obtain("made.npz", make))
    assert calls == [1]
    assert [path.name for path in cache_folder.iterdir()] == ["made.npz"]


def test_plain_and_compressed_archives_are_alike(tmp_path: Path) -> None:
    for compress in (True, False):
        path = tmp_path / f"{compress}.npz"
        path.write_bytes(archive_bytes(compress, **ARRAYS))
        assert same(cache.read_archive(path))


@pytest.mark.parametrize("compress", [True, False])
def test_a_truncated_archive_is_never_loaded(tmp_path: Path, compress: bool) -> None:
    content = archive_bytes(compress, **ARRAYS)
    path = tmp_path / "cut.npz"
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(BadFile, match=r"cut\.npz.*delete or replace"):
            cache.read_archive(path)


@pytest.mark.slow
@pytest.mark.parametrize("compress", [True, False])
def test_a_flipped_byte_never_changes_what_is_loaded(tmp_path: Path, compress: bool) -> None:
    content = archive_bytes(compress, **ARRAYS)
    path = tmp_path / "flipped.npz"
    refused = 0
    for place in range(len(content)):
        for flip in (0x01, 0xFF):
            spoilt = bytearray(content)
            spoilt[place] ^= flip
            path.write_bytes(spoilt)
            try:
                archive = cache.read_archive(path)
            except BadFile:
                refused += 1
            else:
                assert true_arrays(archive), f"byte {place} flipped with {flip:#x} was not noticed"
    assert refused > len(content)


def test_pickles_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "pickle.npz"
    np.savez(path, x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(BadFile, match=r"pickle\.npz"):
        cache.read_archive(path)


@pytest.mark.parametrize("content", [b"", b"hello", b"<html>log in first</html>" * 100])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.npz"
    path.write_bytes(content)
    with pytest.raises(BadFile, match=r"other\.npz"):
        cache.read_archive(path)


def test_a_full_disk_leaves_no_half_file(cache_folder: Path, no_data_folder: None) -> None:
    noise = np.random.default_rng(0).integers(0, 256, 100_000, dtype=np.uint8)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.warns(UserWarning, match=r"big\.npz was made but could not be kept"):
            archive = cache.obtain("big.npz", lambda: {"x": noise})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert np.array_equal(archive.arrays["x"], noise)
    assert list(cache_folder.iterdir()) == []


def test_an_unwritable_cache_does_not_lose_the_arrays(
    cache_folder: Path, no_data_folder: None
) -> None:
    cache_folder.write_text("a file where the folder should be")
    with pytest.warns(UserWarning, match="could not be kept"):
        assert same(cache.obtain("made.npz", lambda: ARRAYS))


def test_packing_round_trip() -> None:
    x = np.random.default_rng(0).integers(0, 2, (5, 13), dtype=np.uint8)
    archive = cache.Archive(Path("a.npz"), cache.packed("x_train", x))
    assert np.array_equal(archive.split("train", 13, binary=True).x, x)
    assert archive.arrays["x_train"].shape == (5, 2)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y_train": np.zeros(3)}, "no array 'x_train', only y_train"),
        ({}, "only nothing"),
        ({"x_train": np.zeros((3, 2, 2), np.uint8)}, "no array 'y_train'"),
        ({"x_train": np.zeros((3, 2, 2))}, "float64 .* wanted uint8"),
        ({"x_train": np.zeros((3, 2, 3), np.uint8)}, r"\(3, 2, 3\), wanted uint8 \(any, 2, 2\)"),
        ({"x_train": np.zeros((3, 4), np.uint8)}, r"\(3, 4\), wanted"),
        (
            {"x_train": np.zeros((3, 2, 2), np.uint8), "y_train": np.zeros(2, np.uint8)},
            r"'y_train' is uint8 of shape \(2,\), wanted integer \(3\)",
        ),
    ],
)
def test_a_wrong_archive_is_named(arrays: cache.Arrays, message: str) -> None:
    with pytest.raises(BadFile, match=rf"^folder/set\.npz: .*{message}"):
        cache.Archive(Path("folder/set.npz"), arrays).split("train", 2, 2, labels=True)


def test_packed_shape_must_agree() -> None:
    arrays = cache.packed("x_test", np.ones((4, 9), np.uint8))
    with pytest.raises(BadFile, match=r"x_test_shape says \[4, 9\]"):
        cache.Archive(Path("a.npz"), arrays).split("test", 10, binary=True)
