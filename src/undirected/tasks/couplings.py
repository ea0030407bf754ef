"""Which columns hang together most in a fitted model, by their names."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from undirected.core.columns import Schema
from undirected.core.table_units import TableUnits
from undirected.models import Ising, Potts
from undirected.tasks.enumerated import is_enumerable
from undirected.tasks.enumerated_coupled import CoupledRBM, enumerated
from undirected.tasks.rows import has_columns


class Coupling(NamedTuple):
    """Two columns and how strongly they are coupled; between states a size without a sign."""

    first: str
    second: str
    strength: float


def strongest_couplings(model: Any, schema: Schema, most: int = 20) -> list[Coupling]:
    """The pairs of columns with the strongest couplings, strongest first.

    Of an Ising or Potts model these are its own. Hidden units couple columns i and k by about
    sum_j W_ij W_kj / 4, which is the second order of the sum over their states; real columns may be
    coupled beside. Columns of several units count the root of the sum of squares. A model of
    another kind gives none.
    """
    found = column_couplings(model, len(schema))
    if found is None:
        return []
    rows, columns = np.triu_indices(len(schema), 1)
    size, names = found[rows, columns], schema.names
    order = np.argsort(-np.abs(size), kind="stable")[:most]
    pairs = [(names[rows[k]], names[columns[k]], float(size[k])) for k in order]
    return [Coupling(*pair) for pair in pairs if pair[2] != 0]


def column_couplings(model: Any, count: int) -> Float[np.ndarray, "columns columns"] | None:
    """The coupling of every two columns; None for models that have none of pairs."""
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
    if isinstance(weights, tuple):  # of a deep model, those of the lowest layer
        weights = weights[0]
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
