"""Natural and mean parameters of one exponential family, and the few operations on them.

A model lowers to `Potentials`; inference answers with `Beliefs` of the same shape; the energy of a
state is `-inner(potentials, statistics(potentials, x))`.
"""

from functools import singledispatch
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.graph import Graph
from undirected.core.layout import Domain, Layout, excluded_states
from undirected.core.numerics import CERTAIN, NEG_INF, row


class Bilinear(eqx.Module):
    """Dense couplings x_a' W x_b between two blocks of the layout."""

    weight: Float[Array, "a b"]
    rows: int = eqx.field(static=True)
    cols: int = eqx.field(static=True)


class Symmetric(eqx.Module):
    """Dense couplings 1/2 x' W x inside one block: W symmetric with a zero diagonal."""

    weight: Float[Array, "m m"]
    block: int = eqx.field(static=True)


class Squares(eqx.Module):
    """Self-couplings sum_i w_i x_i^2 on one block of real or nonnegative units."""

    weight: Float[Array, " m"]
    block: int = eqx.field(static=True)


class Edges(eqx.Module):
    """Sparse couplings sum_e w_e x_i x_j between single units."""

    weight: Float[Array, " E"]
    graph: Graph


Factor = Any
"""A factor group: an equinox Module with a `weight`, known to `statistic` and `pairing`."""


class Potentials(eqx.Module):
    """Natural parameters: unary fields, factor groups, evidence (0 or +-CERTAIN), a constant."""

    unary: Float[Array, "*batch n"]
    factors: tuple[Factor, ...]
    evidence: Float[Array, "*batch n"]
    offset: Float[Array, ""]
    layout: Layout = eqx.field(static=True)

    @property
    def fields(self) -> Float[Array, "*batch n"]:
        """What a unit feels before any message: unary plus evidence."""
        return self.unary + self.evidence


class Beliefs(eqx.Module):
    """Mean parameters shaped like the potentials, with how the inference went.

    `log_z` is the estimate of the log partition function over the states that agree with the
    evidence (at temperature 0: the value of the best state).
    """

    unary: Float[Array, "*batch n"]
    factors: tuple[Factor, ...]
    log_z: Float[Array, "*batch"]
    converged: Bool[Array, "*batch"]
    iterations: Int[Array, "*batch"]


def potentials(
    layout: Layout,
    unary: Float[Array, "*batch n"],
    factors: tuple[Factor, ...] = (),
    offset: float | Float[Array, ""] = 0.0,
) -> Potentials:
    """Potentials without evidence."""
    if unary.shape[-1] != layout.n:
        raise UndirectedError(
            f"potentials: unary has {unary.shape[-1]} entries, the layout has {layout.n} units"
        )
    return Potentials(
        unary, tuple(factors), jnp.zeros_like(unary), jnp.asarray(offset, unary.dtype), layout
    )


def check_potentials(caller: str, p: Any) -> None:
    """Refuse a model where its potentials are wanted."""
    if not isinstance(p, Potentials):
        raise UndirectedError(
            f"{caller}: got a {type(p).__name__}; pass its potentials, model.lower()"
        )


def shift(p: Potentials, unary: Float[Array, "*batch m"]) -> Potentials:
    """Add to the unary fields: soft evidence, perturbation noise, loss augmentation."""
    extra = _padded("shift", p.layout, jnp.asarray(unary, p.unary.dtype), 0.0)
    fields, extra, evidence = _together(p.unary, extra, p.evidence)
    return eqx.tree_at(lambda q: (q.unary, q.evidence), p, (fields + extra, evidence))


def clamp(p: Potentials, mask: Bool[Array, "*batch m"], x: Float[Array, "*batch m"]) -> Potentials:
    """Hard evidence: units under the mask take their {0, 1} value in x; the rest stay as they were.

    `mask` and `x` cover all units or the visible ones; x may be NaN where the mask is False. A
    categorical variable is clamped by the unit of its state at 1; units at 0 are excluded states.
    """
    mask = _padded("clamp", p.layout, jnp.asarray(mask, bool), False)
    x = _padded("clamp", p.layout, jnp.asarray(x, p.unary.dtype), 0)
    mask, x, before, unary = _together(mask, x, p.evidence, p.unary)
    certain = row(jnp.asarray(_certainty(p.layout), unary.dtype), x)
    on = mask & (x > 0.5)
    evidence = jnp.where(mask, jnp.where(on, certain, NEG_INF), before)
    evidence = jnp.where(excluded_states(p.layout, on), NEG_INF, evidence)
    return eqx.tree_at(lambda q: (q.unary, q.evidence), p, (unary, evidence.astype(unary.dtype)))


