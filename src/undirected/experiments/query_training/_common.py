"""What the experiments of this paper share: ensembles of runs, their best models, their scores."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from undirected.core.protocols import Info, Objective
from undirected.learning.query_training import query_losses

BITS = float(np.log(2))


@dataclass(frozen=True)
class Ensemble:
    """One objective on many independent models at once, which see the same rows in the same order.

    Their parameters lead with a model axis; `rates` scale each model's gradient.
    """

    objective: Objective
    rates: Float[np.ndarray, " models"]
    value_name: ClassVar[str] = "sum_over_models"

    def init(self, model: Any, batch: Array, key: Key[Array, ""]) -> Any:
        """What the objective carries, for every model."""
        start = eqx.filter_vmap(self.objective.init, in_axes=(eqx.if_array(0), None, 0))
        return start(model, batch, self._keys(key))

    def __call__(
        self, model: Any, batch: Array, carry: Any, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], tuple[Any, Info]]:
        """The sum over models, so that each has its own gradient."""
        step = eqx.filter_vmap(self.objective, in_axes=(eqx.if_array(0), None, eqx.if_array(0), 0))
        loss, rest = step(model, batch, carry, self._keys(key))
        return (jnp.asarray(self.rates, loss.dtype) * loss).sum(), rest

    def _keys(self, key: Key[Array, ""]) -> Key[Array, " models"]:
        return jax.random.split(key, len(self.rates))


class BestOfEach:
    """The validation of `fit` for an ensemble: keeps the best model of each member.

    `score(model, key)` gives one value per model, lower is better; what `fit` sees is their mean.
    """

    def __init__(self, score: Callable[[Any, Key[Array, ""]], np.ndarray]):
        self.score = score
        self.values: np.ndarray | None = None
        self.models: Any = None
        self.history: list[np.ndarray] = []

    def __call__(self, models: Any, key: Key[Array, ""]) -> float:
        values = self.score(models, key)
        self.history.append(values)
        if self.values is None:
            self.values, self.models = values, models
        else:
            better = values < self.values
            self.values = np.where(better, values, self.values)
            self.models = _choose(jnp.asarray(better), models, self.models)
        return float(np.mean(values))


def stack(models: list[Any]) -> Any:
    """One model with a leading axis before every parameter."""
    return jax.tree.map(lambda *a: jnp.stack(a) if eqx.is_array(a[0]) else a[0], *models)


def member(models: Any, index: int) -> Any:
    """One model of a stack."""
    return jax.tree.map(lambda a: a[index] if eqx.is_array(a) else a, models)


def scores(
    networks: Any, x: np.ndarray, targets: Bool[Array, "rows v"], budget: int = 2**28
) -> Float[np.ndarray, " models"]:
    """Bits per target of every network of a stack; at most about `budget` messages at a time."""
    couplings = max(leaf.size for leaf in jax.tree.leaves(eqx.filter(networks, eqx.is_array)))
    rows = int(np.clip(budget // couplings, 1, 2000))
    chunks = -(-len(x) // rows)
    size = -(-len(x) // chunks)
    padding = ((0, chunks * size - len(x)), (0, 0))
    parts = jnp.pad(jnp.asarray(x), padding), jnp.pad(targets, padding)
    totals, counts = _totals(networks, *(a.reshape(chunks, size, -1) for a in parts))
    return np.asarray(totals / counts / BITS, np.float64)


@eqx.filter_jit
def _totals(
    networks: Any, x: Float[Array, "chunks rows v"], targets: Bool[Array, "chunks rows v"]
) -> tuple[Array, Array]:
    ask = eqx.filter_vmap(query_losses, in_axes=(eqx.if_array(0), None, None))

    def one(part: tuple[Array, Array]) -> tuple[Array, Array]:
        losses, counts = ask(networks, *part)
        return losses.sum(1), counts.sum(1)

    totals, counts = jax.lax.map(one, (x, targets))
    return totals.sum(0), counts.sum(0)


@eqx.filter_jit
def _choose(better: Array, new: Any, old: Any) -> Any:
    def pick(a: Any, b: Any) -> Any:
        if not eqx.is_array(a):
            return a
        return jnp.where(better.reshape(-1, *[1] * (a.ndim - 1)), a, b)

    return jax.tree.map(pick, new, old)
