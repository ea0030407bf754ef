from pathlib import Path

import numpy as np
import pytest

from undirected import data
from undirected.core.errors import BadFile
from undirected.data.ownership import (
    CONTOUR,
    IN,
    OUT,
    edge_rates,
    label_pixels,
    see_edges,
)


def blob(seed: int) -> np.ndarray:
    """A grey blob that touches the frame, with a hole in it."""
    image = np.zeros((28, 28), np.uint8)
    image[0:9, 5:14] = 200
    image[3:5, 8:10] = 127
    image[14:20, 20:26] = np.random.default_rng(seed).integers(0, 256, (6, 6))
    return image


def labels_by_hand(image: np.ndarray) -> np.ndarray:
    labels = np.full((30, 30), OUT)
    for row in range(28):
        for column in range(28):
            near = [(row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)]
            if image[row, column] > 127.5:
                labels[row + 1, column + 1] = IN
            elif any(0 <= r < 28 and 0 <= c < 28 and image[r, c] > 127.5 for r, c in near):
                labels[row + 1, column + 1] = CONTOUR
    return labels


def test_labels() -> None:
    images = np.stack([blob(0), blob(1), np.zeros((28, 28), np.uint8)])
    wanted = [labels_by_hand(image) for image in images]
    np.testing.assert_array_equal(label_pixels(images), wanted)
    frame = label_pixels(images)[:, [0, -1]]
    assert (frame == OUT).all()


def test_edges_are_spurious_segments_and_kept_contours() -> None:
    labels = label_pixels(np.stack([blob(seed) for seed in range(40)]))
    seen = see_edges(labels, np.random.RandomState(0))
    assert not seen[labels == IN].any()
    spurious = seen & (labels == OUT)
    assert (spurious.sum(axis=(1, 2)) == 24).all()  # eight segments that do not touch
    around = np.pad(labels != OUT, ((0, 0), (1, 1), (1, 1)))
    touched = sum(around[:, r : r + 30, c : c + 30].astype(int) for r in range(3) for c in range(3))
    assert not spurious[touched > 0].any()
    assert 0.75 < seen[labels == CONTOUR].mean() < 0.85  # 40 x 50 pixels, p = 0.8


def test_a_seed_gives_the_same_bits() -> None:
    labels = label_pixels(np.stack([blob(0), blob(1)]))
    first, second, other = (see_edges(labels, np.random.RandomState(s)) for s in (0, 0, 1))
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()


def test_an_image_without_room_gets_fewer_segments() -> None:
    labels = np.full((1, 30, 30), IN, np.uint8)
    labels[0, :8, :8] = OUT
    seen = see_edges(labels, np.random.RandomState(0))
    assert seen.sum() in (3, 6, 9, 12)
    assert not seen[labels == IN].any()


def test_edge_rates_by_hand() -> None:
    labels = np.array([[[CONTOUR, CONTOUR, CONTOUR, CONTOUR, OUT, OUT, OUT, IN]]], np.uint8)
    seen = np.array([[[True, True, True, False, True, False, False, False]]])
    np.testing.assert_allclose(edge_rates(labels, seen), [3 / 4, 1 / (3 + 1), 1e-10])


@pytest.fixture
def small_mnist(data_folder: Path) -> Path:
    images = np.stack([blob(seed) for seed in range(6)])
    labels = np.arange(6, dtype=np.uint8)
    arrays = {"x_train": images, "y_train": labels, "x_test": images[:2], "y_test": labels[:2]}
    np.savez(data_folder / "mnist.npz", **arrays)
    return data_folder


def test_made_from_mnist_and_kept(small_mnist: Path, cache_folder: Path) -> None:
    made = data.border_ownership()
    assert (cache_folder / "border_ownership.npz").exists()
    kept = data.border_ownership()
    images = np.stack([blob(seed) for seed in range(6)])
    labels = label_pixels(images).reshape(6, 900)
    for dataset in (made, kept):
        np.testing.assert_array_equal(dataset.train.y, labels)
        np.testing.assert_array_equal(dataset.test.y, labels[:2])
        np.testing.assert_array_equal(dataset.train.x, made.train.x)
        assert set(np.unique(dataset.train.x)) == {0, 1}
        assert dataset.extras["p_contour"].shape == (3,)
    wanted = edge_rates(labels.reshape(6, 30, 30), made.train.x.reshape(6, 30, 30) == 1)
    np.testing.assert_allclose(made.extras["p_contour"], wanted)


def test_parts_of_different_length_are_refused(small_mnist: Path, cache_folder: Path) -> None:
    data.border_ownership()
    path = cache_folder / "border_ownership.npz"
    with np.load(path) as stored:
        arrays = dict(stored)
    np.savez(path, **{**arrays, "inside_train": arrays["inside_train"][:3]})
    with pytest.raises(BadFile, match="of train differ in length"):
        data.border_ownership()
