"""Table I: couplings and biases learned on a 6 x 6 grid with random biases (nnbm, 23)."""

from typing import Any

import jax
import jax.numpy as jnp

from undirected.core.graph import grid
from undirected.experiments.claims import Ahead, Claim, Meets
from undirected.experiments.record import Outcome
from undirected.experiments.stages import Context
from undirected.learning import stack
from undirected.models.nonnegative import NonnegativeBM
from undirected.papers.nnbm._common import compare

TITLE = "Learning on a square grid with random biases"
REPEATS = "data.trials"

PAPER = {"Downs": (0.515, 0.376), "SusP": (0.297, 0.095), "I-SusP": (0.153, 0.060)}

_METHODS = {
    "Downs": {"steps": 200, "rate": 0.02},
    "SusP": {"steps": 700, "rate": 0.03, "start": "inverse"},
    "I-SusP": {"steps": 700, "rate": 0.03, "start": "inverse"},
    "PCD": {"steps": 500, "rate": 0.03, "start": "inverse", "chains": 200},
    "pseudo-likelihood": {"steps": 400, "rate": 0.03, "start": "inverse", "rows": 1000},
}

_FULL = {
    "side": 6,
    "coupling": 0.8,
    "bias": 0.4,
    "data": {"trials": 50, "rows": 10_000},
    "many": {"trials": 3, "rows": 200_000},
    "chains": {"chains": 1000, "burn_in": 50, "thin": 6},
    "methods": _METHODS,
    "limit_methods": ["SusP", "I-SusP"],
}

_SMOKE = {
    **_FULL,
    "side": 3,
    "data": {"trials": 2, "rows": 10_000},
    "many": {"trials": 0, "rows": 500},
    "chains": {"chains": 100, "burn_in": 10, "thin": 2},
    "methods": {name: {**_METHODS[name], "steps": 30} for name in ("Downs", "SusP", "I-SusP")},
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
        "e_b 0.153 against 0.297 and 0.515; e_w 0.060 against 0.095 and 0.376",
        [
            Ahead(CASE, metric, "I-SusP", other)
            for metric in ("e_b", "e_w")
            for other in ("SusP", "Downs")
        ],
    ),
    Claim(
        "The errors of I-SusP are no larger than the printed ones.",
        "0.153, 0.060",
        [Meets(CASE, metric, "I-SusP", decimals=3) for metric in ("e_b", "e_w")],
    ),
    Claim(
        "The errors of SusP are no larger than the printed ones.",
        "0.297, 0.095",
        [Meets(CASE, metric, "SusP", decimals=3) for metric in ("e_b", "e_w")],
    ),
]


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """Mean absolute errors of every method over the trials."""
    graph = grid(config["side"], config["side"])
    bias_key, key = jax.random.split(jax.random.key(seed))
    trials = max(config["data"]["trials"], config["many"]["trials"])
    span = config["bias"]
    biases = jax.random.uniform(bias_key, (trials, graph.n), minval=-span, maxval=span)
    weights, diagonal = jnp.full(graph.n_edges, config["coupling"]), jnp.ones(graph.n)
    truth = stack([NonnegativeBM.on_graph(graph, weights, diagonal, bias) for bias in biases])
    return compare(truth, graph, config, key, context, PAPER)
