"""Which columns hang together most in a fitted model: what two tell of each other, in bits."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from undirected.core.chunks import map_rows
from undirected.core.columns import Schema
from undirected.core.table_units import TableUnits
from undirected.models import Ising, Potts
from undirected.tasks.enumerated import is_enumerable, log_sum
from undirected.tasks.enumerated_coupled import CoupledRBM, enumerated
from undirected.tasks.rows import has_columns
from undirected.tasks.table_model import TableModel

PAIRS = 60
"""Pairs of columns that are looked at: those with the largest couplings."""
SAMPLES, CONTEXTS, SWEEPS = 256, 64, 200
"""Samples of the model that say which values columns take; those over which is averaged; and the
sweeps of each where they come from chains."""
POINTS = 11
"""Values that are tried of a column of numbers, and the most states of a category."""

LEAST = 0.0005
"""Bits below which a pair is not named: it would be shown as 0.000."""

LogWeight = Callable[[Float[np.ndarray, "rows v"]], Float[np.ndarray, " rows"]]


class Dependence(NamedTuple):
    """Two columns and the bits that they tell of each other where all others are known.

    Negative where more of one goes with less of the other; with a category there is no sign.
    """

    first: str
    second: str
    bits: float


def strongest_dependences(model: Any, schema: Schema, most: int = 20) -> list[Dependence]:
    """The pairs of columns that tell most of each other, the strongest first.

    That is the mutual information of both given all other columns, in bits, averaged over samples
    of the model, of the pairs whose couplings are the largest. A model without couplings of pairs,
    or whose hidden units cannot be summed out of a row, gives none.
    """
    log_weight = _log_weight(model)
    sizes = None if log_weight is None else column_couplings(model, len(schema))
    if log_weight is None or sizes is None:
        return []
    rows, columns = np.triu_indices(len(schema), 1)
    order = np.argsort(-np.abs(sizes[rows, columns]), kind="stable")[:PAIRS]
    chosen = [(int(rows[k]), int(columns[k])) for k in order if sizes[rows[k], columns[k]] != 0]
    if not chosen:
        return []
    table = TableModel(model, schema)
    cells = _samples(table)

    def log_weight_of(cells: np.ndarray) -> np.ndarray:
        return log_weight(table.units(cells))

    found = [
        Dependence(schema.names[i], schema.names[k], _bits(log_weight_of, cells, schema, (i, k)))
        for i, k in chosen
    ]
    found.sort(key=lambda pair: -abs(pair.bits))
    return [pair for pair in found[:most] if abs(pair.bits) >= LEAST]


def _samples(table: TableModel) -> Float[np.ndarray, "samples columns"]:
    """Encoded rows drawn from the model; in NumPy where it can be, which compiles nothing."""
    unknown = np.full(len(table.schema), np.nan, np.float32)
    if not is_enumerable(table.model):
        return table.samples(SAMPLES, unknown, sweeps=SWEEPS)
    units, rng = table.units(unknown[None])[0], np.random.default_rng(0)
    drawn = enumerated(table.model).draw(units, SAMPLES, rng)
    return table.table(drawn[:, : table.model.n_visible].astype(np.float32))


def _bits(
    log_weight: LogWeight,
    cells: Float[np.ndarray, "samples columns"],
    schema: Schema,
    pair: tuple[int, int],
) -> float:
    """The mutual information of two columns given the others, with the sign of their covariance."""
    (a, wide_a), (b, wide_b) = (_values(cells[:, i], schema.columns[i].is_discrete) for i in pair)
    rows = np.repeat(cells[:CONTEXTS, None], len(a) * len(b), 1)
    rows[:, :, pair[0]], rows[:, :, pair[1]] = np.repeat(a, len(b)), np.tile(b, len(a))
    logs = log_weight(rows.reshape(-1, cells.shape[1])).reshape(len(rows), len(a), len(b))
    logs = logs + np.log(wide_a)[:, None] + np.log(wide_b)
    p = log_sum(logs.reshape(len(rows), -1))[1].reshape(logs.shape)
    alone = p.sum(2, keepdims=True) * p.sum(1, keepdims=True)
    shared = p * np.log2(np.where(p > 0, p / np.maximum(alone, 1e-300), 1.0))
    together = np.einsum("rab,a,b->", p - alone, a, b)
    signed = all(schema.columns[i].kind != "category" for i in pair)
    size = max(shared.sum((1, 2)).mean(), 0.0)
    return float(np.copysign(size, together if signed else 1.0))


def _values(
    sampled: Float[np.ndarray, " samples"], is_discrete: bool
) -> tuple[Float[np.ndarray, " values"], Float[np.ndarray, " values"]]:
    """Values of a column, and how much of the line each stands for.

    Of a discrete column the most frequent states; of another one the middles of pieces that hold
    as many samples each.
    """
    if is_discrete:
        states, counts = np.unique(sampled, return_counts=True)
        kept = states[np.argsort(-counts, kind="stable")[:POINTS]]
        return kept, np.ones(len(kept))
    edges = np.unique(np.quantile(sampled.astype(float), np.linspace(0, 1, POINTS + 1)))
    if len(edges) < 2:  # always the same number
        return edges, np.ones(1)
    return (edges[1:] + edges[:-1]) / 2, np.diff(edges)


def _log_weight(model: Any) -> LogWeight | None:
    """log p of rows of visible units, up to a constant; None where hidden units stay in it."""
    if is_enumerable(model):
        return enumerated(model).log_likelihood
    energy = getattr(model, "free_energy", None)
    if energy is None:
        layout = getattr(model, "layout", None)
        energy = model.energy if layout is not None and layout.n == layout.n_visible else None
    if energy is None:
        return None
    import equinox as eqx

    compiled = eqx.filter_jit(energy)

    def log_weight(rows: np.ndarray) -> np.ndarray:
        found = map_rows(lambda chunk, _: compiled(chunk), rows, 64 * model.layout.n)
        return -np.asarray(found, np.float64)

    return log_weight


def column_couplings(model: Any, count: int) -> Float[np.ndarray, "columns columns"] | None:
    """About the coupling of every two columns; None for models that have none of pairs.

    Of an Ising or Potts model these are its own. Hidden units couple columns i and k by about
    sum_j W_ij W_kj / 4, which is the second order of the sum over their states; real columns may be
    coupled beside. Columns of several units count the root of the sum of squares.
    """
    if isinstance(model, Ising):
        return np.asarray(model.couplings, np.float64) if model.graph is None else None
    if isinstance(model, Potts):
        return _of_states(model, count)
    units = _through_hidden(model)
    if units is None:
        return None
    if has_columns(model):
        own = _between_reals(model)
        if own is not None:
            units[model.real_units, model.real_units] += own
        return _by_column(units, model.table)
    return units if len(units) == count else None


def _through_hidden(model: Any) -> Float[np.ndarray, "v v"] | None:
    """Couplings between visible units that hidden ones make, a mixture's component among them."""
    if not hasattr(model, "layout"):
        return None
    if is_enumerable(model):  # in NumPy, which compiles nothing
        weights = enumerated(model).weights
    else:
        weights = getattr(model, "couplings", getattr(model, "weights", None))
    if weights is None or np.ndim(weights) != 2 or len(weights) != model.layout.n_visible:
        return None
    parts = [np.asarray(weights, np.float64)]
    components = getattr(model, "components", None)
    if components is not None:
        fields = np.asarray(components, np.float64)
        parts.append(2 * (fields - fields.mean(1, keepdims=True)) / np.sqrt(fields.shape[1]))
    whole = np.concatenate(parts, 1)
    return whole @ whole.T / 4


