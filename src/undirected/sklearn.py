"""Estimators in the manner of scikit-learn."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from undirected.core.errors import UndirectedError
from undirected.inference import QueryNetwork
from undirected.learning import Batches, QueryTraining, UniformQueries, answers, fit
from undirected.models import RBM, SpinForm


class QueryImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Fills missing entries of 0/1 or grey tables with the probability of a one.

    An RBM trained by query training: which entries are missing may differ from row to row, in
    training and after. Values lie in [0, 1], missing ones are NaN.

    Args:
        n_hidden: hidden units of the RBM.
        layers: sweeps of belief propagation that answer a query, in training and after.
        target_share: share of the entries that a training query asks for; the others are evidence.
        learning_rate: of Adam; falls to a tenth along a cosine.
        batch_size: rows of a training step.
        epochs: passes over the rows.
        random_state: seed of the weights, the batches and the queries.
    """

    def __init__(
        self,
        n_hidden: int = 50,
        layers: int = 10,
        target_share: float = 0.5,
        learning_rate: float = 0.01,
        batch_size: int = 100,
        epochs: float = 50.0,
        random_state: int | np.random.RandomState | None = 0,
    ):
        self.n_hidden = n_hidden
        self.layers = layers
        self.target_share = target_share
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.epochs = epochs
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: Any = None) -> "QueryImputer":
        """Train on rows of which entries may be missing; `y` is not used."""
        x = self._checked(X, reset=True).astype(np.float32)
        seed = self.random_state
        if not isinstance(seed, int):
            seed = int(check_random_state(seed).randint(2**31 - 1))
        key = jax.random.key(seed)
        model = SpinForm(RBM.create(x.shape[1], self.n_hidden, key))
        start = QueryNetwork(model, jnp.asarray(1.0), self.layers, symmetric_start=True)
        batches = Batches(x, self.batch_size, seed)
        steps = batches.steps(self.epochs)
        rate = optax.cosine_decay_schedule(self.learning_rate, max(1, steps), 0.1)
        objective = QueryTraining(UniformQueries(self.target_share), "mean")
        result = fit(start, objective, optax.adam(rate), batches, key, steps=steps)
        self.network_ = result.model
        return self

    def transform(self, X: ArrayLike) -> np.ndarray:
        """The rows with every NaN replaced by the probability of a one."""
        check_is_fitted(self, "network_")
        x = self._checked(X, reset=False)
        return np.where(np.isnan(x), answers(self.network_, x.astype(np.float32)), x)

    def _checked(self, X: ArrayLike, reset: bool) -> np.ndarray:
        """Rows of floats in [0, 1] or NaN, whose columns are those of the fit."""
        floats = [np.float64, np.float32]
        how: Any = {"X": X, "reset": reset, "dtype": floats, "ensure_all_finite": "allow-nan"}
        x = np.asarray(validate_data(self, **how))
        wrong = ~np.isnan(x) & ~((x >= 0) & (x <= 1))
        if wrong.any():
            raise UndirectedError(
                f"QueryImputer: got the value {x[wrong][0]}; wanted values in [0, 1], NaN where "
                "one is missing"
            )
        return x
