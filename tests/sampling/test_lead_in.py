"""Samples and answers by chains of models that forbid states, judged by the constraints alone."""

import itertools

import numpy as np
import pytest

import undirected as un
from undirected.core.errors import UndirectedError
from undirected.sampling import lead_in
from undirected.sampling.lead_in import forbids

N = 12
EDGES = [(i, (i + 1) % N) for i in range(N)] + [(i, (i + 5) % N) for i in range(0, N, 2)]


def colours() -> un.FactorGraph:
    return un.markov_network([3] * N, {e: 1 - np.eye(3) for e in EDGES})


def drawn(**options) -> np.ndarray:
    """States of 200 samples by chains of Gibbs: by itself the library would draw exactly."""
    units = un.sample(colours(), 200, kernel=un.Gibbs(), sweeps=100, seed=0, **options)
    return np.stack([units[i] for i in range(N)], 1)


def clashes(x: np.ndarray) -> np.ndarray:
    return np.sum([x[:, i] == x[:, j] for i, j in EDGES], 0)


@pytest.mark.slow
def test_samples_obey_every_constraint():
    x = drawn()
    assert clashes(x).sum() == 0
    shares = np.stack([(x == colour).mean(0) for colour in range(3)])
    # Colours are alike: 36 shares with a standard error of 0.034, one seed in a thousand fails.
    assert np.abs(shares - 1 / 3).max() < 0.14
    held = drawn(given={0: 2, 3: 2})
    assert clashes(held).sum() == 0 and (held[:, [0, 3]] == 2).all()


def test_chains_from_a_random_start_break_some(monkeypatch):
    """What is annealed away: without that the samples are refused."""
    monkeypatch.setattr(lead_in, "_led", lambda kernel, model, x, *rest: x)
    with pytest.raises(UndirectedError, match="of 200 chains ended in a state that the model forb"):
        drawn()


def test_chains_that_broke_a_constraint_set_out_again(monkeypatch):
    monkeypatch.setattr(lead_in, "TRIES", 1)
    with pytest.raises(UndirectedError, match="chains ended in a state"):
        un.sample(colours(), 300, kernel=un.Gibbs(), sweeps=5, seed=0)
    monkeypatch.setattr(lead_in, "TRIES", 30)
    assert len(un.sample(colours(), 300, kernel=un.Gibbs(), sweeps=5, seed=0)[0]) == 300


def test_chains_without_a_start_begin_where_the_model_allows():
    chains = un.run_chains(un.Gibbs(), colours(), chains=50, samples=3, seed=0)
    x = np.asarray(chains.x).reshape(150, N, 3).argmax(-1)
    assert clashes(x).sum() == 0


AB, BC = np.array([[5, 2, 1], [3, 0, 4.0]]), np.array([[1, 2], [3, 0], [1, 1.0]])


def network() -> un.FactorGraph:
    return un.markov_network([2, 3, 2], {(0, 1): AB, (1, 2): BC})


def test_answers_by_chains_know_what_contradicts_itself():
    """Means of 2000 sweeps are within 0.06 but for one seed in a thousand."""
    weight = {s: AB[s[0], s[1]] * BC[s[1], s[2]] for s in itertools.product(*map(range, (2, 3, 2)))}
    total = sum(w for s, w in weight.items() if s[2] == 1)
    found = un.query(network(), given={2: 1}, method="gibbs", seed=0)
    for state, p in found[1].items():
        want = sum(w for s, w in weight.items() if s[2] == 1 and s[1] == state) / total
        assert abs(p - want) < 0.06
    with pytest.raises(UndirectedError, match=r"row 0 \(.* came to .* may contradict itself"):
        un.query(network(), given={0: 1, 1: 1}, method="gibbs", seed=0)


def test_which_models_forbid():
    ones = np.ones((2, 3)), np.ones((3, 2))
    assert not forbids(un.markov_network([2, 3, 2], {(0, 1): ones[0], (1, 2): ones[1]}))
    assert not forbids(un.RBM.create(3, 2, seed=0)) and not forbids(
        un.GaussianRBM.create(3, 2, seed=0)
    )
    assert forbids(network())
    layout = un.discrete(x=3)
    assert forbids(un.FactorGraph.create(layout, [], np.array([0.0, -np.inf, 0.0])))
    assert forbids(un.FactorGraph.create(layout, [un.at_most(layout, [[0, 1, 2]], 1)]))
    why = un.choose_sampler(un.markov_network([3] * 60, dense(60))).why
    assert why == "Gibbs, from states that the model allows, found by annealing"


def dense(n: int) -> dict:
    """Constraints in a graph whose junction tree is large."""
    return {(i, (i + k) % n): 1 - np.eye(3) for i in range(n) for k in (1, 7, 17)}
