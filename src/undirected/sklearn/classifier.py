"""A classifier whose labels are answered together: a conditional RBM."""

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from undirected.tasks.enumerated import MOST_HIDDEN, Groups, fit_conditional


class StructuredClassifier(ClassifierMixin, BaseEstimator):
    """One label or many at once, by a conditional RBM: labels that go together are learned so.

    Features move the biases of the labels and of hidden units that couple the labels. The
    conditional likelihood and its gradient are exact, all states of the hidden units being
    enumerated; without hidden units it is a logistic regression for each label. Features are
    standardised first.

    Args:
        n_hidden: hidden units, up to 10.
        alpha: penalty of the squared weights.
        max_iter: most iterations of L-BFGS.
        random_state: of the first weights.

    Attributes:
        classes_: of the label; for many labels a list with those of each.
        model_: the `ConditionalHarmonium`.

    Example:
        >>> import numpy as np
        >>> from undirected.sklearn import StructuredClassifier
        >>> x = np.repeat([[0.0, 1.0], [1.0, 0.0]], 10, 0)
        >>> labels = np.repeat([[0, 1, 1], [1, 0, 0]], 10, 0)
        >>> StructuredClassifier(random_state=0).fit(x, labels).predict([[0.1, 0.8]])
        array([[0, 1, 1]])
    """

    _parameter_constraints: ClassVar[dict] = {
        "n_hidden": [Interval(Integral, 0, MOST_HIDDEN, closed="both")],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_hidden: int = 4,
        *,
        alpha: float = 1.0,
        max_iter: int = 200,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.n_hidden = n_hidden
        self.alpha = alpha
        self.max_iter = max_iter
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike) -> "StructuredClassifier":
        """Learn from rows of features and of labels, `y` (rows,) or (rows, labels)."""
        how: Any = {"X": X, "y": y, "multi_output": True, "dtype": np.float64}
        x, labels = validate_data(self, **how)
        check_classification_targets(labels)
        labels = labels.toarray() if issparse(labels) else labels
        self._many = labels.ndim == 2
        labels = _columns(labels)
        found = [np.unique(column, return_inverse=True) for column in labels.T]
        classes = [own for own, _ in found]
        self.classes_ = classes if self._many else classes[0]
        self.mean_, spread = x.mean(0), x.std(0)
        self.scale_ = np.where(spread > 0, spread, 1.0)
        groups = Groups(tuple(map(len, classes)))
        v = groups.one_hot(np.stack([codes.ravel() for _, codes in found], 1))
        rng = check_random_state(self.random_state)
        options: dict[str, Any] = {"alpha": float(self.alpha), "max_iter": self.max_iter}
        self.model_, self.n_iter_ = fit_conditional(
            groups, self._standardised(x), v, self.n_hidden, rng, **options
        )
        return self

    def predict_proba(self, X: ArrayLike) -> Any:
        """The probability of every class, (rows, classes); for many labels a list of those."""
        check_is_fitted(self)
        how: Any = {"X": X, "reset": False, "dtype": np.float64}
        p = self.model_.predict(self._standardised(validate_data(self, **how)))
        parts = np.split(p, np.cumsum(self.model_.groups.widths)[:-1], 1)
        return parts if self._many else parts[0]

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The most probable class of each label."""
        found = self.predict_proba(X)
        if not self._many:
            return self.classes_[found.argmax(1)]
        best = [own[p.argmax(1)] for own, p in zip(self.classes_, found, strict=True)]
        return np.stack(best, 1)

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: Any = None) -> float:
        """The share of the rows all of whose labels are right."""
        right = _columns(np.asarray(y)) == _columns(self.predict(X))
        return float(accuracy_score(np.ones(len(right)), right.all(1), sample_weight=sample_weight))

    def _standardised(self, x: np.ndarray) -> np.ndarray:
        return (x - self.mean_) / self.scale_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        assert tags.classifier_tags is not None
        tags.classifier_tags.multi_label = True
        return tags


def _columns(labels: np.ndarray) -> np.ndarray:
    return labels if labels.ndim == 2 else labels[:, None]
