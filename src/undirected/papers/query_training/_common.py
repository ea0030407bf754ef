"""What the experiments of this paper share: ensembles of runs, their best models, their scores."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Key

from undirected.core.layout import Block, Layout
from undirected.experiments.fitting import fit
from undirected.learning import Batches, Ensemble, Queries, QueryTraining, query_losses

BITS = float(np.log(2))


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


class Perceptron(eqx.Module):
    """Answers queries by one hidden layer of rectified units, without any model of the data.

    It sees 1 and -1 for what is known and 0 for what is not, and gives log-odds of all units.
    """

    inner: Float[Array, "n h"]
    inner_bias: Float[Array, " h"]
    outer: Float[Array, "h n"]
    outer_bias: Float[Array, " n"]

    @classmethod
    def like(cls, n: int, hidden: int, key: Key[Array, ""]) -> "Perceptron":
        """As many parameters as an RBM of n visible and so many hidden units, or a few less."""
        h = max(1, hidden * (n + 1) // (2 * n + 1))
        inner_key, outer_key = jax.random.split(key)
        inner = jax.random.normal(inner_key, (n, h)) * (2 / n) ** 0.5
        outer = jax.random.normal(outer_key, (h, n)) * (1 / h) ** 0.5
        return cls(inner, jnp.zeros(h), outer, jnp.zeros(n))

    @property
    def layout(self) -> Layout:
        return Layout((Block("visible", 0, self.outer_bias.shape[-1]),))

    def logits(self, evidence: Float[Array, "rows n"]) -> Float[Array, "rows n"]:
        """Log-odds of all units, given evidence as log-odds, 0 for none."""
        seen = jnp.tanh(0.5 * evidence)
        hidden = jax.nn.relu(seen @ self.inner + self.inner_bias[None])
        return hidden @ self.outer + self.outer_bias[None]

    def probabilities(self, evidence: Float[Array, "rows n"]) -> Float[Array, "rows n"]:
        """Probabilities of all units."""
        return jax.nn.sigmoid(self.logits(evidence))


def query_train(
    start: Any,
    queries: Queries,
    train: np.ndarray,
    valid: np.ndarray,
    targets: Bool[Array, "rows v"],
    how: dict[str, Any],
    config: dict[str, Any],
    seed: int,
) -> BestOfEach:
    """Learn a stack of networks; each keeps the state that answered the validation targets best.

    `how` has the rate of Adam, which falls along a cosine to the share `decay`, the epochs, and
    where it helps a `decay` of its own and the decay of weights.
    """
    best = BestOfEach(lambda models, key: scores(models, valid, targets))
    batches = Batches(train, config["batch"], seed)
    every = batches.steps(config["validate_every"])
    steps, decay = batches.steps(how["epochs"]), how.get("decay", config["decay"])
    rate = optax.cosine_decay_schedule(how["rate"], steps, decay)
    fit(
        start,
        Ensemble(QueryTraining(queries)),
        optax.adamw(rate, weight_decay=how.get("weight_decay", 0.0), mask=_matrices),
        batches,
        jax.random.key(seed),
        epochs=how["epochs"],
        log_every=every,
        validate=best,
        validate_every=every,
        mode="min",
    )
    return best


def _matrices(models: Any) -> Any:
    """Which parameters of a stack are matrices of weights."""
    return jax.tree.map(lambda a: eqx.is_array(a) and a.ndim == 3, models)


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
