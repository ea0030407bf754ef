"""`undirected compare`: samplers of one model side by side, quality of samples against time."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from undirected.cli import console
from undirected.cli.answer import open_model, read_for
from undirected.core.errors import UndirectedError
from undirected.core.files import check_place
from undirected.evaluation import log_mmd
from undirected.experiments.record import curve
from undirected.inference import MaxProduct
from undirected.models.model_path import tempered
from undirected.report.page import Section, write_sections
from undirected.report.tables import Table
from undirected.sampling import (
    GibbsWithGradients,
    ParallelTempering,
    PerturbAndMap,
    TemperedTransitions,
    init_state,
    ladder,
)
from undirected.sampling.perturb import PerturbedState
from undirected.tasks import kernel_for

MOST_ROWS = 2000
Advance = Callable[[Any, Array, Key[Array, ""]], Any]


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
    values = read_for(saved, table, header)
    rows = values[~np.isnan(values).any(1)][:MOST_ROWS]
    if len(rows) < 4:
        raise UndirectedError(f"{table}: {len(rows)} complete rows; at least 4 are needed")
    found: dict[str, tuple[list[float], list[float]]] = {}
    for name, start in _samplers(saved.model).items():
        console.say(f"{name}: {chains} chains, up to {efforts[-1]} sweeps")
        found[name] = _measure(start, saved.model, rows, chains, efforts, seed)
    half = len(rows) // 2
    level = log_mmd(rows[:half], rows[half:])
    _write(out, found, efforts, len(rows), chains, level)
    summary = {
        "page": str(out),
        "sweeps": efforts,
        "half_of_the_rows_against_the_other": level,
        "samplers": {n: {"seconds": s, "log_mmd": q} for n, (s, q) in found.items()},
    }
    lines = [f"{name:22} log MMD^2 {q[-1]:.2f} in {s[-1]:.2f} s" for name, (s, q) in found.items()]
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

    def chain(kernel: Any) -> Callable[[Array, Key[Array, ""]], tuple[Any, Advance]]:
        def advance(state: Any, sweeps: Array, key: Key[Array, ""]) -> Any:
            free = jnp.ones(model.layout.n, bool)

            def move(i: Array, state: Any) -> Any:
                return kernel.step(model, state, free, jax.random.fold_in(key, i))[0]

            return jax.lax.fori_loop(0, sweeps, move, state)

        return lambda x, key: (kernel.init(model, x, key), advance)

    def perturbed(x: Array, key: Key[Array, ""]) -> tuple[Any, Advance]:
        def advance(state: Any, sweeps: Array, key: Key[Array, ""]) -> Any:
            sampler = PerturbAndMap(MaxProduct(sweeps, None, 0.5, parallel=True))
            return sampler.step(model, state, jnp.ones(model.layout.n, bool), key)[0]

        return PerturbAndMap(MaxProduct(1)).init(model, x, key), advance

    gibbs = kernel_for(model)
    return {
        "Gibbs": chain(gibbs),
        "Gibbs with gradients": chain(GibbsWithGradients(model.layout.n)),
        "tempered transitions": chain(TemperedTransitions(gibbs, tempered, ladder(0.5, 10))),
        "parallel tempering": chain(ParallelTempering(gibbs, tempered, ladder(0.1, 10))),
        "perturb-and-max-product": perturbed,
    }


def _measure(
    start: Callable[[Array, Key[Array, ""]], tuple[Any, Advance]],
    model: Any,
    rows: Float[np.ndarray, "rows v"],
    chains: int,
    efforts: list[int],
    seed: int,
) -> tuple[list[float], list[float]]:
    """Seconds, compilation apart, and log MMD^2 after each number of sweeps.

    Chains go on from one number to the next; perturb-and-max-product starts anew for each.
    """
    start_key, init_key, key = jax.random.split(jax.random.key(seed), 3)
    first, advance = start(init_state(model, (chains,), start_key), init_key)
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
        scores.append(log_mmd(np.asarray(state.x)[:, : rows.shape[1]], rows))
    return seconds, scores


def _write(
    out: Path,
    found: dict[str, tuple[list[float], list[float]]],
    efforts: list[int],
    rows: int,
    chains: int,
    level: float,
) -> None:
    series = {name: (np.log10(s).tolist(), q) for name, (s, q) in found.items()}
    cells = [
        [name, *(f"{q:.2f} ({s:.2g} s)" for s, q in zip(*both, strict=True))]
        for name, both in found.items()
    ]
    section = Section(
        "Quality against time",
        f"{chains} chains from random states, against {rows} rows of the table by the maximum mean "
        f"discrepancy; lower is better. One half of the rows against the other has {level:.2f}: "
        "about what the best sampler of the best model can reach. A step of tempered transitions "
        "makes 18 sweeps, one of parallel tempering 10.",
        curves=[curve("log MMD^2", "log10 seconds", "log MMD^2", series)],
        table=Table(["sampler", *(f"after {n}" for n in efforts)], cells),
    )
    write_sections([section], out, "Samplers side by side")
