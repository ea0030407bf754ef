"""Section 5.3, Figure 1 right and Figure 4 bottom left: an Ising model of the contours of zeros."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from undirected.data.ownership import SIDE
from undirected.evaluation import log_mmd
from undirected.experiments.claims import Claim, everywhere
from undirected.experiments.record import Outcome, Row, curve
from undirected.experiments.stages import Context, restore, store
from undirected.learning import stack
from undirected.models import Ising
from undirected.papers.pmp import _common
from undirected.report.images import image_grid

TITLE = "Ising models of the contours of MNIST zeros (Section 5.3)"
REPEATS = "seeds"
PARTS = ("methods",)
_METHODS = ["PMP", "Gibbs", "Gibbs-reset", "GWG", "GWG-reset"]
_FULL = {
    "rows": 5923,
    "pool": 1,
    "methods": _METHODS,
    "rate": 0.001,
    "steps": 1000,
    "samples": 100,
    "sweeps": 50,
    "test_sweeps": [5, 10, 25, 50, 100],
    "seeds": 5,
    "chunk": 1000,
}
CONFIG: dict[str, dict[str, Any]] = {
    "smoke": {
        **_FULL,
        "rows": 50,
        "pool": 5,
        "methods": ["PMP", "GWG"],
        "steps": 2,
        "samples": 5,
        "sweeps": 2,
        "test_sweeps": [2],
        "seeds": 1,
        "chunk": 25,
    },
    "quick": {
        **_FULL,
        "rows": 1000,
        "pool": 2,
        "rate": 0.01,
        "steps": 80,
        "samples": 50,
        "sweeps": 20,
        "test_sweeps": [5, 10, 25],
        "seeds": 1,
        "chunk": 250,
    },
    "full": _FULL,
}
CLAIMS = [
    Claim(
        "Samples of contours by perturb-and-max-product are nearer to the data than those of Gibbs "
        "sampling and of Gibbs with gradients, at every number of sweeps.",
        "read off Figure 1, right",
        everywhere(
            [f"{sweeps} sweeps" for sweeps in _FULL["test_sweeps"]],
            "log MMD^2",
            "PMP",
            ["Gibbs", "Gibbs-reset", "GWG", "GWG-reset"],
        ),
    ),
]


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """log MMD^2 of samples by every method, after so many sweeps, from a model it has learned."""
    data = _common.contours(config["rows"], config["pool"])
    side = SIDE // config["pool"]
    scores: dict[tuple[str, int], list[float]] = {}
    seconds: dict[str, float] = {}
    sheet = [data[:10]]
    for method in config["methods"]:
        models = context.stage(f"learn, {method}", lambda m=method: _learn(m, data, config, seed))
        seconds[method] = float(models.pop("seconds"))
        for i in range(config["seeds"]):
            mine = {name: values[i] for name, values in models.items()}
            found = context.stage(
                f"sample, {method}, seed {i}",
                lambda m=method, a=mine, s=seed + i: _score(m, a, data, config, s),
            )
            for sweeps, score in zip(config["test_sweeps"], found["scores"], strict=True):
                scores.setdefault((method, sweeps), []).append(float(score))
            if i == 0:
                sheet.append(found["samples"])
    rows = []
    for (method, sweeps), found in scores.items():
        case = f"{sweeps} sweeps"
        rows.append(Row.over_runs(case, method, "log MMD^2", found, better="lower"))
    for method, spent in seconds.items():
        rows.append(Row("learning", method, "seconds", spent, n=1, better="lower"))
    lines = {
        method: (config["test_sweeps"], [np.mean(scores[method, s]) for s in config["test_sweeps"]])
        for method in seconds
    }
    image_grid(np.concatenate(sheet), (side, side), context.out / "samples.png", scale=2)
    caption = (
        "Data, then " + ", ".join(config["methods"]) + f" ({config['test_sweeps'][-1]} sweeps)"
    )
    return Outcome(
        rows=rows,
        curves=[curve("sample quality", "sweeps", "log MMD^2", lines)],
        images=[{"name": "samples", "caption": caption, "file": "samples.png"}],
        notes=[
            f"{len(data):,} contours of zeros, {side * side} variables; MMD against all of them.",
            "Gibbs sweeps the sites in order; GWG makes as many updates as there are variables.",
            "Seconds: of learning one model, where those of all seeds are learned side by side, "
            "without compilation.",
        ],
    )


def _learn(
    method: str, data: Float[np.ndarray, "rows n"], config: dict[str, Any], seed: int
) -> dict[str, np.ndarray]:
    """The models of all seeds, learned side by side."""
    sampler = _common.kernel(method, config["sweeps"], data.shape[1])
    models, spent = _common.learn_pairs(sampler, data, config, seed)
    return {**store(stack(models)), "seconds": np.asarray(spent)}


def _score(
    method: str,
    learned: dict[str, np.ndarray],
    data: Float[np.ndarray, "rows n"],
    config: dict[str, Any],
    seed: int,
) -> dict[str, np.ndarray]:
    """log MMD^2 of samples of one model after each number of sweeps, and the last of them."""
    n, key = data.shape[1], jax.random.key(seed)
    model = restore(Ising(jnp.zeros((n, n)), jnp.zeros(n)), learned)
    scores, x = [], data
    for sweeps in config["test_sweeps"]:
        test = _common.kernel(method.removesuffix("-reset"), sweeps, n)
        x, _ = _common.draw(
            test, model, len(data), jax.random.fold_in(key, sweeps), config["chunk"]
        )
        scores.append(log_mmd(x, data))
    return {"scores": np.asarray(scores), "samples": np.asarray(x[:10], np.float32)}
