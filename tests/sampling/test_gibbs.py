"""Gibbs kernels: exact transition matrices, reference sweeps, goodness of fit, broken kernels."""

from dataclasses import dataclass
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.sampling import cases
from undirected.core import graph
from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.layout import Block, Domain, Layout, perturbation
from undirected.core.potentials import Bilinear, Edges, Symmetric, clamp, potentials
from undirected.models import RBM, Ising
from undirected.sampling import BlockGibbs, Gibbs, init_state, scans

KERNELS = [
    (BlockGibbs(), "rbm"),
    (BlockGibbs(), "labelled rbm"),
    (BlockGibbs(order=("visible", "hidden", "label")), "labelled rbm"),
    (Gibbs(), "rbm"),
    (Gibbs(), "labelled rbm"),
    (Gibbs(), "dense"),
    (Gibbs(), "path"),
    (Gibbs(), "cycle of three colours"),
    (Gibbs(), "isolated units"),
    (Gibbs(), "lateral"),
]
each_kernel = pytest.mark.parametrize(("kernel", "name"), KERNELS, ids=str)


@dataclass(frozen=True)
class StaleBlocks(BlockGibbs):
    """Broken: every block is drawn given the state before the sweep."""

    def sweep(self, model, x, free, noise):
        new = x
        for block in model.layout.blocks:
            alone = BlockGibbs(order=(block.name,)).sweep(model, x, free, noise)
            new = new.at[..., block.slice].set(alone[..., block.slice])
        return new


@dataclass(frozen=True)
class StaleSites(Gibbs):
    """Broken: every site is drawn given the state before the sweep."""

    def sweep(self, p, x, free, noise):
        pull = x @ p.factors[0].weight + jnp.broadcast_to(p.fields, x.shape)
        return jnp.where(free, (pull + noise > 0).astype(x.dtype), x)


def merged_colours(model: Ising) -> Ising:
    """Broken: the first two colours of the graph are drawn at once."""
    colours = model.graph.colours
    merged = jnp.concatenate([colours[0], colours[1]])[None]
    rest = jnp.pad(colours[2:], ((0, 0), (0, colours.shape[1])), constant_values=model.n)
    table = jnp.concatenate([merged, rest])
    return eqx.tree_at(lambda m: m.graph.colours, model, table)


def wrong_sign(model):
    """Broken: one field has the wrong sign."""

    def bias(m):
        return m.visible_bias if isinstance(m, RBM) else m.bias

    largest = jnp.abs(bias(model)).argmax()
    return eqx.tree_at(bias, model, bias(model).at[largest].multiply(-1))


BROKEN = [
    (StaleBlocks(), "rbm", lambda m: m),
    (BlockGibbs(), "labelled rbm", wrong_sign),
    (StaleSites(), "dense", lambda m: m),
    (Gibbs(), "dense", wrong_sign),
    (Gibbs(), "cycle of three colours", merged_colours),
    (Gibbs(), "path", merged_colours),
    (Gibbs(), "lateral", wrong_sign),
]
each_broken = pytest.mark.parametrize(
    ("kernel", "name", "breaking"), BROKEN, ids=[f"{k}-{n}-{b.__name__}" for k, n, b in BROKEN]
)


@eqx.filter_jit
def compiled_sweep(kernel, target, x, free, noise):
    return kernel.sweep(target, x, free, noise)


@eqx.filter_jit
def compiled_step(kernel, model, state, free, key):
    return kernel.step(model, state, free, key)


def noise_driven(kernel, model, free=None):
    """sweep(x, noise) in NumPy terms."""
    target = model.lower() if isinstance(kernel, Gibbs) else model
    free = jnp.ones(model.layout.n, bool) if free is None else jnp.asarray(free)

    def sweep(x, noise):
        x, noise = jnp.asarray(x), jnp.asarray(noise)
        return np.asarray(compiled_sweep(kernel, target, x, jnp.broadcast_to(free, x.shape), noise))

    return sweep


