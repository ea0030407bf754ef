"""How probable a model finds rows, and log Z: exact where affordable, else from both sides."""

from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Key
from numpy.typing import ArrayLike

from undirected.core.chunks import map_rows
from undirected.core.errors import NotFinite, UndirectedError
from undirected.core.mesh import check_mesh
from undirected.core.numerics import HARD
from undirected.core.potentials import Potentials, clamp, without_constant
from undirected.core.progress import Progress, shares
from undirected.core.protocols import Conditionals, Lowerable, Marginal, Separable, Summable
from undirected.core.random import make_key
from undirected.evaluation import (
    Bracket,
    Estimate,
    ais_rows,
    bracket,
    log_likelihood,
    pseudo_log_likelihood,
)
from undirected.evaluation.estimate import mean, mean_log
from undirected.factors import Tables
from undirected.inference import Elimination, Exact, Transfer
from undirected.models import FactorGraph, ModelPath
from undirected.tasks.choose import check_model, kernel_for, path_to
from undirected.tasks.entries import entry_bits, scores_entries
from undirected.tasks.enumerated import is_enumerable
from undirected.tasks.enumerated_coupled import enumerated
from undirected.tasks.network_data import units_of
from undirected.tasks.rows import centred, centred_means, has_columns, unit_rows

METHODS = ("auto", "exact", "ais")
MOST_STATES, MOST_NUMBERS, MOST_ENTRIES, MOST_SUMS = 2**20, 2**31, 2**24, 2**28
"""States that are summed over, their units together, entries of tables, and states of all rows
together, before AIS."""
ROW_CHAINS, ROW_BYTES = 20, 64 * 2**20
"""Chains of a row whose hidden units are summed by AIS; bytes of all rows worked on at a time."""


@dataclass(frozen=True)
class LogPartition:
    """log Z, its interval, how it was found; both sides of AIS where it was found so."""

    value: float
    interval: tuple[float, float]
    method: str
    sides: Bracket | None = field(default=None, repr=False)

    def __float__(self) -> float:
        return self.value

    @property
    def agree(self) -> bool:
        """Whether the estimate may be trusted: the sides meet, and within a narrow interval."""
        return self.sides is None or (self.sides.agree and self.value > -np.inf)

    @property
    def note(self) -> str | None:
        """What is wrong with the estimate, and what to do."""
        if self.agree or self.sides is None:
            return None
        if self.value == -np.inf:
            return (
                "no chain of AIS came to a state that the model allows; un.solve(model, 'pr') can "
                "tell whether there is one"
            )
        if not self.sides.meet:
            return "AIS from below and from above do not meet; use more betas"
        return (
            f"log Z is known within {self.sides.spread:.3g} nats only (wanted: "
            f"{self.sides.width:g}); use more betas or chains"
        )


@dataclass(frozen=True)
class Evaluation:
    """Log-likelihood per row in nats, with what it rests on.

    `log_likelihood` is that of the observed part of each row; hidden units and missing entries are
    summed out: `hidden_sums` says how, "exact" or "ais". `pseudo_log_likelihood` is that of the
    rows without holes. `held_out` are the bits of an entry that is hidden and asked for given the
    others of its row (nats of its density divided by log 2 for continuous ones). A row that a hard
    factor forbids has log-likelihood -inf, and so has the mean: `impossible` counts these rows.
    """

    log_likelihood: Estimate
    log_z: LogPartition
    pseudo_log_likelihood: Estimate | None
    hidden_sums: str
    rows: int
    complete_rows: int = 0
    held_out: Estimate | None = None

    @property
    def impossible(self) -> int:
        """Rows whose probability is 0."""
        rows = self.log_likelihood.rows
        return 0 if rows is None else int(np.isneginf(rows).sum())


MOST_WRITTEN = 2**13
"""Entries of the tables that hard constraints are written out as: chains of more take hours."""