def _between_reals(model: Any) -> Float[np.ndarray, "R R"] | None:
    """What multiplies v_i v_j of two real units; None where they are not coupled."""
    if is_enumerable(model) and isinstance(own := enumerated(model), CoupledRBM):
        return np.diag(np.diag(own.precision)) - own.precision
    found = getattr(model, "real_couplings", None)
    return None if found is None else np.asarray(found, np.float64)


def _by_column(units: np.ndarray, table: TableUnits) -> np.ndarray:
    """Of one unit each the coupling itself, of several the root of the sum of squares."""
    places = [table.units(i) for i in range(len(table))]
    blocks = [[units[a, b] for b in places] for a in places]
    return np.array(
        [[b[0, 0] if b.size == 1 else np.sqrt((b**2).sum()) for b in row] for row in blocks]
    )


def _of_states(model: Potts, count: int) -> np.ndarray | None:
    """The size of the coupling table of every pair, less what each of its variables has alone."""
    found = np.zeros((count, count))
    (group,) = model.lower().factors
    weight, edges = np.asarray(group.weight, np.float64), np.asarray(group.graph.edges)
    if weight.ndim != 3 or edges.max(initial=0) >= count:
        return None
    rest = weight - weight.mean(1, keepdims=True) - weight.mean(2, keepdims=True)
    size = np.sqrt(((rest + weight.mean((1, 2), keepdims=True)) ** 2).sum((1, 2)))
    found[edges[:, 0], edges[:, 1]] = found[edges[:, 1], edges[:, 0]] = size
    return found
