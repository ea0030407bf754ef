"""Marginal MAP where the constrained tree does not fit: a search over the maximised variables.

With these fixed the rest is an ordinary log Z, whose tree is often much smaller.
"""

import time
from collections.abc import Callable
from math import inf

import numpy as np
from jaxtyping import Float, Int

from undirected.inference.networks.simplify import Inconsistent

State = Int[np.ndarray, " n"]


def climb(
    start: State,
    marginals: list[Float[np.ndarray, " k"]],
    maximised: frozenset[int],
    value: Callable[[State], float],
    deadline: float,
    seed: int,
) -> tuple[State, float]:
    """The best state of the maximised variables that changes of single variables lead to.

    Args:
        start: where to start, by the likeliest state of each variable.
        marginals: of all variables: unlikely changes are tried last.
        maximised: the variables to change.
        value: log Σ over the others.
        deadline: when to stop, by `time.monotonic`.
        seed: of the order in which equal changes are tried.
    """
    rng = np.random.default_rng(seed)
    state, best = start.copy(), _value(value, start)
    moves = [
        (-float(p), rng.random(), v, s)
        for v in maximised
        for s, p in enumerate(marginals[v])
        if p > 0
    ]
    moves.sort()
    improved = True
    while improved and time.monotonic() < deadline:
        improved = False
        for _, _, v, s in moves:
            if time.monotonic() > deadline:
                break
            if state[v] == s:
                continue
            new = state.copy()
            new[v] = s
            found = _value(value, new)
            if found > best:
                state, best, improved = new, found, True
    return state, best


def _value(value: Callable[[State], float], state: State) -> float:
    try:
        return value(state)
    except Inconsistent:
        return -inf
