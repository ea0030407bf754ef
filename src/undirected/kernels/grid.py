"""Sum-product on an 8-connected grid of categorical variables, as shifted matrix products.

All messages are renewed by one batched product: for each of the eight directions, the pixels'
cavity beliefs times the potential of that direction, then moved by one pixel (query-training,
Appendix B).
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
    ways = (*OFFSETS, *((-down, -right) for down, right in OFFSETS))
    both_ways = jnp.concatenate([potentials, potentials.swapaxes(1, 2)])
    top = both_ways.max(2)  # moved into the belief, so that no product is zero
    factor = jnp.exp(both_ways - top[..., None])

    @jax.checkpoint
    def sweep(messages: Array, _: None) -> tuple[Array, None]:
        opposite = jnp.roll(messages, len(OFFSETS), 0)
        cavity = (unary + messages.sum(0))[None] - opposite
        belief = jax.nn.softmax(cavity + top[:, None, None, None], -1)
        sent = jnp.einsum("dnrcs,dst->dnrct", belief, factor, precision="highest")
        sent = jnp.log(sent / sent.sum(-1, keepdims=True) + LEAST)
        return jnp.stack([_shift(sent[d], way) for d, way in enumerate(ways)]), None

    messages, _ = jax.lax.scan(sweep, nothing, None, layers)
    return messages.sum(0)


def _shift(messages: Pixels, offset: tuple[int, int]) -> Pixels:
    """Move by one pixel; into the edge comes no message, which is 0."""
    down, right = offset
    rows, cols = messages.shape[1:3]
    padded = jnp.pad(messages, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return padded[:, 1 - down : 1 - down + rows, 1 - right : 1 - right + cols]
