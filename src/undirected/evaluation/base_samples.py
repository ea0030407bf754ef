"""Where annealing starts: exact samples of a model without couplings, and its log Z."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from undirected.core import rectified
from undirected.core.layout import CONTINUOUS, Block, Domain, Layout
from undirected.core.potentials import Potentials, clamp, without_constant
from undirected.core.protocols import Annealable
from undirected.core.units import draw, log_normaliser
from undirected.factors import Squares


@eqx.filter_jit
def draw_base(base: Any, chains: int, key: Key[Array, ""]) -> tuple[Array, Array]:
    """Exact samples of a model without couplings, or of a tractable one, and its log Z."""
    if isinstance(base, Annealable):
        return base.exact_samples(chains, key)
    p = base.lower()
    if not any(block.domain in CONTINUOUS for block in p.layout.blocks):
        fields = jnp.broadcast_to(p.unary, (chains, p.layout.n))
        return draw(p.layout, fields, key), log_normaliser(p.layout, p.unary) + p.offset
    parts, log_z = [], p.offset
    for i in range(len(p.layout.blocks)):
        key = jax.random.fold_in(key, i)
        part, own = _draw_block(p, i, chains, key)
        parts.append(part)
        log_z = log_z + own
    return jnp.concatenate(parts, -1), log_z


def _draw_block(
    p: Potentials, index: int, chains: int, key: Key[Array, ""]
) -> tuple[Float[Array, "chains size"], Float[Array, ""]]:
    """Samples and log Z of the independent units of one block: discrete, normal, rectified."""
    block = p.layout.blocks[index]
    field = p.unary[block.slice]
    fields = jnp.broadcast_to(field, (chains, block.size))
    if block.domain not in CONTINUOUS:
        return draw(block, fields, key), log_normaliser(Layout((_alone(block),)), field)
    (square,) = (f.weight for f in p.factors if isinstance(f, Squares) and f.block == index)
    precision = -2 * square
    if block.domain is Domain.NONNEGATIVE:
        log_z = rectified.log_normaliser(field, precision).sum()
        return rectified.draw(fields, jnp.broadcast_to(precision, fields.shape), key), log_z
    noise = jax.random.normal(key, fields.shape, field.dtype)
    log_z = 0.5 * (field**2 / precision + jnp.log(2 * jnp.pi / precision)).sum()
    return (field / precision)[None] + noise / jnp.sqrt(precision)[None], log_z


def _alone(block: Block) -> Block:
    """The same units as the only block of a layout."""
    return replace(block, start=0, stop=block.size)


@eqx.filter_jit
def base_sums(base: Any, rows: Array, seen: Array) -> Float[Array, " rows"]:
    """The same sums of a model without couplings: every unit adds its own."""
    p = clamp(base.lower(), seen, rows)
    none = jnp.zeros(p.layout.n, p.unary.dtype)
    squares = sum((f.precision(p.layout) for f in p.factors if isinstance(f, Squares)), none)
    return p.offset + log_normaliser(p.layout, p.unary, 1.0, p.evidence, squares, p.held)


def path_without_constant(path: Any) -> tuple[Any, float]:
    """A path whose ends lack the constants of their energies, and that of its target."""
    if not {"base", "target"} <= {*getattr(path, "__dataclass_fields__", {})}:
        return path, 0.0
    (base, _), (target, constant) = (without_constant(m) for m in (path.base, path.target))
    return eqx.tree_at(lambda p: (p.base, p.target), path, (base, target)), constant
