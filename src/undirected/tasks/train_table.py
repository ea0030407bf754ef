"""A model fitted to a table: kind, size and schedule chosen by the table unless they are given."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Bool
from numpy.typing import ArrayLike

from undirected.core.cells import as_numbers
from undirected.core.errors import UndirectedError, check_counts
from undirected.core.memory import available_memory
from undirected.core.random import make_key
from undirected.core.table_units import TableUnits
from undirected.evaluation import pseudo_log_likelihood
from undirected.inference import Exact, QueryNetwork, SumProduct
from undirected.learning import (
    Batches,
    ContrastiveDivergence,
    FitResult,
    Persistent,
    Progress,
    PseudoLikelihood,
    QueryTraining,
    TwoPhase,
    query_losses,
)
from undirected.learning import fit as run_fit
from undirected.learning.checkpointing import Store, check_listeners
from undirected.learning.fit import Log
from undirected.learning.mixture import Mixture
from undirected.learning.snapshots import SnapshotStore
from undirected.models import RBM, Ising, MixtureRBM
from undirected.sampling import BlockGibbs, Gibbs, MixtureGibbs
from undirected.tasks.entries import entry_bits, observed_mean
from undirected.tasks.learn import SLOW, falling_adam, quick_rate
from undirected.tasks.mixture_start import (
    best_of,
    centred_adam,
    learnable,
    log_likelihood_of,
    most_components,
    start_mixture,
)
from undirected.tasks.table_models import (
    MOST_JUDGED,
    RECIPES,
    check_columns,
    choose_columns,
    default_columns,
    train_columns,
)

MODELS = ("mixture-rbm", "rbm", "ising")
METHODS = ("pcd", "cd", "pl", "bp", "exact", "query-training")
LAYERS = 10
"""Sweeps of belief propagation that query training learns through."""
BP_ROUNDS = 30
MISSING = -1
LEAST_VALID = 5
"""Where fewer rows would be held out, none are."""


@dataclass(frozen=True)
class Settings:
    """The options of `train_table`; what is None or "auto" is chosen by the table.

    Args:
        model: "mixture-rbm", "rbm" or "ising"; "auto" is the first where the method is pcd. Or one
            of "deep", "semi-restricted", "gaussian", "nonnegative", "potts", "conditional" and
            "mixed", the one for columns of any kind.
        method: how to learn: "pcd", "cd", "pl", "bp", "exact" or "query-training".
        hidden: hidden units of an RBM.
        epochs: passes over the rows.
        batch: rows of a step.
        learning_rate: of Adam, which falls to 0 over the second half: by default 0.002, and more
            for an RBM of few columns, as in `un.fit`.
        validation: share of the rows that are held out to find the best step.
        patience: stop after so many validations without a better value; None never does.
        image: rows x columns of an image, as "28x28", for pages that show rows as images.
        seed: of the split, the first weights, the order of the rows and all draws.
        components: most components of the mixture that a mixture-rbm starts from; fewer are taken
            where held-out rows say so, or where columns are many.

    Example:
        >>> import undirected as un
        >>> un.Settings(model="ising", epochs=3).method
        'auto'
    """

    model: str = "auto"
    method: str = "auto"
    hidden: int | None = None
    epochs: float | None = None
    batch: int | None = None
    learning_rate: float | None = None
    validation: float = 0.1
    patience: int | None = None
    image: str | None = None
    seed: int = 0
    components: int | None = None


@dataclass(frozen=True)
class Trained:
    """A fitted model, the settings that were chosen, the run, and the rows it used.

    `mixture` is the mixture of independent columns that is best on the held-out rows: what a model
    has to beat, and where a mixture-rbm started unless its columns are many; None where columns are
    not all binary.
    """

    model: Any
    settings: Settings
    result: FitResult
    train: np.ndarray
    valid: np.ndarray
    mixture: Mixture | None = None


def train_table(
    values: ArrayLike,
    settings: Settings | None = None,
    *,
    columns: Any = None,
    given: Sequence[int] = (),
    store: Store | None = None,
    log: Log | None = None,
    snapshots: SnapshotStore | None = None,
    on_event: Callable[[Progress], None] | None = None,
    mesh: Mesh | None = None,
) -> Trained:
    """Fit a model to a table, which may have holes.

    Args:
        values: rows of one cell a column, NaN where one is missing: 0 or 1 (for query training of
            an RBM, grey values too), the number of a state, a standardised real, or a nonnegative
            number.
        settings: kind of model, method, size and schedule; what is left open is chosen by the
            table.
        columns: what each column is, as `MixedRBM.create` takes it; by default what suits the
            model: all binary, real, nonnegative, or categories.
        given: numbers of the columns that a conditional model takes as known.
        store: where checkpoints go, so that a stopped run goes on; `io.checkpoint.Checkpoints`.
        log: where metrics go; `io.metrics.MetricsLog`.
        snapshots: where some chains and filters go, with the checkpoints; `io.snapshots.Snapshots`.
        on_event: told the progress after every chunk of steps.
        mesh: devices over which rows and chains are split, such as `un.device_mesh()`.

    Returns:
        The model that was best on held-out rows, with the settings and the whole `FitResult`.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> rows = np.repeat([[0, 0, 1], [1, 1, 0]], 30, 0)
        >>> un.train_table(rows, un.Settings(model="ising", epochs=3)).settings.method
        'pl'
    """
    check_listeners("train_table", store, log, snapshots, on_event)
    if not isinstance(settings, Settings | None):
        raise UndirectedError(f"train_table: settings are {settings!r:.40}; pass un.Settings(...)")
    advice = "un.fit_table takes words and columns by name"
    table = as_numbers("train_table: values", values, advice)
    if table.ndim != 2:
        raise UndirectedError(f"train_table: values have shape {table.shape}; pass (rows, columns)")
    settings = settings or Settings()
    options = {"store": store, "log": log, "snapshots": snapshots, "on_event": on_event}
    options |= {"mesh": mesh}
    if settings.model in RECIPES:
        return _train_other(table, settings, columns, given, options)
    settings = choose(settings, table)
    train, valid = split(table, settings)
    mixture = start_mixture(train, valid, settings.components, settings.seed)
    result = train_rows(train, valid, settings, mixture, **options)
    return Trained(result.best_model, settings, result, train, valid, mixture)


def _train_other(
    table: np.ndarray, settings: Settings, columns: Any, given: Sequence[int], options: Any
) -> Trained:
    """`train_table` of a model of `table_models`."""
    kinds = TableUnits.of(default_columns(settings.model, table) if columns is None else columns)
    settings = choose_for(settings, kinds, table)
    train, valid = split(table, settings)
    result = train_columns(train, valid, settings, kinds, given, **options)
    return Trained(result.best_model, settings, result, train, valid)


def choose_for(settings: Settings, columns: Any, values: np.ndarray) -> Settings:
    """`choose` for columns of any kind; None are those of a model of 0/1 columns."""
    if columns is None:
        return choose(settings, values)
    kinds = TableUnits.of(columns)
    check_columns(settings.model, kinds)
    _check_settings(settings, values)
    return choose_columns(settings, kinds, values)


def train_rows(
    train: np.ndarray,
    valid: np.ndarray,
    settings: Settings,
    mixture: Mixture,
    batches: Batches | None = None,
    **options: Any,
) -> FitResult:
    """`train_table` with rows that are split, and settings and mixture that are chosen already.

    `batches` are by default those of the training rows; `options` are more settings of
    `learning.fit`.
    """
    assert settings.batch
    assert settings.epochs
    assert settings.learning_rate
    if batches is None:
        batches = Batches(_coded(train), settings.batch, settings.seed, transform=_decode)
    steps = batches.steps(settings.epochs)
    mixed = settings.model == "mixture-rbm"
    adam = centred_adam if mixed else falling_adam
    start = learnable(mixture, train, settings.seed) if mixed else mixture
    result = run_fit(
        new_model(train, settings, start),
        objective(settings),
        adam(settings.learning_rate, steps),
        batches,
        make_key("fit_table", None, settings.seed),
        steps=steps,
        log_every=steps_at_once(settings, train.shape[1]),
        validate=validator(valid, settings),
        validate_every=max(1, steps // 10) if len(valid) else None,
        patience=settings.patience,
        save_every=15.0,
        **options,
    )
    return best_of(mixture, result, valid) if mixed else result


def choose(settings: Settings, values: np.ndarray) -> Settings:
    """Fill in what the user left open from the shape of the table, and check the rest."""
    rows, columns = values.shape
    missing = bool(np.isnan(values).any())
    _check_settings(settings, values)
    if settings.model == "ising" and settings.hidden is not None:
        raise UndirectedError("fit: an Ising model has no hidden units; leave --hidden out")
    model, method = settings.model, settings.method
    if model == "auto":
        model = "mixture-rbm" if method in ("auto", "pcd") else "rbm"
    if method == "auto":
        method = "pl" if model == "ising" and not missing else "pcd"
    if model == "mixture-rbm" and method != "pcd":
        raise UndirectedError(
            f"fit: a mixture-rbm is learned by pcd, not by {method}; use model rbm"
        )
    if missing and method == "pl":
        raise UndirectedError("fit: pl needs complete rows; with missing entries use pcd")
    batch = settings.batch or int(np.clip(rows // 20, 10, 100))
    epochs = settings.epochs or float(np.clip(4000 * batch / rows, 3, 200).round())
    hidden = settings.hidden or int(np.clip(columns, 8, 256))
    if model == "ising":
        hidden = None
    quick = model == "rbm" and method != "query-training"
    return replace(
        settings,
        learning_rate=settings.learning_rate or (quick_rate(columns) if quick else SLOW),
        model=model,
        method=method,
        batch=min(batch, rows),
        epochs=epochs,
        hidden=hidden,
        components=settings.components or most_components(columns),
    )


def _check_settings(settings: Settings, values: np.ndarray) -> None:
    """Refuse settings that no table, or not this one, can have."""
    rows = len(values)
    known = (*MODELS, *RECIPES)
    if settings.model not in ("auto", *known):
        raise UndirectedError(
            f"fit: model '{settings.model}' is unknown; pass one of {', '.join(known)}"
        )
    if settings.method not in ("auto", *METHODS):
        raise UndirectedError(
            f"fit: method '{settings.method}' is unknown; pass one of {', '.join(METHODS)}"
        )
    check_counts("fit", 0, seed=settings.seed)
    if rows < 2:
        raise UndirectedError(f"fit: the table has {rows} row; at least 2 are needed")
    if np.isnan(values).all():
        raise UndirectedError("fit: every cell of the table is missing; at least one must be there")
    if not (isinstance(settings.validation, Real) and 0 <= float(settings.validation) < 1):
        raise UndirectedError(
            f"fit: validation is {settings.validation}; pass a share of the rows from 0 up to 1"
        )
    for name in ("hidden", "components", "epochs", "batch", "patience", "learning_rate"):
        value = getattr(settings, name)
        real = isinstance(value, Real) and not isinstance(value, bool)
        if value is not None and not (real and 0 < float(value) < np.inf):
            raise UndirectedError(f"fit: {name.replace('_', ' ')} is {value}; pass a number over 0")
    _check_memory(settings.hidden or 0, values.shape[1])
    if settings.patience is not None and not held_out(values, settings):
        raise UndirectedError(
            f"fit: patience is {settings.patience}, but no rows are held out to judge by, because "
            f"{settings.validation:g} of the rows is fewer than {LEAST_VALID}; raise the share of "
            "validation rows, or leave patience out"
        )


def _check_memory(hidden: int, columns: int) -> None:
    """Refuse weights that do not fit into memory with their gradient and two means of it."""
    needed, free = 16.0 * hidden * columns, available_memory()
    if needed > free:
        raise UndirectedError(
            f"fit: hidden is {hidden:,}; learning their weights takes {needed / 1e9:,.1f} GB, of "
            f"which {free / 1e9:,.1f} are free: pass fewer"
        )


def held_out(values: np.ndarray, settings: Settings) -> int:
    """How many rows are kept for validation; none where there would be too few.

    Rows with holes may be among them: the entries that are observed in them are asked for.
    """
    observed = int((~np.isnan(values).all(1)).sum())
    count = min(int(observed * settings.validation), 1000)
    return 0 if count < LEAST_VALID or len(values) - count < 2 else count


def split(values: np.ndarray, settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Training rows, and validation rows in which something is observed."""
    count = held_out(values, settings)
    if not count:
        return values, values[:0]
    observed = np.flatnonzero(~np.isnan(values).all(1))
    held = np.random.default_rng(settings.seed).choice(observed, count, replace=False)
    keep = np.ones(len(values), bool)
    keep[held] = False
    return values[keep], values[held]


