"""Data in any units of measure: where a model starts, and the units in which it is learned."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from undirected.core.errors import UndirectedError
from undirected.core.layout import Domain, Layout
from undirected.core.protocols import Objective, Rescalable
from undirected.learning import Batches, Ensemble, StreamedBatches

LEAST_RATIO = 1e-6
"""Deviation beside a mean: single precision has seven digits."""
CONSTANT = 1e-12
"""The same, where it is the rounding of numbers that are all equal."""


def some_rows(batches: Batches) -> Any:
    """All rows, or of a stream the first, which speak for the others."""
    if not isinstance(batches, StreamedBatches):
        return batches.data
    return jax.tree.map(lambda source: np.asarray(source[: batches.block]), batches.data)


def started(
    model: Any, objective: Objective | None, batches: Batches, key: Key[Array, ""]
) -> tuple[Any, bool]:
    """The model where it is to start, and whether its steps are to be in units of its own.

    A model of real units that is as `create` makes it without data starts at the means and
    deviations of the rows, any other where it is.
    """
    if not isinstance(model, Rescalable) or isinstance(objective, Ensemble):
        return model, False
    rows = some_rows(batches)
    if batches.transform is not None:
        rows = batches.transform(jax.tree.map(jnp.asarray, rows), key)
    if getattr(rows, "shape", ())[1:] == (model.layout.n_visible,):
        model = model.started_at(*moments(model.layout, np.asarray(rows)))
    means, scale = model.units_of_measure()
    return model, bool((means != 0).any() or (scale != 1).any())


def moments(
    layout: Layout, rows: Float[np.ndarray, "rows v"]
) -> tuple[Float[np.ndarray, " v"], Float[np.ndarray, " v"]]:
    """Means and deviations of real columns, 0 and the mean of nonnegative ones, else 0 and 1.

    A column that is constant, or of which nothing is seen, has a deviation of 1.
    """
    means, scale = np.zeros(layout.n_visible), np.ones(layout.n_visible)
    for block in layout.blocks:
        if block.visible and block.domain in (Domain.REAL, Domain.NONNEGATIVE):
            for i in range(block.start, block.stop):
                seen = rows[:, i].astype(np.float64)
                seen = seen[~np.isnan(seen)]
                if block.domain is Domain.REAL and len(seen):
                    means[i], scale[i] = _mean_and_deviation(seen, i)
                elif seen.any():
                    scale[i] = seen.mean()
    return means, scale


def _mean_and_deviation(seen: Float[np.ndarray, " rows"], column: int) -> tuple[float, float]:
    mean, deviation = float(seen.mean()), float(seen.std())
    if deviation <= CONSTANT * abs(mean):
        return mean, 1.0
    if deviation < LEAST_RATIO * abs(mean):
        raise UndirectedError(
            f"fit: column {column} has a mean of {mean:g} and a deviation of {deviation:.2g}, of "
            "which single precision loses most; subtract the mean from the column first"
        )
    return (0.0 if abs(mean) < LEAST_RATIO * deviation else mean), deviation
