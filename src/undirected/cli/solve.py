"""`undirected solve`: marginals, log Z or best states of a network in a UAI file."""

import os
import time
from math import log
from pathlib import Path
from typing import Any

from undirected.cli import console
from undirected.core.errors import UndirectedError
from undirected.core.files import atomic_write, check_place

CLOSING, PER_VARIABLE = 0.3, 2e-5
"""Seconds kept to end the process, and to write the answer about each variable."""
SLOWNESS = 0.15
"""Of the time that starting and reading took, kept too: a busy machine also writes slowly."""


def solve_file(
    model: Path,
    evidence: Path | None,
    task: str,
    seconds: float,
    memory: str,
    maximise: str,
    out: Path,
    seed: int,
    js: bool,
) -> None:
    """Answer a network and write the answer in the competition's format and as JSON.

    The time counts from the start of the process.
    """
    elapsed = _since_start()
    started = time.monotonic()
    from undirected.io.uai import read_evidence, read_uai
    from undirected.tasks.solve import TASKS, solve

    if task not in TASKS:
        raise UndirectedError(f"solve: --task {task!r:.40}; pass one of {', '.join(TASKS)}")
    beside = out.with_name(out.name + ".json")
    check_place(out)
    network = read_uai(model)
    given = read_evidence(evidence, network) if evidence is not None else {}
    spent = elapsed + time.monotonic() - started
    left = seconds - spent - closing_time(len(network.cardinalities), spent)
    found = solve(
        network,
        task,
        given=given,
        maximise=_numbers(maximise),
        seconds=max(left, 0.1),
        memory=memory,
        seed=seed,
    )
    _write(out, found)
    summary = _summary(model, found, elapsed + time.monotonic() - started)
    with atomic_write(beside) as temporary:
        temporary.write_text(console.json_text(summary | _answers(found)) + "\n", encoding="utf-8")
    summary |= {"out": str(out), "json": str(beside)}
    console.result(summary, js, _lines(summary))


def closing_time(variables: int, spent: float) -> float:
    """Seconds to keep for the end, by the size of the answer and what reading took."""
    return CLOSING + PER_VARIABLE * variables + SLOWNESS * spent


def _numbers(text: str) -> list[int]:
    """Variables from a text such as "3,17,40"."""
    words = text.replace(",", " ").split()
    wrong = [word for word in words if not word.isdecimal()]
    if wrong:
        raise UndirectedError(
            f"solve: --maximise names {wrong[0]!r:.40}; pass numbers of variables, such as 3,17,40"
        )
    return [int(word) for word in words]


def _since_start() -> float:
    """Seconds since this process began, as the system counts them; a guess where it does not."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        began = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - began, 0.0)
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.5


def _write(out: Path, found: Any) -> None:
    from undirected.io import uai

    match found.task:
        case "mar":
            uai.write_marginals(out, found.tables)
        case "pr":
            uai.write_partition(out, found.log_z)
        case "map":
            uai.write_state(out, found.states)
        case "mmap":
            uai.write_partial_state(out, found.state)


def _summary(model: Path, found: Any, seconds: float) -> dict[str, Any]:
    """What was done, and what is known of the answer."""
    value = found.log_z if found.log_z is not None else found.log_value
    return {
        "model": str(model),
        "task": found.task,
        "exact": found.exact,
        "method": found.method,
        "log_z" if found.log_z is not None else "log_value": value,
        "log10": value / log(10),
        "lower": found.lower,
        "upper": found.upper,
        "notes": list(found.notes),
        "seconds": round(seconds, 3),
    }


def _answers(found: Any) -> dict[str, Any]:
    """The answer itself, in the order of the file."""
    if found.task == "mar":
        return {"marginals": [table.tolist() for table in found.tables]}
    if found.task == "map":
        return {"state": found.states.tolist()}
    if found.task == "mmap":
        return {"state": {str(v): int(x) for v, x in found.state.items()}}
    return {}


def _lines(summary: dict[str, Any]) -> list[str]:
    how = "exact" if summary["exact"] else "approximate"
    value = "log_z" if "log_z" in summary else "log_value"
    between = f", between {summary['lower']:.6g} and {summary['upper']:.6g}"
    known = "" if summary["exact"] else between
    return [
        f"Wrote {summary['out']}: {how}, {summary['method']}, {summary['seconds']:.1f} s",
        f"{value.replace('_', ' ')} = {summary[value]:.9g}{known}",
        *(f"note: {note}" for note in summary["notes"]),
    ]
