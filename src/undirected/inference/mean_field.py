"""Naive mean field: coordinate ascent on the variational lower bound of log Z."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from undirected.core.errors import UndirectedError
from undirected.core.iterate import iterate, largest, status_of
from undirected.core.layout import Block, check_discrete
from undirected.core.potentials import Beliefs, Potentials, inner, local_fields, statistics
from undirected.core.units import block_means, means, uniform, unit_entropy
from undirected.factors import Edges, Symmetric
from undirected.factors.colouring import units_by_colour
from undirected.inference.base import Inference

Temperature = float | Array


class MeanField(Inference):
    """Factorised beliefs: m = sigmoid(b + local field at m), on any discrete model.

    Units that share a factor are never updated together, so that the bound
    log Z >= <potentials, beliefs> + entropy never falls; `log_z` is that bound.

    Args:
        iterations: sweeps at most.
        tolerance: stop when no mean moves by more; None makes all sweeps.
        temperature: of the entropy; 0 is greedy search for a good state.

    Returns:
        A call gives `Beliefs`.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> bool(un.MeanField()(model).log_z < un.Exact()(model).log_z)
        True
    """

    iterations: int | Array = 100
    tolerance: float | None = 1e-5
    temperature: Temperature = 1.0

    def __check_init__(self) -> None:
        if isinstance(self.iterations, int) and self.iterations < 1:
            raise UndirectedError(f"mean field: iterations is {self.iterations}, not >= 1")

    def infer(self, p: Potentials, key: Key[Array, ""] | None) -> Beliefs:
        """Starts where no unit prefers a state; nothing is random, the key is not used."""
        check_discrete("mean field", *p.layout.blocks)

        def sweep(m: Array) -> tuple[Array, Array]:
            after = _sweep(p, m, self.temperature)
            return after, largest(after - m)

        neutral = uniform(p.layout).astype(p.unary.dtype)
        start = means(p.layout, p.fields + local_fields(p, neutral), self.temperature)
        m, change, count = iterate(sweep, start, self.iterations, self.tolerance)
        beliefs = statistics(p, m)
        bound = inner(p, beliefs) + self.temperature * unit_entropy(p.layout, m).sum()
        return Beliefs(m, beliefs.factors, bound, status_of(change, self.tolerance), count)


def _sweep(p: Potentials, m: Float[Array, " n"], temperature: Temperature) -> Array:
    """Update every unit once, together only where units are independent given the rest."""
    if p.colours is not None:
        return _by_colour(p, p.colours, m, temperature)
    if len(p.factors) == 1 and isinstance(p.factors[0], Edges) and p.layout.is_binary:
        return _by_colour(p, p.factors[0].graph.colours, m, temperature)
    everyone = range(len(p.layout.blocks))
    for index, block in enumerate(p.layout.blocks):
        others = tuple(i for i in everyone if i != index)
        lateral = [f for f in p.factors if not f.separated_by(others)]
        if not lateral:
            fields = (p.fields + local_fields(p, m))[block.slice]
            m = m.at[block.slice].set(block_means(block, fields, temperature))
        elif all(isinstance(f, Symmetric) for f in lateral):
            m = _by_site(p, lateral, block, m, temperature)
        else:  # one variable after the other
            first = sum(b.variables for b in p.layout.blocks[:index])
            rows = units_by_colour(p.layout, np.arange(len(p.layout.variables)))
            rows = jnp.asarray(rows[first : first + block.variables])
            m = _by_colour(p, rows, m, temperature)
    return m


def _by_site(
    p: Potentials, inside: list[Symmetric], block: Block, m: Array, temperature: Temperature
) -> Array:
    """One unit after the other in a block with dense couplings inside."""
    weight = jnp.stack([f.weight for f in inside]).sum(0)
    part = m[block.slice]
    outside = (p.fields + local_fields(p, m))[block.slice] - part @ weight

    def update(part: Array, site: Array) -> tuple[Array, None]:
        field = outside[site] + weight[site] @ part
        return part.at[site].set(block_means(block, field, temperature)), None

    part, _ = jax.lax.scan(update, part, jnp.arange(block.size))
    return m.at[block.slice].set(part)


def _by_colour(p: Potentials, colours: Array, m: Array, temperature: Temperature) -> Array:
    """The units of one row of `colours` after those of the other."""

    def update(m: Array, units: Array) -> tuple[Array, None]:
        fresh = means(p.layout, p.fields + local_fields(p, m), temperature)
        chosen = jnp.zeros(len(m), bool).at[units].set(True, mode="drop")
        return jnp.where(chosen, fresh, m), None

    return jax.lax.scan(update, m, colours)[0]
