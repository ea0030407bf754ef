"""Random small networks, and what enumeration says about them; shares no code with the library."""

import numpy as np

from undirected.inference.networks.network import Network


def random_network(seed, n=6, tables=7, arity=3, zeros=0.2, most=3, scale=1.5):
    """Mixed cardinalities, tables over up to `arity` variables, some entries forbidden.

    At least one joint state is allowed: the tables are never 0 there.
    """
    draw = np.random.default_rng(seed)
    sizes = tuple(int(k) for k in draw.integers(2, most + 1, n))
    allowed = [int(draw.integers(k)) for k in sizes]
    scopes, logs = [], []
    for _ in range(tables):
        scope = draw.permutation(n)[: draw.integers(1, min(arity, n) + 1)]
        table = draw.normal(0, scale, [sizes[v] for v in scope])
        table[draw.random(table.shape) < zeros] = -np.inf
        table[tuple(allowed[v] for v in scope)] = draw.normal()
        scopes.append(tuple(int(v) for v in scope))
        logs.append(table)
    return Network(sizes, tuple(scopes), tuple(logs), float(draw.normal()))


def random_tree(seed, n=8, zeros=0.1):
    """Pairwise tables along a random tree, and one for each variable."""
    draw = np.random.default_rng(seed)
    sizes = tuple(int(k) for k in draw.integers(2, 4, n))
    scopes = [(int(draw.integers(v)), v) for v in range(1, n)] + [(v,) for v in range(n)]
    logs = [draw.normal(0, 2, [sizes[v] for v in scope]) for scope in scopes]
    for table in logs[: n - 1]:
        table[1:, 1:][draw.random((table.shape[0] - 1, table.shape[1] - 1)) < zeros] = -np.inf
    return Network(sizes, tuple(scopes), tuple(logs), 0.5)


def joint(network):
    """The log value of every joint state."""
    values = np.full(network.cardinalities, network.offset)
    states = np.indices(network.cardinalities)
    for scope, table in zip(network.scopes, network.tables, strict=True):
        values += table[tuple(states[v] for v in scope)]
    return values


def enumerated(network):
    """Marginals, log Z, and the best value."""
    values = joint(network)
    top = values.max()
    p = np.exp(values - top)
    axes = range(p.ndim)
    tables = [p.sum(tuple(a for a in axes if a != v)) / p.sum() for v in axes]
    return tables, top + np.log(p.sum()), top


def grid(side, scale, seed=0):
    """A square grid of binary variables, with random tables of pairs and of single ones."""
    draw = np.random.default_rng(seed)
    right = [(i, i + 1) for i in range(side * side) if (i + 1) % side]
    down = [(i, i + side) for i in range(side * (side - 1))]
    pairs = tuple(right + down) + tuple((i,) for i in range(side * side))
    tables = tuple(draw.normal(0, scale, [2] * len(scope)) for scope in pairs)
    return Network((2,) * side**2, pairs, tables)
