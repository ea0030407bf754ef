"""The driver of every kernel: burn in, thin, and summarise chains while they run."""

import math
import time
from collections.abc import Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Key, PyTree

from undirected.core.agreement import told_of_loss
from undirected.core.diagnostics import ess, rhat
from undirected.core.errors import UndirectedError, check_counts
from undirected.core.mesh import check_mesh, gather, place, place_chains, split_chains, use_mesh
from undirected.core.potentials import Beliefs, Status
from undirected.core.progress import Progress
from undirected.core.protocols import Info, Kernel, Model
from undirected.core.random import make_key
from undirected.sampling.observers import (
    Moments,
    Observer,
    States,
    Stored,
    as_groups,
    check_observers,
)
from undirected.sampling.starts import check_run, first_state

BLOCK = 0.5
"""Seconds of steps after which a program tells how far it is; a block takes up to twice as long."""
BATCHES = 20
"""Consecutive batches of draws whose means carry the error bars: 20 states of memory per chain."""
APART = 0.1
"""Variance between the means of half chains, as a share of that within them, where they agree."""


class ChainResult(eqx.Module):
    """What the chains visited, summarised over all draws, with how far to trust it.

    Attributes:
        mean: of every unit, over all draws of all chains.
        variance: likewise.
        error: the standard error of `mean`, the larger of two: from the means of 20 consecutive
            batches of each chain, which is too small where a chain needs longer than a batch to
            forget where it was, and from the means of whole chains, which has few of them.
        chain_means: the mean of every chain.
        observed: what the observers found, by name.
        info: what the kernel reports of its steps, averaged over draws.
        state: the last state, to go on from.
    """

    mean: Float[Array, " n"]
    variance: Float[Array, " n"]
    error: Float[Array, " n"]
    chain_means: Float[Array, "chains n"]
    observed: dict[str, Any]
    info: Info
    state: Any

    @property
    def x(self) -> Float[Array, "samples chains n"] | None:
        """The draws that `States` stored; None where it did not observe."""
        return self.observed.get("states")

    @property
    def beliefs(self) -> Beliefs | None:
        """The averages of `Moments`, None where it did not observe.

        `converged` says whether half chains agree: the variance between their means is less than a
        tenth of that within them, for every unit that moves.
        """
        return self.observed.get("moments")

    @property
    def rhat(self) -> Float[np.ndarray, " n"]:
        """R-hat of every unit from the stored draws: `core.diagnostics.rhat`."""
        return rhat(self)

    @property
    def ess(self) -> Float[np.ndarray, " n"]:
        """Effective number of draws of every unit, from the stored ones: `core.diagnostics.ess`."""
        return ess(self)

    def to_arviz(self, names: Sequence[str] | None = None) -> Any:
        """The stored draws for arviz: `x` with the dimensions chain, draw and unit.

        Args:
            names: of the units, as coordinates; by default their numbers.

        Returns:
            What `arviz.from_dict` makes; arviz must be installed.
        """
        if self.x is None:
            raise UndirectedError(
                "to_arviz: the chains stored no draws; run them with keep=True, or observe States()"
            )
        own = list(range(self.x.shape[-1])) if names is None else list(names)
        if len(own) != self.x.shape[-1]:
            raise UndirectedError(
                f"to_arviz: {len(own)} names for {self.x.shape[-1]} units; pass one for each"
            )
        try:
            import arviz
        except ImportError as error:
            raise ImportError(
                'to_arviz: arviz is not installed; pip install "undirected[arviz]"'
            ) from error
        draws = np.moveaxis(np.asarray(self.x), 0, 1)
        return arviz.from_dict(posterior={"x": draws}, coords={"unit": own}, dims={"x": ["unit"]})


