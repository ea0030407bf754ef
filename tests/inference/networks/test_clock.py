"""Engines look at the clock inside every long step, and are home in time.

Here time passes with every look at the clock alone, by one tick. A step that does not look never
reaches its deadline, and one that ignores what it sees goes on looking.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from math import inf

import numpy as np
import pytest

from undirected.inference.networks import toulbar2
from undirected.inference.networks.annealing import Annealing
from undirected.inference.networks.block_gibbs import BlockTree, beliefs_and_draw
from undirected.inference.networks.cliques import clique_tree
from undirected.inference.networks.clock import OutOfTime
from undirected.inference.networks.conditioning import choose_cutset
from undirected.inference.networks.cost_shifting import tighten
from undirected.inference.networks.cutsets import random_block
from undirected.inference.networks.join_graph import Propagation, join_graph
from undirected.inference.networks.low_degree import eliminate_low_degree
from undirected.inference.networks.mini_buckets import eliminate, work
from undirected.inference.networks.network import Network
from undirected.inference.networks.orders import find_order
from undirected.inference.networks.reduction import reduce_network
from undirected.inference.networks.simplify import simplify
from undirected.tasks.solve import solve

SIDE = 15
LIMIT, SLACK = 20, 12
"""Looks at the clock before the deadline, and at most after it."""


class Clock:
    """A clock that ticks when it is looked at."""

    def __init__(self, tick: float = 1.0):
        self.now, self.tick = 0.0, tick

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    own = Clock()
    monkeypatch.setattr(time, "monotonic", own)
    return own


def grid(side: int = SIDE, states: int = 2) -> Network:
    """A square grid with random tables."""
    rng, at = np.random.default_rng(0), np.arange(side * side).reshape(side, side)
    pairs = [(at[:, :-1], at[:, 1:]), (at[:-1], at[1:])]
    scopes = [(int(a), int(b)) for x, y in pairs for a, b in zip(x.flat, y.flat, strict=True)]
    tables = tuple(rng.normal(size=(states, states)) for _ in scopes)
    return Network((states,) * side**2, tuple(scopes), tables)


NET = grid()
ROWS = list(range(SIDE * SIDE))


def chain() -> Network:
    """One that takes many rounds to be gone."""
    scopes = tuple((v, v + 1) for v in range(3000))
    return Network((2,) * 3001, scopes, (np.zeros((2, 2)),) * len(scopes))


class Ready:
    """What steps start from."""

    def __init__(self) -> None:
        order = find_order(NET.cardinalities, NET.scopes, restarts=0)
        assert order is not None
        self.order = order
        self.tree = clique_tree(NET.cardinalities, NET.scopes, order)
        self.graph = join_graph(NET, ROWS, 4.0)
        self.run = Propagation.start(NET, self.graph)
        self.block = random_block(NET, ROWS, 6.0, key())
        self.block_tree = BlockTree.of(NET, self.block)
        self.chains = Annealing.of(NET, key(), 4)


def key() -> np.random.Generator:
    return np.random.default_rng(0)


def orders(until: float, _: Ready) -> object:
    return find_order(NET.cardinalities, NET.scopes, until, restarts=4, good=0.0)


def cliques(until: float, ready: Ready) -> object:
    return clique_tree(NET.cardinalities, NET.scopes, ready.order, deadline=until)


def cutset_states(until: float, ready: Ready) -> object:
    return ready.block_tree.load(np.zeros(SIDE * SIDE, int), until)


STEPS: dict[str, Callable[[float, Ready], object]] = {
    "simplification": lambda until, _: simplify(NET, deadline=until),
    "summing out": lambda until, _: simplify(chain(), wanted=(), deadline=until),
    "orders": orders,
    "cliques": cliques,
    "cutset": lambda until, ready: choose_cutset(ready.tree, 40, deadline=until),
    "join graph": lambda until, _: join_graph(NET, ROWS, 4.0, until),
    "clusters": lambda until, ready: Propagation.start(NET, ready.graph, until),
    "sweep": lambda until, ready: ready.run.run(3, deadline=until),
    "block": lambda until, _: random_block(NET, ROWS, 6.0, key(), deadline=until),
    "block tree": lambda until, ready: BlockTree.of(NET, ready.block, until),
    "cutset states": cutset_states,
    "draw": lambda until, ready: beliefs_and_draw(ready.block_tree.run, key(), until),
    "reduction": lambda until, _: reduce_network(NET, 6.0, until),
    "mini-buckets": lambda until, _: eliminate(NET, ROWS, 4.0, deadline=until),
    "size of mini-buckets": lambda until, _: work(NET, ROWS, 4.0, until),
    "cost shifting": lambda until, _: tighten(NET, ROWS, 4.0, until, least=1.0),
    "annealing": lambda until, _: Annealing.of(NET, key(), 4, until),
    "annealing sweep": lambda until, ready: ready.chains.sweep(1.0, key(), until),
}
"""Each long step, with its deadline."""


@pytest.mark.parametrize("name", STEPS)
def test_long_steps_look_at_the_clock_and_end(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ready, clock = Ready(), Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    assert looks(STEPS[name], ready, clock, LIMIT) <= LIMIT + SLACK
    assert looks(STEPS[name], ready, clock, inf) > LIMIT + SLACK  # it would go on for longer


def looks(
    step: Callable[[float, Ready], object], ready: Ready, clock: Clock, limit: float
) -> float:
    """How often a step with this limit looks at the clock."""
    start = clock.now
    with suppress(OutOfTime):
        step(start + limit, ready)
    return clock.now - start


def test_rounds_of_elimination_end_at_the_deadline(clock: Clock) -> None:
    few = eliminate_low_degree(chain(), marginals=False, deadline=clock.now + 3)
    assert clock.now <= 6
    assert 0 < few.eliminated < eliminate_low_degree(chain()).eliminated == 3001


@pytest.mark.parametrize("task", ["mar", "pr", "map", "mmap"])
@pytest.mark.parametrize("memory", ["8k", "4G"])
def test_answers_are_there_in_time(
    task: str, memory: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.tick = 1e-3
    monkeypatch.setattr(toulbar2, "available", lambda: False)
    network = grid(states=4)
    asked = range(0, SIDE * SIDE, 40) if task == "mmap" else ()
    start = clock.now
    found = solve(network, task, maximise=asked, seconds=2.0, memory=memory)
    assert clock.now - start <= 2.0
    assert found.lower <= found.upper
