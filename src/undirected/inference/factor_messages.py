"""Messages of the factor groups of any order, at every temperature from max- to sum-product.

`respond` answers cavity fields with messages; `explain` gives the expected statistic of every
factor and its log normaliser, measured from the best state of each variable alone. Log-odds may be
as large as hard evidence: sums that leave one term out never subtract a larger one.
"""

from functools import reduce, singledispatch

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from undirected.core.errors import UnsupportedFactor
from undirected.core.factors import (
    Count,
    Logic,
    Pool,
    Tables,
    Wired,
    along,
    expected_table,
)
from undirected.core.layout import Layout
from undirected.core.numerics import CERTAIN, NEG_INF, is_zero, logsumexp, softplus
from undirected.core.potentials import Factor, Potentials
from undirected.inference.messages import Schedule, Traffic, mix, pair_beliefs, quiet, renew

Temperature = float | Array
HARD = 0.1 * CERTAIN
"""Log-odds beyond this come from a hard factor or from evidence."""


@singledispatch
def respond(
    factor: Wired, cavity: Float[Array, "W F"], temperature: Temperature
) -> Float[Array, "W F"]:
    """The message of every factor to each of its slots."""
    raise UnsupportedFactor(
        f"belief propagation: no messages for factor group {type(factor).__name__}"
    )


@singledispatch
def explain(
    factor: Wired, cavity: Float[Array, "W F"], temperature: Temperature
) -> tuple[Wired, Float[Array, " F"]]:
    """Expected statistics of the factors, and T log of the sum over their states."""
    raise UnsupportedFactor(
        f"belief propagation: no beliefs for factor group {type(factor).__name__}"
    )


@quiet.register
def _(factor: Wired, layout: Layout, schedule: Schedule) -> Traffic:
    zeros = jnp.zeros(factor.wires.units.shape, jnp.result_type(float))
    return Traffic(zeros, zeros[:0], jnp.zeros(layout.n, zeros.dtype))


@renew.register
def _(factor: Wired, layout: Layout, total: Array, traffic: Traffic, schedule: Schedule) -> Traffic:
    """No message is more than certain: around a loop, sums of certainties would grow forever."""
    fresh = respond(factor, _cavity(factor, total, traffic), schedule.temperature)
    forward = mix(jnp.clip(fresh, NEG_INF, CERTAIN), traffic.forward, schedule)
    return Traffic(forward, traffic.backward, factor.wires.gather(forward))


@pair_beliefs.register
def _(
    factor: Wired,
    layout: Layout,
    total: Array,
    unary: Array,
    traffic: Traffic,
    temperature: Temperature,
) -> tuple[Wired, Array]:
    cavity, sent = _cavity(factor, total, traffic), traffic.forward
    mean, log_z = explain(factor, cavity, temperature)
    if not isinstance(factor, Tables):
        return mean, log_z.sum() - _binary_share(cavity, sent, temperature).sum()
    start = 0
    for width in factor.widths:
        own, new = cavity[start : start + width], sent[start : start + width]
        start += width
        if width == 1:
            log_z = log_z - _binary_share(own, new, temperature)[0]
        else:
            levels = own - own.max(0, keepdims=True) + new
            log_z = log_z - _sum_axes(levels, (0,), temperature)
    return mean, log_z.sum()


def settle(
    p: Potentials, traffic: tuple[Traffic, ...], incoming: Float[Array, " n"]
) -> tuple[Potentials, tuple[Traffic, ...], Float[Array, " n"]]:
    """Units that hard factors decide become evidence, and messages to decided units become 0.

    The Bethe log Z adds every message to a certain unit and takes it off again, so it stays the
    same; but single precision would lose soft fields beside a message as large as certainty.
    """
    if not any(isinstance(factor, Wired) for factor in p.factors):
        return p, traffic, incoming
    verdict = jnp.where(jnp.abs(p.evidence) > HARD, p.evidence, incoming)
    decided = jnp.abs(verdict) > HARD
    evidence = jnp.where(decided, jnp.copysign(CERTAIN, verdict), p.evidence)
    pairs = zip(p.factors, traffic, strict=True)
    kept = tuple(_without(factor, messages, decided) for factor, messages in pairs)
    incoming = sum((group.incoming for group in kept[1:]), kept[0].incoming)
    return eqx.tree_at(lambda q: q.evidence, p, evidence), kept, incoming


