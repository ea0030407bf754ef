"""What the experiments on nonnegative Boltzmann machines share: trials, learners, errors."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key

from undirected.core.graph import Graph
from undirected.core.potentials import statistics
from undirected.core.protocols import Inference, Info, Objective
from undirected.experiments.fitting import fit
from undirected.experiments.record import Outcome, Row
from undirected.experiments.stages import Context
from undirected.inference.high_temperature import Downs
from undirected.inference.susceptibility import ImprovedSusceptibility, Susceptibility
from undirected.inference.tap import TAP
from undirected.learning import (
    Batches,
    Ensemble,
    Persistent,
    TwoPhase,
    model_axes,
    stack,
)
from undirected.learning.moment_matching.rectified import inverse_susceptibility
from undirected.models.nonnegative import NonnegativeBM, sigma_points
from undirected.sampling.rectified import RectifiedGibbs


@dataclass(frozen=True)
class RectifiedPseudoLikelihood:
    """-sum_i log p(x_i | all others), mean over the rows; every term is a rectified normal."""

    value_name: ClassVar[str] = "negative_log_pseudo_likelihood"

    def init(self, model: NonnegativeBM, batch: Array, key: Key[Array, ""]) -> None:
        """Nothing is carried from step to step."""

    def __call__(
        self, model: NonnegativeBM, batch: Float[Array, "rows n"], carry: None, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], tuple[None, Info]]:
        """The negative log pseudo-likelihood."""
        return -model.log_conditionals(batch).sum(-1).mean(), (None, {})


def draw_sets(
    models: NonnegativeBM, rows: int, chains: int, burn_in: int, thin: int, key: Key[Array, ""]
) -> Float[Array, "trials rows n"]:
    """A data set from every model: many Gibbs chains, burnt in from random starts, thinned."""
    trials, n = models.bias.shape
    sweep, free = RectifiedGibbs(sweeps=thin), jnp.ones(n, bool)

    def one(model: NonnegativeBM, key: Key[Array, ""]) -> Float[Array, "rows n"]:
        start_key, burn_key, key = jax.random.split(key, 3)
        start = sweep.init(model, jax.random.exponential(start_key, (chains, n)), start_key)
        state, _ = RectifiedGibbs(sweeps=burn_in).step(model, start, free, burn_key)

        def step(state: Any, key: Key[Array, ""]) -> tuple[Any, Array]:
            state, _ = sweep.step(model, state, free, key)
            return state, state.x

        _, x = jax.lax.scan(step, state, jax.random.split(key, -(-rows // chains)))
        return x.reshape(-1, n)[:rows]

    draw = eqx.filter_jit(jax.vmap(one, in_axes=(model_axes(models), 0)))
    return draw(models, jax.random.split(key, trials))


def learn(
    start: NonnegativeBM,
    data: Float[Array, "trials rows n"],
    objective: Objective,
    optimiser: optax.GradientTransformation,
    steps: int,
    key: Key[Array, ""],
    rows: int | None = None,
) -> NonnegativeBM:
    """Learn every trial at once; `rows` draws that many rows of each data set for every step."""

    def some(batch: Array, key: Key[Array, ""]) -> Array:
        return batch[:, jax.random.randint(key, (rows or 1,), 0, batch.shape[1])]

    batches = Batches(data, size=len(data), shuffle=False, transform=some if rows else None)
    every = max(1, steps // 4)
    ensemble = Ensemble(objective, own_data=True)
    return fit(start, ensemble, optimiser, batches, key, steps=steps, log_every=every).model


def independent_start(data: Float[Array, "trials rows n"], graph: Graph | None) -> NonnegativeBM:
    """Rectified normals with the moments of the data, no couplings."""
    return stack([NonnegativeBM.from_data(x, graph) for x in data])


def exponential_start(data: Float[Array, "trials rows n"], graph: Graph | None) -> NonnegativeBM:
    """Where Downs' expansion matches single units: b = -1 / m + ..., w_ii = (2 m^2 - v) / 2 m^4."""
    start = independent_start(data, graph)
    m, v = data.mean(1), (data**2).mean(1)
    w = jnp.maximum((2 * m**2 - v) / (2 * m**4), 1e-3)
    bias = 2 * w * m - 2 * w**2 * m**3 - 1 / m
    return eqx.tree_at(lambda s: (s.diagonal, s.bias), start, (w, bias))


def inverse_start(
    data: Float[Array, "trials rows n"], graph: Graph | None, improved: bool
) -> NonnegativeBM:
    """Susceptibility propagation run backwards on all pairs; on a graph its edges are kept."""
    n = data.shape[-1]

    def one(x: Float[Array, "rows n"]) -> tuple[Array, Array]:
        mean = x.mean(0)
        centred = x - mean[None]
        return inverse_susceptibility(mean, centred.T @ centred / len(x), improved=improved)

    matrix, bias = jax.jit(jax.vmap(one))(data)
    diagonal = jnp.diagonal(matrix, axis1=1, axis2=2)
    if graph is None:
        weights = matrix * (1 - jnp.eye(n))[None]
    else:
        weights = matrix[:, graph.edges[:, 0], graph.edges[:, 1]]
    parts = weights, jnp.maximum(diagonal, 1e-2), bias
    start = independent_start(data, graph)
    return eqx.tree_at(lambda s: (s.weights, s.diagonal, s.bias), start, parts)


