"""Every inference routine against the oracle: exact where it must be, a bound where it is one."""

from itertools import pairwise, product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.marks import mostly_slow
from tests.zoo import CASES, SOME
from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.graph import from_edges, grid
from undirected.core.potentials import batch_axes, clamp, inner, shift
from undirected.factors import Edges, Factor, PottsPairs, Symmetric
from undirected.inference import (
    BeliefPropagation,
    Exact,
    MaxProduct,
    MeanField,
    SumProduct,
    Transfer,
)
from undirected.models import RBM, FactorGraph, Ising, discrete
from undirected.ops import max_product

pytestmark = pytest.mark.usefixtures("x64")
TREES = ["tree_ising", "star_ising"]
TIGHT = {"iterations": 2000, "tolerance": 1e-12}
EXACT = Exact(chunk=3)
each_kind = pytest.mark.parametrize("name", mostly_slow(CASES, SOME))
lowered = eqx.filter_jit(lambda model: model.lower())
"""A model's potentials by one program in place of one for each of its operations."""


@eqx.filter_jit
def held(model, mask, x):
    """The potentials with these units clamped."""
    return clamp(model.lower(), mask, x)


def mean_field(sweeps: int) -> MeanField:
    """One program for any number of sweeps."""
    return MeanField(jnp.asarray(sweeps), 1e-13)


def pair_moments(beliefs, layout):
    """All <x_i x_j> the beliefs speak of, as {(i, j): value}."""
    found = {}
    for factor in beliefs.factors:
        weight = np.asarray(factor.weight)
        if isinstance(factor, Edges):
            for (i, j), w in zip(np.asarray(factor.graph.edges), weight, strict=True):
                found[int(i), int(j)] = w
        elif isinstance(factor, Symmetric):
            start = layout.blocks[factor.block].start
            for i, j in zip(*np.triu_indices(len(weight), 1), strict=True):
                found[start + i, start + j] = weight[i, j]
                assert weight[i, j] == pytest.approx(weight[j, i], abs=1e-12)
        elif isinstance(factor, PottsPairs):
            for (i, j), table in zip(np.asarray(factor.graph.edges), weight, strict=True):
                for a, b in np.ndindex(table.shape):
                    found[len(table) * i + a, len(table) * j + b] = table[a, b]
        else:
            a, b = layout.blocks[factor.rows].start, layout.blocks[factor.cols].start
            for i, j in np.ndindex(weight.shape):
                found[a + i, b + j] = weight[i, j]
    return found


def assert_equal(beliefs, truth, layout, atol):
    assert np.allclose(beliefs.unary, truth.means, atol=atol)
    assert float(beliefs.log_z) == pytest.approx(truth.log_z, abs=atol)
    for (i, j), value in pair_moments(beliefs, layout).items():
        assert value == pytest.approx(truth.moments[i, j], abs=atol)


def evidence(model, truth, seed=0):
    """A state of the model and a mask of whole variables."""
    rng = np.random.default_rng(seed)
    x = truth.states[rng.integers(len(truth.states))]
    mask = np.zeros(model.layout.n, bool)
    for block in model.layout.blocks:
        chosen = rng.random(block.variables) < 0.5
        mask[block.slice] = np.repeat(chosen, block.width)
    return mask, x


@each_kind
def test_exact_is_exact_with_and_without_evidence(name):
    model, truth = CASES[name](3)
    assert_equal(EXACT(lowered(model)), truth, model.layout, 1e-10)
    for seed in range(4):
        mask, x = evidence(model, truth, seed)
        p = held(model, mask, np.where(mask, x, np.nan))
        assert_equal(EXACT(p), truth.given(mask, x), model.layout, 1e-10)


@pytest.mark.parametrize("name", ["label_rbm", "dense_ising", "torus_ising"])
def test_exact_at_a_temperature(name):
    temperature = 0.5
    model, truth = CASES[name](4)
    beliefs = Exact(temperature)(lowered(model))
    cooled = truth.tempered(temperature)
    assert np.allclose(beliefs.unary, cooled.means, atol=1e-10)
    assert float(beliefs.log_z) == pytest.approx(temperature * cooled.log_z, abs=1e-10)


@pytest.mark.parametrize("name", ["rbm", "label_rbm", "dense_ising", "torus_ising"])
def test_exact_at_zero_temperature_is_the_best_state(name):
    model, truth = CASES[name](5)
    beliefs = Exact(0.0, chunk=7)(lowered(model))
    assert np.allclose(beliefs.unary, truth.best, atol=1e-12)
    assert float(beliefs.log_z) == pytest.approx(truth.best_value, abs=1e-10)


