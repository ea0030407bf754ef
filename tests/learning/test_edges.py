"""Edges of trees and of graphs from rows, against brute force and the graph that made the rows."""

from itertools import combinations

import numpy as np
import pytest

from undirected.core.errors import UndirectedError
from undirected.learning.edges import PseudoLikelihood, chow_liu_edges, greedy_edges, one_hot


def likelihood_of_pairs(rows: np.ndarray, i: int, j: int) -> float:
    """Rows times mutual information, counted one by one."""
    total = 0.0
    for a, b in zip(rows[:, i], rows[:, j], strict=True):
        both = ((rows[:, i] == a) & (rows[:, j] == b)).mean()
        total += np.log(both / (rows[:, i] == a).mean() / (rows[:, j] == b).mean())
    return total


def test_the_tree_of_largest_likelihood() -> None:
    rng = np.random.default_rng(0)
    sizes = [2, 3, 2, 4]
    base = rng.integers(0, 12, 60)
    noise = rng.integers(0, 2, (4, 60))
    rows = np.stack([(base // (v + 1) + noise[v]) % k for v, k in enumerate(sizes)], 1)
    pairs = list(combinations(range(4), 2))
    weight = {pair: likelihood_of_pairs(rows, *pair) for pair in pairs}
    trees = [t for t in combinations(pairs, 3) if len({v for pair in t for v in pair}) == 4]
    trees = [t for t in trees if connected(t)]
    assert len(trees) == 16  # Cayley: 4^2
    best = max(trees, key=lambda t: sum(weight[pair] for pair in t))
    assert sorted(chow_liu_edges(rows, sizes)) == sorted(best)
    assert chow_liu_edges(rows, sizes, penalty=1e6) == []


def connected(edges) -> bool:
    seen, grew = {edges[0][0]}, True
    while grew:
        more = {v for e in edges if seen & set(e) for v in e}
        grew = not more <= seen
        seen |= more
    return len(seen) == 4


def test_missing_entries_count_where_both_are_there() -> None:
    rng = np.random.default_rng(1)
    a = rng.integers(0, 2, 200)
    rows = np.stack([a, rng.integers(0, 2, 200), a], 1)
    rows[::3, 0] = -1
    assert chow_liu_edges(rows, [2, 2, 2], penalty=3.0) == [(0, 2)]
    with pytest.raises(UndirectedError, match="every row has a missing entry"):
        greedy_edges(np.full((3, 2), -1), [2, 2], 1.0)


def grid_rows(side: int, count: int, coupling: float, seed: int) -> tuple[np.ndarray, set]:
    """Gibbs samples of spins of three states or two on a square grid, and its edges."""
    rng, n = np.random.default_rng(seed), side * side
    sizes = np.where(np.arange(n) % 3 == 0, 3, 2)
    pairs = {(v, v + 1) for v in range(n) if (v + 1) % side}
    pairs |= {(v, v + side) for v in range(n - side)}
    near = [[u for e in pairs if v in e for u in e if u != v] for v in range(n)]
    x = rng.integers(0, 2, (count, n))
    for _ in range(40):
        for v in range(n):
            states = np.arange(sizes[v])
            fields = coupling * sum((x[:, u, None] == states) for u in near[v])
            x[:, v] = (fields + rng.gumbel(size=fields.shape)).argmax(1)
    return x, pairs


@pytest.mark.slow
def test_the_edges_of_a_grid_are_found() -> None:
    """The seed is fixed. Of pairs that no edge joins one in 300 is taken by chance: 24 pairs."""
    rows, pairs = grid_rows(3, 3000, 1.2, 0)
    sizes = [3 if v % 3 == 0 else 2 for v in range(9)]
    assert set(greedy_edges(rows, sizes, 0.5 * np.log(3000 * 9))) == pairs
    shuffled = np.stack([np.random.default_rng(v).permutation(rows[:, v]) for v in range(9)], 1)
    assert greedy_edges(shuffled, sizes, 0.5 * np.log(3000 * 9)) == []


def test_value_and_slope_of_the_pseudo_likelihood() -> None:
    rng = np.random.default_rng(2)
    sizes = [2, 3, 2]
    rows = np.stack([rng.integers(0, k, 20) for k in sizes], 1)
    problem = PseudoLikelihood(*one_hot(rows, sizes))
    theta = rng.normal(size=problem.length)
    fields, weights = problem.parts(theta)
    at = [0, 2, 5]
    total = 0.0
    for row in rows:
        for v, k in enumerate(sizes):
            logs = np.array(
                [
                    fields[at[v] + s] + sum(weights[at[u] + row[u], at[v] + s] for u in range(3))
                    for s in range(k)
                ]
            )
            total += logs[row[v]] - np.log(np.exp(logs).sum())
    assert problem.residual(theta)[0] == pytest.approx(total)
