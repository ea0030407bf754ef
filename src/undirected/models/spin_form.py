"""Binary models whose parameters are those of their spin form."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from undirected.core.layout import Layout, joint_states
from undirected.core.potentials import Potentials, local_fields, values


class SpinForm(eqx.Module):
    """The model that reads another's weights u and biases c as those of spins s = 2 x - 1.

    -E = 1/2 sum u_ij s_i s_j + 1/2 sum c_i s_i + constant: couplings 2 u and biases c - sum_j u_ij
    on {0, 1} (query-training, eq. 1). The same family with better-conditioned gradients: a coupling
    no longer moves the mean of the units it joins.
    """

    model: Any

    @property
    def layout(self) -> Layout:
        return self.model.layout

    def energy(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """E(x) of joint states in {0, 1}, up to a constant."""
        x = joint_states("SpinForm.energy", self.layout, x)
        return -values(self.lower(), x.reshape(-1, x.shape[-1])).reshape(x.shape[:-1])

    def lower(self) -> Potentials:
        """Potentials on {0, 1}."""
        p = self.model.lower()
        bias = p.unary - local_fields(p, jnp.ones_like(p.unary))
        factors = jax.tree.map(lambda a: 2 * a if eqx.is_inexact_array(a) else a, p.factors)
        return eqx.tree_at(lambda q: (q.unary, q.factors), p, (bias, factors))
