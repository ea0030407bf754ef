"""`python -m benchmarks.counters --out DIR`: what the hardware counts while messages stay on chip.

Nsight Compute (`ncu`) reads the counters of one launch of `ops.on_chip` and
DIR/on-chip-full.json keeps those that say what its time is spent on.
"""

import argparse
import csv
import io
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp

from benchmarks.gpu import FULL, models
from benchmarks.saving import make_record, save
from undirected.experiments.record import Record, Row
from undirected.ops import on_chip

SECTIONS = (
    "SpeedOfLight",
    "ComputeWorkloadAnalysis",
    "MemoryWorkloadAnalysis",
    "SchedulerStats",
    "WarpStateStats",
    "InstructionStats",
    "LaunchStats",
    "Occupancy",
)
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
READINGS = {
    "gpu__time_duration.sum": ("time (ns)", "lower"),
    "smsp__inst_executed.sum": ("instructions of warps", "lower"),
    "smsp__issue_active.avg.pct_of_peak_sustained_active": ("issue slots in use (%)", "higher"),
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active": ("multiply-add (%)", "higher"),
    "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_active": ("integer units (%)", "lower"),
    "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active": ("reciprocal, log (%)", "higher"),
    "launch__registers_per_thread": ("registers of a thread", "lower"),
    "launch__occupancy_limit_registers": ("programs that fit a multiprocessor", "higher"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("warps present (%)", "higher"),
    "l1tex__t_sector_hit_rate.pct": ("hits in the first-level cache (%)", "higher"),
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": ("second-level cache in use (%)", "lower"),
    "dram__cycles_active.avg.pct_of_peak_sustained_elapsed": ("memory in use (%)", "lower"),
    _STALL.format("barrier"): ("cycles an instruction waits: for other warps", "lower"),
    _STALL.format("wait"): ("cycles an instruction waits: fixed latency", "lower"),
    _STALL.format("long_scoreboard"): ("cycles an instruction waits: for caches", "lower"),
    _STALL.format("short_scoreboard"): ("cycles an instruction waits: reciprocals, log", "lower"),
    _STALL.format("not_selected"): ("cycles an instruction waits: another issued", "lower"),
    _STALL.format("membar"): ("cycles an instruction waits: memory order", "lower"),
}
"""What is kept, by the names of Nsight Compute."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.counters", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--launch", action="store_true", help="run the kernel alone")
    arguments = parser.parse_args()
    if arguments.launch:
        return launch()
    found = record(read())
    save(found, arguments.out / "on-chip-full.json")
    for row in found.rows:
        print(f"{row.case}: {row.ours:g}")


def read() -> dict[str, float]:
    """Every counter of one launch, after one to warm up."""
    if (program := shutil.which("ncu")) is None:
        raise FileNotFoundError("ncu (Nsight Compute) is not on the path: no counters were read")
    shown = "--csv", "--page", "raw", "--clock-control", "none"
    sections = (word for name in SECTIONS for word in ("--section", name))
    which = "--kernel-name", "regex:on_chip", "--launch-skip", "1", "--launch-count", "1"
    work = sys.executable, "-m", "benchmarks.counters", "--launch"
    command = [program, *shown, *sections, *which, *work]
    found = subprocess.run(command, capture_output=True, text=True)
    start = found.stdout.find('"ID"')
    if found.returncode or start < 0:
        raise RuntimeError(f"ncu gave no counters: {(found.stdout + found.stderr)[-2000:]}")
    names, _, values = list(csv.reader(io.StringIO(found.stdout[start:])))[:3]
    pairs = zip(names, values, strict=True)
    return {name: value for name, text in pairs if (value := _number(text)) is not None}


def record(counters: dict[str, float]) -> Record:
    """The readings that are kept, and instructions per message; the time is that of the launch."""
    (V, H), T, B = FULL["shape"], FULL["iterations"], FULL["batch"]
    rows = [
        Row(label, "on chip", "reading", counters[name], better=better)
        for name, (label, better) in READINGS.items()
    ]
    each = 32 * counters["smsp__inst_executed.sum"] / (B * V * H * 2 * T)
    rows.insert(2, Row("instructions per message", "on chip", "reading", each, better="lower"))
    seconds = counters["gpu__time_duration.sum"] / 1e9
    notes = [f"{B} models of {V}x{H}, {T} iterations; clocks left alone."]
    title = "Counters of the kernel on chip"
    return make_record("gpu-counters", "full", FULL, seconds, rows, title, notes)


def launch() -> None:
    w, fields = models(FULL)
    rows, cols = jnp.split(jnp.asarray(fields), [len(w)], 1)
    kernel = jax.jit(lambda *a: on_chip.run(*a, FULL["iterations"]))
    for _ in range(3):
        jax.block_until_ready(kernel(jnp.asarray(w), rows, cols))


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


if __name__ == "__main__":
    main()
