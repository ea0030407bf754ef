"""One continuous unit among binary neighbours, by quadrature along its line.

The density of x is proportional to exp(l x - r x^2 / 2) prod_j (1 + exp(o_j + w_j x)), on the whole
line or on x >= 0: a unit with field l and precision r whose neighbours have log-odds o_j without it
and couplings w_j with it. Belief propagation and single-unit conditionals both ask for it.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from undirected.core.numerics import message

NODES = 64
"""Gauss-Legendre nodes of one integral; the first pass, which finds the mass, has as many."""
_DROP = 20.0  # nats below the highest value at which the density is left out
_REACH = 7.0  # standard deviations beyond the farthest mean


def nodes(
    l: Float[Array, "*s"],
    r: Float[Array, "*s"],
    odds: Float[Array, "*s H"],
    weight: Float[Array, "*s H"],
    positive: bool,
) -> tuple[Float[Array, "*s g"], Float[Array, "*s g"]]:
    """Places that cover the mass of the density, and its logarithm there with the rule's weights.

    A first pass covers all that the neighbours can do. Its curvature is at least -r, so that no
    peak between two of its nodes is missed: within half a step d the logarithm falls by r d^2 / 2
    at most.
    """
    scale = _REACH / jnp.sqrt(r)
    low = (l + jnp.minimum(weight, 0.0).sum(-1)) / r - scale
    high = (l + jnp.maximum(weight, 0.0).sum(-1)) / r + scale
    if positive:
        low, high = jnp.zeros_like(low), jnp.maximum(high, scale)
    low, high = jax.lax.stop_gradient(_zoom(l, r, odds, weight, low, high))
    x, log_step = _rule(low, high)
    return x, log_step + log_density(x, l, r, odds, weight)


def log_density(x: Array, l: Array, r: Array, odds: Array, weight: Array) -> Array:
    """Logarithm at places x (*s, g), such that a unit without neighbours has l x - r x^2 / 2 there.

    Of 1 + exp(o_j + w_j x) the value at x = 0 is left out, so that certain neighbours do no harm.
    """

    def add(total: Array, unit: tuple[Array, Array]) -> tuple[Array, None]:
        return total + message(unit[0][..., None], unit[1][..., None] * x), None

    own = l[..., None] * x - 0.5 * r[..., None] * x * x
    units = jnp.moveaxis(odds, -1, 0), jnp.moveaxis(jnp.broadcast_to(weight, odds.shape), -1, 0)
    return jax.lax.scan(jax.checkpoint(add), own, units)[0]


def log_probability(
    x: Float[Array, "*s"],
    l: Float[Array, "*s"],
    r: Float[Array, "*s"],
    odds: Float[Array, "*s H"],
    weight: Float[Array, "*s H"],
    positive: bool,
) -> Float[Array, "*s"]:
    """Log of the normalised density at x."""
    _, logs = nodes(l, r, odds, weight, positive)
    return log_density(x[..., None], l, r, odds, weight)[..., 0] - jax.nn.logsumexp(logs, -1)


def _rule(low: Array, high: Array) -> tuple[Array, Array]:
    """Gauss-Legendre nodes of every interval, and the logarithms of their weights."""
    place, weight = (jnp.asarray(a, low.dtype) for a in np.polynomial.legendre.leggauss(NODES))
    half = 0.5 * (high - low)[..., None]
    shape = (1,) * (half.ndim - 1) + (NODES,)
    x = low[..., None] + half * (place.reshape(shape) + 1)
    return x, jnp.log(half) + jnp.log(weight).reshape(shape)


def _zoom(
    l: Array, r: Array, odds: Array, weight: Array, low: Array, high: Array
) -> tuple[Array, Array]:
    """The part of an interval that holds the mass."""
    step = ((high - low) / (NODES - 1))[..., None]
    x = low[..., None] + step * jnp.arange(NODES, dtype=low.dtype).reshape(
        (1,) * low.ndim + (NODES,)
    )
    logs = log_density(x, l, r, odds, weight)
    fall = 0.125 * r[..., None] * step**2
    kept = logs > logs.max(-1, keepdims=True) - _DROP - fall
    first = jnp.where(kept, x, jnp.inf).min(-1) - step[..., 0]
    last = jnp.where(kept, x, -jnp.inf).max(-1) + step[..., 0]
    return jnp.maximum(first, low), jnp.minimum(last, high)