@pytest.mark.parametrize("name", ["torus_ising", "star_ising"])
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_transfer_is_exact(name, temperature):
    model, truth = CASES[name](6)
    plan = Transfer.plan(model.graph, temperature)
    mask, x = evidence(model, truth)
    for p, t in ((lowered(model), truth), (held(model, mask, x), truth.given(mask, x))):
        beliefs = plan(p)
        if temperature == 0:
            assert np.allclose(beliefs.unary, t.best)
            assert float(beliefs.log_z) == pytest.approx(t.best_value, abs=1e-10)
        else:
            cooled = t.tempered(temperature)
            assert np.allclose(beliefs.unary, cooled.means, atol=1e-10)
            assert float(beliefs.log_z) == pytest.approx(temperature * cooled.log_z, abs=1e-10)


def test_transfer_on_a_torus_equals_the_transfer_matrix():
    """8 x 8 torus, zero field, against the trace of the 256 x 256 row-to-row matrix."""
    from undirected.core import graph

    where = graph.torus(8, 8)
    for T in (2.0, 2.27):
        model = Ising.from_spins(jnp.full(where.n_edges, 1 / T), jnp.zeros(64), where)
        got = float(Transfer.plan(where)(model.lower()).log_z)
        assert got == pytest.approx(_torus_log_z(8, 1 / T), abs=1e-8)