def exact_matrix(kernel, case, model=None):
    sweep = noise_driven(kernel, case.model if model is None else model)
    states = case.truth.states
    return cases.transition_matrix(sweep, states, states, case.order)


def step(kernel, model, x, free, key):
    """One compiled step."""
    state = kernel.init(model, jnp.asarray(x), key)
    return compiled_step(kernel, model, state, jnp.asarray(free), key)


def one_step_p_value(kernel, case, model) -> float:
    """Draws from the truth must still be draws from it after one step."""
    x = cases.exact_draws(case.truth, 50_000, seed=5).astype(np.float32)
    state, _ = step(kernel, model, x, np.ones(x.shape[1], bool), jax.random.key(6))
    return cases.p_value(case.truth, state.x)


# Exact transition matrices.


@each_kernel
def test_transition_matrix_leaves_the_truth_invariant(x64, kernel, name):
    case = cases.make(name)
    matrix = exact_matrix(kernel, case)
    np.testing.assert_allclose(matrix.sum(1), 1.0, atol=1e-12)
    pi = case.truth.probabilities
    np.testing.assert_allclose(pi @ matrix, pi, atol=1e-12)


@each_broken
def test_transition_matrix_of_broken_kernels_moves_the_truth(x64, kernel, name, breaking):
    case = cases.make(name)
    pi = case.truth.probabilities
    moved = pi @ exact_matrix(kernel, case, breaking(case.model))
    assert np.abs(moved - pi).max() > 1e-3


@each_kernel
def test_reversed_is_the_time_reversal(x64, kernel, name):
    """pi(x) P(x, y) = pi(y) Q(y, x), and reversing twice is the kernel itself."""
    case = cases.make(name)
    flow = case.truth.probabilities[:, None] * exact_matrix(kernel, case)
    back = case.truth.probabilities[:, None] * exact_matrix(kernel.reversed(), case)
    np.testing.assert_allclose(flow, back.T, atol=1e-12)
    assert kernel.reversed().reversed() == kernel


def test_a_sweep_is_not_its_own_reversal(x64):
    case = cases.make("dense")
    flow = case.truth.probabilities[:, None] * exact_matrix(Gibbs(), case)
    assert np.abs(flow - flow.T).max() > 1e-3


@each_kernel
def test_clamped_transition_matrix_leaves_the_conditional_invariant(x64, kernel, name):
    case = cases.make(name)
    clamped = np.zeros(case.model.layout.n, bool)
    clamped[-1] = clamped[0] = True
    given = case.truth.given(clamped, case.truth.states[-1])
    sweep = noise_driven(kernel, case.model, ~clamped)
    variables = [v for v in case.order if not clamped[v].any()]
    matrix = cases.transition_matrix(sweep, given.states, given.states, variables)
    pi = given.probabilities
    np.testing.assert_allclose(matrix.sum(1), 1.0, atol=1e-12)
    np.testing.assert_allclose(pi @ matrix, pi, atol=1e-12)


# The same noise through a reference that works by energy differences.


def larger_case(name: str) -> cases.Case:
    return {
        "dense of 37": lambda: larger(Ising(normal((37, 37)), normal(37)), range(37)),
        "dense of 16": lambda: larger(Ising(normal((16, 16)), normal(16)), range(16)),
        "torus": lambda: larger_sparse(graph.torus(4, 5)),
        "star without a table": lambda: larger_sparse(
            graph.from_edges(40, [(0, i) for i in range(1, 40)])
        ),
        "complete": lambda: larger_sparse(graph.complete(9)),
        "labelled rbm": lambda: cases.rbm(pixels=4, labels=3, hidden=3),
        "lateral": cases.lateral,
    }[name]()


def normal(shape):
    return jnp.asarray(np.random.default_rng(7).normal(size=shape))


def larger(model, sites) -> cases.Case:
    return cases.Case(model, None, [slice(i, i + 1) for i in sites])


def larger_sparse(wiring) -> cases.Case:
    sites = [int(i) for i in np.asarray(wiring.colours).ravel() if i < wiring.n]
    return larger(Ising(normal(wiring.n_edges), normal(wiring.n), wiring), sites)


