"""Learning with defaults: an objective, an optimiser and batches that suit model and data."""

import warnings
from functools import lru_cache
from inspect import signature
from numbers import Real
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from undirected.core.cells import as_numbers
from undirected.core.errors import UndirectedError, check_counts, check_offers, check_options
from undirected.core.protocols import Marginal, Objective, Optimiser, Summable
from undirected.core.random import make_key
from undirected.inference import MeanField, SumProduct
from undirected.io.checkpoint import Checkpoints
from undirected.learning import (
    Batches,
    Conditional,
    Ensemble,
    FitResult,
    Persistent,
    PseudoLikelihood,
    TwoPhase,
)
from undirected.learning import fit as run_fit
from undirected.learning.positive_diagonal import positive_diagonal
from undirected.learning.units_of_measure import in_own_units
from undirected.models import ConditionalRBM, FactorGraph, NonnegativeBM
from undirected.tasks.choose import kernel_for
from undirected.tasks.network_data import (
    goes_by_name,
    states_by_name,
    states_of_units,
    unit_table,
)
from undirected.tasks.network_learning import exact_likelihood, fit_exactly, is_network
from undirected.tasks.rows import unit_rows, visible_rows
from undirected.tasks.units_of_measure import some_rows, started

SETTINGS = {p.name for p in signature(run_fit).parameters.values() if p.kind == p.KEYWORD_ONLY}
"""What `learning.fit` takes beside its model, its data and how they are learned."""
STEPS = 4000
"""Steps of a fit of which neither steps nor epochs are given, within 3 to 200 epochs."""

SLOW, FAST = 2e-3, 2e-2
"""Rates of Adam: chains lose clusters of large models that move fast, small ones hardly move."""


def fit(
    model: Any,
    data: Any,
    objective: Objective | None = None,
    optimiser: Optimiser | None = None,
    *,
    steps: int | None = None,
    epochs: float | None = None,
    batch: int | None = None,
    learning_rate: float | None = None,
    key: Key[Array, ""] | None = None,
    seed: int | None = None,
    **options: Any,
) -> FitResult:
    """Fit a model to data; what is not given is chosen by what the model can do.

    Args:
        model: the model to start from. One of real units that stands as `create` makes it starts
            at the means and deviations of the data, and steps of the optimiser are as long as in
            units in which these are 0 and 1, unless `trainable` holds some parameters.
        data: rows over the visible units, NaN where an entry is missing, a value between 0 and 1
            where only the probability of a one is known; for a model with columns rows of one
            cell a column; for a conditional model the pair (features, rows); or `Batches`. For a
            network also `{name: column of states}` or a data frame; a variable without a column is
            hidden, None or NaN is a missing entry.
        objective: by default, for a network of tables whose junction tree fits, the exact
            likelihood of what the rows show, all at once by L-BFGS, unless optimiser, steps, epochs
            or batch are given. Else pseudo-likelihood where nothing is hidden or missing, and
            persistent contrastive divergence with the kernel that suits the model where something
            is; for a conditional model belief propagation.
        optimiser: by default Adam, whose rate falls to 0 over the second half.
        steps: number of steps.
        epochs: number of passes over the rows, instead of steps.
        batch: rows of a step.
        learning_rate: of the default optimiser: by default 0.002, and up to 0.02 for small models
            with hidden units (0.3 by the number of visible ones), which would hardly leave their
            start.
        key: of all random numbers.
        seed: the same as a number; pass one of the two.
        options: more settings of `undirected.learning.fit`, such as `validate`, `mesh` or `store`,
            the folder in which a run is kept so that the same call goes on after a stop.

    Returns:
        A `FitResult`; its `model` is the fitted one.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> rows = np.repeat([[0, 0, 1], [1, 1, 0]], 50, 0)
        >>> fitted = un.fit(un.Ising.create(3), rows, steps=200, learning_rate=0.05).model
        >>> float(un.query(fitted, [[1, float("nan"), 0]])[0, 1]) > 0.9
        True
        >>> net = un.markov_network({"rain": 2, "sky": ["clear", "dark"]},
        ...                         {("rain", "sky"): [[1, 1], [1, 1]]})
        >>> data = {"rain": [0, 0, 0, 1], "sky": ["clear", "clear", "dark", "dark"]}
        >>> round(un.query(un.fit(net, data).model)["rain"][1], 2)
        0.25
    """
    own = set(signature(fit).parameters) - {"options"}
    check_options("fit", options, own | SETTINGS)
    _check_arguments(model, objective, optimiser)
    _check_numbers(steps, batch, learning_rate)
    if isinstance(options.get("store"), str | Path):
        options["store"] = Checkpoints(options["store"])
    if is_network(model) and not isinstance(data, Batches):
        told = (objective, optimiser, steps, epochs, batch)
        exact = all(x is None for x in told) and not options
        found, data = _network_fit(model, data, exact, seed)
        if found is not None:
            return found
    own_key = make_key("fit", key, seed)
    batches = data if isinstance(data, Batches) else _batches(model, data, batch, seed)
    if steps is None and epochs is None:
        epochs = float(np.clip(STEPS * batches.size / batches.rows, 3, 200).round())
    total = batches.steps(epochs) if epochs is not None else steps or 0
    if optimiser is None:
        rate = _rate_for(model, objective) if learning_rate is None else float(learning_rate)
        optimiser = falling_adam(rate, total)
    if isinstance(model, NonnegativeBM) and not isinstance(objective, Ensemble):
        optimiser = positive_diagonal(optimiser)
    if "trainable" not in options:
        model, elsewhere = started(model, objective, batches, own_key)
        optimiser = in_own_units(optimiser, model) if elsewhere else optimiser
    result = run_fit(
        model,
        objective or objective_for(model, _has_missing(some_rows(batches))),
        optimiser,
        batches,
        own_key,
        steps=steps,
        epochs=epochs,
        **options,
    )
    _warn_of_no_density(result.best_model)
    return result


