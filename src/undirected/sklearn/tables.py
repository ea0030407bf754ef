"""Tables of words and numbers, with holes: an imputer and a density."""

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from sklearn.base import (
    BaseEstimator,
    DensityMixin,
    OneToOneFeatureMixin,
    TransformerMixin,
    _fit_context,
)
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from undirected.core.cells import unmasked
from undirected.core.errors import UndirectedError
from undirected.core.table_units import TableUnits
from undirected.sklearn.codec import TableCodec
from undirected.tasks import Settings, train_table
from undirected.tasks.enumerated import MOST_HIDDEN, hidden_for
from undirected.tasks.enumerated_learning import fit_enumerated
from undirected.tasks.fit_table import columns_of, settings_for, table_model
from undirected.tasks.table_kinds import like
from undirected.tasks.table_model import TableModel
from undirected.tasks.table_models import MOST_ENTRIES

MOST_BINARY = 20_000
"""In place of `MOST_ENTRIES` where all columns are binary: for larger ones the default of
`fit_table` is better than enumerated hidden states, if slower."""


class _TableEstimator(BaseEstimator):
    """A mixed RBM of a table: exact with few hidden units, by `tasks.train_table` with more."""

    _parameter_constraints: ClassVar[dict] = {
        "n_hidden": [Interval(Integral, 1, None, closed="left"), None],
        "types": [dict, None],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_hidden: int | None = None,
        *,
        types: Mapping[Any, str] | None = None,
        alpha: float = 1.0,
        max_iter: int = 200,
        random_state: int | np.random.RandomState | None = None,
    ):
        self.n_hidden = n_hidden
        self.types = types
        self.alpha = alpha
        self.max_iter = max_iter
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Any:
        """Learn from rows of which entries may be missing; `y` is not used."""
        x = self._checked(X, reset=True)
        labels = list(getattr(self, "feature_names_in_", range(x.shape[1])))
        self.codec_ = TableCodec.infer(X, x, labels, dict(self.types or {}))
        self.template_ = None
        if hasattr(X, "iloc"):
            self.template_ = X.iloc[:0].copy()
        elif hasattr(X, "with_columns"):  # of polars
            self.template_ = X[:0]
        self.model_, self.n_iter_ = self._learn(self.codec_.encode(X, x))
        return self

    def _learn(self, values: Float[np.ndarray, "rows columns"]) -> tuple[TableModel, int]:
        """The model of encoded rows, and the steps that it took."""
        schema, rng = self.codec_.schema, check_random_state(self.random_state)
        units = TableUnits.of(schema).to_units(values)
        hidden = self.n_hidden
        most = MOST_BINARY if schema.kinds == {"binary"} else MOST_ENTRIES
        if hidden is None and units.size <= most:
            hidden = hidden_for(len(units))
        if hidden is not None and hidden <= MOST_HIDDEN:
            how: dict[str, Any] = {"alpha": float(self.alpha), "max_iter": self.max_iter}
            model, steps = fit_enumerated(schema, units, hidden, rng, **how)
            return TableModel(model, schema), steps
        seed = int(rng.randint(2**31 - 1))
        settings = settings_for(Settings(hidden=hidden, seed=seed), schema)
        trained = train_table(values, settings, columns=columns_of(settings, schema))
        return table_model(trained, schema), max(1, int(trained.result.step))

    def _checked(self, X: Any, reset: bool) -> np.ndarray:
        x = unmasked(X)
        if hasattr(x, "to_frame") and not hasattr(x, "columns"):
            raise UndirectedError(
                f"{type(self).__name__}: got a {type(X).__name__}, which is one column; pass a "
                "frame, such as X.to_frame()"
            )
        if hasattr(x, "iloc") and any(dtype.kind not in "buif" for dtype in x.dtypes):
            x = x.astype(object)  # scikit-learn would look for one type of all columns
        how: Any = {"X": x, "reset": reset, "dtype": None, "ensure_all_finite": "allow-nan"}
        return np.asarray(validate_data(self, **how, ensure_min_samples=2 if reset else 0))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


