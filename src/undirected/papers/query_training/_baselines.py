"""Models learned without queries in mind, and how they answer them: PCD and pseudo-likelihood."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Key

from undirected.experiments.fitting import fit
from undirected.inference import MeanField, QueryNetwork
from undirected.learning import (
    Batches,
    Ensemble,
    Persistent,
    PseudoLikelihood,
    UniformQueries,
    member,
    stack,
)
from undirected.models import RBM, DeepBM
from undirected.papers.query_training._common import (
    BITS,
    BestOfEach,
    scores,
)
from undirected.sampling import BlockGibbs

QUERIES = UniformQueries(0.5)
Splits = dict[str, np.ndarray]


def targets_of(x: np.ndarray, seed: int) -> Bool[Array, "rows v"]:
    """The queries every method is tested with."""
    return QUERIES(jax.random.key(seed + 1_000_003), *x.shape)


def create(kind: str, n: int, hidden: int, key: Key[Array, ""]) -> RBM | DeepBM:
    if kind == "RBM":
        return RBM.create(n, hidden, key)
    return DeepBM.create([n, hidden, hidden], key)


def pcd(
    kind: str, splits: Splits, how: dict[str, Any], config: dict[str, Any], seed: int
) -> dict[str, Any]:
    """Persistent chains at every learning rate, on all rows at every step, as the paper does.

    The hidden units of a deep model given the data are those of mean field, and its first layer
    begins as an RBM that was learned so (Salakhutdinov & Hinton 2009): from small weights alone,
    mean field never finds a use for the second.
    """
    runs, layers, n = config["runs"], config["layers"], splits["train"].shape[1]
    count = runs * len(config["pcd"]["rates"])
    keys = jax.random.split(jax.random.key(seed), count)
    rbms = stack([create("RBM", n, how["hidden"], key) for key in keys])
    models, rate = _persistent(rbms, None, splits, config, seed)
    if kind == "DBM":
        deep = stack([create("DBM", n, how["hidden"], key) for key in keys])
        posterior = MeanField(config["pcd"]["mean_field"], 1e-3)
        models, rate = _persistent(_onto(models, deep), posterior, splits, config, seed)
    bp = scores(_asked(models, layers), splits["test"], targets_of(splits["test"], seed))
    gibbs = [_gibbs(member(models, i), splits["test"], config, seed) for i in range(runs)]
    return {"BP": bp, "Gibbs": np.array(gibbs), "rate": np.array(rate)}


def _persistent(
    start: Any, posterior: MeanField | None, splits: Splits, config: dict[str, Any], seed: int
) -> tuple[Any, float]:
    """All runs at the rate that validates best on their mean, each at its best time."""
    settings, runs, layers = config["pcd"], config["runs"], config["layers"]
    x, valid = splits["train"], splits["valid"]
    rates = np.repeat(settings["rates"], runs)
    chains = min(settings["chains"], len(x))
    targets = targets_of(valid, seed + 1)
    best = BestOfEach(lambda models, key: scores(_asked(models, layers), valid, targets))
    fit(
        start,
        Ensemble(Persistent(BlockGibbs(), chains, posterior=posterior), rates=rates),
        optax.sgd(1.0),
        Batches(x, len(x), shuffle=False),
        jax.random.key(seed),
        steps=settings["steps"],
        log_every=settings["validate"],
        validate=best,
        validate_every=settings["validate"],
        mode="min",
    )
    assert best.values is not None
    chosen = int(best.values.reshape(-1, runs).mean(1).argmin())
    models = jax.tree.map(lambda a: a[chosen * runs : (chosen + 1) * runs], best.models)
    return models, settings["rates"][chosen]


def _onto(rbms: RBM, deep: DeepBM) -> DeepBM:
    """Stacks of deep models whose first layers are these RBMs, in turn."""
    turns = np.arange(len(deep.biases[0])) % len(rbms.weights)
    first, visible, hidden = (a[turns] for a in (rbms.weights, rbms.visible_bias, rbms.hidden_bias))
    return DeepBM((first, deep.weights[1]), (visible, hidden, deep.biases[2]))


def pl(
    splits: Splits, how: dict[str, Any], config: dict[str, Any], seed: int
) -> dict[str, np.ndarray]:
    """Pseudo-likelihood of all runs at once, answered by belief propagation."""
    settings, runs, layers = config["pl"], config["runs"], config["layers"]
    keys = jax.random.split(jax.random.key(seed), runs)
    x, valid = splits["train"], splits["valid"]
    targets = targets_of(valid, seed + 1)
    best = BestOfEach(lambda models, key: scores(_asked(models, layers), valid, targets))
    batches = Batches(x, config["batch"], seed)
    steps = batches.steps(settings["epochs"])
    every = max(1, steps // settings["validate"])
    fit(
        stack([create("RBM", x.shape[1], how["hidden"], key) for key in keys]),
        Ensemble(PseudoLikelihood()),
        optax.adam(optax.cosine_decay_schedule(settings["rate"], steps, config["decay"])),
        batches,
        jax.random.key(seed),
        steps=steps,
        log_every=every,
        validate=best,
        validate_every=every,
        mode="min",
    )
    test = splits["test"]
    return {"test": scores(_asked(best.models, layers), test, targets_of(test, seed))}


def _asked(models: Any, layers: int) -> QueryNetwork:
    """A stack of models as networks at temperature one."""
    ones = jnp.ones(jax.tree.leaves(models)[0].shape[0])
    return QueryNetwork(models, ones, layers, symmetric_start=True)


def _gibbs(model: Any, x: np.ndarray, config: dict[str, Any], seed: int, rows: int = 5000) -> float:
    """Bits per target when targets are answered by block Gibbs with the evidence held."""
    targets = np.asarray(targets_of(x, seed))
    total = 0.0
    for first in range(0, len(x), rows):
        part = slice(first, first + rows)
        p = _gibbs_answers(
            model,
            jnp.asarray(x[part]),
            jnp.asarray(targets[part]),
            jax.random.key(seed + first),
            **config["gibbs"],
        )
        p = np.clip(np.asarray(p, np.float64), 1e-15, 1 - 1e-15)
        loss = -(x[part] * np.log(p) + (1 - x[part]) * np.log1p(-p))
        total += float(loss[targets[part]].sum())
    return total / targets.sum() / BITS


@eqx.filter_jit
def _gibbs_answers(
    model: Any,
    x: Float[Array, "rows v"],
    targets: Bool[Array, "rows v"],
    key: Key[Array, ""],
    steps: int,
    burn_in: int,
    thin: int,
) -> Float[Array, "rows v"]:
    """Mean of p(v | h) over every thin-th state after the burn-in."""
    kernel, n, rows = BlockGibbs(), model.layout.n, len(x)
    start_key, key = jax.random.split(key)
    state = jax.random.bernoulli(start_key, 0.5, (rows, n)).astype(x.dtype)
    state = state.at[:, : x.shape[1]].set(jnp.where(targets, state[:, : x.shape[1]], x))
    free = jnp.ones((rows, n), bool).at[:, : x.shape[1]].set(targets)

    def one(i: Array, loop: tuple) -> tuple:
        state, total, count = loop
        state, _ = kernel.step(model, state, free, jax.random.fold_in(key, i))
        keep = ((i >= burn_in) & ((i - burn_in) % thin == 0)).astype(x.dtype)
        return state, total + keep * jax.nn.sigmoid(model.conditional(0, state.x)), count + keep

    zero = jnp.zeros_like(x), jnp.zeros((), x.dtype)
    first = kernel.init(model, state, start_key)
    _, total, count = jax.lax.fori_loop(0, steps, one, (first, *zero))
    return total / count