def log_partition(
    model: Any,
    *,
    method: str = "auto",
    means: ArrayLike | None = None,
    chains: int = 200,
    betas: int = 2000,
    key: Key[Array, ""] | None = None,
    seed: int | None = None,
    mesh: Mesh | None = None,
    progress: Progress | None = None,
) -> LogPartition:
    """log Z of a model: exact where that is affordable, otherwise between two estimates.

    Args:
        model: any model that lowers to potentials.
        method: "exact", "ais" (annealed importance sampling), or "auto".
        means: of the visible units, from the data: a better start for AIS.
        chains: of AIS.
        betas: temperatures of AIS.
        key: of all draws.
        seed: the same as a number; pass one of the two.
        mesh: devices over which the chains of AIS are split, such as `un.device_mesh()`; an exact
            log Z is not split.
        progress: told the betas of AIS done and in all.

    Returns:
        A `LogPartition`: `float()` of it is the value, `interval` says how wide it is, `note` what
        to do where it is too wide. A model that forbids every state has log Z = -inf.

    Example:
        >>> import undirected as un
        >>> round(float(un.log_partition(un.Ising.create(4))), 4)
        2.7726
    """
    check_model("log_partition", model)
    mesh = check_mesh("log_partition", mesh, model)
    if method not in METHODS:
        raise UndirectedError(
            f"log_partition: method {method!r:.40} is unknown; pass one of {', '.join(METHODS)}"
        )
    check_lowerable("log_partition", model)
    model, centre = centred(model)
    means = centred_means("log_partition", means, centre)
    why = ""
    if method != "ais" and is_enumerable(model):
        return _exactly(enumerated(model).log_z)
    if method != "ais":
        log_z, why = _exact(model)
        if log_z is not None:
            return _exactly(log_z)
    if method == "exact":
        raise UndirectedError(f"log_partition: no exact log Z ({why}); use method 'ais'")
    own = make_key("log_partition", key, seed)
    model = _weakened(model)
    path, kernel = path_to(model, means), kernel_for(model)
    both = bracket(path, kernel, own, chains=chains, betas=betas, mesh=mesh, progress=progress)
    if _is_nothing(model, both.log_z):
        return LogPartition(-np.inf, (-np.inf, np.inf), "ais", both)
    return LogPartition(both.log_z, both.interval, "ais", both)


