"""Questions to a model: the probability of what is not known, given what is."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, Key
from numpy.typing import ArrayLike

from undirected.core.agreement import share_out
from undirected.core.chunks import BUDGET, map_rows, potential_bytes
from undirected.core.errors import NotFinite, TooLarge, UndirectedError, UnsupportedFactor
from undirected.core.layout import Domain, Layout, marginals
from undirected.core.mesh import check_mesh, place
from undirected.core.potentials import Potentials, Status, clamp, lowered
from undirected.core.progress import Progress
from undirected.core.progress import shares as shared_out
from undirected.core.protocols import Lowerable
from undirected.core.random import check_key, make_key
from undirected.core.table_units import TableUnits
from undirected.factors import Squares
from undirected.inference import Elimination, Exact, Inference, MaxProduct, MeanField, SumProduct
from undirected.inference.mixed_messages import suits as takes_lines
from undirected.sampling.lead_in import LEAD, broken, forbids, led
from undirected.tasks.choose import check_model, kernel_for
from undirected.tasks.enumerated import is_enumerable
from undirected.tasks.enumerated_coupled import enumerated
from undirected.tasks.few_missing import answer_few, few_missing, takes_few
from undirected.tasks.network_data import row_in_words, states_of_units, units_of
from undirected.tasks.rows import (
    centred,
    check_whole,
    clamped_start,
    evidence_row,
    evidence_units,
    has_columns,
    unit_rows,
)

METHODS = ("auto", "bp", "mf", "gibbs", "exact", "map")
SMALL_TABLES = 2**22
"""Entries of all tables of an elimination that is tried before belief propagation."""
FEW_VARIABLES = 16
"""Variables, all coupled with each other, among which a best state is found by elimination."""
BURN_IN, DRAWS = 200, 2000
"""Sweeps of a chain that answers a row: to settle, and to average."""


class Answers(NamedTuple):
    """Rows with every missing entry filled in, and how the inference of each row went.

    `std` are standard deviations of real and nonnegative units, 0 where they are known.
    """

    values: Float[np.ndarray, "rows v"]
    status: Int[np.ndarray, " rows"]
    std: Float[np.ndarray, "rows v"] | None = None

    @property
    def converged(self) -> float:
        """The share of rows whose inference reached its goal."""
        return float((self.status == Status.CONVERGED).mean()) if len(self.status) else 1.0


@dataclass(frozen=True)
class TableAnswers:
    """Answers about a table of one cell a column.

    Args:
        table: the rows with every missing cell filled in: the most probable state of binary and
            categorical columns, the mean of real and nonnegative ones.
        probabilities: of the states of each discrete column (rows, states), by its name.
        mean: of each continuous column (rows,), by its name.
        std: its standard deviation, 0 where the cell is known.
        status: how the inference of each row went, a `Status`.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> model = un.MixedRBM.create({"ill": "binary", "age": "real"}, 2, seed=0, scale=0.0)
        >>> found = un.query(model, [[1, np.nan], [np.nan, 0.5]])
        >>> found.probabilities["ill"].tolist(), found.std["age"].round(2).tolist()
        ([[0.0, 1.0], [0.5, 0.5]], [1.0, 0.0])
    """

    table: Float[np.ndarray, "rows columns"]
    probabilities: dict[Any, Float[np.ndarray, "rows states"]]
    mean: dict[Any, Float[np.ndarray, " rows"]]
    std: dict[Any, Float[np.ndarray, " rows"]]
    status: Int[np.ndarray, " rows"]

    def row(self, index: int = 0, skip: Sequence[Any] = ()) -> dict[Any, dict[Any, float]]:
        """One row by names: {column: {state: probability}}, or {"mean": ..., "std": ...}."""
        found: dict[Any, dict[Any, float]] = {}
        for name, shares in self.probabilities.items():
            found[name] = {k: round(float(p), 7) for k, p in enumerate(shares[index])}
        for name, mean in self.mean.items():
            found[name] = {"mean": float(mean[index]), "std": float(self.std[name][index])}
        return {name: answer for name, answer in found.items() if name not in skip}


def query(
    model: Any,
    rows: ArrayLike | None = None,
    *,
    given: Any = None,
    method: str | Inference = "auto",
    key: Key[Array, ""] | None = None,
    seed: int | None = None,
    mesh: Mesh | None = None,
) -> Any:
    """What a model says about variables that are not known, given those that are.

    Args:
        model: any model of discrete units, or one that can be sampled.
        rows: a table over the visible units (rows, v), NaN where an entry is asked for; of a
            network columns by name as `fit` takes them, None where an entry is asked for, and one
            without a column is asked for in all rows.
        given: without rows, one question by names: `{variable: state}`, one row of a data frame
            (what is missing there is asked for), or a row with NaN.
        method: "bp" (belief propagation), "mf" (mean field), "exact", "gibbs", "map" (the most
            probable joint completion: for one question exact where that is cheap, elsewhere by
            max-product, which may miss it; `un.solve` says whether its state is proved), an
            inference routine, or "auto": exact where that is cheap, else belief propagation, else
            chains.
        key: of methods that draw random numbers.
        seed: the same as a number; pass one of the two.
        mesh: devices over which many rows are split, such as `un.device_mesh()`. Routines in NumPy,
            as elimination, run once a process: the rows are shared out among processes.

    Returns:
        For rows, the table with every NaN replaced by the probability of a one (by the mean, for
        real units); of a model with columns `TableAnswers`. For one question
        `{variable: {state: probability}}` of all visible variables that are not given, in the
        order they were declared, with `{"mean": ..., "std": ...}` for continuous columns; for
        columns by name the same with arrays (rows,), known entries as 0 and 1.

    Example:
        >>> import undirected as un
        >>> net = un.markov_network([2, 2], {(0, 1): [[3, 1], [1, 3]]})
        >>> un.query(net, given={0: 1})
        {1: {0: 0.25, 1: 0.75}}
        >>> un.query(net, [[1, float("nan")]]).tolist()
        [[1.0, 0.75]]
    """
    if rows is not None:
        if given is not None:
            raise UndirectedError("query: got both rows and given; put what is known into the rows")
        check_model("query", model)
        units: Any = rows if has_columns(model) else units_of("query", model.layout, rows)
        found = answer_rows(model, units, method=method, key=key, seed=seed, mesh=mesh)
        if has_columns(model):
            return by_column(model.table, found)
        return found.values if units is rows else _by_name(model.layout, units, found.values)
    check_model("query", model)
    layout = model.layout
    if has_columns(model):
        units = evidence_units("query", model, given)
        cells = model.table.to_table(units[None])
        found = answer_rows(model, cells, method=method, key=key, seed=seed)
        table = model.table
        seen = [table.labels[i] for i in np.flatnonzero(~np.isnan(cells[0]))]
        answers = by_column(table, found).row(skip=seen)
        return {name: answers[name] for name in table.labels if name in answers}
    if layout.is_continuous.any():
        raise UnsupportedFactor(
            f"query: a {type(model).__name__} has continuous units, whose answers are no list of "
            "states; pass rows, NaN for what is asked: the answers are its means"
        )
    row = evidence_row("query", layout, given)
    found = answer_rows(model, row[None], method=method, key=key, seed=seed)
    return {
        name: {state: round(float(share[0]), 7) for state, share in shares.items()}
        for name, shares in _by_name(layout, row[None], found.values).items()
    }


def answer_rows(
    model: Any,
    rows: ArrayLike,
    *,
    method: str | Inference = "auto",
    key: Key[Array, ""] | None = None,
    seed: int | None = None,
    budget: int = BUDGET,
    progress: Progress | None = None,
    mesh: Mesh | None = None,
) -> Answers:
    """`query` of rows, with the status of every row; in chunks whose memory is bounded.

    Rows whose belief propagation does not settle are asked once more, with damping.
    """
    check_model("query", model)
    mesh = check_mesh("query", mesh, model)
    check_key("query", key, seed)
    if method == "map":
        check_completion("query: method 'map'", model)
    model, mean = centred(model)
    units = unit_rows("query", model, rows, kind=mean.dtype)
    values = units - mean
    if method in ("auto", "exact") and is_enumerable(model):
        means, std = enumerated(model).answers(values)
        found = Answers(means, np.full(len(values), int(Status.CONVERGED)), std)
    else:
        options = {"key": make_key("query", key, seed), "budget": budget, "mesh": mesh}
        few = method in ("auto", "exact") and takes_few(model)
        answer = _few_and_others if few else _answer_by
        found = answer(model, values, method, progress, options)
    if (found.status == Status.INFEASIBLE).any() and not isinstance(method, Inference):
        row = int(np.flatnonzero(found.status == Status.INFEASIBLE)[0])
        if np.isnan(values[row]).all():
            raise NotFinite(
                "query: nothing is known, and the model forbids every state; correct its zeros"
            )
        raise NotFinite(
            f"query: what is known in row {row}{_words(model, values[row])} contradicts itself: no "
            "state of the model agrees with it"
        )
    return found._replace(values=np.where(np.isnan(units), found.values + mean, units))


def _words(model: Any, row: Float[np.ndarray, " v"]) -> str:
    """What is known of a row in brackets, where variables have names."""
    if model.layout.labels is None:
        return ""
    states = states_of_units("query", model.layout, row)
    told = "" if states is None else row_in_words(model.layout, states[0])
    return f" ({told})" if told else ""


def _few_and_others(
    model: Any,
    values: np.ndarray,
    method: str | Inference,
    progress: Progress | None,
    options: dict[str, Any],
) -> Answers:
    """Rows with few missing entries exactly, all others by the method."""
    few = few_missing(model.layout, values)
    means = values.copy()
    status = np.full(len(values), int(Status.CONVERGED))
    first, rest = shared_out(progress, int(few.sum()), int((~few).sum()))
    if few.any():
        means[few], feasible = answer_few(model, values[few], first)
        status[few] = np.where(feasible, int(Status.CONVERGED), int(Status.INFEASIBLE))
    if not few.all():
        others = _answer_by(model, values[~few], method, rest, options)
        means[~few], status[~few] = others.values, others.status
    return Answers(means, status)


def _answer_by(
    model: Any,
    values: np.ndarray,
    method: str | Inference,
    progress: Progress | None,
    options: dict[str, Any],
) -> Answers:
    routine = _routine(model, method, len(values))
    if routine is None:
        return _by_chains(model, values, progress=progress, **options)
    try:
        found = _by_inference(model, values, routine, progress=progress, **options)
    except TooLarge:
        if method not in ("auto", "map"):
            raise
        routine = SETTLING if method == "auto" else NAMED["map"]
        found = _by_inference(model, values, routine, progress=progress, **options)
    open_ = found.status == Status.ROUNDS_SPENT
    if open_.any() and routine == SETTLING:
        again = _by_inference(model, values[open_], DAMPED, progress=None, **options)
        for old, new in zip(found, again, strict=True):
            if old is not None and new is not None:
                old[open_] = new
    return found


def check_completion(caller: str, model: Any) -> None:
    """Refuse to look for the most probable completion where units hold numbers, not states."""
    if model.layout.is_continuous.any():
        raise UndirectedError(
            f"{caller}: the most probable completion is found of states alone, and a "
            f"{type(model).__name__} has numbers too; its answers give their means"
        )


SETTLING = SumProduct(iterations=100, tolerance=1e-3)
DAMPED = SumProduct(iterations=500, tolerance=1e-3, damping=0.5)
NAMED: dict[str, Inference] = {
    "bp": SETTLING,
    "map": MaxProduct(iterations=200, tolerance=1e-3, damping=0.5),
    "mf": MeanField(iterations=200),
}


def _routine(model: Any, method: str | Inference, rows: int) -> Inference | None:
    """The inference routine of a method; None for chains."""
    if isinstance(method, Inference):
        return method
    if method not in METHODS:
        raise UndirectedError(
            f"query: method {method!r:.40} is unknown; pass one of {', '.join(METHODS)}"
        )
    if method == "gibbs":
        return None
    if method == "map" and rows == 1 and _is_eliminable(model.lower(), FEW_VARIABLES):
        return Elimination(temperature=0.0, most=SMALL_TABLES)
    if method in NAMED:
        return NAMED[method]
    exact = _affordable(model, rows, always=method == "exact")
    if exact is not None:
        return exact
    if isinstance(model, Lowerable):
        p = model.lower()
        sent = bool(p.factors) and all(group.offers("update_messages") for group in p.factors)
        if sent or takes_lines(p):
            return SETTLING
    return None


def _affordable(model: Any, rows: int, always: bool) -> Inference | None:
    """An exact routine: elimination for a single question to a sparse model, else enumeration."""
    if not isinstance(model, Lowerable):
        if always:
            raise UndirectedError(f"query: {type(model).__name__} has no exact inference")
        return None
    if (always or rows == 1) and _is_eliminable(model.lower()):
        return Elimination(most=Elimination().most if always else SMALL_TABLES)
    return Exact() if always else None


def _is_eliminable(p: Potentials, few: int = 0) -> bool:
    """Whether all factors are tables of a sparse graph, or of so few variables."""
    blocks = range(len(p.layout.blocks))
    dense = any(f.separated_by((i,)) for f in p.factors for i in blocks)
    return (not dense or len(p.layout.order) <= few) and all(f.offers("tables") for f in p.factors)


def _by_inference(
    model: Any,
    values: np.ndarray,
    routine: Inference,
    key: Key[Array, ""],
    budget: int,
    progress: Progress | None,
    mesh: Mesh | None,
) -> Answers:
    p = lowered("query", model)
    if routine.on_host:
        means, status = share_out(mesh, values, lambda row: _on_host(p, row, routine))
        return Answers(means, status)

    size, (p, routine) = potential_bytes(p), place(mesh, (p, routine))

    def answer(chunk: Array, start: int) -> tuple[Array, Array, Array | None]:
        return _answer(routine, p, chunk, place(mesh, jax.random.fold_in(key, start)))

    options = {"budget": budget, "progress": progress, "mesh": mesh}
    means, status, variance = map_rows(answer, values, size, **options)
    std = None if variance is None else np.sqrt(np.where(np.isnan(values), variance, 0.0))
    return Answers(np.where(np.isnan(values), means, values), status.copy(), std)


@eqx.filter_jit
def _answer(
    routine: Inference, p: Potentials, rows: Float[Array, "rows v"], key: Key[Array, ""]
) -> tuple[Float[Array, "rows v"], Int[Array, " rows"], Float[Array, "rows v"] | None]:
    """Means, status and, where units are continuous, variances of the visible units."""
    beliefs = routine(clamp(p, ~jnp.isnan(rows), rows), key)
    means, variance = beliefs.unary[:, : rows.shape[1]], None
    if p.layout.is_continuous.any():
        variance = jnp.zeros_like(means)
        for group in beliefs.factors:
            if isinstance(group, Squares):
                where = p.layout.blocks[group.block].slice
                spread = jnp.maximum(group.weight - means[:, where] ** 2, 0.0)
                variance = variance.at[:, where].set(spread)
    return means, beliefs.status, variance


def _on_host(p: Potentials, row: np.ndarray, routine: Inference) -> tuple[np.ndarray, np.ndarray]:
    beliefs = routine(clamp(p, jnp.asarray(~np.isnan(row)), jnp.asarray(row)))
    means = np.asarray(beliefs.unary)[: len(row)]
    return np.where(np.isnan(row), means, row), np.asarray(beliefs.status)


def _by_chains(
    model: Any,
    values: np.ndarray,
    key: Key[Array, ""],
    budget: int,
    progress: Progress | None,
    mesh: Mesh | None,
) -> Answers:
    """Means of chains, one a row, whose known entries stay as they are."""
    from undirected.sampling import Mean, run_chains

    check_whole("query", model.layout, values, "use method 'bp' or 'exact'")
    kernel, hard = kernel_for(model), forbids(model)
    lines = bool(model.layout.is_continuous.any())
    observe = Mean(jnp.square, name="squares") if lines else ()

    def answer(chunk: Array, start: int) -> tuple[Array, Array | None, np.ndarray | None]:
        start_key, run_key = jax.random.split(jax.random.fold_in(key, start))
        x, free = clamped_start(model, chunk, start_key)
        x = led(kernel, model, x, free, start_key, LEAD) if hard else x
        chains = run_chains(
            kernel,
            model,
            x,
            run_key,
            burn_in=BURN_IN,
            samples=DRAWS,
            free=free,
            observe=observe,
            mesh=mesh,
        )
        means = chains.chain_means[:, : chunk.shape[1]]
        squares = chains.observed["squares"][:, : chunk.shape[1]] if lines else None
        variance = None if squares is None else jnp.maximum(squares - means**2, 0.0)
        return means, variance, broken(model, chains.state.x) if hard else None

    size = 400 * model.layout.n
    means, variance, lost = map_rows(answer, values, size, budget=budget, progress=progress)
    if lost is not None and lost.any():
        row = int(np.argmax(lost))
        raise UndirectedError(
            f"query: the chain of row {row}{_words(model, values[row])} came to no state that the "
            "model allows: what is known there may contradict itself; method 'exact' can tell"
        )
    settled = np.full(len(values), int(Status.CONVERGED))
    std = None if variance is None else np.sqrt(np.where(np.isnan(values), variance, 0.0))
    return Answers(np.where(np.isnan(values), means, values), settled, std)


def by_column(table: TableUnits, found: Answers) -> TableAnswers:
    """Answers of units as answers of columns."""
    probabilities, mean, std = {}, {}, {}
    for i, name in enumerate(table.labels):
        part = found.values[:, table.units(i)]
        if table.domains[i] is Domain.CATEGORICAL:
            probabilities[name] = part
        elif table.domains[i] is Domain.BINARY:
            probabilities[name] = np.concatenate([1 - part, part], 1)
        else:
            mean[name] = part[:, 0]
            spread = np.zeros_like(found.values) if found.std is None else found.std
            std[name] = spread[:, table.units(i)][:, 0]
    cells = table.to_table(found.values)
    for i, domain in enumerate(table.domains):
        if domain is Domain.BINARY:
            cells[:, i] = cells[:, i] > 0.5
    return TableAnswers(cells, probabilities, mean, std, found.status)


def _by_name(
    layout: Layout, rows: Float[np.ndarray, "rows v"], means: Float[np.ndarray, "rows v"]
) -> dict[Hashable, dict[Hashable, Float[np.ndarray, " rows"]]]:
    """Probabilities of the states of every visible variable that is not known in all rows."""
    visible = Layout(tuple(block for block in layout.blocks if block.visible))
    asked = np.asarray(np.isnan(rows[:, visible.variables.first]).any(0))
    table = np.asarray(marginals(visible, np.asarray(means)), float)
    found = {}
    for variable, name in zip(layout.order, layout.names, strict=True):
        if variable < len(asked) and asked[variable]:
            pairs = zip(layout.states_of(variable), table[:, variable].T, strict=False)
            found[name] = {x: share for x, share in pairs if x is not None or share.any()}
    return found
