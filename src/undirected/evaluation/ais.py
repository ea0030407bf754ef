"""Annealed importance sampling: the log partition function of any model at the end of a path."""

import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Key
from numpy.typing import ArrayLike

from undirected.core.agreement import agree, told_of_loss
from undirected.core.errors import check_counts
from undirected.core.mesh import check_mesh, gather, place, place_chains, split_chains, use_mesh
from undirected.core.numerics import full_precision
from undirected.core.progress import Progress
from undirected.core.protocols import Kernel
from undirected.core.random import make_key
from undirected.evaluation.base_samples import draw_base, path_without_constant
from undirected.evaluation.energies import energy, refresh_hidden
from undirected.evaluation.path_checks import check_path, check_samples, make_schedule
from undirected.evaluation.weights import AISResult, estimate_log_z

BLOCK, ON_GPU = 0.5, 1000
"""Seconds of annealing after which the program looks up (a block takes up to twice as long), and
betas of a block on a GPU, which does not wait for the host within a number of steps it knows."""


def ais(
    path: Any,
    kernel: Kernel,
    key: Key[Array, ""] | None = None,
    *,
    seed: int | None = None,
    chains: int = 100,
    betas: int | ArrayLike = 1000,
    confidence: float = 0.99,
    mesh: Mesh | None = None,
    progress: Progress | None = None,
) -> AISResult:
    """log Z of `path.target` by annealing exact samples of `path.base`; Neal (2001), eq. 11.

    log w = log Z_base + sum_k F_{k-1}(v_{k-1}) - F_k(v_{k-1}), v_k moved from v_{k-1} by the kernel
    at beta_k, and Z = mean w. Hidden units are summed out of the weights where the model has a free
    energy.

    Args:
        path: a `ModelPath` whose base has no couplings: `model.independent(data_means)`, or
            `model.independent()`, which is uniform.
        kernel: how the chains move.
        key: of all draws.
        seed: the same as a number; pass one of the two.
        chains: independent chains, at least 2.
        betas: how many, evenly spaced from 0 to 1, or the increasing values themselves.
        confidence: with which the interval holds log Z.
        mesh: devices over which the chains are split, such as `un.device_mesh()`.
        progress: told the betas done and the betas in all, about twice a second.

    Returns:
        An `AISResult`: `log_z`, `stderr`, `interval`, and the chains' own weights and last states.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> path = un.ModelPath(model.independent(), model)
        >>> found = un.ais(path, un.Gibbs(), seed=0, betas=100)
        >>> found.interval[0] < float(un.Exact()(model).log_z) < found.interval[1]
        True
    """
    schedule = make_schedule(betas)
    check_path(path, kernel, confidence)
    (chains,) = check_counts("ais", 2, chains=chains)
    first, rest = jax.random.split(make_key("ais", key, seed))
    own = check_mesh("ais", mesh, path.target)
    path, constant = path_without_constant(path)
    x, base_log_z = draw_base(path.base, chains, first)
    x, log_w = anneal(path, kernel, x, schedule, rest, own, progress)
    return estimate_log_z(log_w, float(base_log_z) + constant, 1, confidence, x)


def reverse_ais(
    path: Any,
    kernel: Kernel,
    samples: ArrayLike,
    key: Key[Array, ""],
    *,
    betas: int | ArrayLike = 1000,
    confidence: float = 0.99,
    mesh: Mesh | None = None,
    progress: Progress | None = None,
) -> AISResult:
    """log Z of `path.target` by annealing samples of it back to the base: 1 / Z = mean 1 / w.

    An upper bound in expectation where `samples` (chains, n or n_visible) follow the target; Burda,
    Grosse & Salakhutdinov (2015). Chains that share an origin make the interval too narrow.
    """
    schedule = make_schedule(betas)[::-1]
    check_path(path, kernel, confidence)
    x = check_samples(path.target, samples)
    path, constant = path_without_constant(path)
    _, base_log_z = draw_base(path.base, len(x), key)
    own = check_mesh("reverse_ais", mesh, path.target)
    x, log_w = anneal(path, kernel, x, schedule, key, own, progress)
    return estimate_log_z(log_w, float(base_log_z) + constant, -1, confidence, x)


def anneal(
    path: Any,
    kernel: Kernel,
    x: Float[Array, "*models chains n"],
    betas: np.ndarray,
    key: Key[Array, "*models"],
    mesh: Mesh | None = None,
    progress: Progress | None = None,
) -> tuple[Float[Array, "*models chains n"], Float[Array, "*models chains"]]:
    """Last states and log weights of chains led from betas[0] to betas[-1].

    With an axis over models in front, so have the parameters of the path.

    Blocks of betas double until one takes `BLOCK` seconds; Ctrl-C is answered between two blocks.
    Processes that share a mesh go by the clock of the first.
    """
    steps = jnp.asarray(betas, x.dtype)
    path, kernel, steps, key = place(mesh, (path, kernel, steps, key))
    chains = *place_chains(mesh, (x, jnp.zeros(x.shape[:-1], x.dtype))), key
    known = _known()
    start, size = 1, ON_GPU if known else 1
    while start < len(steps):
        begun, count = time.monotonic(), min(size, len(steps) - start)
        number = count if known else np.asarray(count)
        with use_mesh(mesh), told_of_loss(mesh), full_precision():
            chains = _block(path, kernel, chains, steps, np.asarray(start), number)
            jax.block_until_ready(chains)
        if not known and agree(mesh, time.monotonic() - begun < BLOCK):
            size *= 2
        start += count
        if progress is not None:
            progress(start - 1, len(steps) - 1)
    return gather(mesh, chains[:2])


def _known() -> bool:
    """Whether blocks are compiled for their number of betas."""
    return jax.default_backend() == "gpu"


@eqx.filter_jit
def _block(
    path: Any, kernel: Kernel, chains: tuple, steps: Array, start: Any, count: Any
) -> tuple[Float[Array, "chains n"], Float[Array, " chains"], Key[Array, ""]]:
    """States, log weights and key of chains led from steps[start - 1] over `count` steps."""
    if chains[0].ndim == 2:
        return _lead(path, kernel, chains, steps, start, count)
    axes = jax.tree.map(lambda a: 0 if eqx.is_inexact_array(a) else None, path)
    each = eqx.filter_vmap(
        lambda path, chains: _lead(path, kernel, chains, steps, start, count), in_axes=(axes, 0)
    )
    return each(path, chains)


def _lead(
    path: Any, kernel: Kernel, chains: tuple, steps: Array, start: Array, count: int | Array
) -> tuple[Float[Array, "chains n"], Float[Array, " chains"], Key[Array, ""]]:
    """The same for the chains of one model."""
    free = jnp.ones(chains[0].shape[-1], bool)

    def one(k: Array, chains: tuple) -> tuple:
        x, log_w, key = chains
        key, refresh, init, move = jax.random.split(key, 4)
        before, model = path(steps[start + k - 1]), path(steps[start + k])
        # The difference of two large numbers that are near is exact, and so comes first.
        log_w = log_w + (energy(before, x) - energy(model, x))
        x = refresh_hidden(model, x, refresh)
        state, _ = kernel.step(model, kernel.init(model, x, init), free, move)
        return *split_chains((state.x, log_w)), key

    return jax.lax.fori_loop(0, count, one, chains)
