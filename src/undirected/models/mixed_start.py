"""Where the units of a table start: biases and variances at the moments of its columns."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from undirected.core import rectified
from undirected.core.errors import UndirectedError
from undirected.core.layout import CONTINUOUS, Block, Domain
from undirected.core.table_units import TableUnits

LEAST_VARIANCE = 1e-4
"""Where the variance of a unit given the hidden ones stops: repeated values would drive it to 0."""
WIDEST_RATIO = 1.8
"""Second moment over squared mean of a nonnegative unit to start from; 2 is an exponential."""


def moments(units: Float[np.ndarray, "rows V"]) -> tuple[np.ndarray, np.ndarray]:
    """First and second moments of the observed entries; NaN where nothing is observed."""
    seen = ~np.isnan(units)
    count = np.maximum(seen.sum(0), 1)
    filled = np.where(seen, units, 0.0).astype(np.float64)
    first, second = filled.sum(0) / count, (filled**2).sum(0) / count
    nothing = ~seen.any(0)
    return np.where(nothing, np.nan, first), np.where(nothing, np.nan, second)


def deviations(first: np.ndarray, second: np.ndarray) -> Float[np.ndarray, " V"]:
    """Standard deviations at these moments, 0 where a column is constant but for rounding."""
    variance = second - first**2
    return np.sqrt(np.where(variance > 1e-12 * second, variance, 0.0))


def check_sizes(table: TableUnits, sizes: Float[np.ndarray, " V"]) -> None:
    """Refuse continuous columns that the least variance would blur; 0 and NaN say nothing."""
    for name, i in zip(table.labels, range(len(table)), strict=True):
        size = sizes[table.units(i).start]
        if table.domains[i] in CONTINUOUS and 0 < size**2 < 10 * LEAST_VARIANCE:
            raise UndirectedError(
                f"MixedRBM: column {name!r} is of the size {size:.3g}, and there are no standard "
                f"deviations below {LEAST_VARIANCE**0.5:g} here: pass numbers of size 1, such as "
                "the column divided by its standard deviation"
            )


def alone_at(block: Block, first: Array, second: Array) -> tuple[Array, Array]:
    """Bias and log variance of independent units of a block at these moments; NaN is neutral."""
    known = jnp.isfinite(first)
    nothing = jnp.zeros_like(first)
    if block.domain is Domain.BINARY:
        p = jnp.clip(jnp.where(known, first, 0.5), 0.005, 0.995)
        return jnp.log(p / (1 - p)), nothing
    if block.domain is Domain.CATEGORICAL:
        p = jnp.clip(jnp.where(known, first, 1 / block.states), 1e-3 / block.states, 1.0)
        return jnp.log(p), nothing
    if block.domain is Domain.REAL:
        mean = jnp.where(known, first, 0.0)
        variance = jnp.where(known, second - mean**2, 1.0)
        return mean, _log_variance(variance)
    mean = jnp.maximum(jnp.where(known, first, 1.0), 1e-3)
    # Heavier tails than a = -3 would leave so little precision that chains could run away.
    ratio = jnp.clip(jnp.where(known, second, 1.6) / mean**2, 1.01, WIDEST_RATIO)
    field, precision = rectified.from_moments(mean, ratio * mean**2)
    return field, _log_variance(1 / precision)


def _log_variance(variance: Array) -> Array:
    return jnp.log(jnp.maximum(variance - LEAST_VARIANCE, LEAST_VARIANCE))