def _without(factor: Factor, traffic: Traffic, decided: Bool[Array, " n"]) -> Traffic:
    """The messages of a group of any order to units that are not decided; an unused slot is."""
    if not isinstance(factor, Wired):
        return traffic
    deaf = factor.wires.spread(decided, True)
    forward = jnp.where(deaf, 0.0, traffic.forward)
    return Traffic(forward, traffic.backward, factor.wires.gather(forward))


def _cavity(factor: Wired, total: Array, traffic: Traffic) -> Array:
    """The fields of the units without the messages of this factor; an unused slot is certain."""
    idle = CERTAIN if isinstance(factor, Logic) and factor.conjunction else NEG_INF
    return factor.wires.spread(total, idle) - traffic.forward


def _binary_share(cavity: Array, sent: Array, temperature: Temperature) -> Array:
    """softplus(cavity + sent) - max(cavity, 0): the log normaliser of a binary slot."""
    return _either(-jnp.maximum(cavity, 0.0), jnp.minimum(cavity, 0.0) + sent, temperature)


# Tables: the variables of a factor as separate axes, the factors on the last.


@respond.register
def _(factor: Tables, cavity: Array, temperature: Temperature) -> Array:
    table, levels = _table_last(factor), _levels(factor, cavity)
    order = len(levels)
    sides = [along(level, i, order) for i, level in enumerate(levels)]
    messages = []
    for i, width in enumerate(factor.widths):
        rest = reduce(jnp.add, sides[:i] + sides[i + 1 :], table)
        rest = jnp.broadcast_to(rest, (*factor.states, cavity.shape[1]))
        to_states = _sum_axes(rest, tuple(j for j in range(order) if j != i), temperature)
        if width == 1:
            messages.append(to_states[1:] - to_states[:1])
        else:
            messages.append(to_states - to_states.max(0, keepdims=True))
    return jnp.concatenate(messages)


@explain.register
def _(factor: Tables, cavity: Array, temperature: Temperature) -> tuple[Tables, Array]:
    levels = _levels(factor, cavity)
    sides = [along(level, i, len(levels)) for i, level in enumerate(levels)]
    joint = reduce(jnp.add, sides, _table_last(factor))
    log_z = _sum_axes(joint, tuple(range(len(levels))), temperature)
    over = log_z.reshape((1,) * len(levels) + log_z.shape)
    return expected_table(factor, jnp.exp((joint - over) / temperature)), log_z


class TablesLast(Tables):
    """Tables whose factors are on the last axis of the weight, as messages want them."""


def ready(p: Potentials) -> Potentials:
    """Potentials to send messages of: what need not be done in every round is done once."""
    return eqx.tree_at(lambda q: q.factors, p, tuple(_ready(factor) for factor in p.factors))


def _ready(factor: Factor) -> Factor:
    if not isinstance(factor, Tables):
        return factor
    return TablesLast(_table_last(factor), factor.wiring, factor.states, factor.widths)


def _table_last(factor: Tables) -> Float[Array, "*states F"]:
    if isinstance(factor, TablesLast):
        return factor.weight
    return factor.weight[..., None] if factor.shared else jnp.moveaxis(factor.weight, 0, -1)


def _levels(factor: Tables, cavity: Array) -> list[Float[Array, "k F"]]:
    """The cavity of every variable as one number per state, the largest 0."""
    parts, start = [], 0
    for width in factor.widths:
        part = cavity[start : start + width]
        if width == 1:
            parts.append(jnp.concatenate([-jnp.maximum(part, 0.0), jnp.minimum(part, 0.0)]))
        else:
            parts.append(part - part.max(0, keepdims=True))
        start += width
    return parts


def _sum_axes(x: Array, axes: tuple[int, ...], temperature: Temperature) -> Array:
    """T log sum exp(x / T) over several axes."""
    if not axes:
        return x
    if is_zero(temperature):
        return x.max(axes)
    top = jax.lax.stop_gradient(x.max(axes, keepdims=True))  # finite, so there is less to check
    found = jnp.exp((x - top) / temperature).sum(axes)
    return top.reshape(found.shape) + temperature * jnp.log(found)


# Logic: an AND is an OR of what is false.


@respond.register
def _(factor: Logic, cavity: Array, temperature: Temperature) -> Array:
    sign = -1.0 if factor.conjunction else 1.0
    parents, child = sign * cavity[:-1], sign * cavity[-1:]
    if is_zero(temperature):
        others, most, everyone = _hard_others(parents)
        some = others + jnp.minimum(most, 0.0)
        up = jnp.where(child + some < 0, child + others, jnp.maximum(-most, 0.0))
    else:
        T = temperature
        parents, child = parents / T, child / T
        rest, log_rest, whole, log_whole = _soft_others(parents)
        some = _log_expm1(rest, log_rest)
        up = jnp.where(child + some < 0, child + rest, _gap(rest, log_rest))
        up = T * (up - jnp.log1p(jnp.exp(-jnp.abs(child + some))))
        everyone = T * _log_expm1(whole, log_whole)
    return sign * jnp.concatenate([up, everyone[None]])


