"""Elimination of variables with few neighbours against the junction tree and enumeration."""

import numpy as np
import pytest

from tests.inference.networks.random_networks import joint_logs, log_sum, marginal, random_network
from undirected.inference.networks import conditioning, low_degree
from undirected.inference.networks.cliques import clique_tree
from undirected.inference.networks.low_degree import LowDegree, eliminate_low_degree
from undirected.inference.networks.network import Network
from undirected.inference.networks.orders import find_order
from undirected.inference.networks.simplify import Inconsistent, simplify


def exact(network: Network, task: str, given: dict[int, int] | None = None):
    small = simplify(network, given)
    own = small.network
    order = find_order(own.cardinalities, own.scopes)
    assert order is not None
    tree = clique_tree(own.cardinalities, own.scopes, order)
    if task == "mar":
        value, tables = conditioning.marginals(own, tree)
        return value, small.marginals(tables)
    value, state = conditioning.maximum(own, tree, frozenset(range(len(own.cardinalities))))
    return value, small.state(state)


def sparse(kind: str, n: int, seed: int) -> tuple[Network, dict[int, int]]:
    """A graph of one kind with mixed cardinalities, zeros, wide ranges, and some evidence."""
    rng = np.random.default_rng(seed)
    sizes = tuple(int(k) for k in rng.choice([1, 2, 2, 3, 5], n))
    pairs = {
        "chain": [(v, v + 1) for v in range(n - 1)],
        "forest": [(int(rng.integers(v)), v) for v in range(1, n) if rng.random() < 0.9],
        "caterpillar": [(max(v - 3, 0), v) if v % 3 else (v - 3, v) for v in range(1, n)],
        "star": [(0, v) for v in range(1, n)],
        "ring": [(v, (v + 1) % n) for v in range(n)],
        "ladder": [(v, u) for v in range(n - 2) for u in (v + 1, v + 2)],
        "grid": [(v, u) for v in range(n - 3) for u in (v + 1, v + 3) if u % 3 or u == v + 3],
        "multiple": [(0, 1), (1, 0), *((u, v) for v in range(2, n) for u in (0, 1) if v % 3 > u)],
    }[kind]
    scopes = [(a, b) if rng.random() < 0.5 else (b, a) for a, b in pairs if a != b]
    scopes += [(int(v),) for v in rng.integers(0, n, n // 2)]
    tables = []
    for scope in scopes:
        logs = rng.normal(size=[sizes[v] for v in scope]) * rng.choice([0.5, 2.0, 400.0])
        zero = rng.random(logs.shape) < 0.15
        zero.flat[0] = False
        tables.append(np.where(zero, -np.inf, logs))  # all in state 0 is allowed
    given = {v: 0 for v in range(n) if rng.random() < 0.05}
    return Network(sizes, tuple(scopes), tuple(tables), float(rng.normal())), given


def carried(found: LowDegree, task: str):
    value, answer = exact(found.network, task)
    back = found.marginals if task == "mar" else found.state
    return value, back(answer)


KINDS = ["chain", "forest", "caterpillar", "star", "ring", "ladder", "grid", "multiple"]


@pytest.mark.parametrize("kind", KINDS)
def test_sparse_graphs_as_the_junction_tree(kind: str, monkeypatch) -> None:
    monkeypatch.setattr(low_degree, "CHUNK", 50)
    gone = 0
    for seed in range(4):
        network, given = sparse(kind, 60, seed)
        found = eliminate_low_degree(network, given)
        gone += found.eliminated
        value, tables = carried(found, "mar")
        log_z, wanted = exact(network, "mar", given)
        assert value == pytest.approx(log_z, rel=1e-10)
        for own, table in zip(tables, wanted, strict=True):
            np.testing.assert_allclose(own, table, atol=1e-10)
        whole = eliminate_low_degree(network, given, marginals=False)
        assert exact(whole.network, "mar")[0] == pytest.approx(log_z, rel=1e-10)
        found = eliminate_low_degree(network, given, maximise=True, marginals=False)
        value, state = carried(found, "map")
        best, _ = exact(network, "map", given)
        assert value == pytest.approx(best, rel=1e-10)
        assert network.value(state) == pytest.approx(best, rel=1e-10)
        assert all(state[v] == x for v, x in given.items())
    assert gone == 240 or kind == "grid"


@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_networks_that_go_whole_equal_enumeration(kind: str) -> None:
    """Of one and of two variables in any order, of pairs that share several tables too."""
    gone = 0
    for seed in range(3):
        network, given = sparse(kind, 6, seed)
        found = eliminate_low_degree(network, given, marginals=False)
        if len(found.kept):
            continue
        gone, logs = gone + 1, joint_logs(network, given)
        scopes = [*network.scopes, (), (2,), *(scope[::-1] for scope in network.scopes)]
        for scope, table in zip(scopes, found.distribute(scopes), strict=True):
            wanted = marginal(logs, *scope)
            wanted = wanted.T if scope == tuple(sorted(scope)[::-1]) else wanted
            np.testing.assert_allclose(table, wanted, atol=1e-9, err_msg=f"{seed} {scope}")
    assert gone


def test_long_chains_are_gone_in_few_rounds() -> None:
    rng, n = np.random.default_rng(0), 5_000
    pairs = tuple((v, v + 1) for v in range(n - 1))
    network = Network((2,) * n, pairs, tuple(rng.normal(size=(n - 1, 2, 2))))
    found = eliminate_low_degree(network)
    assert found.eliminated == n and len(found.done) < 100
    forward = np.zeros(2)
    for table in network.tables:
        forward = np.logaddexp.reduce(forward[:, None] + table, 0)
    assert found.network.offset == pytest.approx(np.logaddexp.reduce(forward), rel=1e-11)
    np.testing.assert_allclose(
        found.marginals([])[-1], np.exp(forward - np.logaddexp.reduce(forward)), rtol=1e-9
    )


def test_any_network_equals_enumeration() -> None:
    """Tables of up to four variables, inconsistent ones too: the rest is answered by the tree."""
    gone = impossible = 0
    for seed in range(200):
        network, given = random_network(seed)
        logs = joint_logs(network, given)
        if logs.max() == -np.inf:
            impossible += 1
            with pytest.raises(Inconsistent):
                carried(eliminate_low_degree(network, given), "mar")
            continue
        found = eliminate_low_degree(network, given)
        gone += found.eliminated
        value, tables = carried(found, "mar")
        assert value == pytest.approx(float(log_sum(logs)), rel=1e-9, abs=1e-9), seed
        for v, table in enumerate(tables):
            np.testing.assert_allclose(table, marginal(logs, v), atol=1e-9, err_msg=f"{seed} {v}")
    assert gone > 100 and impossible > 20


def test_variables_that_are_kept() -> None:
    """Sums over the others leave the marginal of those kept, as the task "mmap" needs it."""
    network, _ = sparse("ring", 9, 3)
    kept = (2, 3, 7)
    found = eliminate_low_degree(network, keep=kept, marginals=False)
    assert found.kept.tolist() == list(kept)
    wanted = log_sum(joint_logs(network), tuple(v for v in range(9) if v not in kept))
    np.testing.assert_allclose(joint_logs(found.network), wanted, rtol=1e-9, atol=1e-9)


def test_a_wide_table_is_not_left() -> None:
    """Two neighbours of 40 states would meet in 1600 entries: a variable between them stays."""
    rng = np.random.default_rng(0)
    pairs = tuple((v, (v + 1) % 4) for v in range(4))
    network = Network((40,) * 4, pairs, tuple(rng.normal(size=(40, 40)) for _ in pairs))
    assert eliminate_low_degree(network, marginals=False).eliminated == 0
