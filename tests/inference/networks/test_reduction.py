"""Variables maximised out: the best value stays, and the best state comes back."""

import numpy as np
import pytest

from tests.inference.networks.random_networks import joint_logs, random_network
from undirected.inference.networks.reduction import reduce_network


@pytest.mark.parametrize("bound", [0.0, 3.0, 5.0, 30.0])
def test_the_best_state_is_that_of_what_is_left(bound: float) -> None:
    fewer = 0
    for seed in range(40):
        network, _ = random_network(seed)
        logs = joint_logs(network)
        if logs.max() == -np.inf:
            continue
        small = reduce_network(network, bound)
        left = joint_logs(small.network)
        assert np.isclose(left.max(), logs.max()), seed
        best = np.array(np.unravel_index(left.argmax(), left.shape), int)
        state = small.state(best)
        assert np.isclose(logs[tuple(state)], logs.max()), seed
        assert (state[small.kept] == best).all()
        assert all(table.size <= 2**bound for _, table in small.gone)
        fewer += len(small.kept) < logs.ndim
    assert fewer > 20 or bound == 0
    if bound == 30:
        assert not small.kept
