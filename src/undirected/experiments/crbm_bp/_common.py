"""What the tables of this paper share: the corrupted data, the learners, the two errors."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
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
from undirected.report.images import image_grid
from undirected.sampling import BlockGibbs

SHAPE = (28, 28)
SHOWN = 10
METHODS = ["LR", "CD-1", "CD-10", "CD-PercLoss", "MLE-MF", "MLE-BP", "LSSVM", "MSSVM"]
EXTRA = ["CD-10, random start", "MLE-BP+"]
FULL: dict[str, Any] = {
    "images": "mnist",
    "hidden": 256,
    "methods": METHODS + EXTRA,
    "epochs": 30,
    "plus_epochs": 40,
    "most_iterations": 30,
    "rates": {"LR": [0.05, 0.01], "CD": [0.02], "MLE": [0.05], "SVM": [0.02]},
    "tune_epochs": 30,
    "batch": 100,
    "patience": 6,
    "train": 50_000,
    "valid": 10_000,
    "test": 10_000,
}
QUICK = FULL | {
    "images": "mnist5k",
    "hidden": 64,
    "methods": ["LR", "CD-1", "MLE-BP"],
    "epochs": 8,
    "plus_epochs": 8,
    "most_iterations": 12,
    "rates": {"LR": [0.02], "CD": [0.005], "MLE": [0.02], "SVM": [0.005]},
    "batch": 20,
    "train": 3500,
    "valid": 500,
    "test": 1000,
}
SMOKE = QUICK | {
    "methods": METHODS + EXTRA,
    "hidden": 8,
    "epochs": 1,
    "plus_epochs": 1,
    "most_iterations": 3,
    "train": 100,
    "valid": 20,
    "test": 20,
}

Corrupt = Callable[[Array, Key[Array, ""]], tuple[Array, Array]]
CASES: dict[str, Corrupt] = {
    "noise 10 %": lambda v, key: flip(v, 0.1, key),
    "noise 20 %": lambda v, key: flip(v, 0.2, key),
    "occluded 8x8": lambda v, key: occlude(v, SHAPE, 8, key),
    "occluded 12x12": lambda v, key: occlude(v, SHAPE, 12, key),
}
Pairs = dict[str, tuple[np.ndarray, np.ndarray]]
METRICS = {"all": "error, all pixels (%)", "changed": "error, changed pixels (%)"}


def run_cases(
    cases: dict[str, str],
    paper: dict[tuple[str, str], tuple[float, float]],
    config: dict[str, Any],
    seed: int,
    context: Context,
) -> Outcome:
    """Every method on every case; `paper` has the errors (All, Changed) of (case, method).

    Every model with hidden units starts at the logistic regression of its case.
    """
    rows: list[Row] = []
    settled, images, chosen = {}, [], []
    for case, corruption in cases.items():
        pairs = _pairs(CASES[corruption], config, seed)
        work = _Work(CASES[corruption], pairs, config, seed)
        found: dict[str, dict[str, np.ndarray]] = {}
        for method in ["LR", *(name for name in config["methods"] if name != "LR")]:
            context.progress(f"{case}, {method}: learning")
            start = found.get("LR")
            found[method] = context.stage(
                f"{case}, {method}", lambda w=work, m=method, s=start: w.learn(m, s)
            )
        for method, got in ((name, found[name]) for name in config["methods"]):
            theirs = paper.get((case, method), (None, None))
            for (key, metric), published in zip(METRICS.items(), theirs, strict=True):
                value, stderr = (float(a) for a in got[key])
                count = len(pairs["test"][0])
                rows.append(
                    Row(case, method, metric, value, stderr, count, published, better="lower")
                )
            chosen.append(
                f"{case}, {method}: rate {got['rate'].item():g}, best on validation "
                f"({got['validation'].item():.3f} %) after epoch {got['best'].item():.0f}."
            )
            if method == "MLE-BP":
                settled[case] = (got["epochs"].tolist(), (100 * got["converged"]).tolist())
        images.append(_picture(case, pairs["test"], found, config["methods"], context))
    curves = [curve("Converged instances (MLE-BP)", "epoch", "%", settled)] if settled else []
    notes = [
        "Corruption of the training images is drawn once, but afresh each step for MLE-BP+.",
        *chosen,
    ]
    return Outcome(rows, curves=curves, images=images, notes=notes)


def _picture(
    case: str,
    test: tuple[np.ndarray, np.ndarray],
    found: dict[str, dict[str, np.ndarray]],
    methods: list[str],
    context: Context,
) -> dict[str, str]:
    """A sheet: truth, what is seen, and each method's answer, one row each."""
    x, v = (a[:SHOWN] for a in test)
    sheet = np.concatenate([v, x, *(found[m]["shown"].reshape(-1, v.shape[1]) for m in methods)])
    name = "".join(c if c.isalnum() else "-" for c in case.lower())
    image_grid(sheet.astype(np.float32), SHAPE, context.out / f"{name}.png", columns=len(x))
    caption = f"{case}. Rows: truth, seen, {', '.join(methods)}"
    return {"name": case, "caption": caption, "file": f"{name}.png"}


