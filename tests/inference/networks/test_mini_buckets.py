import numpy as np
import pytest

from tests.inference.networks.enumeration import enumerated, random_network
from undirected.inference.networks import mini_buckets
from undirected.inference.networks.mini_buckets import decode, eliminate, largest_bound, work
from undirected.inference.networks.network import Network

SLACK = 1e-9


def order_of(network, seed=0):
    return [int(v) for v in np.random.default_rng(seed).permutation(len(network.cardinalities))]


@pytest.mark.slow
def test_bounds_are_bounds_on_200_networks():
    """Upper, lower and maximum, with and without matching, at two i-bounds."""
    gaps = {True: 0.0, False: 0.0}
    for seed in range(200):
        network = random_network(seed, n=5, tables=8, zeros=0.2 * (seed % 2))
        _, log_z, top = enumerated(network)
        order = order_of(network, seed)
        for bound in (2, 4):
            for matching in (True, False):
                args = network, order, bound
                upper = eliminate(*args, "upper", matching)
                lower = eliminate(*args, "lower", matching)
                most = eliminate(*args, "max", matching)
                assert upper.value >= log_z - SLACK
                assert lower.value <= log_z + SLACK
                assert most.value >= top - SLACK
                gaps[matching] += upper.value - log_z
    assert 0 < gaps[True] < gaps[False]


def test_weights_that_add_up_to_too_little_are_no_bound(monkeypatch):
    """The broken twin of the test above."""
    monkeypatch.setattr(mini_buckets, "weights", lambda count, kind: [0.7 / count] * count)
    below = 0
    for seed in range(50):
        network = random_network(seed, n=5, tables=8, zeros=0.0)
        found = eliminate(network, order_of(network, seed), 2, "upper", False)
        below += found.value < enumerated(network)[1] - SLACK
    assert below > 0


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", mini_buckets.KINDS)
def test_without_a_split_all_are_exact(seed, kind):
    network = random_network(seed)
    _, log_z, top = enumerated(network)
    found = eliminate(network, order_of(network, seed), 20, kind)
    assert found.exact
    assert found.value == pytest.approx(top if kind == "max" else log_z, abs=1e-9)
    if kind == "max":
        assert network.value(decode(found)) == pytest.approx(top, abs=1e-9)


def test_work_says_what_elimination_makes():
    network = random_network(1, n=8, tables=12)
    order = order_of(network)
    for bound in (2, 4, 20):
        found = eliminate(network, order, bound)
        sizes = [mini.table.size for minis in found.buckets for mini in minis]
        total, most, split = work(network, order, bound)
        assert total == pytest.approx(sum(sizes)) and most == pytest.approx(max(sizes))
        assert split == (not found.exact)
    bound = largest_bound(network, order, 1e9)
    assert not work(network, order, bound)[2] and work(network, order, bound - 1)[2]
    assert largest_bound(network, order, 1.0) == 1


def test_a_state_that_one_mini_forbids_is_forbidden():
    never = np.array([[0.0, 0.0], [-np.inf, -np.inf]])
    tables = (never, np.zeros((2, 2)), np.zeros((2, 2)))
    network = Network((2, 2, 2, 2), ((0, 1), (0, 2), (0, 3)), tables)
    found = eliminate(network, [0, 1, 2, 3], 2, "upper")
    assert found.value == pytest.approx(np.log(8))


def test_a_deadline_that_has_passed_gives_nothing():
    network = random_network(0)
    assert eliminate(network, order_of(network), 3, deadline=0.0) is None
