from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

import undirected as un
from tests import oracle
from tests.evaluation.reference import make_rbm, make_torus
from undirected.core.errors import NotFinite, UndirectedError
from undirected.evaluation import (
    AISResult,
    ais_rows,
    log_likelihood,
    pseudo_log_likelihood,
    reconstruction_error,
)
from undirected.factors import tables
from undirected.models import DeepBM, FactorGraph, Ising, ModelPath, NonnegativeBM, discrete
from undirected.sampling import BlockGibbs


def enumerated(label_states: int):
    """A small RBM, its truth, 23 rows of data and log of the unnormalised visible marginal."""
    model = make_rbm(7, 4, 1.0, seed=1, label_states=label_states)
    truth = oracle.rbm(model.weights, model.visible_bias, model.hidden_bias, label_states)
    rng = np.random.default_rng(0)
    rows = truth.states[rng.integers(0, len(truth.states), 23), :7]
    return model, truth, rows, oracle.visible_marginal(truth, 7)


def as_key(v) -> tuple[int, ...]:
    return tuple(int(a) for a in v)


def brute_pseudo(v, marginal, groups) -> float:
    """sum over variables of log p(v_i | rest), from the table of visible marginals."""
    total = 0.0
    for group in groups:
        options = np.eye(len(group)) if len(group) > 1 else np.array([[0.0], [1.0]])
        others = []
        for option in options:
            other = v.copy()
            other[group] = option
            others.append(marginal[as_key(other)])
        total += marginal[as_key(v)] - np.logaddexp.reduce(others)
    return total


@pytest.mark.parametrize("label_states", [0, 3])
@pytest.mark.parametrize("chunk", [5, 1000])
def test_log_likelihood_is_that_of_enumeration(x64, label_states, chunk):
    model, truth, rows, marginal = enumerated(label_states)
    values = np.array([marginal[as_key(v)] for v in rows]) - truth.log_z
    found = log_likelihood(model, rows, truth.log_z, chunk=chunk)
    assert found.mean == pytest.approx(values.mean(), abs=1e-5)
    assert found.stderr == pytest.approx(values.std(ddof=1) / np.sqrt(23), abs=1e-5)
    assert found.n == 23
    np.testing.assert_allclose(found.rows, values, atol=1e-5)
    assert "rows" not in repr(found)
    assert (*found,) == (found.mean, found.stderr, found.n)


@pytest.mark.parametrize(("label_states", "chunk"), [(0, 5), (3, 1000)])
def test_pseudo_log_likelihood_is_that_of_enumeration(label_states, chunk):
    model, _, rows, marginal = enumerated(label_states)
    groups = [[i] for i in range(7 - label_states)]
    groups += [list(range(7 - label_states, 7))] if label_states else []
    values = np.array([brute_pseudo(v, marginal, groups) for v in rows])
    found = pseudo_log_likelihood(model, rows, chunk=chunk)
    np.testing.assert_allclose(found.rows, values, atol=1e-5)
    assert found.mean == pytest.approx(values.mean(), abs=1e-5)
    assert found.stderr == pytest.approx(values.std(ddof=1) / np.sqrt(23), abs=1e-5)


def test_pseudo_log_likelihood_in_double_precision(x64):
    model, _, rows, marginal = enumerated(0)
    values = [brute_pseudo(v, marginal, [[i] for i in range(7)]) for v in rows]
    assert pseudo_log_likelihood(model, rows).mean == pytest.approx(np.mean(values), abs=1e-10)
    whole = jnp.asarray(rows.astype(int))
    np.testing.assert_array_equal(model.log_odds(whole), model.log_odds(jnp.asarray(rows)))


def test_pseudo_log_likelihood_of_ising():
    rng = np.random.default_rng(0)
    couplings, fields = rng.standard_normal((6, 6)), rng.standard_normal(6)
    couplings = (couplings + couplings.T) / 2
    truth = oracle.spins(couplings, fields)
    model = Ising.from_spins(jnp.asarray(couplings), jnp.asarray(fields))
    marginal = oracle.visible_marginal(truth, 6)
    rows = truth.states[::7]
    values = [brute_pseudo(v, marginal, [[i] for i in range(6)]) for v in rows]
    assert pseudo_log_likelihood(model, rows).mean == pytest.approx(np.mean(values), abs=1e-4)
    wanted = np.mean([marginal[as_key(v)] for v in rows]) - truth.log_z
    assert log_likelihood(model, rows, truth.log_z).mean == pytest.approx(wanted, abs=1e-4)