@explain.register
def _(factor: Logic, cavity: Array, temperature: Temperature) -> tuple[Logic, Array]:
    sign, T = -1.0 if factor.conjunction else 1.0, temperature
    parents, child = sign * cavity[:-1] / T, sign * cavity[-1] / T
    _, _, whole, log_whole = _soft_others(parents)
    none = -jnp.maximum(parents, 0.0).sum(0) - jnp.maximum(child, 0.0)
    rest = jax.nn.softplus(-jnp.abs(parents)).sum(0) - _gap(whole, log_whole)
    log_z = T * jnp.logaddexp(none, jnp.minimum(child, 0.0) + rest)
    return Logic(jnp.zeros_like(log_z), None, factor.conjunction), log_z


def _hard_others(a: Float[Array, "m F"]) -> tuple[Array, Array, Array]:
    """For each entry: sum of max(a_j, 0) and max of a_j over the others; and the best non-empty
    sum over all.
    """
    first, lead = _leader(a)
    second = jnp.where(lead, NEG_INF, a).max(0)
    positive = jnp.maximum(a, 0.0)
    rest = jnp.where(lead, 0.0, positive).sum(0)
    sums = jnp.where(lead, rest[None], (rest + jnp.maximum(first, 0.0))[None] - positive)
    return sums, jnp.where(lead, second[None], first[None]), rest + first


def _soft_others(a: Float[Array, "m F"]) -> tuple[Array, Array, Array, Array]:
    """S_i = sum of softplus(a_j) over j != i and its logarithm; the same over all j."""
    _, lead = _leader(a)
    value = jax.nn.softplus(a)
    top = jnp.where(lead, value, 0.0).sum(0)
    rest = jnp.where(lead, 0.0, value).sum(0)
    sums = jnp.where(lead, rest[None], top[None] + jnp.maximum(rest[None] - value, 0.0))
    low, high = jnp.minimum(a, -15.0), jnp.maximum(a, -15.0)
    log_value = jnp.where(a < -15.0, low - 0.5 * jnp.exp(low), jnp.log(jax.nn.softplus(high)))
    log_sums, log_whole = log_others(log_value, 1.0)
    return sums, log_sums, top + rest, log_whole


def log_others(u: Float[Array, "m F"], temperature: Temperature) -> tuple[Array, Array]:
    """T log sum exp(u_j / T) over j != i for every i, and over all j."""
    first, lead = _leader(u)
    second = jnp.where(lead, NEG_INF, u).max(0)
    if is_zero(temperature):
        return jnp.where(lead, second[None], first[None]), first
    T = temperature
    near_first = jnp.where(lead, 0.0, jnp.exp((u - first[None]) / T))
    near_second = jnp.where(lead, 0.0, jnp.exp((jnp.minimum(u, second[None]) - second[None]) / T))
    tiny = jnp.finfo(u.dtype).tiny
    without_first = second + T * jnp.log(jnp.maximum(near_second.sum(0), tiny))
    rest = near_first.sum(0)
    without_other = first[None] + T * jnp.log1p(jnp.maximum(rest[None] - near_first, 0.0))
    return jnp.where(lead, without_first[None], without_other), first + T * jnp.log1p(rest)


def _leader(a: Float[Array, "m F"]) -> tuple[Array, Array]:
    """The largest entry of each column, and where it is (one place)."""
    place = jnp.arange(a.shape[0])[:, None] == jnp.argmax(a, 0)[None]
    return a.max(0), place


def _log_expm1(s: Array, log_s: Array) -> Array:
    """log(exp(s) - 1) of s >= 0, from s and its logarithm."""
    large, small = jnp.maximum(s, 1.0), jnp.clip(s, 1e-6, 1.0)
    near = log_s + jnp.where(s < 1e-6, 0.5 * s, jnp.log(jnp.expm1(small) / small))
    return jnp.where(s > 1, large + jnp.log1p(-jnp.exp(-large)), near)


