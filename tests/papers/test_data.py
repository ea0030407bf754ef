"""Every loader and threshold that an experiment uses gives the share of ones that it should.

The wanted shares are worked out here from the arrays of the files alone.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from undirected import data
from undirected.data import cache
from undirected.papers.basics import ais
from undirected.papers.crbm_bp import _images, words
from undirected.papers.pmp import _common as pmp
from undirected.papers.pmp import deconvolution, rbm
from undirected.papers.query_training import completion, grbm, grid, table1
from undirected.papers.tempered import _common as tempered
from undirected.papers.tempered import fashion

pytestmark = pytest.mark.data
FULL = _images.FULL | {"images": "mnist"}


def stored(file: str) -> dict[str, np.ndarray]:
    path = cache.find(file)
    assert path is not None
    with np.load(path) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def mnist() -> dict[str, np.ndarray]:
    found = stored("mnist.npz")
    return {part: found[f"x_{part}"].reshape(-1, 784) for part in ("train", "test")} | {
        "y": found["y_train"]
    }


def test_the_file_is_what_the_papers_have(mnist):
    """13.3 % of the pixels are above half of the range; 19.2 % are not quite black."""
    assert (mnist["train"] / 255 > 0.5).mean() == pytest.approx(0.133, abs=0.001)
    assert (mnist["train"] > 0.5).mean() == pytest.approx(0.192, abs=0.001)


def test_digits_of_perturb_and_max_product(mnist):
    found = rbm.load_digits(rbm.CONFIG["full"])
    assert found.train.shape == (60_000, 784)
    assert set(np.unique(found.train)) == {0, 1}
    assert found.train.mean() == pytest.approx((mnist["train"] / 255 > 0.5).mean(), abs=1e-7)
    assert found.test.mean() == pytest.approx((mnist["test"][:100] / 255 > 0.5).mean(), abs=1e-7)
    twos = mnist["train"][mnist["y"] == 2][:5000]
    assert found.twos.mean() == pytest.approx((twos / 255 > 0.5).mean(), abs=1e-7)


def test_grey_values_at_the_threshold():
    """127 / 255 is below one half, 128 / 255 above it."""
    grey = np.array([[0, 1, 127, 128, 255]], np.uint8)
    assert pmp.binary(grey).tolist() == [[0, 0, 0, 1, 1]]


def test_contours_of_zeros(mnist):
    """The contour is the plus-shaped dilation of a digit without the digit itself."""
    on = np.pad((mnist["train"][mnist["y"] == 0] / 255 > 0.5).reshape(-1, 28, 28), 0)
    near = on.copy()
    near[:, 1:] |= on[:, :-1]
    near[:, :-1] |= on[:, 1:]
    near[:, :, 1:] |= on[:, :, :-1]
    near[:, :, :-1] |= on[:, :, 1:]
    wanted = (near & ~on).sum() / (len(on) * 900)
    assert pmp.contours(5923, 1).shape == (5923, 900)
    assert pmp.contours(5923, 1).mean() == pytest.approx(wanted, abs=1e-7)


@pytest.mark.slow
def test_digits_to_be_denoised(mnist):
    task = _images.image_task("noise 10 %", FULL, 0)
    test = (mnist["test"] / 255 > 0.5).mean()
    assert task.test[1].mean() == pytest.approx(test, abs=1e-7)
    whole = (mnist["train"] / 255 > 0.5).mean()
    parts = 5 * task.train[1].mean() / 6 + task.valid[1].mean() / 6
    assert parts == pytest.approx(whole, abs=1e-6)
    noisy = 0.9 * test + 0.1 * (1 - test)
    assert task.test[0].mean() == pytest.approx(noisy, abs=1e-3)


def test_silhouettes_to_be_denoised():
    """The background is stored as 1, and is 1 in the experiment."""
    task = _images.image_task("noise 20 %", _images.FULL | _images.CALTECH, 0)
    file = stored("caltech101_silhouettes_28.npz")
    shape = file["x_test_shape"]
    bits = np.unpackbits(file["x_test"], axis=1, count=int(shape[1]))
    assert task.test[1].mean() == pytest.approx(bits.mean(), abs=1e-7)
    corners = task.test[1].reshape(-1, 28, 28)[:, [0, 0, -1, -1], [0, -1, 0, -1]]
    assert corners.mean() > 0.6


def test_digits_to_be_completed(mnist):
    parts = completion._images(8, completion.CONFIG["full"], 0)
    assert parts["test"][0].mean() == pytest.approx((mnist["test"] / 255 > 0.5).mean(), abs=1e-7)


def test_digits_drawn_by_their_grey_values(mnist):
    """A pixel is 1 with probability grey / 255: the share is the mean grey value, to 5 errors."""
    config = {"images": "mnist", "train": 50_000, "valid": 10_000, "test": 10_000}
    digits = tempered.load_digits(config, 0)
    error = 5 * 0.35 / np.sqrt(10_000 * 784)
    assert digits.test[:, :784].mean() == pytest.approx(mnist["test"].mean() / 255, abs=error)
    grey = 5 * digits.x.mean() / 6 + digits.valid[:, :784].mean() * 255 / 6
    assert grey == pytest.approx(mnist["train"].mean(), abs=255 * error)
    batch = jnp.asarray(digits.x[:2000]), jnp.asarray(digits.y[:2000])
    drawn = tempered.draw_joint(batch, jax.random.key(0))
    near = 5 * 0.35 / np.sqrt(2000 * 784)
    assert float(drawn[:, :784].mean()) == pytest.approx(digits.x[:2000].mean() / 255, abs=near)
    assert float(drawn[:, 784:].mean()) == pytest.approx(0.1)


def test_grey_clothes():
    train, test = fashion.grey_images(fashion.CONFIG["full"], 0)
    file = stored("fashion_mnist.npz")
    assert test.x.max() == 1
    assert test.x.mean() == pytest.approx(file["x_test"].mean() / 255, rel=1e-4)
    assert train.x.mean() == pytest.approx(file["x_train"].mean() / 255, rel=0.01)


@pytest.mark.parametrize("name", [n for n in table1.NAMES if n != "digits"])
def test_binary_sets(name):
    """A binary 1 becomes 0.9999, and columns that are always 1 become 0."""
    config = table1.CONFIG["full"]
    splits = table1._splits(name, config)
    file = stored(f"uci_{name}.npz")
    whole = {
        part: np.unpackbits(file[f"x_{part}"], axis=1, count=int(file[f"x_{part}_shape"][1]))
        for part in ("train", "valid", "test")
    }
    ever = np.concatenate(list(whole.values()))
    varies = ever.min(0) < ever.max(0)
    for part in ("train", "test"):
        wanted = 0.9999 * (whole[part] * varies[None]).mean()
        assert splits[part].mean() == pytest.approx(wanted, abs=1e-5)


def test_digits_are_grey_and_validated_on_others():
    splits = table1._splits("digits", table1.CONFIG["full"])
    assert len(splits["train"]) + len(splits["valid"]) >= 7185
    train = {row.tobytes() for row in splits["train"]}
    valid = {row.tobytes() for row in splits["valid"]}
    assert len(valid) > 1000
    assert not train & valid
    assert len(splits["train"]) == 5 * (1437 - 240)
    grey = data.digits8x8()
    assert splits["test"][:360].mean() == pytest.approx(grey.test.x.mean() / 16, rel=0.1)


def test_edges_of_border_ownership():
    """An edge is a 1: on four fifths of the contours, on 3 % of the outside, never inside."""
    rates, parts = grid.load_images(grid.CONFIG["full"])
    for part, count in (("train", 50_000), ("validation", 10_000), ("test", 10_000)):
        seen, labels = np.asarray(parts[part].x), np.asarray(parts[part].y)
        assert seen.shape == (count, 900)
        shares = [seen[labels == label].mean() for label in range(3)]
        np.testing.assert_allclose(shares, [0.8, 0.0326, 0.0], atol=0.002)
        np.testing.assert_allclose(shares, rates, atol=0.002)


def test_a_coin_meets_as_much_as_in_the_paper():
    """16.39 % where the outermost ring is left to chance, too."""
    _, parts = grid.load_images(grid.CONFIG["full"])
    labels = np.asarray(parts["test"].y)
    coin = np.random.default_rng(0).random(labels.shape) < 0.5
    assert grid._iou(coin, labels, ring=True).mean == pytest.approx(16.39, abs=0.05)
    assert grid._iou(coin, labels).mean > 18


def test_small_digits_of_ais():
    found = data.mnist5k().train.x
    assert ais.binary_digits("train").mean() == pytest.approx((found / 255 > 0.5).mean(), abs=1e-6)


def test_letters_of_words():
    pixels, letters, folds = words._words(3, 100_000)
    assert set(np.unique(pixels)) == {0, 1}
    assert letters.reshape(len(letters), 3, words.N_CLASSES).sum(2).max() == 1
    assert len(folds) == len(pixels)


def test_features_of_deconvolution():
    images = data.blind_deconvolution().train.x
    assert set(np.unique(images)) == {0, 1}
    assert deconvolution.CONFIG["full"]["images"] == len(images)


def test_faces_are_standardised():
    train, test = grbm._faces(grbm.CONFIG["full"], 0)
    both = np.concatenate([train, test])
    np.testing.assert_allclose(both.mean(0), 0, atol=1e-3)
    assert (both.std(0) < 1).all()  # divided by a little more: 0.001 is added to the deviations
    assert (both.std(0) > 0.9).all()
