"""Evidence and marginals by variable and state, against sums over all states in NumPy."""

from itertools import product

import numpy as np
import pytest

from undirected.core.errors import UndirectedError
from undirected.core.layout import marginals, to_units
from undirected.core.potentials import observe
from undirected.factors import tables
from undirected.inference import Exact
from undirected.models import FactorGraph, discrete

LAYOUT = discrete(a=2, b=(2, 3), c=1, d=(1, 4))
STATES = (2, 2, 3, 3, 2, 4)
PAIRS = [(0, 2), (1, 3), (2, 5), (4, 5), (3, 4)]


def model(seed: int) -> tuple[FactorGraph, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    found = [rng.normal(size=(STATES[i], STATES[j])) for i, j in PAIRS]
    groups = [tables(LAYOUT, [pair], [w]) for pair, w in zip(PAIRS, found, strict=True)]
    return FactorGraph.create(LAYOUT, groups), found


def enumerated(found: list[np.ndarray], given: dict[int, int]) -> np.ndarray:
    """Marginals (variable, state) by a sum over all states that agree with the evidence."""
    total = np.zeros((len(STATES), max(STATES)))
    for x in product(*map(range, STATES)):
        if all(x[i] == s for i, s in given.items()):
            weight = np.exp(sum(w[x[i], x[j]] for w, (i, j) in zip(found, PAIRS, strict=True)))
            total[np.arange(len(x)), x] += weight
    return total / total[0].sum()


@pytest.mark.parametrize("given", [{}, {1: 1}, {1: 0, 2: 2}, {5: 3, 3: 0, 4: 0, 0: 1}])
def test_marginals_given_evidence_are_those_of_enumeration(given: dict[int, int]) -> None:
    graph, found = model(len(given))
    beliefs = Exact()(observe(graph.lower(), given))
    np.testing.assert_allclose(
        marginals(LAYOUT, beliefs.unary), enumerated(found, given), atol=1e-5
    )


def test_states_become_units_and_come_back() -> None:
    states = np.array([[0, 0, 2, 0, 0, 3], [1, 0, 2, 1, 1, 0]])
    x = np.zeros((2, LAYOUT.n))
    x[1, 0] = 1  # variable 0; variable 1 is off
    x[:, 4] = 1  # variable 2 in state 2, of units 2 to 4
    x[0, 5], x[1, 6] = 1, 1  # variable 3
    x[1, 8] = 1  # variable 4
    x[0, 12], x[1, 9] = 1, 1  # variable 5
    np.testing.assert_array_equal(to_units(LAYOUT, states), x)
    np.testing.assert_array_equal(marginals(LAYOUT, x).argmax(-1), states)
    np.testing.assert_array_equal(marginals(LAYOUT, x).sum(-1), 1)
    with pytest.raises(UndirectedError, match="variable 3 has no state 3; pass one of 0 to 2"):
        to_units(LAYOUT, [0, 0, 2, 3, 0, 0])
    with pytest.raises(UndirectedError, match=r"shape \(5,\).*each of 6 variables"):
        to_units(LAYOUT, states[0, :5])
    with pytest.raises(UndirectedError, match="float64"):
        to_units(LAYOUT, states / 2)


def test_evidence_that_does_not_exist_is_refused() -> None:
    p = model(0)[0].lower()
    with pytest.raises(UndirectedError, match="no variable 6; pass a whole number, 0 to 5"):
        observe(p, {6: 0})
    with pytest.raises(UndirectedError, match="variable 2 has no state 3; pass one of 0, 1, 2"):
        observe(p, {2: 3})
    with pytest.raises(UndirectedError, match="no state -1"):
        observe(p, {0: -1})
