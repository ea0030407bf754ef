"""Learning that starts from a mixture: its size, its optimiser, and what tells the best step."""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import optax
from jaxtyping import Array, Key

from undirected.evaluation import ais, bracket
from undirected.learning import FitResult
from undirected.learning.centring import centred
from undirected.learning.mixture import SIZES, Mixture, choose_mixture
from undirected.models import MixtureRBM
from undirected.tasks.choose import kernel_for, path_to
from undirected.tasks.entries import MOST_SUMMED, observed_mean

MOST_FIELDS = 40_000
"""Entries of the components' means beyond which there are no more than `MANY` components: drawing
the component takes so many sums for every chain."""
MANY = SIZES[-2]
"""Components that may be tried however many columns there are: fewer than hidden units, as a rule,
so that they cost less than those do, and clusters that come in variants need them."""
MOST_ENTRIES = 2**24
"""Entries of the rows that a mixture is fitted to."""
CHAINS, BETAS, LAST_BETAS = 100, 100, 500
"""Of the annealing that judges a model during learning, and of that which judges the best one."""


def most_components(columns: int) -> int:
    """The largest mixture to try for a table of so many columns."""
    return int(np.clip(MOST_FIELDS // columns, MANY, SIZES[-1]))


def start_mixture(train: np.ndarray, valid: np.ndarray, most: int | None, seed: int) -> Mixture:
    """The best mixture on the held-out rows, fitted to as many rows as are needed."""
    count = max(SIZES[-1], MOST_ENTRIES // train.shape[1])
    if len(train) > count:
        chosen = np.random.default_rng(seed).choice(len(train), count, replace=False)
        train = train[chosen]
    return choose_mixture(train, valid, most=most or most_components(train.shape[1]), seed=seed)


@lru_cache(maxsize=64)
def centred_adam(rate: float, steps: int) -> optax.GradientTransformation:
    """Adam on centred parameters, whose rate falls to 0 over the second half of the steps."""
    schedule = optax.linear_schedule(rate, 0.0, steps - steps // 2, steps // 2)
    return centred(optax.adam(schedule))


def log_likelihood_of(model: Any, rows: np.ndarray, key: Key[Array, ""]) -> float:
    """Mean log-likelihood of rows with the upper end of log Z: what is not known does not count."""
    found = ais(path_to(model), kernel_for(model), key, chains=CHAINS, betas=BETAS)
    return observed_mean(model, rows, found.interval[1])


def best_of(mixture: Mixture, result: FitResult, valid: np.ndarray) -> FitResult:
    """The result, or the mixture it started from where learning made held-out rows no likelier.

    log Z of the best model is estimated anew, from both sides; where they do not meet the model is
    not trusted, and what is not known of log Z counts against it.
    """
    if not len(valid) or result.stopped == "interrupted":
        return result
    model = result.best_model
    both = bracket(path_to(model), kernel_for(model), seed=0, chains=CHAINS, betas=LAST_BETAS)
    judged = valid[:MOST_SUMMED] if np.isnan(valid).any() else valid
    before = float(mixture.log_likelihood(judged).mean())
    after = observed_mean(model, judged, both.log_z)
    if both.meet and after - both.spread / 2 > before:
        return replace(result, best=after)
    start = MixtureRBM.from_mixture(*mixture.at_least(2), model.n_hidden, scale=0.0)
    return replace(result, best_model=start, best=before, best_step=0)
