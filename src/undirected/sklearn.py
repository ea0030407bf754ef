"""Estimators in the manner of scikit-learn."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import ArrayLike
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    OneToOneFeatureMixin,
    TransformerMixin,
)
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from undirected import tasks
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


class RBMFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Features of 0/1 or grey tables: how probable each hidden unit of an RBM is, given the row.

    The RBM is learned by persistent contrastive divergence; `rbm_` is that model, to be queried,
    sampled or saved.

    Args:
        n_hidden: hidden units, which is the number of features.
        learning_rate: of Adam; it falls to 0 over the second half of the steps.
        batch_size: rows of a training step.
        epochs: passes over the rows.
        random_state: seed of the weights, the batches and the chains.
    """

    def __init__(
        self,
        n_hidden: int = 100,
        learning_rate: float = 5e-3,
        batch_size: int = 10,
        epochs: float = 10.0,
        random_state: int | np.random.RandomState | None = 0,
    ):
        self.n_hidden = n_hidden
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.epochs = epochs
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: Any = None) -> "RBMFeatures":
        """Learn the RBM; `y` is not used."""
        x = self._checked(X, reset=True)
        seed = self.random_state
        if not isinstance(seed, int):
            seed = int(check_random_state(seed).randint(2**31 - 1))
        start = RBM.create(x.shape[1], self.n_hidden, seed=seed, means=x.mean(0))
        self.rbm_ = tasks.fit(
            start,
            x,
            epochs=self.epochs,
            batch=min(self.batch_size, len(x)),
            learning_rate=self.learning_rate,
            seed=seed,
        ).model
        return self

    def transform(self, X: ArrayLike) -> np.ndarray:
        """The probability of every hidden unit, for each row."""
        check_is_fitted(self, "rbm_")
        x = self._checked(X, reset=False)
        return np.asarray(jax.nn.sigmoid(self.rbm_.hidden_fields(jnp.asarray(x))))

    @property
    def _n_features_out(self) -> int:
        return self.n_hidden

    def _checked(self, X: ArrayLike, reset: bool) -> np.ndarray:
        """Rows of floats in [0, 1] whose columns are those of the fit."""
        how: Any = {"X": X, "reset": reset, "dtype": np.float32}
        x = np.asarray(validate_data(self, **how))
        if ((x < 0) | (x > 1)).any():
            raise UndirectedError(
                f"RBMFeatures: got values from {x.min():g} to {x.max():g}; wanted values in "
                "[0, 1], as MinMaxScaler(clip=True) makes them"
            )
        return x
