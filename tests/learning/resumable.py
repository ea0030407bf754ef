"""A run that can be killed at any moment: `python -m tests.learning.resumable FOLDER`."""

import json
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tests.learning.support import Chains
from undirected.io.checkpoint import Checkpoints
from undirected.io.metrics import MetricsLog
from undirected.learning import Batches, FitResult, Persistent, fit
from undirected.models import RBM

STEPS, CHUNK = 240, 6


class Drift:
    """A kernel of little cost whose chains depend on all keys so far."""

    def init(self, model, x, key):
        return Chains(x)

    def step(self, model, state, free, key):
        noise = jax.random.uniform(key, state.x.shape)
        return Chains(jnp.where(free, 0.9 * state.x + 0.1 * noise, state.x)), {"noise": noise}


def flip(batch, key):
    """Noise that is drawn anew at every step."""
    return jnp.where(jax.random.bernoulli(key, 0.1, batch.shape), 1 - batch, batch)


def validate(model, key):
    """A value that depends on the model and on the key."""
    return model.free_energy(jax.random.uniform(key, (3, model.n_visible))).mean()


def train(folder: Path, on_event=None, **options) -> FitResult:
    key = jax.random.key(7)
    data = np.random.default_rng(0).integers(2, size=(23, 4)).astype(np.float32)
    return fit(
        RBM.create(4, 3, key),
        Persistent(Drift(), chains=5),
        optax.adam(0.05),
        Batches(data, 4, transform=flip),
        key,
        **{"steps": STEPS, "log_every": CHUNK, "save_every": 0.0, **options},
        validate=validate,
        validate_every=10,
        store=Checkpoints(folder / "checkpoints"),
        log=MetricsLog(folder / "metrics.jsonl"),
        on_event=on_event,
    )


def outcome(result: FitResult) -> bytes:
    """Every bit of what a run left."""
    arrays = jax.tree.leaves((result.model, result.best_model, result.carry))
    words = [result.step, result.stopped, result.best, result.best_step, result.history]
    return b"".join(np.asarray(a).tobytes() for a in arrays) + json.dumps(words).encode()


def main(folder: Path, pause: float) -> None:
    def tell(progress):
        sys.stdout.write(f"{progress.step}\n")
        sys.stdout.flush()
        time.sleep(pause)

    (folder / "outcome").write_bytes(outcome(train(folder, tell)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
