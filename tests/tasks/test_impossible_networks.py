"""Networks without any state that is allowed: their log Z is -inf."""

import numpy as np
import pytest

import undirected as un


def contradictory(states: int, others: int = 0) -> un.FactorGraph:
    """Two variables that must be equal and must differ, beside others in a chain."""
    same = np.eye(states)
    tables = [((0, 1), same), ((1, 0), 1 - same)]
    tables += [((i, i + 1), np.full((states, states), 3.0)) for i in range(1, 1 + others)]
    return un.markov_network([states] * (2 + others), tables)


@pytest.mark.parametrize(("states", "others"), [(2, 0), (3, 0), (3, 30)])
def test_log_z_of_nothing_is_minus_infinity(states, others):
    net = contradictory(states, others)
    found = un.log_partition(net)
    assert (found.value, found.interval) == (-np.inf, (-np.inf, -np.inf))
    assert found.method == "exact" and found.agree and found.note is None
    assert un.solve(net, "pr").log_z == -np.inf


def test_annealing_that_meets_no_state_says_that_it_proves_nothing():
    found = un.log_partition(contradictory(2), method="ais", chains=5, betas=20, seed=0)
    assert (found.value, found.interval) == (-np.inf, (-np.inf, np.inf))
    assert not found.agree and "no chain of AIS came to a state" in str(found.note)


@pytest.mark.parametrize("method", ["auto", "ais"])
def test_every_row_of_nothing_is_impossible(method):
    rows = {0: [0, 1, None], 1: [0, 0, 1]}
    options = {"method": method, "chains": 5, "betas": 20, "seed": 0}
    found = un.evaluate(contradictory(2), rows, **options)
    assert found.log_z.value == -np.inf and found.impossible == 3
    assert found.log_likelihood.mean == -np.inf and found.pseudo_log_likelihood is None


def test_a_question_about_nothing_says_that_no_state_is_allowed():
    for states, method in ((2, "auto"), (3, "exact")):
        with pytest.raises(un.UndirectedError, match="the model forbids every state"):
            un.query(contradictory(states), method=method)