def run_chains(
    kernel: Kernel,
    model: Model,
    start: Float[Array, "*#chains n"] | Any | None = None,
    key: Key[Array, ""] | None = None,
    *,
    samples: int,
    seed: int | None = None,
    chains: int | None = None,
    burn_in: int = 0,
    thin: int = 1,
    free: Bool[Array, "*#chains n"] | None = None,
    observe: Observer | Iterable[Observer] | None = None,
    keep: bool = True,
    moments: bool = False,
    mesh: Mesh | None = None,
    progress: Progress | None = None,
) -> ChainResult:
    """Run chains side by side: `burn_in` steps, then `samples` draws of `thin` steps each.

    New weights, starts and masks do not recompile.

    Args:
        kernel: how a chain moves.
        model: what it samples.
        start: an array (chains, n), one state (n,) for all `chains`, the `state` of an earlier
            result to go on from it, or None for `chains` random starts, which are annealed to
            allowed states where the model forbids some.
        key: of all draws.
        samples: draws of every chain.
        seed: the same as `key`, as a number; pass one of the two.
        chains: their number, where `start` does not say it.
        burn_in: steps before the first draw.
        thin: steps from one draw to the next.
        free: False for units that stay as they start.
        observe: what to keep, one or several of `States(every=1)`, `Energies()`, `Moments()`,
            `Mean(function)` and `Trace(function)`; `()` keeps only what `ChainResult` always has.
        keep: without `observe`, short for `States()`.
        moments: without `observe`, short for `Moments()`.
        mesh: devices over which the chains are split, such as `un.device_mesh()`; the draws are the
            same on any.
        progress: told the steps done before the first draw, and how many these are, about twice a
            second; the draws are the same with it or without.

    Returns:
        Means, variances and errors of all units, what was observed, and the last state.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> chains = un.run_chains(un.Gibbs(), model, chains=2, samples=4, seed=0)
        >>> chains.mean.shape, chains.x.shape
        ((3,), (4, 2, 3))
    """
    check_run(kernel, model, chains)
    samples, thin = check_counts("run_chains", samples=samples, thin=thin)
    (burn_in,) = check_counts("run_chains", 0, burn_in=burn_in)
    observers = check_observers(_asked(observe, keep, moments), model, samples)
    start_key, init_key, run_key = jax.random.split(make_key("run_chains", key, seed), 3)
    if isinstance(start, ChainResult):
        raise UndirectedError("run_chains: start is a result; pass its `state`")
    state = first_state(kernel, model, start, chains, free, start_key, init_key)
    free = jnp.ones(model.layout.n, bool) if free is None else jnp.asarray(free, bool)
    if progress is not None and mesh is None:
        state = _warm_up(kernel, model, state, free, run_key, burn_in, progress)
        burn_in = 0
    return _run_on(mesh, kernel, model, state, free, run_key, samples, burn_in, thin, observers)


def _warm_up(
    kernel: Kernel, model: Any, state: Any, free: Array, key: Array, count: int, progress: Progress
) -> Any:
    """The state after `count` steps, in blocks that double until one takes `BLOCK` seconds."""
    burn_key, done, size = jax.random.split(key)[0], 0, 1
    while done < count:
        begun, size = time.monotonic(), min(size, count - done)
        state = _steps(kernel, model, state, free, burn_key, np.asarray(done), np.asarray(size))
        jax.block_until_ready(state)
        done += size
        if time.monotonic() - begun < BLOCK:
            size *= 2
        progress(done, count)
    return state


@eqx.filter_jit
def _steps(
    kernel: Kernel, model: Any, state: Any, free: Array, key: Array, start: Any, count: Any
) -> Any:
    """The state after steps number `start` to `start + count - 1` before the first draw."""
    return lax.fori_loop(
        start,
        start + count,
        lambda i, s: split_chains(kernel.step(model, s, free, jax.random.fold_in(key, i))[0]),
        state,
    )


def _run_on(
    mesh: Mesh | None, kernel: Kernel, model: Any, state: Any, free: Array, key: Array, *rest: Any
) -> ChainResult:
    """The chains on the devices of the mesh, if there is one; the result is on one again."""
    mesh = check_mesh("run_chains", mesh, model)
    kernel, model, key = place(mesh, (kernel, model, key))
    state = place_chains(mesh, state)
    free = place_chains(mesh, free) if free.ndim > 1 else place(mesh, free)
    with use_mesh(mesh), told_of_loss(mesh):
        return gather(mesh, _run(kernel, model, state, free, key, *rest))


