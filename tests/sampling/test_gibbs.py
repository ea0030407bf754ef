"""Gibbs kernels: shapes, dtypes, keys, clamping, order, retracing, errors."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.marks import mostly_slow
from tests.sampling import cases
from tests.sampling.kernels import compiled_sweep, step
from undirected.core import graph
from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.layout import Block, Domain, Layout
from undirected.core.potentials import clamp, potentials
from undirected.core.units import perturbation
from undirected.factors import Bilinear, Edges, Factor, Symmetric
from undirected.models import Ising
from undirected.sampling import BlockGibbs, Gibbs, init_state


@pytest.mark.parametrize("dtype", mostly_slow([jnp.float32, jnp.float64], [jnp.float32]))
@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        (BlockGibbs(), "labelled rbm"),
        (Gibbs(), "labelled rbm"),
        (Gibbs(), "lateral"),
        (Gibbs(), "odd torus"),
    ],
    ids=str,
)
def test_dtype_shape_and_key(x64, kernel, name, dtype):
    """Any chain axes, the state's own dtype, bit for bit the same from the same key."""
    case, rng = cases.make(name), np.random.default_rng(4)
    model = case.model
    model = jax.tree.map(lambda a: a.astype(dtype) if eqx.is_inexact_array(a) else a, model)
    n = model.layout.n
    free, key = jnp.ones(n, bool), jax.random.key(3)
    for shape in ((), (2, 3)):
        x = cases.random_states(case.order, shape, rng).astype(dtype)
        state, info = step(kernel, model, x, free, key)
        again, _ = step(kernel, model, x, free, key)
        assert state.x.shape == (*shape, n)
        assert state.x.dtype == dtype
        assert info["flips"].shape == shape
        assert (state.x == again.x).all()
    others = [step(kernel, model, x, free, jax.random.key(seed))[0].x for seed in range(5)]
    assert any((other != state.x).any() for other in others)


def test_a_categorical_variable_is_clamped_as_a_whole(key):
    model = cases.make("labelled rbm").model
    free = jnp.ones(7, bool).at[3].set(False)
    x = init_state(model, (200,), key)
    for kernel in (BlockGibbs(sweeps=5), Gibbs(sweeps=5)):
        state, _ = step(kernel, model, x, free, key)
        np.testing.assert_array_equal(state.x[:, 2:5], x[:, 2:5])
        assert (state.x[:, :2] != x[:, :2]).any()


def test_masks_differ_between_chains(key):
    model = cases.make("dense").model
    x = init_state(model, (300,), key)
    free = jax.random.bernoulli(key, 0.5, x.shape)
    state, info = step(Gibbs(sweeps=3), model, x, free, key)
    moved = np.asarray(state.x != x)
    assert not moved[~np.asarray(free)].any()
    assert moved.any()
    wanted = moved.sum(1) / np.maximum(np.asarray(free).sum(1), 1)
    np.testing.assert_allclose(info["flips"], wanted, rtol=1e-6)


def test_nothing_free_moves_nothing(key):
    model = cases.make("dense").model
    x = init_state(model, (10,), key)
    state, info = step(Gibbs(), model, x, np.zeros(5, bool), key)
    np.testing.assert_array_equal(state.x, x)
    np.testing.assert_array_equal(info["flips"], 0.0)


def test_evidence_in_potentials_is_obeyed(key):
    """Hard evidence, and fields of its own for every chain."""
    p = cases.make("dense").model.lower()
    x = jax.random.bernoulli(key, 0.5, (40, 5)).astype(p.unary.dtype)
    wanted = jax.random.bernoulli(jax.random.key(1), 0.5, (40, 5)).astype(p.unary.dtype)
    noise = perturbation(p.layout, key, (40,))
    clamped = clamp(p, jnp.ones((40, 5), bool), wanted)
    got = compiled_sweep(Gibbs(), clamped, x, jnp.ones(x.shape, bool), noise)
    np.testing.assert_array_equal(got, wanted)


def test_two_sweeps_are_two_steps_of_noise(key):
    model = cases.make("rbm").model
    x = init_state(model, (30,), key)
    free = jnp.ones(x.shape, bool)
    state, _ = step(BlockGibbs(sweeps=2), model, x, free, key)
    for i in range(2):
        noise = perturbation(model.layout, jax.random.fold_in(key, i), (30,))
        x = compiled_sweep(BlockGibbs(), model, x, free, noise)
    np.testing.assert_array_equal(state.x, x)


def test_a_block_left_out_of_the_order_stays(key):
    model = cases.make("rbm").model
    x = init_state(model, (100,), key)
    state, _ = step(BlockGibbs(order=["hidden"]), model, x, jnp.ones(5, bool), key)
    np.testing.assert_array_equal(state.x[:, :3], x[:, :3])
    assert (state.x[:, 3:] != x[:, 3:]).any()


def test_block_and_lowered_sweeps_agree(key):
    model = cases.make("labelled rbm").model
    x = init_state(model, (100,), key)
    block, _ = step(BlockGibbs(), model, x, jnp.ones(7, bool), key)
    lowered, _ = step(Gibbs(), model, x, jnp.ones(7, bool), key)
    np.testing.assert_array_equal(block.x, lowered.x)


