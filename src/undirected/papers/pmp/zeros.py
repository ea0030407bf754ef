"""Section 5.3, Figure 1 right and Figure 4 bottom left: an Ising model of the contours of zeros."""

import os
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Float

from undirected.data.ownership import SIDE
from undirected.evaluation import log_mmd
from undirected.experiments.claims import Claim, Near, everywhere
from undirected.experiments.record import Outcome, Row, curve
from undirected.experiments.stages import Context, restore, store
from undirected.inference.linear_program import minimum_cut
from undirected.learning import stack
from undirected.models import Ising
from undirected.papers.pmp import _common
from undirected.report.images import image_grid

TITLE = "Ising models of the contours of MNIST zeros (Section 5.3)"
REPEATS = "seeds"
PARTS = ("methods",)
_METHODS = ["PMP", "Gibbs", "Gibbs-reset", "GWG", "GWG-reset", "LP"]
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
    "lp": {"steps": 200, "rate": 0.01, "samples": 100, "test_samples": 5923, "seeds": 3},
}
CONFIG: dict[str, dict[str, Any]] = {
    "smoke": {
        **_FULL,
        "rows": 50,
        "pool": 5,
        "methods": ["PMP", "LP"],
        "steps": 2,
        "samples": 5,
        "sweeps": 2,
        "test_sweeps": [2],
        "seeds": 1,
        "chunk": 25,
        "lp": {"steps": 2, "rate": 0.01, "samples": 4, "test_samples": 20, "seeds": 2},
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
        "lp": {"steps": 50, "rate": 0.05, "samples": 20, "test_samples": 500, "seeds": 1},
    },
    "full": _FULL,
}
PAPER_LP = -4.33
"""log MMD^2 of learning with an LP solver in place of max-product."""
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
    Claim(
        "Exact relaxations make worse samples: log MMD² as printed.",
        f"{PAPER_LP}",
        [Near("exact relaxation", "log MMD^2", "LP", margin=0.1)],
    ),
]


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """log MMD^2 of samples by every method, after so many sweeps, from a model it has learned."""
    data = _common.contours(config["rows"], config["pool"])
    side = SIDE // config["pool"]
    scores: dict[tuple[str, int], list[float]] = {}
    seconds: dict[str, float] = {}
    sheet, relaxed = [data[:10]], []
    for method in config["methods"]:
        if method == "LP":
            relaxed = _relaxed_runs(data, config["lp"], seed, context)
            sheet.append(relaxed[0]["samples"])
            continue
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
    rows, notes = _relaxed_rows(relaxed, config["lp"]) if relaxed else ([], [])
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
        curves=[curve("sample quality", "sweeps", "log MMD^2", lines)] if len(lines) else [],
        images=[{"name": "samples", "caption": caption, "file": "samples.png"}],
        notes=[
            f"{len(data):,} contours of zeros, {side * side} variables; MMD against all of them.",
            *notes,
            "Gibbs sweeps the sites in order; GWG makes as many updates as there are variables.",
            "Seconds: of learning one model, where those of all seeds are learned side by side, "
            "without compilation.",
        ],
    )


def _relaxed_runs(
    data: Float[np.ndarray, "rows n"], how: dict[str, Any], seed: int, context: Context
) -> list[dict[str, Any]]:
    """The exact relaxation, learned and sampled with every seed."""
    found = []
    for i in range(how["seeds"]):
        learn = partial(_learn_relaxed, data, how, seed + i, context)
        learned = context.stage(f"LP, seed {i}, learn", learn)
        sample = partial(_relaxed, learned, data, how, seed + i)
        found.append(context.stage(f"LP, seed {i}", sample))
    return found


def _relaxed_rows(
    relaxed: list[dict[str, Any]], how: dict[str, Any]
) -> tuple[list[Row], list[str]]:
    """The row of the relaxation, and what is to be said of it."""
    exact = [float(one["score"]) for one in relaxed]
    row = Row.over_runs("exact relaxation", "LP", "log MMD^2", exact, PAPER_LP, better="lower")
    halves = np.mean([one["halves"] for one in relaxed])
    note = (
        f"LP: relaxations of perturbed problems, solved exactly, {how['samples']} in each of "
        f"{how['steps']} steps; a unit at one half is set by a coin. A share of {halves:.2f} of "
        "the units ended there. The paper's figure has a standard error of 0.20."
    )
    return [row], [note]


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


def _learn_relaxed(
    data: Float[np.ndarray, "rows n"], how: dict[str, Any], seed: int, context: Context
) -> dict[str, np.ndarray]:
    """Perturb-and-MAP with the LP relaxation in the place of max-product: what it learns."""
    n, rng = data.shape[1], np.random.default_rng(seed)
    wanted = _pair_moments(data)
    parameters: Any = jnp.zeros((n, n)), jnp.zeros(n)
    optimiser = optax.adam(how["rate"])
    state = optimiser.init(parameters)
    with _processes() as pool:
        for step in range(how["steps"]):
            x, _ = _relaxed_draws(parameters, how["samples"], rng, pool)
            slope = jax.tree.map(lambda a, b: jnp.asarray(a - b), _pair_moments(x), wanted)
            update, state = optimiser.update(slope, state)
            parameters = optax.apply_updates(parameters, update)
            context.progress(f"LP: step {step + 1} of {how['steps']}", (step + 1) / how["steps"])
    return {"weights": np.asarray(parameters[0]), "bias": np.asarray(parameters[1])}


def _relaxed(
    learned: dict[str, np.ndarray],
    data: Float[np.ndarray, "rows n"],
    how: dict[str, Any],
    seed: int,
) -> dict[str, np.ndarray]:
    """Samples of the same from what was learned, and their log MMD^2."""
    parameters, rng = (learned["weights"], learned["bias"]), np.random.default_rng([seed, 1])
    with _processes() as pool:
        x, halves = _relaxed_draws(parameters, how["test_samples"], rng, pool)
    return {
        "score": np.asarray(log_mmd(x, data)),
        "samples": x[:10].astype(np.float32),
        "halves": np.asarray(halves),
    }


def _processes() -> Executor:
    return ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn"))


def _pair_moments(x: Float[np.ndarray, "rows n"]) -> tuple[np.ndarray, np.ndarray]:
    """Means of products of two units, none with itself, and of units."""
    second = x.T @ x / len(x)
    np.fill_diagonal(second, 0.0)
    return second, x.mean(0)


def _relaxed_draws(
    parameters: tuple[Any, Any], count: int, rng: np.random.Generator, pool: Executor
) -> tuple[Float[np.ndarray, "count n"], float]:
    """Rounded optima of perturbed relaxations, and the share of units that were at one half."""
    weights, bias = (np.asarray(a, float) for a in parameters)
    noise = rng.logistic(size=(count, len(bias)))
    parts = np.array_split(noise, min(count, os.cpu_count() or 1))
    found = np.concatenate(list(pool.map(partial(_relaxations, weights, bias), parts)))
    x = np.where(found == 0.5, rng.integers(0, 2, found.shape), found)
    return x, float((found == 0.5).mean())


def _relaxations(
    weights: Float[np.ndarray, "n n"],
    bias: Float[np.ndarray, " n"],
    noise: Float[np.ndarray, "count n"],
) -> Float[np.ndarray, "count n"]:
    upper = np.triu_indices(len(bias), 1)
    pairs = np.stack(upper, 1)
    return np.stack([minimum_cut(bias + one, pairs, weights[upper]) for one in noise])
