"""Hidden units of an RBM as features: the estimator that stands in for `BernoulliRBM`."""

import warnings
from numbers import Integral, Real
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from scipy.special import expit
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    _fit_context,
)
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted, validate_data

from undirected import tasks
from undirected.core.cells import unmasked

FLOATS = (np.float64, np.float32)
ROWS_AT_ONCE = 1000
"""Rows that are scored at a time."""
VERBOSE_ROWS = 200
"""Rows whose pseudo-likelihood is told after a pass."""


class RBMFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Features of 0/1 or grey tables: how probable each hidden unit of an RBM is, given the row.

    A drop-in for `sklearn.neural_network.BernoulliRBM`, with its parameters and attributes: the RBM
    is learned by persistent contrastive divergence with steps of one size. Where `batch_size`
    divides the rows, the same seed gives the same weights; a smaller last batch counts here by its
    own mean. `rbm_` is the model, to be queried, sampled, measured or saved.

    Args:
        n_components: hidden units, which is the number of features.
        learning_rate: size of a step.
        batch_size: rows of a step, and chains.
        n_iter: passes over the rows.
        verbose: print the pseudo-likelihood of the first 200 rows after every pass.
        random_state: of the weights and the chains.

    Example:
        >>> import numpy as np
        >>> from undirected.sklearn import RBMFeatures
        >>> rows = np.array([[0, 0, 1], [1, 1, 0], [1, 1, 1], [0, 0, 0]])
        >>> RBMFeatures(2, random_state=0).fit_transform(rows).shape
        (4, 2)
    """

    _parameter_constraints: ClassVar[dict] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "n_iter": [Interval(Integral, 0, None, closed="left")],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_components: int = 256,
        *,
        learning_rate: float = 0.1,
        batch_size: int = 10,
        n_iter: int = 10,
        verbose: int = 0,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.n_components = n_components
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.n_iter = n_iter
        self.verbose = verbose
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: Any = None) -> "RBMFeatures":
        """Learn the RBM; `y` is not used."""
        x: Any = self._checked(X, reset=True)
        self._warn_of_range(x)
        self._start(x.shape[1], x.dtype)
        began = perf_counter()
        for i in range(1, self.n_iter + 1):
            for start in range(0, x.shape[0], self.batch_size):
                self._step(x[start : start + self.batch_size])
            if self.verbose:
                score, now = self._pseudo(_dense(x[:VERBOSE_ROWS])).mean(), perf_counter()
                print(  # noqa: T201 (asked for by `verbose`)
                    f"[{type(self).__name__}] Iteration {i}, pseudo-likelihood = {score:.2f}, "
                    f"time = {now - began:.2f}s"
                )
                began = now
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: ArrayLike, y: Any = None) -> "RBMFeatures":
        """One step on these rows, from where the model is; `y` is not used."""
        new = not hasattr(self, "components_")
        x: Any = self._checked(X, reset=new)
        if new:
            self._warn_of_range(x)
            self._start(x.shape[1], np.dtype(np.float64))
        self._step(x)
        return self

    def transform(self, X: ArrayLike) -> np.ndarray:
        """The probability of every hidden unit, for each row."""
        check_is_fitted(self)
        return self._mean_hiddens(self._checked(X, reset=False))

    def score_samples(self, X: ArrayLike) -> Float[np.ndarray, " rows"]:
        """The log-pseudo-likelihood of each row, summed over all columns.

        Exact, where `BernoulliRBM` flips one column at random and multiplies.
        """
        check_is_fitted(self)
        x: Any = self._checked(X, reset=False)
        starts = range(0, x.shape[0], ROWS_AT_ONCE)
        return np.concatenate([self._pseudo(_dense(x[i : i + ROWS_AT_ONCE])) for i in starts])

    def gibbs(self, v: ArrayLike) -> np.ndarray:
        """One sweep of Gibbs sampling, hidden units and then visible ones, from rows of 0 and 1."""
        check_is_fitted(self)
        if not hasattr(self, "random_state_"):
            self.random_state_ = check_random_state(self.random_state)
        hidden = self._sample_hiddens(v, self.random_state_)
        return self._sample_visibles(hidden, self.random_state_)

    def sample(self, n_samples: int = 1, *, sweeps: int = 1000) -> np.ndarray:
        """Rows drawn from the model, each from a chain of its own."""
        check_is_fitted(self)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        return np.asarray(tasks.sample(self.rbm_, n_samples, sweeps=sweeps, seed=seed))

    @property
    def rbm_(self) -> Any:
        """The model as an `RBM`."""
        check_is_fitted(self)
        import jax.numpy as jnp

        from undirected.models import RBM

        parts = self.components_.T, self.intercept_visible_, self.intercept_hidden_
        weights, visible, hidden = (jnp.asarray(part, jnp.float32) for part in parts)
        return RBM(weights, visible, hidden)

    def _start(self, n_features: int, dtype: np.dtype) -> None:
        rng = self.random_state_ = check_random_state(self.random_state)
        weights = rng.normal(0, 0.01, (self.n_components, n_features))
        self.components_ = np.asarray(weights, dtype, order="F")
        self._n_features_out = self.n_components
        self.intercept_hidden_ = np.zeros(self.n_components, dtype)
        self.intercept_visible_ = np.zeros(n_features, dtype)
        self.h_samples_ = np.zeros((self.batch_size, self.n_components), dtype)

    def _step(self, v: Any) -> None:
        """One step of persistent contrastive divergence."""
        rng, rate, rows = self.random_state_, self.learning_rate, v.shape[0]
        on = self._mean_hiddens(v)
        dreamt = self._sample_visibles(self.h_samples_, rng)
        dreamt_on = self._mean_hiddens(dreamt)
        # Sums of whole numbers, so that single precision loses nothing before the division.
        step, share = rate / rows, rows / len(dreamt)
        self.components_ += step * (np.asarray(v.T @ on).T - share * (dreamt_on.T @ dreamt))
        self.intercept_hidden_ += step * (on.sum(0) - share * dreamt_on.sum(0))
        self.intercept_visible_ += step * (np.asarray(v.sum(0)).ravel() - share * dreamt.sum(0))
        self.h_samples_ = (rng.uniform(size=dreamt_on.shape) < dreamt_on).astype(on.dtype)

    def _mean_hiddens(self, v: Any) -> np.ndarray:
        """P(h = 1 | v)."""
        return expit(np.asarray(v @ self.components_.T) + self.intercept_hidden_)

    def _sample_hiddens(self, v: Any, rng: np.random.RandomState) -> np.ndarray:
        p = self._mean_hiddens(v)
        return rng.uniform(size=p.shape) < p

    def _sample_visibles(self, h: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
        p = expit(h @ self.components_ + self.intercept_visible_)
        return rng.uniform(size=p.shape) < p

    def _pseudo(self, v: Float[np.ndarray, "rows V"]) -> Float[np.ndarray, " rows"]:
        """sum_i log p(v_i | the others): by the free energy with v_i and with 1 - v_i."""
        fields, turn = v @ self.components_.T + self.intercept_hidden_, 1 - 2 * v
        rise = turn * self.intercept_visible_ - np.logaddexp(0, fields).sum(1)[:, None]
        for field, weights in zip(fields.T, self.components_, strict=True):
            rise += np.logaddexp(0, field[:, None] + turn * weights)
        return -np.logaddexp(0, rise).sum(1)

    def _checked(self, X: Any, reset: bool) -> Any:
        how: Any = {"X": unmasked(X), "reset": reset, "accept_sparse": "csr", "dtype": FLOATS}
        return validate_data(self, **how)

    def _warn_of_range(self, x: Any) -> None:
        if x.min() < 0 or x.max() > 1:
            warnings.warn(
                f"{type(self).__name__}: got values from {x.min():g} to {x.max():g}; wanted values "
                "in [0, 1], as MinMaxScaler(clip=True) makes them",
                stacklevel=3,
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _dense(x: Any) -> np.ndarray:
    return x.toarray() if issparse(x) else x
