"""Rows that exclude some states of a variable and leave others open, against enumeration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import undirected as un
from undirected.core.errors import NotFinite, UndirectedError
from undirected.evaluation import ais_rows

RNG = np.random.default_rng(0)
TABLE, FIELDS = RNG.normal(size=(3, 3)), RNG.normal(size=6)
LOGS = TABLE + FIELDS[:3, None] + FIELDS[None, 3:]
LOG_Z = np.log(np.exp(LOGS).sum())
NO = np.nan
PARTS = [0, NO, NO, 0, NO, NO]
METHODS = ["auto", "exact", "bp", "gibbs"]


@pytest.fixture(scope="module")
def model():
    layout = un.discrete(y=(2, 3))
    return un.FactorGraph.create(layout, [un.potts(layout, TABLE)], jnp.asarray(FIELDS))


def means(row):
    """Means of all units over the states that agree with a row."""
    both = [(a, b) for a in range(3) for b in range(3)]
    states = np.array([np.concatenate([np.eye(3)[a], np.eye(3)[b]]) for a, b in both])
    known = ~np.isnan(row)
    agree = (states[:, known] == np.array(row)[known]).all(1)
    shares = np.where(agree, np.exp(LOGS.ravel()), 0.0)
    return shares @ states / shares.sum()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("first", [[NO, 0, 0], [0, NO, 0], [1, NO, NO], [NO, 1, NO]])
def test_a_variable_with_one_state_left_is_known(model, first, method):
    """Chains have 2,000 draws: 5 standard errors of independent ones are 0.056."""
    row = [*first, NO, NO, NO]
    found = un.query(model, [row], method=method, seed=0)[0]
    np.testing.assert_allclose(found, means(row), atol=0.056 if method == "gibbs" else 1e-5)
    draws = un.sample(model, 400, given=row, kernel=un.Gibbs(), sweeps=20, seed=0)
    np.testing.assert_allclose(draws.mean(0), means(row), atol=0.125)  # 5 standard errors
    assert np.isnan(row).sum() == 5 - (first.count(0) == 2)  # the caller's row is as it was


@pytest.mark.parametrize("method", METHODS[:3])
def test_two_variables_that_lack_as_many_entries_as_one_are_not_one(model, method):
    """The first lacks one entry, the second two: as many as one variable that is not known."""
    row = [NO, 0, 0, 0, NO, NO]
    np.testing.assert_allclose(un.query(model, [row], method=method)[0], means(row), atol=1e-5)


def test_chains_refuse_what_they_cannot_hold(model):
    said = "columns 0 to 2 of row 0 are .* leave 2 of them open"
    with pytest.raises(UndirectedError, match=said):
        un.query(model, [PARTS], method="gibbs")
    with pytest.raises(UndirectedError, match=said):
        un.sample(model, 2, given=PARTS, kernel=un.Gibbs())
    path = un.ModelPath(un.FactorGraph.create(model.layout), model)
    with pytest.raises(UndirectedError, match="one-hot"):
        ais_rows(path, un.Gibbs(), [PARTS], jax.random.key(0))


def test_exact_routines_obey_them(model):
    draws = un.sample(model, 2000, given=PARTS, seed=0)
    np.testing.assert_allclose(draws.mean(0), means(PARTS), atol=0.056)  # 5 standard errors
    found = un.evaluate(model, [PARTS], entries=True)
    wanted = np.log(np.exp(LOGS[1:, 1:]).sum()) - LOG_Z
    assert found.log_likelihood.mean == pytest.approx(wanted, abs=1e-5)


def test_a_variable_of_which_states_are_open_is_not_asked_for(model):
    """The bits of an entry are those of the second variable, the only one that is seen."""
    row = [0, NO, NO, 0, 1, 0]
    share = np.exp(LOGS[1:, 1]).sum() / np.exp(LOGS[1:]).sum()
    found = un.evaluate(model, [row]).held_out
    assert found is not None and found.mean == pytest.approx(-np.log2(share), abs=1e-4)


def test_known_rows_that_no_state_agrees_with_are_told():
    layout = un.discrete(x=3)
    both = un.FactorGraph.create(layout, [un.logical_or(layout, [[0, 1]], [2])])
    with pytest.raises(NotFinite, match="row 1 contradicts itself"):
        un.query(both, [[1, 0, 1], [0, 0, 1]])
    with pytest.raises(NotFinite, match="row 0 contradicts itself"):
        un.query(both, given={0: 1, 1: 0, 2: 0})
    assert un.query(both, given={0: 1, 1: 0, 2: 1}) == {}
