"""Which pairs of discrete variables to join: the Chow–Liu tree, and greedy pseudo-likelihood."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from undirected.core.errors import UndirectedError

Rows = Int[np.ndarray, "rows variables"]
Edges = list[tuple[int, int]]

RIDGE = 0.01
"""Of the squares of all weights, for all rows together."""
ITERATIONS = 100
"""Steps of L-BFGS after each change of the edges."""


def chow_liu_edges(rows: Rows, sizes: Sequence[int], penalty: float = 0.0) -> Edges:
    """The edges of the tree of largest likelihood (Chow & Liu 1968).

    Args:
        rows: states, -1 where one is missing: a pair is counted where both are there.
        sizes: the number of states of each variable.
        penalty: what a parameter of an edge costs; edges that gain less are left out.
    """
    x, at = one_hot(rows, sizes)
    counts = x.T @ x
    n = len(sizes)
    gain = np.full((n, n), -np.inf)
    for i in range(n):
        for j in range(i):
            own = counts[at[i] : at[i + 1], at[j] : at[j + 1]]
            free = (sizes[i] - 1) * (sizes[j] - 1)
            gain[i, j] = gain[j, i] = _mutual_information(own) * own.sum() - penalty * free
    return [(i, j) for i, j in _spanning_tree(gain) if gain[i, j] > 0]


def _mutual_information(counts: Float[np.ndarray, "j k"]) -> float:
    total = counts.sum()
    if total == 0:
        return 0.0
    p = counts / total
    apart = p.sum(1, keepdims=True) * p.sum(0, keepdims=True)
    there = p > 0
    return float((p[there] * np.log(p[there] / apart[there])).sum())


def _spanning_tree(weight: Float[np.ndarray, "n n"]) -> Edges:
    """A maximal spanning tree (Prim)."""
    n, found = len(weight), []
    inside, best, nearest = np.zeros(n, bool), np.full(n, -np.inf), np.zeros(n, int)
    new = 0
    for _ in range(n - 1):
        inside[new] = True
        closer = weight[new] > best
        best[closer], nearest[closer] = weight[new][closer], new
        left = np.flatnonzero(~inside)
        new = int(left[best[left].argmax()])
        found.append((min(int(nearest[new]), new), max(int(nearest[new]), new)))
    return found


def greedy_edges(rows: Rows, sizes: Sequence[int], penalty: float) -> Edges:
    """Edges that are added as long as the pseudo-likelihood grows by more than their penalty.

    In every round the weights of the edges so far are fitted. The pairs whose weights have the
    largest derivative, beside what it would vary by, come next: several at once, and half as many
    whenever the whole round does not pay.

    Args:
        rows: states, -1 where one is missing; rows with missing entries are not used.
        sizes: the number of states of each variable.
        penalty: what a parameter of an edge costs in each of the two conditionals that it is in.
    """
    whole = rows[(rows >= 0).all(1)]
    if len(whole) == 0:
        raise UndirectedError(
            "greedy_edges: every row has a missing entry; use chow_liu_edges, which counts pairs"
        )
    problem = PseudoLikelihood(*one_hot(whole, sizes))
    n = len(sizes)
    edges, step = np.zeros((n, n), bool), max(n // 2, 1)
    theta = problem.fitted(edges, np.zeros(problem.length))
    value = problem.penalised(theta, edges, penalty)
    while step:
        scores = np.where(edges | np.tri(n, dtype=bool), -np.inf, problem.scores(theta))
        order = np.argsort(-scores, axis=None)[:step]
        new = edges.copy()
        for i, j in zip(*np.unravel_index(order, (n, n)), strict=True):
            if scores[i, j] > 0:
                new[i, j] = new[j, i] = True
        trial = problem.fitted(new, theta)
        after = problem.penalised(trial, new, penalty)
        if after > value:
            edges, theta, value = new, trial, after
        else:
            step //= 2
    return [(int(i), int(j)) for i, j in np.argwhere(np.triu(edges))]


def one_hot(
    rows: Rows, sizes: Sequence[int]
) -> tuple[Float[np.ndarray, "rows s"], Int[np.ndarray, " n+1"]]:
    """A column for each state of each variable, and where those of each variable begin."""
    at = np.concatenate([[0], np.cumsum(sizes)])
    x = np.zeros((len(rows), at[-1]))
    for v in range(len(sizes)):
        there = np.flatnonzero(rows[:, v] >= 0)
        x[there, at[v] + rows[there, v]] = 1.0
    return x, at


@dataclass(frozen=True, eq=False)
class PseudoLikelihood:
    """Σ over rows and variables of log p(variable | all others) with a weight for pairs of states.

    Args:
        x: the rows, with a column for each state.
        at: where the states of each variable begin.
    """

    x: Float[np.ndarray, "rows s"]
    at: Int[np.ndarray, " n+1"]

    @property
    def states(self) -> int:
        return self.x.shape[1]

    @property
    def length(self) -> int:
        """Of the vector of all parameters: a field for each state, a weight for each pair."""
        return self.states * (self.states + 1)

    def allowed(self, edges: Bool[np.ndarray, "n n"]) -> Bool[np.ndarray, "s s"]:
        """The weights that the edges have."""
        sizes = np.diff(self.at)
        return np.repeat(np.repeat(edges, sizes, 0), sizes, 1)

    def parts(
        self, theta: Float[np.ndarray, " p"]
    ) -> tuple[Float[np.ndarray, " s"], Float[np.ndarray, "s s"]]:
        """The fields, and the weights, which are symmetric."""
        weights = theta[self.states :].reshape(self.states, self.states)
        return theta[: self.states], 0.5 * (weights + weights.T)

    def residual(self, theta: Float[np.ndarray, " p"]) -> tuple[float, Float[np.ndarray, "rows s"]]:
        """The value, and for each state x minus its probability given the other variables."""
        fields, weights = self.parts(theta)
        logits = self.x @ weights + fields
        for i, j in zip(self.at, self.at[1:], strict=False):
            own = logits[:, i:j]
            own -= own.max(1, keepdims=True)
            own -= np.log(np.exp(own).sum(1, keepdims=True))
        value = float((logits * self.x).sum())
        return value, self.x - np.exp(logits)

    def fitted(
        self, edges: Bool[np.ndarray, "n n"], start: Float[np.ndarray, " p"]
    ) -> Float[np.ndarray, " p"]:
        """The parameters of largest value, but for a small ridge."""
        from scipy.optimize import minimize

        allowed = np.concatenate([np.ones(self.states, bool), self.allowed(edges).ravel()])
        rows, place = len(self.x), np.flatnonzero(allowed)

        def loss(some: Float[np.ndarray, " q"]) -> tuple[float, Float[np.ndarray, " q"]]:
            theta = np.zeros(self.length)
            theta[place] = some
            value, error = self.residual(theta)
            cross = self.x.T @ error
            slope = np.concatenate([error.sum(0), 0.5 * (cross + cross.T).ravel()])
            ridge = 0.5 * RIDGE * float(some @ some)
            return (ridge - value) / rows, (RIDGE * some - slope[place]) / rows

        settings = {"maxiter": ITERATIONS, "ftol": 1e-10}
        found = minimize(loss, start[place], jac=True, method="L-BFGS-B", options=settings)
        theta = np.zeros(self.length)
        theta[place] = found.x
        return theta

    def penalised(
        self, theta: Float[np.ndarray, " p"], edges: Bool[np.ndarray, "n n"], penalty: float
    ) -> float:
        """The value less what the parameters of all edges cost, once for each end."""
        free = np.diff(self.at) - 1
        return self.residual(theta)[0] - penalty * float((np.outer(free, free) * edges).sum())

    def scores(self, theta: Float[np.ndarray, " p"]) -> Float[np.ndarray, "n n"]:
        """For each pair the squares of its derivatives beside their variances."""
        _, error = self.residual(theta)
        cross, own = self.x.T @ error, self.x * error
        slope = cross + cross.T
        spread = self.x.T @ error**2
        spread = spread + spread.T + 2 * own.T @ own
        ratio = slope**2 / np.maximum(spread, 1e-12)
        return np.add.reduceat(np.add.reduceat(ratio, self.at[:-1], 0), self.at[:-1], 1)
