"""`python -m benchmarks`: this library beside its peers, on the same inputs, in one run.

Every contestant runs in a fresh process; peers have virtual environments of their own, made on the
first run. Repetitions are interleaved, answers are compared, compilation is timed apart. Writes a
record and a page. `--quick` takes under five minutes once the peers are installed, the full run
about twenty-five. Close what else runs on the machine first.

`python -m benchmarks tables` is about how well the default settings learn binary tables, and
`python -m benchmarks imputation` about how well hidden cells are filled in; `python -m benchmarks
mixing` is about how fast chains forget, `python -m benchmarks partition` about log Z, `python -m
benchmarks discs` about kernels on the tasks of DISCS, `python -m benchmarks rbm_kernels` about
kernels that train an RBM, `python -m benchmarks spin_glass` about ground states.
"""

import argparse
import sys
import time
from importlib import import_module
from pathlib import Path
from statistics import median

from benchmarks import harness, page, scaling
from benchmarks.cases import all_cases
from benchmarks.harness import OURS, Case, Timing
from benchmarks.saving import make_record, others, save
from undirected.experiments.record import Row, device, read

CHOICES = (
    "speed",
    "tables",
    "imputation",
    "mixing",
    "partition",
    "families",
    "spin_glass",
    "discs",
    "rbm_kernels",
)
QUICK = {"repeats": 3, "seconds": 2.0}
FULL = {"repeats": 15, "seconds": 20.0}


def main() -> None:
    if sys.argv[1:2] == ["uai"]:
        from benchmarks.uai.run import main as run_uai

        return run_uai(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("what", nargs="?", choices=CHOICES, default="speed")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, fewer repetitions")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks"))
    parser.add_argument("--peers", type=Path, default=Path("build/peers"), help="environments")
    arguments = parser.parse_args()
    if arguments.what != "speed":
        part = import_module(f"benchmarks.{arguments.what}")
        return part.main(arguments.quick, arguments.only, arguments.out)
    profile = "quick" if arguments.quick else "full"
    config, began = QUICK if arguments.quick else FULL, time.perf_counter()
    file, run = arguments.out / f"cpu-{profile}.json", []
    check_device(file, arguments.only)
    rows: list[Row] = []
    notes: list[str] = []
    for case in all_cases(arguments.quick):
        if arguments.only in case.name:
            timings = harness.run(case, arguments.peers.absolute(), **config)
            rows += case_rows(case, timings)
            notes += case_notes(case, timings)
            show(case, timings)
            run.append(case.name)
    if arguments.only:
        kept, curves, growth = others(file, run), *scaling.measured(file)
        rows, notes = kept.rows + rows, kept.notes + notes
        began -= kept.seconds
    else:
        curves, growth = scaling.measure(arguments.quick)
    notes += growth
    seconds, title = time.perf_counter() - began, "Speed beside its peers"
    save(make_record("cpu", profile, config, seconds, rows, title, notes, curves=curves), file)
    page.write([read(file).to_dict()], file.with_suffix(".html"))
    print(f"\nWrote {file} and the page beside it")


def check_device(file: Path, only: str) -> None:
    """Refuse to put cases of this machine beside those of another one."""
    if only and file.is_file() and (there := read(file).device) != device():
        raise SystemExit(f"{file} was measured on {there}, this is {device()}; pass another --out")


def case_rows(case: Case, timings: list[Timing]) -> list[Row]:
    """Time, spread, ratio, compilation and memory of every contestant that has an answer."""
    rows = []
    ours = next((t for t in timings if t.name == OURS and t.seconds), None)
    for timing in timings:
        if timing.problem or not timing.seconds:
            continue
        low, high = timing.quartiles()
        first = max(timing.first - median(timing.seconds), 0.0)
        values = {
            page.TIME: 1e3 * timing.cost(case),
            "middle half of the repetitions (ms)": 1e3 * (high - low) / case.steps,
            "build (s)": timing.build,
            "compile (s)": first,
            "first answer (s)": timing.build + timing.first,
            "peak memory (MB)": timing.memory / 1e6,
        }
        if ours:
            values[page.RATIO] = timing.cost(case) / ours.cost(case)
        n = len(timing.seconds)
        for metric, value in values.items():
            rows.append(Row(case.name, timing.name, metric, value, n=n, better="lower"))
    return rows


def case_notes(case: Case, timings: list[Timing]) -> list[str]:
    """What failed, and which goals were reached."""
    notes = [f"{case.name}: {t.name} gave no result: {t.problem}" for t in timings if t.problem]
    costs = {t.name: t.cost(case) for t in timings if t.seconds and not t.problem}
    if OURS not in costs:
        return notes
    for name, goal in case.goals.items():
        if name in costs:
            ratio = costs[name] / costs[OURS]
            word = "reached" if ratio >= goal else "not reached"
            notes.append(
                f"{case.name}: {ratio:,.1f} times as fast as {name}; goal {goal:g}: {word}."
            )
            if costs.get(case.floor, 0.0) > costs[name] / goal:
                least = costs[name] / costs[case.floor]
                notes.append(
                    f"{case.name}: {name} takes {least:.1f} times as long as {case.floor} alone: "
                    f"nothing that makes them so is {goal:g} times as fast."
                )
    for name, goal in case.most.items():
        if name in costs:
            ratio = costs[OURS] / costs[name]
            word = "reached" if ratio <= goal else "not reached"
            notes.append(
                f"{case.name}: takes {ratio:.2f} times as long as {name}; goal {goal:g}: {word}."
            )
    return notes


def show(case: Case, timings: list[Timing]) -> None:
    """Print milliseconds and ratios."""
    print(f"\n{case.name}", flush=True)
    ours = next((t.cost(case) for t in timings if t.name == OURS and t.seconds), None)
    for timing in timings:
        if timing.problem or not timing.seconds:
            print(f"  {timing.name:28s} no result: {timing.problem[-200:]}")
            continue
        cost = timing.cost(case)
        ratio = f"{cost / ours:9.2f} x ours" if ours else ""
        print(f"  {timing.name:28s} {1e3 * cost:12.3f} ms  {ratio}", flush=True)


if __name__ == "__main__":
    main()
