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
    Messages to the visibles start at (0, -1/2), those to the hiddens at 0. Only the messages
    between stretches of sqrt(layers) sweeps are stored for the reverse pass.
    """
    size = (len(unary[0]), *weight.shape)
    zero = jnp.zeros(size, weight.dtype)
    stride = math.isqrt(layers - 1) + 1

    @jax.checkpoint
    def sweep(messages: tuple, _: None) -> tuple[tuple, None]:
        to_visible, to_hidden = messages
        cavity = [(u + m.sum(2))[:, :, None] - m for u, m in zip(unary, to_visible, strict=True)]
        odds = (hidden_bias[None] + to_hidden.sum(1))[:, None, :] - to_hidden
        return _renew(weight[None], odds, *cavity), None

    @jax.checkpoint
    def stretch(messages: tuple, _: None) -> tuple[tuple, None]:
        return jax.lax.scan(sweep, messages, None, stride)

    messages = (zero, zero - 0.5), zero
    messages, _ = jax.lax.scan(stretch, messages, None, layers // stride)
    messages, _ = jax.lax.scan(sweep, messages, None, layers % stride)
    first, second = (u + m.sum(2) for u, m in zip(unary, messages[0], strict=True))
    variance = 1 / _precision(second)
    return first * variance, variance


def _precision(second: Array) -> Array:
    return jnp.maximum(-2 * second, 1 / WIDEST)


def _renew(weight: Array, odds: Array, first: Array, second: Array) -> tuple[Gaussian, Array]:
    """Messages both ways, given the log-odds of the hidden units and the cavities of the visibles.

    To a hidden unit log of the mean of exp(w v), w mu + w^2 var / 2; to a visible one the moment-
    matched belief of a mixture of two Gaussians, less the cavity.
    """
    precision = _precision(second)
    variance = 1 / precision
    mean, step = first * variance, variance * weight
    to_hidden = weight * (mean + 0.5 * step)
    p = jax.nn.sigmoid(odds + to_hidden)
    belief = 1 / (variance + p * (1 - p) * step**2)
    return ((mean + p * step) * belief - first, 0.5 * (precision - belief)), to_hidden