def _asked(
    observe: Observer | Iterable[Observer] | None, keep: bool, moments: bool
) -> Observer | Iterable[Observer]:
    """The observers, or those that `keep` and `moments` are short for."""
    if observe is None:
        return [*([States()] if keep else []), *([Moments()] if moments else [])]
    if moments or not keep:
        raise UndirectedError(
            "run_chains: got `observe` and `keep` or `moments`; `observe` alone says what is kept, "
            "as in observe=(States(), Moments())"
        )
    return observe


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
    observers: dict[str, Observer],
) -> ChainResult:
    burn_key, key = jax.random.split(key)
    state = _steps(kernel, model, state, free, burn_key, 0, burn_in)
    every = {name: look.every for name, look in observers.items() if isinstance(look, Stored)}
    batches = min(BATCHES, math.isqrt(samples))
    length, longer = divmod(samples, batches)

    def step(state: Any, key: Key[Array, ""]) -> tuple[Any, Info]:
        state, info = kernel.step(model, state, free, key)
        return split_chains(state), info

    def draw_one(state: Any, index: Array) -> tuple[Any, _Draw]:
        state, info = lax.scan(step, state, jax.random.split(jax.random.fold_in(key, index), thin))
        seen = {name: look(model, state.x) for name, look in observers.items()}
        info = jax.tree.map(lambda a: a.astype(state.x.dtype).mean(0), info)
        return state, _Draw(state.x, *_split(every, seen), info)

    def accumulate(carry: tuple[Any, _Record], index: Array) -> tuple[tuple[Any, _Record], None]:
        state, draw = draw_one(carry[0], index)
        # The first `longer` batches hold one draw more than the others.
        batch = jnp.maximum(index // (length + 1), (index - longer) // length)
        return (state, _add(carry[1], draw, index, batch, every)), None

    _, like = eqx.filter_eval_shape(draw_one, state, jnp.asarray(0))
    start = state, _empty(like, samples, batches, every)
    (state, record), _ = lax.scan(accumulate, start, jnp.arange(samples))
    lengths = np.full(batches, length) + (np.arange(batches) < longer)
    return _summarise(every, model, record, lengths, state)


class _Draw(eqx.Module):
    """One draw of all chains: states, what observers see, and what the kernel reports."""

    x: Array
    averaged: dict[str, PyTree]
    stored: dict[str, PyTree]
    info: Info


class _Record(eqx.Module):
    """What goes from draw to draw: the first one, sums of deviations from it, what is stored.

    `totals` lead with an axis over batches. Deviations keep the digits that plain sums would lose.
    """

    first: tuple[Array, dict[str, PyTree]]
    totals: dict[str, PyTree]
    stored: dict[str, PyTree]


def _split(
    every: dict[str, int], seen: dict[str, PyTree]
) -> tuple[dict[str, PyTree], dict[str, PyTree]]:
    """What is averaged and what is stored (`every` so many draws)."""
    averaged = {name: value for name, value in seen.items() if name not in every}
    return averaged, {name: value for name, value in seen.items() if name in every}


def _empty(like: _Draw, samples: int, batches: int, every: dict[str, int]) -> _Record:
    """A record of no draws, for draws of these shapes."""

    def zeros(shape: PyTree, *leading: int) -> PyTree:
        return jax.tree.map(lambda a: jnp.zeros((*leading, *a.shape), a.dtype), shape)

    totals = {"x": like.x, "square": like.x, "averaged": like.averaged, "info": like.info}
    totals = {name: zeros(part, batches) for name, part in totals.items()}
    totals["square"] = totals["square"].mean(1)
    rows = {name: -(-samples // every[name]) for name in like.stored}
    stored = {name: zeros(part, rows[name]) for name, part in like.stored.items()}
    return _Record((zeros(like.x), zeros(like.averaged)), totals, stored)


def _add(
    record: _Record, draw: _Draw, index: Array, batch: Array, every: dict[str, int]
) -> _Record:
    """The record with one draw more, which belongs to this batch."""
    now = draw.x, draw.averaged
    first = jax.tree.map(lambda new, old: jnp.where(index == 0, new, old), now, record.first)
    x, averaged = jax.tree.map(lambda new, old: new - old, now, first)
    seen = {"x": x, "square": jnp.square(x).mean(0), "averaged": averaged, "info": draw.info}
    totals = jax.tree.map(lambda total, value: total.at[batch].add(value), record.totals, seen)
    stored = {}
    for name, value in draw.stored.items():
        # The last draw of each group of `every` stays: those before it are written over.
        row = index // every[name]
        stored[name] = jax.tree.map(
            lambda rows, new, row=row: lax.dynamic_update_index_in_dim(rows, new, row, 0),
            record.stored[name],
            value,
        )
    return _Record(first, totals, stored)


def _summarise(
    every: dict[str, int], model: Any, record: _Record, lengths: np.ndarray, state: Any
) -> ChainResult:
    """Means, variance and errors from the sums over each batch."""
    samples, (pivot, start) = int(lengths.sum()), record.first
    sums, squares = record.totals["x"], record.totals["square"]
    own = sums.sum(0) / samples
    chain_means = pivot + own
    mean = chain_means.mean(0)
    within = jnp.maximum(squares.sum(0) / samples - jnp.square(own).mean(0), 0.0)
    batch_means = pivot[None] + sums / jnp.asarray(lengths, sums.dtype)[:, None, None]
    observed = jax.tree.map(
        lambda a, total: a + total.sum(0) / samples, start, record.totals["averaged"]
    )
    for name, part in record.stored.items():
        rows = samples // every[name]
        observed[name] = jax.tree.map(lambda a, rows=rows: a[:rows], part)
    if "moments" in observed:
        p = model.lower()
        observed["moments"] = Beliefs(
            unary=mean,
            factors=as_groups(p, pivot[0], observed["moments"]),
            log_z=jnp.full((), jnp.nan, mean.dtype),
            status=jnp.where(
                _halves_agree(pivot, sums, squares, lengths),
                int(Status.CONVERGED),
                int(Status.ROUNDS_SPENT),
            ),
            iterations=jnp.asarray(samples),
        )
    return ChainResult(
        mean=mean,
        variance=within + chain_means.var(0),
        error=jnp.fmax(
            _standard_error(batch_means.reshape(-1, mean.size)), _standard_error(chain_means)
        ),
        chain_means=chain_means,
        observed=observed,
        info=jax.tree.map(lambda total: total.sum(0) / samples, record.totals["info"]),
        state=state,
    )


def _standard_error(means: Float[Array, "batches n"]) -> Float[Array, " n"]:
    """Standard error of the mean of independent batches of draws; NaN where there is but one."""
    if len(means) < 2:
        return jnp.full_like(means[0], jnp.nan)
    return jnp.sqrt(means.var(0, ddof=1) / len(means))


def _halves_agree(
    pivot: Array, sums: Array, squares: Array, lengths: np.ndarray
) -> Bool[Array, ""]:
    """Whether the means of half chains differ little beside their spread, wherever units move."""
    half = len(lengths) // 2
    if half == 0:
        return jnp.asarray(False)  # too few draws to tell
    draws = np.array([lengths[:half].sum(), lengths[-half:].sum()])
    parts = [(sums[:half], squares[:half]), (sums[-half:], squares[-half:])]
    means, within = [], []
    for (total, square), length in zip(parts, draws.tolist(), strict=True):
        own = total.sum(0) / length
        spread = jnp.maximum(square.sum(0) / length - jnp.square(own).mean(0), 0.0)
        means.append(pivot + own)
        within.append(spread * length / (length - 1))
    within = 0.5 * (within[0] + within[1])
    # Means of `length` independent draws differ by within / length: that is no disagreement.
    between = jnp.concatenate(means).var(0, ddof=1) - within / draws.mean().item()
    return jnp.all(between <= APART * within)
