import numpy as np
import pytest

from tests.inference.networks.enumeration import enumerated, joint, random_network
from undirected.inference.networks import importance
from undirected.inference.networks.importance import Draws, Estimate, draw, log_values
from undirected.inference.networks.mini_buckets import eliminate


def split_network():
    network = random_network(2, n=6, tables=9, zeros=0.1, scale=1.0)
    return network, eliminate(network, list(range(6)), 3)


def test_log_values_are_those_of_enumeration():
    network = random_network(0)
    states = np.stack(np.unravel_index(np.arange(joint(network).size), network.cardinalities), -1)
    np.testing.assert_allclose(log_values(network, states), joint(network).ravel())


def z_score(network, log_weights):
    """How many standard errors the mean weight is from Z."""
    w = np.exp(log_weights - enumerated(network)[1])
    return (w.mean() - 1) / (w.std() / np.sqrt(len(w)))


def test_the_mean_weight_is_unbiased():
    """20,000 states; the mean is beyond 4 standard errors once in 16,000 seeds.

    The broken twin leaves out the states that turned out to be forbidden.
    """
    network, buckets = split_network()
    assert not buckets.exact
    logs = draw(buckets, 20_000, np.random.default_rng(0)).log_weights
    assert abs(z_score(network, logs)) < 4
    assert (logs == -np.inf).any()
    assert z_score(network, logs[logs > -np.inf]) > 4


def test_no_weight_exceeds_the_upper_bound():
    for seed in range(50):
        network = random_network(seed, n=6, tables=9)
        buckets = eliminate(network, list(range(6)), 3)
        draws = draw(buckets, 200, np.random.default_rng(seed))
        assert draws.log_weights.max() <= buckets.value + 1e-9


def test_marginals_come_close():
    """50,000 states, 5 standard errors of the worst case: fails less than once in 10^5 seeds."""
    network, buckets = split_network()
    estimate = Estimate(network.cardinalities)
    key = np.random.default_rng(3)
    for _ in range(10):
        estimate.add(draw(buckets, 5000, key))
    wanted, log_z, _ = enumerated(network)
    wide = 5 * 0.5 / np.sqrt(estimate.effective)
    assert estimate.count == 50_000 and estimate.effective > 5000
    for own, right in zip(estimate.marginals(), wanted, strict=True):
        assert np.abs(own - right).max() < wide
    assert estimate.log_z == pytest.approx(log_z, abs=5 * estimate.error)


def test_exact_mini_buckets_have_equal_weights():
    network = random_network(5)
    estimate = importance.sample(
        eliminate(network, list(range(6)), 20), np.random.default_rng(0), 0.0, most=100
    )
    assert estimate.error < 1e-6
    assert estimate.log_z == pytest.approx(enumerated(network)[1], abs=1e-9)


def test_the_error_is_that_of_a_mean_of_weights():
    """The second batch has the largest weight, the third the smallest."""
    estimate, w = Estimate((2,)), np.array([1.0, 2.0, 0.5, 8.0, 3.0, 0.25])
    for own in np.split(w, 3):
        estimate.add(Draws(np.zeros((2, 1), int), np.log(own)))
    assert estimate.log_z == pytest.approx(np.log(w.mean()))
    assert estimate.effective == pytest.approx(w.sum() ** 2 / (w**2).sum())
    assert estimate.error == pytest.approx(w.std() / w.mean() / np.sqrt(6))


def test_states_that_are_all_forbidden_say_so():
    estimate = Estimate((2,))
    estimate.add(Draws(np.zeros((3, 1), int), np.full(3, -np.inf)))
    assert estimate.log_z == -np.inf and estimate.error == np.inf
    np.testing.assert_allclose(estimate.marginals()[0], [0.5, 0.5])
