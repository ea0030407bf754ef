"""The centre of the demo: conditional models fill in a hidden patch, learned in three ways."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from undirected.cli import console
from undirected.core.protocols import Inference, Objective
from undirected.data.corruption import occlude
from undirected.evaluation import Estimate, error_rate
from undirected.inference import MeanField, SumProduct, predict
from undirected.learning import (
    Batches,
    Conditional,
    ContrastiveDivergence,
    Progress,
    TwoPhase,
    fit,
)
from undirected.models import ConditionalRBM
from undirected.sampling import BlockGibbs

HIDDEN, BATCH, SIDE = 64, 50, 12


def restore(
    train: np.ndarray, test: np.ndarray, shape: tuple[int, int], seed: int
) -> tuple[np.ndarray, dict[str, Estimate], dict[str, np.ndarray]]:
    """What is seen of the test images, each method's error under the patch, and its answers.

    Patches are drawn afresh at every step. The models with hidden units start at the regression.
    """
    key = jax.random.key(seed)
    batches = Batches(train, BATCH, seed, transform=lambda v, k: (occlude(v, shape, SIDE, k)[0], v))
    seen, hidden = occlude(jnp.asarray(test), shape, SIDE, key)
    pixels = test.shape[1]
    model = ConditionalRBM.create(pixels, 0, pixels, key)
    messages = SumProduct(10, 1e-3)
    model = _learn("logistic regression", model, TwoPhase(messages), batches, 12, seed)
    first = ConditionalRBM.create(pixels, HIDDEN, pixels, key)
    first = eqx.tree_at(
        lambda m: (m.visible_features, m.visible_bias),
        first,
        (model.visible_features, model.visible_bias),
    )
    chains = ContrastiveDivergence(BlockGibbs(), 1)
    models: dict[str, tuple[Any, Inference]] = {"logistic regression": (model, messages)}
    name = "conditional RBM, contrastive divergence"
    models[name] = _learn(name, first, chains, batches, 8, seed), MeanField(10, 1e-3)
    name = "conditional RBM, belief propagation"
    models[name] = _learn(name, first, TwoPhase(messages), batches, 8, seed), messages
    answers = {
        name: predict(model, np.asarray(seen), infer, key)
        for name, (model, infer) in models.items()
    }
    errors = {name: error_rate(p > 0.5, test, np.asarray(hidden)) for name, p in answers.items()}
    return np.where(hidden, np.nan, seen), errors, answers


def _learn(
    title: str,
    model: ConditionalRBM,
    objective: Objective,
    batches: Batches,
    epochs: int,
    seed: int,
) -> ConditionalRBM:
    """Learn with momentum and a rate that falls to zero, under a progress bar."""
    bar = console.Bar(title)

    def show(progress: Progress) -> None:
        bar.update(progress.step, progress.total, progress.rate)

    steps = batches.steps(epochs)
    with bar.running():
        return fit(
            model,
            Conditional(objective),
            optax.sgd(optax.cosine_decay_schedule(0.05, steps), 0.9),
            batches,
            jax.random.key(seed),
            steps=steps,
            log_every=max(1, steps // 20),
            on_event=show,
        ).model
