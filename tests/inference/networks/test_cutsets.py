import numpy as np
import pytest

from tests.inference.networks.enumeration import joint, random_network
from undirected.inference.networks.cutsets import condition, random_block
from undirected.inference.networks.mini_buckets import work


@pytest.mark.parametrize("bound", [2.0, 4.0, 30.0])
def test_blocks_are_narrow_and_leave_nobody_out(bound):
    for seed in range(30):
        network = random_network(seed, n=9, tables=14)
        block = random_block(network, range(9), bound, np.random.default_rng(seed))
        assert sorted(block.order + block.fixed) == list(range(9))
        free = sorted(block.order)
        small = condition(network, block, np.zeros(9, int))
        _, largest, _ = work(small, [free.index(v) for v in block.order], 99)
        assert largest <= max(2.0**bound, max(network.cardinalities)) * (1 + 1e-9)
        if bound == 30.0:
            assert block.fixed == []


def test_every_variable_is_free_now_and_then():
    network = random_network(0, n=9, tables=14)
    key = np.random.default_rng(0)
    free = {v for _ in range(50) for v in random_block(network, range(9), 3.0, key).order}
    assert free == set(range(9))


@pytest.mark.parametrize("seed", range(10))
def test_conditioning_is_a_slice_of_the_joint(seed):
    network = random_network(seed)
    key = np.random.default_rng(seed)
    block = random_block(network, range(6), 3.0, key)
    state = np.array([key.integers(k) for k in network.cardinalities])
    given = tuple(slice(None) if v in block.order else state[v] for v in range(6))
    np.testing.assert_allclose(joint(condition(network, block, state)), joint(network)[given])
