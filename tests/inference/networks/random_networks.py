"""Small random networks, and their answers by enumeration of all states."""

import numpy as np

from undirected.inference.networks.network import Network


def random_network(seed: int, most: int = 8) -> tuple[Network, dict[int, int]]:
    """Mixed cardinalities, zeros, wide ranges, variables without tables; and some evidence."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, most + 1))
    sizes = tuple(int(k) for k in rng.integers(1, 4, n))
    scopes, tables = [], []
    for _ in range(rng.integers(0, 10)):
        order = int(rng.integers(0, min(n, 4) + 1))
        scope = tuple(int(v) for v in rng.permutation(n)[:order])
        logs = rng.normal(size=[sizes[v] for v in scope]) * rng.choice([0.5, 3.0, 400.0])
        zeros = rng.random(logs.shape) < rng.choice([0.0, 0.0, 0.2, 0.4])
        scopes.append(scope)
        tables.append(np.where(zeros, -np.inf, logs))
    given = {v: int(rng.integers(sizes[v])) for v in range(n) if rng.random() < 0.2}
    return Network(sizes, tuple(scopes), tuple(tables), float(rng.normal())), given


def joint_logs(network: Network, given: dict[int, int] | None = None) -> np.ndarray:
    """The log value of every joint state, -inf where it is forbidden or not the evidence."""
    sizes = network.cardinalities
    found = np.full(sizes, network.offset)
    for scope, table in zip(network.scopes, network.tables, strict=True):
        for state in np.ndindex(*sizes):
            found[state] += table[tuple(state[v] for v in scope)]
    for v, seen in (given or {}).items():
        other = np.arange(sizes[v]) != seen
        np.moveaxis(found, v, 0)[other] = -np.inf
    return found


def log_sum(logs: np.ndarray, axes: tuple[int, ...] | None = None) -> np.ndarray:
    top = logs.max()
    with np.errstate(divide="ignore", under="ignore"):
        return np.log(np.exp(logs - top).sum(axes)) + top


def marginal(logs: np.ndarray, *kept: int) -> np.ndarray:
    """Probabilities of the states of some variables."""
    own = log_sum(logs, tuple(v for v in range(logs.ndim) if v not in kept))
    with np.errstate(under="ignore"):
        return np.exp(own - log_sum(logs))