class TableImputer(OneToOneFeatureMixin, TransformerMixin, _TableEstimator):
    """Fills the missing cells of a table of any columns: words, categories, 0/1 and numbers.

    A missing word becomes the most probable one given the other cells of its row, a missing number
    its mean. Cells that are there stay as they are. A data frame gives a data frame, with its
    types. What a column holds is found out as `fit_table` does, and `types` says otherwise: a few
    whole numbers are states, as words are, all other numbers real, or nonnegative where many are 0.
    Columns that `fit_table` leaves out (of one value, ids, dates, free text) are filled with their
    commonest cell, those without any value with 0.

    Args:
        n_hidden: hidden units of the mixed RBM; up to 10 are learned exactly, more by persistent
            contrastive divergence. By default 2 to 8 for tables of up to 200,000 entries, a state
            being one (20,000 where all columns are binary), and as `fit_table` has it for larger
            ones, which may take minutes: n_hidden=8 is quicker, and less good.
        types: "binary", "category", "real" or "nonnegative" for some columns, by their names
            (by their numbers where they have no names).
        fill: "best", the most probable state of columns of 0 and 1, or "mean", the probability of
            a one.
        alpha: penalty of the squared weights, up to 10 hidden units.
        max_iter: most iterations of L-BFGS, likewise.
        random_state: of the first weights, and of the chains.

    Attributes:
        model_: the fitted `TableModel`, to be queried, sampled, measured and saved.

    Example:
        >>> import numpy as np
        >>> from undirected.sklearn import TableImputer
        >>> table = np.array([["red", 1.5], ["blue", 9.2]] * 20, object)
        >>> imputer = TableImputer(random_state=0).fit(table)
        >>> imputer.transform(np.array([[None, 8.7], ["red", 1.2]], object))[0, 0]
        'blue'
    """

    _parameter_constraints: ClassVar[dict] = {
        **_TableEstimator._parameter_constraints,
        "fill": [StrOptions({"best", "mean"})],
    }

    def __init__(
        self,
        n_hidden: int | None = None,
        *,
        types: Mapping[Any, str] | None = None,
        fill: str = "best",
        alpha: float = 1.0,
        max_iter: int = 200,
        random_state: int | np.random.RandomState | None = None,
    ):
        super().__init__(
            n_hidden, types=types, alpha=alpha, max_iter=max_iter, random_state=random_state
        )
        self.fill = fill

    def transform(self, X: Any) -> Any:
        """The table with every missing cell filled in."""
        check_is_fitted(self)
        x = self._checked(X, reset=False)
        answers = []
        if len(x):
            answers = self.model_.answers(self.codec_.encode(X, x, strict=False))
        filled, holes = self.codec_.fill(x, answers, self.fill == "mean")
        if not hasattr(X, "iloc"):
            return _filled(X, filled, holes) if hasattr(X, "with_columns") else filled
        found = X.copy()
        for j in np.flatnonzero(holes.any(0)):
            column = filled[:, j]
            number = X.dtypes.iloc[j].kind in "iu" and self.fill == "mean"
            found.isetitem(j, column.astype(np.float64) if number else like(X.iloc[:, j], column))
        return found


class TableDensity(DensityMixin, _TableEstimator):
    """The density of rows of a table of any columns, which may have holes.

    The log-likelihood of a row is that of its observed cells: a probability for words, a density in
    the units of the table for numbers. Columns that `fit_table` leaves out do not count.

    Args:
        n_hidden: as for `TableImputer`.
        types: as for `TableImputer`.
        alpha: as for `TableImputer`.
        max_iter: as for `TableImputer`.
        random_state: as for `TableImputer`.

    Attributes:
        model_: the fitted `TableModel`.

    Example:
        >>> import numpy as np
        >>> from undirected.sklearn import TableDensity
        >>> table = np.array([["red", 1.5], ["blue", 9.2]] * 20, object)
        >>> density = TableDensity(random_state=0).fit(table)
        >>> common, odd = density.score_samples(np.array([["red", 1.5], ["red", 9.2]], object))
        >>> bool(common > odd)
        True
    """

    def score_samples(self, X: ArrayLike) -> Float[np.ndarray, " rows"]:
        """The log-likelihood of the observed cells of each row, in nats."""
        check_is_fitted(self)
        x = self._checked(X, reset=False)
        if not len(x):
            return np.zeros(0)
        values, model = self.codec_.encode(X, x), self.model_
        units = ~np.isnan(values) @ self.codec_.log_scales
        found = model.score(values, seed=0, entries=False).log_likelihood.rows
        return np.asarray(found, np.float64) - units

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """The mean log-likelihood of the rows; `y` is not used."""
        found = self.score_samples(X)
        if not len(found):
            raise UndirectedError("TableDensity.score: got no rows, which have no mean; pass some")
        return float(found.mean())

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """Rows drawn from the model: a data frame as it was fitted to, else an array."""
        check_is_fitted(self)
        rng = check_random_state(self.random_state if random_state is None else random_state)
        nothing = np.full(len(self.codec_.schema), np.nan, np.float32)
        drawn = self.model_.samples(n_samples, nothing, seed=int(rng.randint(2**31 - 1)))
        rows = self.codec_.decode(drawn)
        if self.template_ is None:
            return rows
        names, columns = self.template_.columns, list(rows.T)
        pandas = hasattr(self.template_, "iloc")
        own = [
            self.template_.iloc[:, j] if pandas else self.template_[n] for j, n in enumerate(names)
        ]
        columns = map(like, own, columns)
        return type(self.template_)(dict(zip(names, columns, strict=True)))


def _filled(X: Any, cells: np.ndarray, holes: np.ndarray) -> Any:
    """A data frame of polars with these cells in its holes; types stay where cells allow it."""
    columns = []
    for j in np.flatnonzero(holes.any(0)):
        column = X[X.columns[j]]
        old = zip(column.to_list(), cells[:, j], holes[:, j], strict=True)
        columns.append(like(column, [new if hole else cell for cell, new, hole in old]))
    return X.with_columns(columns)
