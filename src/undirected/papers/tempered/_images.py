"""The pipeline of Section 4.2: Gaussian RBM features, an RBM of them, a regression on top."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key

from undirected.core.protocols import Info
from undirected.evaluation import log_likelihood
from undirected.experiments.fitting import fit
from undirected.experiments.record import Outcome, Row
from undirected.experiments.stages import Context, restore, store
from undirected.learning import Batches, ContrastiveDivergence, member
from undirected.models import RBM, GaussianRBM, Stack, draw_features
from undirected.papers.tempered import _common
from undirected.report.images import image_grid
from undirected.sampling import BlockGibbs, GaussianGibbs

FULL: dict[str, Any] = {
    "valid": 10_000,
    "train": 50_000,
    "test": 10_000,
    "features": 2000,
    "hidden": 2000,
    "bottom": {"epochs": 50, "rate": 0.001, "batch": 100},
    "batch": 100,
    "chains": 100,
    "gibbs": 200_000,
    "fair": False,
    "rate": 0.01,
    "decay": 0.0,
    "hold": 50_000,
    "offset": 1000.0,
    "tempered": {"betas": 1000, "lowest": 0.9, "every": 1000, "after": 100_000},
    "rungs": 5,
    "methods": ["SAP", "Trans-SAP"],
    "points": 20,
    "chunk": 500,
    "ais": {"chains": 100, "betas": 400_000},
    "regression": {"epochs": 30, "rate": 0.001, "batch": 100},
}
QUICK = FULL | {
    "valid": 50_000,
    "train": 5000,
    "test": 1000,
    "features": 150,
    "hidden": 150,
    "bottom": {"epochs": 6, "rate": 0.001, "batch": 100},
    "gibbs": 6000,
    "hold": 3000,
    "tempered": {"betas": 100, "lowest": 0.9, "every": 200, "after": 3000},
    "points": 5,
    "chunk": 200,
    "ais": {"chains": 50, "betas": 1000},
    "regression": {"epochs": 15, "rate": 0.003, "batch": 100},
}
SMOKE = QUICK | {
    "train": 60,
    "test": 20,
    "features": 6,
    "hidden": 4,
    "bottom": {"epochs": 1, "rate": 0.001, "batch": 20},
    "batch": 20,
    "chains": 5,
    "gibbs": 12,
    "hold": 4,
    "tempered": {"betas": 2, "lowest": 0.9, "every": 2, "after": 4},
    "methods": ["Trans-SAP"],
    "points": 2,
    "ais": {"chains": 5, "betas": 5},
    "regression": {"epochs": 1, "rate": 0.01, "batch": 20},
}
Pixels = Float[np.ndarray, "rows v"]


@dataclass(frozen=True)
class Task:
    """Standardised images, of which the first have classes; `draw(v)` turns pixels into images."""

    case: str
    x: Pixels
    y: Int[np.ndarray, " labelled"]
    test_x: Pixels
    test_y: Int[np.ndarray, " test"]
    image_shape: tuple[int, int]
    draw: Callable[[Pixels], np.ndarray]
    paper: dict[tuple[str, str], float]


def standardise(train: Pixels, *others: Pixels) -> list[Pixels]:
    """Every pixel with the mean 0 and the variance 1 of the training rows."""
    mean, scale = train.mean(0), train.std(0) + 0.05
    return [((part - mean) / scale).astype(np.float32) for part in (train, *others)]


def run_task(
    task: Task, config: dict[str, Any], seeds: Sequence[int], context: Context
) -> list[Outcome]:
    """Log-probability of the test features and classification error of every learner and seed.

    The features are learned and drawn once, by the first seed; the RBMs of them side by side.
    """
    bottom = _learn_bottom(task, config, seeds[0], context)
    parts = {"train": task.x, "test": task.test_x}
    drawn = context.stage("features", partial(_features, bottom, parts, seeds[0]))
    train, test = (_unpack(drawn[part], config["features"]) for part in parts)
    means = train.mean(0)
    learning = _common.rbm_learning_of_seeds(train, means, config, seeds, context)
    rows = [_baseline(task, config, seed, context) for seed in seeds]
    sheet, notes = [task.draw(task.x[:20])], []
    for method, steps, found in learning.run_all(config["methods"], BlockGibbs()):
        models = restore(learning.start, found)
        each = [member(models, i) for i in range(len(seeds))]
        scores = context.stage(
            f"AIS, {method}", partial(_scores, each, test, means, config, seeds[0])
        )
        for i, (seed, own) in enumerate(zip(seeds, rows, strict=True)):
            stacked = Stack(bottom, each[i])
            wrong = context.stage(
                f"regression, {method}, seed {seed}",
                partial(_regress, stacked, task, config, seed),
            )
            accepted = _common.acceptance(found, i)
            own += _rows(task, method, scores[i], wrong["wrong"], accepted)
        particles = found["particles"][0, :20, : config["features"]]
        shown = Stack(bottom, each[0]).show(jnp.asarray(particles))
        sheet.append(task.draw(np.asarray(shown)))
        spent = _common.seconds(context, method)
        notes.append(
            f"{method}: {steps} parameter updates of {len(seeds)} models side by side in "
            f"{spent:.0f} s, above one set of features."
        )
    file = "particles.png"
    image_grid(np.concatenate(sheet), task.image_shape, context.out / file, columns=20)
    caption = "Training images, then particles at the end of " + ", ".join(config["methods"])
    images = [{"name": "particles", "caption": caption, "file": file}]
    return [
        Outcome(own, images=() if i else images, notes=() if i else notes)
        for i, own in enumerate(rows)
    ]


def _learn_bottom(task: Task, config: dict[str, Any], seed: int, context: Context) -> GaussianRBM:
    """Contrastive divergence with a learned mean and variance for every pixel."""
    how, V = config["bottom"], task.x.shape[1]
    start = GaussianRBM.create(
        V, config["features"], jax.random.key(seed), scale=0.01, learn_variance=True
    )

    def work() -> _common.Arrays:
        result = fit(
            start,
            ContrastiveDivergence(GaussianGibbs()),
            optax.adam(how["rate"]),
            Batches(task.x, how["batch"], seed),
            jax.random.key(seed),
            epochs=how["epochs"],
            log_every=config["chunk"],
            on_event=lambda p: context.progress(f"features: update {p.step} of {p.total}"),
        )
        return store(result.model)

    return restore(start, context.stage("learn, features", work))


def _features(bottom: GaussianRBM, parts: dict[str, Pixels], seed: int) -> _common.Arrays:
    """Binary features of every part, drawn once, packed eight to a byte."""
    keys = jax.random.split(jax.random.key(seed + 4), len(parts))
    draw = eqx.filter_jit(draw_features)
    out = {}
    for (name, x), key in zip(parts.items(), keys, strict=True):
        pieces = [
            np.packbits(np.asarray(draw(bottom, jnp.asarray(x[i : i + 1000]), k), np.uint8), axis=1)
            for i, k in zip(
                range(0, len(x), 1000), jax.random.split(key, -(-len(x) // 1000)), strict=True
            )
        ]
        out[name] = np.concatenate(pieces)
    return out


def _unpack(packed: np.ndarray, count: int) -> Int[np.ndarray, "rows f"]:
    return np.unpackbits(packed, axis=1, count=count)


def _scores(
    models: list[RBM],
    test: Int[np.ndarray, "rows f"],
    means: np.ndarray,
    config: dict[str, Any],
    seed: int,
) -> list[dict[str, float]]:
    """log Z from both sides and the mean log-probability of the test features, by every model."""
    found = _common.estimate_all(models, [means] * len(models), BlockGibbs(), config, seed)
    values = [
        log_likelihood(model, test, one.lower.log_z)
        for model, one in zip(models, found, strict=True)
    ]
    return [
        {
            "log_p": value.mean,
            "error": value.stderr,
            "gap": one.upper.log_z - one.lower.log_z,
        }
        for value, one in zip(values, found, strict=True)
    ]


def _rows(
    task: Task, method: str, score: dict[str, float], wrong: np.ndarray, accepted: float | None
) -> list[Row]:
    log_p, error = "test log-probability of the features (nats)", "classification error (%)"
    rows = [
        Row(
            task.case,
            method,
            log_p,
            score["log_p"],
            score["error"],
            len(wrong),
            task.paper.get((method, log_p)),
            better="higher",
        ),
        Row.average(
            task.case,
            method,
            error,
            100 * wrong,
            task.paper.get((method, error)),
            better="lower",
        ),
        Row(task.case, method, "log Z, reverse minus forward (nats)", score["gap"], better="lower"),
    ]
    if accepted is not None:
        rows.append(
            Row(task.case, method, "acceptance of tempered runs", accepted, better="higher")
        )
    return rows


def _baseline(task: Task, config: dict[str, Any], seed: int, context: Context) -> list[Row]:
    """Logistic regression on the pixels."""
    method = "logistic regression on pixels"
    parts = task.x[: len(task.y)], task.y, task.test_x, task.test_y
    work = partial(classify, *parts, config["regression"], seed)
    found = context.stage(f"{method}, seed {seed}", lambda: {"wrong": work()})
    metric = "classification error (%)"
    paper = task.paper.get((method, metric))
    return [Row.average(task.case, method, metric, 100 * found["wrong"], paper, better="lower")]


def _regress(stack: Stack, task: Task, config: dict[str, Any], seed: int) -> _common.Arrays:
    """Logistic regression on the activities of the top layer."""
    up = eqx.filter_jit(lambda stack, x: jax.lax.map(stack.activities, x, batch_size=1000))
    labelled = task.x[: len(task.y)]
    x, test = (np.asarray(up(stack, jnp.asarray(part))) for part in (labelled, task.test_x))
    return {"wrong": classify(x, task.y, test, task.test_y, config["regression"], seed)}


class Softmax(eqx.Module):
    """Logits W' x + b."""

    weights: Float[Array, "n k"]
    bias: Float[Array, " k"]

    def __call__(self, x: Float[Array, "rows n"]) -> Float[Array, "rows k"]:
        return x @ self.weights + self.bias[None]


