"""The driver of every kernel: burn in, thin, and summarise chains while they run."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Key

from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.layout import Layout
from undirected.core.potentials import Beliefs, Potentials, Status
from undirected.core.protocols import Info, Kernel, Lowerable, Model
from undirected.core.units import random_units
from undirected.factors import Bilinear, Factor, Symmetric

BATCHES = 20
"""Consecutive batches of draws whose means carry the error bars: 20 states of memory per chain."""
CONVERGED = 1.05
"""Largest split R-hat of chains that agree."""


class ChainResult(eqx.Module):
    """What the chains visited, summarised over all draws, with how far to trust it.

    Diagnostics are per unit and NaN for a unit that never moved: split R-hat over half chains, and
    the effective number of independent draws by batch means (`error` is the standard error of
    `mean`, from the same batches). Chains that disagree raise R-hat and lower `ess`.
    """

    x: Float[Array, "samples chains n"] | None
    mean: Float[Array, " n"]
    variance: Float[Array, " n"]
    error: Float[Array, " n"]
    chain_means: Float[Array, "chains n"]
    r_hat: Float[Array, " n"]
    ess: Float[Array, " n"]
    beliefs: Beliefs | None
    info: Info
    state: Any


def init_state(
    model: Model, shape: tuple[int, ...], key: Key[Array, ""]
) -> Float[Array, "*shape n"]:
    """Random states: uniform where a domain is finite, else normal or exponential of scale one."""
    dtype = jnp.result_type(*jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)))
    return random_units(model.layout, key, shape).astype(dtype)


def run_chains(
    kernel: Kernel,
    model: Model,
    start: Float[Array, "*#chains n"] | Any | None,
    key: Key[Array, ""],
    *,
    samples: int,
    chains: int | None = None,
    burn_in: int = 0,
    thin: int = 1,
    free: Bool[Array, "*#chains n"] | None = None,
    keep: bool = True,
    moments: bool = False,
) -> ChainResult:
    """Run chains side by side: `burn_in` steps, then `samples` draws of `thin` steps each.

    `start` is an array (chains, n), one state (n,) for all `chains`, the `state` of an earlier
    result to go on from it, or None for `chains` random starts. Units where `free` is False stay as
    they start. `keep` stores every draw in `x`; `moments` averages the statistics of the factors
    the model lowers to, as `beliefs`. New weights, starts and masks do not recompile.
    """
    for name, value, least in (("samples", samples, 1), ("burn_in", burn_in, 0), ("thin", thin, 1)):
        if value < least:
            raise UndirectedError(f"run_chains: {name} is {value}; pass {least} or more")
    if moments and not isinstance(model, Lowerable):
        raise UnsupportedFactor(
            f"run_chains: moments need a model that lowers to potentials, got "
            f"{type(model).__name__}; leave moments out"
        )
    start_key, init_key, run_key = jax.random.split(key, 3)
    state = start
    if not isinstance(start, eqx.Module):
        state = kernel.init(model, _starts(model, start, chains, free, start_key), init_key)
    free = jnp.ones(model.layout.n, bool) if free is None else jnp.asarray(free, bool)
    return _run(kernel, model, state, free, run_key, samples, burn_in, thin, keep, moments)


@eqx.filter_jit
def _run(
    kernel: Kernel,
    model: Any,
    state: Any,
    free: Array,
    key: Key[Array, ""],
    samples: int,
    burn_in: int,
    thin: int,
    keep: bool,
    moments: bool,
) -> ChainResult:
    burn_key, key = jax.random.split(key)
    state = lax.fori_loop(
        0,
        burn_in,
        lambda i, s: kernel.step(model, s, free, jax.random.fold_in(burn_key, i))[0],
        state,
    )
    p = model.lower() if moments else None
    batches = min(BATCHES, math.isqrt(samples))
    length, longer = divmod(samples, batches)

    def step(state: Any, key: Key[Array, ""]) -> tuple[Any, Info]:
        return kernel.step(model, state, free, key)

    def draw_one(state: Any, pivot: Array, index: Array) -> tuple[Any, Array, dict[str, Any]]:
        state, info = lax.scan(step, state, jax.random.split(jax.random.fold_in(key, index), thin))
        pivot = jnp.where(index == 0, state.x, pivot)
        return state, pivot, _observe(p, state.x, pivot, info)

    def accumulate(carry: tuple[Any, Array, Any], index: Array) -> tuple[Any, Array | None]:
        state, pivot, seen = draw_one(*carry[:2], index)
        # The first `longer` batches hold one draw more than the others.
        batch = jnp.maximum(index // (length + 1), (index - longer) // length)
        totals = jax.tree.map(lambda total, value: total.at[batch].add(value), carry[2], seen)
        return (state, pivot, totals), state.x if keep else None

    *_, like = jax.eval_shape(draw_one, state, state.x, jnp.asarray(0))
    totals = jax.tree.map(lambda a: jnp.zeros((batches, *a.shape), a.dtype), like)
    (state, pivot, totals), x = lax.scan(accumulate, (state, state.x, totals), jnp.arange(samples))
    lengths = np.full(batches, length) + (np.arange(batches) < longer)
    return _summarise(p, pivot, totals, lengths, x, state)


def _observe(p: Potentials | None, x: Array, pivot: Array, info: Info) -> dict[str, Any]:
    """What one draw adds to its batch; deviations from the first draw keep digits of squares."""
    deviation = x - pivot
    factors = () if p is None else p.factors
    return {
        "deviation": deviation,
        "square": jnp.square(deviation).mean(0),
        "factors": [_mean_statistic(f, p.layout, x) for f in factors],  # type: ignore[union-attr]
        "info": jax.tree.map(lambda a: a.astype(x.dtype).mean(0), info),
    }


def _summarise(
    p: Potentials | None,
    pivot: Array,
    totals: dict[str, Any],
    lengths: np.ndarray,
    x: Array | None,
    state: Any,
) -> ChainResult:
    """Means, variance and diagnostics from the sums over each batch."""
    samples = int(lengths.sum())
    sums, squares = totals["deviation"], totals["square"]
    own = sums.sum(0) / samples
    chain_means = pivot + own
    mean = chain_means.mean(0)
    within = jnp.maximum(squares.sum(0) / samples - jnp.square(own).mean(0), 0.0)
    variance = within + chain_means.var(0)
    batch_means = pivot[None] + sums / jnp.asarray(lengths, sums.dtype)[:, None, None]
    error = _standard_error(batch_means.reshape(-1, mean.size))
    r_hat = _split_r_hat(pivot, sums, squares, lengths)
    beliefs = None
    if p is not None:
        factors = tuple(
            eqx.tree_at(lambda f: f.weight, factor, total.sum(0) / samples)
            for factor, total in zip(p.factors, totals["factors"], strict=True)
        )
        beliefs = Beliefs(
            unary=mean,
            factors=factors,
            log_z=jnp.full((), jnp.nan, mean.dtype),
            status=jnp.where(
                jnp.all(jnp.isnan(r_hat) | (r_hat < CONVERGED)),
                int(Status.CONVERGED),
                int(Status.ROUNDS_SPENT),
            ),
            iterations=jnp.asarray(samples),
        )
    return ChainResult(
        x=x,
        mean=mean,
        variance=variance,
        error=error,
        chain_means=chain_means,
        r_hat=r_hat,
        ess=jnp.where(variance > 0, variance / jnp.square(error), jnp.nan),
        beliefs=beliefs,
        info=jax.tree.map(lambda total: total.sum(0) / samples, totals["info"]),
        state=state,
    )


def _standard_error(means: Float[Array, "batches n"]) -> Float[Array, " n"]:
    """Standard error of the mean of independent batches of draws; NaN where there is but one."""
    if len(means) < 2:
        return jnp.full_like(means[0], jnp.nan)
    return jnp.sqrt(means.var(0, ddof=1) / len(means))


def _split_r_hat(pivot: Array, sums: Array, squares: Array, lengths: np.ndarray) -> Array:
    """sqrt((between + within (L - 1) / L) / within) over half chains of length L."""
    half = len(lengths) // 2
    if half == 0:
        return jnp.full_like(pivot[0], jnp.nan)
    draws = np.array([lengths[:half].sum(), lengths[-half:].sum()])
    parts = [(sums[:half], squares[:half]), (sums[-half:], squares[-half:])]
    means, within = [], []
    for (total, square), length in zip(parts, draws.tolist(), strict=True):
        own = total.sum(0) / length
        spread = jnp.maximum(square.sum(0) / length - jnp.square(own).mean(0), 0.0)
        means.append(pivot + own)
        within.append(spread * length / (length - 1))
    within = 0.5 * (within[0] + within[1])
    between = jnp.concatenate(means).var(0, ddof=1)
    return jnp.sqrt((between + within * (1 - 1 / draws.mean().item())) / within)


def _mean_statistic(factor: Factor, layout: Layout, x: Float[Array, "chains n"]) -> Array:
    """The statistic of a factor group averaged over states; dense groups by a matrix product."""
    if isinstance(factor, Bilinear):
        rows, cols = (x[:, layout.blocks[b].slice] for b in (factor.rows, factor.cols))
        return rows.T @ cols / len(x)
    if isinstance(factor, Symmetric):
        part = x[:, layout.blocks[factor.block].slice]
        return (part.T @ part / len(x)) * (1 - jnp.eye(part.shape[1], dtype=x.dtype))
    return jax.vmap(lambda state: factor.statistic(layout, state).weight)(x).mean(0)


def _starts(
    model: Model,
    start: Array | None,
    chains: int | None,
    free: Array | None,
    key: Key[Array, ""],
) -> Float[Array, "chains n"]:
    """The first states of the chains."""
    if start is None:
        if chains is None or free is not None:
            raise UndirectedError(
                "run_chains: a random start needs `chains` and no `free` mask (clamped units would "
                "hold random values); pass `start`, or `chains` alone"
            )
        return init_state(model, (chains,), key)
    x = jnp.asarray(start)
    if x.ndim == 1:
        x = jnp.broadcast_to(x, (chains or 1, x.shape[0]))
    if x.ndim != 2 or x.shape[0] != (chains or x.shape[0]):
        raise UndirectedError(
            f"run_chains: start has shape {x.shape} and chains is {chains}; pass an array "
            f"(chains, {model.layout.n})"
        )
    return x
