"""A fixed number of belief-propagation sweeps on a dense bipartite binary model, differentiable.

Weights are shared by a batch of rows, each with its own fields. In a parallel schedule the fields
of one side after N sweeps depend on every second half-sweep only, so N half-sweeps on one message
array are enough, and the other N are never computed. Messages are those of the symmetric factor
exp(u s t / 2) of spins s, t, with u = w / 2 (query-training, D.1): from cavity log-odds x,

    f(x) = log(1 + exp(x + u)) - log(exp(u) + exp(x)).

They are kept as ratios exp(f), which need one division and no exponential, and as logarithms where
weights are too steep for that. The reverse pass stores the messages of every sqrt(N)-th sweep and
computes the others again.
"""

from functools import partial
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from undirected.core.numerics import sum_rows
from undirected.ops import retrace
from undirected.ops.bipartite import steepest

GROUP = 4
"""Ratios that are multiplied before one logarithm is taken."""
STEEPEST = 20.0
"""Largest |u| for which a product of `GROUP` ratios stays in the range of float32."""

Messages = Float[Array, "rows a b"]
Fields = Float[Array, "rows n"]


def unrolled_fields(
    weight: Float[Array, "a b"],
    fields: Float[Array, "rows a"],
    other_fields: Float[Array, "rows b"],
    layers: int,
    symmetric_start: bool = False,
) -> Float[Array, "rows a"]:
    """Log-odds of side a after `layers` parallel sweeps from empty messages.

    Empty are the messages of the factor exp(w x y) on {0, 1}, or with `symmetric_start` those of
    its spin form, which differ from them by w / 2. Swap the sides for the log-odds of side b.
    """
    half = 0.5 * weight
    start = jnp.zeros_like(half) if symmetric_start else -half
    here = fields + half.sum(1)[None]
    there = other_fields + half.sum(0)[None]
    return _unroll(layers, half, here, there, start)


class Form(Protocol):
    """How messages are held: what starts, renews and sums them, and how steeply they answer."""

    def begin(self, start: Float[Array, "a b"], rows: int) -> Messages: ...

    def update_messages(self, messages: Messages, total: Array) -> Messages: ...

    def total(self, messages: Messages, axis: int) -> Fields: ...

    def slopes(self, messages: Messages, total: Array, g: Array) -> tuple[Messages, Messages]: ...


