"""Mean-field theory by the Plefka expansion: naive (first order) and TAP (second order)."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from undirected.core.errors import UndirectedError
from undirected.core.iterate import iterate, status_of
from undirected.core.layout import Domain
from undirected.core.potentials import Beliefs, Potentials
from undirected.core.rectified import Cumulants
from undirected.factors import Factor
from undirected.inference.base import Inference
from undirected.inference.mean_field_units import (
    column,
    couplings,
    cumulants,
    log_normalisers,
    moments,
    precision,
    squared,
    usable,
)


class Solution(NamedTuple):
    """A fixed point (means, reaction terms) and how it was reached."""

    mean: Float[Array, " n"]
    reaction: Float[Array, " n"]
    status: Int[Array, ""]
    iterations: Int[Array, ""]


class TAP(Inference):
    """TAP equations of binary, real and nonnegative units (nnbm, 6-9); order 1 is naive mean field.

    Every unit has the density exp(l x - r x^2 / 2) with l = b + J m - s m and r = w_ii - s, where
    J = -w in the paper's sign, and s_i = sum_j J_ij^2 (v_j - m_j^2) is the reaction of the others.
    Pair beliefs are derivatives of the free energy, m_i m_j + J_ij var_i var_j; `Susceptibility`
    has better ones. `log_z` is minus the free energy (nnbm, 4), a lower bound at order 1 only.

    Args:
        order: 2 for TAP, 1 for naive mean field.
        iterations: rounds at most.
        tolerance: stop when no mean or reaction term moves by more.
        damping: the share of the old values that is kept.

    Returns:
        A call gives `Beliefs`.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> print(un.TAP()(model).converged)
        True
    """

    order: int = 2
    iterations: int = 2000
    tolerance: float = 1e-6
    damping: float = 0.5

    def __check_init__(self) -> None:
        if self.order not in (1, 2):
            raise UndirectedError(f"TAP: order is {self.order}; 1 is naive mean field, 2 is TAP")
        check_schedule("TAP", self.iterations, self.damping)

    def infer(self, p: Potentials, key: Key[Array, ""] | None) -> Beliefs:
        """Nothing here is random: the key is not used."""
        solution = self.solve(p)
        site = in_field(p, solution.mean, solution.reaction)

        def covariance(factor: Factor) -> Array:
            both = factor.statistic(p.layout, site.variance).weight
            return factor.weight * both if self.order == 2 else jnp.zeros_like(both)

        log_z = -free_energy(p, site, solution.reaction, self.order)
        return Beliefs(
            site.mean,
            moments(p, site, covariance),
            log_z,
            solution.status,
            solution.iterations,
        )

    def solve(self, p: Potentials) -> Solution:
        """The fixed point, by damped iteration from units without couplings."""
        pair, pair2 = couplings(p), squared(couplings(p))

        def update(state: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
            mean, reaction = state
            site = in_field(p, mean, reaction, pair)
            fresh = column(p, pair2, site.variance) if self.order == 2 else reaction
            change = jnp.maximum(gap(site.mean, mean), gap(fresh, reaction))
            mean = mean + (1 - self.damping) * (site.mean - mean)
            return (mean, reaction + (1 - self.damping) * (fresh - reaction)), change

        found, change, count = iterate(update, start(p), self.iterations, self.tolerance)
        return Solution(found[0], found[1], status_of(change, self.tolerance), count)


def start(p: Potentials) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Binary units at 1/2, which prefers no state; others as without couplings; no reaction."""
    alone = cumulants(p, p.unary, precision(p)).mean
    parts = [
        jnp.full_like(alone[b.slice], 0.5) if b.domain is Domain.BINARY else alone[b.slice]
        for b in p.layout.blocks
    ]
    return jnp.concatenate(parts), jnp.zeros_like(p.unary)


def in_field(
    p: Potentials,
    mean: Float[Array, " n"],
    reaction: Float[Array, " n"],
    pair: tuple[Factor, ...] | None = None,
) -> Cumulants:
    """Every unit in the field of the others: l = b + J m - s m, r = w_ii - s (nnbm, 8-9, 16-17)."""
    return cumulants(p, *_natural(p, mean, reaction, pair))


def free_energy(
    p: Potentials, site: Cumulants, reaction: Float[Array, " n"], order: int = 2
) -> Float[Array, ""]:
    """The variational free energy at a fixed point (nnbm, 4), the last term of (15) included."""
    m, variance = site.mean, site.variance
    second = variance + m * m
    l, r = _natural(p, m, reaction)
    w = precision(p)
    unit = log_normalisers(p, l, r) - l * m + 0.5 * r * second
    total = unit.sum() + p.offset + (p.unary * m - 0.5 * w * second).sum()
    total = total + 0.5 * m @ column(p, couplings(p), m)
    if order == 2:
        direct = column(p, squared(couplings(p)), variance)
        total = total + 0.25 * variance @ direct + 0.5 * variance @ (reaction - direct)
    return -total


def gap(new: Float[Array, " n"], old: Float[Array, " n"]) -> Float[Array, ""]:
    """The largest change, relative where values are above 1; NaN counts as no convergence."""
    change = jnp.max(jnp.abs(new - old) / jnp.maximum(jnp.abs(old), 1.0), initial=0.0)
    return jnp.where(jnp.isnan(change), jnp.inf, change)


def check_schedule(name: str, iterations: int, damping: float) -> None:
    """Refuse a schedule that cannot run."""
    if iterations < 1:
        raise UndirectedError(f"{name}: iterations is {iterations}; pass 1 or more")
    if not 0 <= damping < 1:
        raise UndirectedError(f"{name}: damping is {damping}; pass 0 or more and less than 1")


def _natural(
    p: Potentials,
    mean: Float[Array, " n"],
    reaction: Float[Array, " n"],
    pair: tuple[Factor, ...] | None = None,
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    pull = column(p, couplings(p) if pair is None else pair, mean)
    r = usable(p, precision(p) - reaction)
    return p.unary + pull - (precision(p) - r) * mean, r
