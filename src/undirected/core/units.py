"""Single units in a field: means, best state, draws and log normaliser, domain by domain."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from undirected.core import rectified
from undirected.core.errors import UndirectedError
from undirected.core.layout import CONTINUOUS, Block, Domain, Layout, MixedBlock, check_discrete
from undirected.core.numerics import binary_entropy, entropy, is_zero, logsumexp, row, softplus
from undirected.core.random import gumbel, logistic


def means(
    layout: Layout, fields: Float[Array, "*batch n"], temperature: float | Array = 1.0
) -> Float[Array, "*batch n"]:
    """Means of independent units with these fields; indicators at T = 0 (a tie is shared)."""
    return _by_block(layout, fields, lambda block, f: block_means(block, f, temperature))


def uniform(layout: Layout) -> Float[Array, " n"]:
    """Means of discrete units that prefer no state: one half, or 1 / K for each of K states."""
    parts = [
        np.full(b.size, 1 / b.states if b.domain is Domain.CATEGORICAL else 0.5)
        for b in layout.blocks
    ]
    return jnp.asarray(np.concatenate(parts), float)


def best(layout: Layout, fields: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
    """The best state of independent units with these fields; a tie goes to the first value."""
    parts = []
    for block in layout.runs:
        part = fields[..., block.slice]
        check_discrete("best", block)
        if block.domain is Domain.BINARY:
            parts.append((part > 0).astype(fields.dtype))
        else:
            states = jnp.argmax(_grouped(block, part), -1)
            parts.append(_flat(block, jax.nn.one_hot(states, block.states, dtype=fields.dtype)))
    return jnp.concatenate(parts, -1)


def draw(
    where: Layout | Block, fields: Float[Array, "*batch n"], key: Key[Array, ""]
) -> Float[Array, "*batch n"]:
    """Sample independent discrete units from their fields."""
    if isinstance(where, Block):
        return _block_draw(where, fields, key)
    keys = jax.random.split(key, len(where.runs))
    parts = [_block_draw(b, fields[..., b.slice], k) for b, k in zip(where.runs, keys, strict=True)]
    return jnp.concatenate(parts, -1)


def log_normaliser(
    layout: Layout,
    fields: Float[Array, "*batch n"],
    temperature: float | Array = 1.0,
    evidence: Float[Array, "*batch n"] | None = None,
    precision: Float[Array, " n"] | None = None,
    held: Float[Array, "*batch n"] | None = None,
) -> Float[Array, "*batch"]:
    """T log of the sum of exp(fields . x / T) over the states of independent units.

    With evidence, over the states that agree with it; the evidence itself adds nothing. Real and
    nonnegative units need their `precision`: an integral of exp((l x - r x^2 / 2) / T), or its
    value where they are `held`.
    """
    evidence = jnp.zeros_like(fields) if evidence is None else evidence
    total = jnp.zeros(fields.shape[:-1], fields.dtype)
    for block in layout.runs:
        f, e = fields[..., block.slice], evidence[..., block.slice]
        if block.domain in CONTINUOUS and precision is not None:
            r = jnp.broadcast_to(row(precision[block.slice], f), f.shape)
            x = jnp.zeros_like(f) if held is None else held[..., block.slice]
            fixed = x * (f - 0.5 * r * x)
            free = temperature * line_normaliser(block, f / temperature, r / temperature)
            total = total + jnp.where(e > 0, fixed, free).sum(-1)
            continue
        check_discrete("log_normaliser", block)
        if block.domain is Domain.BINARY:
            total = total + jnp.where(e > 0, f, softplus(f + e, temperature)).sum(-1)
        else:
            total = total + logsumexp(_grouped(block, f + e), temperature).sum(-1)
    return total


def line_normaliser(block: Block, l: Float[Array, "*s"], r: Float[Array, "*s"]) -> Array:
    """Log of the integral of exp(l x - r x^2 / 2) over the values of a real or nonnegative unit."""
    if block.domain is Domain.NONNEGATIVE:
        return rectified.log_normaliser(l, r)
    return 0.5 * (l * l / r + jnp.log(2 * jnp.pi / r))


def line_moments(
    block: Block, l: Float[Array, "*s"], r: Float[Array, "*s"]
) -> tuple[Float[Array, "*s"], Float[Array, "*s"]]:
    """Mean and variance of a real or nonnegative unit of density exp(l x - r x^2 / 2)."""
    if block.domain is Domain.NONNEGATIVE:
        found = rectified.cumulants(l, r)
        return found.mean, found.variance
    return l / r, 1 / r


def unit_entropy(layout: Layout, unary: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
    """Entropy of each variable from its means, spread over its units (a categorical sums to it)."""
    return _by_block(
        layout,
        unary,
        lambda block, p: binary_entropy(p) if block.domain is Domain.BINARY else entropy(p),
    )


def perturbation(
    layout: Layout, key: Key[Array, ""], shape: tuple[int, ...] = ()
) -> Float[Array, "*shape n"]:
    """Noise whose perturbed maximum samples independent units: logistic, or Gumbel per state."""
    keys = jax.random.split(key, len(layout.runs))
    parts = []
    for block, k in zip(layout.runs, keys, strict=True):
        size = (*shape, block.size)
        check_discrete("perturbation", block)
        noise = logistic if block.domain is Domain.BINARY else gumbel
        parts.append(noise(k, size))
    return jnp.concatenate(parts, -1)


def random_units(
    layout: Layout, key: Key[Array, ""], shape: tuple[int, ...] = ()
) -> Float[Array, "*shape n"]:
    """A start for chains: uniform where finite, else normal or exponential of scale one."""
    keys = jax.random.split(key, len(layout.runs))
    parts = []
    for block, k in zip(layout.runs, keys, strict=True):
        size = (*shape, block.size)
        if block.domain is Domain.REAL:
            parts.append(jax.random.normal(k, size))
        elif block.domain is Domain.NONNEGATIVE:
            parts.append(jax.random.exponential(k, size))
        else:
            parts.append(_block_draw(block, jnp.zeros(size), k))
    return jnp.concatenate(parts, -1)


def free_variables(
    caller: str, layout: Layout, free: Bool[Array, "*#chains n"]
) -> Bool[Array, "*#chains n"]:
    """The mask of units that may change: a categorical variable may where all its units may."""
    free = jnp.asarray(free, bool)
    if free.shape[-1] != layout.n:
        raise UndirectedError(
            f"{caller}: free has {free.shape[-1]} entries, the model has {layout.n} units; "
            "pass one entry per unit, False for those that must stay"
        )

    def whole(block: Block, part: Array) -> Array:
        if block.domain is not Domain.CATEGORICAL:
            return part
        groups = _grouped(block, part, True)
        return _flat(block, jnp.broadcast_to(groups.all(-1, keepdims=True), groups.shape))

    return _by_block(layout, free, whole)


def excluded_states(layout: Layout, on: Bool[Array, "*batch n"]) -> Bool[Array, "*batch n"]:
    """The units of categorical variables of which another state is on."""

    def others(block: Block, part: Array) -> Array:
        if block.domain is not Domain.CATEGORICAL:
            return jnp.zeros_like(part)
        groups = _grouped(block, part, False)
        return _flat(block, groups.any(-1, keepdims=True) & ~groups)

    return _by_block(layout, on, others)


def _by_block(layout: Layout, x: Array, function: Callable[[Block, Array], Array]) -> Array:
    if layout.is_binary:
        return function(layout.runs[0], x)
    return jnp.concatenate([function(block, x[..., block.slice]) for block in layout.runs], -1)


def block_means(
    block: Block, fields: Float[Array, "*batch size"], temperature: float | Array = 1.0
) -> Float[Array, "*batch size"]:
    """`means` of the units of one block."""
    hard = is_zero(temperature)
    check_discrete("means", block)
    if block.domain is Domain.BINARY:
        return 0.5 * (1.0 + jnp.sign(fields)) if hard else jax.nn.sigmoid(fields / temperature)
    groups = _grouped(block, fields)
    if hard:
        best = (groups == groups.max(-1, keepdims=True)).astype(fields.dtype)
        return _flat(block, best / best.sum(-1, keepdims=True))
    return _flat(block, jax.nn.softmax(groups / temperature, -1))


def _block_draw(block: Block, fields: Array, key: Key[Array, ""]) -> Array:
    check_discrete("draw", block)
    if block.domain is Domain.BINARY:
        noise = logistic(key, fields.shape).astype(fields.dtype)
        return (fields + noise > 0).astype(fields.dtype)
    noise = gumbel(key, fields.shape).astype(fields.dtype)
    states = _grouped(block, fields + noise).argmax(-1)
    return _flat(block, jax.nn.one_hot(states, block.states, dtype=fields.dtype))


def _grouped(block: Block, fields: Array, absent: float | bool = -np.inf) -> Array:
    """The units of a block, one row a variable; a state that some variable lacks is `absent`.

    No sum of certainties reaches the -inf of what does not exist, and only maxima and exponentials
    are taken of it.
    """
    if not isinstance(block, MixedBlock):
        return fields.reshape(*fields.shape[:-1], -1, block.states)
    units = fields.at[..., block.place]
    return units.get(mode="fill", fill_value=absent, wrap_negative_indices=False)


def _flat(block: Block, groups: Array) -> Array:
    """The units of a block from one row a variable."""
    flat = groups.reshape(*groups.shape[:-2], -1)
    return flat[..., block.flat] if isinstance(block, MixedBlock) else flat
