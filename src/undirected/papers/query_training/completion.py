"""Beyond the paper: completing covered MNIST digits, against conditional RBMs."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from undirected import data
from undirected.data.corruption import occlude
from undirected.evaluation import error_rate
from undirected.experiments.fitting import fit
from undirected.experiments.record import Outcome, Row
from undirected.experiments.stages import Context
from undirected.inference import QueryNetwork, SumProduct, predict
from undirected.learning import (
    Batches,
    Conditional,
    PatchQueries,
    TwoPhase,
    answers,
    member,
    stack,
)
from undirected.models import RBM, ConditionalRBM, SpinForm
from undirected.papers.query_training._common import (
    Perceptron,
    query_train,
)
from undirected.report.images import image_grid

TITLE = "Completing covered digits: query training and conditional RBMs"
SHAPE = (28, 28)
SHOWN = 10
_FULL: dict[str, Any] = {
    "images": "mnist",
    "sizes": [8, 12],
    "hidden": 256,
    "epochs": 30,
    "rate": 0.003,
    "crbm_rate": 0.02,
    "decay": 0.02,
    "batch": 100,
    "layers": 10,
    "strength": 5.0,
    "iterations": 30,
    "validate_every": 1,
    "train": 50_000,
    "valid": 10_000,
    "test": 10_000,
}
_QUICK = {
    **_FULL,
    "images": "mnist5k",
    "sizes": [12],
    "hidden": 64,
    "epochs": 8,
    "iterations": 12,
    "batch": 20,
    "train": 3500,
    "valid": 500,
    "test": 1000,
}
CONFIG: dict[str, dict[str, Any]] = {
    "smoke": {
        **_QUICK,
        "hidden": 4,
        "layers": 3,
        "epochs": 1,
        "iterations": 3,
        "train": 100,
        "valid": 20,
        "test": 20,
    },
    "quick": _QUICK,
    "full": _FULL,
}
METHODS = ["RBM by QT", "perceptron", "CRBM by BP", "CRBM by BP, told the place"]
METRICS = {"all": "error, all pixels (%)", "changed": "error, changed pixels (%)"}
Part = tuple[np.ndarray, np.ndarray]


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """Wrong pixels of every method on the same covered test images."""
    rows: list[Row] = []
    images = []
    for size in config["sizes"]:
        parts = _images(size, config, seed)
        case = f"MNIST, occluded {size}x{size}"
        v, hit = parts["test"]
        sheet = [v[:SHOWN], np.where(hit[:SHOWN], 0, v[:SHOWN])]
        for method in METHODS:
            context.progress(f"{size}x{size}: {method}")
            learn = _query_trained if method in METHODS[:2] else _conditional
            found = context.stage(
                f"{size}x{size}, {method}", partial(learn, method, size, parts, config, seed)
            )
            for key, metric in METRICS.items():
                value, stderr = found[key].tolist()
                rows.append(Row(case, method, metric, value, stderr, len(v), better="lower"))
            sheet.append(found["shown"])
        name = f"completion-{size}.png"
        image_grid(
            np.concatenate(sheet).astype(np.float32), SHAPE, context.out / name, columns=SHOWN
        )
        caption = f"{size}x{size}. Rows: truth, seen, {', '.join(METHODS)}"
        images.append({"name": f"{size}x{size}", "caption": caption, "file": name})
    notes = [
        "Query training and the perceptron learn from whole images and are told which pixels are "
        "covered, which a conditional RBM has to see by itself unless it is told too.",
        "Known pixels are copied where the place is told.",
    ]
    return Outcome(rows, images=images, notes=notes)


def _images(size: int, config: dict[str, Any], seed: int) -> dict[str, Part]:
    """Binary images of every part, and what a patch of each covers."""
    found = data.load(config["images"])
    if not len(found.valid):
        found = data.hold_out(found, config["valid"], seed)
    keys = jax.random.split(jax.random.key(seed), 3)
    parts = {}
    for part, key in zip(("train", "valid", "test"), keys, strict=True):
        v = (getattr(found, part).x[: config[part]] > 127).astype(np.uint8)
        _, hit = occlude(jnp.asarray(v), SHAPE, size, key)
        parts[part] = v, np.asarray(hit)
    return parts


def _query_trained(
    method: str, size: int, parts: dict[str, Part], config: dict[str, Any], seed: int
) -> dict[str, np.ndarray]:
    """Learn to answer patches of this size; the best epoch on validation is tested."""
    train, (valid, valid_hit), (v, hit) = parts["train"][0], parts["valid"], parts["test"]
    key, n = jax.random.key(seed), v.shape[1]
    if method == "perceptron":
        network: Any = Perceptron.like(n, config["hidden"], key)
    else:
        model = SpinForm(RBM.create(n, config["hidden"], key))
        strength = jnp.asarray(config["strength"])
        network = QueryNetwork(model, strength, config["layers"], symmetric_start=True)
    best = query_train(
        stack([network]),
        PatchQueries(SHAPE, (size, size)),
        train.astype(np.float32),
        valid.astype(np.float32),
        jnp.asarray(valid_hit),
        {"rate": config["rate"], "epochs": config["epochs"]},
        config,
        seed,
    )
    p = answers(member(best.models, 0), np.where(hit, np.nan, v))
    return _result(np.where(hit, p, v), v, hit)


def _conditional(
    method: str, size: int, parts: dict[str, Part], config: dict[str, Any], seed: int
) -> dict[str, np.ndarray]:
    """Learn the image given what is seen of it, by belief propagation as in crbm-bp."""
    told = method.endswith("told the place")

    def features(v: np.ndarray, hit: np.ndarray) -> np.ndarray:
        seen = np.where(hit, 0, v)
        return np.concatenate([seen, hit], 1).astype(np.uint8) if told else seen

    x = {part: features(*pair) for part, pair in parts.items()}
    infer = SumProduct(config["iterations"], 1e-3)
    batches = Batches(
        (x["train"], parts["train"][0]),
        config["batch"],
        seed,
        transform=lambda pair, _: tuple(a.astype(jnp.float32) for a in pair),
    )
    n = parts["test"][0].shape[1]
    model = ConditionalRBM.create(
        n, config["hidden"], x["train"].shape[1], jax.random.key(seed + 1)
    )
    steps = batches.steps(config["epochs"])

    def validate(model: ConditionalRBM, key: Any) -> float:
        p = predict(model, x["valid"], infer, key)
        return error_rate(p > 0.5, parts["valid"][0]).mean

    result = fit(
        model,
        Conditional(TwoPhase(infer)),
        optax.sgd(optax.cosine_decay_schedule(config["crbm_rate"], steps), 0.9),
        batches,
        jax.random.key(seed),
        epochs=config["epochs"],
        log_every=batches.steps(1),
        validate=validate,
        mode="min",
    )
    p = predict(result.best_model, x["test"], infer, jax.random.key(seed + 2))
    v, hit = parts["test"]
    return _result(np.where(hit, p, v) if told else p, v, hit)


def _result(p: np.ndarray, v: np.ndarray, hit: np.ndarray) -> dict[str, np.ndarray]:
    """Errors (mean, standard error) in per cent, and some answers."""
    errors = {"all": error_rate(p, v), "changed": error_rate(p, v, hit & (v == 1))}
    scores = {name: np.array([100 * e.mean, 100 * e.stderr]) for name, e in errors.items()}
    return scores | {"shown": p[:SHOWN].astype(np.float32)}
