"""`python -m benchmarks.growth`: time and memory of a step against every size of a problem.

Rows come from a source that computes them (10^8 of them are on no disk), graphs from lattices.
Devices are virtual: one CPU shows how work is divided, not how fast it would be. The record and
`docs/scaling.md` also say what one accelerator holds, and what many would move: on paper.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import on_paper
from benchmarks.saving import make_record, save
from undirected.experiments.record import Row

COLUMNS, HIDDEN, BATCH, CHAINS = 64, 32, 1000, 100
FULL = {
    "rows": (10**4, 10**5, 10**6, 10**7, 10**8),
    "columns": (250, 500, 1000, 2000, 4000),
    "hidden units": (250, 500, 1000, 2000, 4000),
    "chains": (250, 500, 1000, 2000, 4000),
    "edges of an Ising lattice": (10**5, 10**6, 10**7),
    "edges of a factor graph": (10**5, 10**6, 10**7),
    "virtual devices": (1, 2, 4, 8),
    "parts of the weights": (1, 2, 4, 8),
}
QUICK = {name: sizes[:2] for name, sizes in FULL.items()}
BUFFER = 50_000
"""Rows that a stream mixes: the steps that are timed use up four buffers."""
MS, EPOCH, BYTES, WORK = "CPU ms", "CPU seconds an epoch", "bytes each", "MFLOP of a device"
HELD = "MB of weights on a device"
SWEEPS = 4
"""Sweeps of a lattice in one program."""
MOST = 1.05
"""The largest power of rows and edges that time may grow with."""


class Bits:
    """Random rows that are computed when they are asked for."""

    def __init__(self, rows: int):
        self.shape, self.dtype = (rows, COLUMNS), np.dtype(np.uint8)

    def __getitem__(self, where: slice) -> np.ndarray:
        number = np.arange(*where.indices(self.shape[0]), dtype=np.uint64) + np.uint64(1)
        with np.errstate(over="ignore"):
            word = number * np.uint64(0x9E3779B97F4A7C15)
            word = (word ^ (word >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
        return np.unpackbits(word.view(np.uint8).reshape(len(number), 8), axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.growth", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the two smallest sizes of each")
    parser.add_argument("--only", default="", help="only sizes whose name contains this")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--work-of", type=int, nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work_of:
        return print(json.dumps(work_per_device(*asked.work_of)))
    began = time.perf_counter()
    rows: list[Row] = []
    for name, sizes in (QUICK if asked.quick else FULL).items():
        if asked.only in name:
            for size in sizes:
                for metric, value in MEASURES[name](size).items():
                    rows.append(Row(name, f"{size:,}", metric, value, better="lower"))
                    print(name, f"{size:,}", metric, f"{value:.4g}", flush=True)
    profile = "quick" if asked.quick else "full"
    config = {"columns": COLUMNS, "hidden units": HIDDEN, "batch": BATCH, "chains": CHAINS}
    title, took = "Scaling", time.perf_counter() - began
    record = make_record("growth", profile, config, took, rows, title, notes_of(rows))
    save(record, asked.out / f"growth-{profile}.json")


def fit_seconds(model: Any, batches: Any, steps: int, chains: int = CHAINS) -> float:
    """CPU-seconds a step of persistent chains: the less of two runs that compile nothing."""
    import jax
    import optax

    import undirected as un
    from undirected.learning import fit

    objective, key = un.Persistent(un.BlockGibbs(), chains=chains), jax.random.key(0)

    def run() -> float:
        began = time.process_time()
        fit(model, objective, optax.sgd(0.01), batches, key, steps=steps)
        return (time.process_time() - began) / steps

    run()
    return min(run() for _ in range(2))


def as_float(batch: Any, key: Any) -> Any:
    return batch.astype("float32")


def of_rows(rows: int) -> dict[str, float]:
    """A stream: a step, the epoch that follows from it, and what the peak of memory rises by."""
    import undirected as un

    def run(count: int) -> float:
        batches = un.StreamedBatches(Bits(count), BATCH, transform=as_float, buffer=BUFFER)
        return fit_seconds(un.RBM.create(COLUMNS, HIDDEN, seed=0), batches, 200)

    run(FULL["rows"][0])  # so that what every run needs is there
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = run(rows)
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    return {MS: 1e3 * seconds, EPOCH: seconds * rows / BATCH, BYTES: grown / rows}


def of_model(visible: int, hidden: int, chains: int = CHAINS) -> dict[str, float]:
    """A step of persistent chains on a table in memory."""
    import undirected as un

    table = (np.random.default_rng(0).random((2000, visible)) < 0.5).astype(np.uint8)
    model = un.RBM.create(visible, hidden, seed=0)
    batches = un.Batches(table, 100, transform=as_float)
    return {MS: 1e3 * fit_seconds(model, batches, 10, chains)}


def timed(function: Callable, *inputs: Any) -> dict[str, float]:
    """CPU milliseconds, and bytes of arguments, results and what lies between."""
    import jax

    program = jax.jit(function).lower(*inputs).compile()
    found = program.memory_analysis()
    size = found.temp_size_in_bytes + found.output_size_in_bytes + found.argument_size_in_bytes
    jax.block_until_ready(program(*inputs))
    times = []
    for _ in range(2):
        began = time.process_time()
        jax.block_until_ready(program(*inputs))
        times.append(time.process_time() - began)
    return {MS: 1e3 * min(times), BYTES: float(size)}


def of_ising(edges: int) -> dict[str, float]:
    """A sweep of one chain of spins with couplings at random on a square lattice.

    Of several in one program, as chains make them: each program gets its memory from the system
    anew, and for large arrays that takes a third of the time of a single sweep.
    """
    import jax
    import jax.numpy as jnp

    import undirected as un

    side = 2 * round((edges / 2) ** 0.5 / 2)
    graph, rng = un.graph.torus(side, side), np.random.default_rng(0)
    model = un.Ising.from_spins(rng.normal(size=graph.n_edges), np.zeros(side * side), graph)
    kernel, free = un.Gibbs(sweeps=SWEEPS), jnp.ones(side * side, bool)
    state = kernel.init(model, jnp.zeros((1, side * side)), jax.random.key(0))
    found = timed(
        lambda model, state, key: kernel.step(model, state, free, key)[0].x,
        model,
        state,
        jax.random.key(1),
    )
    return {MS: found[MS] / SWEEPS, BYTES: found[BYTES] / graph.n_edges}


def of_factor_graph(edges: int) -> dict[str, float]:
    """A round of belief propagation, of four, with a table of three by three at every edge."""
    import undirected as un

    side = round((edges / 2) ** 0.5)
    graph, rng = un.graph.torus(side, side), np.random.default_rng(0)
    layout = un.discrete(x=(side * side, 3))
    weight = rng.normal(size=(graph.n_edges, 3, 3)).astype(np.float32)
    group = un.tables(layout, np.asarray(graph.edges), weight)
    p = un.FactorGraph.create(layout, [group]).lower()
    found = timed(lambda p: un.SumProduct(4, None)(p).unary, p)
    return {MS: found[MS] / 4, BYTES: found[BYTES] / graph.n_edges}


def of_devices(count: int, units: int = 1) -> dict[str, float]:
    """In a process of its own, which sees so many virtual devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
    command = [sys.executable, "-m", "benchmarks.growth", "--work-of"]
    environment = {**os.environ, "XLA_FLAGS": flags}
    words = [*command, str(count), str(units)]
    told = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    work, held = json.loads(told.stdout)
    return {WORK: work, HELD: held}


