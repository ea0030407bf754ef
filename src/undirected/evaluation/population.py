"""Population annealing: log Z and samples from populations that are thinned out as they cool."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, Key
from numpy.typing import ArrayLike

from undirected.core.errors import check_counts
from undirected.core.numerics import full_precision
from undirected.core.protocols import Kernel
from undirected.core.random import make_key
from undirected.evaluation.base_samples import draw_base, path_without_constant
from undirected.evaluation.energies import energy, refresh_hidden
from undirected.evaluation.path_checks import check_path, make_schedule
from undirected.evaluation.weights import AISResult, estimate_log_z


@dataclass(frozen=True)
class PopulationResult(AISResult):
    """An estimate of log Z in nats from independent populations.

    As `AISResult`, where `log_weights` is each population's own estimate, and `samples` are the
    members of all of them. `family` is the mean square of the sizes of families, members with a
    common ancestor at beta = 0, over the mean size: the population is large enough where it is far
    below the number of members.
    """

    family: float


def population_annealing(
    path: Any,
    kernel: Kernel,
    key: Key[Array, ""] | None = None,
    *,
    seed: int | None = None,
    populations: int = 16,
    members: int = 200,
    betas: int | ArrayLike = 100,
    confidence: float = 0.99,
) -> PopulationResult:
    """log Z of `path.target`, and draws from it (Hukushima and Iba 2003; Machta 2010).

    Members start as exact samples of `path.base`. From one beta to the next each is copied in
    proportion to its weight w = exp(E_before - E_now), as many in all as before, and moved by the
    kernel; log Z gains log mean w. Each population's Z is unbiased, and their spread is the error.

    Args:
        path: a `ModelPath` whose base has no couplings, as for `ais`.
        kernel: how members move; more sweeps help as more betas do.
        key: of all draws.
        seed: the same as a number; pass one of the two.
        populations: independent populations, at least 2.
        members: of every population, at least 2.
        betas: how many, evenly spaced from 0 to 1, or the increasing values themselves.
        confidence: with which the interval holds log Z.

    Returns:
        A `PopulationResult`: `log_z`, `stderr`, `interval`, `samples`, `family`.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> path = un.ModelPath(model.independent(), model)
        >>> found = un.population_annealing(path, un.Gibbs(), seed=0, betas=20)
        >>> found.interval[0] < float(un.Exact()(model).log_z) < found.interval[1]
        True
    """
    schedule = make_schedule(betas)
    check_path(path, kernel, confidence)
    sizes = check_counts("population_annealing", 2, populations=populations, members=members)
    populations, members = sizes
    first, rest = jax.random.split(make_key("population_annealing", key, seed))
    path, constant = path_without_constant(path)
    x, base_log_z = draw_base(path.base, populations * members, first)
    x = x.reshape(populations, members, -1)
    with full_precision():
        x, log_z, ancestor = _cool(path, kernel, x, jnp.asarray(schedule, x.dtype), rest)
    found = estimate_log_z(
        log_z, float(base_log_z) + constant, 1, confidence, x.reshape(-1, x.shape[-1])
    )
    sizes = np.stack([np.bincount(own, minlength=members) for own in np.asarray(ancestor)])
    family = float((sizes.astype(float) ** 2).sum(1).mean() / members)
    return PopulationResult(**vars(found), family=family)


@eqx.filter_jit
def _cool(
    path: Any,
    kernel: Kernel,
    x: Float[Array, "populations members n"],
    betas: Float[Array, " k"],
    key: Key[Array, ""],
) -> tuple[Array, Float[Array, " populations"], Int[Array, "populations members"]]:
    """Members at the last beta, the log of each population's product of mean weights, ancestors."""
    free = jnp.ones(x.shape[-1], bool)

    def cooler(k: Array, carry: tuple) -> tuple:
        x, log_z, ancestor = carry
        copy_key, hidden_key, init_key, move_key = jax.random.split(jax.random.fold_in(key, k), 4)
        before, model = path(betas[k]), path(betas[k + 1])
        log_w = energy(before, x) - energy(model, x)
        top = log_w.max(1, keepdims=True)
        weight = jnp.exp(log_w - top)
        log_z = log_z + top[:, 0] + jnp.log(weight.mean(1))
        parent = systematic(weight, copy_key)
        x = jnp.take_along_axis(x, parent[..., None], 1)
        x = refresh_hidden(model, x, hidden_key)
        state, _ = kernel.step(model, kernel.init(model, x, init_key), free, move_key)
        return state.x, log_z, jnp.take_along_axis(ancestor, parent, 1)

    own = jnp.broadcast_to(jnp.arange(x.shape[1]), x.shape[:2])
    start = x, jnp.zeros(len(x), x.dtype), own
    return lax.fori_loop(0, len(betas) - 1, cooler, start)


def systematic(
    weight: Float[Array, "populations members"], key: Key[Array, ""]
) -> Int[Array, "populations members"]:
    """The parent of every new member: equidistant marks, from a random start, on the weights."""
    members = weight.shape[1]
    ends = jnp.cumsum(weight, 1)
    ends = ends / ends[:, -1:]
    start = jax.random.uniform(key, (len(weight), 1), weight.dtype)
    marks = (jnp.arange(members)[None] + start) / members
    parent = jax.vmap(lambda ends, marks: jnp.searchsorted(ends, marks, side="right"))(ends, marks)
    return jnp.minimum(parent, members - 1)
