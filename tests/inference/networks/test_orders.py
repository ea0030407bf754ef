"""Elimination orders: right cliques, known widths, and limits that hold."""

import math
import time
from itertools import combinations

import numpy as np
import pytest

from undirected.inference.networks import orders
from undirected.inference.networks.orders import eliminate, find_order, initial_fills, neighbours


def random_graph(seed: int, n: int = 12) -> list[tuple[int, int]]:
    rng = np.random.default_rng(seed)
    return [pair for pair in combinations(range(n), 2) if rng.random() < 0.3]


def played(n: int, edges: list[tuple[int, int]], order: list[int]) -> list[set[int]]:
    """The neighbours of each variable when it goes, from the definition."""
    joined, found = {frozenset(edge) for edge in edges}, []
    for v in order:
        own = {u for u in range(n) if frozenset((u, v)) in joined}
        found.append(own)
        joined = {e for e in joined if v not in e}
        joined |= {frozenset(pair) for pair in combinations(own, 2)}
    return found


@pytest.mark.parametrize("rule", ["min-weight", "min-fill", "weighted min-fill", "front"])
def test_cliques_are_those_of_the_definition(rule: str) -> None:
    for seed in range(20):
        edges = random_graph(seed)
        near = neighbours(12, edges)
        fills = initial_fills(near, [1.0] * 12) if "fill" in rule else None
        order = eliminate(near, [1.0] * 12, rule, fills)
        assert order is not None
        first = [clique[0] for clique in order.cliques]
        assert sorted(first) == list(range(12))
        wanted = played(12, edges, first)
        assert [set(clique[1:]) for clique in order.cliques] == wanted
        assert order.width == max(len(own) + 1 for own in wanted)
        assert np.isclose(order.cost, np.log2(sum(2.0 ** (len(own) + 1) for own in wanted)))


@pytest.mark.parametrize("sizes", [[2] * 12, [3] * 12, [1, 2, 4, 16] * 3], ids=str)
def test_min_weight_takes_the_smallest_clique(sizes: list[int]) -> None:
    """At each step that of the fewest entries, and of several the first."""
    for seed in range(20):
        edges = random_graph(seed)
        order = eliminate(neighbours(12, edges), np.log2(sizes).tolist(), "min-weight")
        assert order is not None
        first = [clique[0] for clique in order.cliques]
        for step, v in enumerate(first):
            near = {u: played(12, edges, [*first[:step], u])[-1] for u in first[step:]}
            entries = {u: sizes[u] * math.prod(sizes[w] for w in near[u]) for u in near}
            assert v == min(entries, key=lambda u: (entries[u], u))


@pytest.mark.parametrize("weighted", [False, True])
def test_min_fill_counts_the_edges_it_adds(weighted: bool) -> None:
    """At each step no other variable would have added fewer, or ones of less weight."""
    for seed in range(20):
        edges = random_graph(seed)
        near = neighbours(12, edges)
        rng = np.random.default_rng(seed)
        weights = rng.integers(1, 4, 12).tolist() if weighted else [1.0] * 12
        rule = "weighted min-fill" if weighted else "min-fill"
        order = eliminate(near, weights, rule, initial_fills(near, weights))
        assert order is not None
        joined = {frozenset(edge) for edge in edges}
        left = set(range(12))
        for v, *_ in order.cliques:
            added = {}
            for u in left:
                own = [w for w in left if frozenset((u, w)) in joined]
                pairs = {frozenset(pair) for pair in combinations(own, 2)}
                added[u] = pairs - joined
            cost = {u: sum(weights[a] * weights[b] for a, b in e) for u, e in added.items()}
            assert cost[v] == pytest.approx(min(cost.values()))
            joined |= added[v]
            left.discard(v)


def test_known_widths() -> None:
    side = 8
    grid = [(r * side + c, r * side + c + 1) for r in range(side) for c in range(side - 1)]
    grid += [(r * side + c, r * side + c + side) for r in range(side - 1) for c in range(side)]
    cases = {
        "chain": (100, [(i, i + 1) for i in range(99)], 2),
        "cycle": (100, [(i, (i + 1) % 100) for i in range(100)], 3),
        "clique": (6, list(combinations(range(6), 2)), 6),
        "grid": (side * side, grid, side + 1),
    }
    for name, (n, edges, width) in cases.items():
        order = find_order([2] * n, edges, good=0, restarts=30)
        assert order is not None and width <= order.width <= width + (name == "grid"), name
        clique = find_order([2] * n, edges, good=0, restarts=0)
        assert clique is not None and order.cost <= clique.cost


def test_every_rule_is_tried_without_noise_first(monkeypatch) -> None:
    """Also where one of them is better than the first."""
    rules = {"min-weight", "min-fill", "weighted min-fill", "front"}
    tried, best = [], set()

    def spy(near, logs, rule, fills=None, noise=0.0, *rest, **more):
        tried.append((rule, noise))
        return eliminate(near, logs, rule, fills, noise, *rest, **more)

    monkeypatch.setattr(orders, "eliminate", spy)
    for seed in range(10):
        tried.clear()
        order = find_order([2] * 25, random_graph(seed, 25), good=0, restarts=6)
        assert order is not None
        best.add(order.method)
        assert {rule for rule, _ in tried} == rules
        assert all(noise == 0 for _, noise in tried)
    assert len(best) > 1


def test_variables_of_one_state_keep_their_edges() -> None:
    """They weigh nothing, but what they join belongs together all the same."""
    for seed in range(10):
        edges = random_graph(seed)
        sizes = np.random.default_rng(seed).integers(1, 3, 12).tolist()
        order = find_order(sizes, edges, good=0, restarts=12)
        assert order is not None
        wanted = played(12, edges, [clique[0] for clique in order.cliques])
        assert [set(clique[1:]) for clique in order.cliques] == wanted


def test_some_variables_go_last() -> None:
    late = frozenset({0, 5, 7})
    for seed in range(10):
        order = find_order([2] * 12, random_graph(seed), good=0, restarts=5, last=late)
        assert order is not None
        assert {clique[0] for clique in order.cliques[-3:]} == late


def test_a_limit_of_cost_or_time_gives_nothing() -> None:
    near = neighbours(12, combinations(range(12), 2))
    assert eliminate(near, [1.0] * 12, "min-weight", most=10) is None
    assert eliminate(near, [1.0] * 12, "min-weight", deadline=time.monotonic() - 1) is None
