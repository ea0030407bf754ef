"""Values and mean statistics of many states at once, group by group."""

from functools import singledispatch

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from undirected.core.layout import Layout
from undirected.core.potentials import (
    Beliefs,
    Bilinear,
    Edges,
    Factor,
    Potentials,
    Symmetric,
    pairing,
    pull,
    statistic,
)


def values(p: Potentials, x: Float[Array, "batch n"]) -> Float[Array, " batch"]:
    """inner(p, statistics(x)) of every state; the unary fields may lead with a batch axis."""
    total = p.offset + (x * jnp.broadcast_to(p.unary, x.shape)).sum(-1)
    for factor in p.factors:
        total = total + value(factor, p.layout, x)
    return total


def mean_statistics(p: Potentials, x: Float[Array, "samples n"]) -> Beliefs:
    """The beliefs that a set of states stands for; their log_z is 0."""
    return Beliefs(
        unary=x.mean(0),
        factors=tuple(mean_statistic(factor, p.layout, x) for factor in p.factors),
        log_z=jnp.zeros((), x.dtype),
        converged=jnp.asarray(True),
        iterations=jnp.asarray(0),
    )


@singledispatch
def value(factor: Factor, layout: Layout, x: Float[Array, "batch n"]) -> Float[Array, " batch"]:
    """What one group adds to the negative energy of every state."""
    return jax.lax.map(lambda state: pairing(factor, statistic(factor, layout, state)), x)


@value.register(Bilinear)
@value.register(Symmetric)
@value.register(Edges)
def _(factor: Factor, layout: Layout, x: Float[Array, "batch n"]) -> Float[Array, " batch"]:
    return 0.5 * (x * pull(factor, layout, x)).sum(-1)


@singledispatch
def mean_statistic(factor: Factor, layout: Layout, x: Float[Array, "samples n"]) -> Factor:
    """The mean statistic of one group, one state after the other."""

    def add(total: Factor, state: Array) -> tuple[Factor, None]:
        found = statistic(factor, layout, state)
        return jax.tree.map(lambda a, b: a + b / len(x), total, found), None

    like = jax.eval_shape(lambda state: statistic(factor, layout, state), x[0])
    zero = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), like)
    return jax.lax.scan(add, zero, x)[0]


@mean_statistic.register
def _(factor: Bilinear, layout: Layout, x: Float[Array, "samples n"]) -> Bilinear:
    rows, cols = (x[:, layout.blocks[b].slice] for b in (factor.rows, factor.cols))
    return Bilinear(rows.T @ cols / len(x), factor.rows, factor.cols)


@mean_statistic.register
def _(factor: Symmetric, layout: Layout, x: Float[Array, "samples n"]) -> Symmetric:
    part = x[:, layout.blocks[factor.block].slice]
    return Symmetric(part.T @ part / len(x) * (1 - jnp.eye(part.shape[1])), factor.block)


@mean_statistic.register
def _(factor: Edges, layout: Layout, x: Float[Array, "samples n"]) -> Edges:
    ends = factor.graph.edges.T
    return Edges((x[:, ends[0]] * x[:, ends[1]]).mean(0), factor.graph)
