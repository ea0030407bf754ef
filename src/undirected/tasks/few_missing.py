"""Rows of which few entries are missing, exactly: all states of the missing ones are weighed.

Hidden units are summed out by the model's free energy, so that a row with k missing binary entries
takes 2^k of them: less work than belief propagation where k is small, and a much smaller program.
"""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from undirected.core.chunks import map_rows
from undirected.core.layout import Domain, Layout
from undirected.core.numerics import HARD
from undirected.core.potentials import without_constant
from undirected.core.progress import Progress
from undirected.core.protocols import Summable

MOST_STATES = 2**8
"""States of the missing entries of a row that are weighed however many rows there are."""
MOST_NUMBERS = 2**22
"""Units of all weighed states together, up to which a row may have more."""


def takes_few(model: Any) -> bool:
    """Whether the visible units of a model are discrete, and its hidden ones can be summed out."""
    layout = model.layout
    finite = all(b.domain in (Domain.BINARY, Domain.CATEGORICAL) for b in layout.blocks)
    return finite and (isinstance(model, Summable) or layout.n == layout.n_visible)


def few_missing(layout: Layout, rows: Float[np.ndarray, "rows v"]) -> Bool[np.ndarray, " rows"]:
    """Which rows have so few missing entries that all of their states are weighed."""
    variables = _visible(layout)
    missing = np.isnan(rows[:, variables.first])
    logs = missing @ np.log2(variables.states)
    whole = (np.isnan(rows) == missing[:, variables.owner]).all(1)  # no state alone is excluded
    most = max(MOST_STATES, MOST_NUMBERS // max(1, len(rows) * layout.n))
    return whole & (logs <= np.log2(most) + 1e-9)


def answer_few(
    model: Any, rows: Float[np.ndarray, "rows v"], progress: Progress | None = None
) -> tuple[Float[np.ndarray, "rows v"], Bool[np.ndarray, " rows"]]:
    """Means of all visible units given the known ones, and which rows agree with any state."""
    model, _ = without_constant(model)
    found, feasible = np.array(rows, np.float64), np.ones(len(rows), bool)
    done = 0
    for groups in _batches(_states(_visible(model.layout), rows)):
        flat = np.concatenate([states.reshape(-1, rows.shape[1]) for _, states in groups])
        logs = -map_rows(lambda part, _: _energy(model, part), flat, 8 * model.layout.n)
        ends = np.cumsum([states.shape[0] * states.shape[1] for _, states in groups])[:-1]
        for (index, states), own in zip(groups, np.split(logs, ends), strict=True):
            shares, feasible[index] = _shares(own.astype(float).reshape(states.shape[:2]))
            found[index] = np.einsum("rs,rsv->rv", shares, states)
            done += len(index)
        if progress is not None:
            progress(done, len(rows))
    return found.astype(np.float32), feasible


def _shares(
    logs: Float[np.ndarray, "rows states"],
) -> tuple[Float[np.ndarray, "rows states"], Bool[np.ndarray, " rows"]]:
    """Probabilities of states by their log weights, and which rows have one that is allowed."""
    top = logs.max(1, keepdims=True)
    shares = np.exp(logs - top)
    return shares / shares.sum(1, keepdims=True), top[:, 0] > -HARD


def _visible(layout: Layout) -> Any:
    return Layout(tuple(block for block in layout.blocks if block.visible)).variables


def _states(
    variables: Any, rows: np.ndarray
) -> Iterator[tuple[Int[np.ndarray, " group"], Float[np.ndarray, "group states v"]]]:
    """Groups of rows whose missing variables have the same widths, with all states of each row.

    A binary variable and a category of two states have as many states, but not as many units.
    """
    missing = np.isnan(rows[:, variables.first])
    widths: dict[tuple[int, ...], list[int]] = {}
    for i, row in enumerate(missing):
        widths.setdefault(tuple(variables.width[row].tolist()), []).append(i)
    for own, members in widths.items():
        shape = tuple(max(2, width) for width in own)
        count = int(np.prod(shape, dtype=np.int64))
        digits = np.indices(shape).reshape(len(shape), count).T
        size = max(1, MOST_NUMBERS // (count * rows.shape[1]))
        for start in range(0, len(members), size):
            index = np.array(members[start : start + size])
            states = np.repeat(rows[index, None].astype(np.float32), count, 1)
            at = np.nonzero(missing[index])[1].reshape(len(index), len(shape))
            for k in range(len(shape)):
                _set(states, variables, at[:, k], digits[:, k])
            yield index, states


def _batches(groups: Iterator[Any]) -> Iterator[list[Any]]:
    """Groups put together until they hold many numbers, so that few programs are compiled."""
    batch: list[Any] = []
    for group in groups:
        batch.append(group)
        if sum(states.size for _, states in batch) >= MOST_NUMBERS:
            yield batch
            batch = []
    if batch:
        yield batch


def _set(
    states: np.ndarray, variables: Any, which: Int[np.ndarray, " group"], digits: np.ndarray
) -> None:
    """Set one variable of each row, of the same number of states in all, to these states."""
    group = np.arange(len(which))
    first, width = variables.first[which], int(variables.width[which[0]])
    if width == 1:
        states[group, :, first] = digits
    else:
        for unit in range(width):
            states[group, :, first + unit] = digits == unit


@eqx.filter_jit
def _energy(model: Any, v: Float[Array, "states v"]) -> Float[Array, " states"]:
    energy = model.free_energy(v) if isinstance(model, Summable) else model.energy(v)
    return jnp.asarray(energy)
