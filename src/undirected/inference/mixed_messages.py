"""Belief propagation between visible units of every kind and one layer of binary hidden units.

Messages to a hidden unit are log-odds, as everywhere. What a hidden unit tells a real or
nonnegative one is not a number but the function log(1 + exp(o + w x)) of its value x; the product
of all of them with the unit's own density is kept as it is, and integrated along a line. So no
message is approximated, and the answers are exact on trees, as with discrete units.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from undirected.core.errors import UnsupportedFactor
from undirected.core.iterate import iterate, largest, status_of
from undirected.core.layout import CONTINUOUS, Block, Domain, Layout
from undirected.core.line_density import log_density, nodes
from undirected.core.numerics import logsumexp, message
from undirected.core.potentials import Beliefs, Potentials
from undirected.core.units import block_means, log_normaliser
from undirected.factors import Bilinear, Factor, Squares


class Part(NamedTuple):
    """One visible block: its couplings, own fields, evidence and, of continuous units, r and x."""

    block: Block
    weight: Float[Array, "m H"]
    unary: Float[Array, " m"]
    evidence: Float[Array, " m"]
    precision: Float[Array, " m"]
    held: Float[Array, " m"]

    @property
    def continuous(self) -> bool:
        return self.block.domain in CONTINUOUS

    @property
    def positive(self) -> bool:
        return self.block.domain is Domain.NONNEGATIVE


Sent = tuple[Float[Array, "variables H"], ...]
"""Messages to the hidden units, from the variables of each visible block."""


def suits(p: Potentials) -> bool:
    """Whether continuous visible units meet binary hidden ones, and nothing else."""
    hidden = len(p.layout.blocks) - 1
    return bool(p.layout.is_continuous.any()) and all(
        isinstance(f, Squares) or (isinstance(f, Bilinear) and f.cols == hidden) for f in p.factors
    )


def parts_of(p: Potentials) -> tuple[Part, ...]:
    """The visible blocks of an instance."""
    layout, hidden = p.layout, p.layout.blocks[-1]
    if hidden.domain is not Domain.BINARY or hidden.visible:
        raise UnsupportedFactor(
            "belief propagation: continuous units need one block of binary hidden units, the last"
        )
    none = jnp.zeros_like(p.unary)
    precision = sum((f.precision(layout) for f in p.factors if isinstance(f, Squares)), none)
    held = none if p.held is None else p.held
    parts = []
    for i, block in enumerate(layout.blocks[:-1]):
        found = [f.weight for f in p.factors if isinstance(f, Bilinear) and f.rows == i]
        weight = sum(found, jnp.zeros((block.size, hidden.size), p.unary.dtype))
        own = (a[block.slice] for a in (p.unary, p.evidence, precision, held))
        parts.append(Part(block, weight, *own))
    return tuple(parts)


def first_messages(parts: tuple[Part, ...]) -> Sent:
    """What a visible unit that prefers no state says; a continuous one is taken at its own mean."""
    sent = []
    for part in parts:
        block, weight = part.block, part.weight
        if part.continuous:
            mean = part.unary / part.precision
            mean = jnp.maximum(mean, 1 / jnp.sqrt(part.precision)) if part.positive else mean
            sent.append(jnp.where(part.evidence > 0, part.held, mean)[:, None] * weight)
        else:
            states = block.states if block.domain is Domain.CATEGORICAL else 2
            sent.append(weight.reshape(block.variables, block.width, -1).sum(1) / states)
    return tuple(sent)


def sweep(
    parts: tuple[Part, ...], hidden: Float[Array, " H"], sent: Sent, damping: float = 0.0
) -> Sent:
    """Every visible unit answers what the hidden units, in fields `hidden`, say now."""
    total = hidden_total(hidden, sent)
    new = tuple(
        _send(part, total[None] - own) if not part.continuous else _send_line(part, total, own)
        for part, own in zip(parts, sent, strict=True)
    )
    if damping == 0:
        return new
    return tuple((1 - damping) * a + damping * b for a, b in zip(new, sent, strict=True))


def hidden_total(hidden: Float[Array, " H"], sent: Sent) -> Float[Array, " H"]:
    """Fields of the hidden units with all messages."""
    return hidden + sum(own.sum(0) for own in sent)


def _fields(part: Part, odds: Float[Array, "variables H"]) -> tuple[Array, Array]:
    """Fields of discrete units, and the messages among them."""
    back = message(jnp.repeat(odds, part.block.width, 0), part.weight)
    return part.unary + part.evidence + back.sum(1), back


def _send(part: Part, odds: Float[Array, "variables H"]) -> Float[Array, "variables H"]:
    """Messages of discrete variables."""
    total, back = _fields(part, odds)
    cavity = total[:, None] - back
    if part.block.domain is Domain.BINARY:
        return message(cavity, part.weight)
    shape = (part.block.variables, part.block.states, -1)
    up = logsumexp((cavity + part.weight).reshape(shape), axis=1)
    return up - logsumexp(cavity.reshape(shape), axis=1)


def _send_line(
    part: Part, total: Float[Array, " H"], own: Float[Array, "m H"]
) -> Float[Array, "m H"]:
    """Messages of continuous units: log of the mean of exp(w x) without the hidden unit's own say.

    Hidden unit after hidden unit, so that no more than (units, nodes) numbers are in flight.
    """
    odds = total[None] - own
    x, logs = nodes(part.unary, part.precision, odds, part.weight, part.positive)

    def to_one(carry: None, unit: tuple[Array, Array]) -> tuple[None, Array]:
        o, w = unit[0][:, None], unit[1][:, None]
        rest = logs - message(o, w * x)
        return carry, logsumexp(rest + w * x) - logsumexp(rest)

    _, found = jax.lax.scan(to_one, None, (odds.T, part.weight.T))
    return jnp.where((part.evidence > 0)[:, None], part.held[:, None] * part.weight, found.T)


def propagate(
    p: Potentials, iterations: int | Array, tolerance: float | None, damping: float
) -> Beliefs:
    """Beliefs of one instance after sweeps until no hidden field moves by more."""
    parts, where = parts_of(p), p.layout.blocks[-1].slice
    hidden = p.fields[where]

    def step(sent: Sent) -> tuple[Sent, Array]:
        new = sweep(parts, hidden, sent, damping)
        return new, largest(hidden_total(hidden, new) - hidden_total(hidden, sent))

    sent, change, count = iterate(step, first_messages(parts), iterations, tolerance)
    unary, factors, log_z = _beliefs(p, parts, sent)
    return Beliefs(unary, factors, log_z, status_of(change, tolerance), count)


def _beliefs(
    p: Potentials, parts: tuple[Part, ...], sent: Sent
) -> tuple[Array, tuple[Factor, ...], Array]:
    """Means, expected statistics, and the Bethe log Z: exact at rest on trees.

    log Z = sum_i log Z_i + sum_j log Z_j - sum_ij log(1 + e^{o + m}) / (1 + e^o), with o what the
    hidden unit j says to i and m what i says to j.
    """
    block = p.layout.blocks[-1]
    total = hidden_total(p.fields[block.slice], sent)
    alone = Layout((Block("hidden", 0, block.size),))
    own = p.unary[block.slice] + total - p.fields[block.slice]
    log_z = p.offset + log_normaliser(alone, own, 1.0, p.evidence[block.slice])
    means, pairs, seconds = [], [], []
    for part, messages in zip(parts, sent, strict=True):
        odds = total[None] - messages
        found = _line_belief(part, odds) if part.continuous else _discrete_belief(part, odds)
        means.append(found[0])
        pairs.append(found[1])
        seconds.append(found[2])
        log_z = log_z + found[3] - message(odds, messages).sum()
    means.append(jax.nn.sigmoid(total))
    factors = tuple(
        Squares(seconds[f.block], f.block)
        if isinstance(f, Squares)
        else Bilinear(pairs[f.rows], f.rows, f.cols)
        for f in p.factors
    )
    return jnp.concatenate(means), factors, log_z


def _discrete_belief(part: Part, odds: Array) -> tuple[Array, Array, Array, Array]:
    """Means, those of products with the hidden units, those of squares, and log Z_i."""
    block = part.block
    fields, _ = _fields(part, odds)
    mean = block_means(block, fields)
    alone = Layout((Block(block.name, 0, block.size, block.domain, block.states),))
    log_z = log_normaliser(alone, fields - part.evidence, 1.0, part.evidence)
    both = jax.nn.sigmoid(jnp.repeat(odds, block.width, 0) + part.weight)
    return mean, mean[:, None] * both, mean, log_z


def _line_belief(part: Part, odds: Array) -> tuple[Array, Array, Array, Array]:
    """The same of continuous units, whose value is fixed where they are held."""
    x, logs = nodes(part.unary, part.precision, odds, part.weight, part.positive)
    fixed, value = part.evidence > 0, part.held
    whole = logsumexp(logs)
    x = jnp.where(fixed[:, None], value[:, None], x)
    share = jnp.exp(logs - whole[:, None])
    mean, second = (share * x).sum(1), (share * x * x).sum(1)

    def with_one(carry: None, unit: tuple[Array, Array]) -> tuple[None, Array]:
        on = jax.nn.sigmoid(unit[0][:, None] + unit[1][:, None] * x)
        return carry, (share * x * on).sum(1)

    _, both = jax.lax.scan(with_one, None, (odds.T, part.weight.T))
    at = log_density(value[:, None], part.unary, part.precision, odds, part.weight)[:, 0]
    return mean, both.T, second, jnp.where(fixed, at, whole).sum()


def log_beliefs(
    p: Potentials, layers: int, x: Float[Array, " v"], strength: float | Array = 1.0
) -> Float[Array, " v"]:
    """Log-probability (density) of the visible values x under the beliefs after so many sweeps.

    A binary unit's own, a category's at the unit that is on, 0 at the others. Differentiable: the
    sweeps are computed again in the reverse pass instead of stored.
    """
    parts, hidden = parts_of(p), p.fields[p.layout.blocks[-1].slice]

    @jax.checkpoint
    def once(sent: Sent, _: None) -> tuple[Sent, None]:
        return sweep(parts, hidden, sent), None

    sent, _ = jax.lax.scan(once, first_messages(parts), None, layers)
    total, found = hidden_total(hidden, sent), []
    for part, messages in zip(parts, sent, strict=True):
        odds, own = total[None] - messages, x[part.block.slice]
        if part.continuous:
            setting = part.unary, part.precision, odds, part.weight
            _, logs = nodes(*setting, part.positive)
            found.append(log_density(own[:, None], *setting)[:, 0] - logsumexp(logs))
            continue
        fields = strength * _fields(part, odds)[0]
        if part.block.domain is Domain.BINARY:
            found.append(own * fields - jax.nn.softplus(fields))
        else:
            groups = fields.reshape(part.block.variables, part.block.states)
            found.append(own * jax.nn.log_softmax(groups, -1).reshape(own.shape))
    return jnp.concatenate(found)
