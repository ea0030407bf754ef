"""Saves models and checkpoints without end, until it is killed: python writer.py FOLDER."""

import sys
from pathlib import Path

import numpy as np

from tests.io.toy import Toy
from undirected.io.checkpoint import Checkpoints
from undirected.io.metrics import MetricsLog
from undirected.io.model_files import save_model


def main(folder: Path) -> None:
    checkpoints, log = Checkpoints(folder / "checkpoints"), MetricsLog(folder / "metrics.jsonl")
    last = checkpoints.latest({"x": np.zeros(20_000)})
    step = 0 if last is None else last[0]
    while True:
        step += 1
        save_model(folder / "model", Toy.filled(step), {"step": step})
        checkpoints.save(step, {"x": np.full(20_000, float(step))}, {"step": step})
        log.append(step, {"value": step})
        sys.stdout.write(f"{step}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
