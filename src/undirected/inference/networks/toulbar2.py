"""The optional solver toulbar2, which proves best states. It runs in a process of its own.

So it can neither outlive the deadline nor take this process down with it. Costs are -log values; a
forbidden entry costs more than any allowed state.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from undirected.inference.networks.answers import BestState
from undirected.inference.networks.network import Network

State = Int[np.ndarray, " n"]

TASK, ANSWER = "task.json", "answer.json"
"""Files by which the processes speak."""
DIGITS = 6
"""Decimal places of costs: two states whose log values differ by less count as equally good."""
MARGIN = 1.0
"""Seconds kept back to stop the process and read its answer."""


def available() -> bool:
    """Whether pytoulbar2 can be imported."""
    return find_spec("pytoulbar2") is not None


@dataclass
class Solver:
    """A search for the best state that goes on in a process of its own.

    Args:
        network: the network.
        start: a state that the answer should be better than.
        folder: of the task and the answer.
        process: the solver's.
        deadline: when it is stopped.
    """

    network: Network
    start: State | None
    folder: tempfile.TemporaryDirectory
    process: subprocess.Popen
    deadline: float = inf

    @classmethod
    def begin(
        cls, network: Network, start: State | None = None, deadline: float = inf, seed: int = 0
    ) -> "Solver | None":
        """Start the process, None where there is no time or nothing to do.

        Args:
            network: the network.
            start: a state that the answer should be better than.
            deadline: when the answer has to be there, by `time.monotonic`.
            seed: of its random choices.
        """
        seconds = int(min(deadline - time.monotonic(), 1e6) - MARGIN)
        if seconds < 1 or not network.cardinalities:
            return None
        folder = tempfile.TemporaryDirectory()
        task, out = Path(folder.name, TASK), Path(folder.name, ANSWER)
        task.write_text(json.dumps(_task(network, start, seconds, seed)))
        nowhere, environment = subprocess.DEVNULL, {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", WORKER, str(task), str(out)]
        process = subprocess.Popen(command, env=environment, stdout=nowhere, stderr=nowhere)
        return cls(network, start, folder, process, deadline)

    def __enter__(self) -> "Solver":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()

    def wait(self, until: float) -> None:
        """Wait for the end of the search, at most until then."""
        left = None if until == inf else max(until - time.monotonic(), 0.0)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(left)

    def answer(self) -> BestState | None:
        """The state found and a bound on all values, equal where it is proved best.

        None before the search is over, and where it proved nothing and found nothing better than
        the start. After the deadline it is stopped.
        """
        if time.monotonic() > self.deadline:
            self.process.kill()
        out = Path(self.folder.name, ANSWER)
        if not out.exists():
            return None
        return _read(self.network, json.loads(out.read_text()), self.start)


def solve(
    network: Network, start: State | None = None, deadline: float = inf, seed: int = 0
) -> BestState | None:
    """The best state that toulbar2 finds until the deadline; see `Solver`."""
    solver = Solver.begin(network, start, deadline, seed)
    if solver is None:
        return None
    with solver:
        solver.wait(deadline - 0.2)
        return solver.answer()


def _task(network: Network, start: State | None, seconds: int, seed: int) -> dict[str, Any]:
    """What the process is told."""
    known = None if start is None else -network.value(start)
    return {
        "sizes": network.cardinalities,
        "scopes": network.scopes,
        "costs": [_costs(table) for table in network.tables],
        "offset": -network.offset,
        "upper": known if known is not None and known < inf else None,
        "seconds": seconds,
        "seed": seed + 1,
    }


def _costs(table: Float[np.ndarray, "*states"]) -> list[float | None]:
    """-log values row by row, None where forbidden."""
    return [None if value == -inf else -float(value) for value in table.ravel()]


def _read(network: Network, answer: dict, start: State | None) -> BestState | None:
    upper = -answer["lower"] if answer["lower"] is not None else inf
    state = answer["state"]
    if state is None:
        # The search is over and nothing is better than the start: the start is the best.
        if start is None or not answer["complete"]:
            return None
        value = network.value(start)
        return BestState(start, value, value, "toulbar2")
    found = np.array(state, int)
    value = network.value(found)
    upper = value if answer["complete"] else max(upper, value)
    return BestState(found, value, upper, "toulbar2")


WORKER = f"""
import json, sys, time
import pytoulbar2

task = json.loads(open(sys.argv[1]).read())
known = [cost for costs in task["costs"] for cost in costs if cost is not None]
spread = sum(
    max(c for c in costs if c is not None) - min(c for c in costs if c is not None)
    for costs in task["costs"]
)
least = sum(min(c for c in costs if c is not None) for costs in task["costs"])
top = least + spread + task["offset"] + 1.0
upper = top if task["upper"] is None else min(top, task["upper"])
solver = pytoulbar2.CFN(upper, {DIGITS}, seed=task["seed"], verbose=-1)
for v, size in enumerate(task["sizes"]):
    solver.AddVariable(f"x{{v}}", range(size))
solver.AddFunction([], task["offset"])
never = top - min(least + task["offset"], 0.0) + 1.0
for scope, costs in zip(task["scopes"], task["costs"]):
    values = [never if cost is None else cost for cost in costs]
    solver.AddFunction(scope if scope else [], values if scope else values[0])
began = time.monotonic()
found = solver.Solve(timeLimit=task["seconds"])
lower = solver.GetDDualBound()
state = None if found is None else [int(x) for x in found[0]]
if found is not None:
    complete = abs(found[1] - lower) < 2 * 10.0 ** -{DIGITS}
else:  # the bound is not raised where nothing better exists, but the search is over early
    complete = time.monotonic() - began < 0.9 * task["seconds"]
with open(sys.argv[2] + ".part", "w") as file:
    json.dump({{"state": state, "lower": lower, "complete": bool(complete)}}, file)
import os
os.replace(sys.argv[2] + ".part", sys.argv[2])
"""
