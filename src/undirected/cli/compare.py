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
    BlockGibbs,
    DiscreteLangevin,
    Gibbs,
    GibbsWithGradients,
    HammingBall,
    Houdayer,
    MultipleTry,
    ParallelTempering,
    PathAuxiliary,
    PerturbAndMap,
    SwendsenWang,
    TemperedTransitions,
    Wolff,
    ladder,
)
from undirected.sampling.adjusted import Adjusted
from undirected.sampling.base import Evaluations
from undirected.sampling.clusters import wiring
from undirected.sampling.perturb import PerturbedState
from undirected.sampling.starts import init_allowed
from undirected.tasks import kernel_for
from undirected.tasks.choose import takes

MOST_ROWS, ADAPT, DRAWS = 2000, 100, 200
MOST_BONDS = 2**24
"""Couplings times chains up to which clusters are looked for: they take some numbers for each."""
Advance = Callable[[Any, Array, Key[Array, ""]], Any]
Start = Callable[[Array, Key[Array, ""]], tuple[Any, Advance]]


class Measured(NamedTuple):
    """What a sampler took to start, and after each number of sweeps its seconds and log MMD^2.

    `effective` are the effective draws of the energy per second, of all chains together;
    `energies` and `gradients` what a draw of one chain computes, and `per_energy` and
    `per_gradient` the effective draws for each of them, None where there are none.
    """

    start: float
    seconds: list[float]
    log_mmd: list[float]
    effective: float
    energies: float
    gradients: float
    per_energy: float | None
    per_gradient: float | None


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
        raise UndirectedError(f"compare: {folder} has columns that are not 0/1; pass another model")
    # Samples and the rows that stand for a perfect sampler are of one number, held against the
    # same other rows: otherwise the sampler with more samples would seem better than perfect.
    rows = np.random.default_rng(seed).permutation(rows)
    half = len(rows) // 2
    perfect, held = rows[:half][:chains], rows[half:]
    found: dict[str, Measured] = {}
    for name, (start, work) in _samplers(saved.model, chains, efforts[-1]).items():
        console.say(f"{name}: {chains} chains, up to {efforts[-1]} sweeps")
        found[name] = _measure(start, work, saved.model, held, len(perfect), chains, efforts, seed)
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
        f"{one.start:.2f} s; {one.effective:,.3g} effective draws a second, "
        f"{_number(one.per_energy)} an energy, {_number(one.per_gradient)} a gradient"
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


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.3g}"


def _kernels(model: Any, chains: int) -> dict[str, Any]:
    """All kernels that may fit the model, by name."""
    found = {
        "Gibbs": Gibbs(),
        "block Gibbs": BlockGibbs(),
        "Gibbs with gradients": GibbsWithGradients(model.layout.n),
        "discrete Langevin": DiscreteLangevin(),
        "any-scale": AnyScale(),
        "path-auxiliary": PathAuxiliary(),
        "multiple-try": MultipleTry(),
        "Hamming ball": HammingBall(),
    }
    gibbs, rungs = kernel_for(model), ladder(0.1, 10)
    found["tempered transitions"] = TemperedTransitions(gibbs, tempered, ladder(0.5, 10))
    found["parallel tempering"] = ParallelTempering(gibbs, tempered, rungs)
    if takes(SwendsenWang(), model):
        bonds = chains * len(wiring(model.lower())[0])
        if bonds > MOST_BONDS:
            console.say(f"no clusters: {bonds:,} couplings of all chains; {MOST_BONDS:,} at most")
            return found
        found |= {"Swendsen-Wang": SwendsenWang(), "Wolff": Wolff()}
        found["tempering and Houdayer"] = ParallelTempering(Houdayer(gibbs), tempered, rungs)
    return found


def _samplers(model: Any, chains: int, effort: int) -> dict[str, tuple[Start, Evaluations]]:
    """Those that fit, by name: how to start, and what a step computes.

    A start goes from states to a state of the chains and a function that makes so many sweeps.
    """

    def advance_by(kernel: Any) -> Advance:
        def advance(state: Any, sweeps: Array, key: Key[Array, ""]) -> Any:
            free = jnp.ones(model.layout.n, bool)

            def move(i: Array, state: Any) -> Any:
                return kernel.step(model, state, free, jax.random.fold_in(key, i))[0]

            return jax.lax.fori_loop(0, sweeps, move, state)

        return advance

    def chain(kernel: Any) -> Start:
        def start(x: Array, key: Key[Array, ""]) -> tuple[Any, Advance]:
            if not isinstance(kernel, Adjusted):
                return kernel.init(model, x, key), advance_by(kernel)
            found, state = kernel.adapted(model, x, key, steps=ADAPT)
            return state, advance_by(found)

        return start

    def perturbed(x: Array, key: Key[Array, ""]) -> tuple[Any, Advance]:
        def advance(state: Any, sweeps: Array, key: Key[Array, ""]) -> Any:
            sampler = PerturbAndMap(MaxProduct(sweeps, None, 0.5, parallel=True))
            return sampler.step(model, state, jnp.ones(model.layout.n, bool), key)[0]

        return PerturbAndMap(MaxProduct(1)).init(model, x, key), advance

    found = {
        name: (chain(kernel), kernel.evaluations(model))
        for name, kernel in _kernels(model, chains).items()
        if takes(kernel, model)
    }
    whole = PerturbAndMap(MaxProduct(effort))
    if takes(whole, model):
        found["perturb-and-max-product"] = perturbed, whole.evaluations(model)
    return found


def _measure(
    start: Start,
    work: Evaluations,
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
    x = init_allowed(kernel_for(model), model, chains, start_key)
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
    each = (effective / (one * chains * DRAWS) if one else None for one in work)
    return Measured(to_start, seconds, scores, effective / spent, *work, *each)


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
            _number(one.per_energy),
            _number(one.per_gradient),
            *(f"{q:.2f} ({s:.2g} s)" for s, q in zip(one.seconds, one.log_mmd, strict=True)),
        ]
        for name, one in found.items()
    ]
    effective = ["effective draws a second", "an energy", "a gradient"]
    columns = ["sampler", "start", *effective, *(f"after {n}" for n in efforts)]
    section = Section(
        "Quality against time",
        f"{chains} chains from random states, {rows[0]} of which are held against {rows[1]} rows "
        "of the table by the maximum mean discrepancy; lower is better. Other rows in their place "
        f"have {level:.2f}: what is below that is so by chance. A step of tempered transitions "
        "makes 18 sweeps, one of parallel tempering 10; one of those that move many variables by "
        "one gradient is a proposal, and they find their settings at the start. Effective draws "
        f"are those of the energy, of all chains, over {DRAWS} steps more: a second, and for every "
        "energy and every gradient (the fields of all units) that the steps compute; a round of "
        "messages counts as a gradient.",
        curves=[curve("log MMD^2", "log10 seconds", "log MMD^2", series)],
        table=Table(columns, cells),
    )
    write_sections([section], out, "Samplers side by side")
