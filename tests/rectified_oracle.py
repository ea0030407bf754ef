"""Truth for rectified Gaussians in plain NumPy and SciPy: quadrature, and the printed equations.

Nothing here imports the library.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Truth:
    """Nodes (S, n) with log weights: an integrated distribution."""

    nodes: np.ndarray
    log_weights: np.ndarray

    @property
    def log_z(self) -> float:
        top = self.log_weights.max()
        return float(top + np.log(np.exp(self.log_weights - top).sum()))

    @property
    def probabilities(self) -> np.ndarray:
        return np.exp(self.log_weights - self.log_z)

    @property
    def means(self) -> np.ndarray:
        return self.probabilities @ self.nodes

    @property
    def moments(self) -> np.ndarray:
        """<x_i x_j>, all pairs, squares on the diagonal."""
        return (self.nodes * self.probabilities[:, None]).T @ self.nodes

    @property
    def covariance(self) -> np.ndarray:
        centred = self.nodes - self.means
        return (centred * self.probabilities[:, None]).T @ centred


def integrate(bias, matrix, top=None, panels: int = 12, order: int = 12) -> Truth:
    """exp(b' x - x' W x / 2) on [0, top]^n by a product of composite Gauss-Legendre rules."""
    bias, matrix = np.asarray(bias, np.float64), np.asarray(matrix, np.float64)
    n = len(bias)
    top = np.full(n, 12.0) if top is None else np.broadcast_to(np.asarray(top, np.float64), (n,))
    node, weight = np.polynomial.legendre.leggauss(order)
    start = np.arange(panels)[:, None]
    unit = ((start + 0.5 * (node + 1)) / panels).ravel()
    share = np.tile(0.5 * weight / panels, panels)
    axes = np.meshgrid(*[unit * t for t in top], indexing="ij")
    nodes = np.stack([a.ravel() for a in axes], 1)
    logs = np.meshgrid(*[np.log(share * t) for t in top], indexing="ij")
    log_weights = sum(a.ravel() for a in logs)
    energy = 0.5 * np.einsum("si,ij,sj->s", nodes, matrix, nodes) - nodes @ bias
    return Truth(nodes, log_weights - energy)


def standard(a: float) -> dict[str, float]:
    """Mean, variance, third cumulant and spread of exp(a y - y^2 / 2), y >= 0, for one a."""
    low = max(0.0, a - 14)
    top = 60 / -a if a < -1 else max(a, 0) + 14
    node, weight = np.polynomial.legendre.leggauss(40)
    edges = np.linspace(low, top, 41)
    half = 0.5 * np.diff(edges)[:, None]
    y = (edges[:-1, None] + half * (node + 1)).ravel()
    p = (half * weight).ravel() * np.exp(a * y - y * y / 2 - max(a, 0.0) ** 2 / 2)
    p /= p.sum()
    m = p @ y
    d = y - m
    s = p @ d**2
    return {"mean": m, "variance": s, "third": p @ d**3, "spread": p @ (d**2 - s) ** 2}


def propagate_literally(matrix, m, v, l, r, Lambda) -> tuple[np.ndarray, np.ndarray]:
    """M and V of the printed equations (11), (12), (14), (18), solved as one linear system."""
    matrix = np.asarray(matrix, np.float64)
    n = len(m)
    off = matrix - np.diag(np.diag(matrix))
    w2 = off**2
    s = v - m**2
    eye, zero = np.eye(n), np.zeros((n, n))
    c = (l * v - m**2 * l + m) / (2 * r)
    # Unknown columns are stacked as (M, V, L, R).
    row_m = np.hstack([eye, zero, -np.diag(s), np.diag(c)])
    row_v = np.hstack([-np.diag(l / r), eye, -np.diag(m / r), np.diag(v / r)])
    onsager = np.diag(w2 @ s) - 2 * np.diag(m) @ w2 @ np.diag(m)
    row_l = np.hstack([off + onsager + np.diag(Lambda), np.diag(m) @ w2, eye, zero])
    row_r = np.hstack([-2 * w2 @ np.diag(m), w2, zero, eye])
    system = np.vstack([row_m, row_v, row_l, row_r])
    right = np.vstack([zero, zero, eye, zero])
    solved = np.linalg.solve(system, right)
    return solved[:n], solved[n : 2 * n]