LARGER = [
    (Gibbs(), "dense of 37"),
    (Gibbs(), "dense of 16"),
    (Gibbs(), "torus"),
    (Gibbs(), "star without a table"),
    (Gibbs(), "complete"),
    (Gibbs(), "labelled rbm"),
    (Gibbs(), "lateral"),
    (BlockGibbs(), "labelled rbm"),
]


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("clamping", [False, True])
@pytest.mark.parametrize(("kernel", "name"), LARGER, ids=str)
def test_sweep_follows_the_reference(x64, kernel, name, backward, clamping):
    case = larger_case(name)
    model, n = case.model, case.model.layout.n
    rng = np.random.default_rng(8)
    x = cases.random_states(case.order, (2, 3), rng)
    noise = rng.logistic(size=x.shape)
    free = rng.random(n) < 0.7 if clamping else np.ones(n, bool)
    for where in case.order:
        free[where] = free[where].all()
    kernel = kernel.reversed() if backward else kernel
    order = case.order[::-1] if backward else case.order
    got = noise_driven(kernel, model, free)(x, noise)
    log_weight = _log_weight(model)
    for chain in np.ndindex(2, 3):
        wanted = cases.reference_sweep(log_weight, order, x[chain], free, noise[chain])
        np.testing.assert_array_equal(got[chain], wanted)


def _log_weight(model):
    """-E(x) of one state in NumPy."""
    if isinstance(model, Ising):
        bias, w = np.asarray(model.bias), np.asarray(model.weights)
        if model.graph is not None:
            i, j = np.asarray(model.graph.edges).T
            return lambda x: float(bias @ x + (w * x[i] * x[j]).sum())
        upper = np.triu(0.5 * (w + w.T), 1)
        return lambda x: float(bias @ x + x @ upper @ x)
    if isinstance(model, RBM):
        parts = model.weights, model.visible_bias, model.hidden_bias
        w, b, c = (np.asarray(a) for a in parts)
        return lambda x: float(x[: len(b)] @ (w @ x[len(b) :] + b) + x[len(b) :] @ c)
    inside, between, bias = (np.asarray(a) for a in (model.inside, model.between, model.bias))
    return lambda x: float(x[:3] @ (np.triu(inside, 1) @ x[:3] + between @ x[3:]) + bias @ x)


@pytest.mark.parametrize("n", [2, 5, 6])
def test_tiles_that_do_not_divide_the_sites(x64, monkeypatch, n):
    """The remainder of the last tile is visited once, in its place, in both directions."""
    monkeypatch.setattr(scans, "TILE", 3)
    model = Ising(normal((n, n)), normal(n))
    rng = np.random.default_rng(2)
    x = cases.random_states([slice(i, i + 1) for i in range(n)], (5,), rng)
    noise = rng.logistic(size=x.shape)
    for kernel, sites in ((Gibbs(), range(n)), (Gibbs().reversed(), reversed(range(n)))):
        order = [slice(i, i + 1) for i in sites]
        got = noise_driven(kernel, model)(x, noise)
        for chain in range(5):
            wanted = cases.reference_sweep(
                _log_weight(model), order, x[chain], np.ones(n, bool), noise[chain]
            )
            np.testing.assert_array_equal(got[chain], wanted)


# Goodness of fit of compiled steps, failure rate 1e-5 each.


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(("kernel", "name"), [*KERNELS, (Gibbs(), "odd torus")], ids=str)
def test_one_step_keeps_draws_from_the_truth(kernel, name, backward):
    case = cases.make(name)
    kernel = kernel.reversed() if backward else kernel
    assert one_step_p_value(kernel, case, case.model) > cases.RATE


@pytest.mark.parametrize(
    ("kernel", "name", "breaking"), [*BROKEN, (Gibbs(), "odd torus", merged_colours)]
)
def test_one_step_of_broken_kernels_is_caught(kernel, name, breaking):
    case = cases.make(name)
    assert one_step_p_value(kernel, case, breaking(case.model)) < cases.RATE


