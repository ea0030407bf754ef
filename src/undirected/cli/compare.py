"""`undirected compare`: samplers of one model side by side, quality of samples against time."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from undirected.cli import console
from undirected.cli.answer import open_model, read_for
from undirected.core.diagnostics import ess
from undirected.core.errors import UndirectedError
from undirected.core.files import check_place
from undirected.evaluation import log_mmd
from undirected.experiments.record import curve
from undirected.inference import MaxProduct
from undirected.models.model_path import tempered
from undirected.report.page import Section, write_sections
from undirected.report.tables import Table
from undirected.sampling import (
    AnyScale,
    DiscreteLangevin,
    GibbsWithGradients,
    ParallelTempering,
    PathAuxiliary,
    PerturbAndMap,
    TemperedTransitions,
    init_state,
    ladder,
)
from undirected.sampling.perturb import PerturbedState
from undirected.tasks import kernel_for

MOST_ROWS, ADAPT, DRAWS = 2000, 100, 200
Advance = Callable[[Any, Array, Key[Array, ""]], Any]


class Measured(NamedTuple):
    """What a sampler took to start, and after each number of sweeps its seconds and log MMD^2.

    `effective` are the effective draws of the energy per second, of all chains together.
    """

    start: float
    seconds: list[float]
    log_mmd: list[float]
    effective: float


def compare_samplers(
    folder: Path,
    table: Path,
    header: bool | None,
    out: Path,
    chains: int,
    sweeps: str,
    seed: int,
    js: bool,
) -> None:
    """Score samples of a model against rows of a table, for every sampler and effort."""
    efforts = _efforts(sweeps)
    if chains < 2:
        raise UndirectedError(f"compare: {chains} chains; at least 2 are needed")
    check_place(out)
    saved = open_model(folder)
    saved.table.check_joint("compare")
    values = read_for(saved, table, header)
    rows = values[~np.isnan(values).any(1)][:MOST_ROWS]
    if len(rows) < 4:
        raise UndirectedError(f"{table}: {len(rows)} complete rows; at least 4 are needed")
    if not saved.model.layout.is_binary:
        raise UndirectedError(f"compare: {folder} has columns that are not 0/1; it takes no others")
    # Samples and the rows that stand for a perfect sampler are of one number, held against the
    # same other rows: otherwise the sampler with more samples would seem better than perfect.
    rows = np.random.default_rng(seed).permutation(rows)
    half = len(rows) // 2
    perfect, held = rows[:half][:chains], rows[half:]
    found: dict[str, Measured] = {}
    for name, start in _samplers(saved.model).items():
        console.say(f"{name}: {chains} chains, up to {efforts[-1]} sweeps")
        found[name] = _measure(start, saved.model, held, len(perfect), chains, efforts, seed)
    level = log_mmd(perfect, held)
    _write(out, found, efforts, (len(perfect), len(held)), chains, level)
    summary = {
        "page": str(out),
        "sweeps": efforts,
        "half_of_the_rows_against_the_other": level,
        "samplers": {name: one._asdict() for name, one in found.items()},
    }
    lines = [
        f"{name:23} log MMD^2 {one.log_mmd[-1]:.2f} in {one.seconds[-1]:.2f} s, after a start of "
        f"{one.start:.2f} s; {one.effective:,.3g} effective draws a second"
        for name, one in found.items()
    ]
    console.result(summary, js, [*lines, f"Wrote {out}: open it in a browser."])


def _efforts(text: str) -> list[int]:
    try:
        efforts = sorted({int(part) for part in text.split(",")})
    except ValueError:
        efforts = []
    if not efforts or efforts[0] < 1:
        raise UndirectedError(
            f"compare: sweeps are {text!r}; pass whole numbers from 1, as in 1,10,100"
        )
    return efforts


def _samplers(model: Any) -> dict[str, Callable[[Array, Key[Array, ""]], tuple[Any, Advance]]]:
    """By name: from starting states to a state and a function that makes so many sweeps of it."""

    def advance_by(kernel: Any) -> Advance:
        def advance(state: Any, sweeps: Array, key: Key[Array, ""]) -> Any:
            free = jnp.ones(model.layout.n, bool)

            def move(i: Array, state: Any) -> Any:
                return kernel.step(model, state, free, jax.random.fold_in(key, i))[0]

            return jax.lax.fori_loop(0, sweeps, move, state)

        return advance

    def chain(kernel: Any) -> Callable[[Array, Key[Array, ""]], tuple[Any, Advance]]:
        return lambda x, key: (kernel.init(model, x, key), advance_by(kernel))

    def adapted(kernel: Any) -> Callable[[Array, Key[Array, ""]], tuple[Any, Advance]]:
        def start(x: Array, key: Key[Array, ""]) -> tuple[Any, Advance]:
            found, state = kernel.adapted(model, x, key, steps=ADAPT)
            return state, advance_by(found)

        return start

    def perturbed(x: Array, key: Key[Array, ""]) -> tuple[Any, Advance]:
        def advance(state: Any, sweeps: Array, key: Key[Array, ""]) -> Any:
            sampler = PerturbAndMap(MaxProduct(sweeps, None, 0.5, parallel=True))
            return sampler.step(model, state, jnp.ones(model.layout.n, bool), key)[0]

        return PerturbAndMap(MaxProduct(1)).init(model, x, key), advance

    gibbs = kernel_for(model)
    return {
        "Gibbs": chain(gibbs),
        "Gibbs with gradients": chain(GibbsWithGradients(model.layout.n)),
        "discrete Langevin": adapted(DiscreteLangevin()),
        "any-scale": adapted(AnyScale()),
        "path-auxiliary": adapted(PathAuxiliary()),
        "tempered transitions": chain(TemperedTransitions(gibbs, tempered, ladder(0.5, 10))),
        "parallel tempering": chain(ParallelTempering(gibbs, tempered, ladder(0.1, 10))),
        "perturb-and-max-product": perturbed,
    }


def _measure(
    start: Callable[[Array, Key[Array, ""]], tuple[Any, Advance]],
    model: Any,
    rows: Float[np.ndarray, "rows v"],
    judged: int,
    chains: int,
    efforts: list[int],
    seed: int,
) -> Measured:
    """Seconds, start and compilation apart, and log MMD^2 of `judged` chains after each effort.

    Chains go on from one number to the next, and at last for `DRAWS` sweeps more, of which the
    effective draws are told; perturb-and-max-product starts anew for each.
    """
    start_key, init_key, key = jax.random.split(jax.random.key(seed), 3)
    x = init_state(model, (chains,), start_key)
    jax.block_until_ready(start(x, init_key)[0].x)
    begun = time.perf_counter()
    first, advance = start(x, init_key)
    jax.block_until_ready(first.x)
    to_start = time.perf_counter() - begun
    fresh = isinstance(first, PerturbedState)
    move = eqx.filter_jit(advance)
    jax.block_until_ready(move(first, jnp.asarray(1), key).x)
    state, done, spent = first, 0, 0.0
    seconds, scores = [], []
    for effort in efforts:
        if fresh:
            state, done, spent = first, 0, 0.0
        begun = time.perf_counter()
        state = move(state, jnp.asarray(effort - done), jax.random.fold_in(key, effort))
        jax.block_until_ready(state.x)
        spent, done = spent + time.perf_counter() - begun, effort
        seconds.append(spent)
        scores.append(log_mmd(np.asarray(state.x)[:judged, : rows.shape[1]], rows))
    each = jnp.asarray(efforts[-1] if fresh else 1)
    trace = _energies(advance, model)
    jax.block_until_ready(trace(state, each, key))
    begun = time.perf_counter()
    energies = np.asarray(trace(state, each, jax.random.fold_in(key, 0)))
    spent = time.perf_counter() - begun
    effective = float(ess(energies[..., None], draw_axis=0, chain_axis=1)[0])
    return Measured(to_start, seconds, scores, effective / spent)


def _energies(advance: Advance, model: Any) -> Callable[[Any, Array, Key[Array, ""]], Array]:
    """From a state the energies of `DRAWS` draws, so many sweeps apart, of all chains."""

    def draw(state: Any, sweeps: Array, key: Key[Array, ""]) -> tuple[Any, Array]:
        state = advance(state, sweeps, key)
        return state, model.energy(state.x)

    def run(state: Any, sweeps: Array, key: Key[Array, ""]) -> Array:
        keys = jax.random.split(key, DRAWS)
        return jax.lax.scan(lambda state, key: draw(state, sweeps, key), state, keys)[1]

    return eqx.filter_jit(run)


def _write(
    out: Path,
    found: dict[str, Measured],
    efforts: list[int],
    rows: tuple[int, int],
    chains: int,
    level: float,
) -> None:
    series = {name: (np.log10(one.seconds).tolist(), one.log_mmd) for name, one in found.items()}
    cells = [
        [
            name,
            f"{one.start:.2g} s",
            f"{one.effective:,.3g}",
            *(f"{q:.2f} ({s:.2g} s)" for s, q in zip(one.seconds, one.log_mmd, strict=True)),
        ]
        for name, one in found.items()
    ]
    columns = ["sampler", "start", "effective draws a second", *(f"after {n}" for n in efforts)]
    section = Section(
        "Quality against time",
        f"{chains} chains from random states, {rows[0]} of which are held against {rows[1]} rows "
        "of the table by the maximum mean discrepancy; lower is better. Other rows in their place "
        f"have {level:.2f}: what is below that is so by chance. A step of tempered transitions "
        "makes 18 sweeps, one of parallel tempering 10; one of those that move many variables by "
        "one gradient is a proposal, and they find their settings at the start. Effective draws "
        f"are those of the energy, of all chains, over {DRAWS} steps more.",
        curves=[curve("log MMD^2", "log10 seconds", "log MMD^2", series)],
        table=Table(columns, cells),
    )
    write_sections([section], out, "Samplers side by side")
