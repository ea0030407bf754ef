"""log Z and entropy of dense Potts models, by annealing and by thermodynamic integration.

One run gives both: chains go from independent positions, whose log Z is known, to the model, along
exp(-(1 - b) E_0 - b E_1). Annealed importance sampling weighs the chains; integration sums the mean
of E_0 - E_1 over b.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from undirected.alignment.boltzmann import profile_chains
from undirected.core.errors import UndirectedError, check_counts
from undirected.core.random import make_key
from undirected.models import Potts
from undirected.ops.dense_potts import EXACT, sweeps


class LogZ(NamedTuple):
    """log Z by annealing (`value`, with a standard error) and by integration; the entropy in nats.

    The entropy is log Z + the mean energy of the chains at the end, with `value` for log Z.
    """

    value: float
    error: float
    integrated: float
    entropy: float
    effective: float


def potts_log_z(model: Potts, betas: int = 1000, chains: int = 500, seed: int = 0) -> LogZ:
    """log Z and entropy of a Potts model, every pair of whose variables may be coupled.

    Args:
        model: any Potts model.
        betas: steps of the path, with a sweep each.
        chains: number of chains.
        seed: of all draws.

    Returns:
        `value` and its standard `error` by annealed importance sampling, `integrated` along the
        same path, `entropy`, and the `effective` number of chains that bear the weights.

    Example:
        >>> import undirected as un
        >>> found = un.potts_log_z(un.Potts.create(3, 4), betas=10, chains=10)
        >>> round(found.value, 4), round(found.entropy, 4)
        (4.1589, 4.1589)
    """
    if not isinstance(model, Potts):
        raise UndirectedError(
            f"potts_log_z: got a {type(model).__name__}; pass a Potts, and others to "
            "un.log_partition"
        )
    check_counts("potts_log_z", 2, betas=betas, chains=chains)
    gauge = model.zero_sum()
    couplings = jnp.asarray(gauge.coupling_matrix)
    path = jnp.linspace(0.0, 1.0, betas + 1)
    key = make_key("potts_log_z", None, seed)
    logs, gains, last = _anneal(gauge.fields, couplings, path, chains, key)
    logs, gains = np.asarray(logs, float), np.asarray(gains, float)
    start = float(jax.nn.logsumexp(gauge.fields, axis=1).sum()) + float(gauge.offset)
    weights = np.exp(logs - logs.max())
    value = start + float(logs.max() + np.log(weights.mean()))
    error = float(weights.std(ddof=1) / weights.mean() / np.sqrt(chains))
    integrated = start + float(np.trapezoid(gains, np.asarray(path)))
    mean = float((weights * np.asarray(last)).sum() / weights.sum()) + float(gauge.offset)
    effective = float(weights.sum() ** 2 / (weights**2).sum())
    return LogZ(value, error, integrated, value - mean, effective)


@partial(jax.jit, static_argnames="chains")
def _anneal(
    fields: Float[Array, "L q"],
    couplings: Float[Array, "L q L q"],
    path: Float[Array, " K"],
    chains: int,
    key: Key[Array, ""],
) -> tuple[Array, Array, Array]:
    """Log weights, the mean of what couplings add along the path, and -E of the last states.

    The path begins at the fields alone, so that couplings are all that is switched on.
    """
    length, q = fields.shape
    matrix = couplings.reshape(length * q, -1)
    start, rest = jax.random.split(key)
    x = profile_chains(jax.nn.softmax(fields, axis=1), chains, start)

    def coupled(x: Array) -> Array:
        return 0.5 * (x * jnp.dot(matrix, x, precision=EXACT)).sum(0)

    def step(carry: tuple[Array, Array], k: Array) -> tuple[tuple[Array, Array], Array]:
        x, logs = carry
        gain = coupled(x)
        logs = logs + (path[k + 1] - path[k]) * gain
        x = sweeps(fields, path[k + 1] * couplings, x, jax.random.fold_in(rest, k), 1)
        return (x, logs), gain.mean()

    (x, logs), gains = jax.lax.scan(
        step, (x, jnp.zeros(chains, fields.dtype)), jnp.arange(path.shape[0] - 1)
    )
    gain = coupled(x)
    last = gain + jnp.dot(fields.reshape(-1), x, precision=EXACT)
    return logs, jnp.append(gains, gain.mean()), last
