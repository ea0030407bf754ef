"""The tree of columns of largest likelihood (Chow & Liu 1968), in plain NumPy."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int


class Tree(NamedTuple):
    """The parent of every column (-1 for the root), and its means where that is 0 and where 1."""

    parents: Int[np.ndarray, " V"]
    means: Float[np.ndarray, "V 2"]

    def log_likelihood(self, rows: np.ndarray) -> Float[np.ndarray, " rows"]:
        """log p of every row."""
        above = np.where(self.parents < 0, 0, rows[:, self.parents]).astype(int)
        p = self.means[np.arange(len(self.parents)), above]
        return np.where(rows > 0.5, np.log(p), np.log1p(-p)).sum(1)


def chow_liu(rows: Float[np.ndarray, "rows V"], smoothing: float = 0.5) -> Tree:
    """The maximal spanning tree of mutual information; counts have `smoothing` rows more."""
    n, (on, both) = len(rows), (rows.sum(0, dtype=float), (rows.T @ rows).astype(float))
    p, joint = (on + smoothing / 2) / (n + smoothing), (both + smoothing / 4) / (n + smoothing)
    parents = _spanning_tree(_mutual_information(p, joint))
    child, parent = np.arange(len(p)), np.maximum(parents, 0)
    one = joint[child, parent] / p[parent]
    zero = (p - joint[child, parent]) / (1 - p[parent])
    means = np.where(parents[:, None] < 0, p[:, None], np.stack([zero, one], 1))
    return Tree(parents, np.clip(means, 1e-6, 1 - 1e-6))


def _mutual_information(p: np.ndarray, joint: np.ndarray) -> Float[np.ndarray, "V V"]:
    rows, cols = p[:, None], p[None]
    cells = (
        (joint, rows * cols),
        (rows - joint, rows * (1 - cols)),
        (cols - joint, (1 - rows) * cols),
        (1 - rows - cols + joint, (1 - rows) * (1 - cols)),
    )
    total = np.zeros_like(joint)
    for share, apart in cells:
        share = np.maximum(share, 1e-12)
        total += share * np.log(share / apart)
    return total


def _spanning_tree(weight: np.ndarray) -> Int[np.ndarray, " V"]:
    """Parents in a maximal spanning tree with root 0 (Prim)."""
    count = len(weight)
    parents, best = np.zeros(count, int), weight[0].copy()
    parents[0], outside = -1, np.arange(count) > 0
    for _ in range(count - 1):
        new = int(np.where(outside, best, -np.inf).argmax())
        outside[new] = False
        closer = outside & (weight[new] > best)
        parents[closer], best[closer] = new, weight[new, closer]
    return parents
