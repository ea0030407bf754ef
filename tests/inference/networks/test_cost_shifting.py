import numpy as np
import pytest

from tests.inference.networks.enumeration import enumerated, joint, random_network, random_tree
from undirected.inference.networks.cost_shifting import CostShifting, tighten


@pytest.mark.parametrize("bound", [0.0, 4.0])
def test_shifting_keeps_the_network_and_lowers_the_bound(bound):
    gained = 0
    for seed in range(30):
        network = random_network(seed, n=6, tables=10, zeros=0.2 * (seed % 2))
        top = enumerated(network)[2]
        shifting = CostShifting.start(network, list(range(6)), bound)
        last = first = shifting.bound()
        for _ in range(5):
            shifting.sweep()
            assert top - 1e-9 <= shifting.bound() <= last + 1e-9
            last = shifting.bound()
        gained += last < first - 1e-3
        np.testing.assert_allclose(joint(shifting.shifted()), joint(network), atol=1e-8)
    assert gained > 15


@pytest.mark.parametrize("seed", range(5))
def test_trees_are_tight(seed):
    network = random_tree(seed)
    shifting = tighten(network, list(range(8)), 0.0, np.inf, 1e-12)
    assert shifting.bound() == pytest.approx(enumerated(network)[2], abs=1e-6)


def test_one_cluster_is_exact():
    network = random_network(0)
    shifting = tighten(network, list(range(6)), 30.0, np.inf)
    for _ in range(20):
        shifting.sweep()
    assert shifting.bound() == pytest.approx(enumerated(network)[2], abs=1e-9)
