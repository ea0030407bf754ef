import numpy as np
import pytest

from tests.inference.networks.enumeration import enumerated, random_network
from undirected.inference.networks.local_search import PENALTY, BlockSearch, climb, soften


def search(network, seed=0):
    start = np.random.default_rng(seed).integers(0, np.array(network.cardinalities))
    return BlockSearch(soften(network), start)


def test_moves_never_make_it_worse():
    network = random_network(1, n=9, tables=14)
    found, key = search(network), np.random.default_rng(0)
    for _ in range(30):
        before = found.value
        gain = found.move(list(range(9)), 3.0, key, np.inf)
        assert found.value == pytest.approx(before + gain) and gain >= 0
        assert found.value == pytest.approx(soften(network).value(found.state))


def test_the_best_state_is_found():
    """Blocks of up to 32 entries in networks of 9 variables, from a random start, most times."""
    hits = 0
    for seed in range(20):
        network = random_network(seed, n=9, tables=14, zeros=0.2)
        found = search(network, seed)
        orders = [list(range(9)), list(range(8, -1, -1))]
        climb(found, orders, np.random.default_rng(seed), np.inf, first=3.0, last=5.0)
        assert found.value > -PENALTY / 2
        assert network.value(found.state) <= enumerated(network)[2] + 1e-9
        hits += network.value(found.state) > enumerated(network)[2] - 1e-9
    assert hits >= 16


def test_moves_that_pay_are_not_idle():
    """Two idle moves make blocks larger, two of the largest end the search; a gain resets that."""
    gains, bounds = iter([0.0, 1.0, 0.0, 2.0, 0.0, 0.0, 1e-12, 3.0, 0.0, 0.0]), []

    class Stub:
        def move(self, order, bound, key, deadline):
            bounds.append(bound)
            return next(gains)

    climb(Stub(), [[0]], np.random.default_rng(0), np.inf, first=3.0, last=5.0, patience=2)
    assert bounds == [3.0] * 6 + [5.0] * 4


def test_one_variable_at_a_time_gets_stuck():
    """The broken twin: blocks of one variable are what greedy search does."""
    worse = 0
    for seed in range(20):
        network = random_network(seed, n=9, tables=14, zeros=0.2)
        found, key = search(network, seed), np.random.default_rng(seed)
        for _ in range(200):
            v = int(key.integers(9))
            trials = np.repeat(found.state[None], network.cardinalities[v], 0)
            trials[:, v] = np.arange(network.cardinalities[v])
            found.state = max(trials, key=soften(network).value)
        worse += network.value(found.state) < enumerated(network)[2] - 1e-9
    assert worse > 4


def test_softened_networks_are_the_same_where_states_are_allowed():
    network = random_network(0, zeros=0.3)
    soft, state = soften(network), search(network).state
    assert all(np.isfinite(table).all() for table in soft.tables)
    if network.value(state) > -np.inf:
        assert soft.value(state) == network.value(state)