def _gap(s: Array, log_s: Array) -> Array:
    """s - log(exp(s) - 1) = -log(1 - exp(-s)) of s >= 0, from s and its logarithm."""
    large, small = jnp.maximum(s, 1.0), jnp.clip(s, 1e-6, 1.0)
    near = log_s + jnp.where(s < 1e-6, -0.5 * s, jnp.log(-jnp.expm1(-small) / small))
    return -jnp.where(s > 1, jnp.log1p(-jnp.exp(-large)), near)


# Pool: the indicator lets exactly one choice on.


@respond.register
def _(factor: Pool, cavity: Array, temperature: Temperature) -> Array:
    choices, indicator = cavity[:-1], cavity[-1:]
    others, everyone = log_others(choices, temperature)
    up = jnp.minimum(indicator, -others)
    if not is_zero(temperature):
        up = up - softplus(-jnp.abs(indicator + others), temperature)
    return jnp.concatenate([up, everyone[None]])


@explain.register
def _(factor: Pool, cavity: Array, temperature: Temperature) -> tuple[Pool, Array]:
    choices, indicator = cavity[:-1], cavity[-1]
    positive = jnp.maximum(choices, 0.0)
    _, lead = _leader(positive)
    rest = jnp.where(lead, 0.0, positive).sum(0)
    top = jnp.where(lead, positive, 0.0).sum(0)
    without = jnp.where(lead, rest[None], top[None] + rest[None] - positive)
    on = logsumexp(jnp.minimum(choices, 0.0) - without, temperature, 0)
    on = on + jnp.minimum(indicator, 0.0)
    off = -(top + rest) - jnp.maximum(indicator, 0.0)
    log_z = logsumexp(jnp.stack([on, off]), temperature, 0)
    return Pool(jnp.zeros_like(log_z), None), log_z


# Count: dynamic programme over the members, O(K) each.


@respond.register
def _(factor: Count, cavity: Array, temperature: Temperature) -> Array:
    before, _ = _counts(factor, cavity, temperature)
    off, on = -jnp.maximum(cavity, 0.0), jnp.minimum(cavity, 0.0)
    last = _count_table(factor, cavity)

    def back(after: Array, slot: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        """`after[k]`: best or total value of the members to come, given k on before them."""
        off_i, on_i, before_i = slot
        one_more = jnp.concatenate([after[1:], jnp.full_like(after[:1], NEG_INF)])
        raised = logsumexp(before_i + one_more, temperature, 0)
        kept = logsumexp(before_i + after, temperature, 0)
        after = _either(after + off_i[None], one_more + on_i[None], temperature)
        return after, raised - kept

    _, messages = jax.lax.scan(back, last, (off, on, before), reverse=True)
    return messages


@explain.register
def _(factor: Count, cavity: Array, temperature: Temperature) -> tuple[Count, Array]:
    _, end = _counts(factor, cavity, temperature)
    levels = end + _count_table(factor, cavity)
    log_z = logsumexp(levels, temperature, 0)
    share = jnp.exp((levels - log_z[None]) / temperature)
    weight = share.sum(1) if factor.weight.ndim == 1 else share.T
    return Count(weight, None, jnp.zeros((), log_z.dtype)), log_z


def _counts(
    factor: Count, cavity: Array, temperature: Temperature
) -> tuple[Float[Array, "m k F"], Float[Array, "k F"]]:
    """Value of every number on among the members before each one, and among all."""
    off, on = -jnp.maximum(cavity, 0.0), jnp.minimum(cavity, 0.0)
    size = factor.weight.shape[-1], cavity.shape[1]
    start = jnp.where(jnp.arange(size[0]) == 0, 0.0, NEG_INF)[:, None]
    start = jnp.broadcast_to(start, size).astype(cavity.dtype)

    def add(counts: Array, slot: tuple[Array, Array]) -> tuple[Array, Array]:
        off_i, on_i = slot
        one_less = jnp.concatenate([jnp.full_like(counts[:1], NEG_INF), counts[:-1]])
        return _either(counts + off_i[None], one_less + on_i[None], temperature), counts

    end, before = jax.lax.scan(add, start, (off, on))
    return before, end


def _count_table(factor: Count, cavity: Array) -> Float[Array, "k F"]:
    weight = factor.weight.T if factor.weight.ndim == 2 else factor.weight[:, None]
    return jnp.broadcast_to(weight, (weight.shape[0], cavity.shape[1])).astype(cavity.dtype)


def _either(a: Array, b: Array, temperature: Temperature) -> Array:
    """T log(exp(a / T) + exp(b / T))."""
    top = jnp.maximum(a, b)
    return top if is_zero(temperature) else top + softplus(-jnp.abs(a - b), temperature)