def test_pseudo_log_likelihood_stays_finite_for_certain_units():
    model = make_torus(4, 0.01)
    assert pseudo_log_likelihood(model, np.ones((3, 16))).mean == pytest.approx(0, abs=1e-6)
    board = np.indices((4, 4)).sum(0).reshape(1, 16) % 2
    assert pseudo_log_likelihood(model, board).mean == pytest.approx(-16 * 2 * 4 / 0.01, rel=1e-5)


@pytest.mark.parametrize("label_states", [0, 3])
def test_reconstruction_is_one_mean_field_step(label_states):
    model, _, rows, _ = enumerated(label_states)
    W, b, c = (
        np.asarray(a, np.float64) for a in (model.weights, model.visible_bias, model.hidden_bias)
    )
    h = 1 / (1 + np.exp(-(rows @ W + c)))
    fields = b + h @ W.T
    v = 1 / (1 + np.exp(-fields))
    if label_states:
        label = np.exp(fields[:, -label_states:])
        v[:, -label_states:] = label / label.sum(1, keepdims=True)
    values = ((v - rows) ** 2).mean(1)
    found = reconstruction_error(model, rows, chunk=10)
    assert found.mean == pytest.approx(values.mean(), abs=1e-6)
    assert found.stderr == pytest.approx(values.std(ddof=1) / np.sqrt(23), abs=1e-6)


def test_perfect_reconstruction():
    model = make_rbm(4, 4, 0.0)
    model = type(model)(400 * jnp.eye(4), jnp.full(4, -200.0), jnp.full(4, -200.0))
    rows = oracle.binary_states(4)
    assert reconstruction_error(model, rows).mean == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("measure", [pseudo_log_likelihood, reconstruction_error])
def test_bad_data_are_refused(measure):
    model = make_rbm(7, 4, 1.0, label_states=3)
    good = np.zeros((2, 7))
    good[:, 4] = 1
    measure(model, good)
    with pytest.raises(UndirectedError, match=r"shape \(2, 6\); pass \(rows, 7\)"):
        measure(model, good[:, :6])
    with pytest.raises(UndirectedError, match="shape"):
        measure(model, good[0])
    grey = good.copy()
    grey[0, 0] = 0.5
    with pytest.raises(UndirectedError, match=r"value 0\.5; wanted 0 or 1"):
        measure(model, grey)
    gap = good.copy()
    gap[0, 0] = np.nan
    with pytest.raises(NotFinite, match="1 of 14 entries"):
        measure(model, gap)
    with pytest.raises(UndirectedError, match="one-hot"):
        measure(model, np.zeros((2, 7)))
    with pytest.raises(UndirectedError, match="no rows"):
        measure(model, np.zeros((0, 7)))


def test_bad_log_z_is_refused():
    with pytest.raises(UndirectedError, match="log_z is nan"):
        log_likelihood(make_rbm(3, 2, 1.0), np.zeros((2, 3)), float("nan"))


def test_a_result_in_place_of_its_number_is_refused():
    found = AISResult(1.0, 0.1, (0.9, 1.1), np.ones(2), 2.0, jnp.zeros((2, 3)))
    with pytest.raises(UndirectedError, match=r"log_z is a AISResult; pass its number, `.log_z`"):
        log_likelihood(make_rbm(3, 2, 1.0), np.zeros((2, 3)), found)


def test_broken_model_is_named():
    model = make_rbm(3, 2, 1.0)
    broken = type(model)(model.weights * jnp.nan, model.visible_bias, model.hidden_bias)
    with pytest.raises(NotFinite, match="log_likelihood: result"):
        log_likelihood(broken, np.ones((2, 3)), 0.0)


def test_models_without_hidden_units_have_no_reconstruction():
    with pytest.raises(UndirectedError, match="Ising has no hidden blocks"):
        reconstruction_error(make_torus(4, 2.0), np.zeros((1, 16)))


# Models that sum out nothing, that know their conditionals, and whose hidden units stay.


