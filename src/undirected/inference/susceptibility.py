"""Covariances by linear response: susceptibility propagation, plain and diagonally consistent.

The printed equations (nnbm, 11-14) hold for means m and second moments v. In means and variances
they become, with u_ij = d l_i / d b_j seen from the centred unit, and for every domain,

    U = 1 + J M - s M,   M = var U + 1/2 third Q,   Y = third U + 1/2 spread Q,   Q = J^2 Y,

where M = dm/db, Y = d var/db, J^2 is squared entry by entry, s is the reaction term, and `third`
and `spread` are the third cumulant and the variance of (x - m)^2.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from undirected.core import linalg
from undirected.core.errors import UndirectedError
from undirected.core.iterate import iterate, status_of
from undirected.core.potentials import Beliefs, Potentials
from undirected.core.rectified import Cumulants
from undirected.factors import Edges, Factor
from undirected.inference.base import Inference
from undirected.inference.mean_field_units import couplings, dense, moments, product, squared
from undirected.inference.tap import TAP, check_schedule, free_energy, gap, in_field, start

Response = tuple[Float[Array, "n n"], Float[Array, "n n"]]


class Covariances(Beliefs):
    """Beliefs with the covariance of every pair of units, coupled or not."""

    covariance: Float[Array, "n n"]


class Susceptibility(Inference):
    """Susceptibility propagation (nnbm, 11-14): covariances are responses M_ij = dm_i / db_j.

    Dense models solve the linear equations; on graphs they are iterated, at O(n |E|) a sweep.

    Args:
        tap: where the means come from; with order 1 it is naive mean field with linear response.
        iterations: sweeps at most.
        tolerance: stop when no response moves by more.
        damping: the share of the old response that is kept.

    Returns:
        A call gives `Beliefs` that also have `covariance` (n, n), of every pair of units.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> un.Susceptibility()(model).covariance.shape
        (3, 3)
    """

    tap: TAP = TAP()
    iterations: int = 2000
    tolerance: float = 1e-6
    damping: float = 0.3

    def __check_init__(self) -> None:
        check_schedule("susceptibility propagation", self.iterations, self.damping)

    def infer(self, p: Potentials, key: Key[Array, ""] | None) -> Covariances:
        """Nothing here is random: the key is not used."""
        solution = self.tap.solve(p)
        site = in_field(p, solution.mean, solution.reaction)
        response = _Response(p, self.tap.order, self.damping)
        (covariance, _), change, count = response.solve(
            site, solution.reaction, self.iterations, self.tolerance
        )
        log_z = -free_energy(p, site, solution.reaction, self.tap.order)
        status = jnp.maximum(solution.status, status_of(change, self.tolerance))
        count = jnp.maximum(solution.iterations, count)
        return _beliefs(p, site, covariance, log_z, status, count)


class ImprovedSusceptibility(Inference):
    """Susceptibility propagation with diagonal consistency (nnbm, 15-20): M_ii = v_i - m_i^2.

    The reaction terms s_i = sum_j J_ij^2 var_j + Lambda_i are free parameters, set by the diagonal
    matching equation s_i = [(J M)_ii + third_i Q_ii / (2 var_i)] / var_i, which is (20). `log_z` is
    minus the modified free energy (15).

    Args:
        iterations: sweeps at most.
        tolerance: stop when no mean, reaction term or response moves by more.
        damping: the share of the old values that is kept.

    Returns:
        A call gives `Beliefs` that also have `covariance` (n, n), of every pair of units.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> un.ImprovedSusceptibility()(model).covariance.shape
        (3, 3)
    """

    iterations: int = 2000
    tolerance: float = 1e-6
    damping: float = 0.5

    def __check_init__(self) -> None:
        check_schedule("improved susceptibility propagation", self.iterations, self.damping)

    def infer(self, p: Potentials, key: Key[Array, ""] | None) -> Covariances:
        """Nothing here is random: the key is not used."""
        linear = _Response(p, 2, self.damping)
        first = start(p)
        state = (*first, linear.uncoupled(in_field(p, *first)))

        def update(state: tuple) -> tuple[tuple, Array]:
            mean, reaction, response = state
            site = in_field(p, mean, reaction, linear.pair)
            response, moved = linear.once(site, reaction, response)
            matched = linear.match(site, response)
            change = jnp.maximum(gap(site.mean, mean), gap(matched, reaction))
            off = jnp.abs(jnp.diagonal(response[0]) - site.variance)
            off = jnp.max(off / jnp.maximum(site.variance, 1.0), initial=0.0)
            mean = mean + (1 - self.damping) * (site.mean - mean)
            reaction = reaction + (1 - self.damping) * (matched - reaction)
            worst = jnp.maximum(jnp.maximum(change, moved), off)
            return (mean, reaction, response), jnp.where(jnp.isnan(worst), jnp.inf, worst)

        found, change, count = iterate(update, state, self.iterations, self.tolerance)
        mean, reaction, (covariance, _) = found
        site = in_field(p, mean, reaction)
        log_z = -free_energy(p, site, reaction)
        return _beliefs(p, site, covariance, log_z, status_of(change, self.tolerance), count)


class _Response:
    """The linear response of all units to all fields, given the units in their fields."""

    def __init__(self, p: Potentials, order: int, damping: float):
        self.p, self.order, self.damping = p, order, damping
        self.pair, self.pair2 = couplings(p), squared(couplings(p))
        self.sparse = any(isinstance(factor, Edges) for factor in self.pair)
        if self.sparse and len(self.pair) > 1:
            names = ", ".join(type(f).__name__ for f in self.pair)
            raise UndirectedError(
                f"susceptibility: Edges cannot be mixed with other groups ({names})"
            )

    def uncoupled(self, site: Cumulants) -> Response:
        """The response of uncoupled units."""
        return jnp.diag(site.variance), jnp.diag(site.third)

    def solve(
        self, site: Cumulants, reaction: Array, iterations: int, tolerance: float
    ) -> tuple[Response, Array, Array]:
        """The response of these units, how far it is from rest, and the iterations it took."""

        def update(response: Response) -> tuple[Response, Array]:
            return self.once(site, reaction, response)

        return iterate(update, self.uncoupled(site), iterations, tolerance)

    def once(
        self, site: Cumulants, reaction: Array, response: Response
    ) -> tuple[Response, Float[Array, ""]]:
        """One damped sweep on a graph, the solution of a dense model; and the largest change."""
        if not self.sparse:
            return self._solve(site, reaction), jnp.zeros((), reaction.dtype)
        fresh = self._sweep(site, reaction, response)
        change = jnp.maximum(gap(fresh[0], response[0]), gap(fresh[1], response[1]))
        keep = self.damping
        mixed = jax.tree.map(lambda new, old: old + (1 - keep) * (new - old), fresh, response)
        return mixed, change

    def match(self, site: Cumulants, response: Response) -> Float[Array, " n"]:
        """Reaction terms that make M_ii the variance (nnbm, 20)."""
        covariance, slope = response
        # Its square must not be 0: XLA may divide by that at once.
        own = jnp.maximum(site.variance, jnp.finfo(site.variance.dtype).tiny ** 0.5)
        through = _diagonal(self.p, self.pair, covariance)
        square = _diagonal(self.p, self.pair2, slope)
        return (through + 0.5 * site.third * square / own) / own

    def _sweep(self, site: Cumulants, reaction: Array, response: Response) -> Response:
        covariance, slope = response
        var, third, spread, s = (
            a[:, None] for a in (site.variance, site.third, site.spread, reaction)
        )
        field = product(self.p, self.pair, covariance)
        field = field.at[jnp.diag_indices(len(field))].add(1.0)
        square = product(self.p, self.pair2, slope) if self.order == 2 else 0.0 * slope
        covariance = (var * field + 0.5 * third * square) / (1 + var * s)
        return covariance, third * (field - s * covariance) + 0.5 * spread * square

    def _solve(self, site: Cumulants, reaction: Array) -> Response:
        """Y = (1 - spread J^2 / 2)^-1 third U, so M = A U; then M = (1 - A (J - s))^-1 A."""
        eye = jnp.eye(len(reaction), dtype=reaction.dtype)
        J = dense(self.p, self.pair) - jnp.diag(reaction)
        if self.order == 1:
            A, slope = jnp.diag(site.variance), jnp.diag(site.third)
        else:
            J2 = dense(self.p, self.pair2)
            slope = linalg.solve(eye - 0.5 * site.spread[:, None] * J2, jnp.diag(site.third))
            A = jnp.diag(site.variance) + 0.5 * site.third[:, None] * (J2 @ slope)
        covariance = linalg.solve(eye - A @ J, A)
        return covariance, slope @ (eye + J @ covariance)


def _diagonal(p: Potentials, pair: tuple[Factor, ...], x: Float[Array, "n n"]) -> Array:
    """(J x)_ii for every unit, from the entries of x on the couplings alone."""
    total = jnp.zeros(len(x), x.dtype)
    for factor in pair:
        if isinstance(factor, Edges):
            i, j = factor.graph.edges[:, 0], factor.graph.edges[:, 1]
            total = total.at[i].add(factor.weight * x[j, i]).at[j].add(factor.weight * x[i, j])
        else:
            total = total + jnp.sum(dense(p, (factor,)) * x.T, 1)
    return total


def _beliefs(
    p: Potentials,
    site: Cumulants,
    covariance: Float[Array, "n n"],
    log_z: Array,
    status: Array,
    count: Array,
) -> Covariances:
    covariance = 0.5 * (covariance + covariance.T)
    pairs = moments(p, site, lambda factor: factor.covariances(p.layout, covariance))
    return Covariances(site.mean, pairs, log_z, status, count, covariance)
