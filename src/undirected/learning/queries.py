"""Query distributions: which visible units are targets; the others are evidence.

A distribution is called as `queries(key, rows, n)` and gives a mask (rows, n), True for targets.
"""

from dataclasses import dataclass
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key
from numpy.typing import ArrayLike

from undirected.core.errors import UndirectedError
from undirected.core.layout import Domain, Layout
from undirected.core.numerics import row

LIMIT = 1000.0
"""Largest evidence, as log-odds: what a value of exactly 0 or 1 gives (query-training, D.1)."""


class Queries(Protocol):
    """A distribution over target masks."""

    def __call__(self, key: Key[Array, ""], rows: int, n: int) -> Bool[Array, "rows n"]: ...


@dataclass(frozen=True)
class UniformQueries:
    """Every unit is a target with probability p, on its own."""

    p: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.p <= 1:
            raise UndirectedError(f"uniform queries: p is {self.p}; pass a probability above 0")

    def __call__(self, key: Key[Array, ""], rows: int, n: int) -> Bool[Array, "rows n"]:
        return jax.random.bernoulli(key, self.p, (rows, n))


@dataclass(frozen=True)
class ExactQueries:
    """Exactly k units are targets, any k of them; k = 1 is the pseudo-likelihood's question."""

    k: int

    def __post_init__(self) -> None:
        if self.k < 1:
            raise UndirectedError(f"exact queries: k is {self.k}; pass 1 or more")

    def __call__(self, key: Key[Array, ""], rows: int, n: int) -> Bool[Array, "rows n"]:
        if self.k > n:
            raise UndirectedError(f"exact queries: k is {self.k}, but there are {n} units")
        ranks = jax.random.permutation(key, jnp.tile(jnp.arange(n), (rows, 1)), 1, independent=True)
        return ranks < self.k


@dataclass(frozen=True)
class PatchQueries:
    """A rectangle of `patch` pixels somewhere in an image of `shape`; images are row-major."""

    shape: tuple[int, int]
    patch: tuple[int, int]

    def __post_init__(self) -> None:
        if not all(1 <= p <= s for p, s in zip(self.patch, self.shape, strict=True)):
            raise UndirectedError(
                f"patch queries: a patch of {self.patch} does not fit an image of {self.shape}"
            )

    def __call__(self, key: Key[Array, ""], rows: int, n: int) -> Bool[Array, "rows n"]:
        if n != self.shape[0] * self.shape[1]:
            raise UndirectedError(
                f"patch queries: {n} units are not an image of {self.shape[0]}x{self.shape[1]}"
            )
        covered = []
        axes = zip(self.shape, self.patch, jax.random.split(key), strict=True)
        for size, length, k in axes:
            first = jax.random.randint(k, (rows, 1), 0, size - length + 1)
            place = jnp.arange(size)[None]
            covered.append((place >= first) & (place < first + length))
        return (covered[0][:, :, None] & covered[1][:, None, :]).reshape(rows, n)


@dataclass(frozen=True, eq=False)
class MaskQueries:
    """One of the given target masks (masks, n), each as likely; one mask is a fixed split."""

    masks: ArrayLike

    def __post_init__(self) -> None:
        masks = np.atleast_2d(np.asarray(self.masks))
        if masks.ndim != 2 or not np.isin(masks, (0, 1)).all():
            raise UndirectedError(
                f"mask queries: masks have shape {masks.shape} and dtype {masks.dtype}; "
                "pass booleans of shape (masks, n), True for targets"
            )
        object.__setattr__(self, "masks", masks.astype(bool))

    def __call__(self, key: Key[Array, ""], rows: int, n: int) -> Bool[Array, "rows n"]:
        masks = jnp.asarray(self.masks)
        if masks.shape[1] != n:
            raise UndirectedError(f"mask queries: masks have {masks.shape[1]} units, not {n}")
        return masks[jax.random.randint(key, (rows,), 0, len(masks))]


def whole_variables(layout: Layout, targets: Bool[Array, "rows v"]) -> Bool[Array, "rows v"]:
    """The mask with every categorical variable asked as a whole, or not: as its first unit is."""
    for block in layout.blocks:
        if block.visible and block.domain is Domain.CATEGORICAL:
            first = targets[:, block.start : block.stop : block.states]
            targets = targets.at[:, block.slice].set(jnp.repeat(first, block.states, axis=1))
    return targets


def log_odds(
    layout: Layout, x: Float[Array, "rows v"], observed: Bool[Array, "rows v"]
) -> Float[Array, "rows v"]:
    """Evidence of the observed values, within +-LIMIT; a grey value x in (0, 1) is soft evidence.

    A categorical unit gets log x, which excludes the states at 0.
    """
    x = jnp.where(observed, x, 0.5)
    yes, no = jnp.log(x), jnp.log1p(-x)
    categorical = np.concatenate(
        [np.full(b.size, b.domain is Domain.CATEGORICAL) for b in layout.blocks if b.visible]
    )
    field = jnp.where(row(jnp.asarray(categorical), x), yes, yes - no)
    return jnp.where(observed, jnp.clip(field, -LIMIT, LIMIT), 0.0)
