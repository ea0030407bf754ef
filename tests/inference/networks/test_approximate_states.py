import time

import numpy as np
import pytest

from tests.inference.networks.enumeration import enumerated, grid, random_network
from undirected.inference.networks import approximate_states, search
from undirected.inference.networks.answers import BestState

GIB = 2**30


def test_small_networks_are_exact():
    for seed in range(10):
        network = random_network(seed, n=7, tables=10)
        top = enumerated(network)[2]
        best = approximate_states.best_state(network, time.monotonic() + 60, GIB, seed)
        assert best.value == pytest.approx(top, abs=1e-9)
        assert best.value == network.value(best.state)
        assert best.upper == pytest.approx(top, abs=1e-9)


def test_bounds_enclose_where_memory_is_short(monkeypatch):
    """Minis of few entries, on networks that need more."""
    monkeypatch.setattr(search, "BYTES_PER_ENTRY", 10**5)
    for seed in range(3):
        network = random_network(seed, n=9, tables=16, zeros=0.1)
        top = enumerated(network)[2]
        best = approximate_states.best_state(network, time.monotonic() + 0.3, 10**8, seed)
        assert best.value == pytest.approx(top, abs=1e-9) and best.upper >= top - 1e-9


def test_a_deadline_that_has_passed_gives_an_answer():
    network = random_network(0, n=9, tables=16)
    best = approximate_states.best_state(network, time.monotonic() - 1, GIB, 0)
    assert best.value == network.value(best.state)


def test_the_reduction_has_a_share_of_the_time(monkeypatch):
    """It ends before the deadline, however much there is to reduce."""
    shares, reduce_network = [], approximate_states.reduce_network

    def watched(network, bound, until):
        now = time.monotonic()
        shares.append((until - now) / (deadline - now))
        return reduce_network(network, bound, until)

    monkeypatch.setattr(approximate_states, "reduce_network", watched)
    deadline = time.monotonic() + 100
    approximate_states.best_state(random_network(0, n=7, tables=10), deadline, GIB, 0)
    assert shares and all(0 < share < 0.5 for share in shares)


class FakeSolver:
    """Finds a state that it was told, at once or only when it is asked again."""

    def __init__(self, state: np.ndarray, late: bool):
        self.state, self.asked, self.late = state, 0, late
        self.kept: list[int] = []

    def __enter__(self) -> "FakeSolver":
        return self

    def __exit__(self, *_: object) -> None:
        self.asked = -1

    def wait(self, until: float) -> None:
        assert until > time.monotonic()

    def answer(self) -> BestState | None:
        self.asked += 1
        if self.late and self.asked == 1:
            return None
        return BestState(self.state[self.kept], 0.0, 0.0, "other")


@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
def test_a_proof_of_the_other_solver_is_taken(monkeypatch, late):
    network = grid(8, 1.0)
    right = best_of_grid(network)
    solver = FakeSolver(right, late)

    def begin(light, *_):
        solver.kept = approximate_states.reduce_network(network, approximate_states.LIGHT).kept
        assert light.cardinalities == (2,) * len(solver.kept)
        return solver

    monkeypatch.setattr(approximate_states.toulbar2, "available", lambda: True)
    monkeypatch.setattr(approximate_states.toulbar2.Solver, "begin", begin)
    monkeypatch.setattr(approximate_states, "STEPS", ())
    best = approximate_states.best_state(network, time.monotonic() + 60, GIB, 0)
    assert best.value == pytest.approx(network.value(right), abs=1e-9)
    assert best.upper == pytest.approx(best.value, abs=1e-9)
    assert best.method == "other" and solver.asked == -1  # the process is over


def best_of_grid(network):
    """By dynamic programming over the rows of a grid of 8 x 8, all 256 states of each."""
    side, rows = 8, ((np.arange(256)[:, None] >> np.arange(8)) & 1)
    tables = dict(zip(network.scopes, network.tables, strict=True))
    score, back = np.zeros(256), []
    for r in range(side):
        at = np.arange(side) + side * r
        own = sum(tables[int(v),][rows[:, i]] for i, v in enumerate(at))
        own = own + sum(
            tables[int(at[i]), int(at[i]) + 1][rows[:, i], rows[:, i + 1]] for i in range(side - 1)
        )
        if r:
            step = sum(
                tables[int(v) - side, int(v)][rows[:, None, i], rows[None, :, i]]
                for i, v in enumerate(at)
            )
            total = score[:, None] + step
            back.append(total.argmax(0))
            score = total.max(0)
        score = score + own
    path = [int(score.argmax())]
    for own in reversed(back):
        path.append(int(own[path[-1]]))
    return np.concatenate([rows[x] for x in reversed(path)])
