"""The junction tree against enumeration: sums, maxima, both, samples, the best few states."""

import time

import numpy as np
import pytest

from tests.inference.networks.random_networks import joint_logs, log_sum, marginal, random_network
from undirected.inference.networks import (
    blocks,
    clique_sums,
    cliques,
    conditioning,
    contractions,
    junction_tree,
)
from undirected.inference.networks.beliefs import sources
from undirected.inference.networks.cliques import CliqueTree, clique_tree
from undirected.inference.networks.clock import OutOfTime
from undirected.inference.networks.junction_tree import JunctionTree
from undirected.inference.networks.network import Network
from undirected.inference.networks.orders import Order, find_order
from undirected.inference.networks.simplify import Inconsistent, simplify
from undirected.inference.networks.states import best_state, best_states, sample_states


def tree_of(network: Network, last: frozenset[int] = frozenset()) -> CliqueTree:
    order = find_order(network.cardinalities, network.scopes, restarts=4, good=0, last=last)
    assert order is not None
    return clique_tree(network.cardinalities, network.scopes, order, last)


def near(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-9 * max(1.0, abs(b))


@pytest.fixture(params=["whole", "blocks", "matrices"])
def pieces(request, monkeypatch) -> None:
    """Cliques in one piece, in blocks of a few entries with threads, and as matrices in chunks."""
    if request.param != "whole":
        for module in (junction_tree, clique_sums):
            monkeypatch.setattr(module, "SMALL", 0)
        monkeypatch.setattr(blocks, "BLOCK", 4)
        monkeypatch.setattr(blocks, "THREADS", 2)
    if request.param == "matrices":
        monkeypatch.setattr(cliques, "LARGE", 0)
        monkeypatch.setattr(contractions, "BLOCK_RATE", np.inf)
        monkeypatch.setattr(contractions, "CHUNK", 4)


@pytest.mark.usefixtures("pieces")
def test_two_hundred_networks_equal_enumeration() -> None:
    possible = 0
    for seed in range(200):
        network, given = random_network(seed)
        logs = joint_logs(network, given)
        if logs.max() == -np.inf:
            with pytest.raises(Inconsistent):
                conditioning.marginals(*_planned(network, given)[1:])
            continue
        possible += 1
        small, own, tree = _planned(network, given)
        log_z, found = conditioning.marginals(own, tree)
        assert near(log_z, float(log_sum(logs))), seed
        assert near(conditioning.log_partition(own, tree), log_z), seed
        for v, table in enumerate(small.marginals(found)):
            np.testing.assert_allclose(table, marginal(logs, v), atol=1e-9, err_msg=f"{seed} {v}")
        every = frozenset(range(len(own.cardinalities)))
        value, state = conditioning.maximum(own, tree, every)
        assert near(value, logs.max()), seed
        assert near(float(logs[tuple(small.state(state))]), logs.max()), seed
    assert possible > 120


@pytest.mark.usefixtures("pieces")
def test_coupled_pairs_equal_enumeration(request) -> None:
    """All pairs of six variables: the product of a clique is one of two matrices."""
    split = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        sizes = tuple(int(k) for k in rng.integers(2, 5, 6))
        pairs = tuple((i, j) for i in range(6) for j in range(i))
        tables = tuple(rng.normal(size=(sizes[i], sizes[j])) for i, j in pairs)
        network = Network(sizes, pairs, tables)
        logs, tree = joint_logs(network), JunctionTree(network, tree_of(network))
        split += sum(clique.split is not None for clique in tree.tree.cliques)
        assert near(tree.collect(), float(log_sum(logs)))
        scopes = [*((v,) for v in range(6)), *pairs]
        for scope, found in zip(scopes, tree.distribute(scopes), strict=True):
            wanted = marginal(logs, *scope)
            np.testing.assert_allclose(found, wanted if scope == tuple(sorted(scope)) else wanted.T)
    assert (split >= 10) == ("matrices" in request.node.name)


def test_cliques_are_taken_apart_for_products_of_matrices() -> None:
    """Without variable 1 the sum over 0 is a product of matrices; with it one input is too wide."""
    sizes, scopes = (32,) * 4, ((0, 1), (0, 2), (0, 3), (1, 2, 3))
    tables = tuple(np.random.default_rng(0).normal(size=(32,) * len(scope)) for scope in scopes)
    order = Order([(0, 1, 2, 3), (1, 2, 3), (2, 3), (3,)], 20.0, 20.1, "by hand")
    together, apart = (clique_tree(sizes, scopes, order, sums=sums) for sums in (False, True))
    assert together.cliques[0].gone == 2 and together.cliques[0].split is None
    assert apart.cliques[0].gone == 1 and apart.cliques[0].split is not None
    assert apart.work() < together.work() / 3
    wanted = np.log(np.einsum("ab,ac,ad,bcd->", *map(np.exp, tables), optimize=True))
    network = Network(sizes, scopes, tables)
    for tree in (together, apart):
        assert near(conditioning.log_partition(network, tree), wanted)


def test_single_variables_are_read_off_the_smallest_separator() -> None:
    alone = read_off = 0
    for seed in range(100):
        network, _ = random_network(seed)
        tree = tree_of(network)
        asked, read = sources(tree, [(v,) for v in range(len(network.cardinalities))])
        of = {v: c for found in (asked, read) for c, variables in found.items() for v in variables}
        for v in range(len(network.cardinalities)):
            sizes = [c.separator_size for c in tree.cliques if v in c.separator]
            if sizes:
                assert tree.cliques[of[v]].separator_size == min(sizes)
                assert v in tree.cliques[of[v]].separator
                read_off += min(sizes) < max(sizes)
            else:
                assert v in tree.cliques[of[v]].scope
                alone += 1
    assert min(alone, read_off) > 10


def _planned(network: Network, given: dict[int, int]):
    small = simplify(network, given)
    return small, small.network, tree_of(small.network)


def test_joint_probabilities_of_tables_in_any_order_of_axes() -> None:
    for seed in range(40):
        network, _ = random_network(seed)
        logs = joint_logs(network)
        if logs.max() == -np.inf:
            continue
        tree = JunctionTree(network, tree_of(network))
        tree.collect()
        for scope, found in zip(network.scopes, tree.distribute(network.scopes), strict=True):
            wanted = marginal(logs, *scope).transpose(np.argsort(np.argsort(scope)))
            np.testing.assert_allclose(found, wanted, atol=1e-9, err_msg=f"{seed} {scope}")


def test_what_is_multiplied_beforehand_stays_small() -> None:
    """Three tables of one variable each: two are made one, all three would be the whole clique."""
    rng, shape = np.random.default_rng(0), (8, 9, 10)
    inputs = [rng.random([k if a == b else 1 for b, k in enumerate(shape)]) for a in range(3)]
    found = blocks.fused(inputs, shape, np.multiply)
    assert sorted(x.size for x in found) == [10, 72]
    wanted = inputs[0] * inputs[1] * inputs[2]
    np.testing.assert_allclose(np.prod(np.broadcast_arrays(*found), axis=0), wanted)


def test_a_cutset_is_worked_on_once_for_each_of_its_states() -> None:
    """Cliques of 2 · 3 · 4 and of 4 · 5 entries; threads share them."""
    tree = tree_of(Network((2, 3, 4, 5), ((0, 1, 2), (2, 3)), (np.zeros((2, 3, 4)), np.eye(4, 5))))
    for cut, entries in {(): 24 + 20, (3,): 5 * (24 + 4), (0, 3): 10 * (12 + 4)}.items():
        for threads in (1, 2):
            assert 2 ** conditioning.work(tree, cut, threads) == pytest.approx(entries / threads)


def test_a_cutset_changes_nothing(monkeypatch) -> None:
    monkeypatch.setattr(cliques, "MOST_TOGETHER", 1)
    rng = np.random.default_rng(5)
    pairs = [(i, j) for i in range(7) for j in range(i)]
    tables = tuple(rng.normal(size=(3, 3)) * 3 for _ in pairs)
    network = Network((3,) * 7, tuple(pairs), tables)
    tree = tree_of(network)
    cut = conditioning.choose_cutset(tree, 2 * 3**5)
    assert cut
    assert conditioning.choose_cutset(tree, 2 * 3**5, 3**7) is None  # more work than it may be
    assert conditioning.stored_entries(conditioning.sliced(tree, cut)) <= 2 * 3**5
    log_z, found = conditioning.marginals(network, tree, cut)
    logs = joint_logs(network)
    assert near(log_z, float(log_sum(logs)))
    for v, table in enumerate(found):
        np.testing.assert_allclose(table, marginal(logs, v), atol=1e-10)
    every = frozenset(range(7))
    value, state = conditioning.maximum(network, tree, every, cut)
    assert near(value, logs.max()) and logs[tuple(state)] == logs.max()


def test_marginal_map() -> None:
    for seed in range(60):
        network, _ = random_network(seed)
        logs = joint_logs(network)
        if logs.max() == -np.inf:
            continue
        rng = np.random.default_rng(seed)
        kept = frozenset(v for v in range(logs.ndim) if rng.random() < 0.4)
        wanted = log_sum(logs, tuple(v for v in range(logs.ndim) if v not in kept))
        tree = JunctionTree(network, tree_of(network, kept), maximised=kept)
        value, state = tree.collect(), best_state(tree)
        assert near(value, float(wanted.max())), seed
        assert near(float(wanted[tuple(state[sorted(kept)])]), value), seed
        assert all((state[v] >= 0) == (v in kept) for v in range(logs.ndim))


def test_the_best_few_states() -> None:
    for seed in range(60):
        network, _ = random_network(seed)
        logs = joint_logs(network)
        if logs.max() == -np.inf:
            continue
        every = frozenset(range(logs.ndim))
        tree = JunctionTree(network, tree_of(network), maximised=every)
        states, values = best_states(tree, tree.collect(), 6)
        wanted = np.sort(logs[logs > -np.inf])[::-1][:6]
        np.testing.assert_allclose(values, wanted, rtol=1e-9, atol=1e-9, err_msg=f"{seed}")
        assert len({tuple(state) for state in states.tolist()}) == len(wanted)
        own = [logs[tuple(state)] for state in states]
        np.testing.assert_allclose(own, wanted, rtol=1e-9, atol=1e-9)


def test_samples_have_the_probabilities_of_the_states() -> None:
    """Chi-squared of 11 degrees of freedom above 45 by chance: 5e-6. Twice the field fails."""
    rng = np.random.default_rng(2)
    tables = rng.normal(size=(2, 3)), rng.normal(size=(3, 2))
    network = Network((2, 3, 2), ((0, 1), (1, 2)), tables)
    tree = JunctionTree(network, tree_of(network))
    tree.collect()
    drawn = sample_states(tree, 20_000, rng)
    counts = np.zeros((2, 3, 2))
    np.add.at(counts, tuple(drawn.T), 1)

    def distance(logs: np.ndarray) -> float:
        wanted = marginal(logs, 0, 1, 2) * len(drawn)
        return float(((counts - wanted) ** 2 / wanted).sum())

    assert distance(joint_logs(network)) < 45
    assert distance(2 * joint_logs(network)) > 450


def test_a_range_beyond_plain_numbers() -> None:
    """The likely states of neighbours exclude each other: every product underflows."""
    strong = np.array([[0.0, -900.0], [-900.0, -2000.0]])
    twist = np.array([[-2000.0, -900.0], [-900.0, 0.0]])
    network = Network((2, 2, 2), ((0, 1), (1, 2), (0, 2)), (strong, twist, strong + 1.0))
    log_z, found = conditioning.marginals(network, tree_of(network))
    logs = joint_logs(network)
    assert near(log_z, float(log_sum(logs)))
    for v, table in enumerate(found):
        np.testing.assert_allclose(table, marginal(logs, v), atol=1e-12)


def test_the_deadline_is_kept() -> None:
    network, _ = random_network(3)
    tree = JunctionTree(network, tree_of(network), deadline=time.monotonic() - 1)
    with pytest.raises(OutOfTime):
        tree.collect()