def many_sweeps_p_value(kernel, case, model, clamped=None) -> float:
    """Chains from anywhere, after many sweeps, are draws from the truth (given what is clamped)."""
    n = case.model.layout.n
    clamped = np.zeros(n, bool) if clamped is None else clamped
    evidence = case.truth.states[len(case.truth.states) // 3]
    x = cases.random_states(case.order, (10_000,), np.random.default_rng(10)).astype(np.float32)
    x[:, clamped] = evidence[clamped]
    state, _ = step(kernel, model, x, ~clamped, jax.random.key(11))
    assert (np.asarray(state.x)[:, clamped] == evidence[clamped]).all()
    return cases.p_value(case.truth.given(clamped, evidence), state.x)


LONG = [
    (BlockGibbs(sweeps=40), "labelled rbm"),
    (Gibbs(sweeps=40), "dense"),
    (Gibbs(sweeps=40), "odd torus"),
    (Gibbs(sweeps=40), "lateral"),
]


@pytest.mark.parametrize(("kernel", "name"), LONG, ids=str)
def test_many_sweeps_reach_the_truth(kernel, name):
    case = cases.make(name)
    assert many_sweeps_p_value(kernel, case, case.model) > cases.RATE


@pytest.mark.parametrize(("kernel", "name"), LONG, ids=str)
def test_clamped_chains_reach_the_conditional(kernel, name):
    case = cases.make(name)
    clamped = np.zeros(case.model.layout.n, bool)
    clamped[[1, -1]] = True
    assert many_sweeps_p_value(kernel, case, case.model, clamped) > cases.RATE


@pytest.mark.parametrize(
    ("kernel", "name", "breaking"),
    [
        (StaleBlocks(sweeps=40), "rbm", lambda m: m),
        (StaleSites(sweeps=40), "dense", lambda m: m),
        (Gibbs(sweeps=40), "odd torus", merged_colours),
        (Gibbs(sweeps=40), "lateral", wrong_sign),
    ],
    ids=str,
)
def test_many_sweeps_of_broken_kernels_are_caught(kernel, name, breaking):
    case = cases.make(name)
    assert many_sweeps_p_value(kernel, case, breaking(case.model)) < cases.RATE


# Behaviour.


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize(("kernel", "name"), [*KERNELS, (Gibbs(), "odd torus")], ids=str)
def test_dtype_shape_and_key(x64, kernel, name, dtype):
    """Any chain axes, the state's own dtype, bit for bit the same from the same key."""
    model = cases.make(name).model
    model = jax.tree.map(lambda a: a.astype(dtype) if eqx.is_inexact_array(a) else a, model)
    n = model.layout.n
    free, key = jnp.ones(n, bool), jax.random.key(3)
    for shape in ((), (2, 3)):
        x = init_state(model, shape, jax.random.key(4))
        assert x.dtype == dtype
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


# Errors.


class Unknown(eqx.Module):
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
        (BINARY, (Unknown(jnp.zeros(1)),), "Gibbs: cannot draw from a Unknown group"),
        (BINARY, (ODD, Symmetric(jnp.zeros((3, 3)), 0)), "Gibbs: an Edges group.*Edges, Symmetric"),
        (LABEL, (Edges(jnp.zeros(3), graph.chain(4)),), "Gibbs: an Edges group.*binary"),
        (LABEL, (Symmetric(jnp.zeros((3, 3)), 1),), "Gibbs: a Symmetric group.*categorical"),
        (BINARY, (Bilinear(jnp.zeros((3, 3)), 0, 0),), "Gibbs: a Bilinear group inside"),
        (Layout((Block("real", 0, 3, Domain.REAL),)), (), "real"),
    ],
)
def test_unsupported_groups_are_named(layout, factors, message, key):
    model = Lowered(layout, factors)
    state = Gibbs().init(model, jnp.zeros((2, layout.n)), key)
    with pytest.raises(UnsupportedFactor, match=message):
        Gibbs().step(model, state, jnp.ones(layout.n, bool), key)


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
        with pytest.raises(UndirectedError, match="sweeps is 0"):
            kernel(sweeps=0)
