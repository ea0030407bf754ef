"""Sums over all entries but one, in forms that never subtract a larger number from a smaller.

Shared by the groups of any order. Log-odds may be as large as hard evidence (1e9), and single
precision would lose soft numbers beside it; so the largest entry is always kept apart.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from undirected.core.numerics import NEG_INF, is_zero, softplus
from undirected.factors.base import Temperature


def either(a: Array, b: Array, temperature: Temperature) -> Array:
    """T log(exp(a / T) + exp(b / T))."""
    top = jnp.maximum(a, b)
    return top if is_zero(temperature) else top + softplus(-jnp.abs(a - b), temperature)


def binary_share(cavity: Array, sent: Array, temperature: Temperature) -> Array:
    """softplus(cavity + sent) - max(cavity, 0): the log normaliser of a binary slot."""
    return either(-jnp.maximum(cavity, 0.0), jnp.minimum(cavity, 0.0) + sent, temperature)


def sum_axes(x: Array, axes: tuple[int, ...], temperature: Temperature) -> Array:
    """T log sum exp(x / T) over several axes."""
    if not axes:
        return x
    if is_zero(temperature):
        return x.max(axes)
    top = jax.lax.stop_gradient(x.max(axes, keepdims=True))  # finite, so there is less to check
    found = jnp.exp((x - top) / temperature).sum(axes)
    return top.reshape(found.shape) + temperature * jnp.log(found)


def along(part: Float[Array, "k F"], axis: int, order: int) -> Array:
    """An array (k, F) as one with k on this axis of `order` and F on the last."""
    shape = [1] * order + [part.shape[1]]
    shape[axis] = part.shape[0]
    return part.reshape(shape)


def leader(a: Float[Array, "m F"]) -> tuple[Array, Array]:
    """The largest entry of each column, and where it is (one place)."""
    place = jnp.arange(a.shape[0])[:, None] == jnp.argmax(a, 0)[None]
    return a.max(0), place


def hard_others(a: Float[Array, "m F"]) -> tuple[Array, Array, Array]:
    """For each entry: sum of max(a_j, 0) and max of a_j over the others; and the best non-empty
    sum over all.
    """
    first, lead = leader(a)
    second = jnp.where(lead, NEG_INF, a).max(0)
    positive = jnp.maximum(a, 0.0)
    rest = jnp.where(lead, 0.0, positive).sum(0)
    sums = jnp.where(lead, rest[None], (rest + jnp.maximum(first, 0.0))[None] - positive)
    return sums, jnp.where(lead, second[None], first[None]), rest + first


def soft_others(a: Float[Array, "m F"]) -> tuple[Array, Array, Array, Array]:
    """S_i = sum of softplus(a_j) over j != i and its logarithm; the same over all j."""
    _, lead = leader(a)
    value = jax.nn.softplus(a)
    top = jnp.where(lead, value, 0.0).sum(0)
    rest = jnp.where(lead, 0.0, value).sum(0)
    sums = jnp.where(lead, rest[None], top[None] + jnp.maximum(rest[None] - value, 0.0))
    # log softplus(a) is a - exp(a) / 2 + ... where softplus itself would underflow.
    low, high = jnp.minimum(a, -15.0), jnp.maximum(a, -15.0)
    log_value = jnp.where(a < -15.0, low - 0.5 * jnp.exp(low), jnp.log(jax.nn.softplus(high)))
    log_sums, log_whole = log_others(log_value, 1.0)
    return sums, log_sums, top + rest, log_whole


def log_others(u: Float[Array, "m F"], temperature: Temperature) -> tuple[Array, Array]:
    """T log sum exp(u_j / T) over j != i for every i, and over all j."""
    first, lead = leader(u)
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


def log_expm1(s: Array, log_s: Array) -> Array:
    """log(exp(s) - 1) of s >= 0, from s and its logarithm."""
    large, small = jnp.maximum(s, 1.0), jnp.clip(s, 1e-6, 1.0)
    near = log_s + jnp.where(s < 1e-6, 0.5 * s, jnp.log(jnp.expm1(small) / small))
    return jnp.where(s > 1, large + jnp.log1p(-jnp.exp(-large)), near)


def log_one_minus_exp(s: Array, log_s: Array) -> Array:
    """-log(1 - exp(-s)) of s >= 0, from s and its logarithm."""
    large, small = jnp.maximum(s, 1.0), jnp.clip(s, 1e-6, 1.0)
    near = log_s + jnp.where(s < 1e-6, -0.5 * s, jnp.log(-jnp.expm1(-small) / small))
    return -jnp.where(s > 1, jnp.log1p(-jnp.exp(-large)), near)
