"""What the experiments of this paper share: the learners, and how a model is learned and tested."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Key

from undirected.core.errors import UndirectedError
from undirected.experiments.fitting import fit
from undirected.inference import MaxProduct, MeanField, MixedProduct, SumProduct, predict
from undirected.learning import (
    Batches,
    Conditional,
    ContrastiveDivergence,
    FitResult,
    MaxMargin,
    PerceptronLoss,
    Scheduled,
    TwoPhase,
)
from undirected.models import ConditionalRBM
from undirected.sampling import BlockGibbs

METHODS = ["LR", "CD-1", "CD-10", "CD-PercLoss", "MLE-MF", "MLE-BP", "LSSVM", "MSSVM"]
EXTRA = ["CD-10, random start", "MLE-BP+"]
SHOWN = 10
Pair = tuple[np.ndarray, np.ndarray]
Scores = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Task:
    """Features and targets of every part, and how answers are scored.

    `score(answers, x, v)` gives means and standard errors by name; the first one is validated on.
    `redraw(v, key)` draws the features of a batch of targets anew, where a learner wants that.
    """

    train: Pair
    valid: Pair
    test: Pair
    score: Callable[[np.ndarray, np.ndarray, np.ndarray], Scores]
    redraw: Callable[[Array, Key[Array, ""]], Array] | None = None


def learn(
    task: Task,
    method: str,
    config: dict[str, Any],
    seed: int,
    start: dict[str, np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """Choose the learning rate on validation, learn with early stopping, test once.

    `start` is what this function gave for "LR": its weights are where learning begins.
    """
    infer = _inference(method, config)
    epochs = config["plus_epochs" if method == "MLE-BP+" else "epochs"]
    kind = next(name for name in ("CD", "SVM", "MLE", "LR") if name in method)
    rates = config["rates"][kind]
    runs = {rate: _train(task, method, infer, config, seed, start, rate, epochs) for rate in rates}
    rate = min(rates, key=lambda rate: runs[rate].best or np.inf)
    result = runs[rate]
    best = result.best_model
    x, v = task.test
    answers = predict(best, x, infer, jax.random.key(seed + 2))
    arrays = {
        "rate": rate,
        "validation": result.best,
        "best": (result.best_step or 0) / result.step * result.history[-1]["epoch"],
        "epochs": [row["epoch"] for row in result.history],
        "converged": [row.get("converged", 1.0) for row in result.history],
        "shown": answers[:SHOWN],
        **task.score(answers, x, v),
    }
    if method == "LR":
        arrays |= {"features": best.visible_features, "bias": best.visible_bias}
    return {name: np.asarray(value, np.float32) for name, value in arrays.items()}


def _train(
    task: Task,
    method: str,
    infer: Any,
    config: dict[str, Any],
    seed: int,
    start: dict[str, np.ndarray] | None,
    rate: float,
    epochs: int,
) -> FitResult:
    """Momentum, a rate that falls to zero as a cosine, the best epoch on validation kept.

    The model before the first step is validated too: where no epoch is better, it is kept.
    """
    x, v = task.train
    redraw = task.redraw if method == "MLE-BP+" else None
    if redraw is not None:
        batches = Batches(
            v, config["batch"], seed, transform=lambda v, k: (redraw(_f(v), k), _f(v))
        )
    else:
        batches = Batches(
            (x, v), config["batch"], seed, transform=lambda pair, k: (_f(pair[0]), _f(pair[1]))
        )
    hidden = 0 if method == "LR" else config["hidden"]
    model = ConditionalRBM.create(v.shape[1], hidden, x.shape[1], jax.random.key(seed + 1))
    if start is not None:
        first = jnp.asarray(start["features"]), jnp.asarray(start["bias"])
        model = eqx.tree_at(lambda m: (m.visible_features, m.visible_bias), model, first)
    per_epoch = batches.steps(1)

    def validate(model: ConditionalRBM, key: Key[Array, ""]) -> float:
        x, v = task.valid
        return next(iter(task.score(predict(model, x, infer, key), x, v).values()))[0]

    result = fit(
        model,
        Scheduled(lambda step: _objective(method, 1 + step // per_epoch, config)),
        _optimiser(rate, epochs * per_epoch, config.get("optimiser", "momentum")),
        batches,
        jax.random.key(seed),
        epochs=epochs,
        log_every=per_epoch,
        validate=validate,
        mode="min",
        patience=config["patience"],
    )
    before = validate(model, jax.random.key(seed))
    if result.best is not None and result.best <= before:
        return result
    return replace(result, best=before, best_model=model, best_step=0)


def _optimiser(rate: float, steps: int, name: str) -> optax.GradientTransformation:
    falling = optax.cosine_decay_schedule(rate, steps)
    match name:
        case "momentum":
            return optax.sgd(falling, 0.9)
        case "constant":
            return optax.sgd(rate, 0.9)
        case "adam":
            return optax.adam(falling)
    raise UndirectedError(f"crbm-bp: optimiser {name!r} is none of momentum, constant, adam")


def _objective(method: str, epoch: Array, config: dict[str, Any]) -> Conditional:
    """The learner of a row of the tables; T = 7 + epoch iterations, up to a limit."""
    T = jnp.minimum(7 + epoch, config["most_iterations"])
    gibbs = BlockGibbs()
    match method:
        case "LR":
            inside: Any = TwoPhase(SumProduct(1, None))
        case "CD-1":
            inside = ContrastiveDivergence(gibbs, 1)
        case "CD-10":
            inside = ContrastiveDivergence(gibbs, 10)
        case "CD-10, random start":
            inside = ContrastiveDivergence(gibbs, 10, start="random")
        case "CD-PercLoss":
            inside = PerceptronLoss(gibbs, 10, start="data")
        case "MLE-MF":
            inside = TwoPhase(MeanField(T, 1e-3))
        case "MLE-BP" | "MLE-BP+":
            inside = TwoPhase(SumProduct(T, 1e-3))
        case "LSSVM":
            inside = MaxMargin(MaxProduct(T, 1e-3, damping=0.0), hidden="max")
        case "MSSVM":
            inside = MaxMargin(MixedProduct(T))
        case _:
            raise UndirectedError(
                f"crbm-bp: method {method!r} is unknown; pass some of {', '.join(METHODS + EXTRA)}"
            )
    return Conditional(inside)


def _inference(method: str, config: dict[str, Any]) -> Any:
    """What a model learned this way is asked by: the inference it was learned with."""
    T = config["most_iterations"]
    if method in ("LR", "MLE-BP", "MLE-BP+"):
        return SumProduct(T, 1e-3)
    if method == "LSSVM":
        return MaxProduct(T, 1e-3, damping=0.0)
    return MixedProduct(T) if method == "MSSVM" else MeanField(T, 1e-3)


def _f(a: Array) -> Array:
    return a.astype(jnp.float32)
