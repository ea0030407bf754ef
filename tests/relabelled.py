"""Models and the same ones with the two states of all units exchanged, by hand in NumPy."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from undirected.core import graph
from undirected.factors import count, logical_and, logical_or, tables
from undirected.models import RBM, FactorGraph, Ising, discrete


class Pair(NamedTuple):
    """A model, the same with the states of all units exchanged, and log Z less the other's."""

    model: Any
    relabelled: Any
    constant: float


def ising(where: graph.Graph | int, strength: float) -> Pair:
    """Spins: to exchange their states is to negate the fields."""
    rng = np.random.default_rng(0)
    dense = isinstance(where, int)
    n = where if dense else where.n
    couplings = strength * rng.normal(size=(n, n) if dense else where.n_edges)
    fields = rng.normal(size=n)
    models = [
        Ising.from_spins(
            jnp.asarray(couplings), jnp.asarray(sign * fields), None if dense else where
        )
        for sign in (1, -1)
    ]
    return Pair(*models, 0.0)


def rbm(strength: float) -> Pair:
    """v = 1 - v', h = 1 - h' in v' W h + b' v + c' h, multiplied out."""
    rng = np.random.default_rng(1)
    w, b, c = strength * rng.uniform(-1, 1, (5, 4)), rng.normal(size=5), rng.normal(size=4)
    # Fields near the middle of the couplings, so that no unit is certain.
    b, c = b - 0.5 * w.sum(1), c - 0.5 * w.sum(0)
    other = RBM(jnp.asarray(w), jnp.asarray(-b - w.sum(1)), jnp.asarray(-c - w.sum(0)))
    constant = w.sum() + b.sum() + c.sum()
    return Pair(RBM(*map(jnp.asarray, (w, b, c))), other, constant)


def factor_graph() -> Pair:
    """Tables turned around; a count counts from the other end."""
    rng = np.random.default_rng(2)
    layout = discrete(x=6)
    unary, pairs = rng.normal(size=6), rng.normal(size=(3, 2, 2))
    triples, levels = rng.normal(size=(2, 2, 2, 2)), rng.normal(size=4)
    where = [[0, 1], [1, 2], [2, 0]], [[2, 3, 4], [4, 5, 0]], [[1, 3, 5]]
    models = []
    for sign in (1, -1):
        groups = [
            tables(layout, where[0], pairs[:, ::sign, ::sign]),
            tables(layout, where[1], triples[:, ::sign, ::sign, ::sign]),
            count(layout, where[2], levels[::sign]),
        ]
        models.append(FactorGraph.create(layout, groups, jnp.asarray(sign * unary)))
    return Pair(*models, unary.sum())


def logic() -> Pair:
    """An OR of what is true is an AND of what is false."""
    unary = np.random.default_rng(3).normal(size=5)
    layout = discrete(x=5)
    scopes = [[0, 1], [1, 2]], [3, 4]
    models = [
        FactorGraph.create(layout, [hard(layout, *scopes)], jnp.asarray(sign * unary))
        for hard, sign in ((logical_or, 1), (logical_and, -1))
    ]
    return Pair(*models, unary.sum())


PAIRS = {
    "dense": lambda: ising(6, 0.6),
    "grid": lambda: ising(graph.grid(3, 4), 0.7),
    "torus": lambda: ising(graph.torus(3, 3), 0.7),
    "rbm gentle": lambda: rbm(2.0),
    "rbm steep": lambda: rbm(30.0),
    "rbm very steep": lambda: rbm(150.0),
    "factor graph": factor_graph,
    "logic": logic,
}


def dense_weights(seed: int, *shape: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Weights in single precision, and fields for which no unit is certain."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=shape).astype(np.float32)
    if len(set(shape)) == 1:
        w = np.triu(w, 1) + np.triu(w, 1).T
        return w, [rng.normal(size=len(w)) - 0.5 * w.sum(1)]
    return w, [rng.normal(size=shape[i]) - 0.5 * w.sum(1 - i) for i in (0, 1)]


def turned(w: np.ndarray, fields: list[np.ndarray]) -> list[np.ndarray]:
    """The fields of the relabelled model: -f - sum of the weights at the unit."""
    return [-f - w.sum(1 - i) for i, f in enumerate(fields)]
