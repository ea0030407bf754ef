"""Factor graphs: energy, exact inference and belief propagation against enumeration."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.trees import BINARY, tree
from undirected.core.errors import UndirectedError
from undirected.core.potentials import batch_axes, clamp, inner, shift
from undirected.core.protocols import Lowerable
from undirected.factors import Bilinear, Count, Logic, Tables, count, logical_or, tables
from undirected.inference import BeliefPropagation, Exact
from undirected.models import RBM, REGISTRY, FactorGraph, SpinForm, discrete

pytestmark = pytest.mark.usefixtures("x64")
SEEDS = 16
_infer = eqx.filter_jit(lambda infer, p: infer(p))


def propagate(T, parallel=False):
    """The tree is eight factors wide; every temperature above 0 is the same program."""
    return BeliefPropagation(10, None, 0.0, 0.0 if T == 0 else jnp.asarray(T), parallel)


def feasible(world):
    return world.log_weights > -1e8


def test_energy_is_the_sum_of_the_factors():
    model, world = tree(0)
    assert isinstance(model, Lowerable) and REGISTRY["FactorGraph"] is FactorGraph
    some = np.random.default_rng(0).choice(len(world.units), 300, replace=False)
    energy = eqx.filter_jit(lambda x: model.energy(x))
    got = -np.asarray(energy(jnp.asarray(world.units[some])))
    good = feasible(world)[some]
    assert good.any() and not good.all()
    assert np.allclose(got[good], world.log_weights[some][good], atol=1e-9)
    assert (got[~good] < -0.9e9).all()
    assert jax.eval_shape(energy, jnp.zeros((2, 3, 17))).shape == (2, 3)


@pytest.mark.parametrize("T", [0.5, 1.0])
def test_propagation_on_random_trees_equals_enumeration(T):
    infer = propagate(T)
    for seed in range(SEEDS):
        model, world = tree(seed)
        p = model.lower()
        beliefs = _infer(infer, p)
        share = world.probabilities(T)
        assert np.allclose(beliefs.unary, share @ world.units, atol=1e-9)
        assert float(beliefs.log_z) == pytest.approx(world.log_z(T), abs=1e-8)
        _check_factors(model, beliefs, world, share)


def _check_factors(model, beliefs, world, share):
    """Joint distributions of the tables, the distribution of the number, constraints kept."""
    for factor, mean in zip(model.factors, beliefs.factors, strict=True):
        assert mean.incidence is None
        units = np.asarray(factor.wires.units)[:, 0]
        if isinstance(factor, Tables):
            starts = units[np.cumsum([0, *factor.widths[:-1]])]
            scope = [u if u < BINARY else BINARY + (u - BINARY) // 3 for u in starts]
            want = np.zeros(factor.states)
            np.add.at(want, tuple(world.states[:, scope].T), share)
        elif isinstance(factor, Count):
            want = np.bincount(world.states[:, units].sum(1), share, minlength=4)[:3]
        else:
            want = np.zeros(1)
        assert np.allclose(np.asarray(mean.weight).reshape(want.shape), want, atol=1e-8)


@pytest.mark.parametrize("parallel", [False, True])
def test_max_product_on_trees_finds_the_best_state(parallel):
    infer = propagate(0.0, parallel)
    for seed in range(SEEDS):
        model, world = tree(seed)
        beliefs = _infer(infer, model.lower())
        assert np.array_equal(beliefs.unary, world.units[world.log_weights.argmax()])
        assert float(beliefs.log_z) == pytest.approx(world.log_weights.max(), abs=1e-9)


@pytest.mark.parametrize("T", [0.0, 1.0])
def test_evidence_is_honoured(T):
    infer = propagate(T)
    for seed in range(4):
        model, world = tree(seed)
        rng = np.random.default_rng(seed)
        good = np.flatnonzero(feasible(world))
        x = world.units[rng.choice(good)]
        mask = np.concatenate([rng.random(BINARY) < 0.4, np.repeat(rng.random(2) < 0.5, 3)])
        rest = world.given(mask, x)
        beliefs = _infer(infer, clamp(model.lower(), mask, jnp.where(mask, x, jnp.nan)))
        if T == 0:
            assert np.array_equal(beliefs.unary, rest.units[rest.log_weights.argmax()])
        else:
            assert np.allclose(beliefs.unary, rest.probabilities(1) @ rest.units, atol=1e-7)
        assert float(beliefs.log_z) == pytest.approx(rest.log_z(T), abs=1e-6)


@pytest.mark.parametrize("T", [0.0, 1.0])
def test_exact_inference_on_a_factor_graph(T):
    layout = discrete(x=4, y=(1, 3))
    weight = np.random.default_rng(0).normal(size=(2, 2, 3))
    groups = [tables(layout, [[0, 4], [1, 4]], weight), logical_or(layout, [[0, 1, 2]], [3])]
    model = FactorGraph.create(layout, groups, jnp.linspace(-1.0, 1.0, 7))
    states = np.array(list(np.ndindex(2, 2, 2, 2, 3)))
    units = np.concatenate([states[:, :4], np.eye(3)[states[:, 4]]], 1)
    values = units @ np.linspace(-1, 1, 7) + sum(
        weight[i, states[:, i], states[:, 4]] for i in (0, 1)
    )
    values = np.where(states[:, :3].max(1) == states[:, 3], values, -np.inf)
    beliefs = Exact(T, chunk=16)(model.lower())
    if T == 0:
        assert np.array_equal(beliefs.unary, units[values.argmax()])
        assert float(beliefs.log_z) == pytest.approx(values.max())
    else:
        share = np.exp(values)
        assert float(beliefs.log_z) == pytest.approx(np.log(share.sum()))
        assert np.allclose(beliefs.unary, share @ units / share.sum())
        assert np.allclose(beliefs.factors[0].weight.sum((1, 2)), 1)
        assert isinstance(beliefs.factors[1], Logic) and not beliefs.factors[1].weight.any()


def test_batches_of_evidence_and_noise_share_the_structure():
    """vmap over unary and evidence alone equals single runs, and compiles once."""
    infer = propagate(1.0)
    traces = 0

    def counted(p):
        nonlocal traces
        traces += 1
        return infer(p)

    run = eqx.filter_jit(lambda p: jax.vmap(counted, in_axes=(batch_axes(p),))(p))
    rng = np.random.default_rng(0)
    for seed in range(2):
        model, world = tree(seed)
        good = np.flatnonzero(feasible(world))[:3]
        mask = jnp.zeros((3, 17), bool).at[:, :4].set(True)
        p = shift(model.lower(), jnp.asarray(rng.normal(size=(3, 17))))
        p = clamp(p, mask, jnp.asarray(world.units[good]))
        together = run(p)
        for i in range(3):
            one = eqx.tree_at(lambda q: (q.unary, q.evidence), p, (p.unary[i], p.evidence[i]))
            alone = _infer(infer, one)
            assert np.allclose(together.unary[i], alone.unary, atol=1e-10)
            assert np.allclose(together.log_z[i], alone.log_z, atol=1e-9)
    assert traces == 1
    wires = sum(f.wires.units.size for f in p.factors)
    assert wires == sum(f.wires.units.size for f in model.factors)


def test_the_gradient_of_log_z_is_the_beliefs():
    """Reverse mode through the messages on a tree: d log Z / d potentials = expected statistics."""
    layout, rng = discrete(x=5, y=(1, 3)), np.random.default_rng(0)
    groups = (
        tables(layout, [[0, 5]], rng.normal(size=(2, 3))),
        logical_or(layout, [[0, 1]], [2]),
        count(layout, [[2, 3, 4]], rng.normal(size=3)),
    )
    p = FactorGraph.create(layout, groups, jnp.asarray(rng.normal(size=8))).lower()
    infer = BeliefPropagation(6, None)
    slope = eqx.filter_jit(eqx.filter_grad(lambda q: infer(q).log_z))(p)
    beliefs = _infer(infer, p)
    assert np.allclose(slope.unary, beliefs.unary, atol=1e-8)
    for natural, d, mean in zip(p.factors, slope.factors, beliefs.factors, strict=True):
        if isinstance(natural, Tables | Count):
            assert np.allclose(d.weight, mean.weight, atol=1e-8)


def test_anytime_and_convergence():
    model, _ = tree(1)
    p = model.lower()

    def run(rounds):
        return _infer(BeliefPropagation(jnp.asarray(rounds), 1e-10, 0.5, jnp.asarray(1.0), True), p)

    early, late = run(2), run(500)
    assert not bool(early.converged) and int(early.iterations) == 2
    assert bool(late.converged) and int(late.iterations) < 200
    exact = _infer(propagate(1.0), p)
    assert np.allclose(late.unary, exact.unary, atol=1e-8)


def test_the_value_of_beliefs_is_consistent():
    """inner(potentials, beliefs) plus the entropy is log Z; on a tree both are exact."""
    model, world = tree(2)
    p = model.lower()
    share = world.probabilities(1.0)
    entropy = -(share[share > 0] * np.log(share[share > 0])).sum()
    value = float(inner(p, _infer(propagate(1.0), p)))
    assert value + entropy == pytest.approx(world.log_z(1.0), abs=1e-7)


def test_a_million_factors_are_built_vectorised():
    """A lattice of 500,000 variables; sums at the units count their neighbours."""
    side = 708
    site = np.arange(side * side).reshape(side, side)
    right = np.stack([site[:, :-1].ravel(), site[:, 1:].ravel()], 1)
    down = np.stack([site[:-1].ravel(), site[1:].ravel()], 1)
    scopes = np.concatenate([right, down])
    layout = discrete(x=side * side)
    assert len(scopes) > 1_000_000
    group = tables(layout, scopes, np.zeros((2, 2)))
    degree = group.wires.gather(jnp.ones(group.wires.units.shape))
    assert np.array_equal(degree, np.bincount(scopes.ravel()))


def test_a_group_must_fit_the_layout():
    other = tables(discrete(x=5), [[0, 1]], np.zeros((2, 2)))
    with pytest.raises(UndirectedError, match="made for 5 units, on a layout of 4"):
        FactorGraph.create(discrete(x=4), [other])
    with pytest.raises(UndirectedError, match=r"unary has shape \(3,\)"):
        FactorGraph.create(discrete(x=4), [], jnp.zeros(3))
    with pytest.raises(UndirectedError, match="holds beliefs"):
        other.statistic(discrete(x=5), jnp.zeros(5)).statistic(discrete(x=5), jnp.zeros(5))


def test_a_bilinear_group_joins_two_blocks():
    with pytest.raises(UndirectedError, match="joins block 0 with itself; use Symmetric"):
        FactorGraph.create(discrete(a=2), [Bilinear(jnp.ones((2, 2)), 0, 0)])


def test_the_energy_of_a_spin_form_is_that_of_spins():
    """Differences between states, which no constant can change."""
    rng = np.random.default_rng(0)
    w, b, c = rng.normal(size=(3, 2)), rng.normal(size=3), rng.normal(size=2)
    model = SpinForm(RBM(*(jnp.asarray(a) for a in (w, b, c))))
    x = rng.integers(0, 2, (6, 5))
    s = 2 * x - 1
    wanted = -0.5 * (np.einsum("ri,ij,rj->r", s[:, :3], w, s[:, 3:]) + s @ np.r_[b, c])
    found = np.asarray(model.energy(jnp.asarray(x, float)))
    np.testing.assert_allclose(found - found[0], wanted - wanted[0], atol=1e-5)


def test_fields_of_minus_infinity_forbid_as_tables_do():
    layout = discrete(x=2, y=(1, 3))
    table, fields = np.log([[1.0, 2.0], [3.0, 4.0]]), np.array([0.5, -np.inf, 0.1, -np.inf, 0.2])
    for unary in (fields, jnp.asarray(fields)):
        model = FactorGraph.create(layout, [tables(layout, [[0, 1]], table)], unary)
        found = Exact()(model)
        odds, y = np.exp([0.0, 0.5 + np.log(3.0)]), np.exp([0.1, 0.2])
        assert float(found.log_z) == pytest.approx(np.log(odds.sum() * y.sum()))
        wanted = [odds[1] / odds.sum(), 0, y[0] / y.sum(), 0, y[1] / y.sum()]
        assert np.asarray(found.unary) == pytest.approx(wanted)
    slope = jax.grad(lambda u: FactorGraph.create(layout, (), u).energy(jnp.ones(5)))(jnp.ones(5))
    assert np.asarray(slope) == pytest.approx(-np.ones(5))
