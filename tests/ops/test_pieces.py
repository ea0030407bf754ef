"""Products of states and weights in three bfloat16 pieces, against float64."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from undirected.core import devices
from undirected.evaluation import ais
from undirected.inference import Exact
from undirected.models import RBM, ModelPath
from undirected.ops import pieces
from undirected.ops.pieces import Pieces
from undirected.sampling import BlockGibbs


@pytest.fixture
def weights():
    rng = np.random.default_rng(0)
    return (rng.normal(size=(70, 50)) * np.exp(4 * rng.normal(size=(70, 50)))).astype(np.float32)


@pytest.fixture
def states():
    return (np.random.default_rng(1).random((20, 120)) < 0.5).astype(np.float32)


def error(found, want) -> float:
    return float(np.abs(found - want).max() / np.abs(want).max())


@pytest.mark.parametrize("compiled", [False, True])
def test_three_pieces_hold_every_digit(weights, compiled):
    split = jax.jit(Pieces.of) if compiled else Pieces.of
    parts = [np.asarray(part, np.float64) for part in split(jnp.asarray(weights)).parts]
    assert (sum(parts) == weights.astype(np.float64)).all()
    assert error(sum(parts[:2]), weights) > 1e-7  # two do not


@pytest.mark.parametrize("compiled", [False, True])
def test_products_are_as_good_as_those_of_float32(weights, states, compiled):
    def both(weights, states):
        own = Pieces.of(weights)
        return own.times(states[:, :70]), own.back(states[:, 70:], slice(3, 40))

    if compiled:
        both = jax.jit(both)
    there, back = both(jnp.asarray(weights), jnp.asarray(states))
    exact, v, h = weights.astype(np.float64), states[:, :70], states[:, 70:]
    assert there.dtype == back.dtype == jnp.float32
    assert error(there, v @ exact) < 1e-6
    assert error(back, h @ exact[3:40].T) < 1e-6
    assert error(v @ np.asarray(Pieces.of(weights).parts[0], np.float64), v @ exact) > 1e-5


@pytest.mark.parametrize("labels", [0, 3])
def test_a_path_in_pieces_is_the_path(monkeypatch, weights, states, labels):
    rng = np.random.default_rng(2)
    model = RBM(jnp.asarray(weights / 100), *(jnp.asarray(rng.normal(size=n)) for n in (70, 50)))
    model = RBM(model.weights, model.visible_bias, model.hidden_bias, labels)

    def asked(path):
        @jax.jit
        def at(beta, x):
            here = path(beta)
            fields = [here.conditional(i, x) for i in range(len(here.layout.blocks))]
            return *fields, here.energy(x), here.free_energy(x[:, :70])

        return at(jnp.asarray(0.3), jnp.asarray(states))

    plain = ModelPath(model.independent(), model)
    assert plain.pieces is None  # a CPU has nothing to gain
    want = asked(plain)
    monkeypatch.setattr("undirected.models.model_path.pay", lambda weights: True)
    path = ModelPath(model.independent(), model)
    assert path.pieces is not None
    for found, true in zip(asked(path), want, strict=True):
        assert np.allclose(found, true, rtol=1e-5, atol=1e-5)


def test_ais_in_pieces_finds_log_z(monkeypatch):
    monkeypatch.setattr("undirected.models.model_path.pay", lambda weights: True)
    model = RBM.create(8, 5, seed=0, scale=1.0)
    found = ais(ModelPath(model.independent(), model), BlockGibbs(), seed=0, betas=200, chains=200)
    want = float(Exact()(model).log_z)
    assert abs(found.log_z - want) < 5 * found.stderr + 1e-3


@pytest.mark.parametrize(
    ("platform", "version", "capability", "capable"),
    [
        ("gpu", "cuda 13000", "9.0", True),
        ("gpu", "cuda 13000", "7.5", False),
        ("gpu", "rocm 60000", "gfx942", False),
        ("cpu", "cpu", None, False),
    ],
)
def test_pieces_pay_on_late_gpus_of_one_make(monkeypatch, platform, version, capability, capable):
    device = SimpleNamespace(platform=platform, client=SimpleNamespace(platform_version=version))
    if capability is not None:
        device.compute_capability = capability
    monkeypatch.setattr(devices.jax, "devices", lambda: [device])
    assert pieces.pay(jnp.zeros((3, 2), jnp.float32)) is capable
    assert not pieces.pay(jnp.zeros((3, 2), jnp.bfloat16))
    monkeypatch.setattr(pieces, "LARGEST", 5)
    assert not pieces.pay(jnp.zeros((3, 2), jnp.float32))
