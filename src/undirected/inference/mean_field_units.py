"""What mean-field theories of pairwise models share: single units in a field, and the couplings.

A unit in the field of the others has the density exp(l x - r x^2 / 2) on its domain; `cumulants`
says all that the theories need of it. For binary units x^2 = x, so r only shifts the field.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from undirected.core import rectified
from undirected.core.errors import UnsupportedFactor
from undirected.core.layout import Block, Domain
from undirected.core.potentials import Potentials
from undirected.core.rectified import Cumulants
from undirected.factors import Edges, Factor, Squares

_LEAST = 1e-3  # the smallest share of its own precision that the others may leave to a unit


def couplings(p: Potentials) -> tuple[Factor, ...]:
    """The pairwise groups."""
    for factor in p.factors:
        if not (factor.pairwise or isinstance(factor, Squares)):
            raise UnsupportedFactor(
                f"mean-field theory: a {type(factor).__name__} group is not pairwise; use "
                "MeanField or SumProduct"
            )
    return tuple(f for f in p.factors if f.pairwise)


def squared(factors: tuple[Factor, ...]) -> tuple[Factor, ...]:
    """The same groups with squared weights."""
    return tuple(jax.tree.map(lambda a: a * a if a.dtype.kind == "f" else a, f) for f in factors)


def product(
    p: Potentials, factors: tuple[Factor, ...], x: Float[Array, "n c"]
) -> Float[Array, "n c"]:
    """J x for every column of x: O(c |E|)."""
    total = jnp.zeros_like(x)
    for factor in factors:
        if isinstance(factor, Edges):
            total = total + factor.columns(x)
        else:
            total = total + factor.local_field(p.layout, x.T).T
    return total


def column(p: Potentials, factors: tuple[Factor, ...], x: Float[Array, " n"]) -> Float[Array, " n"]:
    """J x for one vector."""
    return product(p, factors, x[:, None])[:, 0]


def dense(p: Potentials, factors: tuple[Factor, ...]) -> Float[Array, "n n"]:
    """J as a matrix."""
    return product(p, factors, jnp.eye(p.layout.n, dtype=p.unary.dtype))


def precision(p: Potentials) -> Float[Array, " n"]:
    """w_ii of every unit: minus twice the weights of the squares."""
    total = jnp.zeros_like(p.unary)
    for factor in p.factors:
        if isinstance(factor, Squares):
            total = total + factor.precision(p.layout)
    return total


def usable(p: Potentials, r: Float[Array, " n"]) -> Float[Array, " n"]:
    """r, kept positive for the units that need it."""
    least = _LEAST * precision(p)
    parts = [
        r[b.slice] if b.domain is Domain.BINARY else jnp.maximum(r[b.slice], least[b.slice])
        for b in p.layout.blocks
    ]
    return jnp.concatenate(parts)


def cumulants(p: Potentials, l: Float[Array, " n"], r: Float[Array, " n"]) -> Cumulants:
    """Cumulants of every unit with density exp((l + evidence) x - r x^2 / 2)."""
    field = l + p.evidence
    parts = [_block_cumulants(b, field[b.slice], r[b.slice]) for b in p.layout.blocks]
    return Cumulants(*(jnp.concatenate(part) for part in zip(*parts, strict=True)))


def log_normalisers(
    p: Potentials, l: Float[Array, " n"], r: Float[Array, " n"]
) -> Float[Array, " n"]:
    """Log normaliser of every unit, over the values that agree with the evidence."""
    parts = [
        _block_normalisers(b, l[b.slice], r[b.slice], p.evidence[b.slice]) for b in p.layout.blocks
    ]
    return jnp.concatenate(parts)


def moments(
    p: Potentials, site: Cumulants, covariance: Callable[[Factor], Array]
) -> tuple[Factor, ...]:
    """Expected statistics of every group; `covariance` gives that of the pairs of one group."""
    result = []
    for factor in p.factors:
        if isinstance(factor, Squares):
            second = site.variance + site.mean**2
            result.append(Squares(second[p.layout.blocks[factor.block].slice], factor.block))
        else:
            means = factor.statistic(p.layout, site.mean).weight
            result.append(eqx.tree_at(lambda f: f.weight, factor, means + covariance(factor)))
    return tuple(result)


def _block_cumulants(block: Block, l: Array, r: Array) -> Cumulants:
    match block.domain:
        case Domain.BINARY:
            m = jax.nn.sigmoid(l - 0.5 * r)
            s = m * (1 - m)
            return Cumulants(m, s, s * (1 - 2 * m), s * (1 - 2 * m) ** 2)
        case Domain.NONNEGATIVE:
            return rectified.cumulants(l, r)
        case Domain.REAL:
            return Cumulants(l / r, 1 / r, jnp.zeros_like(r), 2 / r**2)
    raise UnsupportedFactor(
        f"mean field: block '{block.name}' is {block.domain.value}; this theory takes binary, real "
        "and nonnegative units"
    )


def _block_normalisers(block: Block, l: Array, r: Array, evidence: Array) -> Array:
    match block.domain:
        case Domain.BINARY:
            field = l - 0.5 * r
            return jnp.where(evidence > 0, field, jax.nn.softplus(field + evidence))
        case Domain.NONNEGATIVE:
            return rectified.log_normaliser(l + evidence, r)
    return 0.5 * l * l / r + 0.5 * jnp.log(2 * jnp.pi / r)