def statistics(p: Potentials, x: Float[Array, " n"]) -> Beliefs:
    """The beliefs of one certain state."""
    return Beliefs(
        unary=x,
        factors=tuple(statistic(factor, p.layout, x) for factor in p.factors),
        log_z=jnp.zeros((), x.dtype),
        converged=jnp.asarray(True),
        iterations=jnp.asarray(0),
    )


def inner(p: Potentials, b: Beliefs) -> Float[Array, ""]:
    """<natural, mean>: the expected negative energy of one instance; evidence adds nothing."""
    total = p.offset + jnp.sum(p.unary * b.unary)
    for natural, mean in zip(p.factors, b.factors, strict=True):
        total = total + pairing(natural, mean)
    return total


def batch_axes(p: Potentials) -> Potentials:
    """`in_axes` of vmap for potentials whose unary and evidence lead with a batch axis."""
    return Potentials(0, None, 0, None, p.layout)  # type: ignore[arg-type]


@singledispatch
def statistic(factor: Factor, layout: Layout, x: Float[Array, " n"]) -> Factor:
    """The sufficient statistic of a factor group at state x, as a group of the same class."""
    raise UnsupportedFactor(f"statistic: unknown factor group {type(factor).__name__}")


@singledispatch
def pairing(natural: Factor, mean: Factor) -> Float[Array, ""]:
    """The inner product of a factor group with its expected statistic."""
    return jnp.sum(natural.weight * mean.weight)


@pairing.register
def _(natural: Symmetric, mean: Symmetric) -> Float[Array, ""]:
    return 0.5 * jnp.sum(natural.weight * mean.weight)


@statistic.register
def _(factor: Bilinear, layout: Layout, x: Float[Array, " n"]) -> Bilinear:
    rows, cols = (x[layout.blocks[b].slice] for b in (factor.rows, factor.cols))
    return Bilinear(jnp.outer(rows, cols), factor.rows, factor.cols)


@statistic.register
def _(factor: Symmetric, layout: Layout, x: Float[Array, " n"]) -> Symmetric:
    part = x[layout.blocks[factor.block].slice]
    return Symmetric(jnp.outer(part, part) * (1 - jnp.eye(part.size)), factor.block)


@statistic.register
def _(factor: Squares, layout: Layout, x: Float[Array, " n"]) -> Squares:
    return Squares(x[layout.blocks[factor.block].slice] ** 2, factor.block)


@statistic.register
def _(factor: Edges, layout: Layout, x: Float[Array, " n"]) -> Edges:
    ends = x[factor.graph.edges]
    return Edges(ends[:, 0] * ends[:, 1], factor.graph)


@singledispatch
def pull(factor: Factor, layout: Layout, x: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
    """Gradient of a pairwise group's value at x: the field each unit feels from the others."""
    raise UnsupportedFactor(f"pull: {type(factor).__name__} is not a pairwise factor group")


@pull.register
def _(factor: Bilinear, layout: Layout, x: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
    rows, cols = layout.blocks[factor.rows].slice, layout.blocks[factor.cols].slice
    fields = jnp.zeros_like(x).at[..., rows].set(x[..., cols] @ factor.weight.T)
    return fields.at[..., cols].set(x[..., rows] @ factor.weight)


@pull.register
def _(factor: Symmetric, layout: Layout, x: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
    where = layout.blocks[factor.block].slice
    return jnp.zeros_like(x).at[..., where].set(x[..., where] @ factor.weight)


@pull.register
def _(factor: Edges, layout: Layout, x: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
    return factor.graph.fields(factor.weight, x)


def pulls(p: Potentials, x: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
    """The field each unit feels from all pairwise groups at x."""
    total = jnp.zeros_like(x)
    for factor in p.factors:
        total = total + pull(factor, p.layout, x)
    return total


def _certainty(layout: Layout) -> np.ndarray:
    """Evidence for a unit that is on: CERTAIN, or nothing where excluding the others says it."""
    return np.concatenate(
        [np.full(b.size, 0.0 if b.domain is Domain.CATEGORICAL else CERTAIN) for b in layout.blocks]
    )


def _padded(caller: str, layout: Layout, a: Array, fill: float | bool) -> Array:
    """An array over the visible units, extended over all units."""
    n = a.shape[-1]
    if n == layout.n:
        return a
    if n != layout.n_visible:
        raise UndirectedError(
            f"{caller}: got {n} entries, the model has {layout.n} units of which "
            f"{layout.n_visible} are visible; pass one entry per unit or per visible unit"
        )
    return jnp.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, layout.n - n)], constant_values=fill)


def _together(*arrays: Array) -> list[Array]:
    shape = jnp.broadcast_shapes(*(a.shape for a in arrays))
    return [jnp.broadcast_to(a, shape) for a in arrays]