def _torus_log_z(side, coupling):
    spins = 2.0 * ((np.arange(2**side)[:, None] >> np.arange(side)) & 1) - 1
    within = coupling * (spins * np.roll(spins, 1, 1)).sum(1)
    matrix = np.exp(coupling * spins @ spins.T + 0.5 * (within[:, None] + within[None]))
    return float(np.log(np.trace(np.linalg.matrix_power(matrix, side))))


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("damping", [0.0, 0.4])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_belief_propagation_is_exact_on_trees(name, damping, temperature):
    model, truth = CASES[name](7)
    infer = BeliefPropagation(**TIGHT, damping=damping, temperature=temperature)
    mask, x = evidence(model, truth)
    for p, t in ((lowered(model), truth), (held(model, mask, x), truth.given(mask, x))):
        beliefs = infer(p)
        cooled = t.tempered(temperature)
        assert bool(beliefs.converged)
        assert np.allclose(beliefs.unary, cooled.means, atol=1e-9)
        assert float(beliefs.log_z) == pytest.approx(temperature * cooled.log_z, abs=1e-9)
        for (i, j), value in pair_moments(beliefs, model.layout).items():
            assert value == pytest.approx(cooled.moments[i, j], abs=1e-9)


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("name", ["rbm", "wide_rbm", "label_rbm", "only_label_rbm"])
def test_belief_propagation_is_exact_on_bipartite_trees(name, parallel):
    """Clamping all hiddens but one, or all visible variables but one, leaves a tree."""
    model, truth = CASES[name](8)
    V, n = model.layout.n_visible, model.layout.n
    infer = SumProduct(**TIGHT, parallel=parallel)
    x = truth.states[len(truth.states) // 3]
    for keep in (slice(V, V + 1), model.layout.blocks[-2].slice):
        mask = np.zeros(n, bool)
        if keep.start >= V:
            mask[V:] = True
        else:
            mask[:V] = True
        mask[keep] = False
        if keep.start < V and model.layout.blocks[-2].width == 1:
            mask[keep] = True
            mask[0] = False
        p = held(model, mask, x)
        assert_equal(infer(p), truth.given(mask, x), model.layout, 1e-9)


@pytest.mark.parametrize("name", TREES)
def test_max_product_finds_the_best_state_of_trees(name):
    for seed in range(5):
        model, truth = CASES[name](seed)
        beliefs = MaxProduct(**TIGHT, damping=0.0)(lowered(model))
        assert np.allclose(beliefs.unary, truth.best)
        assert float(beliefs.log_z) == pytest.approx(truth.best_value, abs=1e-9)


@each_kind
def test_loopy_fixed_points_are_locally_consistent(name):
    """Marginals of pair beliefs are the unit beliefs, and independent float64 messages agree."""
    model, truth = CASES[name](9)
    beliefs = SumProduct(**TIGHT, damping=0.5)(lowered(model))
    assert bool(beliefs.converged)
    unary = np.asarray(beliefs.unary)
    for (i, j), both in pair_moments(beliefs, model.layout).items():
        assert max(0, unary[i] + unary[j] - 1) - 1e-9 <= both <= min(unary[i], unary[j]) + 1e-9
    if model.layout.is_binary:
        assert np.allclose(unary, _plain_messages(truth), atol=1e-8)


def _plain_messages(truth, rounds=800):
    """Loopy sum-product on tables, read off the enumerated energy: nothing shared."""
    n = truth.states.shape[1]
    level = {tuple(s.astype(int)): w for s, w in zip(truth.states, truth.log_weights, strict=True)}

    def value(*on):
        return level[tuple(int(i in on) for i in range(n))]

    empty = value()
    bias = np.array([value(i) - empty for i in range(n)])
    weight = np.array(
        [
            [0 if i == j else value(i, j) - value(i) - value(j) + empty for j in range(n)]
            for i in range(n)
        ]
    )
    joined = np.abs(weight) > 1e-12
    table = np.full((n, n, 2), 0.5)
    for _ in range(rounds):
        log = np.where(joined[..., None], np.log(table), 0.0)
        incoming = log.sum(0)
        fresh = np.full((n, n, 2), 0.5)
        for i, j in zip(*np.nonzero(joined), strict=True):
            cavity = incoming[i] - log[j, i] + np.array([0.0, bias[i]])
            joint = np.exp(cavity - cavity.max())[:, None] * np.exp(
                weight[i, j] * np.outer([0, 1], [0, 1])
            )
            fresh[i, j] = joint.sum(0) / joint.sum()
        table = 0.5 * table + 0.5 * fresh
    log = np.where(joined[..., None], np.log(table), 0.0).sum(0)
    odds = log[:, 1] - log[:, 0] + bias
    return 1 / (1 + np.exp(-odds))


@each_kind
def test_mean_field_is_a_bound_and_a_fixed_point(name):
    model, truth = CASES[name](10)
    p = lowered(model)
    bounds = [float(mean_field(k)(p).log_z) for k in (1, 2, 5, 50)]
    assert all(a <= b + 1e-10 for a, b in pairwise(bounds))
    assert bounds[-1] <= truth.log_z + 1e-10
    beliefs = mean_field(5000)(p)
    assert bool(beliefs.converged)
    value = float(eqx.filter_jit(inner)(p, beliefs))
    assert float(beliefs.log_z) > value


def test_mean_field_moves_the_spins_of_one_colour_together():
    """On a path the even spins, then the odd ones: two steps a sweep, however long the path is."""
    J, h = np.array([0.9, -0.7, 1.1, 0.8]), np.array([0.3, -0.2, 0.4, 0.1, -0.5])
    model = Ising.from_spins(
        jnp.asarray(J), jnp.asarray(h), from_edges(5, [[0, 1], [1, 2], [2, 3], [3, 4]])
    )
    spins = np.tanh(h)
    for first in (0, 1):
        pull = np.append(0, J * spins[:-1]) + np.append(J * spins[1:], 0)
        spins[first::2] = np.tanh(h + pull)[first::2]
    found = MeanField(1, None)(model).unary
    np.testing.assert_allclose(found, (1 + spins) / 2, atol=1e-12)


@pytest.mark.parametrize("form", ["symmetric", "bipartite"])
def test_dense_models_are_decoded_by_their_fused_rounds(form, monkeypatch):
    """They find what messages of any wiring find, and much sooner."""
    called, whole = [], getattr(max_product, form)

    def watched(*arguments):
        called.append(form)
        return whole(*arguments)

    monkeypatch.setattr(max_product, form, watched)
    model = RBM.create(7, 6, seed=3) if form == "bipartite" else Ising.create(13)  # no other test's
    MaxProduct(11).decode(model)
    assert called == [form]


@each_kind
def test_mean_field_is_exact_without_couplings(name):
    model, _ = CASES[name](11)
    base = model.independent(jnp.linspace(0.1, 0.9, model.layout.n_visible))
    beliefs = mean_field(5000)(lowered(base))
    exact = EXACT(lowered(base))
    assert np.allclose(beliefs.unary, exact.unary, atol=1e-12)
    assert float(beliefs.log_z) == pytest.approx(float(exact.log_z), abs=1e-10)


@pytest.mark.parametrize("held", [True, False])
def test_mean_field_has_a_slope_beside_certain_units(held):
    """With one visible unit that is certain it is exact: log Z = b + log(1 + exp(c + w))."""

    def bound(weight, visible, hidden):
        p = RBM(weight, visible, hidden).lower()
        p = clamp(p, jnp.asarray([True]), jnp.asarray([1.0])) if held else p
        return MeanField(20, None)(p).log_z

    at = jnp.asarray([[0.7]]), jnp.asarray([0.3 if held else 900.0]), jnp.asarray([-0.4])
    slopes = jax.grad(bound, (0, 1, 2))(*at)
    on = 1 / (1 + np.exp(0.4 - 0.7))
    assert np.allclose([a.item() for a in slopes], [on, 1, on], atol=1e-12)


def test_edges_that_touch_single_states_of_a_variable():
    """Two binary units, and one variable of three states: exact sums, and a bound by mean field."""
    pairs, weights = [(0, 2), (1, 3), (0, 1)], np.array([1.0, -2.0, 0.5])
    edges = Edges(jnp.asarray(weights), from_edges(5, pairs))
    p = FactorGraph.create(discrete(a=2, b=(1, 3)), [edges]).lower()
    x = np.array([(*a, *b) for a in product((0, 1), repeat=2) for b in np.eye(3)])
    log_weights = sum(w * x[:, i] * x[:, j] for (i, j), w in zip(pairs, weights, strict=True))
    log_z = np.log(np.exp(log_weights).sum())
    exact = EXACT(p)
    assert float(exact.log_z) == pytest.approx(log_z, abs=1e-10)
    assert np.allclose(exact.unary, np.exp(log_weights - log_z) @ x, atol=1e-10)
    assert log_z - 0.2 < float(MeanField()(p).log_z) < log_z


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rbm", "label_rbm", "dense_ising", "torus_ising"])
@pytest.mark.parametrize("infer", [EXACT, SumProduct(), MaxProduct(), MeanField()])
def test_batches_share_the_structure(name, infer):
    """vmap over evidence equals one instance at a time, and nothing retraces."""
    model, truth = CASES[name](12)
    masks, states = zip(*(evidence(model, truth, s) for s in range(5)), strict=True)
    traces = 0

    def counted(p):
        nonlocal traces
        traces += 1
        return infer(p)

    p = shift(held(model, np.stack(masks), np.stack(states)), np.full((5, model.layout.n), 0.1))
    run = jax.jit(jax.vmap(counted, in_axes=(batch_axes(p),)))
    together = run(p)
    for i in range(5):
        one = shift(held(model, masks[i], states[i]), np.full(p.layout.n, 0.1))
        alone = infer(one)
        assert np.allclose(together.unary[i], alone.unary, atol=1e-9)
        assert np.allclose(together.log_z[i], alone.log_z, atol=1e-9)
    before = traces
    other = jax.tree.map(lambda a: a * 1.5 if eqx.is_inexact_array(a) else a, model)
    run(held(other, ~np.stack(masks), np.stack(states)))
    assert traces == before


def test_new_graph_of_the_same_shape_does_not_retrace():
    from undirected.core import graph

    traces = 0

    @eqx.filter_jit
    def run(p):
        nonlocal traces
        traces += 1
        return SumProduct()(p)

    answers = []
    for edges in ([(0, 1), (1, 2), (2, 3)], [(0, 2), (2, 1), (1, 3)]):
        where = graph.from_edges(4, edges)
        answers.append(run(Ising(jnp.ones(3), jnp.arange(4.0), where).lower()).unary)
    assert traces == 1
    assert not np.allclose(*answers)


def test_extreme_weights_and_fields_stay_finite_and_right():
    """Weights of +-60 and fields of +-1000 in float32, against the same run in float64."""
    rng = np.random.default_rng(0)
    weights = rng.choice([-60.0, 60.0, 0.5], size=(12, 8))
    visible, hidden = rng.choice([-1000.0, 1000.0, 1.0], 12), rng.choice([-1000.0, 1000.0, -2.0], 8)
    for infer in (SumProduct(50, None), MaxProduct(50, None), MeanField(50, None)):
        answers = [
            infer(RBM(*(jnp.asarray(a, dtype) for a in (weights, visible, hidden))).lower())
            for dtype in (jnp.float32, jnp.float64)
        ]
        assert np.isfinite(answers[0].unary).all() and np.isfinite(answers[0].log_z)
        assert np.allclose(answers[0].unary, answers[1].unary, atol=1e-5)
        assert np.allclose(answers[0].log_z, answers[1].log_z, rtol=1e-5)


def test_refusals_name_what_is_wrong():
    big = RBM.create(60, 40, jax.random.key(0)).lower()
    with pytest.raises(UndirectedError, match=r"2\^40 states.*belief propagation"):
        Exact()(big)
    with pytest.raises(UndirectedError, match="iterations is 0"):
        SumProduct(0)
    with pytest.raises(UndirectedError, match="damping 1"):
        SumProduct(damping=1.0)
    with pytest.raises(UndirectedError, match="Edges group"):
        Transfer.plan(CASES["torus_ising"](0)[0].graph)(big)

    class Strange(Factor):
        weight: jax.Array

    strange = eqx.tree_at(lambda p: p.factors, big, (Strange(jnp.ones(3)),))
    for infer in (SumProduct(), MeanField(), Exact()):
        with pytest.raises((UnsupportedFactor, UndirectedError), match=r"Strange|states"):
            infer(strange)


@pytest.mark.slow
@pytest.mark.parametrize("damping", [0.0, 0.3, 0.5])
@pytest.mark.parametrize(("scale", "temperature"), [(1.0, 1.0), (20.0, 0.7), (200.0, 1.0)])
def test_the_dense_kernel_equals_the_plain_messages(scale, temperature, damping):
    """Gentle, steep and very steep weights take three routes to one answer, at any temperature."""
    rng = np.random.default_rng(1)
    shapes = scale * rng.uniform(-1, 1, (37, 19)), rng.normal(size=37), rng.normal(size=19)
    p = RBM(*map(jnp.asarray, shapes)).lower()
    p = clamp(p, jnp.arange(56) < 5, jnp.ones(56))
    infer = BeliefPropagation(7, None, damping, temperature)
    assert np.allclose(infer(p).unary, _plain(infer, p).unary, atol=1e-9)
    if scale == 1.0:
        infer = BeliefPropagation(3000, 1e-12, damping, temperature)
        fast, plain = infer(p), _plain(infer, p)
        assert np.allclose(fast.unary, plain.unary, atol=1e-9)
        assert np.allclose(fast.factors[0].weight, plain.factors[0].weight, atol=1e-9)
        assert float(fast.log_z) == pytest.approx(float(plain.log_z), abs=1e-8)


@eqx.filter_jit
def _plain(infer, p):
    """The answer of the general messages, kernel or not."""
    traffic, incoming, change, count = infer._pass_messages(p)
    return infer._beliefs(p, traffic, incoming, change, count)


@pytest.mark.slow
@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("temperature", [0.5, 1.0])
@pytest.mark.parametrize("kind", ["layers", "dense", "graph"])
def test_log_z_has_its_gradient_where_weights_are_zero(kind, temperature, parallel):
    """The slopes along weights of independent units are products of their means."""
    fields = jnp.array([0.5, -1.0, 0.3, 2.0])
    model = {
        "layers": RBM(jnp.zeros((2, 2)), fields[:2], fields[2:]),
        "dense": Ising(jnp.zeros((4, 4)), fields),
        "graph": Ising(jnp.zeros(4), fields, grid(2, 2)),
    }[kind]
    infer = BeliefPropagation(10, None, 0.0, temperature, parallel)
    slope = eqx.filter_grad(lambda p: infer(p).log_z)(model.lower()).factors[0]
    means = 1 / (1 + np.exp(-np.asarray(fields) / temperature))
    if kind == "graph":
        i, j = np.asarray(model.graph.edges).T
        np.testing.assert_allclose(slope.weight, means[i] * means[j], atol=1e-9)
    elif kind == "layers":
        np.testing.assert_allclose(slope.weight, np.outer(means[:2], means[2:]), atol=1e-9)
    else:
        apart = ~np.eye(4, dtype=bool)
        wanted = 0.5 * np.outer(means, means)[apart]
        np.testing.assert_allclose(np.asarray(slope.weight)[apart], wanted, atol=1e-9)


@pytest.mark.parametrize("infer", [SumProduct(), MaxProduct(), EXACT, MeanField()])
def test_a_model_stands_for_its_potentials(infer):
    model, _ = CASES["dense_ising"](12)
    np.testing.assert_allclose(infer(model).unary, infer(lowered(model)).unary, atol=1e-12)
