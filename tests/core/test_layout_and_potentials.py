"""Layouts, evidence, shifts and the inner product."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import oracle
from tests.marks import mostly_slow
from tests.zoo import CASES, SOME
from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.layout import Block, Domain, Layout
from undirected.core.potentials import batch_axes, clamp, inner, potentials, shift, statistics
from undirected.core.units import (
    line_moments,
    log_normaliser,
    means,
    perturbation,
    unit_entropy,
)

MIXED = Layout(
    (
        Block("a", 0, 2),
        Block("b", 2, 8, Domain.CATEGORICAL, 3),
        Block("c", 8, 10, visible=False),
    )
)


@pytest.mark.parametrize("domain", [Domain.REAL, Domain.NONNEGATIVE])
def test_moments_on_a_line_are_those_of_a_fine_grid(x64, domain):
    l, r = np.array([0.7, -1.2]), np.array([2.5, 0.6])
    block = Block("a", 0, 2, domain)
    x = np.linspace(0 if domain is Domain.NONNEGATIVE else -20, 20, 400_001)[:, None]
    weight = np.exp(l * x - r * x**2 / 2)
    weight[0] /= 2
    mean = (weight * x).sum(0) / weight.sum(0)
    variance = (weight * (x - mean) ** 2).sum(0) / weight.sum(0)
    found = line_moments(block, jnp.asarray(l), jnp.asarray(r))
    np.testing.assert_allclose(found, (mean, variance), rtol=1e-6)


def test_layout_tells_what_is_where():
    assert (MIXED.n, MIXED.n_visible) == (10, 8)
    assert MIXED.hidden.tolist() == [8, 9]
    assert MIXED.block("b").variables == 2 and not MIXED.is_binary
    with pytest.raises(UndirectedError, match="no block 'd'; there are a, b, c"):
        MIXED.block("d")


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ((Block("a", 1, 3),), "must start at 0"),
        ((Block("a", 0, 2, visible=False), Block("b", 2, 3)), "comes after a hidden one"),
        ((Block("a", 0, 4, Domain.CATEGORICAL, 3),), "not a multiple of its 3 states"),
    ],
)
def test_bad_layouts_are_refused(blocks, message):
    with pytest.raises(UndirectedError, match=message):
        Layout(blocks)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_independent_units_against_enumeration(temperature, x64):
    fields = np.linspace(-2, 3, MIXED.n)
    states = oracle.grouped_states([1, 1, 3, 3, 1, 1])
    truth = oracle.enumerate_energy(lambda x: -(x @ fields) / temperature, states)
    assert np.allclose(means(MIXED, jnp.asarray(fields), temperature), truth.means)
    got = float(log_normaliser(MIXED, jnp.asarray(fields), temperature))
    assert got == pytest.approx(temperature * truth.log_z)
    spread = -(truth.probabilities * np.log(truth.probabilities)).sum()
    assert float(unit_entropy(MIXED, jnp.asarray(truth.means)).sum()) == pytest.approx(spread)


def test_means_at_zero_temperature_share_ties():
    layout = Layout((Block("a", 0, 3), Block("b", 3, 6, Domain.CATEGORICAL, 3)))
    got = means(layout, jnp.asarray([-1.0, 0.0, 2.0, 4.0, 4.0, 1.0]), 0)
    assert np.array_equal(got, [0, 0.5, 1, 0.5, 0.5, 0])


def test_perturbed_maxima_are_exact_samples(key):
    """Perturb-and-maximise independent units: 6 standard errors (failure under 1e-7 a unit)."""
    fields = jnp.linspace(-1.5, 1.5, MIXED.n)
    noise = perturbation(MIXED, key, (40_000,))
    want = np.asarray(means(MIXED, fields))
    bound = 6 * np.sqrt(want * (1 - want) / 40_000)
    frequency = lambda scale: np.asarray(  # noqa: E731
        means(MIXED, fields[None] + scale * noise, 0)
    ).mean(0)
    assert (np.abs(frequency(1.0) - want) < bound).all()
    assert (np.abs(frequency(0.5) - want) > bound).any()


def test_continuous_units_are_refused_by_discrete_operations():
    layout = Layout((Block("a", 0, 2, Domain.REAL),))
    with pytest.raises(UnsupportedFactor, match="block 'a' is real"):
        means(layout, jnp.zeros(2))


@pytest.mark.parametrize("name", mostly_slow(CASES, SOME))
def test_inner_is_linear_in_the_beliefs(name, x64):
    model, truth = CASES[name](0)
    p = model.lower()
    every = jax.vmap(lambda x: statistics(p, x))(jnp.asarray(truth.states))
    mean = jax.tree.map(
        lambda a: (
            jnp.tensordot(jnp.asarray(truth.probabilities), a.astype(float), 1)
            if jnp.issubdtype(a.dtype, jnp.inexact)
            else a[0]
        ),
        every,
    )
    expected = truth.probabilities @ truth.log_weights
    assert float(inner(p, mean)) == pytest.approx(expected, abs=1e-9)


def test_shift_adds_to_fields_of_all_or_of_visible_units():
    p = potentials(MIXED, jnp.arange(10.0))
    assert np.allclose(shift(p, jnp.ones(10)).fields, np.arange(10) + 1)
    assert np.allclose(shift(p, jnp.ones(8)).fields, np.arange(10) + np.r_[np.ones(8), 0, 0])
    assert shift(p, jnp.ones((5, 10))).unary.shape == (5, 10)


def test_clamp_takes_nan_where_nothing_is_known_and_can_be_changed():
    p = potentials(MIXED, jnp.zeros(10))
    x = jnp.asarray([1.0, jnp.nan, 0, 1, 0, jnp.nan, jnp.nan, jnp.nan])
    once = clamp(p, ~jnp.isnan(x), x)
    assert np.allclose(means(MIXED, once.fields)[:5], [1, 0.5, 0, 1, 0])
    assert np.allclose(means(MIXED, once.fields)[5:8], 1 / 3)
    twice = clamp(once, jnp.arange(8) == 0, jnp.zeros(8))
    assert float(means(MIXED, twice.fields)[0]) == 0.0
    assert np.isfinite(float(inner(once, statistics(once, jnp.ones(10)))))


def test_one_unit_at_1_clamps_a_categorical_variable():
    p = potentials(MIXED, jnp.zeros(10))
    held = clamp(p, jnp.arange(10) == 6, jnp.ones(10))
    assert np.allclose(means(MIXED, held.fields)[5:8], [0, 1, 0])
    without = clamp(p, jnp.arange(10) == 6, jnp.zeros(10))
    assert np.allclose(means(MIXED, without.fields)[5:8], [0.5, 0, 0.5])


def test_zero_evidence_is_no_evidence():
    model, _ = CASES["rbm"](0)
    p = model.lower()
    assert np.array_equal(shift(p, jnp.zeros(5)).fields, p.fields)
    assert np.array_equal(clamp(p, jnp.zeros(5, bool), jnp.full(5, jnp.nan)).fields, p.fields)


def test_wrong_lengths_are_refused():
    p = potentials(MIXED, jnp.zeros(10))
    with pytest.raises(UndirectedError, match="clamp: got 7 entries, the model has 10 units"):
        clamp(p, jnp.zeros(7, bool), jnp.zeros(7))
    with pytest.raises(UndirectedError, match="unary has 9 entries, the layout has 10 units"):
        potentials(MIXED, jnp.zeros(9))
    assert batch_axes(p).unary == 0 and batch_axes(p).factors is None
