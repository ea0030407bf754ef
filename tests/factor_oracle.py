"""Factor graphs by brute force in plain NumPy: every factor as a function of the state."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np

FORBIDDEN = -1e9


@dataclass(frozen=True)
class Factor:
    """A log-potential on a few variables, given as a function of their states."""

    scope: tuple[int, ...]
    value: Callable[..., float]


def log_or(*states: int) -> float:
    return 0.0 if states[-1] == max(states[:-1]) else FORBIDDEN


def log_and(*states: int) -> float:
    return 0.0 if states[-1] == min(states[:-1]) else FORBIDDEN


def log_pool(*states: int) -> float:
    return 0.0 if sum(states[:-1]) == states[-1] else FORBIDDEN


def log_count(weight: np.ndarray) -> Callable[..., float]:
    return lambda *states: weight[sum(states)] if sum(states) < len(weight) else FORBIDDEN


def log_table(weight: np.ndarray) -> Callable[..., float]:
    return lambda *states: weight[states]


@dataclass(frozen=True)
class World:
    """All joint states (S, m) as numbers, their units (S, n), and their log weights."""

    states: np.ndarray
    units: np.ndarray
    log_weights: np.ndarray

    def log_z(self, temperature: float) -> float:
        if temperature == 0:
            return float(self.log_weights.max())
        top = self.log_weights.max()
        total = np.exp((self.log_weights - top) / temperature).sum()
        return float(top + temperature * np.log(total))

    def probabilities(self, temperature: float) -> np.ndarray:
        p = np.exp((self.log_weights - self.log_weights.max()) / temperature)
        return p / p.sum()

    def given(self, mask: np.ndarray, x: np.ndarray) -> "World":
        """The states that agree with the units x under the mask."""
        keep = (self.units[:, mask] == x[mask]).all(1)
        return World(self.states[keep], self.units[keep], self.log_weights[keep])


def enumerate_world(cardinalities: list[int], factors: list[Factor], unary: np.ndarray) -> World:
    """Every joint state; `unary` has one number per binary variable and k per other."""
    states = np.array(list(product(*(range(k) for k in cardinalities))))
    units = np.concatenate(
        [
            states[:, [i]] if k == 2 else np.eye(k)[states[:, i]]
            for i, k in enumerate(cardinalities)
        ],
        1,
    ).astype(float)
    values = units @ unary
    for factor in factors:
        sizes = [cardinalities[i] for i in factor.scope]
        table = np.array([factor.value(*row) for row in product(*(range(k) for k in sizes))])
        values = values + table.reshape(sizes)[tuple(states[:, factor.scope].T)]
    return World(states, units, values)


def messages(
    cardinalities: list[int], value: Callable[..., float], cavity: list[np.ndarray], T: float
) -> list[np.ndarray]:
    """The messages of one factor by enumeration of its states.

    `cavity` is one log-odds (size 1) per binary variable, one number per state for others; so are
    the messages, the latter with a largest entry of 0.
    """
    pairs = zip(cardinalities, cavity, strict=True)
    levels = [np.array([0.0, c[0]]) if k == 2 else c for k, c in pairs]
    answers = []
    for i, k in enumerate(cardinalities):
        totals: list[list[float]] = [[] for _ in range(k)]
        for states in product(*(range(c) for c in cardinalities)):
            others = sum(levels[j][s] for j, s in enumerate(states) if j != i)
            totals[states[i]].append(value(*states) + others)
        best = np.array([_soft_max(np.array(t), T) for t in totals])
        answers.append(best[1:] - best[:1] if k == 2 else best - best.max())
    return answers


def _soft_max(values: np.ndarray, T: float) -> float:
    top = values.max()
    return float(top) if T == 0 else float(top + T * np.log(np.exp((values - top) / T).sum()))
