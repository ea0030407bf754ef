"""Learning that starts from a mixture: its size, its optimiser, and what tells the best step."""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Array, Key

from undirected.core.protocols import Optimiser
from undirected.evaluation import AISResult, ais, bracket
from undirected.learning import FitResult
from undirected.learning.centring import centred
from undirected.learning.mixture import SIZES, Mixture, choose_mixture, fit_mixture
from undirected.models import MixtureRBM
from undirected.tasks.choose import kernel_for, path_to
from undirected.tasks.entries import MOST_SUMMED, observed_mean

MOST_FIELDS = 40_000
"""Entries of the components' means beyond which there are no more than `MANY` components: drawing
the component takes so many sums for every chain. Beyond them learning starts from `FEW`."""
MANY = SIZES[-2]
"""Components that may be tried however many columns there are: fewer than hidden units, as a rule,
so that they cost less than those do, and clusters that come in variants need them."""
FEW = 20
"""Components that chains keep filled where columns are so many that none goes from one component to
another: five chains each. One without a chain has nothing to hold it back, and takes all of Z."""
MOST_ENTRIES = 2**24
"""Entries of the rows that a mixture is fitted to."""
CHAINS, BETAS, LAST_BETAS = 100, 100, 500
"""Of the annealing that judges a model during learning, and of that which judges the best one."""


def most_components(columns: int) -> int:
    """The largest mixture to try for a table of so many columns."""
    return int(np.clip(MOST_FIELDS // columns, MANY, SIZES[-1]))


def start_mixture(train: np.ndarray, valid: np.ndarray, most: int | None, seed: int) -> Mixture:
    """The best mixture on the held-out rows, fitted to as many rows as are needed."""
    most = most or most_components(train.shape[1])
    return choose_mixture(_enough(train, seed), valid, most=most, seed=seed)


def learnable(mixture: Mixture, train: np.ndarray, seed: int) -> Mixture:
    """The mixture, or one of `FEW` components where chains could not go between those it has."""
    if mixture.means.size <= MOST_FIELDS or len(mixture.means) <= FEW:
        return mixture
    return fit_mixture(_enough(train, seed), FEW, seed=seed)


def _enough(train: np.ndarray, seed: int) -> np.ndarray:
    """As many rows as a mixture needs, drawn from all."""
    count = max(SIZES[-1], MOST_ENTRIES // train.shape[1])
    if len(train) <= count:
        return train
    return train[np.random.default_rng(seed).choice(len(train), count, replace=False)]


@lru_cache(maxsize=64)
def centred_adam(rate: float, steps: int) -> Optimiser:
    """Adam on centred parameters, whose rate falls to 0 over the second half of the steps."""
    import optax

    schedule = optax.linear_schedule(rate, 0.0, steps - steps // 2, steps // 2)
    return centred(optax.adam(schedule))


def log_likelihood_of(model: Any, rows: np.ndarray, key: Key[Array, ""]) -> float:
    """Mean log-likelihood of rows with the upper end of log Z: what is not known does not count."""
    found = ais(path_to(model), kernel_for(model), key, chains=CHAINS, betas=BETAS)
    return observed_mean(model, rows, likely_most(found))


def likely_most(found: AISResult) -> float:
    """The upper end of log Z, or its value if all chains were as heavy as the heaviest one.

    Where a single chain carries the mean the interval ends thousands of nats above it. That says
    that little is known, but not of which of two models.
    """
    return min(found.interval[1], float(np.max(found.log_weights)))


def best_of(mixture: Mixture, result: FitResult, valid: np.ndarray) -> FitResult:
    """The result, or the best mixture where learning made held-out rows no likelier than it does.

    log Z of the learned model is estimated anew, from both sides; what is not known of it counts
    against the model.
    """
    if not len(valid) or result.stopped == "interrupted":
        return result
    model = result.best_model
    both = bracket(path_to(model), kernel_for(model), seed=0, chains=CHAINS, betas=LAST_BETAS)
    judged = valid[:MOST_SUMMED] if np.isnan(valid).any() else valid
    before = float(mixture.log_likelihood(judged).mean())
    worst = max(likely_most(both.lower), both.upper.interval[1])
    if observed_mean(model, judged, worst) > before:
        return replace(result, best=observed_mean(model, judged, both.log_z))
    start = MixtureRBM.from_mixture(*mixture.at_least(2), model.n_hidden, scale=0.0)
    return replace(result, best_model=start, best=before, best_step=0)