def work_per_device(count: int, units: int) -> tuple[float, float]:
    """Of one device in a step of persistent chains: millions of operations, MB of weights."""
    import jax
    import optax

    import undirected as un
    from undirected.core.mesh import use_mesh
    from undirected.learning.trainer import Trainer

    model, key = un.RBM.create(784, 512, seed=0), jax.random.key(0)
    mesh = un.device_mesh(count, units=units)
    batches = un.Batches(np.zeros((4096, 784), np.float32), 512)
    objective, optimiser = un.Persistent(un.BlockGibbs(), chains=512), optax.sgd(0.1)
    mask = jax.tree.map(lambda _: True, model)
    trainer = Trainer(objective, optimiser, batches, mask, key, mesh)
    state = trainer.start(model, optimiser.init(model), key)
    bounds = np.int32(0), np.int32(1)
    with use_mesh(mesh):
        step = trainer.steps.go.lower(
            False, None, state, trainer.data, batches.indices(0, 1), bounds, trainer.key
        )
        work = float(step.compile().compiled.cost_analysis()["flops"])
    weights = state.model.weights
    return work / 1e6, weights.addressable_shards[0].data.nbytes / 1e6


MEASURES: dict[str, Callable[[int], dict[str, float]]] = {
    "rows": of_rows,
    "columns": lambda count: of_model(count, 500),
    "hidden units": lambda count: of_model(500, count),
    "chains": lambda count: of_model(500, 500, count),
    "edges of an Ising lattice": of_ising,
    "edges of a factor graph": of_factor_graph,
    "virtual devices": lambda count: {WORK: of_devices(count)[WORK]},
    "parts of the weights": lambda parts: of_devices(8, parts),
}


