"""Sum-product on an 8-connected grid of categorical variables, as shifted matrix products.

All messages are renewed by one batched product: for each of the eight directions, the pixels'
cavity beliefs times the potential of that direction, then moved by one pixel (query-training,
Appendix B).
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

OFFSETS = ((1, 0), (0, 1), (1, 1), (1, -1))
"""Steps from the first to the second pixel of a pair: down, right, and the two diagonals."""
LEAST = 1e-20
"""Floor of a message before its logarithm is taken."""

Pixels = Float[Array, "images rows cols states"]
Messages = Float[Array, "ways states images rows cols"]
Field = Float[Array, "states images rows cols"]
Flat = Float[Array, "ways states pixels"]
Factor = Float[Array, "ways states states"]
Top = Float[Array, "ways states"]


def grid_fields(potentials: Float[Array, "4 states states"], unary: Pixels, layers: int) -> Pixels:
    """Sum of the log messages into every pixel after `layers` parallel sweeps; unary not added.

    `potentials[d][a, b]` is the log-potential of a pixel in state a and the one at OFFSETS[d] from
    it in state b. The reverse pass keeps one array of messages per sweep and derives from it again
    what it needs of the sweep.
    """
    unary = jnp.moveaxis(unary, -1, 0)  # pixels last: long lines, whatever the number of states
    nothing = jnp.zeros((2 * len(OFFSETS), *unary.shape), unary.dtype)
    both_ways = jnp.concatenate([potentials, potentials.swapaxes(1, 2)])
    top = both_ways.max(2)  # moved into the belief, so that no product is zero
    factor = jnp.exp(both_ways - top[..., None])
    messages, _ = lax.scan(
        lambda messages, _: (_sweep(factor, top, unary, messages), None), nothing, None, layers
    )
    return jnp.moveaxis(messages.sum(0), 0, -1)


@jax.custom_vjp
def _sweep(factor: Factor, top: Top, unary: Field, messages: Messages) -> Messages:
    """All messages anew."""
    _, sent, total = _send(factor, top, unary, messages)
    return _shift(jnp.log(sent / total + LEAST).reshape(messages.shape))


def _send(factor: Factor, top: Top, unary: Field, messages: Messages) -> tuple[Flat, Flat, Array]:
    """Beliefs of the pixels without the answer of each way, the products, their sums."""
    cavity = (unary + messages.sum(0))[None] - _turned(messages) + top[:, :, None, None, None]
    belief = jnp.exp(cavity - cavity.max(1, keepdims=True)).reshape(*top.shape, -1)
    sent = jnp.einsum("dst,dsp->dtp", factor, belief)
    return belief, sent, sent.sum(1, keepdims=True)


def _keep(*arguments: Array) -> tuple[Messages, tuple]:
    return _sweep(*arguments), arguments


def _pull_back(arguments: tuple, slope: Messages) -> tuple[Factor, Top, Field, Messages]:
    """Derivatives of a sweep; the largest cavity, which no message depends on, has none."""
    factor, _, _, messages = arguments
    belief, sent, total = _send(*arguments)
    slope = _turned(_shift(_turned(slope))).reshape(sent.shape)
    share = sent / total
    slope = slope / (share + LEAST)
    slope = (slope - (slope * share).sum(1, keepdims=True)) / total
    at_factor = jnp.einsum("dsp,dtp->dst", belief, slope)
    at_cavity = jnp.einsum("dst,dtp->dsp", factor, slope) * belief
    at_top, at_cavity = at_cavity.sum(2), at_cavity.reshape(messages.shape)
    at_unary = at_cavity.sum(0)
    return at_factor, at_top, at_unary, at_unary[None] - _turned(at_cavity)


_sweep.defvjp(_keep, _pull_back)


def _turned(messages: Messages) -> Messages:
    """The ways in the order of their opposites."""
    return jnp.roll(messages, len(OFFSETS), 0)


def _shift(messages: Messages) -> Messages:
    """Each way moves by its one pixel; into the edge comes no message, which is 0."""
    rows, cols = messages.shape[-2:]
    ways = (*OFFSETS, *((-down, -right) for down, right in OFFSETS))
    padded = [jnp.pad(one, ((0, 0), (0, 0), (1, 1), (1, 1))) for one in messages]
    return jnp.stack(
        [
            one[:, :, 1 - down : 1 - down + rows, 1 - right : 1 - right + cols]
            for one, (down, right) in zip(padded, ways, strict=True)
        ]
    )