def test_models_without_hidden_units_need_no_free_energy(x64):
    layout = discrete(kinds=(2, 3))
    table = np.arange(9.0).reshape(3, 3) / 4
    model = FactorGraph.create(layout, [tables(layout, [[0, 1]], table)], jnp.linspace(-1, 1, 6))
    states = oracle.grouped_states([3, 3])
    first, second = states[:, :3].argmax(1), states[:, 3:].argmax(1)
    values = states @ np.linspace(-1, 1, 6) + table[first, second]
    log_z = float(np.logaddexp.reduce(values))
    found = log_likelihood(model, states, log_z)
    np.testing.assert_allclose(found.rows, values - log_z, atol=1e-6)
    assert np.exp(found.rows).sum() == pytest.approx(1, abs=1e-6)
    joint = np.zeros((3, 3))
    joint[first, second] = np.exp(values)
    alone = joint / joint.sum(0, keepdims=True), joint / joint.sum(1, keepdims=True)
    wanted = np.log(alone[0][first, second]) + np.log(alone[1][first, second])
    np.testing.assert_allclose(pseudo_log_likelihood(model, states).rows, wanted, atol=1e-6)


def test_pseudo_log_likelihood_of_nonnegative_units():
    matrix = np.array([[1.5, 0.8], [0.8, 1.0]])
    bias = np.array([0.7, -0.5])
    model = NonnegativeBM.from_matrix(jnp.asarray(matrix), jnp.asarray(bias))
    rows = np.array([[0.2, 0.0], [1.0, 2.0]])
    wanted = np.zeros(2)
    for r, row in enumerate(rows):
        for i, j in ((0, 1), (1, 0)):
            field = bias[i] - matrix[i, j] * row[j]
            own = matrix[i, i]
            norm, _ = integrate.quad(lambda x, l=field, w=own: np.exp(l * x - w * x**2 / 2), 0, 30)
            wanted[r] += field * row[i] - 0.5 * own * row[i] ** 2 - np.log(norm)
    np.testing.assert_allclose(pseudo_log_likelihood(model, rows).rows, wanted, atol=1e-5)


def deep():
    """Two hidden layers, the sum over their states for every visible state, and log Z."""
    rng = np.random.default_rng(0)
    sizes = [4, 3, 3]
    weights = [rng.normal(size=s) for s in ((4, 3), (3, 3))]
    biases = [rng.normal(size=n) for n in sizes]
    x = oracle.binary_states(10)
    v, h, g = x[:, :4], x[:, 4:7], x[:, 7:]
    logs = np.einsum("ri,ij,rj->r", v, weights[0], h) + np.einsum("ri,ij,rj->r", h, weights[1], g)
    logs = logs + x @ np.concatenate(biases)
    rows = oracle.binary_states(4)
    sums = np.array([np.logaddexp.reduce(logs[(v == row).all(1)]) for row in rows])
    parts = [tuple(jnp.asarray(a, jnp.float32) for a in part) for part in (weights, biases)]
    return DeepBM(*parts), rows, sums


def test_hidden_units_that_cannot_be_summed_are_sampled():
    """The error of a row has a spread of up to 0.019, that of the mean 0.0034: 5 of each pass."""
    model, rows, sums = deep()
    path = ModelPath(model.independent(jnp.full(4, 0.3)), model)
    found = ais_rows(path, BlockGibbs(), rows, jax.random.key(0), chains=400, betas=30)
    assert found.shape == (16,)
    np.testing.assert_allclose(found, sums, atol=0.095)
    assert abs((found - sums).mean()) < 0.017
    free = ais_rows(path, Loose(BlockGibbs()), rows, jax.random.key(0), chains=400, betas=30)
    assert np.abs(free - sums).max() > 0.5
    with pytest.raises(UndirectedError, match="DeepBM cannot be summed out; use ais_rows"):
        log_likelihood(model, rows, 0.0)


@dataclass(frozen=True)
class Loose:
    """Broken: moves the visible units too."""

    kernel: BlockGibbs

    def init(self, model, x, key):
        return self.kernel.init(model, x, key)

    def step(self, model, state, free, key):
        return self.kernel.step(model, state, jnp.ones_like(free), key)


def test_rows_by_annealing_are_exact_where_hidden_units_can_be_summed():
    model, _, rows, marginal = enumerated(3)
    path = ModelPath(model.independent(), model)
    found = ais_rows(path, BlockGibbs(), rows, jax.random.key(0), chains=2, betas=3)
    np.testing.assert_allclose(found, [marginal[as_key(v)] for v in rows], atol=1e-4)


def test_an_estimated_log_z_prints_in_one_line():
    model = un.Ising.create(3)
    found = un.log_partition(model, method="ais", chains=4, betas=3, seed=0)
    assert found.sides is not None and "\n" not in repr(found) and len(repr(found)) < 200