def evaluate(
    model: Any,
    rows: ArrayLike,
    *,
    method: str = "auto",
    means: ArrayLike | None = None,
    chains: int = 200,
    betas: int = 2000,
    key: Key[Array, ""] | None = None,
    seed: int | None = None,
    entries: bool | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """The log-likelihood of rows under a model, with its error; of what is observed in them.

    Args:
        model: any model that lowers to potentials.
        rows: values of the visible units, or of the columns of a model that has them; NaN where
            one is missing. Of a network columns by name too, as `fit` takes them.
        method: "exact", "ais", or "auto": exact where affordable; for log Z and hidden units.
        means: of the visible units, from the data: a better start for AIS.
        chains: of AIS for log Z.
        betas: temperatures of AIS.
        key: of all draws.
        seed: the same as a number; pass one of the two.
        entries: whether to hide single entries and ask for them; by default where rows have holes.
        progress: told the steps of all chains done and in all, where AIS is run.

    Returns:
        An `Evaluation`: means per row in nats with standard errors, values of single rows
        (`.log_likelihood.rows`), and log Z.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> found = un.evaluate(un.Ising.create(4), np.eye(4))
        >>> round(found.log_likelihood.mean, 4)
        -2.7726
    """
    check_model("evaluate", model)
    rows = rows if has_columns(model) else units_of("evaluate", model.layout, rows)
    model, centre = centred(model)
    values = unit_rows("evaluate", model, rows, kind=centre.dtype) - centre
    means = centred_means("evaluate", means, centre)
    if not len(values) or np.isnan(values).all():
        raise UndirectedError(
            f"evaluate: nothing is observed in {len(values)} rows; pass at least one entry"
        )
    own = make_key("evaluate", key, seed)
    settings: dict[str, Any] = {"method": method, "means": means, "betas": betas}
    complete = values[~np.isnan(values).any(1)]
    known = len(complete) > 0 and isinstance(model, Marginal | Conditionals)
    if method in ("auto", "exact") and is_enumerable(model):
        exact = enumerated(model)
        log_z = _exactly(exact.log_z)
        found, sums = mean(exact.log_likelihood(values)), "exact"
        pseudo = mean(exact.pseudo_log_likelihood(complete)) if known else None
    else:
        first, second = shares(progress, 2 * chains * betas, _row_steps(model, values, betas))
        log_z = log_partition(model, chains=chains, key=own, progress=first, **settings)
        if log_z.value == -np.inf:  # no row has a probability, nor has an entry given others
            nothing = mean(np.full(len(values), -np.inf))
            return Evaluation(nothing, log_z, None, log_z.method, len(values), len(complete))
        bare, constant = without_constant(model)
        sought = log_z.value - constant
        found, sums = _likelihood(bare, values, sought, own, second, **settings)
        pseudo = pseudo_log_likelihood(model, complete) if known else None
    ask = len(complete) < len(values) if entries is None else entries
    held_out = entry_bits(model, values) if ask and scores_entries(model) else None
    return Evaluation(found, log_z, pseudo, sums, len(values), len(complete), held_out)


def _exactly(log_z: float) -> LogPartition:
    return LogPartition(log_z, (log_z, log_z), "exact")


def _weakened(model: Any) -> Any:
    """A model whose constraints come gradually along a path, where their tables are small."""
    if not isinstance(model, FactorGraph):
        return model
    try:
        found = model.tabulated()
    except UndirectedError:  # a table that is too large
        return model

    def entries(graph: FactorGraph) -> int:
        return sum(f.weight.size for f in graph.factors if isinstance(f, Tables))

    return found if entries(found) - entries(model) <= MOST_WRITTEN else model


def _is_nothing(model: Any, log_z: float) -> bool:
    """Whether a log Z is that of a model that forbids every state."""
    return log_z < -HARD and not model.layout.is_continuous.any()


def check_lowerable(caller: str, model: Any) -> None:
    """Refuse models that have no log Z to speak of."""
    if not isinstance(model, Lowerable):
        raise UndirectedError(
            f"{caller}: a {type(model).__name__} does not lower to potentials: its log Z is out "
            "of reach; judge its answers to queries instead, by binary_cross_entropy or error_rate"
        )


def _likelihood(
    model: Any,
    rows: np.ndarray,
    log_z: float,
    key: Key[Array, ""],
    progress: Progress | None,
    *,
    method: str,
    means: ArrayLike | None,
    betas: int,
) -> tuple[Estimate, str]:
    """Log-likelihood of rows, and how hidden units and missing entries were summed out."""
    holes = np.isnan(rows).any(1)
    summable = _sums_hidden(model)
    if summable and not holes.any():
        return log_likelihood(model, rows, log_z), "exact"
    sums = None if method == "ais" else _exact_rows(model, rows)
    if sums is not None:
        return mean_log(sums - log_z, model.layout), "exact"
    if method == "exact":
        raise UndirectedError(
            "evaluate: the hidden units and missing entries are too many for exact; use method "
            "'ais'"
        )
    found = np.empty(len(rows))
    if summable and not holes.all():
        found[~holes] = log_likelihood(model, rows[~holes], log_z).rows
    else:
        holes = np.ones(len(rows), bool)
    found[holes] = _rows_by_ais(model, rows[holes], key, progress, means, betas) - log_z
    return mean_log(found, model.layout), "ais"


def _rows_by_ais(
    model: Any,
    rows: np.ndarray,
    key: Key[Array, ""],
    progress: Progress | None,
    means: ArrayLike | None,
    betas: int,
) -> Float[np.ndarray, " rows"]:
    """`ais_rows` in chunks; where only missing entries are to be summed, a tenth of the betas."""
    path = path_to(model, means)
    if isinstance(model, Separable):  # a path from a tractable model would have couplings
        path = ModelPath(model.independent(None if means is None else jnp.asarray(means)), model)
    kernel, count = kernel_for(model), _row_betas(model, betas)

    def by_ais(part: Array, start: int) -> np.ndarray:
        own, held = jax.random.fold_in(key, start), min(len(part), len(rows) - start)

        def tell(done: int, total: int) -> None:
            if progress is not None:
                progress(start * total + held * done, len(rows) * total)

        return ais_rows(path, kernel, part, own, chains=ROW_CHAINS, betas=count, progress=tell)

    size = 4 * ROW_CHAINS * model.layout.n
    # Rows that fill up a chunk are 0, which is no state of a categorical variable.
    found = map_rows(by_ais, rows, size, budget=ROW_BYTES, fill=np.nan)
    return np.asarray(found, np.float64)


def _sums_hidden(model: Any) -> bool:
    """Whether nothing but missing entries is left to be summed over."""
    return isinstance(model, Summable) or model.layout.n == model.layout.n_visible


def _row_betas(model: Any, betas: int) -> int:
    """Betas of a row; fewer where its missing entries alone are summed."""
    return max(2, betas // 10) if _sums_hidden(model) else betas


def _row_steps(model: Any, rows: np.ndarray, betas: int) -> int:
    """Steps of all chains of the rows that AIS has to sum."""
    count = np.isnan(rows).any(1).sum() if _sums_hidden(model) else len(rows)
    return int(count) * ROW_CHAINS * _row_betas(model, betas)


def _exact(model: Any) -> tuple[float | None, str]:
    """log Z by the first exact routine that can afford the model; otherwise None, and why not."""
    (p, constant), why = without_constant(model.lower()), []
    graphs = [factor.graph for factor in p.factors if hasattr(factor, "graph")]
    routines = [
        lambda: Exact(most=min(MOST_STATES, MOST_NUMBERS // p.layout.n)),
        *(lambda graph=graph: Transfer.plan(graph) for graph in graphs),
        lambda: Elimination(most=MOST_ENTRIES),
    ]
    for routine in routines:
        try:
            log_z = float(routine()(p).log_z)
            return (-np.inf if _is_nothing(p, log_z) else log_z + constant), ""
        except NotFinite:  # of elimination, which finds no state that is allowed
            return -np.inf, ""
        except UndirectedError as error:
            why.append(str(error))
    return None, why[0]


def _exact_rows(model: Any, rows: np.ndarray) -> Float[np.ndarray, " rows"] | None:
    """log sum_h exp(-E(v, h)) of every row; None where that takes too long."""
    exact = Exact(most=MOST_SUMS // len(rows))
    try:
        return np.asarray(_clamped_sums(exact, model.lower(), jnp.asarray(rows)), np.float64)
    except UndirectedError:
        return None


@eqx.filter_jit
def _clamped_sums(exact: Exact, p: Potentials, rows: Array) -> Float[Array, " rows"]:
    return jax.lax.map(lambda v: exact(clamp(p, ~jnp.isnan(v), v)).log_z, rows)
