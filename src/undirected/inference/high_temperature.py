"""Downs' high-temperature expansion of nonnegative Boltzmann machines around exponential units."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from undirected.core import linalg
from undirected.core.errors import UnsupportedFactor
from undirected.core.iterate import iterate, status_of
from undirected.core.layout import Domain
from undirected.core.potentials import Potentials, Status
from undirected.factors import Factor, Squares
from undirected.inference.base import Inference
from undirected.inference.mean_field_units import couplings, dense, precision, squared
from undirected.inference.susceptibility import Covariances
from undirected.inference.tap import check_schedule, gap


class Downs(Inference):
    """Second-order expansion (Downs 2001) in all of w, the diagonal too, first moments fixed.

    G(m) = -sum_i (1 + log m_i) + sum_i (w_ii m_i^2 - b_i m_i) - m' J m / 2
           - 1/4 (m^2)' J^2 m^2 - 1/2 sum_i w_ii^2 m_i^4.
    Means are its stationary point, covariances the inverse Hessian, second moments of single units
    its derivative by w_ii / 2. Where terms of second order exceed those of first order (w_ii m_i^2
    above 1/2) the expansion says nothing, and `converged` is False.
    """

    iterations: int = 500
    tolerance: float = 1e-6
    damping: float = 0.5

    def __check_init__(self) -> None:
        check_schedule("Downs", self.iterations, self.damping)

    def infer(self, p: Potentials, key: Key[Array, ""] | None) -> Covariances:
        """Nothing here is random: the key is not used."""
        if any(block.domain is not Domain.NONNEGATIVE for block in p.layout.blocks):
            raise UnsupportedFactor("Downs: the expansion is one of nonnegative units; use TAP")
        J, J2 = dense(p, couplings(p)), dense(p, squared(couplings(p)))
        w, b = precision(p), p.fields

        def stationary(m: Array) -> Array:
            """1 / m_i is what remains of dG / dm_i = 0; kept positive, so that m exists."""
            rate = 2 * w * m - b - J @ m - m * (J2 @ m**2) - 2 * w**2 * m**3
            return 1 / jnp.maximum(rate, 0.2 / m)

        def update(m: Array) -> tuple[Array, Array]:
            new = stationary(m)
            mixed = jnp.exp(self.damping * jnp.log(m) + (1 - self.damping) * jnp.log(new))
            return mixed, gap(new, m)

        first = 1 / jnp.maximum(-b + jnp.sqrt(2 * w), 0.1 * jnp.sqrt(w))
        m, change, count = iterate(update, first, self.iterations, self.tolerance)
        hessian = _hessian(J, J2, w, m)
        covariance = linalg.inv(hessian)
        stable = jnp.isfinite(linalg.cholesky(hessian)).all()
        square = 2 * m**2 - 2 * w * m**4
        factors = tuple(_statistic(p, f, m, square, covariance) for f in p.factors)
        log_z = -_gibbs(J, J2, w, b, m) + p.offset
        status = status_of(change, self.tolerance)
        status = jnp.where(stable, status, jnp.maximum(status, int(Status.ROUNDS_SPENT)))
        return Covariances(m, factors, log_z, status, count, covariance)


def _gibbs(J: Array, J2: Array, w: Array, b: Array, m: Array) -> Float[Array, ""]:
    first = (w * m**2 - b * m).sum() - 0.5 * m @ J @ m
    second = 0.25 * m**2 @ J2 @ m**2 + 0.5 * (w**2 * m**4).sum()
    return first - second - (1 + jnp.log(m)).sum()


def _hessian(J: Array, J2: Array, w: Array, m: Array) -> Float[Array, "n n"]:
    own = 1 / m**2 + 2 * w - 6 * w**2 * m**2 - J2 @ m**2
    return jnp.diag(own) - J - 2 * J2 * jnp.outer(m, m)


def _statistic(
    p: Potentials, factor: Factor, m: Array, square: Array, covariance: Float[Array, "n n"]
) -> Factor:
    if isinstance(factor, Squares):
        return Squares(square[p.layout.blocks[factor.block].slice], factor.block)
    both = factor.covariances(p.layout, covariance + jnp.outer(m, m))
    return eqx.tree_at(lambda f: f.weight, factor, both)
