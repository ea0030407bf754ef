"""Some columns given others: the features and outputs of a conditional model of a table."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from undirected.core.cells import unmasked
from undirected.core.errors import UndirectedError
from undirected.core.table_units import TableUnits, part_of
from undirected.inference import SumProduct, predict
from undirected.models import ConditionalRBM


def given_and_asked(
    table: TableUnits, given: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The columns a conditional model takes as known, and those it is asked for."""
    inputs = tuple(sorted({int(i) for i in given}))
    if len(inputs) == len(table):
        raise UndirectedError(
            f"fit: all {len(table)} columns are given; leave at least one to be asked for"
        )
    if not inputs or not 0 <= inputs[0] <= inputs[-1] < len(table):
        raise UndirectedError(
            f"fit: a conditional model is given columns {list(given)} of {len(table)}; name at "
            f"least one, by numbers from 0 to {len(table) - 1}"
        )
    outputs = tuple(i for i in range(len(table)) if i not in inputs)
    for i in outputs:
        if table.kinds[i] in ("real", "nonnegative"):
            raise UndirectedError(
                f"fit: column {table.labels[i]} is {table.kinds[i]}; a conditional model answers "
                "binary and categorical columns: put it among those that are given, or drop it"
            )
    return inputs, outputs


def pairs(
    table: TableUnits, inputs: Sequence[int], outputs: Sequence[int], values: np.ndarray
) -> tuple[Float[np.ndarray, "rows X"], Float[np.ndarray, "rows V"]]:
    """Features and outputs of rows; a missing feature is taken as the middle of its column.

    That is one half for a binary one, 1 / K for each state of a category, 0 for a real one.
    """
    features = part_of(table, inputs)
    x = features.to_units(values[:, list(inputs)], "fit")
    for i, kind in enumerate(features.kinds):
        middle = 1 / kind if isinstance(kind, int) else 0.5 if kind == "binary" else 0.0
        where = features.units(i)
        x[:, where] = np.where(np.isnan(x[:, where]), middle, x[:, where])
    return x, part_of(table, outputs).to_units(values[:, list(outputs)], "fit")


def conditional_answers(
    model: ConditionalRBM, columns: Any, given: Sequence[int], rows: ArrayLike
) -> Float[np.ndarray, "rows V"]:
    """Probabilities of the output units of a conditional model for rows of a table."""
    table, values = TableUnits.of(columns), np.asarray(unmasked(rows), np.float32)
    inputs, outputs = given_and_asked(table, given)
    x, _ = pairs(table, inputs, outputs, values)
    return predict(model, x, SumProduct(iterations=100, tolerance=1e-3), jax.random.key(0))
