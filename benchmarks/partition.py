"""`python -m benchmarks partition`: log Z where it is known, in standard errors from the truth.

Ising tori at three temperatures by population annealing and off a ladder of temperatures, against
Kaufman's exact value. And an RBM that has learned rows near a few patterns, at every checkpoint of
its training: off a ladder of its checkpoints (parallel trajectory tempering), off one of as many
temperatures, and by annealing with as many sweeps, against the sum over its hidden units.

`--only` runs what it names ("32x32, T = 2.0 ladder"); the record is renewed after every run.
Seconds are CPU seconds of the process, compilation among them.
"""

import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import undirected as un
from benchmarks.saving import make_record, others, save
from undirected.experiments.record import Row
from undirected.sampling import ladder

TITLE = "log Z where it is known"
AWAY, CPU = "standard errors from the exact value", "CPU seconds"
RBM_CASE = "log Z of a trained RBM"
Answer = tuple[float, float, float]
"""log Z, its standard error, and the exact value."""


def main(quick: bool, only: str, out: Path) -> None:
    profile = "quick" if quick else "full"
    file = out / f"partition-{profile}.json"
    for case, method, work in runs(quick):
        if only not in f"{case} {method}":
            continue
        begun = time.process_time()
        log_z, error, exact = work()
        seconds = time.process_time() - begun
        print(f"{case}, {method}: {log_z:.4f} +- {error:.4f}, exact {exact:.4f}", flush=True)
        found = [
            Row(case, method, "log Z", log_z, stderr=error, paper=exact, better="higher"),
            Row(case, method, AWAY, abs(log_z - exact) / error, better="lower"),
            Row(case, method, CPU, seconds, better="lower"),
        ]
        rows = others(file, [case], [method]).rows + found
        spent = sum(row.ours or 0.0 for row in rows if row.metric == CPU)
        save(make_record("partition", profile, {}, spent, rows, TITLE, [summary(rows)]), file)


def summary(rows: list[Row]) -> str:
    away = [row.ours for row in rows if row.metric == AWAY and row.ours is not None]
    within = sum(one <= 3 for one in away)
    return f"{within} of {len(away)} within 3 standard errors of the exact value."


def runs(quick: bool) -> Iterator[tuple[str, str, Callable[[], Answer]]]:
    """Case, method, and what to do."""
    for side in (8,) if quick else (16, 32):
        for temperature in (2.0, 2.269, 3.0):
            case = f"log Z of {side}x{side}, T = {temperature}"
            yield case, "population annealing", partial(by_population, side, temperature, quick)
            yield case, "ladder", partial(by_ladder, side, temperature, quick)
    yield RBM_CASE, "ladder of its training", partial(by_training, quick)
    yield RBM_CASE, "ladder of temperatures", partial(by_temperatures, quick)
    yield RBM_CASE, "AIS", partial(by_annealing, quick)


def torus(side: int, temperature: float) -> tuple[Any, float]:
    """The Ising model on a torus, and its log Z."""
    grid = un.graph.torus(side, side)
    couplings = jnp.full(grid.n_edges, 1 / temperature)
    model = un.Ising.from_spins(couplings, jnp.zeros(grid.n), grid)
    return model, un.torus_log_z(side, side, 1 / temperature)


def by_population(side: int, temperature: float, quick: bool) -> Answer:
    model, exact = torus(side, temperature)
    path = un.ModelPath(model.independent(), model)
    betas = 40 if quick else 10 * side
    found = un.population_annealing(
        path, un.Gibbs(sweeps=2), seed=0, populations=16, members=64, betas=betas
    )
    return found.log_z, found.stderr, exact


def by_ladder(side: int, temperature: float, quick: bool) -> Answer:
    """16 chains on an adapted ladder with as many rungs as the side has spins."""
    model, exact = torus(side, temperature)
    pt = un.ParallelTempering(un.Gibbs(), un.tempered, ladder(0.0, 6 if quick else side))
    return *off_ladder(pt, model, side**2, quick), exact


def off_ladder(pt: Any, model: Any, units: int, quick: bool) -> tuple[float, float]:
    x = jax.random.bernoulli(jax.random.key(0), 0.5, (16, units)).astype(jnp.float32)
    rounds, steps = (2, 20) if quick else (5, 50)
    pt, state = pt.adapted(model, x, jax.random.key(1), rounds=rounds, steps=steps)
    return pt.log_partition(model, state, jax.random.key(2), samples=100 if quick else 1000)


@cache
def trained(quick: bool) -> tuple[un.TrainingPath, float]:
    """Checkpoints of an RBM that learns rows near eight patterns, and log Z at the end."""
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 2, (8, 64))
    rows = np.abs(patterns[rng.integers(0, 8, 2000)] - (rng.random((2000, 64)) < 0.05))
    models: list[Any] = []

    def keep(model: Any, key: Any) -> float:
        models.append(model)
        return 0.0

    steps = 400 if quick else 4000
    start = un.RBM.create(64, 12, seed=0)
    un.fit(start, rows, steps=steps, seed=0, validate=keep, validate_every=steps // 10)
    last, hidden = models[-1], (np.arange(2**12)[:, None] >> np.arange(12)) & 1
    fields = hidden @ np.asarray(last.weights, float).T + np.asarray(last.visible_bias, float)
    logs = np.logaddexp(0, fields).sum(1) + hidden @ np.asarray(last.hidden_bias, float)
    base = start.independent(jnp.asarray(rows.mean(0)))
    return un.TrainingPath.through(models, base), float(np.logaddexp.reduce(logs))


def by_training(quick: bool) -> Answer:
    path, exact = trained(quick)
    pt = un.ParallelTempering(un.BlockGibbs(), path.along, path.betas)
    return *off_ladder(pt, path, 76, quick), exact


def by_temperatures(quick: bool) -> Answer:
    path, exact = trained(quick)
    pt = un.ParallelTempering(un.BlockGibbs(), un.tempered, ladder(0.0, len(path.betas)))
    return *off_ladder(pt, path.target, 76, quick), exact


def by_annealing(quick: bool) -> Answer:
    """As many sweeps as the ladders make, of 16 chains."""
    path, exact = trained(quick)
    betas = (160 if quick else 2550) * len(path.betas)
    line = un.ModelPath(path.base, path.target)
    found = un.ais(line, un.BlockGibbs(), seed=0, chains=16, betas=betas)
    return found.log_z, found.stderr, exact
