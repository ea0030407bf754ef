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

from undirected.core.cells import unmasked
from undirected.core.errors import UndirectedError
from undirected.core.table_units import TableUnits
from undirected.tasks.enumerated import MOST_HIDDEN
from undirected.tasks.enumerated_conditional import fit_conditional


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
        model_: the conditional RBM over the labels that have two classes or more; None if none has.

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
        given: Any = {"X": unmasked(X), "y": unmasked(y), "multi_output": True, "dtype": np.float64}
        found: Any = validate_data(self, **given)
        x, labels = found
        self._many = labels.ndim == 2
        labels = _columns(labels)
        for column in labels.T:  # words may stand beside numbers in another column
            check_classification_targets(np.array(column.tolist()))
        states = [np.unique(column, return_inverse=True) for column in labels.T]
        classes = [own for own, _ in states]
        self.classes_ = classes if self._many else classes[0]
        self.mean_ = x.mean(0)
        self.scale_ = np.where(np.ptp(x, 0) > 0, x.std(0), 1.0)  # rounding gives 0.1, 0.1 a spread
        self._learned = [j for j, own in enumerate(classes) if len(own) > 1]
        kinds = [len(classes[j]) if len(classes[j]) > 2 else "binary" for j in self._learned]
        self.model_, self.n_iter_ = None, 1
        if kinds:
            codes = np.stack([states[j][1].ravel() for j in self._learned], 1)
            v = TableUnits.of(kinds).to_units(codes).astype(np.float64)
            rng, x = check_random_state(self.random_state), self._standardised(x)
            how: dict[str, Any] = {"alpha": float(self.alpha), "max_iter": self.max_iter}
            self.model_, self.n_iter_ = fit_conditional(kinds, x, v, self.n_hidden, rng, **how)
        return self

    def predict_proba(self, X: ArrayLike) -> Any:
        """The probability of every class, (rows, classes); for many labels a list of those."""
        check_is_fitted(self)
        how: Any = {"X": unmasked(X), "reset": False, "dtype": np.float64}
        rows: Any = validate_data(self, **how)
        x = self._standardised(rows)
        many = self.classes_ if self._many else [self.classes_]
        found = [np.ones((len(x), len(own))) for own in many]
        if self.model_ is not None:
            p, table = self.model_.predict(x), self.model_.visible.table
            for i, j in enumerate(self._learned):
                own = p[:, table.units(i)]
                found[j] = own if own.shape[1] > 1 else np.concatenate([1 - own, own], 1)
        return found if self._many else found[0]

    def predict_log_proba(self, X: ArrayLike) -> Any:
        """The logs of what `predict_proba` gives."""
        found = self.predict_proba(X)
        with np.errstate(divide="ignore"):
            return [np.log(p) for p in found] if self._many else np.log(found)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The most probable class of each label."""
        found = self.predict_proba(X)
        if not self._many:
            return self.classes_[found.argmax(1)]
        best = [own[p.argmax(1)] for own, p in zip(self.classes_, found, strict=True)]
        return np.stack(best, 1)

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: Any = None) -> float:
        """The share of the rows all of whose labels are right."""
        told, labels = _columns(self.predict(X)), _columns(y)
        if labels.shape != told.shape:
            raise UndirectedError(
                f"{type(self).__name__}.score: y has shape {np.shape(y)}; pass {told.shape[1]} "
                f"label(s) for each of {len(told)} rows"
            )
        right = (labels == told).all(1)
        return float(accuracy_score(np.ones(len(right)), right, sample_weight=sample_weight))

    def _standardised(self, x: np.ndarray) -> np.ndarray:
        return (x - self.mean_) / self.scale_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        assert tags.classifier_tags is not None
        tags.classifier_tags.multi_label = True
        return tags


def _columns(labels: Any) -> np.ndarray:
    """Labels as an array of two axes."""
    found = labels.toarray() if issparse(labels) else np.asarray(unmasked(labels))
    return found[:, None] if found.ndim == 1 else found
