"""The search over maximised variables, on values that are given by a table."""

import time

import numpy as np
import pytest

from undirected.inference.networks.marginal_map import climb
from undirected.inference.networks.simplify import Inconsistent

SIZES = (3, 2, 4)
"""The second variable is not maximised."""
MAXIMISED = frozenset({0, 2})


def local_maxima(table: np.ndarray) -> list[tuple[int, int]]:
    """States of the first and the third variable that no change of one of them improves."""
    return [
        (a, c)
        for a, c in np.ndindex(*table.shape)
        if table[a, c] == max(table[:, c].max(), table[a].max()) > -np.inf
    ]


@pytest.mark.parametrize("start", [[2, 1, 0], [0, 0, 3]], ids=["one", "other"])
def test_no_single_change_improves_what_is_found(start: list[int]) -> None:
    """From a start that the marginals prefer, so that the first change to try is none at all."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        table = rng.normal(size=(3, 4))
        table[rng.random(table.shape) < 0.2] = -np.inf

        def value(state: np.ndarray, table: np.ndarray = table) -> float:
            if table[state[0], state[2]] == -np.inf:
                raise Inconsistent
            return float(table[state[0], state[2]])

        marginals = [
            0.3 / (k - 1) + (0.7 - 0.3 / (k - 1)) * np.eye(k)[s]
            for k, s in zip(SIZES, start, strict=True)
        ]
        deadline = time.monotonic() + 60
        state, best = climb(np.array(start), marginals, MAXIMISED, value, deadline, seed)
        assert (state[0], state[2]) in local_maxima(table)
        assert best == table[state[0], state[2]]
        assert state[1] == start[1]


def test_a_deadline_that_has_passed_gives_the_start() -> None:
    halves = [np.full(k, 1 / k) for k in SIZES]
    deadline = time.monotonic() - 1
    found = climb(np.array([0, 0, 0]), halves, MAXIMISED, lambda s: float(s.sum()), deadline, 0)
    assert found[0].tolist() == [0, 0, 0] and found[1] == 0.0
