"""What the experiments on nonnegative Boltzmann machines share: trials side by side, their errors."""

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key, PyTree

from undirected.core.graph import Graph
from undirected.core.protocols import Info, Objective
from undirected.learning import Batches, fit
from undirected.models.nonnegative import NonnegativeBM, sigma_points
from undirected.sampling.rectified import RectifiedGibbs


@dataclass(frozen=True)
class Ensemble:
    """One objective on many independent models at once: their parameters lead with a trial axis."""

    objective: Objective
    value_name: ClassVar[str] = "sum_over_trials"

    def init(self, model: Any, batch: PyTree, key: Key[Array, ""]) -> Any:
        """What the objective carries, for every trial."""
        keys = jax.random.split(key, _trials(batch))
        return jax.vmap(self.objective.init, in_axes=(trial_axes(model), 0, 0))(model, batch, keys)

    def __call__(
        self, model: Any, batch: PyTree, carry: Any, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], tuple[Any, Info]]:
        """The sum over trials, so that each model has its own gradient."""
        keys = jax.random.split(key, _trials(batch))
        axes = trial_axes(model), 0, 0, 0
        loss, rest = jax.vmap(self.objective, in_axes=axes)(model, batch, carry, keys)
        return loss.sum(), rest


@dataclass(frozen=True)
class RectifiedPseudoLikelihood:
    """-sum_i log p(x_i | all others), mean over the rows: rectified normals, no partition function."""

    value_name: ClassVar[str] = "negative_log_pseudo_likelihood"

    def init(self, model: NonnegativeBM, batch: Array, key: Key[Array, ""]) -> None:
        """Nothing is carried from step to step."""

    def __call__(
        self, model: NonnegativeBM, batch: Float[Array, "rows n"], carry: None, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], tuple[None, Info]]:
        """The negative log pseudo-likelihood."""
        return -model.log_conditionals(batch).sum(-1).mean(), (None, {})


def trial_axes(model: Any) -> Any:
    """`in_axes` of a model whose parameters, and not its wiring, lead with a trial axis."""
    return jax.tree.map(lambda a: 0 if eqx.is_inexact_array(a) else None, model)


def stack(models: list[NonnegativeBM]) -> NonnegativeBM:
    """One model with a trial axis before every parameter."""
    return jax.tree.map(lambda *a: jnp.stack(a) if eqx.is_inexact_array(a[0]) else a[0], *models)


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

    draw = eqx.filter_jit(jax.vmap(one, in_axes=(trial_axes(models), 0)))
    return draw(models, jax.random.split(key, trials))


def learn(
    data: Float[Array, "trials rows n"],
    graph: Graph | None,
    objective: Objective,
    optimiser: optax.GradientTransformation,
    steps: int,
    key: Key[Array, ""],
    *,
    compress: bool = True,
) -> tuple[NonnegativeBM, list[dict[str, float]]]:
    """Learn every trial from independent units; `compress` replaces the data by sigma points."""
    start = stack([NonnegativeBM.from_data(x, graph) for x in data])
    rows = jnp.stack([sigma_points(x) for x in data]) if compress else data
    batches = Batches(rows, size=len(rows), shuffle=False)
    every = max(1, steps // 20)
    result = fit(start, Ensemble(objective), optimiser, batches, key, steps=steps, log_every=every)
    return result.model, result.history


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


def _trials(batch: PyTree) -> int:
    return jax.tree.leaves(batch)[0].shape[0]
