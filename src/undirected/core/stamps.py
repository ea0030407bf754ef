"""Binary images made by stamping features at locations: an OR of ANDs for every pixel."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from undirected.core.layout import Block, Layout
from undirected.core.numerics import CERTAIN
from undirected.core.potentials import pairing, statistic


class Stamps(eqx.Module):
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


@statistic.register
def _(factor: Stamps, layout: Layout, x: Float[Array, " n"]) -> Stamps:
    pixels, features, locations = factor.parts(x)
    size = (factor.images, *factor.locations)

    def cover(none: Array, item: tuple[Array, Array]) -> tuple[Array, None]:
        """Multiply in what one place of the features leaves uncovered."""
        place, feature = item
        corner = (0, place[0], place[1])
        part = (1 - feature[None, :, None, None] * locations).prod(1)
        before = jax.lax.dynamic_slice(none, corner, size)
        return jax.lax.dynamic_update_slice(none, before * part, corner), None

    items = jnp.asarray(factor.offsets), features
    none, _ = jax.lax.scan(cover, jnp.ones_like(pixels), items)
    violation = jnp.abs(1 - none - pixels)
    return Stamps(violation, factor.images, factor.features, factor.locations, factor.penalty)


@pairing.register
def _(natural: Stamps, mean: Stamps) -> Float[Array, ""]:
    return -natural.penalty * jnp.sum(jnp.asarray(mean.weight))
