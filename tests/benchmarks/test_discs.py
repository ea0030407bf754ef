"""The tasks of DISCS are the distributions it states; the benchmark tells who has more draws."""

import numpy as np
import pytest
from benchmarks.discs import GRADIENTS, RATE, check_same, fhmm, goals, ising, potts

from tests import oracle
from undirected.experiments.record import Row


def differ_by_a_constant(model, states, log_weights):
    gap = -np.asarray(model.energy(states)) - log_weights
    np.testing.assert_allclose(gap, gap[0], atol=2e-4)


def test_hidden_markov_chains_are_those_of_their_definition():
    """log p(x, y) summed over times and chains, term by term."""
    task = fhmm(3, 3)
    w, b, y = (np.asarray(task.params[name]) for name in "wby")
    sigma, alpha, beta = (task.settings[name] for name in ("sigma", "alpha", "beta"))
    states = oracle.binary_states(9)
    wanted = []
    for x in states.reshape(-1, 3, 3):
        total = -(((y - x @ w - b) / sigma) ** 2).sum() / 2
        total += np.where(x[0] == 1, np.log(alpha), np.log(1 - alpha)).sum()
        stays = x[1:] == x[:-1]
        wanted.append(total + np.where(stays, np.log(beta), np.log(1 - beta)).sum())
    differ_by_a_constant(task.model, states.astype(np.float32), np.array(wanted))


def test_lattices_are_those_of_their_parameters():
    """Of the parameters that DISCS is given: -(1/2 sum of neighbours + field) of every site."""
    task = ising(3)
    (across, down, b), states = task.params["params"], oracle.binary_states(9)
    s = (2 * states - 1).reshape(-1, 3, 3)
    pairs = (across[:, 1:] * s[:, :, 1:] * s[:, :, :-1]).sum((1, 2))
    pairs += (down[1:] * s[:, 1:] * s[:, :-1]).sum((1, 2))
    differ_by_a_constant(task.model, states.astype(np.float32), -pairs - (b * s).sum((1, 2)))


def test_states_of_potts_lattices_are_whole_numbers():
    task = potts(3)
    numbers = np.random.default_rng(0).integers(4, size=(20, 3, 3))
    x = np.eye(4, dtype=np.float32)[numbers]
    across, _, b = task.params["params"]
    same = (numbers[:, 1:] == numbers[:, :-1]).sum((1, 2))
    same += (numbers[:, :, 1:] == numbers[:, :, :-1]).sum((1, 2))
    wanted = -across[0, 0, 0] * same - (b * x).sum((1, 2, 3))
    differ_by_a_constant(task.model, x.reshape(20, -1), wanted)
    np.testing.assert_array_equal(task.states(x.reshape(20, -1)), numbers)


def test_another_model_is_noticed():
    ours = np.array([1.0, 2.0, 5.0])
    check_same("same", ours, ours + 3)
    with pytest.raises(RuntimeError, match="another one"):
        check_same("other", ours, np.array([1.0, 2.0, 4.5]))


def test_goals():
    rates = {GRADIENTS: 2.0, "any-scale": 1.0, "discrete Langevin": 5.0, "Gibbs": 7.0}
    rates |= {"DISCS, discrete Langevin": 2.0, "DISCS, Gibbs": 3.5}
    rows = [Row("task", name, RATE, rate, better="higher") for name, rate in rates.items()]
    told = list(goals(rows))
    assert (
        told[0].startswith("task: discrete Langevin has 2.5 times") and "goal 1: reached" in told[0]
    )
    assert told[1] == "task: discrete Langevin has 2.5 times the draws of DISCS's own."
    assert "has 2 times the draws of the best of DISCS, Gibbs; goal 3: not reached" in told[-1]