def mismatch(
    models: NonnegativeBM, points: Float[Array, "trials 2n n"], infer: Inference
) -> Float[np.ndarray, " trials"]:
    """The largest difference between a moment of the data and the belief about it, every trial.

    `points` are the sigma points of the data.
    """

    def one(model: NonnegativeBM, x: Float[Array, "rows n"]) -> Array:
        p = model.lower()
        beliefs = infer(p, jax.random.key(0))
        wanted = jax.tree.map(lambda a: a.mean(0), jax.vmap(lambda r: statistics(p, r))(x))
        gaps = [jnp.abs(beliefs.unary - wanted.unary).max()]
        for ours, theirs in zip(beliefs.factors, wanted.factors, strict=True):
            gaps.append(jnp.abs(ours.weight - theirs.weight).max())
        return jnp.stack(gaps).max()

    return np.asarray(jax.jit(jax.vmap(one, in_axes=(model_axes(models), 0)))(models, points))


def errors(
    learned: NonnegativeBM, truth: NonnegativeBM
) -> tuple[Float[np.ndarray, " trials"], Float[np.ndarray, " trials"]]:
    """e_b and e_w of every trial (nnbm, 22): mean absolute errors of biases and of couplings."""
    e_b = np.abs(learned.bias - truth.bias).mean(-1)
    off = np.abs(np.asarray(_edge_weights(learned) - _edge_weights(truth)))
    diagonal = np.abs(np.asarray(learned.diagonal - truth.diagonal))
    e_w = (off.sum(-1) + diagonal.sum(-1)) / (off.shape[-1] + diagonal.shape[-1])
    return np.asarray(e_b), e_w


def _edge_weights(model: NonnegativeBM) -> Array:
    if model.graph is not None:
        return model.weights
    i, j = np.triu_indices(model.bias.shape[-1], 1)
    both = model.weights + jnp.swapaxes(model.weights, -1, -2)
    return 0.5 * both[..., i, j]


def compare(
    truth: NonnegativeBM,
    graph: Graph | None,
    config: dict[str, Any],
    key: Key[Array, ""],
    context: Context,
    paper: dict[str, tuple[float, float]],
) -> Outcome:
    """Learn from data of every true model by every method; one row per method and error.

    "many" repeats some methods on so many samples that what is left is the error of the method.
    """
    rows: list[Row] = []
    notes: list[str] = []
    for name, methods in (("data", config["methods"]), ("many", config["limit_methods"])):
        size = config[name]
        some = _first(truth, size["trials"])
        draw = cache(partial(draw_sets, some, size["rows"], **config["chains"], key=key))
        for method in methods if size["trials"] else ():
            how = config["methods"][method]
            work = partial(_learned, some, graph, draw, method, how, jax.random.fold_in(key, 1))
            found = context.stage(f"{name}: {method}", work)
            case = f"{size['rows']:,} samples"
            figures = paper.get(method) if name == "data" else None
            for metric, figure in zip(("e_b", "e_w"), figures or (None, None), strict=True):
                rows.append(
                    Row.over_runs(case, method, metric, found[metric], figure, better="lower")
                )
            if "mismatch" in found:
                notes.append(
                    f"{case}, {method}: largest mismatch of a moment, median over trials "
                    f"{np.median(found['mismatch']):.1e}, worst {found['mismatch'].max():.1e}."
                )
    return Outcome(rows=rows, notes=notes)


def _first(models: NonnegativeBM, trials: int) -> NonnegativeBM:
    return jax.tree.map(lambda a: a[:trials] if eqx.is_inexact_array(a) else a, models)


def _learned(
    truth: NonnegativeBM,
    graph: Graph | None,
    draw: Callable[[], Float[Array, "trials rows n"]],
    method: str,
    how: dict[str, Any],
    key: Key[Array, ""],
) -> dict[str, np.ndarray]:
    """Errors of one method on all trials."""
    data = draw()
    points = jnp.stack([sigma_points(x) for x in data])
    steps = how["steps"]
    optimiser = optax.adam(optax.cosine_decay_schedule(how["rate"], steps, 0.01))
    if method == "pseudo-likelihood":
        start = _start(data, graph, how["start"], improved=True)
        objective = RectifiedPseudoLikelihood()
        model = learn(start, data, objective, optimiser, steps, key, rows=how["rows"])
    elif method == "PCD":
        start = _start(data, graph, how["start"], improved=True)
        objective = Persistent(RectifiedGibbs(), chains=how["chains"])
        model = learn(start, points, objective, optimiser, steps, key)
    else:
        infer, start = _mean_field(method, data, graph, how)
        model = learn(start, points, TwoPhase(infer), optimiser, steps, key)
        found = errors(model, truth)
        return dict(zip(("e_b", "e_w"), found, strict=True)) | {
            "mismatch": mismatch(model, points, infer)
        }
    return dict(zip(("e_b", "e_w"), errors(model, truth), strict=True))


def _mean_field(
    method: str, data: Float[Array, "trials rows n"], graph: Graph | None, how: dict[str, Any]
) -> tuple[Inference, NonnegativeBM]:
    """The inference of a method, and where its learning starts."""
    if method == "Downs":
        return Downs(tolerance=1e-5, iterations=100), exponential_start(data, graph)
    improved = method == "I-SusP"
    start = _start(data, graph, how["start"], improved or graph is not None)
    if improved:
        return ImprovedSusceptibility(tolerance=1e-5, iterations=300), start
    return Susceptibility(TAP(tolerance=1e-5, iterations=300), 300, 1e-5), start


def _start(
    data: Float[Array, "trials rows n"], graph: Graph | None, start: str, improved: bool
) -> NonnegativeBM:
    if start == "inverse":
        return inverse_start(data, graph, improved)
    return independent_start(data, graph)