def _pairs(corrupt: Corrupt, config: dict[str, Any], seed: int) -> Pairs:
    """Corrupted and clean binary images of every part; MNIST is thresholded at 127."""
    found = data.load(config["images"])
    if not len(found.valid):
        found = data.hold_out(found, config["valid"], seed)
    level = 127 if found.train.x.max() > 1 else 0
    parts = ("train", "valid", "test")
    pairs = {}
    for part, key in zip(parts, jax.random.split(jax.random.key(seed), 3), strict=True):
        v = (getattr(found, part).x[: config[part]] > level).astype(np.uint8)
        x, _ = corrupt(jnp.asarray(v, jnp.float32), key)
        pairs[part] = np.asarray(x, np.uint8), v
    return pairs


class _Work:
    """Learning and testing on one case."""

    def __init__(self, corrupt: Corrupt, pairs: Pairs, config: dict[str, Any], seed: int):
        self.corrupt, self.pairs, self.config, self.seed = corrupt, pairs, config, seed

    def learn(self, method: str, start: dict[str, np.ndarray] | None) -> dict[str, np.ndarray]:
        """Choose the learning rate on validation, learn with early stopping, test once."""
        config = self.config
        infer = _inference(method, config)
        epochs = config["plus_epochs" if method == "MLE-BP+" else "epochs"]
        kind = next(name for name in ("CD", "SVM", "MLE", "LR") if name in method)
        rates = config["rates"][kind]
        short = min(epochs, config["tune_epochs"])
        runs = {rate: self._train(method, infer, start, rate, short) for rate in rates}
        rate = min(rates, key=lambda rate: runs[rate].best or np.inf)
        result = runs[rate]
        if short < epochs:
            result = self._train(method, infer, start, rate, epochs)
        best = result.best_model
        x, v = self.pairs["test"]
        answer = predict(best, x, infer, jax.random.key(self.seed + 2))
        history, per_epoch = result.history, result.step / max(1, len(result.history))
        arrays = {
            "rate": rate,
            "validation": result.best,
            "best": (result.best_step or 0) / per_epoch,
            "epochs": [row["epoch"] for row in history],
            "converged": [row.get("converged", 1.0) for row in history],
            "shown": answer[:SHOWN],
            **_errors(answer > 0.5, x, v),
        }
        if method == "LR":
            arrays |= {"features": best.visible_features, "bias": best.visible_bias}
        return {name: np.asarray(value, np.float32) for name, value in arrays.items()}

    def _train(
        self,
        method: str,
        infer: Any,
        start: dict[str, np.ndarray] | None,
        rate: float,
        epochs: int,
    ) -> FitResult:
        """Momentum, a rate that falls to zero as a cosine, the best epoch on validation kept."""
        config, seed, corrupt = self.config, self.seed, self.corrupt
        x, v = self.pairs["train"]
        if method == "MLE-BP+":
            batches = Batches(
                v, config["batch"], seed, transform=lambda v, k: (corrupt(_f(v), k)[0], _f(v))
            )
        else:
            batches = Batches(
                (x, v), config["batch"], seed, transform=lambda b, k: (_f(b[0]), _f(b[1]))
            )
        hidden = 0 if method == "LR" else config["hidden"]
        model = ConditionalRBM.create(v.shape[1], hidden, v.shape[1], jax.random.key(seed + 1))
        if start is not None:
            first = jnp.asarray(start["features"]), jnp.asarray(start["bias"])
            model = eqx.tree_at(lambda m: (m.visible_features, m.visible_bias), model, first)
        per_epoch = batches.steps(1)

        def validate(model: ConditionalRBM, key: Key[Array, ""]) -> float:
            x, v = self.pairs["valid"]
            return float(_errors(predict(model, x, infer, key) > 0.5, x, v)["all"][0])

        return fit(
            model,
            Scheduled(lambda step: _objective(method, 1 + step // per_epoch, config)),
            optax.sgd(optax.cosine_decay_schedule(rate, epochs * per_epoch), 0.9),
            batches,
            jax.random.key(seed),
            epochs=epochs,
            log_every=per_epoch,
            validate=validate,
            mode="min",
            patience=config["patience"],
        )


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


def _errors(answer: np.ndarray, x: np.ndarray, v: np.ndarray) -> dict[str, tuple[float, float]]:
    """Wrong pixels in per cent, among all and among those the corruption changed."""
    scores = {"all": error_rate(answer, v), "changed": error_rate(answer, v, x != v)}
    return {name: (100 * score.mean, 100 * score.stderr) for name, score in scores.items()}


def _f(a: Array) -> Array:
    return a.astype(jnp.float32)
