"""Max-product messages of stamped images: window by window, without any index array.

A location and a place of a feature meet in one pixel. With cavities a and b the pair is on with
log-odds min(a, b, a + b); the pixel is the OR of its pairs; the pair's message v comes back to
either end as the message of a factor of weight v. What a pixel that may differ from its OR passes
on is at most the penalty.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from undirected.core.errors import UnsupportedFactor
from undirected.core.layout import Layout
from undirected.core.numerics import NEG_INF, is_zero, message
from undirected.core.stamps import Stamps
from undirected.inference.messages import Schedule, Traffic, mix, quiet, renew


@quiet.register
def _(factor: Stamps, layout: Layout, schedule: Schedule) -> Traffic:
    if not is_zero(schedule.temperature):
        raise UnsupportedFactor(
            "belief propagation: stamped images have messages for max-product (temperature 0); "
            "build the model from logical_and and logical_or for other temperatures"
        )
    N, F, K = factor.images, factor.features[0], len(factor.offsets)
    return Traffic(
        forward=jnp.zeros((2, K, N, F, *factor.locations)),
        backward=jnp.zeros((N, *factor.image_shape)),
        incoming=jnp.zeros(layout.n),
    )


@renew.register
def _(
    factor: Stamps, layout: Layout, total: Array, traffic: Traffic, schedule: Schedule
) -> Traffic:
    pixels, features, locations = factor.parts(total)
    limit = factor.penalty
    children = jnp.clip(pixels - traffic.backward, -limit, limit)
    windows = jnp.asarray(factor.offsets)
    to_features, to_locations = traffic.forward

    def cavities(feature: Array, old: tuple[Array, Array]) -> tuple[Array, Array]:
        return feature[None, :, None, None] - old[0], locations - old[1]

    def collect(carry: tuple, item: tuple) -> tuple[tuple, None]:
        """Sum of positive odds, largest and second largest odds of the pairs of every pixel."""
        place, feature, *old = item
        a, b = cavities(feature, (old[0], old[1]))
        odds = jnp.minimum(a + b, jnp.minimum(a, b))
        sums, first, second = (_window(array, place, factor) for array in carry)
        high, next_high = _top_two(odds)
        second = jnp.maximum(jnp.minimum(first, high), jnp.maximum(second, next_high))
        first = jnp.maximum(first, high)
        sums = sums + jnp.maximum(odds, 0.0).sum(1)
        fresh = zip(carry, (sums, first, second), strict=True)
        return tuple(_put(array, part, place) for array, part in fresh), None

    zeros = jnp.zeros_like(children)
    start = zeros, zeros + NEG_INF, zeros + NEG_INF
    items = windows, features, to_features, to_locations
    (sums, first, second), _ = jax.lax.scan(collect, start, items)

    def answer(at_locations: Array, item: tuple) -> tuple[Array, tuple[Array, Array, Array]]:
        place, feature, *old = item
        a, b = cavities(feature, (old[0], old[1]))
        odds = jnp.minimum(a + b, jnp.minimum(a, b))
        near = (_window(array, place, factor)[:, None] for array in (sums, first, second, children))
        v = _from_or(odds, *near)
        new_a = mix(message(b, v, 0.0), old[0], schedule)
        new_b = mix(message(a, v, 0.0), old[1], schedule)
        return at_locations + new_b, (new_a, new_b, new_a.sum((0, 2, 3)))

    at_locations, (new_a, new_b, at_features) = jax.lax.scan(
        answer, jnp.zeros_like(locations), items
    )
    stamped = jnp.clip(sums + jnp.minimum(first, 0.0), -limit, limit)
    up = mix(stamped, traffic.backward, schedule)
    incoming = [up.ravel(), at_features.T.ravel(), at_locations.ravel()]
    return Traffic(jnp.stack([new_a, new_b]), up, jnp.concatenate(incoming))


def _from_or(odds: Array, sums: Array, first: Array, second: Array, child: Array) -> Array:
    """The message of an OR to a parent with these odds, from sum and two largest over all."""
    others = jnp.maximum(sums - jnp.maximum(odds, 0.0), 0.0)
    most = jnp.where(odds >= first, second, first)
    some = others + jnp.minimum(most, 0.0)
    return jnp.where(child + some < 0, child + others, jnp.maximum(-most, 0.0))


def _top_two(odds: Float[Array, "N F Y X"]) -> tuple[Array, Array]:
    """The two largest entries along the features, with repetition."""
    first = odds[:, 0]
    second = jnp.full_like(first, NEG_INF)
    for k in range(1, odds.shape[1]):
        second = jnp.maximum(second, jnp.minimum(first, odds[:, k]))
        first = jnp.maximum(first, odds[:, k])
    return first, second


def _window(array: Float[Array, "N R C"], place: Array, factor: Stamps) -> Array:
    """The pixels that one place of the features meets, one for each location."""
    size = (array.shape[0], *factor.locations)
    return jax.lax.dynamic_slice(array, (0, place[0], place[1]), size)


def _put(array: Float[Array, "N R C"], part: Array, place: Array) -> Array:
    return jax.lax.dynamic_update_slice(array, part, (0, place[0], place[1]))
