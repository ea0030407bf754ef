"""Is x' W x > 0 for every x >= 0? Proofs, counter-examples, and honest doubt."""

import warnings
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from undirected.core.errors import UndirectedError

if TYPE_CHECKING:
    from undirected.models.nonnegative import NonnegativeBM

_LARGEST_DENSE = 1500
_SEARCH_STARTS = 32


class Verdict(NamedTuple):
    """`proved` is None in doubt; `direction` is a counter-example where there is one."""

    proved: bool | None
    direction: np.ndarray | None


def check_copositive(model: "NonnegativeBM") -> None:
    """Raise with a direction where the matrix is not copositive; warn where nothing is known."""
    verdict = judge(model)
    if verdict.direction is not None:
        x = verdict.direction
        support = np.flatnonzero(x > 1e-9)
        shown = ", ".join(f"x[{i}] = {x[i]:.4g}" for i in support[:5])
        more = "" if len(support) <= 5 else f" and {len(support) - 5} more"
        raise UndirectedError(
            f"NonnegativeBM: the couplings are not copositive: along {shown}{more} the energy "
            "falls without end; raise the diagonal or weaken the negative couplings"
        )
    if verdict.proved is None:
        warnings.warn(
            f"NonnegativeBM: could not prove that the couplings of {model.n} units are copositive, "
            "and found no direction in which they are not; if samples run away, raise the diagonal",
            stacklevel=4,
        )


def judge(model: "NonnegativeBM") -> Verdict:
    """What can be said of strict copositivity, cheap arguments first."""
    diagonal = np.asarray(model.diagonal, np.float64)
    negative = _negative_sums(model)
    if (diagonal + negative > 0).all():
        return Verdict(True, None)
    if model.n > _LARGEST_DENSE:
        return Verdict(None, None)
    matrix = np.asarray(model.matrix, np.float64)
    direction = _search(matrix)
    if direction is not None:
        return Verdict(False, direction)
    return Verdict(True if _splits(matrix) else None, None)


def _negative_sums(model: "NonnegativeBM") -> np.ndarray:
    """Sum of the negative couplings of each unit: with w_ii above it, W is diagonally dominant."""
    weights = np.minimum(np.asarray(model.couplings, np.float64), 0.0)
    if model.graph is None:
        return weights.sum(1)
    ends = np.asarray(model.graph.edges)
    return np.bincount(ends.ravel(), np.repeat(weights, 2), model.n)


def _splits(matrix: np.ndarray) -> bool:
    """W = P + N with N >= 0 entrywise: for x >= 0 and N = eta 1 1' + ..., x' W x > 0.

    x' N x >= eta (sum x)^2 >= eta |x|^2, so a lowest eigenvalue of P above -eta is enough.
    """
    scale = np.abs(matrix).max()
    positive = np.maximum(matrix - np.diag(np.diag(matrix)), 0.0)
    for eta in scale * np.array([1e-6, 1e-4, 1e-2, 0.1, 0.3]):
        for part in (matrix - eta, matrix - positive - eta):
            if np.linalg.eigvalsh(part)[0] > -0.999 * eta:
                return True
    return False


def _search(matrix: np.ndarray) -> np.ndarray | None:
    """A direction x >= 0 with x' W x <= 0, by projected power iteration from many starts."""
    n = len(matrix)
    shift = np.abs(matrix).sum(1).max()
    values, vectors = np.linalg.eigh(matrix)
    if values[0] > 0:
        return None
    low = vectors[:, values <= 0].T
    rng = np.random.default_rng(0)
    starts = [low, -low, rng.exponential(size=(_SEARCH_STARTS, n)), *_pairs(matrix)]
    x = _unit(np.maximum(np.concatenate(starts), 0.0) + 1e-12)
    for _ in range(300):
        x = _unit(np.maximum(shift * x - x @ matrix, 0.0))
    value = np.einsum("si,ij,sj->s", x, matrix, x)
    best = value.argmin()
    return x[best] if value[best] < -1e-9 * np.abs(matrix).max() else None


def _pairs(matrix: np.ndarray) -> list[np.ndarray]:
    """The pair of units whose 2 x 2 block is the furthest from copositive."""
    size = np.sqrt(np.diag(matrix))
    ratio = matrix / np.outer(size, size)
    i, j = np.unravel_index(ratio.argmin(), ratio.shape)
    x = np.zeros((1, len(matrix)))
    x[0, [i, j]] = 1 / size[[i, j]]
    return [x]


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300)
