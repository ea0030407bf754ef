"""Interaction screening finds the model that exact frequencies come from."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import undirected as un
from tests import oracle
from undirected.core.errors import UndirectedError


def chances(energies):
    weight = np.exp(-np.asarray(energies, float))
    return weight / weight.sum()


@pytest.mark.parametrize("method", ["rise", "logrise"])
def test_ising(method):
    rng = np.random.default_rng(0)
    weights, bias = np.triu(rng.normal(size=(4, 4)), 1), rng.normal(size=4)
    rows = np.array(list(itertools.product((0, 1), repeat=4)))
    logs = np.einsum("ni,ij,nj->n", rows, weights, rows) + rows @ bias
    how = {"method": method, "l2": 0.0, "weights": chances(-logs)}
    found = un.interaction_screening(un.Ising.create(4), rows, **how)
    np.testing.assert_allclose(found.couplings, weights + weights.T, atol=0.03)
    np.testing.assert_allclose(found.bias, bias, atol=0.03)


@pytest.mark.parametrize("units", [False, True])
def test_potts_by_integers_or_units(units):
    rng = np.random.default_rng(1)
    tables, fields = rng.normal(size=(3, 3, 3)), rng.normal(size=(3, 3))
    truth = oracle.potts(tables, fields, [(0, 1), (0, 2), (1, 2)])
    rows = truth.states if units else truth.states.reshape(-1, 3, 3).argmax(2)
    how = {"l2": 0.0, "weights": truth.probabilities}
    found = un.interaction_screening(un.Potts.create(3, 3), rows, **how)
    wanted = un.Potts(jnp.asarray(tables), jnp.asarray(fields)).zero_sum()
    np.testing.assert_allclose(found.couplings, wanted.couplings, atol=0.05)
    np.testing.assert_allclose(found.fields, wanted.fields, atol=0.05)


@pytest.mark.parametrize(
    ("model", "rows", "message"),
    [
        (un.RBM.create(2, 2), np.zeros((3, 2)), "got a RBM; pass an Ising or a Potts"),
        (un.Potts.create(un.graph.chain(3), 3), np.zeros((3, 3)), "has a graph or shared"),
        (un.Ising.create(3), np.zeros((3, 2)), r"shape \(3, 2\); pass at least two rows of 3"),
        (un.Ising.create(3), np.zeros((1, 3)), "at least two rows"),
        (un.Ising.create(3), np.full((3, 3), 2), "integers from 0 to 1"),
    ],
)
def test_refusals(model, rows, message):
    with pytest.raises(UndirectedError, match=message):
        un.interaction_screening(model, rows)
    with pytest.raises(UndirectedError, match="method 'pl'; pass rise or logrise"):
        un.interaction_screening(un.Ising.create(3), np.zeros((3, 3)), method="pl")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"l2": np.nan}, "l2 is nan; pass a number from 0"),
        ({"l2": -1}, "l2 is -1; pass a number from 0"),
        ({"iterations": 0}, "iterations is 0; pass a whole number from 1"),
        ({"weights": np.ones(3)}, r"weights of shape \(3,\) for 4 rows; pass one a row"),
        ({"weights": -np.ones(4)}, "none below 0"),
        ({"weights": np.zeros(4)}, "not all of them 0"),
    ],
)
def test_numbers_that_are_none_are_refused(options, message):
    """Where they did not stop the search they ended it at its start, which was called a fit."""
    rows = np.array([[0, 1], [1, 0], [1, 1], [0, 0]])
    with pytest.raises(UndirectedError, match=message):
        un.interaction_screening(un.Ising.create(2), rows, **options)
