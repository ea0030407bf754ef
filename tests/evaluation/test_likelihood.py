import jax.numpy as jnp
import numpy as np
import pytest

from tests import oracle
from tests.evaluation.reference import make_rbm, make_torus
from undirected.core.errors import NotFinite, UndirectedError
from undirected.evaluation import (
    AISResult,
    log_likelihood,
    pseudo_log_likelihood,
    reconstruction_error,
)
from undirected.models import Ising


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


@pytest.mark.parametrize(("label_states", "chunk"), [(0, 5), (3, 1000)])
def test_pseudo_log_likelihood_is_that_of_enumeration(label_states, chunk):
    model, _, rows, marginal = enumerated(label_states)
    groups = [[i] for i in range(7 - label_states)]
    groups += [list(range(7 - label_states, 7))] if label_states else []
    values = np.array([brute_pseudo(v, marginal, groups) for v in rows])
    found = pseudo_log_likelihood(model, rows, chunk=chunk)
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
