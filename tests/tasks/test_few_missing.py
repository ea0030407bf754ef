"""Rows of which few entries are missing, against enumeration in NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest

import undirected as un
from tests import oracle
from undirected.tasks import few_missing
from undirected.tasks.few_missing import takes_few
from undirected.tasks.query import answer_rows

RNG = np.random.default_rng(4)
V, H, K = 6, 3, 2


def numbers(*shape):
    return jnp.asarray(RNG.normal(0, 2.0, shape), jnp.float32)


def frustrated():
    """W, b and c of an RBM whose units have no field of their own, where messages go wrong."""
    W = np.asarray(numbers(V, H))
    return W, -W.sum(1) / 2, -W.sum(0) / 2


def states_of(widths):
    """Joint states in units: 0/1 for a width of 1, one of several otherwise."""
    counts = [2 if width == 1 else width for width in widths]
    found = []
    for state in np.ndindex(*counts):
        parts = [
            np.array([s]) if width == 1 else np.eye(width)[s]
            for s, width in zip(state, widths, strict=True)
        ]
        found.append(np.concatenate(parts))
    return np.array(found)


def means(states, logs, row):
    """Means of the units over the states that agree with a row."""
    known = ~np.isnan(row)
    agree = (states[:, known] == row[known]).all(1)
    w = np.where(agree, np.exp(logs - logs[agree].max()), 0.0)
    return w @ states / w.sum()


def softplus(a):
    return np.logaddexp(0, a)


def rows_with_holes(states, rng, count=12):
    rows = states[rng.integers(0, len(states), count)].astype(np.float32)
    rows[rng.random(rows.shape) < 0.4] = np.nan
    rows[0], rows[1] = np.nan, states[3]
    return rows


def test_binary_models_answer_as_by_enumeration():
    (W, b, c), U, d = frustrated(), np.asarray(numbers(V, K)), np.zeros(K)
    states = states_of([1] * V)
    experts = states @ b + softplus(states @ W + c).sum(1)
    mixture = np.logaddexp.reduce(states @ U + d, 1)
    rows = rows_with_holes(states, np.random.default_rng(0))
    models = {
        "rbm": (un.RBM(*map(jnp.asarray, (W, b, c))), experts),
        "mixture": (un.MixtureRBM(*map(jnp.asarray, (W, U, b, c, d))), experts + mixture),
    }
    for model, logs in models.values():
        found = answer_rows(model, rows)
        wanted = np.stack([means(states, logs, row) for row in rows])
        np.testing.assert_allclose(found.values, wanted, atol=2e-5)
        assert found.converged == 1.0
        loopy = answer_rows(model, rows, method="bp").values  # which is not exact here
        assert abs(loopy - wanted).max() > 1e-2


def test_columns_of_several_states_answer_as_by_enumeration():
    """A Potts model without hidden units; the rows lack zero to three of three variables."""
    q, n = 3, 3
    graph = un.graph.from_edges(n, [(0, 1), (1, 2), (0, 2)])
    J, f = np.asarray(numbers(3, q, q)), np.asarray(numbers(n, q))
    model = un.Potts(jnp.asarray(J), jnp.asarray(f), graph)
    states = states_of([q] * n)
    x = states.reshape(-1, n, q)
    logs = np.einsum("siq,iq->s", x, f)
    for (i, j), table in zip(np.asarray(graph.edges).tolist(), J, strict=True):
        logs = logs + np.einsum("sp,pq,sq->s", x[:, i], table, x[:, j])
    rows = states[RNG.integers(0, len(states), 8)].astype(np.float32)
    gone = np.repeat(RNG.random((8, n)) < 0.5, q, 1)
    rows = np.where(gone, np.nan, rows).astype(np.float32)
    wanted = np.stack([means(states, logs, row) for row in rows])
    np.testing.assert_allclose(answer_rows(model, rows).values, wanted, atol=2e-5)


def test_a_label_of_two_states_and_a_binary_unit_lack_different_units():
    """Rows that lack one of the binary units, or the label: two states each, in one batch."""
    parts = numbers(5, 3), numbers(5), numbers(3)
    W, b, c = map(np.asarray, parts)
    model, states = un.RBM(*parts, label_states=2), states_of([1, 1, 1, 2])
    logs = states @ b + softplus(states @ W + c).sum(1)
    rows = np.array([[1, np.nan, 0, 0, 1], [1, 0, 0, np.nan, np.nan], [np.nan, 1, 1, 1, 0]])
    for batch in (rows, rows[::-1]):
        wanted = np.stack([means(states, logs, row) for row in batch])
        np.testing.assert_allclose(answer_rows(model, batch).values, wanted, atol=2e-5)


def test_rows_with_many_holes_go_elsewhere_and_the_others_stay_exact(monkeypatch):
    parts = frustrated()
    model, truth = un.RBM(*map(jnp.asarray, parts)), oracle.rbm(*parts)
    monkeypatch.setattr(few_missing, "MOST_STATES", 4)
    monkeypatch.setattr(few_missing, "MOST_NUMBERS", 1)
    rows = np.tile(np.array([1, 0, 1, 1, 0, 1], np.float32), (3, 1))
    rows[0, :2], rows[1, :3] = np.nan, np.nan
    found, loopy = answer_rows(model, rows).values, answer_rows(model, rows, method="bp").values
    seen = np.append(~np.isnan(rows[0]), np.zeros(H, bool))
    state = np.append(np.nan_to_num(rows[0]), np.zeros(H))
    np.testing.assert_allclose(found[0], truth.given(seen, state).means[:V], atol=2e-5)
    np.testing.assert_allclose(found[1], loopy[1], atol=1e-5)
    assert abs(found[0] - loopy[0]).max() > 1e-4
    np.testing.assert_array_equal(found[2], rows[2])


def test_units_without_end_are_not_weighed():
    assert not takes_few(un.GaussianRBM.create(3, 2, seed=0))
    assert takes_few(un.RBM.create(3, 2, seed=0))
    assert not takes_few(un.DeepBM.create([3, 2, 2], seed=0))


def test_forbidden_rows_are_named():
    hard = un.markov_network([2, 2, 2], {(0, 1): [[1, 0], [0, 0]], (1, 2): [[1, 1], [1, 1]]})
    rows = np.array([[0, np.nan, 1], [1, 0, np.nan]], np.float32)
    with pytest.raises(un.UndirectedError, match=r"row 1 \(0=1, 1=0\) contradicts itself"):
        un.query(hard, rows)


def test_progress_of_both_kinds_of_rows_is_told_as_one(monkeypatch):
    """Two rows are weighed state by state, in batches of one, and then one goes by messages."""
    monkeypatch.setattr(few_missing, "MOST_STATES", 2)
    monkeypatch.setattr(few_missing, "MOST_NUMBERS", 1)
    rows = np.zeros((3, V), np.float32)
    rows[0, 0] = rows[1, 1] = rows[2, :3] = np.nan
    told = []
    rbm = un.RBM(*(jnp.asarray(part, jnp.float32) for part in frustrated()))
    answer_rows(rbm, rows, seed=0, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]