def slope(rows: Sequence[Row], name: str, metric: str) -> float:
    """The power of the size with which a metric grows."""
    found = [(int(r.method.replace(",", "")), r.ours) for r in rows]
    own = [
        pair for pair, r in zip(found, rows, strict=True) if (r.case, r.metric) == (name, metric)
    ]
    return float(np.polyfit(*np.log(np.array(own, float).T), 1)[0])


def notes_of(rows: Sequence[Row]) -> list[str]:
    """The slopes that were found."""
    notes = []
    for name in dict.fromkeys(row.case for row in rows):
        metric = {
            "rows": EPOCH,
            "virtual devices": WORK,
            "parts of the weights": HELD,
        }.get(name, MS)
        power = slope(rows, name, metric)
        goal = ""
        if name == "rows" or name.startswith("edges"):
            goal = f" (at most {MOST} wanted: {'reached' if power <= MOST else 'not reached'})"
        notes.append(f"{metric} against {name}: power {power:.2f}{goal}.")
    return notes


def markdown(record: Mapping[str, Any], streaming: Mapping[str, Any]) -> str:
    """The page of the documentation, written from the two records."""
    from undirected.report.markdown import table

    parts = ["# Scaling", "", INTRODUCTION, f"On {record['device']}.", ""]
    parts += [f"- {note}" for note in record["notes"]]
    for name in FULL:
        lines = [row for row in record["rows"] if row["case"] == name]
        metrics = list(dict.fromkeys(row["metric"] for row in lines))
        parts += ["", f"## {name[0].upper()}{name[1:]}", "", TEXTS[name], ""]
        parts += [f"| {name} | {' | '.join(metrics)} |", f"| --: |{' --: |' * len(metrics)}"]
        for size in dict.fromkeys(row["method"] for row in lines):
            found = {row["metric"]: row["ours"] for row in lines if row["method"] == size}
            parts.append(f"| {size} | {' | '.join(f'{found[m]:,.4g}' for m in metrics)} |")
    parts += ["", f"## {streaming['title']}", "", STREAMS, f"On {streaming['device']}.", ""]
    parts += [f"- {note}" for note in streaming["notes"]]
    parts += ["", table(streaming), on_paper.markdown()]
    return "\n".join(parts)


INTRODUCTION = """\
How time and memory of one step grow with every size of a problem. `python -m benchmarks.growth`
measures it, `python -m benchmarks.streaming` the tables larger than memory; this page is written
from their committed records by `python -m benchmarks.page results/benchmarks/growth-full.json
results/benchmarks/streaming-full.json --docs docs/scaling.md`. Slopes are fitted on logarithmic
scales: power 1 is twice the time for twice the size. Times are CPU time of one step, sweep or round
without compilation, so that a busy machine does not count.
"""
STREAMS = """\
A fit of an RBM with 784 visible units to a memory map and to a Parquet set, beside the same fit to
a table in memory. The three run in turns, each in a process of its own.
"""
TEXTS = {
    "rows": f"PCD of an RBM of {COLUMNS} × {HIDDEN} on batches of {BATCH:,} rows of a stream that "
    "is computed as it is read. A step takes as long whatever the number of rows; the order of an "
    "epoch is computed, not stored, so that memory does not grow: the last column is what the peak "
    "of memory rose by, for each row. A table in memory takes a byte for each 0/1 cell, and 4 to 8 "
    "for the number of each row in the order of an epoch.",
    "columns": "PCD with 500 hidden units, 100 rows and 100 chains.",
    "hidden units": "PCD with 500 visible units, 100 rows and 100 chains.",
    "chains": "PCD of an RBM of 500 × 500 on batches of 100 rows.",
    "edges of an Ising lattice": "One Gibbs sweep of one chain on a square lattice with couplings "
    f"at random, of {SWEEPS} in one program, as chains make them. A program of a single sweep has "
    "power 1.07: its own instructions take 27 ns an edge at 10^6 and at 10^7 edges, but at 10^7 "
    "the system takes 15 ns more to map the program's 288 MB, page by page, at every call.",
    "edges of a factor graph": "One round of sum-product on a square lattice of variables of three "
    "states, with a table of its own for each edge.",
    "virtual devices": "Work of one device in a step of PCD with 512 rows and 512 chains on an RBM "
    "of 784 × 512, counted by the compiler in the program of one device. The devices are parts of "
    "one CPU, so that nothing is said about speed.",
    "parts of the weights": "The same step on 8 virtual devices, which split the weights by hidden "
    "units into so many parts (`un.device_mesh(units=2)`) and rows and chains into the others.",
}


if __name__ == "__main__":
    main()
