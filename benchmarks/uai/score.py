"""Scores of answers to UAI problems, as the competition gives them: 100 is perfect, 0 is useless.

MAR: 100 (1 - e / e₀) with e the mean Hellinger distance of the marginals from the reference's and
e₀ that of uniform marginals; PR: the same with e = |log Z - log Z*| and e₀ that of the trivial
answer, which takes all tables as independent under uniform states; MAP: the log value beside the
best known.
"""

from math import exp, inf, log
from pathlib import Path

import numpy as np

from undirected.io.uai import UaiModel

Tables = list[np.ndarray]


def read_marginals(path: Path) -> Tables:
    words = path.read_text().split()
    if words[0] != "MAR":
        raise ValueError(f"{path}: starts with {words[0]!r}; wanted MAR")
    numbers, found, at = words[1:], [], 1
    for _ in range(int(numbers[0])):
        size = int(numbers[at])
        found.append(np.array([float(word) for word in numbers[at + 1 : at + 1 + size]]))
        at += 1 + size
    return found


def read_partition(path: Path) -> float:
    """The natural logarithm of Z."""
    return float(path.read_text().split()[1]) * log(10)


def read_state(path: Path) -> np.ndarray:
    return np.array([int(word) for word in path.read_text().split()[2:]])


def hellinger(a: Tables, b: Tables) -> float:
    """The mean over variables."""
    own = [np.sqrt(0.5 * ((np.sqrt(p) - np.sqrt(q)) ** 2).sum()) for p, q in zip(a, b, strict=True)]
    return float(np.mean(own))


def against(error: float, trivial: float) -> float:
    """100 (1 - e / e₀), 0 where that is negative."""
    if not error < inf:
        return 0.0
    if trivial < 1e-12:
        return 100.0 if error < 1e-6 else 0.0
    return max(0.0, 100.0 * (1.0 - error / trivial))


def score_marginals(found: Tables, reference: Tables) -> float:
    uniform = [np.full(len(p), 1.0 / len(p)) for p in reference]
    return against(hellinger(found, reference), hellinger(uniform, reference))


def trivial_log_z(model: UaiModel, given: dict[int, int]) -> float:
    """Log Z where tables are independent of each other under uniform states."""
    total = sum(log(k) for v, k in enumerate(model.cardinalities) if v not in given)
    for scope, table in zip(model.scopes, model.tables, strict=True):
        mean = float(table[tuple(given.get(v, slice(None)) for v in scope)].mean())
        total += log(mean) if mean > 0 else 0.0
    return total


def score_partition(found: float, reference: float, trivial: float) -> float:
    return against(abs(found - reference), abs(trivial - reference))


def log_value(model: UaiModel, state: np.ndarray) -> float:
    total = 0.0
    for scope, table in zip(model.scopes, model.tables, strict=True):
        weight = float(table[tuple(state[v] for v in scope)])
        total += log(weight) if weight > 0 else -inf
    return total


def map_gap(found: float, best: float) -> float:
    """How far a log value is below the best known, relative to it; negative where it is better."""
    return (best - found) / max(abs(best), 1.0)


def score_map(found: float, best: float) -> float:
    """100 times the ratio of probabilities per unit of the best log value: exp(-100 gap)."""
    return min(100.0, 100.0 * exp(-100.0 * max(map_gap(found, best), 0.0)))
