"""The choice of engines for the parts of a network, against enumeration."""

import time

import numpy as np
import pytest

from tests.inference.networks.enumeration import grid, joint
from tests.inference.networks.random_networks import log_sum, marginal
from undirected.inference.networks import engines
from undirected.inference.networks.answers import Approximation
from undirected.inference.networks.engines import Budget, answer
from undirected.inference.networks.network import Network

KEPT = 1, 4, 6
"""The variables that are maximised over where others are summed out."""


def two_parts() -> Network:
    """All pairs of the even variables, and of the odd ones."""
    rng, sizes = np.random.default_rng(0), (3, 3, 3, 4, 4, 3, 3, 3)
    pairs = tuple((i, j) for i in range(8) for j in range(i) if (i - j) % 2 == 0)
    return Network(sizes, pairs, tuple(rng.normal(size=(sizes[i], sizes[j])) for i, j in pairs))


@pytest.mark.parametrize("share", [engines.AT_ONCE, -1.0], ids=["at once", "later"])
@pytest.mark.parametrize("task", ["mar", "pr", "map", "mmap"])
def test_parts_are_exact_whenever_they_are_done(task: str, share: float, monkeypatch) -> None:
    monkeypatch.setattr(engines, "EASY", 0.0)
    monkeypatch.setattr(engines, "AT_ONCE", share)
    network = two_parts()
    logs = joint(network)
    summed = {"map": (), "mmap": tuple(v for v in range(8) if v not in KEPT)}.get(task)
    maximised = frozenset(v for v in range(8) if summed is not None and v not in summed)
    found = answer(network, task, Budget(time.monotonic() + 100, 2**30), maximised)
    assert found.exact and found.notes[0] == "2 of 2 separate parts exactly"
    wanted = logs if task == "map" else log_sum(logs, summed)
    assert found.value == pytest.approx(float(wanted.max()), rel=1e-9)
    if found.state is not None:
        best = np.unravel_index(wanted.argmax(), wanted.shape)
        assert found.state[sorted(maximised)].tolist() == [int(x) for x in best]
        assert (found.state >= 0).sum() == len(maximised)
    for v, table in enumerate(found.marginals or []):
        np.testing.assert_allclose(table, marginal(logs, v), rtol=1e-9)
    assert (found.marginals is None, found.state is None) == (task != "mar", task in ("mar", "pr"))


@pytest.mark.parametrize("exact", [False, True])
def test_bounds_that_meet_prove_log_z_and_no_marginals(exact: bool, monkeypatch) -> None:
    """Where memory is short, bounds may have had room to be exact, and propagation may not."""
    guess = Approximation([np.array([0.9, 0.1])], 1.0, 1.0, 1.0, "belief propagation", exact=exact)
    monkeypatch.setattr(engines.approximate_marginals, "marginals", lambda *_: guess)
    given = Network((2,), (), ()), Budget(time.monotonic() + 1, 10**4), frozenset()
    assert engines.APPROXIMATE["pr"](*given).exact
    assert engines.APPROXIMATE["mar"](*given).exact == exact


def test_easy_orders_keep_to_the_memory() -> None:
    network = grid(4, 1.0)
    log_z = float(log_sum(joint(network)))
    for memory, conditioned in ((1000, True), (10**6, False)):
        found = answer(network, "pr", Budget(time.monotonic() + 100, memory))
        assert found.exact and found.value == pytest.approx(log_z, rel=1e-9)
        assert ("conditioned on" in found.method) == conditioned
