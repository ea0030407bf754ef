import time
from types import SimpleNamespace
from typing import Any

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


@pytest.mark.parametrize("error", [0.0, 0.03, 0.5])
def test_chains_count_by_their_share_of_what_is_between(error):
    """Propagation says 0.5, the chains 0.9 and 0.1: 0.32 apart in squares.

    What of it is not the error of the chains is that of propagation, which weighs the less.
    """
    network = random_network(0, n=1, tables=1)
    now = time.monotonic()
    found = search.Search(network, now, now + 1, GIB, np.random.default_rng(0))
    found.runs = [search.Run([np.array([0.5, 0.5])], 0.0, 0.0, "join graph")]
    chains: Any = SimpleNamespace(
        error=lambda: error,
        marginals=lambda: [np.array([0.9, 0.1])],
        chains=[SimpleNamespace(moves=3)],
        bound=2.0,
    )
    found.chains = chains
    weight = max(1 - error / 0.32, 0.0)
    (own,) = approximate_marginals.answer(found).marginals
    np.testing.assert_allclose(own, [0.5 + 0.4 * weight, 0.5 - 0.4 * weight])
