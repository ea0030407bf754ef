"""Expectation propagation between Gaussian visible and binary hidden units, differentiable.

Messages to a visible unit are Gaussians by their natural parameters (t1, t2), those to a hidden
unit log-odds (query-training, D.3, with mu_B / var_B and -1 / (2 var_B) as the belief's own). The
work is bound by memory, so the derivatives of a sweep are written out: automatic ones take
three times as long on a GPU.
"""

from functools import partial
from typing import cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from undirected.core.numerics import sum_rows
from undirected.ops import retrace

WIDEST = 100.0
"""Largest variance of a cavity or belief: keeps those proper that moment matching would not."""

Visible = Float[Array, "rows v"]
Messages = Float[Array, "rows v h"]
Unary = tuple[Visible, Visible]


def gaussian_ep(
    weight: Float[Array, "v h"],
    unary: Unary,
    hidden_bias: Float[Array, " h"],
    layers: int,
) -> tuple[Visible, Visible]:
    """Mean and variance of every visible unit after `layers` parallel sweeps.

    `unary` are the natural parameters of each unit before any message: its prior, or evidence.
    Messages to the visibles start at (0, -1/2), those to the hiddens at 0.
    """
    first, second = cast(Unary, _beliefs(layers, weight, *unary, hidden_bias))
    variance = 1 / _precision(second)
    return first * variance, variance


class Sweeper(eqx.Module):
    """One parallel sweep and its derivatives; states are three messages and their three totals."""

    weight: Float[Array, "v h"]
    first: Visible
    second: Visible
    hidden_bias: Float[Array, " h"]

    def begin(self) -> retrace.State:
        zero = jnp.zeros((len(self.first), *self.weight.shape), self.weight.dtype)
        return self._with_totals(zero, zero - 0.5, zero)

    def step(self, state: retrace.State) -> retrace.State:
        t1, t2, odds = _cavities(state)
        w, precision = self.weight[None], _precision(t2)
        to_hidden, p, share = _answers(w, w / precision, t1, odds)
        first = (t1 + p * w) * share - t1
        return self._with_totals(first, 0.5 * precision * (1 - share), to_hidden)

    def undo(self, state: retrace.State, slopes: "Slopes") -> "Slopes":
        """Slopes of the state after a sweep, taken back to the state before it."""
        t1, t2, odds = _cavities(state)
        w, precision = self.weight[None], _precision(t2)
        V = 1 / precision
        step = w * V
        _, p, share = _answers(w, step, t1, odds)
        both, square = p * (1 - p), w * step

        g1 = slopes.first[:, :, None] - slopes.own_first
        g2 = slopes.second[:, :, None] - slopes.own_second
        g_sum = g1 * share
        g_inverse = share**2 * (0.5 * g2 * precision - g1 * (t1 + p * w))
        g_odds = both * (g_sum * w + g_inverse * square * (1 - 2 * p))
        g_hidden = slopes.odds[:, None, :] - slopes.own_odds + g_odds
        g_square = g_inverse * both
        g_step = g_hidden * (t1 + 0.5 * w) + g_square * w

        own_first = g_sum - g1 + g_hidden * step
        g_precision = 0.5 * g2 * (1 - share) - g_step * step * V
        own_second = jnp.where(_proper(t2), -2 * g_precision, 0)
        by_weight = g_sum * p + g_square * step + 0.5 * g_hidden * step + g_step * V
        own_first, own_second, g_odds, by_weight = jax.lax.optimization_barrier(
            (own_first, own_second, g_odds, by_weight)
        )
        totals = _over_hidden(own_first), _over_hidden(own_second), _over_visible(g_odds)
        return Slopes(
            own_first,
            own_second,
            g_odds,
            *totals,
            slopes.by_weight + by_weight,
            slopes.by_first + totals[0],
            slopes.by_second + totals[1],
            slopes.by_bias + totals[2].sum(0),
        )

    def _with_totals(self, *messages: Messages) -> retrace.State:
        first, second, odds = jax.lax.optimization_barrier(messages)
        totals = self.first + _over_hidden(first), self.second + _over_hidden(second)
        return first, second, odds, *totals, self.hidden_bias[None] + _over_visible(odds)


class Slopes(eqx.Module):
    """What the way back carries: by a message it is the slope of its total less its `own`."""

    own_first: Messages
    own_second: Messages
    own_odds: Messages
    first: Visible
    second: Visible
    odds: Float[Array, "rows h"]
    by_weight: Messages
    by_first: Visible
    by_second: Visible
    by_bias: Float[Array, " h"]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _beliefs(
    layers: int, weight: Array, first: Array, second: Array, hidden_bias: Array
) -> tuple[Visible, Visible]:
    """Natural parameters of the beliefs of the visibles."""
    sweeper = Sweeper(weight, first, second, hidden_bias)
    state = jax.lax.fori_loop(0, layers, lambda _, s: sweeper.step(s), sweeper.begin())
    return state[3], state[4]


def _forward(layers: int, *inputs: Array) -> tuple:
    sweeper = Sweeper(*inputs)
    state, stored = retrace.there(sweeper.step, sweeper.begin(), layers, _stride(layers, sweeper))
    return (state[3], state[4]), (sweeper, stored)


def _backward(layers: int, kept: tuple, g: tuple[Visible, Visible]) -> tuple[Array, ...]:
    sweeper, stored = kept
    zero = jnp.zeros((len(sweeper.first), *sweeper.weight.shape), sweeper.weight.dtype)
    bias = jnp.zeros_like(sweeper.hidden_bias)
    none = jnp.zeros((len(zero), len(bias)), zero.dtype)
    slopes = Slopes(zero, zero, zero, *g, none, zero, *g, bias)
    stride = _stride(layers, sweeper)
    slopes = retrace.back(sweeper.step, sweeper.undo, stored, slopes, layers, stride)
    return sum_rows(slopes.by_weight), slopes.by_first, slopes.by_second, slopes.by_bias


_beliefs.defvjp(_forward, _backward)


def _stride(layers: int, sweeper: Sweeper) -> int:
    size = len(sweeper.first) * sweeper.weight.size
    return retrace.stride_of(layers, 3 * size * sweeper.weight.dtype.itemsize)


def _cavities(state: retrace.State) -> tuple[Messages, Messages, Messages]:
    """Totals less messages: both parameters of the visibles, and the log-odds of the hiddens."""
    first, second, odds, *totals = state
    return (
        totals[0][:, :, None] - first,
        totals[1][:, :, None] - second,
        totals[2][:, None, :] - odds,
    )


def _answers(
    w: Array, step: Messages, t1: Messages, odds: Messages
) -> tuple[Messages, Messages, Messages]:
    """Messages to the hiddens, their probabilities with these, and 1 - 2 m for a new message m to
    the precision of a visible, as a share of that of its cavity.
    """
    to_hidden = step * (t1 + 0.5 * w)
    p = jax.nn.sigmoid(odds + to_hidden)
    return to_hidden, p, 1 / (1 + p * (1 - p) * w * step)


def _over_hidden(x: Messages) -> Visible:
    """Sums as products, as `sum_rows` has them: reductions would make the messages again."""
    return jnp.matmul(x, jnp.ones(x.shape[2], x.dtype), precision="highest")


def _over_visible(x: Messages) -> Float[Array, "rows h"]:
    return jnp.matmul(jnp.ones((1, x.shape[1]), x.dtype), x, precision="highest")[:, 0]


def _proper(second: Array) -> Array:
    return -2 * second > 1 / WIDEST


def _precision(second: Array) -> Array:
    return jnp.maximum(-2 * second, 1 / WIDEST)
