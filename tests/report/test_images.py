"""Grids and filters: every pixel where and what it should be."""

import io

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.image import imread

from undirected.report import images

from .samples import full_record


def pixels(png: bytes) -> np.ndarray:
    return imread(io.BytesIO(png), format="png")[..., :3]


def test_grid_places_every_pixel():
    arrays = np.random.default_rng(0).uniform(size=(5, 2 * 3))
    picture = pixels(images.image_grid(arrays, (2, 3), columns=3, scale=1))
    assert picture.shape == (2 * 3 + 1, 3 * 4 + 1, 3)
    for i, image in enumerate(arrays.reshape(5, 2, 3)):
        top, left = (i // 3) * 3 + 1, (i % 3) * 4 + 1
        np.testing.assert_allclose(
            picture[top : top + 2, left : left + 3],
            np.repeat(image[..., None], 3, -1),
            atol=1 / 255,
        )
    np.testing.assert_allclose(picture[0], images.PADDING, atol=1 / 255)
    np.testing.assert_allclose(picture[:, 0], images.PADDING, atol=1 / 255)
    np.testing.assert_allclose(picture[3:, 9:], images.PADDING, atol=1 / 255)  # no sixth image


def test_grid_scale_range_and_missing_pixels():
    picture = pixels(
        images.image_grid([[-5.0, -1.0, 0.0, 1.0, 7.0, np.nan]], (1, 6), low=-1, scale=3)
    )
    assert picture.shape == (9, 24, 3)
    centres = picture[4, 4:21:3]
    np.testing.assert_allclose(centres[:5, 0], [0, 0, 0.5, 1, 1], atol=1 / 255)
    np.testing.assert_allclose(centres[5], images.MISSING, atol=1 / 255)


def test_grid_takes_jax_arrays_and_stacks_and_writes_files(tmp_path):
    stack = jnp.linspace(0, 1, 24).reshape(2, 3, 4)
    path = tmp_path / "new" / "grid.png"
    png = images.image_grid(stack, (3, 4), path, columns=10)
    assert path.read_bytes() == png
    assert png == images.image_grid(np.asarray(stack).reshape(2, 12), (3, 4))


def test_filters_are_blue_white_and_red():
    picture = pixels(images.filters([[-2.0, 0.0, 1.0, np.nan]], (1, 4), scale=1))[1, 1:5]
    (minus, zero, half, missing) = picture
    assert minus[2] > minus[0] + 0.2
    assert zero.min() > 0.95
    assert half[0] > half[2] + 0.1
    assert np.isfinite(missing).all()
    limited = pixels(images.filters([[-2.0, 0.0, 1.0, 0.0]], (1, 4), limit=1.0, scale=1))[1, 1:5]
    assert limited[2][0] < half[0]  # the red of the limit is deeper than that of half of it


def test_filters_of_zeros_are_white():
    assert pixels(images.filters(np.zeros((2, 4)), (2, 2), scale=1))[1:3, 1:3].min() > 0.95


@pytest.mark.parametrize("make", [images.image_grid, images.filters])
@pytest.mark.parametrize(
    ("array", "shape", "message"),
    [
        (np.zeros((3, 5)), (2, 2), r"shape \(3, 5\); wanted \(images, 4\) or \(images, 2, 2\)"),
        (np.zeros(4), (2, 2), r"shape \(4,\)"),
        (np.zeros((0, 4)), (2, 2), "at least one image"),
    ],
)
def test_wrong_shapes_are_named(make, array, shape, message):
    with pytest.raises(ValueError, match=message):
        make(array, shape)


def test_other_bad_arguments():
    with pytest.raises(ValueError, match="columns is 0"):
        images.image_grid(np.zeros((1, 4)), (2, 2), columns=0)
    with pytest.raises(ValueError, match="wanted low < high"):
        images.image_grid(np.zeros((1, 4)), (2, 2), low=1.0)


def test_curve_figure(tmp_path):
    path = tmp_path / "curve.png"
    png = images.curve_figure(full_record()["curves"][0], path)
    assert path.read_bytes() == png
    assert pixels(png).std() > 0.01
    empty = {"name": "", "x_label": "", "y_label": "", "series": []}
    assert pixels(images.curve_figure(empty)).shape == pixels(png).shape


@pytest.mark.parametrize(
    ("shape", "columns", "scale"),
    [((8, 8), 8, 8), ((28, 28), 10, 3), ((28, 28), 20, 2), ((2, 3), 10, 22)],
)
def test_pictures_are_large_enough_to_see(shape, columns, scale):
    assert images.readable_scale(shape, columns) == scale
