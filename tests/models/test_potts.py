"""Potts models: the forms of couplings, exact Gibbs sweeps, messages that name what is wrong."""

import jax.numpy as jnp
import numpy as np
import pytest

import undirected as un
from tests import oracle
from tests.sampling import cases
from tests.sampling.kernels import noise_driven
from undirected.core import graph
from undirected.core.errors import UndirectedError
from undirected.core.layout import to_units
from undirected.models import Potts
from undirected.sampling import Gibbs

EDGES = [(0, 1), (0, 2), (1, 2)]


def test_one_table_for_all_edges_and_all_pairs_of_a_dense_model(x64):
    rng = np.random.default_rng(0)
    table, fields = rng.normal(size=(3, 3)), rng.normal(size=(3, 3))
    truth = oracle.potts(np.broadcast_to(table, (3, 3, 3)), fields, EDGES)
    model = Potts(jnp.asarray(table), jnp.asarray(fields))
    np.testing.assert_allclose(-model.energy(jnp.asarray(truth.states)), truth.log_weights)


def test_the_standard_model_rewards_ends_that_agree(x64):
    model = Potts.standard(graph.chain(3), 3, 0.7)
    truth = oracle.potts(0.7 * np.array([np.eye(3)] * 2), np.zeros((3, 3)), [(0, 1), (1, 2)])
    np.testing.assert_allclose(-model.energy(jnp.asarray(truth.states)), truth.log_weights)


def test_gibbs_goes_colour_by_colour_and_leaves_the_truth_invariant(x64):
    rng = np.random.default_rng(1)
    where = graph.chain(3)
    couplings, fields = rng.normal(size=(2, 3, 3)), rng.normal(size=(3, 3))
    model = Potts(jnp.asarray(couplings), jnp.asarray(fields), where)
    truth = oracle.potts(couplings, fields, np.asarray(where.edges))
    assert model.lower().colours.tolist() == [[0, 1, 2, 6, 7, 8], [3, 4, 5, 9, 9, 9]]
    variables = [slice(3 * i, 3 * i + 3) for i in range(3)]
    sweep = noise_driven(Gibbs(), model)
    matrix = cases.transition_matrix(sweep, truth.states, truth.states, variables)
    np.testing.assert_allclose(truth.probabilities @ matrix, truth.probabilities, atol=1e-12)


def test_refusals_say_what_is_wanted():
    with pytest.raises(UndirectedError, match=r"couplings \(2, 3, 3\).*\(3, 3\) or \(3, 3, 3\)"):
        Potts(jnp.zeros((2, 3, 3)), jnp.zeros((3, 3)))
    with pytest.raises(UndirectedError, match="q at least 2"):
        Potts.create(4, 1)
    assert Potts.create(4, 2).couplings.shape == (6, 2, 2)
    assert Potts.create(graph.chain(4), 3, shared=True).couplings.shape == (3, 3)


def test_rows_of_state_numbers_are_refused_with_how_to_make_them_one_hot():
    model, states = Potts.create(4, 3), np.array([[0, 1, 2, 0], [1, 1, 1, 2]])
    calls = {
        "fit": lambda rows: un.fit(model, rows, epochs=1, seed=0),
        "evaluate": lambda rows: un.evaluate(model, rows),
        "query": lambda rows: un.query(model, rows),
        "pseudo_log_likelihood": lambda rows: un.pseudo_log_likelihood(model, rows),
        "Gibbs": lambda rows: un.run_chains(Gibbs(), model, rows, samples=1, seed=0),
        "energy": model.energy,
    }
    for name, call in calls.items():
        with pytest.raises(
            UndirectedError, match=rf"{name}: .*to_units\(.* one-hot rows of numbers"
        ):
            call(states)
        call(to_units(model.layout, states))
    with pytest.raises(
        UndirectedError, match=r"energy: .*\(2, 5\).*; pass joint states \(\*batch, 12\)$"
    ):
        model.energy(np.zeros((2, 5)))


@pytest.mark.parametrize("shared", [False, True])
def test_the_zero_sum_gauge_is_the_same_distribution(x64, shared):
    rng = np.random.default_rng(2)
    where = graph.chain(3)
    couplings = rng.normal(size=(3, 3) if shared else (2, 3, 3))
    model = Potts(jnp.asarray(couplings), jnp.asarray(rng.normal(size=(3, 3))), where, 0.7)
    edges = np.asarray(where.edges)
    tables = np.broadcast_to(couplings, (2, 3, 3))
    truth = oracle.potts(tables, model.fields, edges, 0.7)
    gauge = model.zero_sum()
    np.testing.assert_allclose(-gauge.energy(jnp.asarray(truth.states)), truth.log_weights)
    for axis in (-1, -2):
        np.testing.assert_allclose(gauge.couplings.sum(axis), 0, atol=1e-12)
    np.testing.assert_allclose(gauge.fields.sum(1), 0, atol=1e-12)
    assert abs(model.couplings.sum(-1)).max() > 0.1


def test_a_matrix_of_all_couplings_and_back():
    rng = np.random.default_rng(3)
    model = Potts(jnp.asarray(rng.normal(size=(6, 3, 3))), jnp.zeros((4, 3)))
    matrix = model.coupling_matrix
    for (i, j), table in zip(np.asarray(model.graph.edges), model.couplings, strict=True):
        np.testing.assert_array_equal(matrix[i, :, j], table)
        np.testing.assert_array_equal(matrix[j, :, i], table.T)
    np.testing.assert_array_equal(matrix[2, :, 2], 0)
    np.testing.assert_array_equal(Potts.dense(model.fields, matrix).couplings, model.couplings)
