"""Tables larger than memory: speed and peak memory of a fit beside the same fit in memory.

`python -m benchmarks.streaming --gigabytes 20 --folder /scratch` makes a memory map of that many
gigabytes and a Parquet set of `--parquet` gigabytes (before compression), and fits an RBM to them
by PCD: steps on the map, on the set and on a table in memory follow each other in turns, each in a
process of its own, so that the peak of its memory is its own and a busy machine is fair to all.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

COLUMNS, PART = 784, 10_000
IN_MEMORY = 50_000
"""Rows of the table that is held in memory."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.streaming", description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=20.0, help="of the memory map")
    parser.add_argument("--parquet", type=float, default=5.0, help="gigabytes of the Parquet set")
    parser.add_argument("--folder", type=Path, default=Path("build/streaming"))
    parser.add_argument("--steps", type=int, default=1000, help="of each turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--keep", action="store_true", help="leave the files for another run")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        return serve(asked)
    began = time.perf_counter()
    asked.folder.mkdir(parents=True, exist_ok=True)
    make_map(asked.folder / "rows.npy", asked.gigabytes)
    sources = ["memory", "map"]
    if asked.parquet > 0:
        make_parquet(asked.folder / "parquet", asked.parquet)
        sources.append("parquet")
    found = take_turns(asked, sources)
    if not asked.keep:
        shutil.rmtree(asked.folder)
    write(asked, found, time.perf_counter() - began)


def parts(gigabytes: float) -> Iterator[np.ndarray]:
    """Random bits, in parts."""
    rng = np.random.default_rng(0)
    for _ in range(max(1, round(gigabytes * 1e9 / COLUMNS / PART))):
        yield np.unpackbits(rng.integers(0, 256, (PART, COLUMNS // 8), np.uint8), axis=1)


def make_map(file: Path, gigabytes: float) -> None:
    if file.exists():
        return
    rows = PART * max(1, round(gigabytes * 1e9 / COLUMNS / PART))
    header = {"descr": "|u1", "fortran_order": False, "shape": (rows, COLUMNS)}
    with open(file, "wb") as out:
        np.lib.format.write_array_header_2_0(out, header)
        for part in parts(gigabytes):
            out.write(part.tobytes())


def make_parquet(folder: Path, gigabytes: float) -> None:
    if folder.exists():
        return
    import pyarrow as pa
    import pyarrow.parquet as parquet

    folder.mkdir()
    names, writer = [f"x{i}" for i in range(COLUMNS)], None
    for number, part in enumerate(parts(gigabytes)):
        table = pa.table([np.ascontiguousarray(column) for column in part.T], names=names)
        if number % 20 == 0:
            if writer is not None:
                writer.close()
            writer = parquet.ParquetWriter(folder / f"part-{number:05d}.parquet", table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def take_turns(asked: argparse.Namespace, sources: list[str]) -> dict[str, list[dict[str, float]]]:
    """Every source in turn: steps per second and peak memory of each turn."""
    children = {name: start(asked, name) for name in sources}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in sources}
    for turn in range(asked.turns + 1):  # the first turn compiles, and does not count
        for name, child in children.items():
            child.stdin.write("go\n")
            child.stdin.flush()
            told = json.loads(child.stdout.readline())
            print(name, told, flush=True)
            if turn:
                found[name].append(told)
    for child in children.values():
        child.stdin.close()
        child.wait()
    return found


def start(asked: argparse.Namespace, name: str) -> Any:
    command = [sys.executable, "-m", "benchmarks.streaming", "--child", name]
    for option in ("folder", "steps", "hidden"):
        command += [f"--{option}", str(getattr(asked, option))]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def serve(asked: argparse.Namespace) -> None:
    """In a process of its own: `steps` more steps for every line of the input."""
    import jax
    import optax

    import undirected as un
    from undirected.io.row_sources import open_rows
    from undirected.learning import fit

    if asked.child == "memory":
        rows = np.concatenate([part for part, _ in zip(parts(1.0), range(5), strict=False)])
        batches = un.Batches(rows[:IN_MEMORY], 100, transform=as_float)
    else:
        place = "rows.npy" if asked.child == "map" else "parquet"
        batches = un.StreamedBatches(open_rows(asked.folder / place), 100, transform=as_float)
    model = un.RBM.create(COLUMNS, asked.hidden, jax.random.key(0))
    objective = un.Persistent(un.BlockGibbs(), chains=100)
    for _ in sys.stdin:
        began, used = time.perf_counter(), time.process_time()
        fit(model, objective, optax.sgd(0.01), batches, jax.random.key(1), steps=asked.steps)
        seconds, cpu = time.perf_counter() - began, time.process_time() - used
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        told = {"steps/s": asked.steps / seconds, "cpu ms/step": 1e3 * cpu / asked.steps}
        print(json.dumps({**told, "peak GB": peak / 1e9}), flush=True)


def as_float(batch: Any, key: Any) -> Any:
    return batch.astype("float32")


def write(asked: argparse.Namespace, found: dict[str, list[dict[str, float]]], took: float) -> None:
    from benchmarks.saving import make_record, save
    from undirected.experiments.record import Row

    rows, notes = [], []
    for name, turns in found.items():
        for metric in turns[0]:
            values = [turn[metric] for turn in turns]
            better = "higher" if metric == "steps/s" else "lower"
            rows.append(Row(name, "fit", metric, median(values), n=len(values), better=better))
    middle = {
        name: {metric: median(turn[metric] for turn in turns) for metric in turns[0]}
        for name, turns in found.items()
    }
    memory = middle["memory"]
    for name in [name for name in found if name != "memory"]:
        speed = middle[name]["steps/s"] / memory["steps/s"]
        work = memory["cpu ms/step"] / middle[name]["cpu ms/step"]
        peak = max(turn["peak GB"] for turn in found[name])
        notes.append(
            f"{name}: {speed:.0%} of the speed in memory by the clock, {work:.0%} by CPU time; at "
            f"most {peak:.2f} GB."
        )
        print(notes[-1])
    config = {name: getattr(asked, name) for name in ("gigabytes", "parquet", "steps", "turns")}
    title = "Tables larger than memory"
    record = make_record("streaming", "full", config, took, rows, title, notes)
    save(record, asked.out / "streaming-full.json")


if __name__ == "__main__":
    main()
