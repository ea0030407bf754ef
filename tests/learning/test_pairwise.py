"""Conditionals of categorical variables: objectives by loops, and the truth they must find."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from undirected.core.errors import UndirectedError
from undirected.learning import pairwise
from undirected.learning.lbfgs import minimise
from undirected.learning.pairwise import OBJECTIVES, Pairwise, Penalty, fit_pairwise

LENGTH, Q = 3, 3


def objective_by_loop(kind, fields, couplings, states, share, l2):
    """The mean over rows of what each position adds, and the penalty."""
    total, length = np.zeros(len(fields)), len(fields)
    for row, weight in zip(states, share, strict=True):
        for i in range(length):
            field = fields[i] + sum(couplings[i, :, j, row[j]] for j in range(length) if j != i)
            if kind == "pseudo-likelihood":
                total[i] += weight * (np.log(np.exp(field).sum()) - field[row[i]])
            else:
                total[i] += weight * np.exp(field.mean() - field[row[i]])
    loss = np.log(total).sum() if kind == "logrise" else total.sum()
    return loss + l2 * (fields**2).sum() + 0.5 * l2 * (couplings**2).sum()


def truth(seed=0):
    rng = np.random.default_rng(seed)
    couplings = 0.6 * rng.normal(size=(LENGTH, Q, LENGTH, Q))
    couplings = couplings + couplings.transpose(2, 3, 0, 1)
    couplings[np.arange(LENGTH), :, np.arange(LENGTH)] = 0
    for axis in (1, 3):
        couplings = couplings - couplings.mean(axis, keepdims=True)
    fields = rng.normal(size=(LENGTH, Q))
    return fields - fields.mean(1, keepdims=True), couplings


def all_states():
    return np.array(list(itertools.product(range(Q), repeat=LENGTH)))


def probabilities(fields, couplings):
    places = np.arange(LENGTH)
    logs = [
        fields[places, s].sum() + 0.5 * couplings[places, s][:, places, s].sum()
        for s in all_states()
    ]
    weight = np.exp(logs)
    return weight / weight.sum()


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_the_value_and_the_minimum_are_those_of_a_loop(kind, monkeypatch):
    monkeypatch.setattr(pairwise, "ROWS", 8)  # several chunks, the last of them not full
    rng = np.random.default_rng(1)
    states, share = rng.integers(0, Q, (40, LENGTH)), rng.random(40)
    share /= share.sum()
    found = fit_pairwise(states, Q, share, kind, Penalty(0.02, 0.02), tolerance=1e-7)
    assert found.converged

    def value(at):
        parts = np.float64(at.fields), np.float64(at.couplings)
        return objective_by_loop(kind, *parts, states, share, 0.02)

    np.testing.assert_allclose(found.value, value(found.at), rtol=1e-5)
    for _ in range(5):
        way = rng.normal(size=found.at.couplings.shape)
        way = Pairwise(
            rng.normal(size=found.at.fields.shape),
            (way + way.transpose(2, 3, 0, 1)) * (1 - np.eye(LENGTH))[:, None, :, None],
        )
        slope = (value(found.at.plus(1e-4, way)) - value(found.at.plus(-1e-4, way))) / 2e-4
        assert abs(slope) < 5e-3


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_exact_frequencies_give_the_exact_model(kind):
    fields, couplings = truth()
    shares = probabilities(fields, couplings)
    found = fit_pairwise(all_states(), Q, shares, kind, Penalty(0, 0), 300, 1e-9).at
    gauge = found.couplings
    for axis in (1, 3):
        gauge = gauge - gauge.mean(axis, keepdims=True)
    np.testing.assert_allclose(gauge, couplings, atol=0.02)
    assert abs(couplings).max() > 1


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_an_accelerator_finds_what_the_cpu_finds(kind, monkeypatch):
    rng = np.random.default_rng(3)
    states, share = rng.integers(0, Q, (40, LENGTH)), rng.random(40)
    here = fit_pairwise(states, Q, share, kind, tolerance=1e-7)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert pairwise._engine()[0] is jnp
    there = fit_pairwise(states, Q, share, kind, tolerance=1e-7)
    np.testing.assert_allclose(there.value, here.value, rtol=1e-5)
    np.testing.assert_allclose(there.at.couplings, here.at.couplings, atol=2e-3)
    assert abs(here.at.couplings).max() > 0.05


def test_a_row_twice_is_a_row_of_twice_the_weight(x64):
    rng = np.random.default_rng(4)
    states = rng.integers(0, Q, (30, LENGTH))
    counts = rng.integers(1, 4, 30)
    once = fit_pairwise(states, Q, counts, tolerance=1e-7)
    often = fit_pairwise(np.repeat(states, counts, 0), Q, tolerance=1e-7)
    np.testing.assert_allclose(once.at.couplings, often.at.couplings, atol=1e-5)


def test_logrise_of_rows_whose_sums_are_smaller_than_a_float():
    """Three rows in which each position tells all others: at the minimum S_i is e^-155.

    By symmetry couplings there are 2 c between states that occur together and -c between others;
    the value is -112 c + 504 penalty c^2.
    """
    states = (np.arange(3)[:, None] + np.arange(8)) % Q
    found = fit_pairwise(states, Q, None, "logrise", Penalty(0.01, 0.01), 500, 1e-9)
    c = 112 / (2 * 504 * 0.01)
    assert found.converged
    np.testing.assert_allclose(found.value, -56 * c, rtol=1e-5)
    values = found.at.couplings[0, states[:, :1], np.arange(1, 8), states[:, 1:]]
    np.testing.assert_allclose(values, 2 * c, rtol=1e-3)


def test_unknown_objective():
    with pytest.raises(UndirectedError, match="objective 'ml' is unknown"):
        fit_pairwise(all_states(), Q, objective="ml")


def test_l_bfgs_finds_the_minimum_of_a_quadratic():
    rng = np.random.default_rng(2)
    root = rng.normal(size=(8, 8))
    matrix, target = root @ root.T + 0.1 * np.eye(8), rng.normal(size=8)

    def vector(fields):
        return Pairwise(fields, np.zeros(1))

    def quadratic(at):
        off = at.fields - target
        return 1.0 + 0.5 * off @ matrix @ off, vector(matrix @ off)

    found = minimise(quadratic, vector(np.zeros(8)), vector(np.ones(8)), 300, 1e-15)
    np.testing.assert_allclose(found.at.fields, target, atol=1e-4)
    assert (
        found.converged
        and not minimise(quadratic, vector(np.zeros(8)), vector(np.ones(8)), 2, 1e-15).converged
    )


def test_l_bfgs_ends_where_rounding_hides_what_is_lower():
    start = Pairwise(np.arange(3.0), np.zeros(1))
    slope = Pairwise(np.full(3, 1e-9), np.zeros(1))

    def rounded(at):
        return 1.0 if (at.fields == start.fields).all() else 1.0 + 1e-15, slope

    found = minimise(rounded, start, Pairwise(np.ones(3), np.ones(1)))
    assert found.converged and found.iterations == 1
    np.testing.assert_array_equal(found.at.fields, start.fields)
