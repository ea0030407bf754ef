"""Products of zeros and ones with float32 weights, to all their digits, on a GPU's matrix units.

A float32 number is the sum of three bfloat16 ones, and 0 and 1 are such themselves: three quick
products, added up in float32, lose nothing that the plain product at full precision keeps.
"""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from undirected.core.devices import is_ampere

LARGEST = 2**28
"""Weights beyond which the pieces, half as large again, are not kept beside them."""


class Pieces(eqx.Module):
    """Weights as the sum of three arrays of 16 bits.

    Args:
        parts: (V, H) each, from the leading digits to the last.
    """

    parts: tuple[Float[Array, "V H"], ...]

    split_by_units = ("parts",)

    @classmethod
    def of(cls, weights: Float[Array, "V H"]) -> "Pieces":
        """The digits of `weights`, 8 bits a piece."""
        parts, rest = [], weights
        for _ in range(3):
            # A compiler may leave out a cast there and back, and with it what this is for.
            leading = lax.reduce_precision(rest, exponent_bits=8, mantissa_bits=7)
            parts.append(leading.astype(jnp.bfloat16))
            rest = rest - leading
        return cls(tuple(parts))

    def times(self, v: Float[Array, "*batch V"]) -> Float[Array, "*batch H"]:
        """v W, for v of zeros and ones."""
        return _product(v, self.parts)

    def back(self, h: Float[Array, "*batch H"], rows: slice) -> Float[Array, "*batch rows"]:
        """h W', for h of zeros and ones, of these rows of W."""
        return _product(h, [part[rows].T for part in self.parts])


def pay(weights: Float[Array, "V H"]) -> bool:
    """Whether the pieces of these weights pay here: an NVIDIA GPU, Ampere or later."""
    return is_ampere() and weights.dtype == jnp.float32 and weights.size <= LARGEST


def _product(
    x: Float[Array, "*batch m"], parts: Sequence[Float[Array, "m n"]]
) -> Float[Array, "*batch n"]:
    x = x.astype(jnp.bfloat16)
    leading, middle, last = (
        jnp.matmul(x, part, precision="default", preferred_element_type=jnp.float32)
        for part in parts
    )
    return leading + (middle + last)
