import numpy as np
import pytest

from tests.inference.networks.enumeration import enumerated, random_network, random_tree
from undirected.inference.networks.belief_propagation import (
    LoopyBeliefPropagation,
    arrays,
    bethe,
    propagate,
)
from undirected.inference.networks.network import Network


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("damping", [0.0, 0.5])
def test_trees_are_exact(seed, damping):
    network = random_tree(seed)
    wanted, log_z, _ = enumerated(network)
    found = LoopyBeliefPropagation(dampings=(damping,), tolerance=1e-12)(network)
    assert found.note == "converged"
    for own, right in zip(found.marginals, wanted, strict=True):
        np.testing.assert_allclose(own, right, atol=1e-9)
    np.testing.assert_allclose(found.log_z, log_z, atol=1e-8)


@pytest.mark.parametrize("seed", range(10))
def test_max_product_on_trees_gives_max_marginals(seed):
    network = random_tree(seed, zeros=0.0)
    graph = arrays(network)
    run = propagate(graph, maximise=True)
    best = [int(p.argmax()) for p in graph.split(graph.normalised(run.beliefs(graph)))]
    assert network.value(np.array(best)) == pytest.approx(enumerated(network)[2])


def test_weak_couplings_are_nearly_exact():
    """Loops count from the third order of the couplings on."""
    errors = []
    whole = random_network(3, zeros=0.0, scale=1.0)
    for scale in (0.2, 0.1, 0.05):
        tables = tuple(scale * table for table in whole.tables)
        network = Network(whole.cardinalities, whole.scopes, tables)
        wanted, log_z, _ = enumerated(network)
        found = LoopyBeliefPropagation()(network)
        pairs = zip(found.marginals, wanted, strict=True)
        errors.append(max(np.abs(own - right).max() for own, right in pairs))
        assert found.log_z == pytest.approx(log_z, abs=2 * scale**2)
    assert errors[1] < 0.3 * errors[0] and errors[2] < 0.3 * errors[1]


def test_fixed_points_are_stationary_in_the_bethe_value():
    """A broken variant, messages that have not converged, has a slope."""
    network = random_network(5, zeros=0.0, scale=0.7)
    graph = arrays(network)
    bump = np.random.default_rng(0).normal(size=len(graph.target))

    def slope(flat):
        return (bethe(graph, flat + 1e-4 * bump) - bethe(graph, flat - 1e-4 * bump)) / 2e-4

    run = propagate(graph, damping=0.3, tolerance=1e-13)
    assert abs(slope(run.flat)) < 1e-6
    assert abs(slope(np.zeros_like(run.flat))) > 1e-2


def test_states_that_are_forbidden_have_probability_zero():
    table = np.array([[0.0, -np.inf], [-np.inf, -np.inf]])
    loop = Network((2, 2, 2), ((0, 1), (1, 2), (0, 2)), (table, np.zeros((2, 2)), np.zeros((2, 2))))
    found = LoopyBeliefPropagation()(loop)
    np.testing.assert_allclose(found.marginals[0], [1, 0])
    np.testing.assert_allclose(found.marginals[1], [1, 0])
    np.testing.assert_allclose(found.marginals[2], [0.5, 0.5])
    assert found.log_z == pytest.approx(np.log(2))


def test_variables_without_tables_and_networks_without_variables():
    found = LoopyBeliefPropagation()(Network((2, 3), (), (), 1.0))
    np.testing.assert_allclose(found.marginals[1], [1 / 3] * 3)
    assert found.log_z == pytest.approx(1 + np.log(6))
    assert LoopyBeliefPropagation()(Network((), (), (), 2.0)).log_z == 2.0


def test_a_deadline_that_has_passed_gives_an_answer():
    found = LoopyBeliefPropagation()(random_network(0), deadline=0.0)
    assert all(abs(own.sum() - 1) < 1e-9 for own in found.marginals)
