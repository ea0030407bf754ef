"""Simplification leaves every answer as it was, and finds what it should."""

from itertools import permutations

import numpy as np
import pytest

from tests.inference.networks.random_networks import joint_logs, log_sum, marginal, random_network
from undirected.inference.networks.network import Network
from undirected.inference.networks.simplify import Inconsistent, simplify


def test_answers_are_carried_back() -> None:
    for seed in range(150):
        network, given = random_network(seed)
        logs = joint_logs(network, given)
        try:
            small = simplify(network, given)
        except Inconsistent:
            assert logs.max() == -np.inf, seed
            continue
        own = joint_logs(small.network)
        assert (own.max() == -np.inf) == (logs.max() == -np.inf)
        if logs.max() == -np.inf:
            continue
        np.testing.assert_allclose(log_sum(own), log_sum(logs), rtol=1e-9, atol=1e-9)
        every = small.marginals([marginal(own, v) for v in range(own.ndim)])
        for v, table in enumerate(every):
            np.testing.assert_allclose(table, marginal(logs, v), atol=1e-9, err_msg=f"{seed} {v}")
        best = np.array(np.unravel_index(own.argmax(), own.shape), int)
        value = logs[tuple(small.state(best))]
        np.testing.assert_allclose(value, logs.max(), rtol=1e-9, atol=1e-9)


def test_what_is_not_wanted_is_summed_out() -> None:
    for seed in range(100):
        network, given = random_network(seed)
        logs = joint_logs(network, given)
        if logs.max() == -np.inf:
            continue
        kept = {0} & set(range(logs.ndim))
        small = simplify(network, given, wanted=kept)
        own = joint_logs(small.network)
        np.testing.assert_allclose(log_sum(own), log_sum(logs), rtol=1e-9, atol=1e-9)
        if small.source[0] >= 0:
            table = small.marginals([marginal(own, v) for v in range(own.ndim)])[0]
            np.testing.assert_allclose(table, marginal(logs, 0), atol=1e-9)
    chain = Network((2, 2, 2), ((0, 1), (1, 2)), (np.zeros((2, 2)), np.eye(2)))
    assert simplify(chain, wanted=()).network.cardinalities == ()


def test_a_chain_of_implications_is_followed() -> None:
    """x0 = 1 forces x1 = 1, that forces x2 = 1, and so on: nothing is left."""
    implies = np.array([[0.0, 0.0], [-np.inf, 0.0]])
    scopes = tuple((v, v + 1) for v in range(50))
    network = Network((2,) * 51, scopes, (implies,) * 50)
    small = simplify(network, {0: 1})
    assert small.network.cardinalities == ()
    assert small.state(np.zeros(0, int)).tolist() == [1] * 51
    with pytest.raises(Inconsistent, match="inconsistent"):
        simplify(network, {0: 1, 50: 0})


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_a_network_without_variables_has_an_empty_state(batch: tuple[int, ...]) -> None:
    small = simplify(Network((), (), ()))
    assert small.state(np.zeros((*batch, 0), int)).shape == (*batch, 0)


def test_variables_that_determine_each_other_become_one() -> None:
    shifted = np.where(np.roll(np.eye(3), 1, 1) > 0, 0.0, -np.inf)
    free = np.random.default_rng(0).normal(size=(3, 2))
    network = Network((3, 3, 3, 2), ((0, 1), (1, 2), (2, 3)), (shifted, shifted, free))
    small = simplify(network)
    assert sorted(small.network.cardinalities) == [2, 3]
    assert len(small.network.tables) == 1


def test_variables_that_become_one_leave_the_others_in_place() -> None:
    """The first table makes two of its three variables one; others have them in any order."""
    rng = np.random.default_rng(0)
    for first in permutations(range(3)):
        for second in permutations(range(4)):
            moved = np.where(np.eye(3)[[1, 2, 0]] > 0, 0.0, -np.inf)[:, :, None]
            sizes = *(2 if v == first[2] else 3 for v in range(3)), 2
            tables = moved + rng.normal(size=(3, 3, 2)), rng.normal(size=[sizes[v] for v in second])
            network = Network(sizes, (first, second), tables)
            small, logs = simplify(network), joint_logs(network)
            own = joint_logs(small.network)
            assert own.ndim == 3
            every = small.marginals([marginal(own, v) for v in range(3)])
            for v, table in enumerate(every):
                np.testing.assert_allclose(table, marginal(logs, v), rtol=1e-9)


def test_products_are_split_and_tables_inside_others_merged() -> None:
    rng = np.random.default_rng(1)
    a, b, c = rng.normal(size=(2, 3)), rng.normal(size=(3, 4)), rng.normal(size=3)
    network = Network((2, 3, 4), ((0, 1, 2), (1,)), (a[:, :, None] + b[None], c))
    found = simplify(network).network
    assert sorted(map(sorted, found.scopes)) == [[0, 1], [1, 2]]
    lone = Network((2, 3), ((0, 1),), (rng.normal(size=(2, 1)) + rng.normal(size=(1, 3)),))
    assert sorted(map(len, simplify(lone).network.scopes)) == [1, 1]
    close = Network((2, 2), ((0, 1),), (np.array([[0.0, 0.0], [0.0, 1e-6]]),))
    assert simplify(close).network.scopes == ((0, 1),)