def questions(x: np.ndarray, seed: int) -> Bool[np.ndarray, "rows v"]:
    """The targets a query network is validated on: each entry with probability a half."""
    return np.random.default_rng(seed).random(x.shape) < 0.5


def steps_at_once(settings: Settings, columns: int) -> int:
    """Steps between two looks at Ctrl-C and the clock: a second or two on a slow machine."""
    assert settings.batch
    sweeps = {"query-training": 3 * LAYERS, "bp": BP_ROUNDS}.get(settings.method, 1)
    messages = settings.batch * columns * (settings.hidden or columns) * sweeps
    return int(np.clip(10**9 // messages, 1, 100))


def new_model(train: np.ndarray, settings: Settings, mixture: Mixture) -> Any:
    """The model before its first step: the mixture, or biases at the base rates of the columns."""
    if settings.model == "mixture-rbm":
        assert settings.hidden
        key = jax.random.fold_in(make_key("fit_table", None, settings.seed), 1)
        return MixtureRBM.from_mixture(*mixture.at_least(2), settings.hidden, key)
    means = jnp.asarray(column_means(train))
    if settings.model == "ising":
        model = Ising.create(train.shape[1]).independent(means)
    else:
        assert settings.hidden
        key = jax.random.fold_in(make_key("fit_table", None, settings.seed), 1)
        model = RBM.create(train.shape[1], settings.hidden, key, means=means)
    if settings.method == "query-training":
        return QueryNetwork(model, jnp.asarray(1.0), LAYERS)
    return model


def validator(valid: np.ndarray, settings: Settings) -> Callable[[Any, Any], float] | None:
    """What tells the best step, higher is better: (pseudo-)likelihood, or bits of random queries.

    Pseudo-likelihood knows nothing of the weights of clusters: where log Z is known exactly, the
    likelihood decides.
    Of rows with holes, minus the bits of observed entries that are hidden and asked for.
    """
    if not len(valid):
        return None
    if settings.model == "mixture-rbm":
        return lambda model, key: log_likelihood_of(model, valid, key)
    if settings.method != "query-training":
        if np.isnan(valid).any():
            some = valid[:MOST_JUDGED]
            return lambda model, _: -entry_bits(model, some).mean
        if settings.method == "exact":  # log Z costs no more than a step did
            return lambda model, _: observed_mean(model, valid, float(Exact()(model).log_z))
        return lambda model, _: pseudo_log_likelihood(model, valid).mean
    targets = jnp.asarray(questions(valid, settings.seed))

    def bits(model: Any, _: Any) -> float:
        totals, counts = _losses(model, jnp.asarray(valid, jnp.float32), targets)
        return -float(totals.sum() / counts.sum() / np.log(2))

    return bits


def score_name(settings: Settings, valid: np.ndarray) -> tuple[str, float]:
    """What `FitResult.best` is, and the sign with which it is told: bits are the fewer the better.

    The names are "log_likelihood", "pseudo_log_likelihood", "bits_per_target" (of random queries),
    "bits_per_output" (of a conditional model) and "bits_per_held_out_entry".
    """
    if settings.model == "mixture-rbm":
        return "log_likelihood", 1.0
    if settings.model == "conditional":
        return "bits_per_output", -1.0
    plain = settings.model in ("rbm", "ising")
    if plain and settings.method == "query-training":
        return "bits_per_target", -1.0
    whole = not np.isnan(valid).any()
    if plain and whole and settings.method == "exact":
        return "log_likelihood", 1.0
    if settings.model == "nonnegative" or (plain and whole):
        return "pseudo_log_likelihood", 1.0
    return "bits_per_held_out_entry", -1.0


def score_of(trained: Trained) -> tuple[str, float | None]:
    """The name and the value of the score by which the best step was chosen."""
    name, sign = score_name(trained.settings, trained.valid)
    return name, None if trained.result.best is None else sign * trained.result.best


_losses = eqx.filter_jit(query_losses)  # compiled once, whatever model is being fitted


def objective(settings: Settings) -> Any:
    """The objective of a method name."""
    kernels = {"rbm": BlockGibbs(), "mixture-rbm": MixtureGibbs()}
    kernel = kernels.get(settings.model, Gibbs())
    match settings.method:
        case "pcd":
            return Persistent(kernel, chains=100)
        case "cd":
            return ContrastiveDivergence(kernel)
        case "pl":
            return PseudoLikelihood()
        case "query-training":
            return QueryTraining(reduction="mean")
        case "bp":
            bp = SumProduct(iterations=BP_ROUNDS, tolerance=1e-3, damping=0.2)
            return TwoPhase(negative=bp, positive=bp)
    return TwoPhase(negative=Exact(), positive=Exact())


def column_means(values: np.ndarray) -> np.ndarray:
    """Share of ones among the observed entries of each column, drawn a little towards 1/2."""
    seen = (~np.isnan(values)).sum(0)
    return ((np.nansum(values, 0) + 1.0) / (seen + 2.0)).astype(np.float32)


def _coded(rows: np.ndarray) -> np.ndarray:
    """Rows as bytes where they are 0, 1 and missing, otherwise as they are."""
    whole = np.where(np.isnan(rows), MISSING, rows)
    coded = whole.astype(np.int8)
    return whole.astype(np.float32) if (coded != whole).any() else coded


def _decode(batch: jax.Array, key: jax.Array) -> jax.Array:
    return jnp.where(batch == MISSING, jnp.nan, batch.astype(jnp.float32))
