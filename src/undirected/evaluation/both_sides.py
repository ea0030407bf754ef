"""log Z from below and from above: AIS forwards and back along the same path."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Key
from numpy.typing import ArrayLike

from undirected.core.progress import Progress, part_of
from undirected.core.protocols import Kernel
from undirected.core.random import make_key
from undirected.evaluation.ais import ais, anneal, reverse_ais
from undirected.evaluation.base_samples import draw_base
from undirected.evaluation.path_checks import check_path, make_schedule
from undirected.evaluation.weights import AISResult, Bracket, estimate_log_z


def bracket(
    path: Any,
    kernel: Kernel,
    key: Key[Array, ""] | None = None,
    *,
    seed: int | None = None,
    samples: ArrayLike | None = None,
    chains: int = 100,
    betas: int | ArrayLike = 1000,
    confidence: float = 0.99,
    width: float = 1.0,
    mesh: Mesh | None = None,
    progress: Progress | None = None,
) -> Bracket:
    """log Z from both sides: `ais`, and `reverse_ais` back along the same path.

    Args:
        path: a `ModelPath` whose base has no couplings: `model.independent(data_means)`, or
            `model.independent()`, which is uniform.
        kernel: how the chains move.
        key: of all draws.
        seed: the same as a number; pass one of the two.
        samples: of the target, where the reverse run starts. Without them it starts from the last
            states of the forward run, drawn again by their weights: good where the forward run is,
            blind to a mode that it missed.
        chains: independent chains of each run.
        betas: how many, evenly spaced from 0 to 1, or the increasing values themselves.
        confidence: of the intervals.
        width: nats within which the two sides must lie to agree.
        mesh: devices over which the chains are split, such as `un.device_mesh()`.
        progress: told the betas done and the betas of both runs, about twice a second.

    Returns:
        A `Bracket`: `lower` and `upper`, `log_z` between them, and `agree`, whether that is known
        within `width` nats.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> path = un.ModelPath(model.independent(), model)
        >>> un.bracket(path, un.Gibbs(), seed=0, betas=100).agree
        True
    """
    forward, choice, backward = jax.random.split(make_key("bracket", key, seed), 3)
    shared = {"betas": betas, "confidence": confidence, "mesh": mesh}
    there, back = part_of(progress, 0, 2), part_of(progress, 1, 2)
    lower = ais(path, kernel, forward, chains=chains, progress=there, **shared)
    if samples is None:
        weights = jnp.asarray(lower.log_weights - lower.log_z)
        samples = lower.samples[jax.random.categorical(choice, weights, shape=(chains,))]
    upper = reverse_ais(path, kernel, samples, backward, progress=back, **shared)
    return Bracket(lower, upper, width)


def brackets(
    paths: Sequence[Any],
    kernel: Kernel,
    key: Key[Array, ""],
    *,
    chains: int = 100,
    betas: int | ArrayLike = 1000,
    confidence: float = 0.99,
) -> list[Bracket]:
    """`bracket` of several paths between models of one shape, whose chains move side by side."""
    schedule = make_schedule(betas)
    for path in paths:
        check_path(path, kernel, confidence)
    arrays = [eqx.filter(path, eqx.is_inexact_array) for path in paths]
    rest = eqx.filter(paths[0], eqx.is_inexact_array, inverse=True)
    stacked = eqx.combine(jax.tree.map(lambda *a: jnp.stack(a), *arrays), rest)
    start_key, choice, forward, backward = (
        jax.random.split(part, len(paths)) for part in jax.random.split(key, 4)
    )
    begun = [draw_base(path.base, chains, k) for path, k in zip(paths, start_key, strict=True)]
    x, log_w = anneal(stacked, kernel, jnp.stack([x for x, _ in begun]), schedule, forward)
    lower = _estimates(log_w, begun, 1, confidence, x)
    picked = [
        one.samples[jax.random.categorical(k, jnp.asarray(one.log_weights), shape=(chains,))]
        for one, k in zip(lower, choice, strict=True)
    ]
    x, log_w = anneal(stacked, kernel, jnp.stack(picked), schedule[::-1], backward)
    upper = _estimates(log_w, begun, -1, confidence, x)
    return [Bracket(*both) for both in zip(lower, upper, strict=True)]


def _estimates(
    log_w: Array, begun: list[tuple[Array, Array]], sign: int, confidence: float, x: Array
) -> list[AISResult]:
    """One estimate a path, whose base has the log Z that it began with."""
    parts = zip(log_w, begun, x, strict=True)
    return [estimate_log_z(w, log_z, sign, confidence, own) for w, (_, log_z), own in parts]