def test_boolean_start_becomes_float(key):
    model = cases.make("rbm").model
    assert BlockGibbs().init(model, jnp.zeros((3, 5), bool), key).x.dtype == jnp.float32


@pytest.mark.parametrize("name", ["rbm", "dense", "cycle of three colours"])
def test_new_weights_masks_and_wiring_do_not_retrace(name, key):
    model = cases.make(name).model
    traces = []

    @eqx.filter_jit
    def run(model, state, free, key):
        traces.append(1)
        return Gibbs().step(model, state, free, key)

    state = Gibbs().init(model, init_state(model, (4,), key), key)
    run(model, state, jnp.ones(model.layout.n, bool), key)
    double = jax.tree.map(lambda a: 2 * a if eqx.is_inexact_array(a) else a, model)
    run(double, state, jnp.zeros(model.layout.n, bool), jax.random.key(9))
    if name == "cycle of three colours":
        other = graph.from_edges(5, [(0, 2), (2, 4), (1, 4), (1, 3), (0, 3)])
        run(Ising(model.weights, model.bias, other, model.offset), state, jnp.ones(5, bool), key)
    assert len(traces) == 1


class Unknown(Factor):
    """A group that says nothing of itself."""

    weight: jnp.ndarray


class Lowered(eqx.Module):
    """A model that is nothing but its potentials."""

    layout: Layout = eqx.field(static=True)
    factors: tuple

    def energy(self, x):
        return jnp.zeros(x.shape[:-1])

    def lower(self):
        return potentials(self.layout, jnp.zeros(self.layout.n), self.factors)


BINARY = Layout((Block("visible", 0, 3),))
LABEL = Layout((Block("visible", 0, 1), Block("label", 1, 4, Domain.CATEGORICAL, 3)))
ODD = Edges(jnp.zeros(2), graph.chain(3))


@pytest.mark.parametrize(
    ("layout", "factors", "message"),
    [
        (BINARY, (Unknown(jnp.zeros(1)),), "Gibbs: a Unknown group offers no statistic; use Block"),
        (
            BINARY,
            (Bilinear(jnp.zeros((3, 3)), 0, 0),),
            "Bilinear: a group joins block 0 with itself",
        ),
        (
            BINARY,
            (Symmetric(jnp.zeros((2, 2)), 0),),
            r"Symmetric: a matrix \(2, 2\) on a block of 3",
        ),
        (Layout((Block("real", 0, 3, Domain.REAL),)), (), "real"),
    ],
)
def test_unsupported_groups_are_named(layout, factors, message, key):
    model = Lowered(layout, factors)
    state = Gibbs().init(model, jnp.zeros((2, layout.n)), key)
    with pytest.raises(UndirectedError, match=message):
        Gibbs().step(model, state, jnp.ones(layout.n, bool), key)


def test_groups_on_the_same_units_are_drawn_from_together(key):
    """Edges beside a dense group, which were refused before: each field is that of both."""
    dense, weight = jnp.asarray([[0, 1, -2], [1, 0, 0.5], [-2, 0.5, 0]]), jnp.asarray([1.5, -1.0])
    model = Lowered(BINARY, (Edges(weight, graph.chain(3)), Symmetric(dense, 0)))
    J = np.array(dense)
    J[[0, 1], [1, 2]] += weight
    J[[1, 2], [0, 1]] += weight
    noise = np.random.default_rng(0).normal(size=(20, 3))
    x = start = np.random.default_rng(1).integers(0, 2, (20, 3)).astype(float)
    for site in range(3):
        x = x.copy()
        x[:, site] = x @ J[site] + noise[:, site] > 0
    free = jnp.ones((20, 3), bool)
    found = Gibbs().sweep(model.lower(), jnp.asarray(start), free, jnp.asarray(noise))
    np.testing.assert_array_equal(found, x)


def test_wrong_models_masks_and_shapes_are_refused(key):
    ising, rbm = cases.make("dense").model, cases.make("rbm").model
    with pytest.raises(UnsupportedFactor, match="Ising has no block conditionals; use Gibbs"):
        step(BlockGibbs(), ising, jnp.zeros((2, 5)), jnp.ones(5, bool), key)
    with pytest.raises(UnsupportedFactor, match="does not lower"):
        Gibbs().step(object(), None, None, key)
    with pytest.raises(UndirectedError, match="3 entries, the model has 5 units"):
        step(BlockGibbs(), rbm, jnp.zeros((2, 5)), jnp.ones(3, bool), key)
    with pytest.raises(UndirectedError, match=r"shape \(2, 3\).*5 units of which 3 are visible"):
        BlockGibbs().init(rbm, jnp.zeros((2, 3)), key)
    with pytest.raises(UndirectedError, match="no block 'label'"):
        step(BlockGibbs(order=("label",)), rbm, jnp.zeros((2, 5)), jnp.ones(5, bool), key)
    for kernel in (BlockGibbs, partial(Gibbs)):
        for sweeps in (0, 1.5, "two"):
            with pytest.raises(UndirectedError, match=f"sweeps is {sweeps!r}; pass a whole number"):
                kernel(sweeps=sweeps)
