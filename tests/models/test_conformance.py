"""Every model against the oracle: energy, lowering, conditionals, free energy, transformations."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import oracle
from tests.marks import mostly_slow
from tests.zoo import CASES, SOME
from undirected.core.layout import Domain, Layout
from undirected.core.potentials import inner, statistics
from undirected.core.protocols import Blocked, Lowerable, Marginal, Model
from undirected.core.units import draw, means, uniform
from undirected.models import REGISTRY, ModelPath, tempered

pytestmark = pytest.mark.usefixtures("x64")
# One program for each shape in place of one for each operation.
energy = eqx.filter_jit(lambda model, x: model.energy(x))
free_energy = eqx.filter_jit(lambda model, v: model.free_energy(v))
conditional = eqx.filter_jit(lambda model, block, x: model.conditional(block, x))
visible_means = eqx.filter_jit(lambda model, layout, v: means(layout, model.log_odds(v)))
unit_means = eqx.filter_jit(means)
unit_draws = eqx.filter_jit(draw)
independent = eqx.filter_jit(lambda model, means: model.independent(means))
moved = eqx.filter_jit(eqx.apply_updates)
energy_on_path = eqx.filter_jit(lambda base, model, b, x: ModelPath(base, model)(b).energy(x))
energy_tempered = eqx.filter_jit(lambda model, beta, x: tempered(model)(beta).energy(x))


@eqx.filter_jit
def lowered_values(model, states):
    p = model.lower()
    return jax.vmap(lambda x: inner(p, statistics(p, x)))(states)


@pytest.fixture(params=mostly_slow(CASES, SOME))
def case(request, x64):
    return CASES[request.param](1)


def test_protocols(case):
    model, _ = case
    assert isinstance(model, Model) and isinstance(model, Lowerable) and isinstance(model, Marginal)
    assert type(model).__name__ in REGISTRY


def test_energy_equals_oracle(case):
    model, truth = case
    assert np.allclose(-energy(model, truth.states), truth.log_weights, atol=1e-10)


def test_energy_takes_any_batch_shape(case):
    model, truth = case
    x = truth.states[:8]
    one = np.stack([energy(model, row) for row in x])
    assert np.allclose(energy(model, x), one, atol=1e-12)
    assert np.allclose(energy(model, x.reshape(2, 4, -1)), one.reshape(2, 4), atol=1e-12)


def test_lowering_is_the_energy(case):
    model, truth = case
    assert np.allclose(lowered_values(model, truth.states), truth.log_weights, atol=1e-10)


def test_free_energy_sums_out_the_hiddens(case):
    model, truth = case
    table = oracle.visible_marginal(truth, model.layout.n_visible)
    v = np.asarray(list(table), float)
    assert np.allclose(-free_energy(model, v), list(table.values()), atol=1e-10)


def test_log_odds_are_the_conditionals_of_single_visibles(case):
    model, truth = case
    table = oracle.visible_marginal(truth, model.layout.n_visible)
    v = np.asarray(list(table), float)
    visible = Layout(tuple(b for b in model.layout.blocks if b.visible))
    got = visible_means(model, visible, v)
    want = np.array([_single_conditionals(table, visible, state) for state in table])
    assert np.allclose(got, want, atol=1e-10)
    assert np.allclose(visible_means(model, visible, v[0]), want[0], atol=1e-10)


def _single_conditionals(table, layout, state):
    """p(unit on | all other visible variables) from the table of the marginal."""
    answer = np.zeros(len(state))
    for block in layout.blocks:
        for start in range(block.start, block.stop, block.width):
            if block.domain is Domain.BINARY:
                options = np.array([[1.0], [0.0]])
            else:
                options = np.eye(block.states)
            weights = []
            for option in options:
                other = np.array(state, float)
                other[start : start + block.width] = option
                weights.append(table[tuple(other.astype(int).tolist())])
            p = np.exp(np.array(weights) - max(weights))
            answer[start : start + block.width] = (p / p.sum())[: block.width]
    return answer


@pytest.mark.parametrize("name", ["rbm", "wide_rbm", "label_rbm", "only_label_rbm", "mixture_rbm"])
def test_block_conditionals(name):
    model, truth = CASES[name](1)
    assert isinstance(model, Blocked)
    for index, block in enumerate(model.layout.blocks):
        part = Layout((type(block)("part", 0, block.size, block.domain, block.states),))
        others = np.ones(model.layout.n, bool)
        others[block.slice] = False
        for x in truth.states[:: max(1, len(truth.states) // 7)]:
            got = unit_means(part, conditional(model, index, x))
            assert np.allclose(got, truth.given(others, x).means[block.slice], atol=1e-10)
        batch = truth.states[:4]
        stacked = np.stack([conditional(model, index, x) for x in batch])
        assert np.allclose(conditional(model, index, batch), stacked, atol=1e-12)


def test_jit_vmap_grad_agree(case):
    model, truth = case
    x = jnp.asarray(truth.states[:8])
    plain = model.energy(x)
    assert np.allclose(energy(model, x), plain, atol=1e-12)
    assert np.allclose(jax.vmap(lambda row: energy(model, row))(x), plain, atol=1e-12)
    gradient = eqx.filter_jit(eqx.filter_grad(lambda m: m.energy(x).sum()))(model)
    direction = jax.tree.map(
        lambda a: np.cos(np.arange(a.size, dtype=a.dtype)).reshape(a.shape),
        eqx.filter(model, eqx.is_inexact_array),
    )
    slope = sum(
        (np.asarray(g) * d).sum()
        for g, d in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
    )
    step = 1e-6
    up = moved(model, jax.tree.map(lambda d: step * d, direction))
    down = moved(model, jax.tree.map(lambda d: -step * d, direction))
    assert np.allclose(slope, (energy(up, x) - energy(down, x)).sum() / (2 * step), atol=1e-6)


def test_independent_has_no_couplings_and_the_asked_means(case):
    model, truth = case
    visible = Layout(tuple(b for b in model.layout.blocks if b.visible))
    asked = unit_means(visible, np.linspace(-1.0, 1.0, visible.n))
    base = independent(model, asked)
    log_weights = -np.asarray(energy(base, truth.states))
    again = oracle.from_log_weights(truth.states, log_weights)
    assert np.allclose(again.means[: visible.n], asked, atol=1e-9)
    assert np.allclose(again.means[visible.n :], uniform(model.layout)[visible.n :], atol=1e-9)
    covariance = again.moments - np.outer(again.means, again.means)
    binary = np.concatenate(
        [np.full(b.size, b.domain is Domain.BINARY) for b in model.layout.blocks]
    )
    off = covariance[np.ix_(binary, binary)] * (1 - np.eye(binary.sum()))
    assert np.allclose(off, 0, atol=1e-9)


def test_paths_are_geometric(case):
    model, truth = case
    x = truth.states[:8]
    base = independent(
        model,
        unit_means(model.layout, np.linspace(-1, 1, model.layout.n))[: model.layout.n_visible],
    )
    for beta in map(np.asarray, (0.0, 0.3, 1.0)):
        own, other = np.asarray(energy(model, x)), np.asarray(energy(base, x))
        mixed = (1 - beta) * other + beta * own
        assert np.allclose(energy_on_path(base, model, beta, x), mixed, atol=1e-10)
        assert np.allclose(energy_tempered(model, beta, x), beta * own, atol=1e-10)


def test_new_parameters_do_not_retrace(case):
    model, truth = case
    traces = 0

    @eqx.filter_jit
    def run(m, x):
        nonlocal traces
        traces += 1
        return m.energy(x)

    x = jnp.asarray(truth.states[:4])
    run(model, x)
    run(jax.tree.map(lambda a: a * 2 if eqx.is_inexact_array(a) else a, model), x + 0)
    assert traces == 1


def test_draws_from_fields_have_the_right_means(case, key):
    """A chi-square-like bound: 20,000 draws, 6 standard errors (failure rate under 1e-7 a unit)."""
    model, _ = case
    fields = np.tile(np.linspace(-2, 2, model.layout.n), (20_000, 1))
    want = np.asarray(unit_means(model.layout, fields[0]))

    def wrong(sample):
        error = np.abs(np.asarray(sample).mean(0) - want)
        return (error > 6 * np.sqrt(want * (1 - want) / 20_000)).any()

    assert not wrong(unit_draws(model.layout, fields, key))
    assert wrong(unit_draws(model.layout, fields + 0.3 * np.sin(np.arange(model.layout.n)), key))