@dataclass(frozen=True)
class CrossEntropy:
    """-mean log p(y | x)."""

    value_name: ClassVar[str] = "cross_entropy"

    def init(self, model: Softmax, batch: Any, key: Key[Array, ""]) -> None:
        """Nothing is carried from step to step."""
        return None

    def __call__(
        self, model: Softmax, batch: tuple[Array, Array], carry: None, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], tuple[None, Info]]:
        """The loss."""
        x, y = batch
        losses = optax.softmax_cross_entropy_with_integer_labels(model(x), y)
        return losses.mean(), (None, {})


def classify(
    x: Pixels,
    y: np.ndarray,
    test_x: Pixels,
    test_y: np.ndarray,
    config: dict[str, Any],
    seed: int,
) -> Float[np.ndarray, " test"]:
    """1 where logistic regression, learned on (x, y), is wrong about a test row."""
    classes = int(max(y.max(), test_y.max())) + 1
    batches = Batches((x, y.astype(np.int32)), config["batch"], seed)
    steps = batches.steps(config["epochs"])
    found = fit(
        Softmax(jnp.zeros((x.shape[1], classes)), jnp.zeros(classes)),
        CrossEntropy(),
        optax.adam(optax.cosine_decay_schedule(config["rate"], steps)),
        batches,
        jax.random.key(seed),
        steps=steps,
        log_every=1000,
    )
    guess = np.asarray(found.model(jnp.asarray(test_x))).argmax(1)
    return (guess != test_y).astype(float)
