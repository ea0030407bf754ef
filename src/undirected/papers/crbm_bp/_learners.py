"""What the experiments of this paper share: the learners, and how a model is learned and tested."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key

from undirected.core.errors import UndirectedError
from undirected.core.protocols import Info
from undirected.experiments.fitting import SeedBatches, fit
from undirected.inference import MaxProduct, MeanField, MixedProduct, SumProduct, predict
from undirected.learning import (
    Conditional,
    ContrastiveDivergence,
    Ensemble,
    MaxMargin,
    PerceptronLoss,
    TwoPhase,
    member,
    stack,
)
from undirected.models import ConditionalRBM
from undirected.sampling import BlockGibbs

METHODS = ["LR", "CD-1", "CD-10", "CD-PercLoss", "MLE-MF", "MLE-BP", "LSSVM", "MSSVM"]
EXTRA = ["CD-10, random start", "MLE-BP+"]
SHOWN = 10
Pair = tuple[np.ndarray, np.ndarray]
Scores = dict[str, tuple[float, float]]
Arrays = dict[str, np.ndarray]


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


@dataclass(frozen=True)
class Setting:
    """What is chosen on validation: a point of the grid of `settings`.

    `start` is where the features' weights begin: "random", or "regression" for those of LR.
    """

    rate: float
    decay: float
    start: str


def learn(
    task: Task,
    method: str,
    config: dict[str, Any],
    seed: int,
    setting: Setting,
    regression: Arrays | None = None,
) -> Arrays:
    """`learn_together` of one seed."""
    return learn_together([task], method, config, [seed], setting, [regression])[0]


def learn_together(
    tasks: Sequence[Task],
    method: str,
    config: dict[str, Any],
    seeds: Sequence[int],
    setting: Setting,
    regressions: Sequence[Arrays | None],
) -> list[Arrays]:
    """Learn with a setting, keep the epoch with the lowest validation error, test once.

    Every seed has its task, and learns beside the others in one program as if it were alone.
    `regressions` are what this function gave for "LR". Tests make as many iterations of inference
    as the learning of the epoch that is kept.
    """
    epochs = epochs_of(method, config)
    runs = train(tasks, method, config, seeds, setting, regressions, epochs)
    return [
        _tested(task, method, config, seed, run)
        for task, seed, run in zip(tasks, seeds, runs, strict=True)
    ]


def _tested(task: Task, method: str, config: dict[str, Any], seed: int, run: "Run") -> Arrays:
    """What is kept of a run, with its scores on the test part."""
    x, v = task.test
    infer = _inference(method, _iterations(run.epoch, config))
    answers = predict(run.model, x, infer, jax.random.key(seed + 2))
    arrays = {
        "validation": run.error,
        "best": run.epoch,
        "epochs": np.arange(len(run.converged)) + 1,
        "converged": run.converged,
        "shown": answers[:SHOWN],
        **task.score(answers, x, v),
    }
    if method == "LR":
        arrays |= {"features": run.model.visible_features, "bias": run.model.visible_bias}
    return {name: np.asarray(value, np.float32) for name, value in arrays.items()}


class _Tuned(eqx.Module):
    """A model with how it is learned, as numbers: one program then serves all settings."""

    model: ConditionalRBM
    rate: Float[Array, ""]
    decay: Float[Array, ""]
    steps: Float[Array, ""]
    seed: Float[Array, ""]


@dataclass
class Run:
    """The best model on validation so far, after `epoch` epochs.

    `converged`: share of instances whose messages settled, by epoch.
    """

    error: float
    model: ConditionalRBM
    epoch: float = 0
    converged: Sequence[float] = ()


@dataclass(frozen=True)
class _Learner:
    """The objective of a method on a `_Tuned` model; it knows the step.

    The rate falls to zero as a cosine; `decay` pulls the weight matrices, and no bias, to zero.
    Draws come from the seed of the model and the step alone, whatever is learned beside it.
    """

    method: str
    per_epoch: int
    most_iterations: int
    falls: bool = True
    redraw: Callable[[Array, Key[Array, ""]], Array] | None = None

    def init(self, model: _Tuned, batch: tuple[Array, Array], key: Key[Array, ""]) -> Array:
        """The step."""
        x, v = batch
        _objective(self.method, self.most_iterations).init(model.model, (_f(x), _f(v)), key)
        return jnp.zeros((), jnp.int32)

    def __call__(
        self, model: _Tuned, batch: tuple[Array, Array], carry: Array, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], tuple[Array, Info]]:
        """The objective of this step, times its rate."""
        tuned, step = model, carry
        x, v = (_f(part) for part in batch)
        own = jax.random.fold_in(jax.random.key(tuned.seed.astype(jnp.int32)), step)
        own, noise = jax.random.split(own)
        x = x if self.redraw is None else self.redraw(v, noise)
        iterations = jnp.minimum(8 + step // self.per_epoch, self.most_iterations)
        objective = _objective(self.method, iterations)
        value, (_, info) = objective(tuned.model, (x, v), None, own)
        matrices = [leaf for leaf in jax.tree.leaves(tuned.model) if jnp.ndim(leaf) > 1]
        penalty = 0.5 * tuned.decay * sum(jnp.sum(matrix**2) for matrix in matrices)
        rate = tuned.rate * (0.5 + 0.5 * jnp.cos(jnp.pi * step / tuned.steps) if self.falls else 1)
        return rate * (value + penalty), (step + 1, info)


class _Together(Ensemble):
    """An ensemble that reports of every model under its number: "converged.0"."""

    def __call__(
        self, model: Any, batch: Any, carry: Any, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], tuple[Any, Info]]:
        """The sum over models, what they carry, and reports."""
        loss, (carry, info) = super().__call__(model, batch, carry, key)
        named = {f"{name}.{i}": one for name, each in info.items() for i, one in enumerate(each)}
        return loss, (carry, named)


def train(
    tasks: Sequence[Task],
    method: str,
    config: dict[str, Any],
    seeds: Sequence[int],
    setting: Setting,
    regressions: Sequence[Arrays | None],
    epochs: int,
) -> list[Run]:
    """Momentum, and the best of the validated epochs kept; the start is one of them."""
    runs = []
    for task, seed, regression in zip(tasks, seeds, regressions, strict=True):
        first = regression if setting.start != "random" else None
        model = _start(task, method, config, seed, first)
        runs.append(Run(_validated(task, method, config, model, 0, seed), model))
    batches = _batches(tasks, config["batch"], seeds)
    per_epoch, optimiser = batches.steps(1), config.get("optimiser", "momentum")
    if optimiser not in ("momentum", "constant", "adam"):
        raise UndirectedError(
            f"crbm-bp: optimiser {optimiser!r} is none of momentum, constant, adam"
        )
    adam = optimiser == "adam"  # which does not see how large a loss is
    chosen = 1.0 if adam else setting.rate, setting.decay, epochs * per_epoch
    tuned = [
        _Tuned(run.model, *(jnp.asarray(value, jnp.float32) for value in (*chosen, seed)))
        for run, seed in zip(runs, seeds, strict=True)
    ]
    falling = optax.cosine_decay_schedule(setting.rate, epochs * per_epoch)
    redraw = tasks[0].redraw if method == "MLE-BP+" else None
    learner = _Learner(
        method, per_epoch, config["most_iterations"], optimiser == "momentum", redraw
    )
    every, calls = config["validate_epochs"], iter(range(1, epochs + 1))

    def validate(tuned: _Tuned, key: Key[Array, ""]) -> float:
        epoch = min(every * next(calls), epochs)
        for i, (task, seed, run) in enumerate(zip(tasks, seeds, runs, strict=True)):
            model = member(tuned, i).model
            error = _validated(task, method, config, model, epoch, seed)
            if error < run.error:
                run.error, run.model, run.epoch = error, model, epoch
        return min(run.error for run in runs)

    history = fit(
        stack(tuned),
        _Together(learner, own_data=True),
        optax.adam(falling) if adam else optax.sgd(1.0, 0.9),
        batches,
        jax.random.key(0),  # of nothing: draws come from the seeds
        epochs=epochs,
        trainable=eqx.tree_at(
            lambda t: t.model,
            jax.tree.map(lambda _: False, tuned[0]),
            jax.tree.map(eqx.is_inexact_array, tuned[0].model),
        ),
        log_every=per_epoch,
        validate=validate,
        validate_every=every * per_epoch,
        mode="min",
    ).history
    for i, run in enumerate(runs):
        run.converged = [row.get(f"converged.{i}", 1.0) for row in history]
    return runs


def _validated(
    task: Task, method: str, config: dict[str, Any], model: Any, epoch: float, seed: int
) -> float:
    """The first score on the validation part, by inference as in this epoch."""
    x, v = task.valid
    infer = _inference(method, _iterations(epoch, config))
    answers = predict(model, x, infer, jax.random.key(seed + 3))
    return next(iter(task.score(answers, x, v).values()))[0]


def _iterations(epoch: float, config: dict[str, Any]) -> Array:
    """T = 7 + epoch iterations, up to a limit; an array, so that none is compiled for its own."""
    return jnp.asarray(min(7 + max(ceil(epoch), 1), config["most_iterations"]), jnp.int32)


def _batches(tasks: Sequence[Task], size: int, seeds: Sequence[int]) -> SeedBatches:
    """Training rows of every task, each in the order of its seed."""
    ends = np.cumsum([len(task.train[0]) for task in tasks])
    rows = np.split(np.arange(ends[-1]), ends[:-1])
    x, v = (np.concatenate([task.train[part] for task in tasks]) for part in (0, 1))
    return SeedBatches((x, v), size, seeds=seeds, subsets=rows)


def _start(
    task: Task, method: str, config: dict[str, Any], seed: int, regression: Arrays | None
) -> ConditionalRBM:
    """A model before the first step, with the weights of the regression where they are given."""
    x, v = task.train
    hidden = 0 if method == "LR" else config["hidden"]
    model = ConditionalRBM.create(v.shape[1], hidden, x.shape[1], jax.random.key(seed + 1))
    if regression is None:
        return model
    first = jnp.asarray(regression["features"]), jnp.asarray(regression["bias"])
    return eqx.tree_at(lambda m: (m.visible_features, m.visible_bias), model, first)


def epochs_of(method: str, config: dict[str, Any]) -> int:
    return config["epochs_of"].get(method, config["epochs"])


def _objective(method: str, T: int | Array) -> Conditional:
    """The learner of a row of the tables, with T iterations of inference."""
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


def _inference(method: str, T: Array) -> Any:
    """What a model learned this way is asked by: the inference it was learned with."""
    if method in ("LR", "MLE-BP", "MLE-BP+"):
        return SumProduct(T, 1e-3)
    if method == "LSSVM":
        return MaxProduct(T, 1e-3, damping=0.0)
    return MixedProduct(T) if method == "MSSVM" else MeanField(T, 1e-3)


def _f(a: Array) -> Array:
    return a.astype(jnp.float32)