def _warn_of_no_density(model: Any) -> None:
    """Say so where the energy of a fitted nonnegative model falls without end."""
    if isinstance(model, NonnegativeBM) and jnp.ndim(model.bias) == 1:
        means, scale = model.units_of_measure()
        try:
            with warnings.catch_warnings():  # doubt is no news
                warnings.simplefilter("ignore")
                model.rescaled(means, 1 / scale).check()
        except UndirectedError as error:
            warnings.warn(
                f"fit: the fitted model has no density. {error}; or pass the table to un.fit_table "
                "with model='nonnegative', which learns couplings that have one",
                stacklevel=3,
            )


def _check_arguments(model: Any, objective: Any, optimiser: Any) -> None:
    """Refuse what cannot be fitted, or fitted with, before anything is computed."""
    if isinstance(model, type):
        raise UndirectedError(f"fit: got the class {model.__name__}; pass a model of it")
    is_table = hasattr(model, "columns")  # those of pandas have an `at` too
    if objective is None and (is_table or not (hasattr(model, "layout") or hasattr(model, "at"))):
        raise UndirectedError(
            f"fit: got a {type(model).__name__}; pass a model first, or an objective too; "
            "un.fit_table makes a model of a table"
        )
    if objective is not None:
        such_as = "PseudoLikelihood(), or none to have it chosen"
        check_offers("fit", "objective", objective, such_as, "init", "__call__")
    if optimiser is not None and not hasattr(optimiser, "update"):
        raise UndirectedError(
            f"fit: optimiser is {optimiser!r:.60}; pass one of Optax, such as optax.adam(1e-3)"
        )
    if optimiser is None and getattr(objective, "rates", None) is not None:
        raise UndirectedError(
            "fit: rates are factors of gradients, of which the default optimiser, Adam, takes no "
            "notice; pass one whose steps are as long as the gradient says, such as optax.sgd(0.1)"
        )


def _check_numbers(steps: Any, batch: Any, learning_rate: Any) -> None:
    """Refuse numbers with which nothing can be learned."""
    if steps is not None:
        check_counts("fit", 0, steps=steps)
    if batch is not None:
        check_counts("fit", batch=batch)
    if learning_rate is None:
        return
    if not (isinstance(learning_rate, Real | jax.Array) and 0 < float(learning_rate) < np.inf):
        raise UndirectedError(
            f"fit: learning_rate is {learning_rate!r:.40}; pass a number above 0, such as 2e-3"
        )


