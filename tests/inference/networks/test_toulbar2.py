import time

import pytest

from tests.inference.networks.enumeration import enumerated, random_network
from undirected.inference.networks import toulbar2


@pytest.mark.skipif(not toulbar2.available(), reason="pytoulbar2 is an extra")
def test_toulbar2_proves_the_best_state():
    for seed in range(3):
        network = random_network(seed, n=9, tables=14)
        top = enumerated(network)[2]
        found = toulbar2.solve(network, deadline=time.monotonic() + 20)
        assert found.value == pytest.approx(top, abs=1e-5) and found.upper == found.value
        again = toulbar2.solve(network, found.state, time.monotonic() + 20)
        assert again.value == again.upper == pytest.approx(found.value)
