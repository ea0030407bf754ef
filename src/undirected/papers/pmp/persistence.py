"""Beyond the paper: messages that go on from one learning step to the next."""

from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from undirected.evaluation import log_mmd
from undirected.experiments.record import Outcome, Row
from undirected.experiments.stages import Context
from undirected.papers.pmp import _common

TITLE = "Max-product that goes on from the messages of the last learning step"
REPEATS = "seeds"
_FULL = {
    "rows": 5923,
    "pool": 1,
    "rate": 0.001,
    "steps": 1000,
    "samples": 100,
    "sweeps": [2, 5, 10, 50],
    "test_sweeps": 50,
    "seeds": 3,
    "chunk": 200,
}
CONFIG: dict[str, dict[str, Any]] = {
    "smoke": {
        **_FULL,
        "rows": 50,
        "pool": 5,
        "steps": 2,
        "samples": 5,
        "sweeps": [2],
        "test_sweeps": 2,
        "seeds": 1,
        "chunk": 25,
    },
    "quick": {
        **_FULL,
        "rows": 1000,
        "pool": 3,
        "rate": 0.01,
        "steps": 80,
        "samples": 50,
        "sweeps": [2, 5, 20],
        "test_sweeps": 25,
        "seeds": 2,
        "chunk": 250,
    },
    "full": _FULL,
}
METHODS = {"messages start anew": False, "messages go on": True}


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """log MMD^2 of samples of Ising models of contours of zeros, learned either way."""
    data = _common.contours(config["rows"], config["pool"])
    rows: list[Row] = []
    for sweeps in config["sweeps"]:
        for method, persistent in METHODS.items():
            found = context.stage(
                f"{method}, {sweeps}", partial(_measure, persistent, sweeps, data, config, seed)
            )
            case = f"{sweeps} sweeps a step"
            for metric, values in found.items():
                rows.append(Row.over_runs(case, method, metric, values, better="lower"))
    note = (
        "The noise is new at every step. Samples to be scored are drawn by "
        f"{config['test_sweeps']} sweeps from silence, whatever the learner did."
    )
    return Outcome(rows, notes=[note])


def _measure(
    persistent: bool,
    sweeps: int,
    data: Float[np.ndarray, "rows n"],
    config: dict[str, Any],
    seed: int,
) -> dict[str, np.ndarray]:
    sampler = _common.perturb(sweeps, persistent)
    models, spent = _common.learn_pairs(sampler, data, config, seed)
    test, scores = _common.perturb(config["test_sweeps"]), []
    for i, model in enumerate(models):
        key = jax.random.key(seed + i)
        x, _ = _common.draw(test, model, len(data), key, config["chunk"])
        scores.append(log_mmd(x, data))
    return {"log MMD^2": np.asarray(scores), "seconds of learning": np.asarray([spent])}
