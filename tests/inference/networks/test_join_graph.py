import numpy as np
import pytest

from tests.inference.networks.enumeration import enumerated, random_network, random_tree
from undirected.inference.networks.join_graph import (
    JoinGraphPropagation,
    Propagation,
    join_graph,
)


def order_of(network, seed=0):
    return [int(v) for v in np.random.default_rng(seed).permutation(len(network.cardinalities))]


@pytest.mark.parametrize("seed", range(30))
def test_a_bound_beyond_the_width_is_exact(seed):
    network = random_network(seed)
    wanted, log_z, _ = enumerated(network)
    found = JoinGraphPropagation(bound=20)(network, order_of(network, seed))
    assert found.note == "exact" and found.lower == found.upper == found.log_z
    assert found.log_z == pytest.approx(log_z, abs=1e-9)
    for own, right in zip(found.marginals, wanted, strict=True):
        np.testing.assert_allclose(own, right, atol=1e-10)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("bound", [0, 3, 5])
def test_the_clusters_of_a_variable_form_a_tree(seed, bound):
    network = random_network(seed, n=9, tables=12)
    s = join_graph(network, order_of(network, seed), bound)
    for v in range(len(network.cardinalities)):
        clusters = {c for c, scope in enumerate(s.scopes) if v in scope}
        edges = [pair for pair, separator in s.edges.items() if v in separator]
        assert all(a in clusters and b in clusters for a, b in edges)
        reached, grown = set(list(clusters)[:1]), True
        while grown:
            more = {c for pair in edges if reached & set(pair) for c in pair} - reached
            reached, grown = reached | more, bool(more)
        assert reached == clusters
        assert len(edges) == max(len(clusters) - 1, 0)
    for scope, home in zip(network.scopes, s.homes, strict=True):
        assert set(scope) <= set(s.scopes[home])


@pytest.mark.parametrize("seed", range(10))
def test_trees_are_exact_with_the_smallest_clusters(seed):
    network = random_tree(seed)
    wanted, log_z, _ = enumerated(network)
    run = Propagation.start(network, join_graph(network, order_of(network, seed), 0.0))
    run.run(100, 1e-12)
    assert run.log_z() == pytest.approx(log_z, abs=1e-8)
    for own, right in zip(run.marginals(), wanted, strict=True):
        np.testing.assert_allclose(own, right, atol=1e-9)


def test_larger_clusters_are_better():
    """Mean error over 30 networks, at a bound of 3 and of 6 bits; both differ from exact."""
    errors = []
    for bound in (3.0, 6.0):
        total = 0.0
        for seed in range(30):
            network = random_network(seed, n=8, tables=14, zeros=0.0, scale=0.8)
            found = JoinGraphPropagation(bound=bound)(network, order_of(network, seed))
            wanted = enumerated(network)[0]
            pairs = zip(found.marginals, wanted, strict=True)
            total += sum(np.abs(own - p).sum() for own, p in pairs)
        errors.append(total / 30)
    assert 1e-6 < errors[1] < 0.7 * errors[0]


def test_damping_does_not_change_the_fixed_point():
    network = random_network(4, n=8, tables=12, zeros=0.0, scale=0.5)
    order = order_of(network)
    plain = JoinGraphPropagation(bound=4, iterations=500)(network, order)
    damped = JoinGraphPropagation(bound=4, iterations=500, damping=0.5)(network, order)
    assert plain.note == damped.note == "converged"
    assert plain.log_z == pytest.approx(damped.log_z, abs=1e-6)


def test_a_deadline_that_has_passed_gives_an_answer():
    network = random_network(0)
    found = JoinGraphPropagation()(network, order_of(network), deadline=0.0)
    assert found.note != "exact"
    assert all(abs(own.sum() - 1) < 1e-9 for own in found.marginals)
