"""What the experiments of this paper share: the learners, and how a model is learned and tested."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
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
from undirected.experiments.fitting import fit
from undirected.inference import MaxProduct, MeanField, MixedProduct, SumProduct, predict
from undirected.learning import (
    Batches,
    Conditional,
    ContrastiveDivergence,
    MaxMargin,
    PerceptronLoss,
    TwoPhase,
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


def choose(
    task: Task, method: str, config: dict[str, Any], seed: int, regression: Arrays | None = None
) -> dict[str, Any]:
    """The setting with the lowest validation error after `choose_epochs`, found by a walk.

    The walk starts in the middle of the grid and goes along the decays, then the rates, then the
    starts, as long as the next one is better. Of one point nothing is learned.
    """
    here, tried = _middle(grid(method, config)), {}

    def error(setting: Setting) -> float:
        if setting not in tried:
            epochs = min(config["choose_epochs"], _epochs(method, config))
            run = _train(task, method, config, seed, setting, regression, epochs)
            tried[setting] = run.error
        return tried[setting]

    for name, values in grid(method, config).items():
        here = _walk(here, name, values, error)
    return {
        **asdict(here),
        "tried": [{**asdict(setting), "error": value} for setting, value in tried.items()],
    }


def grid(method: str, config: dict[str, Any]) -> dict[str, list]:
    """The values of every part of a setting, in the order in which they are chosen."""
    starts = ["random"] if method == "LR" else config["starts"]
    return {"decay": config["decays"], "rate": config["rates"], "start": starts}


def _middle(values: dict[str, list]) -> Setting:
    return Setting(**{name: several[len(several) // 2] for name, several in values.items()})


def _walk(here: Setting, name: str, values: list, error: Callable[[Setting], float]) -> Setting:
    """The best setting met from here on in both directions, until one is worse than the best.

    Equals are passed by: where learning only harms, all settings stay at the start, and a gentler
    one may not.
    """
    best, first = here, values.index(getattr(here, name))
    for direction in (1, -1):
        at = first + direction
        while 0 <= at < len(values):
            there = replace(here, **{name: values[at]})
            if error(there) > error(best):
                break
            best = there if error(there) < error(best) else best
            at += direction
    return best


def learn(
    task: Task,
    method: str,
    config: dict[str, Any],
    seed: int,
    setting: Setting,
    regression: Arrays | None = None,
) -> Arrays:
    """Learn with a setting, keep the epoch with the lowest validation error, test once.

    `regression` is what this function gave for "LR". Tests make as many iterations of inference as
    the learning of the epoch that is kept.
    """
    run = _train(task, method, config, seed, setting, regression, _epochs(method, config))
    x, v = task.test
    infer = _inference(method, _iterations(run.epoch, config))
    answers = predict(run.model, x, infer, jax.random.key(seed + 2))
    arrays = {
        "validation": run.error,
        "best": run.epoch,
        "epochs": [row["epoch"] for row in run.history],
        "converged": [row.get("converged", 1.0) for row in run.history],
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


@dataclass
class _Run:
    """The best model on validation so far, after `epoch` epochs, and what was reported."""

    error: float
    model: ConditionalRBM
    epoch: float = 0
    history: Any = ()


@dataclass(frozen=True)
class _Learner:
    """The objective of a method on a `_Tuned` model; it knows the step.

    The rate falls to zero as a cosine; `decay` pulls the weight matrices, and no bias, to zero.
    """

    method: str
    per_epoch: int
    most_iterations: int
    falls: bool = True

    def init(self, tuned: _Tuned, batch: tuple[Array, Array], key: Key[Array, ""]) -> Array:
        """The step."""
        _objective(self.method, self.most_iterations).init(tuned.model, batch, key)
        return jnp.zeros((), jnp.int32)

    def __call__(
        self, tuned: _Tuned, batch: tuple[Array, Array], step: Array, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], tuple[Array, Info]]:
        """The objective of this step, times its rate."""
        iterations = jnp.minimum(8 + step // self.per_epoch, self.most_iterations)
        objective = _objective(self.method, iterations)
        value, (_, info) = objective(tuned.model, batch, None, key)
        matrices = [leaf for leaf in jax.tree.leaves(tuned.model) if jnp.ndim(leaf) > 1]
        penalty = 0.5 * tuned.decay * sum(jnp.sum(matrix**2) for matrix in matrices)
        rate = tuned.rate * (0.5 + 0.5 * jnp.cos(jnp.pi * step / tuned.steps) if self.falls else 1)
        return rate * (value + penalty), (step + 1, info)


def _train(
    task: Task,
    method: str,
    config: dict[str, Any],
    seed: int,
    setting: Setting,
    regression: Arrays | None,
    epochs: int,
) -> _Run:
    """Momentum, and the best of the validated epochs kept; the start is one of them."""
    batches = _batches(task, method, config["batch"], seed)
    model = _start(task, method, config, seed, regression if setting.start != "random" else None)
    per_epoch, optimiser = batches.steps(1), config.get("optimiser", "momentum")
    if optimiser not in ("momentum", "constant", "adam"):
        raise UndirectedError(
            f"crbm-bp: optimiser {optimiser!r} is none of momentum, constant, adam"
        )
    adam = optimiser == "adam"  # which does not see how large a loss is
    chosen = 1.0 if adam else setting.rate, setting.decay, epochs * per_epoch
    tuned = _Tuned(model, *(jnp.asarray(value, jnp.float32) for value in chosen))
    falling = optax.cosine_decay_schedule(setting.rate, epochs * per_epoch)
    best = _Run(_validated(task, method, config, model, 0, seed), model)
    every, calls = config["validate_epochs"], iter(range(1, epochs + 1))

    def validate(tuned: _Tuned, key: Key[Array, ""]) -> float:
        epoch = min(every * next(calls), epochs)
        error = _validated(task, method, config, tuned.model, epoch, seed)
        if error < best.error:
            best.error, best.model, best.epoch = error, tuned.model, epoch
        return error

    best.history = fit(
        tuned,
        _Learner(method, per_epoch, config["most_iterations"], falls=optimiser == "momentum"),
        optax.adam(falling) if adam else optax.sgd(1.0, 0.9),
        batches,
        jax.random.key(seed),
        epochs=epochs,
        trainable=eqx.tree_at(
            lambda t: t.model,
            jax.tree.map(lambda _: False, tuned),
            jax.tree.map(eqx.is_inexact_array, model),
        ),
        log_every=per_epoch,
        validate=validate,
        validate_every=every * per_epoch,
        mode="min",
    ).history
    return best


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


def _batches(task: Task, method: str, size: int, seed: int) -> Batches:
    x, v = task.train
    redraw = task.redraw
    if method == "MLE-BP+" and redraw is not None:
        return Batches(v, size, seed, transform=lambda v, k: (redraw(_f(v), k), _f(v)))
    return Batches((x, v), size, seed, transform=lambda pair, k: (_f(pair[0]), _f(pair[1])))


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


def _epochs(method: str, config: dict[str, Any]) -> int:
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
