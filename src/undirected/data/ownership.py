"""Border ownership: noisy contours of MNIST digits; which pixels are contour, outside, inside?"""

import numpy as np
from jaxtyping import Bool, Float, UInt8

from undirected.data.cache import Archive, Arrays, obtain
from undirected.data.dataset import Dataset, Split, no_rows
from undirected.data.images import mnist

CONTOUR, OUT, IN = 0, 1, 2
SIDE = 30
_SEGMENTS = 8
_TRIES = 1000
_DELETED = 0.2
_PATTERNS = np.array(
    [
        [[0, 1, 0], [0, 1, 0], [0, 1, 0]],
        [[0, 0, 0], [1, 1, 1], [0, 0, 0]],
        [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
        [[0, 0, 1], [0, 1, 0], [1, 0, 0]],
    ],
    dtype=bool,
)


def border_ownership() -> Dataset:
    """Border ownership: 60,000 + 10,000 noisy 30x30 contour images, labels 0 contour, 1 out, 2 in.

    Rows of x are 1 where an edge is seen; y (N, 900) labels every pixel; the order is MNIST's.
    `extras["p_contour"]` (and `["p_contour_test"]`) is P(edge seen | label), shape (3,). Made from
    MNIST where the archive is not found, the same bits every time (some twenty seconds).
    """
    archive = obtain("border_ownership.npz", _from_mnist)
    train = _split(archive, "train")
    return Dataset(
        "border_ownership",
        train,
        no_rows(train),
        _split(archive, "test"),
        "noisy contours of digits, 30x30 binary, with the true label of every pixel",
        "Lazaro-Gredilla et al., query training, AAAI 2021",
        image_shape=(SIDE, SIDE),
        extras={
            "p_contour": archive.array("p_contour_train", 3, of=np.floating),
            "p_contour_test": archive.array("p_contour_test", 3, of=np.floating),
        },
    )


def _split(archive: Archive, part: str) -> Split:
    contour = archive.bits(f"contour_{part}", SIDE**2).astype(bool)
    inside = archive.bits(f"inside_{part}", SIDE**2).astype(bool)
    noisy = archive.bits(f"noisy_contour_{part}", SIDE**2)
    if not contour.shape == inside.shape == noisy.shape:
        raise archive.bad(f"contour, inside and noisy_contour of {part} differ in length")
    labels = np.full(contour.shape, OUT, np.uint8)
    labels[contour] = CONTOUR
    labels[inside] = IN
    return Split(noisy, labels)


def _from_mnist() -> Arrays:
    digits = mnist()
    arrays = {}
    for part, split in (("train", digits.train), ("test", digits.test)):
        labels = label_pixels(split.x.reshape(-1, 28, 28))
        noisy = see_edges(labels, np.random.RandomState(0))
        for key, image in (
            ("contour", labels == CONTOUR),
            ("inside", labels == IN),
            ("noisy_contour", noisy),
        ):
            arrays[f"{key}_{part}"] = np.packbits(image.reshape(-1, SIDE**2), axis=1)
        arrays[f"p_contour_{part}"] = edge_rates(labels, noisy)
        arrays[f"shape_{part}"] = np.array(labels.shape)
    return arrays


def label_pixels(digits: UInt8[np.ndarray, "N 28 28"]) -> UInt8[np.ndarray, "N 30 30"]:
    """Label a grey digit's pixels: in where above half, contour around it, out elsewhere.

    The contour is the plus-shaped dilation less the digit, inside the 28x28 frame; one pixel of
    "out" is then put around.
    """
    padded = np.pad(digits > 127, ((0, 0), (1, 1), (1, 1)))
    inside = padded[:, 1:-1, 1:-1]
    grown = padded[:, :-2, 1:-1] | padded[:, 2:, 1:-1] | padded[:, 1:-1, :-2] | padded[:, 1:-1, 2:]
    labels = np.full(padded.shape, OUT, np.uint8)
    labels[:, 1:-1, 1:-1] = np.where(inside, IN, np.where(grown, CONTOUR, OUT))
    return labels


def see_edges(
    labels: UInt8[np.ndarray, "N 30 30"], random: np.random.RandomState
) -> Bool[np.ndarray, "N 30 30"]:
    """Show the contours as a bad camera would: spurious segments added, a fifth deleted.

    numpy's legacy generator, in the order row, column, pattern for each segment and one binomial
    vector for all deletions, so that a seed gives the same bits on every version.
    """
    contour = labels == CONTOUR
    seen = _spurious_edges(labels == OUT, random)
    seen[contour] = random.binomial(1, _DELETED, np.count_nonzero(contour)) == 0
    return seen


def _spurious_edges(
    out: Bool[np.ndarray, "N 30 30"], random: np.random.RandomState
) -> Bool[np.ndarray, "N 30 30"]:
    """Place 8 three-pixel segments per image, each in the middle of a 5x5 window all of out."""
    edges = np.zeros_like(out)
    for free, edge in zip(out.copy(), edges, strict=True):
        placed = 0
        for _ in range(_TRIES):
            row, column = random.randint(SIDE - 4), random.randint(SIDE - 4)
            if not free[row : row + 5, column : column + 5].all():
                continue
            middle = np.s_[row + 1 : row + 4, column + 1 : column + 4]
            edge[middle] |= _PATTERNS[random.randint(len(_PATTERNS))]
            free[middle] &= ~edge[middle]
            placed += 1
            if placed == _SEGMENTS:
                break
    return edges


def edge_rates(
    labels: UInt8[np.ndarray, "N 30 30"], seen: Bool[np.ndarray, "N 30 30"]
) -> Float[np.ndarray, "3"]:
    """Return P(edge seen | contour), P(edge seen | out), P(edge seen | in), as the programs count.

    Deleted contour pixels count among the "out" pixels that show no edge; "in" gets 1e-10.
    """
    contour = labels == CONTOUR
    spurious = np.count_nonzero(seen & (labels == OUT))
    deleted = np.count_nonzero(contour & ~seen)
    outside = np.count_nonzero(labels == OUT) + deleted
    return np.array([1 - deleted / np.count_nonzero(contour), spurious / outside, 1e-10])
