"""Expectation propagation between Gaussian visible and binary hidden units, differentiable.

Messages to a visible unit are Gaussians by their natural parameters (t1, t2), those to a hidden
unit log-odds (query-training, D.3, with mu_B / var_B and -1 / (2 var_B) as the belief's own).
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

WIDEST = 100.0
"""Largest variance of a cavity or belief: keeps those proper that moment matching would not."""

Gaussian = tuple[Array, Array]


def gaussian_ep(
    weight: Float[Array, "v h"],
    unary: tuple[Float[Array, "rows v"], Float[Array, "rows v"]],
    hidden_bias: Float[Array, " h"],
    layers: int,
) -> tuple[Float[Array, "rows v"], Float[Array, "rows v"]]:
    """Mean and variance of every visible unit after `layers` parallel sweeps.

    `unary` are the natural parameters of each unit before any message: its prior, or evidence.
    Messages to the visibles start at (0, -1/2), those to the hiddens at 0. Stretches of
    sqrt(layers) sweeps are computed again in the reverse pass instead of stored.
    """
    size = (len(unary[0]), *weight.shape)
    zero = jnp.zeros(size, weight.dtype)
    stride = math.isqrt(layers - 1) + 1

    def sweep(messages: tuple, _: None) -> tuple[tuple, None]:
        to_visible, to_hidden = messages
        first, second = (
            (u + m.sum(2))[:, :, None] - m for u, m in zip(unary, to_visible, strict=True)
        )
        cavity = _moments(first, second)
        odds = (hidden_bias[None] + to_hidden.sum(1))[:, None, :] - to_hidden
        return (_to_visible(weight, odds, cavity), _to_hidden(weight, cavity)), None

    @jax.checkpoint
    def stretch(messages: tuple, _: None) -> tuple[tuple, None]:
        return jax.lax.scan(sweep, messages, None, stride)

    messages = (zero, zero - 0.5), zero
    messages, _ = jax.lax.scan(stretch, messages, None, layers // stride)
    messages, _ = jax.lax.scan(sweep, messages, None, layers % stride)
    first, second = (u + m.sum(2) for u, m in zip(unary, messages[0], strict=True))
    return _moments(first, second)


def _moments(t1: Array, t2: Array) -> Gaussian:
    """Mean and variance, the variance kept below `WIDEST`."""
    variance = -0.5 / jnp.minimum(t2, -0.5 / WIDEST)
    return t1 * variance, variance


def _to_hidden(weight: Array, cavity: Gaussian) -> Array:
    """log of the mean of exp(w v): w mu + w^2 var / 2."""
    mean, variance = cavity
    w = weight[None]
    return w * mean + 0.5 * variance * w**2


def _to_visible(weight: Array, odds: Array, cavity: Gaussian) -> Gaussian:
    """Moment-matched belief of a mixture of two Gaussians, less the cavity."""
    mean, variance = cavity
    step = variance * weight[None]
    p = jax.nn.sigmoid(odds + _to_hidden(weight, cavity))
    belief_mean = mean + p * step
    belief_variance = variance + p * (1 - p) * step**2
    t1 = belief_mean / belief_variance - mean / variance
    return t1, 0.5 / variance - 0.5 / belief_variance
