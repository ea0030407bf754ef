"""Rows and evidence as users give them, for the units of any model."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from undirected.core.cells import as_numbers
from undirected.core.errors import UndirectedError
from undirected.core.layout import Block, Domain, Layout, one_hot_hint
from undirected.core.potentials import observe, potentials
from undirected.core.protocols import Centrable
from undirected.core.table_units import TableUnits
from undirected.tasks.named_columns import check_collected, in_order, known_by_name


def visible_rows(
    caller: str, layout: Layout, rows: ArrayLike, grey: bool = False, kind: Any = np.float32
) -> Float[np.ndarray, "rows v"]:
    """Rows over the visible units, NaN where an entry is not known; one row may be flat.

    Labels of pandas that are the numbers of the units say which is which, in any order.
    `grey` allows values between 0 and 1 for binary units: probabilities of a one.
    """
    check_collected(caller, rows)
    advice = "pass an array, NaN for what is not known"
    found = as_numbers(f"{caller}: rows", in_order(rows), advice, kind)
    found = found[None] if found.ndim == 1 else found
    if found.ndim != 2 or found.shape[1] != layout.n_visible:
        raise UndirectedError(
            f"{caller}: rows have shape {np.shape(rows)}; pass (rows, {layout.n_visible}), one "
            f"entry for each visible unit{one_hot_hint(layout, found.shape)}"
        )
    for block in layout.blocks:
        if block.visible:
            _check_block(caller, block, found[:, block.slice], grey)
    return _completed(layout, found)


def _completed(layout: Layout, rows: Float[np.ndarray, "rows v"]) -> Float[np.ndarray, "rows v"]:
    """Rows in which all units of a categorical variable are known once one of its states is."""
    holes, found = np.isnan(rows), rows
    for block in layout.blocks:
        if not block.visible or block.domain is not Domain.CATEGORICAL:
            continue
        split = (len(rows), block.variables, block.states)
        lacks, part = holes[:, block.slice].reshape(split), rows[:, block.slice].reshape(split)
        on = (part == 1) | (lacks & ((part == 0).sum(-1, keepdims=True) == block.states - 1))
        known = on.any(-1, keepdims=True) & lacks.any(-1, keepdims=True)
        if known.any():
            found = rows.copy() if found is rows else found
            found[:, block.slice] = np.where(known, on, part).reshape(len(rows), -1)
    return found


def check_whole(caller: str, layout: Layout, rows: Float[np.ndarray, "rows v"], do: str) -> None:
    """Refuse rows that exclude some states of a variable: no chain could do that."""
    for block in layout.blocks:
        if not block.visible or block.domain is not Domain.CATEGORICAL:
            continue
        holes = np.isnan(rows[:, block.slice]).reshape(len(rows), block.variables, block.states)
        some = holes.any(-1) & ~holes.all(-1)
        if some.any():
            row, variable = np.argwhere(some)[0].tolist()
            first = block.start + variable * block.states
            raise UndirectedError(
                f"{caller}: columns {first} to {first + block.states - 1} of row {row} are the "
                f"states of one variable, and leave {holes[row, variable].sum()} of them open: "
                f"chains hold a variable whole or not at all; {do}"
            )


def unit_rows(
    caller: str, model: Any, rows: ArrayLike, grey: bool = False, kind: Any = np.float32
) -> Float[np.ndarray, "rows v"]:
    """Rows over the visible units of a model, from rows of one cell a column where it has columns.

    NaN stays NaN; `kind` is the precision. A model with columns is one that has `table`, as
    `MixedRBM` does.
    """
    check_collected(caller, rows)
    if has_columns(model):
        return model.table.to_units(rows, caller, kind)
    return visible_rows(caller, model.layout, rows, grey, kind)


def centred(model: Any) -> tuple[Any, Float[np.ndarray, "*v"]]:
    """A model with its real units around 0, and what to take from its rows, in their precision."""
    return model.centred() if isinstance(model, Centrable) else (model, np.zeros((), np.float32))


def centred_means(
    caller: str, means: ArrayLike | None, centre: Float[np.ndarray, "*v"]
) -> ArrayLike | None:
    """Means of the visible units as those of the centred model."""
    if means is None or not centre.ndim:
        return means
    if np.shape(means) != centre.shape:
        raise UndirectedError(
            f"{caller}: means have shape {np.shape(means)}; pass {centre.shape}, one for each "
            "visible unit"
        )
    return np.asarray(means) - centre


def has_columns(model: Any) -> bool:
    """Whether users give and get rows of one cell a column, not one a unit."""
    return isinstance(getattr(model, "table", None), TableUnits)


def _check_block(
    caller: str, block: Block, part: Float[np.ndarray, "rows size"], grey: bool
) -> None:
    wrong = np.isinf(part)
    wanted = "finite numbers"
    if grey and block.domain is Domain.BINARY:
        wrong, wanted = (part < 0) | (part > 1), "a number from 0 to 1"
    elif block.domain in (Domain.BINARY, Domain.CATEGORICAL):
        wrong, wanted = ~np.isnan(part) & (part != 0) & (part != 1), "0 or 1"
    elif block.domain is Domain.NONNEGATIVE:
        wrong, wanted = part < 0, "numbers of 0 or more"
    if wrong.any():
        row, column = np.argwhere(wrong)[0].tolist()
        raise UndirectedError(
            f"{caller}: the value in row {row}, column {block.start + column} is "
            f"{part[row, column]:g}; wanted {wanted}, or NaN"
        )
    if block.domain is Domain.CATEGORICAL:
        _check_one_hot(caller, block, part)


def _check_one_hot(caller: str, block: Block, part: Float[np.ndarray, "rows size"]) -> None:
    """Refuse variables that have several states at once, or none though all units are known."""
    groups = part.reshape(len(part), block.variables, block.states)
    on = (groups == 1).sum(-1)
    wrong = (on > 1) | ((on == 0) & ~np.isnan(groups).any(-1))
    if wrong.any():
        row, variable = np.argwhere(wrong)[0].tolist()
        first = block.start + variable * block.states
        raise UndirectedError(
            f"{caller}: columns {first} to {first + block.states - 1} of row {row} are the states "
            f"of one variable, and {on[row, variable]} of them are at 1; pass exactly one, or NaN "
            "for all"
        )


def evidence_row(caller: str, layout: Layout, given: Any) -> Float[np.ndarray, " v"]:
    """One row of visible units from `{variable: state}`, a row with NaN, or None.

    Where variables have names, a row of a data frame goes by its labels.
    """
    if given is None:
        return np.full(layout.n_visible, np.nan, np.float32)
    if layout.labels is not None:
        given = known_by_name(caller, given)
    if not isinstance(given, Mapping):
        rows = visible_rows(caller, layout, given)
        if len(rows) != 1:
            raise UndirectedError(f"{caller}: `given` has {len(rows)} rows; pass one")
        return rows[0]
    for name in given:
        if layout.variables.first[layout.variable(caller, name)] >= layout.n_visible:
            raise UndirectedError(
                f"{caller}: variable {name!r:.40} is hidden; `given` takes what is known of "
                "visible ones: hold others by un.observe(model.lower(), given), and call a routine "
                "of inference on that"
            )
    held = observe(potentials(layout, jnp.zeros(layout.n)), given).evidence
    held = np.asarray(held)[: layout.n_visible]
    row = np.where(held == 0, np.nan, held > 0).astype(np.float32)
    return _completed(layout, row[None])[0]


def evidence_units(caller: str, model: Any, given: Any) -> Float[np.ndarray, " v"]:
    """`evidence_row` of a model, by columns where it has them."""
    if not has_columns(model):
        return evidence_row(caller, model.layout, given)
    table: TableUnits = model.table
    cells = np.full(len(table), np.nan, np.float32)
    if table.names is not None:
        given = known_by_name(caller, given)
    if given is not None and not isinstance(given, Mapping):
        cells = given
    for name, value in given.items() if isinstance(given, Mapping) else ():
        if name not in table.labels:
            some = ", ".join(map(repr, table.labels[:6])) + (", ..." if len(table) > 6 else "")
            raise UndirectedError(f"{caller}: no column is called {name!r:.40}; got {some}")
        try:
            cells[table.labels.index(name)] = np.nan if value is None else value
        except (TypeError, ValueError, OverflowError) as error:
            raise UndirectedError(
                f"{caller}: column {name!r} is given as {value!r:.40}; pass a number: that of its "
                "state, where it has states"
            ) from error
    rows = table.to_units(cells, caller)
    if len(rows) != 1:
        raise UndirectedError(f"{caller}: `given` has {len(rows)} rows; pass one")
    return rows[0]


def clamped_start(
    model: Any, rows: Float[Array, "rows v"], key: Any
) -> tuple[Float[Array, "rows n"], Array]:
    """Random states of one chain a row whose known entries are set, and the mask of the others."""
    from undirected.sampling import init_state

    layout, seen = model.layout, ~jnp.isnan(rows)
    x = init_state(model, (len(rows),), key)
    x = x.at[:, : rows.shape[1]].set(jnp.where(seen, rows, x[:, : rows.shape[1]]))
    hidden = jnp.ones((len(rows), layout.n - rows.shape[1]), bool)
    return x, jnp.concatenate([~seen, hidden], 1)
