"""Table II: couplings and biases learned on a ring of orientation-tuned neurons (nnbm, 24)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from undirected.experiments.claims import Ahead, Claim, Meets
from undirected.experiments.record import Outcome
from undirected.experiments.stages import Context
from undirected.learning import stack
from undirected.models.nonnegative import NonnegativeBM
from undirected.papers.nnbm._common import compare

TITLE = "Learning a neural model of orientation tuning"
REPEATS = "data.trials"

PAPER = {"Downs": (10.772, 0.700), "SusP": (1.644, 0.151), "I-SusP": (0.480, 0.107)}

_METHODS = {
    "Downs": {"steps": 200, "rate": 0.02},
    "SusP": {"steps": 20, "rate": 1e-4, "start": "inverse"},
    "I-SusP": {"steps": 20, "rate": 1e-4, "start": "inverse"},
    "PCD": {"steps": 300, "rate": 0.01, "start": "inverse", "chains": 100},
    "pseudo-likelihood": {"steps": 300, "rate": 0.02, "start": "inverse", "rows": 400},
}

_FULL = {
    "units": 36,
    "beta": 10.0,
    "epsilon": 2.0,
    "data": {"trials": 50, "rows": 10_000},
    "many": {"trials": 3, "rows": 200_000},
    "chains": {"chains": 1000, "burn_in": 60, "thin": 10},
    "methods": _METHODS,
    "limit_methods": ["SusP", "I-SusP"],
}

_SMOKE = {
    **_FULL,
    "units": 8,
    "data": {"trials": 2, "rows": 500},
    "many": {"trials": 0, "rows": 500},
    "chains": {"chains": 100, "burn_in": 10, "thin": 2},
    "methods": {
        name: {**_METHODS[name], "steps": 10} for name in ("I-SusP", "PCD", "pseudo-likelihood")
    },
}

CONFIG: dict[str, dict[str, Any]] = {
    "smoke": _SMOKE,
    "quick": {**_FULL, "data": {"trials": 5, "rows": 10_000}, "many": {"trials": 0, "rows": 1}},
    "full": _FULL,
}
CASE = "10,000 samples"
CLAIMS = [
    Claim(
        "Improved susceptibility propagation (I-SusP) learns parameters nearer to the true ones "
        "than susceptibility propagation (SusP) and than the expansion of Downs.",
        "e_b 0.480 against 1.644 and 10.772; e_w 0.107 against 0.151 and 0.700",
        [
            Ahead(CASE, metric, "I-SusP", other)
            for metric in ("e_b", "e_w")
            for other in ("SusP", "Downs")
        ],
    ),
    Claim(
        "The errors of I-SusP are no larger than the printed ones.",
        "0.480, 0.107",
        [Meets(CASE, metric, "I-SusP", decimals=3) for metric in ("e_b", "e_w")],
    ),
    Claim(
        "The errors of SusP are no larger than the printed ones.",
        "1.644, 0.151",
        [Meets(CASE, metric, "SusP", decimals=3) for metric in ("e_b", "e_w")],
    ),
]


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """Mean absolute errors of every method over the trials."""
    n, beta = config["units"], config["beta"]
    angle = 2 * np.pi * np.abs(np.subtract.outer(np.arange(n), np.arange(n))) / n
    matrix = beta * (np.eye(n) + 1 / n - config["epsilon"] / n * np.cos(angle))
    one = NonnegativeBM.from_matrix(jnp.asarray(matrix, jnp.float32), jnp.full(n, beta))
    trials = max(config["data"]["trials"], config["many"]["trials"])
    truth = stack([one] * trials)
    return compare(truth, None, config, jax.random.key(seed), context, PAPER)
