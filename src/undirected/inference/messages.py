"""Belief-propagation messages of each factor group: the one place that dispatches on the group.

Messages are log-odds (one number per binary unit, one per state of a categorical variable). A group
keeps what it needs in `Traffic`; `total` is the field of every unit with all messages added.
"""

from functools import singledispatch

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from undirected.core.errors import UnsupportedFactor
from undirected.core.layout import Block, Domain, Layout
from undirected.core.numerics import logsumexp, message
from undirected.core.potentials import Bilinear, Edges, Factor, Symmetric


class Traffic(eqx.Module):
    """Messages of one group in flight, and their sum at every unit."""

    forward: Array
    backward: Array
    incoming: Float[Array, " n"]


class Schedule(eqx.Module):
    """How messages are renewed: temperature, share of the old one kept, in turn or at once."""

    temperature: float | Array
    damping: float = eqx.field(static=True)
    parallel: bool = eqx.field(static=True)


@singledispatch
def quiet(factor: Factor, layout: Layout, schedule: Schedule) -> Traffic:
    """No message sent yet."""
    raise UnsupportedFactor(
        f"belief propagation: no messages for factor group {type(factor).__name__}"
    )


@singledispatch
def renew(
    factor: Factor, layout: Layout, total: Float[Array, " n"], traffic: Traffic, schedule: Schedule
) -> Traffic:
    """Send every message of the group once."""
    raise UnsupportedFactor(
        f"belief propagation: no messages for factor group {type(factor).__name__}"
    )


@singledispatch
def pair_beliefs(
    factor: Factor,
    layout: Layout,
    total: Float[Array, " n"],
    unary: Float[Array, " n"],
    traffic: Traffic,
    temperature: float | Array,
) -> tuple[Factor, Float[Array, ""]]:
    """Expected statistic of the group, and its correction to the Bethe log Z.

    With cavity odds g of one end and its incoming message m, a pair adds
    softplus(g) - softplus(g + m) to the sum of the units' own log normalisers.
    """
    raise UnsupportedFactor(
        f"belief propagation: no messages for factor group {type(factor).__name__}"
    )


# Bilinear: `forward` holds the messages to the columns (row variables x column units), `backward`
# those to the rows (row units x column variables).


@quiet.register
def _(factor: Bilinear, layout: Layout, schedule: Schedule) -> Traffic:
    rows, cols = layout.blocks[factor.rows], layout.blocks[factor.cols]
    dtype = factor.weight.dtype
    return Traffic(
        forward=jnp.zeros((rows.variables, cols.size), dtype),
        backward=jnp.zeros((rows.size, cols.variables), dtype),
        incoming=jnp.zeros(layout.n, dtype),
    )


@renew.register
def _(
    factor: Bilinear, layout: Layout, total: Array, traffic: Traffic, schedule: Schedule
) -> Traffic:
    rows, cols = layout.blocks[factor.rows], layout.blocks[factor.cols]
    T = schedule.temperature
    row_cavity = total[rows.slice][:, None] - traffic.backward
    forward = mix(_send(rows, cols, row_cavity, factor.weight, T), traffic.forward, schedule)
    col_total = total[cols.slice]
    answered = traffic.forward
    if not schedule.parallel:
        answered = forward
        col_total = col_total - traffic.incoming[cols.slice] + forward.sum(0)
    col_cavity = col_total[:, None] - answered.T
    backward = _send(cols, rows, col_cavity, factor.weight.T, T).T
    backward = mix(backward, traffic.backward, schedule)
    incoming = jnp.zeros_like(total).at[rows.slice].set(backward.sum(1))
    return Traffic(forward, backward, incoming.at[cols.slice].set(forward.sum(0)))


@pair_beliefs.register
def _(
    factor: Bilinear,
    layout: Layout,
    total: Array,
    unary: Array,
    traffic: Traffic,
    temperature: float | Array,
) -> tuple[Bilinear, Array]:
    rows, cols = layout.blocks[factor.rows], layout.blocks[factor.cols]
    cavity = total[cols.slice][None, :] - traffic.forward
    given = jnp.repeat(cavity, rows.width, 0) + factor.weight
    if cols.domain is Domain.BINARY:
        conditional = jax.nn.sigmoid(given / temperature)
        correction = -message(cavity, traffic.forward, temperature).sum()
    else:
        conditional = _per_variable(cols, jax.nn.softmax, given / temperature)
        before = _totals(cols, cavity, temperature)
        correction = (before - _totals(cols, total[cols.slice][None, :], temperature)).sum()
    both = unary[rows.slice][:, None] * conditional
    return Bilinear(both, factor.rows, factor.cols), correction


