"""A fit by several processes, each of which runs `python -m tests.process_program FOLDER STEPS`.

With `--die-at STEP` the last process is killed when it has made so many steps.
"""

import argparse
import os
import signal
import sys
from typing import Any

import jax
import numpy as np
import optax

import undirected as un
from undirected.core.agreement import is_first
from undirected.core.processes import join_processes
from undirected.io.checkpoint import Checkpoints
from undirected.learning import FitResult, fit

ROWS = (np.random.default_rng(0).random((46, 6)) < 0.4).astype(np.float32)


def run(mesh: Any, folder: str, steps: int, die_at: int = 0) -> FitResult:
    made = 0

    def validate(model: Any, key: Any) -> float:  # all processes call it
        nonlocal made
        made += 2
        if made == die_at and jax.process_index() == jax.process_count() - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return float(np.abs(np.asarray(model.weights)).mean())

    return fit(
        un.RBM.create(6, 4, seed=0),
        un.Persistent(un.BlockGibbs(), chains=8),
        optax.sgd(0.25),
        un.Batches(ROWS, 12),
        jax.random.key(0),
        steps=steps,
        log_every=2,
        validate=validate,
        validate_every=2,
        store=Checkpoints(folder),
        save_every=0.0,
        mesh=mesh,
    )


def arrays(result: FitResult) -> dict[str, np.ndarray]:
    leaves = jax.tree.leaves((result.model, result.best_model, result.carry))
    return {f"a{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("steps", type=int)
    parser.add_argument("--die-at", type=int, default=0)
    asked = parser.parse_args()
    join_processes()
    mesh = un.device_mesh()
    try:
        result = run(mesh, asked.folder, asked.steps, asked.die_at)
    except un.UndirectedError as error:
        sys.exit(f"error: {error}")
    if is_first(mesh):
        np.savez(f"{asked.folder}/result.npz", **arrays(result))


if __name__ == "__main__":
    main()
