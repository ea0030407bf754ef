import time

import numpy as np
import pytest

from tests.inference.networks.enumeration import enumerated, grid, random_network
from undirected.inference.networks import approximate_marginals, search

GIB = 2**30


def test_small_networks_are_exact():
    for seed in range(10):
        network = random_network(seed, n=7, tables=10)
        wanted, log_z, _ = enumerated(network)
        found = approximate_marginals.marginals(network, time.monotonic() + 60, GIB, seed)
        assert found.note == "exact" and found.log_z == pytest.approx(log_z, abs=1e-8)
        for own, right in zip(found.marginals, wanted, strict=True):
            np.testing.assert_allclose(own, right, atol=1e-9)


def test_bounds_enclose_where_memory_is_short(monkeypatch):
    """Clusters of 16 entries at most, on networks that need more."""
    monkeypatch.setattr(approximate_marginals, "FIRST_BOUND", 3.0)
    monkeypatch.setattr(approximate_marginals, "LAST_BOUND", 4.0)
    for module in (approximate_marginals, search):
        monkeypatch.setattr(module, "BYTES_PER_ENTRY", 10**5)
    for seed in range(3):
        network = random_network(seed, n=9, tables=16, zeros=0.1)
        wanted, log_z, _ = enumerated(network)
        found = approximate_marginals.marginals(network, time.monotonic() + 1.5, 10**8, seed)
        assert found.note != "exact"
        assert found.lower <= log_z + 1e-9 and log_z - 1e-9 <= found.upper
        assert found.lower <= found.log_z <= found.upper
        for own, right in zip(found.marginals, wanted, strict=True):
            assert own.sum() == pytest.approx(1) and np.abs(own - right).max() < 0.2


def test_a_deadline_that_has_passed_gives_an_answer():
    found = approximate_marginals.marginals(grid(6, 1.0), time.monotonic() - 1, GIB, 0)
    assert all(own.sum() == pytest.approx(1) for own in found.marginals)


@pytest.mark.parametrize("step", ["propagation", "gibbs"])
def test_ctrl_c_gives_the_best_so_far(monkeypatch, step):
    def interrupt(search):
        raise KeyboardInterrupt

    monkeypatch.setattr(approximate_marginals, step, interrupt)
    monkeypatch.setattr(approximate_marginals, "LAST_BOUND", 4.0)
    network = random_network(0, n=9, tables=16)
    found = approximate_marginals.marginals(network, time.monotonic() + 1, GIB, 0)
    assert all(own.sum() == pytest.approx(1) for own in found.marginals)
    assert found.method != "uniform"
