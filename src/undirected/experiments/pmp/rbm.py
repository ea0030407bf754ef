"""Section 5.5, Figure 3: an RBM of MNIST digits, learned and sampled by several methods."""

from typing import Any

import jax
import numpy as np
import optax
from jaxtyping import Float

from undirected.core.protocols import Kernel
from undirected.data import mnist
from undirected.evaluation import log_mmd
from undirected.experiments.pmp import _common
from undirected.experiments.record import Outcome, Row, curve
from undirected.experiments.stages import Context
from undirected.learning import Batches, Persistent, fit
from undirected.models import RBM
from undirected.report.images import image_grid

TITLE = "Restricted Boltzmann machines on MNIST (Section 5.5)"
_FULL = {
    "rows": 60_000,
    "hidden": 500,
    "rate": 0.01,
    "epochs": 200,
    "batch": 100,
    "chains": 100,
    "sweeps": 100,
    "methods": ["PMP", "Gibbs-reset", "PCD-1", "PCD-100"],
    "test_sweeps": [5, 10, 25, 50, 100, 200, 500, 1000, 2000],
    "samples": 10_000,
    "chunk": 1000,
    "bias_scale": 1.0,
}
CONFIG: dict[str, dict[str, Any]] = {
    "smoke": {
        **_FULL,
        "rows": 100,
        "hidden": 8,
        "epochs": 1,
        "batch": 50,
        "chains": 5,
        "sweeps": 2,
        "methods": ["PMP"],
        "test_sweeps": [2],
        "samples": 10,
        "chunk": 10,
    },
    "quick": {
        **_FULL,
        "rows": 5000,
        "hidden": 64,
        "rate": 0.05,
        "epochs": 10,
        "chains": 50,
        "sweeps": 15,
        "methods": ["PMP", "Gibbs-reset", "PCD-1"],
        "test_sweeps": [5, 15, 50],
        "samples": 500,
        "chunk": 250,
        "bias_scale": 0.1,
    },
    "full": _FULL,
}


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """log MMD^2 of samples of every learned model, for growing numbers of sweeps."""
    data = np.asarray(mnist().train.x[: config["rows"]] > 0.5, np.float32)
    rows: list[Row] = []
    lines, sheet = {}, [data[:10]]
    for method in config["methods"]:
        learned = context.stage(f"learn, {method}", lambda m=method: _learn(m, data, config, seed))
        found = context.stage(
            f"sample, {method}", lambda m=method, a=learned: _score(m, a, data, config, seed)
        )
        for sweeps, score in zip(config["test_sweeps"], found["scores"], strict=True):
            case = f"{sweeps} sweeps"
            rows.append(Row(case, method, "log MMD^2", float(score), n=1, better="lower"))
        spent = float(found["seconds"])
        rows.append(Row("sampling", method, "seconds per sample", spent, n=1, better="lower"))
        lines[method] = config["test_sweeps"], [float(s) for s in found["scores"]]
        sheet.append(found["samples"])
    image_grid(np.concatenate(sheet), (28, 28), context.out / "samples.png", scale=2)
    caption = "Data, then " + ", ".join(config["methods"]) + ": states after "
    caption += f"{_shown(config)} sweeps"
    return Outcome(
        rows=rows,
        curves=[curve("sample quality", "sweeps", "log MMD^2", lines)],
        images=[{"name": "samples", "caption": caption, "file": "samples.png"}],
        notes=[
            f"{config['epochs']} epochs of plain gradient descent; the hidden units are summed out "
            "in both phases. Gibbs chains go on from one number of sweeps to the next, PMP starts "
            "afresh. Biases of the start are drawn apart; the authors' program draws those of both "
            "layers with one key.",
        ],
    )


def _shown(config: dict[str, Any]) -> int:
    """The number of sweeps whose samples are shown: that of learning, or the nearest below."""
    below = [s for s in config["test_sweeps"] if s <= config["sweeps"]]
    return max(below, default=config["test_sweeps"][0])


def _skeleton(config: dict[str, Any], seed: int) -> RBM:
    """W ~ N(0, 0.01^2) and biases ~ N(0, 1), as the program has it; N(0, 0.01) in the text."""
    w_key, v_key, h_key = jax.random.split(jax.random.key(seed), 3)
    H, scale = config["hidden"], config["bias_scale"]
    return RBM(
        0.01 * jax.random.normal(w_key, (784, H)),
        scale * jax.random.normal(v_key, (784,)),
        scale * jax.random.normal(h_key, (H,)),
    )


def _learn(
    method: str, data: Float[np.ndarray, "rows 784"], config: dict[str, Any], seed: int
) -> dict[str, np.ndarray]:
    kernels: dict[str, Kernel] = {
        "PMP": _common.kernel("PMP", config["sweeps"], 0),
        "Gibbs-reset": _common.kernel("block Gibbs-reset", config["sweeps"], 0),
        "PCD-1": _common.kernel("block Gibbs", 1, 0),
        "PCD-100": _common.kernel("block Gibbs", 100, 0),
    }
    objective = Persistent(kernels[method], chains=config["chains"])
    batches = Batches(data, config["batch"])
    model = fit(
        _skeleton(config, seed),
        objective,
        optax.sgd(config["rate"]),
        batches,
        jax.random.key(seed),
        epochs=config["epochs"],
    ).model
    return _common.store(model)


def _score(
    method: str,
    learned: dict[str, np.ndarray],
    data: Float[np.ndarray, "rows 784"],
    config: dict[str, Any],
    seed: int,
) -> dict[str, np.ndarray]:
    """log MMD^2 after each number of sweeps, samples, and the time of one sample."""
    model = _common.restore(_skeleton(config, seed), learned)
    rng = np.random.default_rng(seed)
    some = data[rng.choice(len(data), min(config["samples"], len(data)), replace=False)]
    scores, shown, spent, x, done = [], some[:10], 0.0, None, 0
    for sweeps in config["test_sweeps"]:
        key = jax.random.fold_in(jax.random.key(seed), sweeps)
        extra = sweeps if method == "PMP" else sweeps - done
        name = "PMP" if method == "PMP" else "block Gibbs"
        start = None if method == "PMP" else x
        kernel = _common.kernel(name, extra, 0)
        x, spent = _common.draw(kernel, model, config["samples"], key, config["chunk"], start)
        done = sweeps
        scores.append(log_mmd(x[:, :784], some))
        if sweeps == _shown(config):
            shown = x[:10, :784]
    return {"scores": np.asarray(scores), "samples": shown, "seconds": np.asarray(spent)}
