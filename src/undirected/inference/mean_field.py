"""Naive mean field: coordinate ascent on the variational lower bound of log Z."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.iterate import iterate, largest, settled
from undirected.core.layout import Block, Domain, block_means, means, unit_entropy
from undirected.core.potentials import (
    Beliefs,
    Edges,
    Potentials,
    Symmetric,
    check_potentials,
    inner,
    pulls,
    statistics,
)


class MeanField(eqx.Module):
    """Factorised beliefs: m = sigmoid(b + W m), block by block, colour by colour or site by site.

    Units that are coupled are never updated together, so the bound
    log Z >= <potentials, beliefs> + entropy never falls; `log_z` is that bound.
    """

    iterations: int | Array = 100
    tolerance: float | None = 1e-5
    temperature: float | Array = 1.0

    def __check_init__(self) -> None:
        if isinstance(self.iterations, int) and self.iterations < 1:
            raise UndirectedError(f"mean field: iterations is {self.iterations}, not >= 1")

    @eqx.filter_jit
    def __call__(self, potentials: Potentials, key: Key[Array, ""] | None = None) -> Beliefs:
        """Beliefs of one instance, started from the units' own fields; the key is not used."""
        p = potentials
        check_potentials("mean field", p)

        def sweep(m: Array) -> tuple[Array, Array]:
            after = _sweep(p, m, self.temperature)
            return after, largest(after - m)

        start = means(p.layout, p.fields, self.temperature)
        m, change, count = iterate(sweep, start, self.iterations, self.tolerance)
        beliefs = statistics(p, m)
        bound = inner(p, beliefs) + self.temperature * unit_entropy(p.layout, m).sum()
        converged = settled(change, self.tolerance)
        return Beliefs(m, beliefs.factors, bound, converged, count)


def _sweep(p: Potentials, m: Array, temperature: float | Array) -> Array:
    """Update every unit once, together only where units are independent given the rest."""
    edges = [f for f in p.factors if isinstance(f, Edges)]
    if edges:
        return _by_colour(p, edges, m, temperature)
    for index, block in enumerate(p.layout.blocks):
        inside = [f for f in p.factors if isinstance(f, Symmetric) and f.block == index]
        if inside:
            m = _by_site(p, inside, block, m, temperature)
        else:
            fields = (p.fields + pulls(p, m))[block.slice]
            m = m.at[block.slice].set(block_means(block, fields, temperature))
    return m


def _by_site(
    p: Potentials, inside: list[Symmetric], block: Block, m: Array, temperature: float | Array
) -> Array:
    """One unit after the other in a block with dense couplings inside."""
    _check_binary("Symmetric", block)
    weight = jnp.stack([f.weight for f in inside]).sum(0)
    part = m[block.slice]
    outside = (p.fields + pulls(p, m))[block.slice] - part @ weight

    def update(part: Array, site: Array) -> tuple[Array, None]:
        field = outside[site] + weight[site] @ part
        return part.at[site].set(block_means(block, field, temperature)), None

    part, _ = jax.lax.scan(update, part, jnp.arange(block.size))
    return m.at[block.slice].set(part)


def _by_colour(p: Potentials, edges: list[Edges], m: Array, temperature: float | Array) -> Array:
    """One colour of the graph after the other."""
    if len(p.factors) > 1:
        others = ", ".join(type(f).__name__ for f in p.factors)
        raise UnsupportedFactor(f"mean field: Edges cannot be mixed with other groups ({others})")
    for block in p.layout.blocks:
        _check_binary("Edges", block)

    def update(m: Array, sites: Array) -> tuple[Array, None]:
        fields = (p.fields + pulls(p, m)).at[sites].get(mode="fill", fill_value=0.0)
        fresh = block_means(p.layout.blocks[0], fields, temperature)
        return m.at[sites].set(fresh, mode="drop"), None

    return jax.lax.scan(update, m, edges[0].graph.colours)[0]


def _check_binary(group: str, block: Block) -> None:
    """Refuse variables of several units, of which one cannot be renewed without the others."""
    if block.domain is not Domain.BINARY:
        raise UnsupportedFactor(
            f"mean field: {group} needs binary units, block '{block.name}' is {block.domain.value}"
        )
