"""The one type every loader returns: train, valid and test rows of a data set."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from undirected.core.errors import UndirectedError


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """Rows `x` (N, n), one flat state each, and their labels `y` (N, ...) where there are any."""

    x: np.ndarray
    y: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.x.ndim != 2:
            raise UndirectedError(f"split: x has shape {self.x.shape}; pass flat rows (N, n)")
        if self.y is not None and len(self.y) != len(self.x):
            raise UndirectedError(
                f"split: {len(self.x)} rows but {len(self.y)} labels; pass one label per row"
            )

    def __len__(self) -> int:
        return len(self.x)

    def take(self, rows: np.ndarray) -> "Split":
        """Return the chosen rows (indices or mask) and their labels."""
        return Split(self.x[rows], None if self.y is None else self.y[rows])

    def __repr__(self) -> str:
        labels = "" if self.y is None else f", y={self.y.dtype}{self.y.shape}"
        return f"Split(x={self.x.dtype}{self.x.shape}{labels})"


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set; a part it does not have is a split of no rows.

    Binary sets hold {0,1}, grey images 0..255 (8x8 digits: 0..16), all uint8. Rows of image sets
    are row-major: `x.reshape(-1, *image_shape)` are the images.
    """

    name: str
    train: Split
    valid: Split
    test: Split
    description: str
    citation: str
    image_shape: tuple[int, ...] | None = None
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """Units of a row."""
        return self.train.x.shape[1]


def no_rows(like: Split) -> Split:
    """Return a split of no rows, as wide as another one."""
    return like.take(np.arange(0))


def hold_out(dataset: Dataset, count: int, seed: int = 0) -> Dataset:
    """Move `count` random training rows to the validation split, which must be empty."""
    if len(dataset.valid):
        raise UndirectedError(
            f"hold_out: {dataset.name} already has {len(dataset.valid)} validation rows; use those"
        )
    if not 0 < count < len(dataset.train):
        raise UndirectedError(
            f"hold_out: cannot move {count} of {len(dataset.train)} training rows; "
            f"pass a count from 1 to {len(dataset.train) - 1}"
        )
    order = np.random.default_rng(seed).permutation(len(dataset.train))
    held = np.sort(order[:count])
    kept = np.sort(order[count:])
    return replace(dataset, train=dataset.train.take(kept), valid=dataset.train.take(held))


def rescale(dataset: Dataset) -> Dataset:
    """Scale each column as the query-training programs do: (x - min) / (max + 0.0001), float32.

    Minimum and maximum are taken over all three splits, so a binary 1 becomes 0.9999 and a
    constant column 0.
    """
    splits = (dataset.train, dataset.valid, dataset.test)
    filled = [split.x for split in splits if len(split)]
    low = np.min([x.min(axis=0) for x in filled], axis=0).astype(np.float64)
    high = np.max([x.max(axis=0) for x in filled], axis=0).astype(np.float64)
    train, valid, test = (
        Split(((split.x - low) / (high + 1e-4)).astype(np.float32), split.y) for split in splits
    )
    return replace(dataset, train=train, valid=valid, test=test)
