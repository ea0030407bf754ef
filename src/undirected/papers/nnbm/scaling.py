"""Time and error of improved susceptibility propagation on grids of growing size."""

import resource
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from undirected.core.graph import grid
from undirected.experiments.record import Outcome, Row, curve
from undirected.experiments.stages import Context
from undirected.inference.susceptibility import ImprovedSusceptibility, Susceptibility
from undirected.inference.tap import TAP
from undirected.models.nonnegative import NonnegativeBM
from undirected.sampling.chain import run_chains
from undirected.sampling.rectified import RectifiedGibbs

TITLE = "Inference on grids of growing size"

_FULL = {
    "sides": [6, 10, 20, 30, 40, 50],
    "coupling": 0.8,
    "bias": 0.4,
    "tolerance": 1e-5,
    "chains": 256,
    "samples": 200,
    "burn_in": 100,
}

CONFIG: dict[str, dict[str, Any]] = {
    "smoke": {**_FULL, "sides": [3, 4], "chains": 32, "samples": 20, "burn_in": 10},
    "quick": {**_FULL, "sides": [6, 10, 20]},
    "full": _FULL,
}


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """Seconds of one inference, compilation left out, and errors against long Gibbs chains."""
    rows: list[Row] = []
    for side in config["sides"]:
        found = context.stage(f"{side} x {side}", lambda side=side: _measure(side, config, seed))
        for method, values in found.items():
            for metric, value in values.items():
                rows.append(Row(f"n = {side * side:,}", method, metric, value, better="lower"))
    lines = {}
    for method in ("SusP", "I-SusP"):
        timed = [r for r in rows if r.method == method and r.metric == "seconds"]
        lines[method] = [s * s for s in config["sides"]], [r.ours for r in timed]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return Outcome(
        rows=rows,
        curves=[curve("time of one inference", "units", "seconds", lines)],
        notes=[f"Peak memory of the whole run, sampling included: {peak:.2f} GiB."],
    )


def _measure(side: int, config: dict[str, Any], seed: int) -> dict[str, dict[str, float]]:
    graph = grid(side, side)
    bias_key, key = jax.random.split(jax.random.fold_in(jax.random.key(seed), side))
    span = config["bias"]
    bias = jax.random.uniform(bias_key, (graph.n,), minval=-span, maxval=span)
    weights = jnp.full(graph.n_edges, config["coupling"])
    model = NonnegativeBM.on_graph(graph, weights, jnp.ones(graph.n), bias)
    chains = run_chains(
        RectifiedGibbs(),
        model,
        None,
        key,
        samples=config["samples"],
        chains=config["chains"],
        burn_in=config["burn_in"],
        thin=3,
        keep=False,
        moments=True,
    )
    assert chains.beliefs is not None
    pairs = chains.beliefs.factors[1].weight
    ends = np.asarray(graph.edges)
    sampled = np.asarray(pairs - chains.mean[ends[:, 0]] * chains.mean[ends[:, 1]])
    found = {}
    tolerance = config["tolerance"]
    for method, infer in (
        ("SusP", Susceptibility(TAP(tolerance=tolerance), tolerance=tolerance)),
        ("I-SusP", ImprovedSusceptibility(tolerance=tolerance)),
    ):
        solve = jax.jit(infer)
        jax.block_until_ready(solve(model.lower()))
        begun = time.monotonic()
        beliefs = jax.block_until_ready(solve(model.lower()))
        seconds = time.monotonic() - begun
        covariance = np.asarray(beliefs.covariance)[ends[:, 0], ends[:, 1]]
        found[method] = {
            "seconds": seconds,
            "iterations": float(beliefs.iterations),
            "error of means": float(np.abs(beliefs.unary - chains.mean).mean()),
            "error of covariances": float(np.abs(covariance - sampled).mean()),
        }
    return found
