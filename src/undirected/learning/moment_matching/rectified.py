"""Nonnegative Boltzmann machines from moments alone: susceptibility propagation run backwards.

With first and second moments given, every unit's density, and so its cumulants, is known. What is
left of (nnbm, 11-20) is M^-1 = A^-1 - J + s, where A holds the cumulants and depends on J weakly.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from undirected.core import linalg, rectified
from undirected.core.errors import UndirectedError
from undirected.core.rectified import Cumulants


def inverse_susceptibility(
    mean: Float[Array, " n"],
    covariance: Float[Array, "n n"],
    *,
    improved: bool = True,
    iterations: int = 300,
    damping: float = 0.5,
) -> tuple[Float[Array, "n n"], Float[Array, " n"]]:
    """(W, b) of the fully connected model whose beliefs have these moments.

    `improved` inverts `ImprovedSusceptibility`, otherwise `Susceptibility`, whose M_ii is free.
    """
    n = mean.shape[-1]
    if covariance.shape != (n, n):
        raise UndirectedError(f"{n} means and covariances {covariance.shape}; pass ({n}, {n})")
    width = jnp.diagonal(covariance)
    l, r = rectified.from_moments(mean, width + mean**2)
    site = rectified.cumulants(l, r)
    off = 1 - jnp.eye(n, dtype=mean.dtype)

    def update(i: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        J, own, _ = carry
        cumulant_part = linalg.inv(_cumulant_matrix(site, J))
        precision = linalg.inv(covariance * off + jnp.diag(own))
        fresh = off * (cumulant_part - precision)
        J = J + (1 - damping) * (fresh - J)
        J = 0.5 * (J + J.T)
        base = jnp.diagonal(cumulant_part)
        if improved:
            return J, own, jnp.diagonal(precision) - base
        reaction = J**2 @ site.variance
        wanted = 1 / jnp.maximum(base + reaction, 1e-6)
        own = own + (1 - damping) * (wanted - 1 / jnp.diagonal(precision))
        return J, jnp.clip(own, 0.5 * width, 2 * width), reaction

    start = jnp.zeros_like(covariance), width, jnp.zeros_like(mean)
    J, _, reaction = jax.lax.fori_loop(0, iterations, update, start)
    return jnp.diag(r + reaction) - J, l - J @ mean + reaction * mean


def _cumulant_matrix(site: Cumulants, J: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """A of M = A (1 + (J - s) M): variances, and what third cumulants carry along J^2."""
    eye = jnp.eye(len(J), dtype=J.dtype)
    slope = linalg.solve(eye - 0.5 * site.spread[:, None] * J**2, jnp.diag(site.third))
    return jnp.diag(site.variance) + 0.5 * site.third[:, None] * (J**2 @ slope)
