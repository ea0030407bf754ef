"""Couplings and fields of an Ising model from means and covariances, in closed form.

All take spin moments, s = 2x - 1 in {-1, 1}: means m_i = <s_i> and covariances C_ij = <s_i s_j> -
m_i m_j, with 1 - m_i^2 on the diagonal; all return (J, h) of -E = sum_{i<j} J_ij s_i s_j + h' s, as
`Ising.from_spins` takes them. They are exact to some order in small couplings; refine them with
`TwoPhase(negative=ImprovedSusceptibility())`.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from undirected.core import linalg
from undirected.core.cells import unmasked
from undirected.core.errors import NotFinite, UndirectedError

Couplings = tuple[Float[Array, "n n"], Float[Array, " n"]]


def spin_moments(x: Float[Array, "rows n"]) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
    """Means and covariances of spins from rows of {0, 1} states."""
    s = 2 * jnp.asarray(unmasked(x), float) - 1
    if s.ndim != 2:
        raise UndirectedError(f"inverse Ising: states have shape {s.shape}; pass (rows, units)")
    mean = s.mean(0)
    return mean, s.T @ s / len(s) - jnp.outer(mean, mean)


def naive_mean_field(mean: Float[Array, " n"], covariance: Float[Array, "n n"]) -> Couplings:
    """J = -(C^-1), h = artanh m - J m (Kappen, Rodriguez 1998)."""
    J = -_inverse(mean, covariance)
    return J, jnp.arctanh(mean) - J @ mean


def tap(mean: Float[Array, " n"], covariance: Float[Array, "n n"]) -> Couplings:
    """Solve (C^-1)_ij = -J_ij - 2 J_ij^2 m_i m_j for J, then the TAP equation for h (Tanaka 1998).

    Where the quadratic has no real root the naive coupling at its turning point is taken.
    """
    inverse = _inverse(mean, covariance)
    both = jnp.outer(mean, mean)
    root = jnp.sqrt(jnp.maximum(1 - 8 * both * inverse, 0.0))
    J = -2 * inverse / (1 + root)
    field = jnp.arctanh(mean) - J @ mean + mean * (J**2 @ (1 - mean**2))
    return J, field


def independent_pairs(mean: Float[Array, " n"], covariance: Float[Array, "n n"]) -> Couplings:
    """Each pair as if alone: J = 1/4 log of the odds ratio of its table (Roudi et al. 2009)."""
    _check(mean, covariance)
    both = covariance + jnp.outer(mean, mean)
    a, b = mean[:, None], mean[None, :]
    up_up, down_down = 1 + a + b + both, 1 - a - b + both
    up_down, down_up = 1 + a - b - both, 1 - a + b - both
    alone = jnp.eye(len(mean), dtype=bool)

    def log_ratio(above: Array, below: Array) -> Array:
        return jnp.log(jnp.where(alone, 1.0, above) / jnp.where(alone, 1.0, below))

    J = 0.25 * log_ratio(up_up * down_down, up_down * down_up)
    pair_field = 0.25 * log_ratio(up_up * up_down, down_up * down_down)
    return J, pair_field.sum(1) - (len(mean) - 2) * jnp.arctanh(mean)


def sessak_monasson(mean: Float[Array, " n"], covariance: Float[Array, "n n"]) -> Couplings:
    """Loop sum plus independent pair, minus what both count (Sessak, Monasson 2009)."""
    pairs, _ = independent_pairs(mean, covariance)
    J = -_inverse(mean, covariance)
    width = 1 - mean**2
    off = 1 - jnp.eye(len(mean), dtype=mean.dtype)
    double = off * covariance / (jnp.outer(width, width) - off * covariance**2)
    J = J + pairs - double
    return J, jnp.arctanh(mean) - J @ mean + mean * (J**2 @ width)


def _inverse(mean: Array, covariance: Array) -> Float[Array, "n n"]:
    """C^-1 with a zero diagonal."""
    _check(mean, covariance)
    off = 1 - jnp.eye(len(mean), dtype=mean.dtype)
    return linalg.inv(covariance) * off


def _check(mean: Array, covariance: Array) -> None:
    n = mean.shape[-1]
    if covariance.shape != (n, n):
        raise UndirectedError(
            f"inverse Ising: {n} means and covariances {covariance.shape}; pass ({n}, {n})"
        )
    if not (jnp.abs(mean) < 1).all():
        raise NotFinite(
            "inverse Ising: a mean is -1, 1 or NaN: that spin never moves and its field is "
            "infinite; drop it, or add a pseudo-count to the data"
        )