class Ratios(eqx.Module):
    """Messages as ratios s: with cavity odds E / s, exp(f) = (s + a E) / (a s + E), a = exp(u)."""

    odds: Float[Array, "1 a b"]
    growth: Float[Array, "1 a b"]

    @classmethod
    def of(cls, half: Float[Array, "a b"]) -> "Ratios":
        """For couplings u; `growth` is a^2 - 1."""
        return cls(jnp.exp(half)[None], jnp.expm1(2 * half)[None])

    def begin(self, start: Float[Array, "a b"], rows: int) -> Messages:
        return jnp.broadcast_to(jnp.exp(start)[None], (rows, *start.shape))

    def update_messages(self, messages: Messages, total: Array) -> Messages:
        s, E = _scaled(messages, total)
        return (s + self.odds * E) / (self.odds * s + E)

    def total(self, messages: Messages, axis: int) -> Fields:
        length = messages.shape[axis]
        whole = length - length % GROUP
        head = jax.lax.slice_in_dim(messages, 0, whole, axis=axis)
        tail = jax.lax.slice_in_dim(messages, whole, length, axis=axis)
        shape = [*messages.shape[:axis], whole // GROUP, GROUP, *messages.shape[axis + 1 :]]
        products = head.reshape(shape).prod(axis + 1)
        return jnp.log(products).sum(axis) + jnp.log(tail).sum(axis)

    def slopes(self, messages: Messages, total: Array, g: Array) -> tuple[Messages, Messages]:
        """g df/dx and g df/du."""
        s, E = _scaled(messages, total)
        scaled = g / ((s + self.odds * E) * (self.odds * s + E))
        return self.growth * s * E * scaled, self.odds * (E - s) * (E + s) * scaled


class Logs(eqx.Module):
    """Messages as logarithms, for weights of any size."""

    half: Float[Array, "a b"]

    def begin(self, start: Float[Array, "a b"], rows: int) -> Messages:
        return jnp.broadcast_to(start[None], (rows, *start.shape))

    def update_messages(self, messages: Messages, total: Array) -> Messages:
        x, u = total - messages, self.half[None]
        hard = jnp.sign(u) * jnp.clip(x, -jnp.abs(u), jnp.abs(u))
        soft = jnp.log1p(jnp.exp(-jnp.abs(x + u))) - jnp.log1p(jnp.exp(-jnp.abs(x - u)))
        return hard + soft

    def total(self, messages: Messages, axis: int) -> Fields:
        return messages.sum(axis)

    def slopes(self, messages: Messages, total: Array, g: Array) -> tuple[Messages, Messages]:
        """g df/dx and g df/du."""
        x, u = total - messages, self.half[None]
        up, down = jax.nn.sigmoid(x + u), jax.nn.sigmoid(x - u)
        return g * (up - down), g * (up + down - 1)


def _scaled(messages: Messages, total: Array) -> tuple[Array, Array]:
    """s and E, both times exp(-max(total, 0)), so that no field overflows.

    The barrier keeps XLA from taking the exponential of a field again for every message.
    """
    scales = jnp.exp(-jnp.maximum(total, 0.0)), jnp.exp(jnp.minimum(total, 0.0))
    down, up = jax.lax.optimization_barrier(scales)
    return messages * down, up


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _unroll(
    layers: int,
    half: Float[Array, "a b"],
    here: Float[Array, "rows a"],
    there: Float[Array, "rows b"],
    start: Float[Array, "a b"],
) -> Float[Array, "rows a"]:
    return _forward(layers, half, here, there, start)[0]


def _forward(layers: int, half: Array, here: Array, there: Array, start: Array) -> tuple:
    inputs = half, here, there, start
    fields, stored = _by_steepness(half, lambda form: _sweep(form, layers, here, there, start))
    return fields, (inputs, stored)


def _backward(layers: int, residuals: tuple, g: Float[Array, "rows a"]) -> tuple:
    (half, here, there, start), stored = residuals
    work = partial(_unsweep, layers=layers, sides=(here, there), start=start, stored=stored, g=g)
    return _by_steepness(half, work)


_unroll.defvjp(_forward, _backward)


def _by_steepness(half: Float[Array, "a b"], work: Any) -> Any:
    """`work` on ratios, or on logarithms where a weight needs them."""
    return jax.lax.cond(
        steepest(half) > STEEPEST, lambda: work(Logs(half)), lambda: work(Ratios.of(half))
    )


def _lengths(layers: int, rows: int, start: Float[Array, "a b"]) -> tuple[int, int]:
    """Pairs of half-sweeps, and pairs from one stored state to the next."""
    pairs = layers // 2
    return pairs, retrace.stride_of(pairs, rows * start.size * start.dtype.itemsize)


def _sweep(form: Form, layers: int, here: Array, there: Array, start: Array) -> tuple:
    """The fields of `here` after all half-sweeps, and (messages, fields) of every stride-th pair.

    The last half-sweep goes from `there` to `here`; an odd one out comes first.
    """
    lengths = _lengths(layers, len(here), start)
    first = _first(form, layers, here, there, start)
    (_, fields), stored = retrace.there(lambda s: _pair(form, here, there, *s), first, *lengths)
    return fields, stored


def _first(form: Form, layers: int, here: Array, there: Array, start: Array) -> tuple[Array, Array]:
    """Messages into `here` and its fields before the first pair."""
    messages = form.begin(start, len(here))
    if layers % 2 == 0:
        return messages, here + start.sum(1)[None]
    messages = form.update_messages(messages, (there + start.sum(0)[None])[:, None, :])
    return messages, here + form.total(messages, 2)


def _pair(form: Form, here: Array, there: Array, messages: Array, fields: Array) -> tuple:
    """One half-sweep to `there` and one back."""
    messages = form.update_messages(messages, fields[:, :, None])
    messages = form.update_messages(messages, (there + form.total(messages, 1))[:, None, :])
    return messages, here + form.total(messages, 2)


class Cotangents(eqx.Module):
    """What the reverse pass carries: by message into `here` it is `total` less `own`."""

    own: Messages
    total: Float[Array, "rows a"]
    half: Float[Array, "a b"]
    here: Float[Array, "rows a"]
    there: Float[Array, "rows b"]


def _unsweep(
    form: Form, layers: int, sides: tuple[Array, Array], start: Array, stored: tuple, g: Array
) -> tuple[Array, Array, Array, Array]:
    """Cotangents of half, here, there and start."""
    here, there = sides
    lengths = _lengths(layers, len(here), start)
    nothing = jnp.zeros((len(here), *start.shape), here.dtype)
    back = Cotangents(nothing, g, jnp.zeros_like(start), g, jnp.zeros_like(there))
    back = retrace.back(
        lambda s: _pair(form, here, there, *s),
        lambda before, back: _unpair(form, there, before, back),
        stored,
        back,
        *lengths,
    )
    return _unfirst(form, layers, there, start, back)


def _unpair(form: Form, there: Array, before: tuple, back: Cotangents) -> Cotangents:
    """Through one pair of half-sweeps, given the messages and fields before it."""
    messages, fields = before
    middle = form.update_messages(messages, fields[:, :, None])
    between = there + form.total(middle, 1)
    g = back.total[:, :, None] - back.own
    own, by_half = form.slopes(middle, between[:, None, :], g)
    half, total = back.half + sum_rows(by_half), own.sum(1)
    by_there = back.there + total
    own, by_half = form.slopes(messages, fields[:, :, None], total[:, None, :] - own)
    total = own.sum(2)
    return Cotangents(own, total, half + sum_rows(by_half), back.here + total, by_there)


def _unfirst(
    form: Form, layers: int, there: Array, start: Array, back: Cotangents
) -> tuple[Array, Array, Array, Array]:
    """Through the odd half-sweep, where there is one, to the start."""
    g = back.total[:, :, None] - back.own
    if layers % 2 == 0:
        return back.half, back.here, back.there, sum_rows(g)
    messages = form.begin(start, len(there))
    own, by_half = form.slopes(messages, (there + start.sum(0)[None])[:, None, :], g)
    total = own.sum(1)
    by_start = sum_rows(total[:, None, :] - own)
    return back.half + sum_rows(by_half), back.here, back.there + total, by_start
