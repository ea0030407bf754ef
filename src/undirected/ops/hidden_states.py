"""log Z of an RBM with few hidden units, and its gradient, in one pass over the hidden states."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from undirected.core.errors import UndirectedError
from undirected.core.numerics import full_precision, sum_logs

MOST_HIDDEN = 20


def log_z_over_hidden(
    weights: Float[Array, "V H"], visible_bias: Float[Array, " V"], hidden_bias: Float[Array, " H"]
) -> Float[Array, ""]:
    """log sum_h exp(c' h + sum_i softplus(b_i + (W h)_i)) over binary visibles; differentiable."""
    if weights.shape[1] > MOST_HIDDEN:
        raise UndirectedError(
            f"log_z_over_hidden: {weights.shape[1]} hidden units have 2^{weights.shape[1]} states; "
            f"the limit is {MOST_HIDDEN}, use AIS"
        )
    return _log_z(weights, visible_bias, hidden_bias)


def log_z_plain(
    weights: Float[Array, "V H"], visible_bias: Float[Array, " V"], hidden_bias: Float[Array, " H"]
) -> Float[Array, ""]:
    """The same as the formula reads; autodiff takes a second pass."""
    h = _states(weights.shape[1], weights.dtype)
    fields = h @ weights.T + visible_bias[None]
    return jax.nn.logsumexp(h @ hidden_bias + jax.nn.softplus(fields).sum(1))


@jax.custom_vjp
def _log_z(weights: Array, visible_bias: Array, hidden_bias: Array) -> Array:
    return _forward(weights, visible_bias, hidden_bias)[0]


@full_precision()
def _forward(weights: Array, visible_bias: Array, hidden_bias: Array) -> tuple[Array, tuple]:
    """log Z, and what is expected of W, b and c: one exponential an entry and few logarithms.

    softplus(f) = max(f, 0) + log(1 + e), e = exp(-|f|) <= 1.
    """
    h = _states(weights.shape[1], weights.dtype)
    fields = h @ weights.T + visible_bias[None]
    small = jnp.exp(-jnp.abs(fields))
    log_weights = h @ hidden_bias + jnp.maximum(fields, 0).sum(1) + sum_logs(1 + small)
    log_z = jax.nn.logsumexp(log_weights)
    on = jnp.where(fields > 0, 1, small) / (1 + small)
    share = jnp.exp(log_weights - log_z)
    sides = jnp.concatenate([h, jnp.ones_like(h[:, :1])], 1) * share[:, None]
    means = sides.T @ on
    return log_z, (means[:-1].T, means[-1], share @ h)


def _backward(means: tuple, slope: Array) -> tuple[Array, ...]:
    return tuple(slope * mean for mean in means)


_log_z.defvjp(_forward, _backward)


def _states(hidden: int, dtype: jnp.dtype) -> Float[Array, "S H"]:
    """All states of the hidden units."""
    return jnp.asarray((np.arange(2**hidden)[:, None] >> np.arange(hidden)) & 1, dtype)
