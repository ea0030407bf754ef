"""Naive mean field: coordinate ascent on the variational lower bound of log Z."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from undirected.core.errors import UndirectedError
from undirected.core.iterate import iterate, largest, status_of
from undirected.core.layout import CONTINUOUS, Block, Layout
from undirected.core.numerics import is_zero
from undirected.core.potentials import Beliefs, Potentials, inner, statistics
from undirected.core.units import (
    block_means,
    line_moments,
    line_normaliser,
    means,
    uniform,
    unit_entropy,
)
from undirected.factors import Edges, Factor, Squares, Symmetric
from undirected.factors.colouring import units_by_colour
from undirected.inference.base import Inference, check_lines
from undirected.inference.mean_field_units import precision

Temperature = float | Array

FIRM = 1e6
"""How much more evidence weighs than what factors forbid."""


class MeanField(Inference):
    """Factorised beliefs: m = sigmoid(b + local field at m); real units normal, and so on.

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
        check_lines("mean field", p)
        # Hard factors that contradict evidence must not outweigh it: the bound tells of them.
        p = eqx.tree_at(lambda q: q.evidence, p, FIRM * p.evidence)

        def sweep(m: Array) -> tuple[Array, Array]:
            after = _sweep(p, m, self.temperature)
            return after, largest(after - m)

        neutral = uniform(p.layout).astype(p.unary.dtype)
        first = _lines_alone(p, neutral, self.temperature)
        start = _means(p, p.fields + _pull(p, first), first, self.temperature)
        m, change, count = iterate(sweep, start, self.iterations, self.tolerance)
        m = _lines_at(p, m, self.temperature)
        factors, bound = _bound(p, m, self.temperature)
        return Beliefs(m, factors, bound, status_of(change, self.tolerance), count)


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
            fields = (p.fields + _pull(p, m))[block.slice]
            m = m.at[block.slice].set(_block_means(p, block, fields, temperature))
        elif block.domain in CONTINUOUS:
            raise UndirectedError(
                f"mean field: block '{block.name}' is {block.domain.value} and coupled inside; use "
                "Susceptibility or a sampler"
            )
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
    outside = (p.fields + _pull(p, m))[block.slice] - part @ weight

    def update(part: Array, site: Array) -> tuple[Array, None]:
        field = outside[site] + weight[site] @ part
        return part.at[site].set(block_means(block, field, temperature)), None

    part, _ = jax.lax.scan(update, part, jnp.arange(block.size))
    return m.at[block.slice].set(part)


def _by_colour(p: Potentials, colours: Array, m: Array, temperature: Temperature) -> Array:
    """The units of one row of `colours` after those of the other."""

    def update(m: Array, units: Array) -> tuple[Array, None]:
        fresh = _means(p, p.fields + _pull(p, m), m, temperature)
        chosen = jnp.zeros(len(m), bool).at[units].set(True, mode="drop")
        return jnp.where(chosen, fresh, m), None

    return jax.lax.scan(update, m, colours)[0]


def _pull(p: Potentials, m: Float[Array, " n"]) -> Float[Array, " n"]:
    """The field that each unit feels from the others; squares are no others."""
    pulls = (f.local_field(p.layout, m) for f in p.factors if not isinstance(f, Squares))
    return sum(pulls, jnp.zeros_like(m))


def _means(p: Potentials, fields: Array, m: Array, temperature: Temperature) -> Array:
    """`units.means`, and those of real and nonnegative units."""
    if not p.layout.is_continuous.any():
        return means(p.layout, fields, temperature)
    blocks = p.layout.blocks
    return jnp.concatenate([_block_means(p, b, fields[b.slice], temperature) for b in blocks])


def _block_means(
    p: Potentials, block: Block, fields: Array, temperature: Temperature
) -> Float[Array, " size"]:
    if block.domain not in CONTINUOUS:
        return block_means(block, fields, temperature)
    field = fields - p.evidence[block.slice]
    mean, _ = _line(p, block, field, temperature)
    return mean if p.held is None else _held(p, block, mean)


def _held(p: Potentials, block: Block, otherwise: Array) -> Array:
    assert p.held is not None
    return jnp.where(p.evidence[block.slice] > 0, p.held[block.slice], otherwise)


def _line(
    p: Potentials, block: Block, field: Array, temperature: Temperature
) -> tuple[Array, Array]:
    """Mean and variance of continuous units in a field."""
    if is_zero(temperature):
        raise UndirectedError(
            f"mean field: block '{block.name}' is {block.domain.value}, which has no states to "
            "search among; use a temperature above 0"
        )
    r = precision(p)[block.slice]
    return line_moments(block, field / temperature, r / temperature)


def _lines_alone(p: Potentials, neutral: Array, temperature: Temperature) -> Array:
    """Neutral means with continuous units where their own fields put them."""
    if not p.layout.is_continuous.any():
        return neutral
    return jnp.concatenate(
        [
            _block_means(p, b, p.fields[b.slice], temperature)
            if b.domain in CONTINUOUS
            else neutral[b.slice]
            for b in p.layout.blocks
        ]
    )


def _lines_at(p: Potentials, m: Array, temperature: Temperature) -> Array:
    """The means with those of continuous units in the fields of the others, as `_bound` has it."""
    fields = p.fields + _pull(p, m)
    for block in p.layout.blocks:
        if block.domain in CONTINUOUS:
            own = _block_means(p, block, fields[block.slice], temperature)
            m = m.at[block.slice].set(own)
    return m


def _bound(p: Potentials, m: Array, temperature: Temperature) -> tuple[tuple[Factor, ...], Array]:
    """Expected statistics of independent units with these means, and the bound on log Z.

    Of a free continuous unit the bound takes T log of its integral in the field it feels, less what
    that field would give at its mean: its entropy and its square together.
    """
    beliefs = statistics(p, m)
    if not p.layout.is_continuous.any():
        bound = inner(p, beliefs) + temperature * unit_entropy(p.layout, m).sum()
        return beliefs.factors, bound
    field, bound, factors = p.unary + _pull(p, m), inner(p, beliefs), list(beliefs.factors)
    for i, factor in enumerate(p.factors):
        if not isinstance(factor, Squares):
            continue
        block = p.layout.blocks[factor.block]
        f, own, e = (a[block.slice] for a in (field, m, p.evidence))
        _, variance = _line(p, block, f, temperature)
        r = precision(p)[block.slice]
        free = temperature * line_normaliser(block, f / temperature, r / temperature) - f * own
        bound = bound + jnp.where(e > 0, 0.0, free + 0.5 * r * own**2).sum()
        second = own**2 + jnp.where(e > 0, 0.0, variance)
        factors[i] = Squares(second, factor.block)
    for block in p.layout.blocks:
        if block.domain not in CONTINUOUS:
            alone = Layout((Block(block.name, 0, block.size, block.domain, block.states),))
            bound = bound + temperature * unit_entropy(alone, m[block.slice]).sum()
    return tuple(factors), bound
