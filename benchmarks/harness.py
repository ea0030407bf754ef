"""Runs one case: all contestants on the same inputs, in turn, each in a fresh process."""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np

from benchmarks.environments import FOLDER, Environment, own, prepare

OURS = "ours"
PAUSE, SHORT, WARM = 0.15, 1.0, 0.1
"""Seconds between turns, what counts as a short repetition, and how long such ones run untimed."""
Arrays = Mapping[str, np.ndarray]
Check = Callable[[Arrays, Arrays, Arrays], str]
"""Of the inputs, our answer and a peer's: what is wrong, empty where they agree."""


@dataclass(frozen=True)
class Entry:
    """A contestant: a name for the page, a file of `peers/`, a function in it."""

    name: str
    file: str
    function: str
    environment: str = OURS
    agrees: bool = True
    """False for work that has no answer, such as the matrix products alone."""


@dataclass(frozen=True)
class Case:
    """One comparison. `unit` is what one repetition does `steps` times; times are of one step.

    `goals` are the ratios to reach, by contestant: how many times as long as ours it takes, or for
    `most` at most how many times as long as it we take.
    """

    name: str
    inputs: Callable[[], Arrays]
    entries: tuple[Entry, ...]
    check: Check
    steps: int = 1
    goals: Mapping[str, float] = field(default_factory=dict)
    most: Mapping[str, float] = field(default_factory=dict)
    building_counts: bool = False
    """Whether building belongs to the time that is compared."""
    floor: str = ""
    """A contestant that does only what every other one has to do as well."""


@dataclass
class Timing:
    """What was measured of one contestant."""

    name: str
    build: float = 0.0
    first: float = 0.0
    seconds: list[float] = field(default_factory=list)
    memory: float = 0.0
    problem: str = ""

    def quartiles(self) -> tuple[float, float]:
        """The lower and the upper quartile of the repetitions."""
        if len(self.seconds) < 2:
            return self.seconds[0], self.seconds[0]
        low, _, high = quantiles(self.seconds, n=4, method="inclusive")
        return low, high

    def cost(self, case: Case) -> float:
        """Median seconds of one step; of building and one repetition where building counts."""
        middle = median(self.seconds)
        return self.build + middle if case.building_counts else middle / case.steps


class Process:
    """A contestant at work."""

    def __init__(self, entry: Entry, environment: Environment, log: Path):
        self.log = log
        self.output = log.open("w")
        hidden = ("JAX_", "PYTHON", "XLA_", "OMP_")
        settings = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
        settings |= {"JAX_PLATFORMS": "cpu", "OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}
        if environment.name == OURS:
            settings["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
        server = Path(__file__).with_name("serve.py")
        self.process = subprocess.Popen(
            [str(environment.python), str(server), str(FOLDER / f"{entry.file}.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.output,
            text=True,
            env=settings,
        )

    def ask(self, **order: Any) -> dict[str, Any]:
        """The reply to an order; raises RuntimeError where there is none or it is an error."""
        try:
            print(json.dumps(order), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline() if self.process.stdout else ""
        except BrokenPipeError:
            line = ""
        if not line:
            raise RuntimeError(f"ended by itself: {self.log.read_text()[-300:]}")
        reply = json.loads(line)
        if "error" in reply:
            raise RuntimeError(reply["error"])
        return reply

    def close(self) -> None:
        if self.process.stdin:
            self.process.stdin.close()
        self.process.wait(timeout=60)
        if self.process.stdout:
            self.process.stdout.close()
        self.output.close()


def run(case: Case, root: Path, repeats: int, seconds: float) -> list[Timing]:
    """Measure a case: at most so many repetitions, and about so many seconds, per contestant."""
    timings = [Timing(entry.name) for entry in case.entries]
    running: list[tuple[Entry, Timing, Process]] = []
    given = case.inputs()
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "inputs.npz"
        np.savez(inputs, **given)
        try:
            for entry, timing in zip(case.entries, timings, strict=True):
                home = own() if entry.environment == OURS else prepare(entry.environment, root)
                if home.python is None:
                    timing.problem = home.problem
                    continue
                process = Process(entry, home, Path(folder) / f"{entry.file}-{len(running)}.log")
                if _guard(timing, lambda p=process, e=entry, t=timing: _begin(p, e, t, inputs)):
                    running.append((entry, timing, process))
                else:
                    process.close()
            _compare(case, given, running, Path(folder))
            _repeat(running, repeats, seconds)
            for _, timing, process in running:
                if not timing.problem:
                    _guard(timing, lambda p=process, t=timing: _end(p, t))
        finally:
            for *_, process in running:
                process.close()
    return timings


def _guard(timing: Timing, work: Callable[[], None]) -> bool:
    """Whether the work succeeded; a contestant that fails is reported and leaves the others be."""
    try:
        work()
    except (RuntimeError, ValueError, OSError) as error:
        timing.problem = str(error)
    return not timing.problem


def _begin(process: Process, entry: Entry, timing: Timing, inputs: Path) -> None:
    order = {"do": "build", "case": entry.function, "inputs": str(inputs)}
    timing.build = process.ask(**order)["seconds"]
    timing.first = process.ask(do="run")["seconds"]


def _end(process: Process, timing: Timing) -> None:
    timing.memory = process.ask(do="memory")["memory"]


def _repeat(running: list[tuple[Entry, Timing, Process]], repeats: int, seconds: float) -> None:
    """Repetitions in turn; one that has used up its seconds sits out."""
    for _ in range(repeats):
        for _, timing, process in running:
            if timing.problem or (timing.seconds and sum(timing.seconds) > seconds):
                continue
            _guard(timing, lambda p=process, t=timing: _turn(p, t))


def _turn(process: Process, timing: Timing) -> None:
    """One repetition, after a pause in which threads of others fall asleep.

    A short one is preceded by some that are not timed, so that caches are its own and its threads
    are on cores of their own: fresh from sleep they begin on one.
    """
    time.sleep(PAUSE)
    began = time.perf_counter()
    short = bool(timing.seconds) and timing.seconds[-1] < SHORT
    while short and time.perf_counter() < began + WARM:
        process.ask(do="run")
    timing.seconds.append(process.ask(do="run")["seconds"])


def _compare(
    case: Case, given: Arrays, running: list[tuple[Entry, Timing, Process]], folder: Path
) -> None:
    """Hold every answer against ours; a wrong one is a problem of that contestant."""
    answers: dict[str, Arrays] = {}
    for entry, timing, process in running:
        file = folder / f"answer-{len(answers)}.npz"
        if entry.agrees and _guard(timing, lambda p=process, f=file: _save(p, f)):
            with np.load(file) as archive:
                answers[entry.name] = {name: archive[name] for name in archive.files}
    for entry, timing, _ in running:
        if entry.name in answers and entry.name != OURS and OURS in answers:
            wrong = case.check(given, answers[OURS], answers[entry.name])
            timing.problem = f"the answers differ: {wrong}" if wrong else ""


def _save(process: Process, file: Path) -> None:
    process.ask(do="answer", file=str(file))
