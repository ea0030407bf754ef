"""The choice of an accelerator, which is injected here: its trees run on any machine."""

import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from undirected.inference.networks import accelerator, device_tree, engines
from undirected.inference.networks.cliques import CliqueTree, clique_tree
from undirected.inference.networks.engines import Budget, answer
from undirected.inference.networks.network import Network
from undirected.inference.networks.orders import find_order

SIDE = 5


def grid() -> Network:
    rng, n = np.random.default_rng(0), SIDE * SIDE
    scopes = [(v, v + 1) for v in range(n) if (v + 1) % SIDE] + [
        (v, v + SIDE) for v in range(n - SIDE)
    ]
    tables = tuple(rng.normal(size=(2, 2)) for _ in scopes)
    return Network((2,) * n, tuple(scopes), tables)


def by_rows(network: Network) -> float:
    """Log Z by a transfer matrix over the rows."""
    rows = (np.arange(2**SIDE)[:, None] >> np.arange(SIDE)) & 1
    tables, weight = dict(zip(network.scopes, network.tables, strict=True)), np.ones(2**SIDE)
    for r in range(SIDE):
        at = SIDE * r
        if r:
            pairs = [tables[at - SIDE + i, at + i] for i in range(SIDE)]
            step = sum(t[rows[:, None, i], rows[None, :, i]] for i, t in enumerate(pairs))
            weight = weight @ np.exp(step)
        inside = [tables[at + i, at + i + 1] for i in range(SIDE - 1)]
        weight = weight * np.exp(sum(t[rows[:, i], rows[:, i + 1]] for i, t in enumerate(inside)))
    return float(np.log(weight.sum()))


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that is worth it at any size; messages of a few entries go there."""
    monkeypatch.setattr(accelerator, "available", lambda: True)
    monkeypatch.setattr(accelerator, "memory", lambda: 2.0**30)
    monkeypatch.setattr(accelerator, "LEAST", 2**4)
    monkeypatch.setattr(accelerator, "HOST", 2**5)
    monkeypatch.setattr(accelerator, "STARTING", 0.0)
    monkeypatch.setattr(accelerator, "RATES", {"pr": 0.0, "mar": 0.0})
    monkeypatch.setattr(engines, "EASY", 0.0)


def budget() -> Budget:
    return Budget(time.monotonic() + 100, 2**30)


@pytest.mark.usefixtures("device")
def test_the_accelerator_is_chosen_and_right() -> None:
    network = grid()
    found = answer(network, "mar", budget())
    assert found.exact and found.method.endswith("on an accelerator")
    assert found.value == pytest.approx(by_rows(network), abs=1e-9)
    plain = answer(network, "mar", Budget(time.monotonic() + 100, 2**30, device=False))
    assert plain.exact and "accelerator" not in plain.method
    assert found.marginals is not None and plain.marginals is not None
    for own, other in zip(found.marginals, plain.marginals, strict=True):
        np.testing.assert_allclose(own, other, atol=1e-12)


@pytest.mark.usefixtures("device")
def test_best_states_do_without_it() -> None:
    everything = frozenset(range(SIDE * SIDE))
    assert "accelerator" not in answer(grid(), "map", budget(), everything).method


@pytest.mark.usefixtures("device")
def test_what_the_device_cannot_do_is_done_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")

    monkeypatch.setattr(device_tree, "contract", full)
    network = grid()
    found = answer(network, "pr", budget())
    assert found.exact and "accelerator" not in found.method
    assert found.value == pytest.approx(by_rows(network), abs=1e-9)


@pytest.mark.usefixtures("device")
def test_sizes_that_are_not_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    network = grid()
    order = find_order(network.cardinalities, network.scopes)
    assert order is not None
    tree = clique_tree(network.cardinalities, network.scopes, order, sums=False)
    assert accelerator.seconds(tree, "mar") == 0.0
    assert accelerator.seconds(tree, "map") is None
    with monkeypatch.context() as small:
        small.setattr(accelerator, "memory", lambda: 100.0)
        assert accelerator.seconds(tree, "mar") is None
    with monkeypatch.context() as large:
        large.setattr(accelerator, "LEAST", 2**20)
        assert accelerator.seconds(tree, "mar") is None


def test_a_sum_takes_no_longer_than_the_way_there_and_back(monkeypatch) -> None:
    """And less than a minute for a billion entries, with the rates as they are."""
    network = grid()
    order = find_order(network.cardinalities, network.scopes)
    assert order is not None
    tree = clique_tree(network.cardinalities, network.scopes, order, sums=False)
    monkeypatch.setattr(accelerator, "memory", lambda: 2.0**30)
    monkeypatch.setattr(accelerator, "LEAST", 1)
    monkeypatch.setattr(CliqueTree, "entries", 10**9)
    once, both = (accelerator.seconds(tree, task) for task in ("pr", "mar"))
    assert once is not None and both is not None
    assert 0 < once <= both < 60


def test_jax_is_asked_only_where_a_device_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(accelerator, "DEVICES", ())
    for backend in ("gpu", "cpu"):
        fake = SimpleNamespace(default_backend=lambda backend=backend: backend)
        monkeypatch.setitem(sys.modules, "jax", fake)
        assert accelerator.available() == (backend == "gpu")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert not accelerator.available()
    monkeypatch.delenv("JAX_PLATFORMS")
    monkeypatch.delitem(sys.modules, "jax")
    assert not accelerator.available()
    assert "jax" not in sys.modules
