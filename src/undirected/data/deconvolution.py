"""Blind deconvolution: binary images made by stamping four features at sparse locations."""

import numpy as np
from jaxtyping import Shaped

from undirected.data.cache import Arrays, obtain
from undirected.data.dataset import Dataset, Split, no_rows

# Square outline, plus, triangle outline, diamond outline.
FEATURES = np.array(
    [
        [[1, 1, 1, 1, 1], [1, 0, 0, 0, 1], [1, 0, 0, 0, 1], [1, 0, 0, 0, 1], [1, 1, 1, 1, 1]],
        [[0, 0, 1, 0, 0], [0, 0, 1, 0, 0], [1, 1, 1, 1, 1], [0, 0, 1, 0, 0], [0, 0, 1, 0, 0]],
        [[0, 0, 1, 0, 0], [0, 1, 0, 1, 0], [0, 1, 0, 1, 0], [1, 0, 0, 0, 1], [1, 1, 1, 1, 1]],
        [[0, 0, 1, 0, 0], [0, 1, 0, 1, 0], [1, 0, 0, 0, 1], [0, 1, 0, 1, 0], [0, 0, 1, 0, 0]],
    ],
    dtype=np.uint8,
)


def blind_deconvolution() -> Dataset:
    """Blind deconvolution: 100 binary 14x14 images, four 5x5 features at unknown locations.

    `extras["features"]` (4, 5, 5) and `extras["locations"]` (100, 4, 10, 10) are the truth. Where
    the archive is not found, images are drawn afresh by the same recipe from a fixed seed: another
    draw than the one the published results are for.
    """
    archive = obtain("blind_deconv.npz", _draw)
    x = archive.array("X", None, 1, 14, 14)
    train = Split(x.reshape(-1, 196))
    return Dataset(
        "blind_deconvolution",
        train,
        no_rows(train),
        no_rows(train),
        "four 5x5 features stamped on 14x14 binary images",
        "Lazaro-Gredilla, Dedieu, George, perturb-and-max-product, NeurIPS 2021, Section 5.6",
        image_shape=(14, 14),
        extras={
            "features": archive.array("W", 1, 4, 5, 5)[0],
            "locations": archive.array("S", len(x), 4, 10, 10),
        },
    )


def _draw() -> Arrays:
    """Draw 500 sets of Bernoulli(0.01) locations; keep the first 100 with more than two active."""
    locations = np.random.default_rng(42).random((500, 4, 10, 10)) < 0.01
    locations = locations[locations.sum(axis=(1, 2, 3)) > 2][:100].astype(np.uint8)
    images = stamp(locations, FEATURES)
    return {"X": images[:, None], "W": FEATURES[None], "S": locations}


def stamp(
    locations: Shaped[np.ndarray, "N F rows columns"], features: Shaped[np.ndarray, "F h w"]
) -> Shaped[np.ndarray, "N _ _"]:
    """OR-convolve: a pixel is 1 where some feature placed at some location covers it."""
    count, _, rows, columns = locations.shape
    _, height, width = features.shape
    images = np.zeros((count, rows + height - 1, columns + width - 1), np.uint8)
    for row, column in np.ndindex(height, width):
        covered = locations[:, features[:, row, column] == 1].any(axis=1)
        images[:, row : row + rows, column : column + columns] |= covered
    return images
