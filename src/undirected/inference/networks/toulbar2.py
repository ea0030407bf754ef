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
from importlib.util import find_spec
from math import inf
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from undirected.inference.networks.answers import BestState
from undirected.inference.networks.network import Network

DIGITS = 6
"""Decimal places of costs: two states whose log values differ by less count as equally good."""
MARGIN = 1.0
"""Seconds kept back to stop the process and read its answer."""


def available() -> bool:
    """Whether pytoulbar2 can be imported."""
    return find_spec("pytoulbar2") is not None


def solve(
    network: Network,
    start: Int[np.ndarray, " n"] | None = None,
    deadline: float = inf,
    seed: int = 0,
) -> BestState | None:
    """The best state that toulbar2 finds until the deadline.

    Args:
        network: the network.
        start: a state that the answer should be better than.
        deadline: when to be back, by `time.monotonic`.
        seed: of its random choices.

    Returns:
        The state and a bound on all values, equal where it is proved best; None where nothing
        better than `start` was found and nothing proved.
    """
    seconds = int(min(deadline - time.monotonic(), 1e6) - MARGIN)
    if seconds < 1 or not network.cardinalities:
        return None
    with tempfile.TemporaryDirectory() as folder:
        task, out = Path(folder, "task.json"), Path(folder, "answer.json")
        known = None if start is None else -network.value(start)
        text = {
            "sizes": network.cardinalities,
            "scopes": network.scopes,
            "costs": [_costs(table) for table in network.tables],
            "offset": -network.offset,
            "upper": known if known is not None and known < inf else None,
            "seconds": seconds,
            "seed": seed + 1,
        }
        task.write_text(json.dumps(text))
        command = [sys.executable, "-c", WORKER, str(task), str(out)]
        _run(command, deadline)
        if not out.exists():
            return None
        answer = json.loads(out.read_text())
    return _read(network, answer, start)


def _costs(table: Float[np.ndarray, "*states"]) -> list[float | None]:
    """-log values row by row, None where forbidden."""
    return [None if value == -inf else -float(value) for value in table.ravel()]


def _run(command: list[str], deadline: float) -> None:
    """Run a process until the deadline at the latest; what it prints is thrown away."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    left = None if deadline == inf else max(deadline - time.monotonic() - 0.2, 0.1)
    nowhere = subprocess.DEVNULL
    with subprocess.Popen(command, env=environment, stdout=nowhere, stderr=nowhere) as process:
        try:
            process.wait(left)
        except BaseException as stopped:
            process.kill()
            if not isinstance(stopped, subprocess.TimeoutExpired):
                raise


def _read(network: Network, answer: dict, start: Int[np.ndarray, " n"] | None) -> BestState | None:
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
import json, sys
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
found = solver.Solve(timeLimit=task["seconds"])
lower = solver.GetDDualBound()
state = None if found is None else [int(x) for x in found[0]]
complete = not solver.Limit if hasattr(solver, "Limit") else False
if found is not None:
    complete = abs(found[1] - lower) < 2 * 10.0 ** -{DIGITS}
else:
    complete = lower >= upper - 2 * 10.0 ** -{DIGITS}
with open(sys.argv[2] + ".part", "w") as file:
    json.dump({{"state": state, "lower": lower, "complete": bool(complete)}}, file)
import os
os.replace(sys.argv[2] + ".part", sys.argv[2])
"""
