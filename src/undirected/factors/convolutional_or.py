"""Binary images made by stamping features at locations: an OR of ANDs for every pixel.

A location and a place of a feature meet in one pixel. With max-product cavities a and b the pair is
on with log-odds min(a, b, a + b); the pixel is the OR of its pairs; the pair's message v comes back
to either end as the message of a factor of weight v. What a pixel that may differ from its OR
passes on is at most the penalty. Messages are sent window by window, without any index array.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.layout import Block, Layout
from undirected.core.numerics import CERTAIN, NEG_INF, is_zero, message
from undirected.factors.base import Factor, Messages, Schedule


class ConvolutionalOr(Factor):
    """Pixel (n, r, c) = OR over features and offsets of feature AND location.

    Blocks 0, 1, 2 of the layout are the images (N, R, C), the features (F, h, w) and the locations
    (N, F, Y, X), with R = Y + h - 1 and C = X + w - 1. A pixel that is not what is stamped costs
    `penalty`, by default so much that it is forbidden. In beliefs, `weight` is the expected
    violation of every pixel.
    """

    weight: Float[Array, "N R C"] | None
    images: int = eqx.field(static=True)
    features: tuple[int, int, int] = eqx.field(static=True)
    locations: tuple[int, int] = eqx.field(static=True)
    penalty: float = eqx.field(static=True, default=CERTAIN)

    def check(self, layout: Layout) -> None:
        """The layout must begin with the pixels, features and locations of this group."""
        if min(self.images, *self.features, *self.locations) < 1:
            raise UndirectedError(
                f"ConvolutionalOr: {self.images} images, features {self.features} and locations "
                f"{self.locations}; pass numbers of at least 1"
            )
        got = [block.size for block in layout.blocks[:3]]
        wanted = [block.size for block in self.layout.blocks]
        if got != wanted:
            raise UndirectedError(
                f"ConvolutionalOr: the first blocks of the layout have {got} units; wanted {wanted}"
            )

    @property
    def image_shape(self) -> tuple[int, int]:
        (_, h, w), (rows, columns) = self.features, self.locations
        return rows + h - 1, columns + w - 1

    @property
    def layout(self) -> Layout:
        """Pixels are visible; features and locations are hidden."""
        N, (F, h, w), (Y, X) = self.images, self.features, self.locations
        R, C = self.image_shape
        ends = np.cumsum([N * R * C, F * h * w, N * F * Y * X]).tolist()
        return Layout(
            (
                Block("pixels", 0, ends[0]),
                Block("features", ends[0], ends[1], visible=False),
                Block("locations", ends[1], ends[2], visible=False),
            )
        )

    @property
    def offsets(self) -> Int[np.ndarray, "K 2"]:
        """The places (row, column) of a feature."""
        _, h, w = self.features
        return np.indices((h, w)).reshape(2, -1).T

    def parts(
        self, x: Float[Array, " n"]
    ) -> tuple[Float[Array, "N R C"], Float[Array, "K F"], Float[Array, "N F Y X"]]:
        """The values of pixels, features (place first) and locations."""
        pixels, features, locations = self.layout.blocks
        F = self.features[0]
        return (
            x[pixels.slice].reshape(self.images, *self.image_shape),
            x[features.slice].reshape(F, -1).T,
            x[locations.slice].reshape(self.images, F, *self.locations),
        )

    def _with(self, weight: Float[Array, "N R C"]) -> "ConvolutionalOr":
        return eqx.tree_at(lambda f: f.weight, self, weight, is_leaf=lambda leaf: leaf is None)

    def statistic(self, layout: Layout, x: Float[Array, " n"]) -> "ConvolutionalOr":
        pixels, features, locations = self.parts(x)
        size = (self.images, *self.locations)

        def cover(none: Array, item: tuple[Array, Array]) -> tuple[Array, None]:
            """Multiply in what one place of the features leaves uncovered."""
            place, feature = item
            corner = (0, place[0], place[1])
            part = (1 - feature[None, :, None, None] * locations).prod(1)
            before = jax.lax.dynamic_slice(none, corner, size)
            return jax.lax.dynamic_update_slice(none, before * part, corner), None

        items = jnp.asarray(self.offsets), features
        none, _ = jax.lax.scan(cover, jnp.ones_like(pixels), items)
        violation = (1 - none) * (1 - pixels) + none * pixels
        return self._with(violation)

    def pairing(self, mean: "ConvolutionalOr") -> Float[Array, ""]:
        return -self.penalty * jnp.sum(jnp.asarray(mean.weight))

    def from_gradient(self, slope: "ConvolutionalOr") -> "ConvolutionalOr":
        """Where a difference is forbidden no pixel has one; a finite penalty is no parameter."""
        if self.penalty < CERTAIN:
            raise UnsupportedFactor(
                "exact: a ConvolutionalOr group with a finite penalty has no gradient along it; "
                "use PerturbAndMap, or a penalty that forbids"
            )
        return self._with(jnp.zeros((self.images, *self.image_shape)))

    def init_messages(self, layout: Layout) -> Messages:
        N, F, K = self.images, self.features[0], len(self.offsets)
        return Messages(
            forward=jnp.zeros((2, K, N, F, *self.locations)),
            backward=jnp.zeros((N, *self.image_shape)),
            incoming=jnp.zeros(layout.n),
        )

    def update_messages(
        self, layout: Layout, total: Float[Array, " n"], messages: Messages, schedule: Schedule
    ) -> Messages:
        if not is_zero(schedule.temperature):
            raise UnsupportedFactor(
                "belief propagation: a ConvolutionalOr group has messages for max-product "
                "(temperature 0); build the model from logical_and and logical_or for others"
            )
        pixels, features, locations = self.parts(total)
        limit = self.penalty
        children = jnp.clip(pixels - messages.backward, -limit, limit)
        windows = jnp.asarray(self.offsets)
        to_features, to_locations = messages.forward

        def cavities(feature: Array, old: tuple[Array, Array]) -> tuple[Array, Array]:
            return feature[None, :, None, None] - old[0], locations - old[1]

        def collect(carry: tuple, item: tuple) -> tuple[tuple, None]:
            """Sum of positive odds, largest and second largest odds of the pairs of every pixel."""
            place, feature, *old = item
            a, b = cavities(feature, (old[0], old[1]))
            odds = jnp.minimum(a + b, jnp.minimum(a, b))
            sums, first, second = (_window(array, place, self) for array in carry)
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
            near = (
                _window(array, place, self)[:, None] for array in (sums, first, second, children)
            )
            v = _from_or(odds, *near)
            new_a = schedule.mix(message(b, v, 0.0), old[0])
            new_b = schedule.mix(message(a, v, 0.0), old[1])
            return at_locations + new_b, (new_a, new_b, new_a.sum((0, 2, 3)))

        at_locations, (new_a, new_b, at_features) = jax.lax.scan(
            answer, jnp.zeros_like(locations), items
        )
        stamped = jnp.clip(sums + jnp.minimum(first, 0.0), -limit, limit)
        up = schedule.mix(stamped, messages.backward)
        incoming = [up.ravel(), at_features.T.ravel(), at_locations.ravel()]
        return Messages(jnp.stack([new_a, new_b]), up, jnp.concatenate(incoming))


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


def _window(array: Float[Array, "N R C"], place: Array, group: ConvolutionalOr) -> Array:
    """The pixels that one place of the features meets, one for each location."""
    size = (array.shape[0], *group.locations)
    return jax.lax.dynamic_slice(array, (0, place[0], place[1]), size)


def _put(array: Float[Array, "N R C"], part: Array, place: Array) -> Array:
    return jax.lax.dynamic_update_slice(array, part, (0, place[0], place[1]))