def _network_fit(
    model: FactorGraph, data: Any, exact: bool, seed: int | None
) -> tuple[FitResult | None, Any]:
    """The exact fit of a network where it is asked for and fits; and the data as rows of units."""
    named = goes_by_name(model.layout, data)
    own = states_by_name if named else states_of_units
    rows = own("fit", model.layout, data) if exact or named else None
    if rows is not None and named:
        data = unit_table(model.layout, rows)
    likelihood = exact_likelihood(model, rows) if exact and rows is not None else None
    return (None if likelihood is None else fit_exactly(model, likelihood, seed)), data


def objective_for(model: Any, missing: bool = False) -> Objective:
    """The objective that suits a model: see `fit`."""
    if not hasattr(model, "layout"):
        return Conditional(TwoPhase(SumProduct(iterations=20, tolerance=None)))
    everything_seen = model.layout.n == model.layout.n_visible
    if everything_seen and not missing and isinstance(model, Marginal):
        return PseudoLikelihood()
    posterior = None if isinstance(model, Summable) else MeanField(iterations=20)
    return Persistent(kernel_for(model), chains=100, posterior=posterior)


def _rate_for(model: Any, objective: Objective | None) -> float:
    """A rate of Adam for a model: quick where it has hidden units and few others."""
    if isinstance(model, ConditionalRBM) or isinstance(objective, Ensemble):
        return SLOW
    layout = model.layout
    return quick_rate(layout.n_visible) if layout.n > layout.n_visible else SLOW


def quick_rate(visible: int) -> float:
    """The rate of a model with hidden units and so many visible ones."""
    return float(np.clip(0.3 / visible, SLOW, FAST))


@lru_cache(maxsize=64)
def falling_adam(rate: float, steps: int) -> Optimiser:
    """Adam whose rate stays for half of the steps and then falls to 0 along a line."""
    import optax

    return optax.adam(optax.linear_schedule(rate, 0.0, steps - steps // 2, steps // 2))


def _batches(model: Any, data: Any, size: int | None, seed: int | None) -> Batches:
    if isinstance(data, tuple | list) and len(data) == 2 and hasattr(model, "at"):
        rows = _features_and_rows(model, *data)
        count = len(rows[0])
    elif hasattr(model, "layout"):
        rows = unit_rows("fit", model, data, grey=True)
        count = len(rows)
        if count and np.isnan(rows).all():
            raise UndirectedError(f"fit: all entries of {count} rows are missing; pass some")
    else:
        raise UndirectedError(
            f"fit: data for a {type(model).__name__} are a {type(data).__name__}; pass a pair "
            "(features, rows), or Batches"
        )
    size = int(np.clip(count // 20, 10, 100)) if size is None else size
    return Batches(rows, size, int(seed or 0))


def _features_and_rows(
    model: Any, features: Any, rows: Any
) -> tuple[Float[np.ndarray, "rows X"], Float[np.ndarray, "rows v"]]:
    """Features, which must be known, and rows over the visible units that go with them."""
    x = as_numbers("fit: features", features, "pass an array (rows, features)")
    if x.ndim != 2 or x.shape[1] != model.n_features or not np.isfinite(x).all():
        what = f"have shape {x.shape}" if np.isfinite(x).all() else "are NaN or infinite somewhere"
        raise UndirectedError(
            f"fit: features {what}; pass finite numbers (rows, {model.n_features}), one row for "
            "each row of outputs"
        )
    layout = model.at(jnp.zeros(model.n_features)).layout
    return x, visible_rows("fit", layout, rows, grey=True)


def _has_missing(data: Any) -> bool:
    """Whether an entry is NaN; of a stream the first rows speak for all."""
    return any(
        bool(np.isnan(leaf).any()) if np.issubdtype(leaf.dtype, np.floating) else False
        for leaf in map(np.asarray, jax.tree.leaves(data))
    )
