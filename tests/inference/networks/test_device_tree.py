"""The junction tree on a device against enumeration and the one in NumPy."""

import numpy as np
import pytest

from tests.inference.networks.random_networks import joint_logs, log_sum, marginal, random_network
from undirected.core.errors import UndirectedError
from undirected.inference.networks import device_tree
from undirected.inference.networks.cliques import CliqueTree, clique_tree
from undirected.inference.networks.device_tree import DeviceTree
from undirected.inference.networks.junction_tree import JunctionTree
from undirected.inference.networks.network import Network
from undirected.inference.networks.orders import find_order
from undirected.inference.networks.simplify import Inconsistent


def tree_of(network: Network) -> CliqueTree:
    order = find_order(network.cardinalities, network.scopes)
    assert order is not None
    return clique_tree(network.cardinalities, network.scopes, order, sums=False)


@pytest.fixture
def pieces(monkeypatch) -> None:
    """Rows, sums and loops of a few entries."""
    monkeypatch.setattr(device_tree, "ROW", 3)
    monkeypatch.setattr(device_tree, "AT_ONCE", 16)


@pytest.mark.usefixtures("pieces")
def test_small_networks_equal_enumeration() -> None:
    done = 0
    for seed in range(100):
        network, _ = random_network(seed, 6)
        logs = joint_logs(network)
        tree = DeviceTree(network, tree_of(network), host=12)
        if all(clique.size <= 12 for clique in tree.tree.cliques):
            continue
        if logs.max() == -np.inf:
            with pytest.raises(Inconsistent):
                tree.collect()
            continue
        try:
            log_z = tree.collect()
        except UndirectedError:  # a range of 400 in logarithms
            continue
        done += 1
        assert log_z == pytest.approx(float(log_sum(logs)), rel=1e-9, abs=1e-9), seed
        found = tree.distribute([(v,) for v in range(logs.ndim)])
        for v, table in enumerate(found):
            np.testing.assert_allclose(table, marginal(logs, v), atol=1e-9, err_msg=f"{seed} {v}")
        if done == 3:
            return
    raise AssertionError(f"only {done} networks had large cliques")


@pytest.mark.usefixtures("pieces")
def test_single_variables_are_read_off_a_separator_on_the_device() -> None:
    """It has 45 entries and is held in 48: what is behind the end counts for no state."""
    rng, sizes = np.random.default_rng(0), (2, 3, 5, 3, 2)
    scopes = (0, 1, 2, 3), (1, 2, 3, 4)
    tables = tuple(rng.normal(size=[sizes[v] for v in scope]) for scope in scopes)
    network = Network(sizes, scopes, tables)
    tree = DeviceTree(network, tree_of(network), host=20)
    assert max(clique.separator_size for clique in tree.tree.cliques) == 45
    tree.collect()
    logs = joint_logs(network)
    for v, table in enumerate(tree.distribute([(v,) for v in range(5)])):
        np.testing.assert_allclose(table, marginal(logs, v), rtol=1e-12, err_msg=str(v))


@pytest.mark.slow
def test_a_grid_as_in_numpy() -> None:
    """Messages of several rows stay on the device, and all single variables come back from it."""
    rng, side = np.random.default_rng(1), 5
    sizes = tuple(int(k) for k in rng.choice([2, 3], side * side))
    pairs = [(v, v + 1) for v in range(side * side) if (v + 1) % side]
    pairs += [(v, v + side) for v in range(side * side - side)]
    tables = tuple(rng.normal(size=(sizes[a], sizes[b])) for a, b in pairs)
    network = Network(sizes, tuple(pairs), tables)
    plan = tree_of(network)
    wanted, found = JunctionTree(network, plan), DeviceTree(network, plan, host=30)
    assert sum(clique.separator_size > 30 for clique in plan.cliques) > 5
    assert found.collect() == pytest.approx(wanted.collect(), rel=1e-12)
    scopes = [(v,) for v in range(side * side)] + pairs
    for a, b in zip(found.distribute(scopes), wanted.distribute(scopes), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


def test_a_range_beyond_plain_numbers_is_refused() -> None:
    network = Network((2, 2), ((0, 1),), (np.array([[0.0, -900.0], [-900.0, 0.0]]),))
    with pytest.raises(UndirectedError, match="wider range"):
        DeviceTree(network, tree_of(network), host=1).collect()
