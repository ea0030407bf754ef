"""What the tables of this paper share: the corrupted data, the nine learners, the two errors."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Key

from undirected import data
from undirected.core.errors import UndirectedError
from undirected.data.corruption import flip, occlude
from undirected.evaluation import error_rate
from undirected.experiments.record import Outcome, Row, curve
from undirected.experiments.stages import Context
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
    fit,
)
from undirected.models import ConditionalRBM
from undirected.sampling import BlockGibbs

SHAPE = (28, 28)
METHODS = ["LR", "CD-1", "CD-10", "CD-PercLoss", "MLE-MF", "MLE-BP", "LSSVM", "MSSVM"]
FULL: dict[str, Any] = {
    "images": "mnist",
    "hidden": 256,
    "methods": [*METHODS, "MLE-BP+"],
    "epochs": 50,
    "cd_epochs": 200,
    "most_iterations": 30,
    "rates": [0.05, 0.02, 0.01],
    "batch": 40,
    "tune_epochs": 2,
    "patience": 8,
    "train": 50_000,
    "valid": 10_000,
    "test": 10_000,
    "plus_epochs": 40,
}
QUICK = FULL | {
    "images": "mnist5k",
    "hidden": 64,
    "methods": ["LR", "CD-1", "MLE-BP"],
    "epochs": 8,
    "cd_epochs": 8,
    "most_iterations": 12,
    "rates": [0.1],
    "batch": 20,
    "train": 3500,
    "valid": 500,
    "test": 1000,
    "plus_epochs": 8,
}
SMOKE = QUICK | {
    "hidden": 8,
    "epochs": 1,
    "cd_epochs": 1,
    "most_iterations": 3,
    "train": 100,
    "valid": 20,
    "test": 20,
    "plus_epochs": 1,
    "methods": [*METHODS, "MLE-BP+"],
}

Corrupt = Callable[[Array, Key[Array, ""]], tuple[Array, Array]]
CASES: dict[str, Corrupt] = {
    "noise 10 %": lambda v, key: flip(v, 0.1, key),
    "noise 20 %": lambda v, key: flip(v, 0.2, key),
    "occluded 8x8": lambda v, key: occlude(v, SHAPE, 8, key),
    "occluded 12x12": lambda v, key: occlude(v, SHAPE, 12, key),
}


def run_cases(
    cases: dict[str, str],
    paper: dict[tuple[str, str], tuple[float, float]],
    config: dict[str, Any],
    seed: int,
    context: Context,
) -> Outcome:
    """Every method on every case; `paper` has the errors (All, Changed) of (case, method)."""
    rows: list[Row] = []
    settled = {}
    for case, corruption in cases.items():
        splits = _images(config, seed)
        for method in config["methods"]:
            name = f"{case}, {method}"
            context.progress(f"{name}: learning")
            found = context.stage(
                name, lambda m=method, c=corruption, s=splits: _learn(m, CASES[c], s, config, seed)
            )
            theirs = paper.get((case, method), (None, None))
            for metric, key, published in zip(
                ("error, all pixels (%)", "error, changed pixels (%)"),
                ("all", "changed"),
                theirs,
                strict=True,
            ):
                value, stderr = found[key]
                count = len(splits["test"])
                rows.append(
                    Row(case, method, metric, value, stderr, count, published, better="lower")
                )
            if method == "MLE-BP":
                settled[case] = (found["epochs"], [100 * share for share in found["converged"]])
    curves = [curve("Converged instances (MLE-BP)", "epoch", "%", settled)] if settled else []
    notes = ["Corruption of the training images is drawn once, but afresh each step for MLE-BP+."]
    return Outcome(rows, curves=curves, notes=notes)


def _images(config: dict[str, Any], seed: int) -> dict[str, np.ndarray]:
    """Clean binary images, split; MNIST is thresholded at 127."""
    found = data.load(config["images"])
    if not len(found.valid):
        found = data.hold_out(found, config["valid"], seed)
    level = 127 if found.train.x.max() > 1 else 0
    return {
        part: (getattr(found, part).x[: config[part]] > level).astype(np.uint8)
        for part in ("train", "valid", "test")
    }


def _learn(
    method: str, corrupt: Corrupt, splits: dict[str, np.ndarray], config: dict[str, Any], seed: int
) -> dict[str, Any]:
    """Choose the learning rate on short runs, learn with early stopping, test once."""
    keys = dict(zip(splits, jax.random.split(jax.random.key(seed), 3), strict=True))
    pairs = {}
    for part, v in splits.items():
        x, _ = corrupt(jnp.asarray(v, jnp.float32), keys[part])
        pairs[part] = np.asarray(x, np.uint8), v, np.asarray(x != v)
    infer = _inference(method, config)

    def validate(model: ConditionalRBM, key: Key[Array, ""]) -> float:
        return _errors(model, pairs["valid"], infer, key)["all"][0]

    def train(rate: float, epochs: int) -> FitResult:
        size = 100 if method == "MLE-BP+" else config["batch"]
        x, v, _ = pairs["train"]
        if method == "MLE-BP+":
            batches = Batches(
                v, size, seed, transform=lambda v, k: (corrupt(v.astype(jnp.float32), k)[0], _f(v))
            )
        else:
            batches = Batches((x, v), size, seed, transform=lambda b, k: (_f(b[0]), _f(b[1])))
        per_epoch = batches.steps(1)
        hidden = 0 if method == "LR" else config["hidden"]
        model = ConditionalRBM.create(784, hidden, 784, jax.random.key(seed + 1))
        objective = Scheduled(lambda step: _objective(method, 1 + step // per_epoch, config))
        return fit(
            model,
            objective,
            _optimiser(method, rate, epochs * per_epoch),
            batches,
            jax.random.key(seed),
            epochs=epochs,
            log_every=per_epoch,
            validate=validate,
            mode="min",
            patience=config["patience"],
        )

    rates = [1e-3] if method == "MLE-BP+" else config["rates"]
    if len(rates) > 1:
        rates = [min(rates, key=lambda rate: train(rate, config["tune_epochs"]).best or np.inf)]
    epochs = config["cd_epochs" if method.startswith("CD") else "epochs"]
    result = train(rates[0], config["plus_epochs"] if method == "MLE-BP+" else epochs)
    found = _errors(result.best_model, pairs["test"], infer, jax.random.key(seed + 2))
    return found | {
        "rate": rates[0],
        "validation": result.best,
        "epochs": [row["epoch"] for row in result.history],
        "converged": [row.get("converged", 1.0) for row in result.history],
    }


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
        case "CD-PercLoss":
            inside = PerceptronLoss(gibbs, 10)
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
                f"crbm-bp: method {method!r} is unknown; pass some of {', '.join(FULL['methods'])}"
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


def _optimiser(method: str, rate: float, steps: int) -> optax.GradientTransformation:
    if method == "MLE-BP+":
        return optax.adam(optax.cosine_decay_schedule(rate, steps))
    return optax.inject_hyperparams(optax.sgd)(learning_rate=rate)


def _errors(
    model: ConditionalRBM,
    pairs: tuple[np.ndarray, np.ndarray, np.ndarray],
    infer: Any,
    key: Key[Array, ""],
) -> dict[str, tuple[float, float]]:
    """Wrong pixels in per cent, among all and among those the corruption changed."""
    x, v, changed = pairs
    answer = predict(model, x, infer, key) > 0.5
    scores = {"all": error_rate(answer, v), "changed": error_rate(answer, v, changed)}
    return {name: (100 * score.mean, 100 * score.stderr) for name, score in scores.items()}


def _f(a: Array) -> Array:
    return a.astype(jnp.float32)
