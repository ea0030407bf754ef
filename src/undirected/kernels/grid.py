"""Sum-product on an 8-connected grid of categorical variables, as shifted matrix products.

All messages are renewed by one batched product: for each of the eight directions, the pixels'
cavity beliefs times the potential of that direction, then moved by one pixel (query-training,
Appendix B).
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

OFFSETS = ((1, 0), (0, 1), (1, 1), (1, -1))
"""Steps from the first to the second pixel of a pair: down, right, and the two diagonals."""
LEAST = 1e-20
"""Floor of a message before its logarithm is taken."""

Pixels = Float[Array, "images rows cols states"]
Messages = Float[Array, "ways states images rows cols"]


def grid_fields(potentials: Float[Array, "4 states states"], unary: Pixels, layers: int) -> Pixels:
    """Sum of the log messages into every pixel after `layers` parallel sweeps; unary not added.

    `potentials[d][a, b]` is the log-potential of a pixel in state a and the one at OFFSETS[d] from
    it in state b. The reverse pass keeps four arrays of messages per sweep.
    """
    unary = jnp.moveaxis(unary, -1, 0)  # pixels last: long lines, whatever the number of states
    nothing = jnp.zeros((2 * len(OFFSETS), *unary.shape), unary.dtype)
    both_ways = jnp.concatenate([potentials, potentials.swapaxes(1, 2)])
    top = both_ways.max(2)  # moved into the belief, so that no product is zero
    factor = jnp.exp(both_ways - top[..., None])

    def sweep(messages: Messages, _: None) -> tuple[Messages, None]:
        opposite = jnp.roll(messages, len(OFFSETS), 0)
        cavity = (unary + messages.sum(0))[None] - opposite + top[:, :, None, None, None]
        belief = jnp.exp(cavity - lax.stop_gradient(cavity.max(1, keepdims=True)))
        sent = jnp.einsum("dst,dsp->dtp", factor, belief.reshape(*factor.shape[:2], -1))
        sent = sent.reshape(belief.shape)
        return _shift(jnp.log(sent / sent.sum(1, keepdims=True) + LEAST)), None

    messages, _ = lax.scan(sweep, nothing, None, layers)
    return jnp.moveaxis(messages.sum(0), 0, -1)


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