def _send(
    source: Block, target: Block, cavity: Array, weight: Array, temperature: float | Array
) -> Array:
    """Messages (source variables, target units) from cavities (source units, target variables)."""
    spread = jnp.repeat(cavity, target.width, 1) if target.width > 1 else cavity
    if source.domain is Domain.BINARY:
        return message(spread, weight, temperature)
    if source.domain is not Domain.CATEGORICAL:
        raise UnsupportedFactor(
            f"belief propagation: block '{source.name}' is {source.domain.value}; messages are "
            "known for binary and categorical units"
        )
    shape = (source.variables, source.states, target.size)
    up = logsumexp((spread + weight).reshape(shape), temperature, axis=1)
    return up - logsumexp(spread.reshape(shape), temperature, axis=1)


def _per_variable(block: Block, function, x: Array) -> Array:
    shape = (*x.shape[:-1], block.variables, block.width)
    return function(x.reshape(shape), -1).reshape(x.shape)


def _totals(block: Block, x: Array, temperature: float | Array) -> Array:
    return logsumexp(x.reshape(*x.shape[:-1], block.variables, block.width), temperature)


# Symmetric: forward[i, j] is the message from unit i to unit j of the block.


@quiet.register
def _(factor: Symmetric, layout: Layout, schedule: Schedule) -> Traffic:
    _binary(layout.blocks[factor.block])
    zeros = jnp.zeros_like(factor.weight)
    return Traffic(zeros, zeros[:0], jnp.zeros(layout.n, zeros.dtype))


@renew.register
def _(
    factor: Symmetric, layout: Layout, total: Array, traffic: Traffic, schedule: Schedule
) -> Traffic:
    where = layout.blocks[factor.block].slice
    cavity = total[where][:, None] - traffic.forward.T
    forward = message(cavity, factor.weight, schedule.temperature)
    forward = mix(forward, traffic.forward, schedule)
    incoming = jnp.zeros_like(total).at[where].set(forward.sum(0))
    return Traffic(forward, traffic.backward, incoming)


@pair_beliefs.register
def _(
    factor: Symmetric,
    layout: Layout,
    total: Array,
    unary: Array,
    traffic: Traffic,
    temperature: float | Array,
) -> tuple[Symmetric, Array]:
    where = layout.blocks[factor.block].slice
    cavity = total[where][None, :] - traffic.forward
    both = unary[where][:, None] * jax.nn.sigmoid((cavity + factor.weight) / temperature)
    both = 0.5 * (both + both.T) * (1 - jnp.eye(both.shape[0], dtype=both.dtype))
    correction = -0.5 * message(cavity, traffic.forward, temperature).sum()
    return Symmetric(both, factor.block), correction


# Edges: forward[e] runs along the edge (i, j) for e < E, and back along it for e >= E.


@quiet.register
def _(factor: Edges, layout: Layout, schedule: Schedule) -> Traffic:
    for block in layout.blocks:
        _binary(block)
    zeros = jnp.zeros(2 * factor.graph.n_edges, factor.weight.dtype)
    return Traffic(zeros, zeros[:0], jnp.zeros(layout.n, zeros.dtype))


@renew.register
def _(factor: Edges, layout: Layout, total: Array, traffic: Traffic, schedule: Schedule) -> Traffic:
    graph = factor.graph
    cavity = total[graph.source] - _reverse(traffic.forward)
    forward = message(cavity, jnp.tile(factor.weight, 2), schedule.temperature)
    forward = mix(forward, traffic.forward, schedule)
    return Traffic(forward, traffic.backward, graph.gather(forward))


@pair_beliefs.register
def _(
    factor: Edges,
    layout: Layout,
    total: Array,
    unary: Array,
    traffic: Traffic,
    temperature: float | Array,
) -> tuple[Edges, Array]:
    graph = factor.graph
    cavity = total[graph.target] - traffic.forward
    given = jax.nn.sigmoid((cavity + jnp.tile(factor.weight, 2)) / temperature)
    both = (unary[graph.source] * given).reshape(2, -1).mean(0)
    correction = -0.5 * message(cavity, traffic.forward, temperature).sum()
    return Edges(both, graph), correction


def _reverse(messages: Array) -> Array:
    half = messages.shape[0] // 2
    return jnp.concatenate([messages[half:], messages[:half]])


def mix(new: Array, old: Array, schedule: Schedule) -> Array:
    """The new messages with the schedule's share of the old ones."""
    if schedule.damping == 0:
        return new
    return (1 - schedule.damping) * new + schedule.damping * old


def _binary(block: Block) -> None:
    if block.domain is not Domain.BINARY:
        raise UnsupportedFactor(
            f"belief propagation: block '{block.name}' is {block.domain.value}; this factor group "
            "needs binary units"
        )
