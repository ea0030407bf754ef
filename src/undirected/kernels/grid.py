"""Sum-product on an 8-connected grid of categorical variables, as shifted matrix products.

Every message of one direction is renewed by one product of all pixels' cavity beliefs with the
potential of that direction, and then moved by one pixel (query-training, Appendix B).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

OFFSETS = ((1, 0), (0, 1), (1, 1), (1, -1))
"""Steps from the first to the second pixel of a pair: down, right, and the two diagonals."""
LEAST = 1e-20
"""Floor of a message before its logarithm is taken."""

Pixels = Float[Array, "images rows cols states"]


def grid_fields(potentials: Float[Array, "4 states states"], unary: Pixels, layers: int) -> Pixels:
    """Sum of the log messages into every pixel after `layers` parallel sweeps; unary not added.

    `potentials[d][a, b]` is the log-potential of a pixel in state a and the one at OFFSETS[d] from
    it in state b. Sweeps are computed again in the reverse pass instead of stored.
    """
    nothing = jnp.zeros((2 * len(OFFSETS), *unary.shape), unary.dtype)

    @jax.checkpoint
    def sweep(messages: Array, _: None) -> tuple[Array, None]:
        total = unary + messages.sum(0)
        renewed = []
        for d, offset in enumerate(OFFSETS):
            there, back = messages[2 * d], messages[2 * d + 1]
            renewed.append(_shift(_send(total - back, potentials[d]), offset))
            negative = (-offset[0], -offset[1])
            renewed.append(_shift(_send(total - there, potentials[d].T), negative))
        return jnp.stack(renewed), None

    messages, _ = jax.lax.scan(sweep, nothing, None, layers)
    return messages.sum(0)


def _send(cavity: Pixels, potential: Float[Array, "states states"]) -> Pixels:
    """Normalised log messages from beliefs that leave out what the receiver said.

    The largest entry of each row of the potential moves into the belief, so that the product is
    never zero, however steep the potential is.
    """
    top = potential.max(1)
    belief = jax.nn.softmax(cavity + top[None, None, None], -1)
    factor = jnp.exp(potential - top[:, None])
    message = jnp.einsum("nrcs,st->nrct", belief, factor, precision="highest")
    return jnp.log(message / message.sum(-1, keepdims=True) + LEAST)


def _shift(messages: Pixels, offset: tuple[int, int]) -> Pixels:
    """Move by one pixel; into the edge comes no message, which is 0."""
    down, right = offset
    rows, cols = messages.shape[1:3]
    padded = jnp.pad(messages, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return padded[:, 1 - down : 1 - down + rows, 1 - right : 1 - right + cols]
