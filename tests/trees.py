"""A tree of mixed factors on variables of mixed cardinality, renamed at random."""

from functools import cache

import jax.numpy as jnp
import numpy as np

from tests import factor_oracle as oracle
from undirected.factors import count, logical_and, logical_or, pool, tables
from undirected.models import FactorGraph, discrete

BINARY = 11


@cache
def tree(seed: int) -> tuple[FactorGraph, oracle.World]:
    """Every kind of factor once; eleven binary and two ternary variables in random places."""
    rng = np.random.default_rng(seed)
    x = rng.permutation(BINARY)
    y = BINARY + rng.permutation(2)
    layout = discrete(x=BINARY, y=(2, 3))
    unary = rng.normal(size=BINARY + 6)
    mixed, square = rng.normal(size=(2, 3)), rng.normal(size=(3, 3))
    triple = rng.normal(size=(1, 2, 3, 2))
    numbers = rng.normal(size=3)
    groups = [
        tables(layout, [[x[0], y[0]]], mixed),
        tables(layout, [[y[0], y[1]]], square),
        tables(layout, [[x[7], y[1], x[10]]], triple),
        logical_or(layout, [[x[1], x[2]]], [x[3]]),
        logical_and(layout, [[x[3], x[4]]], [x[5]]),
        count(layout, [[x[5], x[6], x[7]]], numbers),
        pool(layout, [[x[8], x[9]]], [x[6]]),
    ]
    factors = [
        oracle.Factor((x[0], y[0]), oracle.log_table(mixed)),
        oracle.Factor((y[0], y[1]), oracle.log_table(square)),
        oracle.Factor((x[7], y[1], x[10]), oracle.log_table(triple[0])),
        oracle.Factor((x[1], x[2], x[3]), oracle.log_or),
        oracle.Factor((x[3], x[4], x[5]), oracle.log_and),
        oracle.Factor((x[5], x[6], x[7]), oracle.log_count(numbers)),
        oracle.Factor((x[8], x[9], x[6]), oracle.log_pool),
    ]
    world = oracle.enumerate_world([2] * BINARY + [3, 3], factors, unary)
    return FactorGraph.create(layout, groups, jnp.asarray(unary)), world
