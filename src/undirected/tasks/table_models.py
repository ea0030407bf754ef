"""Every model of the library fitted to a table: what it takes, how it starts, how it learns.

`train_table` calls this for models other than RBMs and Ising models of 0/1 columns. A table has one
cell a column (see `core.table_units`); each recipe turns it into rows of its model's units.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from undirected.core.errors import UndirectedError
from undirected.core.protocols import Conditionals, Marginal, Optimiser
from undirected.core.random import make_key
from undirected.core.table_units import Kind, TableUnits, part_of, same_states
from undirected.evaluation import binary_cross_entropy, pseudo_log_likelihood
from undirected.inference import QueryNetwork, SumProduct
from undirected.inference.predict import predict
from undirected.learning import (
    Batches,
    Conditional,
    ContrastiveDivergence,
    FitResult,
    Persistent,
    PseudoLikelihood,
    QueryTraining,
    TwoPhase,
)
from undirected.learning import fit as run_fit
from undirected.learning.fit import Progress
from undirected.models import (
    ConditionalRBM,
    DeepBM,
    GaussianRBM,
    MixedRBM,
    NonnegativeBM,
    Potts,
    SemiRestrictedBM,
)
from undirected.tasks.choose import kernel_for
from undirected.tasks.conditional_columns import given_and_asked, pairs
from undirected.tasks.entries import entry_bits, scores_entries
from undirected.tasks.enumerated import MOST_HIDDEN, hidden_for
from undirected.tasks.enumerated_learning import fit_enumerated
from undirected.tasks.learn import SLOW, falling_adam, objective_for, quick_rate

LAYERS = 10
"""Sweeps of belief propagation that query training learns through."""
STEPS = 200
"""Most iterations of exact learning."""
MOST_UNITS, MOST_ENTRIES, MOST_PRODUCTS = 64, 200_000, 2**28
"""Units or entries of a table, and products of an iteration, up to which learning is exact."""
MOST_JUDGED = 300
"""Held-out rows that a validation looks at."""
NEVER = -1000.0
"""Field of a state that a column of a Potts model lacks: such states would take a part of Z."""
FLOOR = 1e-2
"""Least eigenvalue of the matrix of a nonnegative model: below 0 its density may not exist."""


@dataclass(frozen=True)
class Recipe:
    """How a model meets a table: kinds of columns it takes, ways to learn, first model, rows."""

    takes: str
    methods: tuple[str, ...]
    make: Callable[[TableUnits, np.ndarray, Any], Any]
    units: Callable[[TableUnits, np.ndarray], np.ndarray]


def check_columns(model: str, table: TableUnits) -> None:
    """Refuse columns of kinds that a model does not take."""
    recipe = RECIPES[model]
    for name, kind in zip(table.labels, table.kinds, strict=True):
        word = "category" if isinstance(kind, int) else kind
        if word not in recipe.takes.split():
            raise UndirectedError(
                f"fit: model '{model}' takes columns that are {recipe.takes.replace(' ', ' or ')}; "
                f"column {name} is {word}: drop it, or use model 'mixed', which takes all kinds"
            )


def choose_columns(settings: Any, table: TableUnits, values: np.ndarray) -> Any:
    """Settings with what the user left open filled in from the table."""
    recipe, rows = RECIPES[settings.model], len(values)
    missing = bool(np.isnan(values).any())
    method = settings.method
    if method == "auto":
        method = "exact" if _enumerates(settings, table, rows) else recipe.methods[0]
        if missing and method == "pl":
            method = "pcd"
    if method not in recipe.methods:
        raise UndirectedError(
            f"fit: method '{method}' does not suit model '{settings.model}'; pass one of "
            f"{', '.join(recipe.methods)}"
        )
    if missing and method == "pl":
        raise UndirectedError("fit: pl needs complete rows; with missing entries use pcd")
    has_hidden = settings.model not in ("nonnegative", "potts")
    if not has_hidden and settings.hidden is not None:
        raise UndirectedError(
            f"fit: model '{settings.model}' has no hidden units; leave --hidden out"
        )
    if method == "exact":
        return _choose_exact(settings, rows)
    batch = settings.batch or int(np.clip(rows // 20, 10, 100))
    epochs = settings.epochs or float(np.clip(4000 * batch / rows, 3, 200).round())
    hidden = (settings.hidden or int(np.clip(table.n_units, 16, 256))) if has_hidden else None
    rate = quick_rate(table.n_units) if settings.model == "deep" else SLOW
    return replace(
        settings,
        method=method,
        batch=min(batch, rows),
        epochs=epochs,
        hidden=hidden,
        learning_rate=settings.learning_rate or rate,
    )


def _enumerates(settings: Any, table: TableUnits, rows: int) -> bool:
    """Whether a mixed model is learned exactly by default: few columns, and not too many rows."""
    hidden = settings.hidden or hidden_for(rows)
    entries = rows * table.n_units
    scheduled = settings.epochs or settings.batch or settings.patience
    return (
        settings.model == "mixed"
        and not scheduled
        and hidden <= MOST_HIDDEN
        and (table.n_units <= MOST_UNITS or entries <= MOST_ENTRIES)
        and entries * 2**hidden <= MOST_PRODUCTS
    )


def _choose_exact(settings: Any, rows: int) -> Any:
    """Settings of exact learning, which has no schedule."""
    if settings.hidden is not None and settings.hidden > MOST_HIDDEN:
        raise UndirectedError(
            f"fit: exact learning enumerates the states of up to {MOST_HIDDEN} hidden units, not "
            f"of {settings.hidden}; use fewer, or method pcd"
        )
    for name in ("epochs", "batch", "patience"):
        if getattr(settings, name) is not None:
            raise UndirectedError(
                f"fit: exact learning takes all rows at once until nothing changes; leave {name} "
                "out, or use method pcd"
            )
    return replace(settings, method="exact", hidden=settings.hidden or hidden_for(rows))


def train_columns(
    train: np.ndarray,
    valid: np.ndarray,
    settings: Any,
    columns: Any,
    given: Sequence[int] = (),
    **options: Any,
) -> FitResult:
    """Fit a model to rows that are split, with settings that are chosen already.

    Args:
        train: rows of one cell a column, NaN where missing.
        valid: held-out rows, perhaps none.
        settings: of `choose_columns`.
        columns: kinds of the columns, or a schema.
        given: numbers of the columns that a conditional model takes as known.
        options: more settings of `learning.fit`.
    """
    table = TableUnits.of(columns)
    recipe = RECIPES[settings.model]
    if settings.method == "exact":
        return _train_exact(table, train, valid, settings, **options)
    if settings.model == "conditional":
        inputs, outputs = given_and_asked(table, given)
        model = _make_conditional(table, inputs, outputs, settings)
        rows = tuple(np.asarray(part, np.float32) for part in pairs(table, inputs, outputs, train))
        judge = _judge_outputs(pairs(table, inputs, outputs, valid), len(valid))
        missing = bool(np.isnan(rows[1]).any())
    else:
        model = recipe.make(table, train, settings)
        rows = recipe.units(table, train)
        judge = _judge(model, recipe.units(table, valid)) if len(valid) else None
        missing = bool(np.isnan(rows).any())
    if settings.patience is not None and judge is None:
        raise UndirectedError(
            f"fit: patience is {settings.patience}, but no held-out row can judge a "
            f"{type(model).__name__}: all of them have holes; leave patience out"
        )
    if settings.method == "query-training":
        model = QueryNetwork(model, jnp.asarray(1.0), LAYERS)
    batches = Batches(rows, settings.batch, settings.seed)
    steps = batches.steps(settings.epochs)
    return run_fit(
        model,
        objective(model, settings, missing),
        _optimiser(settings, steps),
        batches,
        make_key("fit_table", None, settings.seed),
        steps=steps,
        log_every=min(100, max(1, steps // 10)),
        validate=judge,
        validate_every=max(1, steps // 10) if judge is not None else None,
        patience=settings.patience,
        save_every=15.0,
        **options,
    )


def _train_exact(
    table: TableUnits,
    train: np.ndarray,
    valid: np.ndarray,
    settings: Any,
    log: Any = None,
    on_event: Callable[[Progress], None] | None = None,
    store: Any = None,
    snapshots: Any = None,
    mesh: Any = None,
) -> FitResult:
    """Learn with enumerated hidden states; there is nothing to resume, it is a matter of seconds.

    A mesh has nothing to share out. The prior of the weights takes the place of early stopping, so
    held-out rows only tell the score.
    """
    began, history = time.monotonic(), []

    def told(step: int, value: float) -> None:
        history.append({"step": step, "log_posterior": value})
        if log is not None:
            log.append(step, {"log_posterior": value})
        if on_event is not None:
            on_event(Progress(step, STEPS, step / (time.monotonic() - began), history[-1]))

    rows, rng = table.to_units(train, "fit"), np.random.RandomState(settings.seed % 2**32)
    model, steps = fit_enumerated(table, rows, settings.hidden, rng, max_iter=STEPS, on_step=told)
    judge = _judge(model, table.to_units(valid, "fit")) if len(valid) else None
    best = None if judge is None else judge(model, None)
    return FitResult(model, model, steps, "steps", history, best, steps, None)


def objective(model: Any, settings: Any, missing: bool) -> Any:
    """How a model learns by the method of the settings."""
    match settings.method:
        case "query-training":
            return QueryTraining(reduction="mean")
        case "pl":
            return PseudoLikelihood()
        case "cd":
            return ContrastiveDivergence(kernel_for(model))
        case "bp":
            bp = SumProduct(iterations=20, tolerance=None)
            return Conditional(TwoPhase(bp, positive=bp if missing else None))
    found = objective_for(model, missing=True)
    assert isinstance(found, Persistent)
    return found


def _optimiser(settings: Any, steps: int) -> Optimiser:
    adam = falling_adam(settings.learning_rate, steps)
    if settings.model != "nonnegative":
        return adam
    import optax

    return optax.chain(cast(Any, adam), cast(Any, keep_positive(FLOOR)))


def keep_positive(floor: float) -> Optimiser:
    """Change steps of a `NonnegativeBM` so that no eigenvalue of its matrix falls below a floor."""

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        eye = jnp.eye(len(params.diagonal), dtype=params.diagonal.dtype)
        weights = params.weights + updates.weights
        symmetric = 0.5 * (weights + weights.T) * (1 - eye)
        values, vectors = jnp.linalg.eigh(symmetric + jnp.diag(params.diagonal + updates.diagonal))
        matrix = (vectors * jnp.maximum(values, floor)[None]) @ vectors.T
        changed = matrix * (1 - eye) - params.weights, jnp.diagonal(matrix) - params.diagonal
        return eqx.tree_at(lambda u: (u.weights, u.diagonal), updates, changed), state

    import optax

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def _judge(model: Any, valid: Float[np.ndarray, "rows v"]) -> Callable[[Any, Any], float] | None:
    """What tells the best step, higher is better: bits of held-out entries, where they are asked.

    Otherwise the pseudo-likelihood of the held-out rows without holes; None where there are none.
    """
    some = valid[:MOST_JUDGED]
    complete = some[~np.isnan(some).any(1)]
    if len(some) and scores_entries(model):
        return lambda model, _: -entry_bits(_asked(model), some).mean
    if len(complete) and isinstance(model, Marginal | Conditionals):
        return lambda model, _: pseudo_log_likelihood(_asked(model), complete).mean
    return None


def _asked(model: Any) -> Any:
    return model.model if isinstance(model, QueryNetwork) else model


def _judge_outputs(pair: tuple[np.ndarray, np.ndarray], rows: int) -> Any:
    """Minus the bits of the outputs of a conditional model given the features."""
    if not rows:
        return None
    x, v = (part[:MOST_JUDGED] for part in pair)
    bp, seen = SumProduct(iterations=20, tolerance=1e-3), ~np.isnan(v)

    def score(model: Any, key: Any) -> float:
        p = predict(model, x, bp, key)
        return -binary_cross_entropy(p, np.where(seen, v, 0.0), seen).mean

    return score


def _make_conditional(
    table: TableUnits, inputs: Sequence[int], outputs: Sequence[int], settings: Any
) -> ConditionalRBM:
    units = part_of(table, outputs).n_units, settings.hidden, part_of(table, inputs).n_units
    return ConditionalRBM.create(*units, seed=settings.seed)


def _key(settings: Any) -> Array:
    return jax.random.fold_in(make_key("fit_table", None, settings.seed), 1)


def _means(rows: np.ndarray) -> Float[Array, " v"]:
    """Means of the observed entries, drawn a little towards one half."""
    seen = (~np.isnan(rows)).sum(0)
    return jnp.asarray((np.nansum(rows, 0) + 1.0) / (seen + 2.0), jnp.float32)


def _known(values: np.ndarray, nothing: float) -> tuple[np.ndarray, np.ndarray]:
    """The rows, with `nothing` in columns that were never observed, and which these are."""
    never = np.asarray(np.isnan(values).all(0))
    return np.where(never, np.float32(nothing), values), never


def _make_deep(table: TableUnits, values: np.ndarray, settings: Any) -> DeepBM:
    sizes = [len(table), settings.hidden, max(8, settings.hidden // 2)]
    model = DeepBM.create(sizes, _key(settings))
    start = model.independent(_means(values)).biases[0]
    return eqx.tree_at(lambda m: m.biases[0], model, start)


def _make_semi(table: TableUnits, values: np.ndarray, settings: Any) -> SemiRestrictedBM:
    return SemiRestrictedBM.create(
        len(table), settings.hidden, _key(settings), means=_means(values)
    )


def _make_gaussian(table: TableUnits, values: np.ndarray, settings: Any) -> GaussianRBM:
    model = GaussianRBM.create(len(table), settings.hidden, _key(settings), learn_variance=True)
    known, never = _known(values, 0.0)
    spread = np.where(never, 1.0, np.maximum(np.nanvar(known, 0), 1e-4))
    spread = jnp.asarray(np.log(spread), jnp.float32)
    middle = jnp.asarray(np.nanmean(known, 0), jnp.float32)
    return eqx.tree_at(lambda m: (m.visible_mean, m.log_variance), model, (middle, spread))


def _make_nonnegative(table: TableUnits, values: np.ndarray, settings: Any) -> NonnegativeBM:
    known, _ = _known(values, 1.0)
    filled = np.where(np.isnan(known), np.nanmean(known, 0, keepdims=True), known)
    return NonnegativeBM.from_data(jnp.asarray(filled, jnp.float32))


def _make_mixed(table: TableUnits, values: np.ndarray, settings: Any) -> MixedRBM:
    return MixedRBM.create(table, settings.hidden, _key(settings), data=values)


def _make_potts(table: TableUnits, values: np.ndarray, settings: Any) -> Potts:
    whole = same_states(table)
    model = Potts.create(len(whole), whole.states(0))
    model = model.independent(_means(whole.to_units(values)))
    counts = np.array([table.states(i) for i in range(len(table))])
    lacking = np.arange(whole.states(0))[None] >= counts[:, None]
    return eqx.tree_at(lambda m: m.fields, model, jnp.where(lacking, NEVER, model.fields))


def _as_they_are(table: TableUnits, values: np.ndarray) -> np.ndarray:
    return np.asarray(values, np.float32)


RECIPES: dict[str, Recipe] = {
    "mixed": Recipe(
        "binary category real nonnegative",
        ("pcd", "cd", "query-training", "exact"),
        _make_mixed,
        lambda table, values: table.to_units(values, "fit"),
    ),
    "deep": Recipe("binary", ("pcd",), _make_deep, _as_they_are),
    "semi-restricted": Recipe("binary", ("pcd", "cd", "pl"), _make_semi, _as_they_are),
    "gaussian": Recipe("real", ("pcd", "cd"), _make_gaussian, _as_they_are),
    "nonnegative": Recipe("nonnegative", ("pl", "pcd"), _make_nonnegative, _as_they_are),
    "potts": Recipe(
        "binary category",
        ("pl", "pcd"),
        _make_potts,
        lambda table, values: same_states(table).to_units(values, "fit"),
    ),
    "conditional": Recipe(
        "binary category real nonnegative", ("bp",), lambda *_: None, _as_they_are
    ),
}
"""The models by the names that users give them."""


def default_columns(model: str, values: np.ndarray) -> list[Kind]:
    """What the columns are where nothing is said: what suits the model."""
    kind = RECIPES[model].takes.split()
    if model == "mixed":
        raise UndirectedError(
            "fit: a mixed model needs to know its columns; pass columns=, a kind for each"
        )
    if model == "potts":
        top = np.nanmax(np.where(np.isnan(values), 0, values), 0, initial=1)
        return [max(2, int(most) + 1) for most in top]
    return [kind[0]] * values.shape[1]
