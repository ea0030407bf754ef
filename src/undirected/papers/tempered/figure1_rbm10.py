"""Figure 1, top: an RBM with 10 hidden units, learned in six ways, by its exact likelihood."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from undirected.experiments.claims import Ahead, Claim
from undirected.experiments.record import Outcome, Row, curve
from undirected.experiments.stages import Context, restore
from undirected.learning import Batches, ImportanceSampled, PseudoLikelihood
from undirected.models import RBM
from undirected.papers.tempered import _common
from undirected.sampling import BlockGibbs

TITLE = "An RBM with 10 hidden units on MNIST (Figure 1, top)"
_FULL: dict[str, Any] = {
    "images": "mnist",
    "train": 50_000,
    "valid": 10_000,
    "test": 10_000,
    "hidden": 10,
    "batch": 100,
    "chains": 100,
    "gibbs": 100_000,
    "fair": True,
    "rate": 0.01,
    "decay": 0.0,
    "hold": 10_000,
    "offset": 1000.0,
    "tempered": {"betas": 50, "lowest": 0.9, "every": 200, "after": 50_000},
    "rungs": 5,
    "pseudo_likelihood": 30_000,
    "importance": {"samples": 5000, "burn_in": 100, "updates": 3000},
    "methods": ["exact", "SAP", "Trans-SAP", "PT-SAP", "PL", "MCMC-MLE"],
    "points": 100,
    "chunk": 1000,
    "rows": 10_000,
}
_QUICK = {
    **_FULL,
    "images": "mnist5k",
    "train": 3500,
    "valid": 500,
    "test": 1000,
    "gibbs": 16_000,
    "hold": 4000,
    "tempered": {"betas": 50, "lowest": 0.9, "every": 200, "after": 8000},
    "pseudo_likelihood": 4000,
    "importance": {"samples": 2000, "burn_in": 100, "updates": 1000},
    "points": 40,
    "rows": 3500,
}
CONFIG: dict[str, dict[str, Any]] = {
    "smoke": {
        **_QUICK,
        "methods": ["exact", "SAP", "Trans-SAP", "PL", "MCMC-MLE"],
        "train": 200,
        "test": 50,
        "hidden": 3,
        "batch": 20,
        "chains": 10,
        "gibbs": 40,
        "hold": 10,
        "tempered": {"betas": 3, "lowest": 0.9, "every": 5, "after": 10},
        "rungs": 2,
        "pseudo_likelihood": 10,
        "importance": {"samples": 20, "burn_in": 5, "updates": 8},
        "points": 4,
        "rows": 100,
    },
    "quick": _QUICK,
    "full": _FULL,
}
PIXELS = 784
NAMES = {"exact": "exact maximum likelihood", "PL": "pseudo-likelihood"}
_METRIC = "training log-probability (nats)"
CLAIMS = [
    Claim(
        "On an RBM with 10 hidden units Trans-SAP comes nearer to maximum likelihood than SAP, at "
        "equal Gibbs updates.",
        "read off Figure 1",
        [Ahead("MNIST", _METRIC, "Trans-SAP", "SAP")],
    ),
    Claim(
        "Pseudo-likelihood and MCMC maximum likelihood stay behind both.",
        "read off Figure 1",
        [
            Ahead("MNIST", _METRIC, ours, other)
            for ours in ("SAP", "Trans-SAP")
            for other in ("pseudo-likelihood", "MCMC-MLE")
        ],
    ),
]


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """Training and test log-probability at the end, and the curves against Gibbs updates."""
    digits = _common.load_digits(config, seed)
    train = _common.binarise(digits.x, seed + 1).astype(np.uint8)
    batches = Batches(train, config["batch"], seed)
    start = RBM.create(
        train.shape[1], config["hidden"], jax.random.key(seed), means=jnp.asarray(train.mean(0))
    )
    some = jnp.asarray(train[: config["rows"]], jnp.float32)
    learning = _common.Learning(
        start, batches, config, seed, context, lambda model: _common.mean_log_p(model, some)
    )
    rows: list[Row] = []
    lines: dict[str, tuple] = {}
    traces: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    notes = []
    for method, steps, found in _run_all(learning, config):
        name = NAMES.get(method, method)
        model = restore(start, found)
        for part, v in (("training", some), ("test", jnp.asarray(digits.test[:, :PIXELS]))):
            value = float(_common.mean_log_p(model, v))
            metric = f"{part} log-probability (nats)"
            rows.append(Row("MNIST", name, metric, value, n=len(v), better="higher"))
        highest = float(np.nanmax(found["curve.validation"]))
        metric = "highest training log-probability on the way (nats)"
        rows.append(Row("MNIST", name, metric, highest, n=len(some), better="higher"))
        rows += _side_rows(name, found)
        seen = np.isfinite(found["curve.validation"])
        updates = _common.gibbs_updates(found, config, method)[seen]
        traces[name] = found["curve.step"][seen], found["curve.validation"][seen]
        lines[name] = updates.tolist(), traces[name][1].tolist()
        spent = _common.seconds(context, method)
        notes.append(f"{name}: {steps} parameter updates in {spent:.0f} s.")
    rows += _gaps(traces, config["tempered"]["after"])
    return Outcome(
        rows=rows,
        curves=[curve("learning", "Gibbs updates", "training log-probability (nats)", lines)],
        notes=[
            *notes,
            "Training images are binarised once. The curves of pseudo-likelihood and of MCMC-MLE "
            "are against their parameter updates, since they make no Gibbs updates. MCMC-MLE takes "
            "the model at the start as its proposal and is stopped early: once its samples miss "
            "where the model has moved to, its estimate goes up while the likelihood goes down.",
        ],
    )


def _run_all(
    learning: _common.Learning, config: dict[str, Any]
) -> Iterator[tuple[str, int, _common.Arrays]]:
    """Name, parameter updates and result of every method."""
    how = config["importance"]
    weighted = ImportanceSampled(BlockGibbs(), how["samples"], how["burn_in"])
    others: dict[str, tuple[Any, int]] = {
        "exact": (_common.ExactLikelihood(), config["gibbs"]),
        "PL": (PseudoLikelihood(), config["pseudo_likelihood"]),
        "MCMC-MLE": (weighted, how["updates"]),
    }
    yield from learning.run_all(config["methods"], BlockGibbs())
    for method in config["methods"]:
        if method in others:
            objective, steps = others[method]
            yield method, steps, learning.run(method, objective, steps)


def _gaps(traces: dict[str, tuple[np.ndarray, np.ndarray]], after: int) -> list[Row]:
    """How far below exact maximum likelihood the learners with particles are, once jumps begin.

    The mean is over the parameter updates that all of those learners make, so that each is compared
    with the same stretch of the exact curve; one with fewer updates than that has no row.
    """
    exact = traces.get(NAMES["exact"])
    late = {n: traces[n] for n in _common.PARTICLES if n in traces and traces[n][0][-1] > after}
    if exact is None or not late:
        return []
    last = min(steps[-1] for steps, _ in late.values())
    rows = []
    for name, (steps, values) in late.items():
        shared = (steps > after) & (steps <= last)
        gap = np.interp(steps[shared], *exact) - values[shared]
        metric = "mean gap to exact ML at equal parameter updates, once jumps begin (nats)"
        rows.append(Row("MNIST", name, metric, float(gap.mean()), n=len(gap), better="lower"))
    return rows


def _side_rows(name: str, found: _common.Arrays) -> list[Row]:
    """How often tempered runs were accepted and rungs swapped, what the samples were worth."""
    rows = []
    accepted = _common.acceptance(found)
    if accepted is not None:
        metric = "acceptance of tempered runs"
        rows.append(Row("MNIST", name, metric, accepted, paper=0.8, better="higher"))
    for column, metric in (("swap_rates", "swap rate"), ("ess", "effective sample size")):
        if f"curve.{column}" in found:
            last = float(found[f"curve.{column}"][-1])
            rows.append(Row("MNIST", name, f"{metric}, at the end", last, better="higher"))
    return rows
