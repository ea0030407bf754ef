"""Exact inference of up to three nonnegative units by quadrature, one of them in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from undirected.core import rectified
from undirected.core.errors import UndirectedError
from undirected.core.layout import Domain
from undirected.core.potentials import Potentials
from undirected.inference.base import Inference, finished
from undirected.inference.mean_field_units import couplings, dense, moments, precision
from undirected.inference.susceptibility import Covariances

MOST_UNITS = 3


class Quadrature(Inference):
    """Gauss-Legendre on a box around the mass, the last unit in closed form; n <= 3.

    The box is found in a few passes: it reaches from 12 standard deviations below the mean, or
    zero, to 40 above.
    """

    nodes: int = 240
    passes: int = 5

    def infer(self, p: Potentials, key: Key[Array, ""] | None) -> Covariances:
        """Nothing here is random: the key is not used."""
        n = p.layout.n
        if n > MOST_UNITS or any(b.domain is not Domain.NONNEGATIVE for b in p.layout.blocks):
            raise UndirectedError(
                f"quadrature: {n} units; it takes up to {MOST_UNITS} nonnegative ones, use "
                "ImprovedSusceptibility or a sampler for more"
            )

        def better(i: Array, box: tuple[Array, Array]) -> tuple[Array, Array]:
            _, mean, second = self._integrate(p, *box)
            spread = jnp.sqrt(jnp.maximum(jnp.diagonal(second) - mean**2, 0.0))
            return jnp.maximum(mean - 12 * spread, 0.0), mean + 40 * spread

        alone = rectified.cumulants(p.unary, precision(p))
        box = jnp.zeros_like(p.unary), alone.mean + 40 * jnp.sqrt(alone.variance)
        box = jax.lax.fori_loop(0, self.passes, better, box)
        log_z, mean, second = self._integrate(p, *box)
        covariance = second - jnp.outer(mean, mean)
        site = alone._replace(mean=mean, variance=jnp.diagonal(covariance))
        factors = moments(p, site, lambda factor: factor.covariances(p.layout, covariance))
        return Covariances(mean, factors, log_z, *finished(self.passes + 1), covariance)

    def _integrate(
        self, p: Potentials, low: Float[Array, " n"], high: Float[Array, " n"]
    ) -> tuple[Float[Array, ""], Float[Array, " n"], Float[Array, "n n"]]:
        """Log Z, means and second moments over a box; the last unit over all x >= 0."""
        most = p.layout.n - 1
        J, w = dense(p, couplings(p)), precision(p)
        x, log_weight = _product_rule(low[:most], high[:most], self.nodes)
        pulls = x @ p.unary[:most] + 0.5 * ((x @ J[:most, :most]) * x).sum(-1)
        field = p.unary[most] + x @ J[:most, most]
        own = jnp.broadcast_to(w[most], field.shape)
        value = pulls - 0.5 * (x * x) @ w[:most] + rectified.log_normaliser(field, own)
        total = jax.nn.logsumexp(log_weight + value)
        share = jnp.exp(log_weight + value - total)
        last = rectified.cumulants(field, own)
        means = jnp.concatenate([x, last.mean[:, None]], 1)
        second = (means * share[:, None]).T @ means
        second = second.at[most, most].add(share @ last.variance)
        return p.offset + total, share @ means, second


def _product_rule(
    low: Float[Array, " d"], high: Float[Array, " d"], nodes: int
) -> tuple[Float[Array, "s d"], Float[Array, " s"]]:
    """Nodes and log weights of Gauss-Legendre on a box of any dimension, also none."""
    node, weight = (jnp.asarray(a, low.dtype) for a in np.polynomial.legendre.leggauss(nodes))
    x, log_weight = jnp.zeros((1, 0), low.dtype), jnp.zeros(1, low.dtype)
    for i in range(len(low)):
        half = 0.5 * (high[i] - low[i])
        axis = jnp.tile(low[i] + half * (node + 1), len(x))
        log_weight = jnp.repeat(log_weight, nodes) + jnp.tile(jnp.log(half * weight), len(x))
        x = jnp.concatenate([jnp.repeat(x, nodes, 0), axis[:, None]], 1)
    return x, log_weight
