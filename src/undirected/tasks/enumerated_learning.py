"""Learning of RBMs whose hidden states are enumerated: L-BFGS on the exact likelihood."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
from jaxtyping import Float

from undirected.core.table_units import TableUnits
from undirected.models import MixedRBM
from undirected.tasks.enumerated import EnumeratedRBM, Visible
from undirected.tasks.enumerated_coupled import CoupledRBM, root_of

LOG_PRECISIONS = (-5.0, 4.6)
"""Bounds of the log-precision of a standardised unit given the hidden ones: variance 0.01 up."""
COUPLED_PRECISIONS = (-5.0, 9.0)
"""Those of a real unit given coupled ones too, of which another may be nearly a copy."""
WEAK = 0.05
"""Penalty of biases, which keeps states that are never seen at a finite cost."""
SPIKE = 0.01
"""Penalty of the weights of columns that are never negative, in that of the others: many of their
cells are 0, for which a hidden state must be able to make a spike there.
"""
SHRINK, NARROW = 5.0, 0.3
"""Couplings of real columns are learned as if there were so many rows more in which they are
independent, with this variance given the hidden units."""
MOST_COUPLED, MOST_WORK = 64, 2**31
"""Real columns that are coupled, and products that rows with holes in them may take for that."""

Bound = tuple[float | None, float | None]
FREE: Bound = (None, None)
Value = Callable[[list[np.ndarray]], tuple[float, list[np.ndarray]]]


def fit_enumerated(
    columns: Any,
    rows: Float[np.ndarray, "rows V"],
    n_hidden: int,
    rng: np.random.RandomState,
    *,
    alpha: float = 1.0,
    max_iter: int = 200,
    on_step: Callable[[int, float], None] | None = None,
) -> tuple[MixedRBM, int]:
    """The most probable `MixedRBM` under a normal prior of variance 1 / alpha on its weights.

    Real columns are coupled, up to 64 of them and where holes leave that affordable; the prior of
    their couplings is a few rows of independent columns.

    Args:
        columns: what each column is, as `MixedRBM.create` takes it.
        rows: of units, NaN where one is missing.
        n_hidden: hidden units, up to 10.
        rng: of the first weights.
        alpha: the penalty of the squared weights is half of it; see also `SPIKE`.
        max_iter: most iterations of L-BFGS.
        on_step: told the number of an iteration, and the penalised log-likelihood per row.

    Returns:
        The model, and the iterations.
    """
    visible = Visible(TableUnits.of(columns))
    v, seen = visible.observed(rows)
    C, at = visible.continuous, visible.discrete
    share = (v[:, :at].sum(0) + 0.5) / (visible.spread(seen.sum(0))[:at] + 1.0)
    alone = visible.spread(visible.is_binary)[:at]
    bias = np.log(share) - np.where(alone, np.log1p(-share), 0.0)
    weights = rng.normal(0, 0.3, (visible.size, n_hidden))
    first = [weights, np.concatenate([bias, np.zeros(C)]), np.zeros(C), np.zeros(n_hidden)]
    by_unit = np.full((visible.size, 1), alpha)
    by_unit[visible.real.stop :] *= SPIKE
    penalties: list[Any] = [by_unit, WEAK, 0.0, WEAK]
    reals = visible.real.stop - visible.real.start
    holes = (seen[:, visible.real_variables] == 0).any(1).sum()
    coupled = 2 <= reals <= MOST_COUPLED and holes * reals**2 * 2**n_hidden <= MOST_WORK
    of_reals = COUPLED_PRECISIONS if coupled else LOG_PRECISIONS
    bounds: list[Any] = [FREE, FREE, [of_reals] * reals + [LOG_PRECISIONS] * (C - reals), FREE]
    if coupled:
        first, bounds = [*first, np.zeros((reals, reals))], [*bounds, FREE]
        penalties = [*penalties, 0.0]

    def value(parts: list[np.ndarray]) -> tuple[float, list[np.ndarray]]:
        if coupled:
            return _coupled_slope(visible, parts, v, seen)
        return EnumeratedRBM(visible, *parts).slope(v, seen)

    parts, steps = maximise(value, first, penalties, len(rows), max_iter, bounds, on_step)
    found = _coupled(visible, parts)[0] if coupled else EnumeratedRBM(visible, *parts)
    return found.model(), steps


def _coupled(visible: Visible, parts: list[np.ndarray]) -> tuple[CoupledRBM, np.ndarray]:
    """The model whose real units have the weights T W and the biases T b, and P = T T'; and T."""
    weights, bias, logs, hidden, lateral = parts
    at = visible.real
    root = root_of(logs[: len(lateral)], lateral)
    weights, bias = weights.copy(), bias.copy()
    weights[at], bias[at] = root @ weights[at], root @ bias[at]
    return CoupledRBM(visible, weights, bias, logs, hidden, root @ root.T), root


def _coupled_slope(
    visible: Visible, parts: list[np.ndarray], v: np.ndarray, seen: np.ndarray
) -> tuple[float, list[np.ndarray]]:
    """The log-likelihood with the prior of the couplings, and its gradient by the parts."""
    weights, bias = parts[:2]
    model, root = _coupled(visible, parts)
    total, (by_weights, by_bias, by_logs, by_hidden, by_precision) = model.slope(v, seen)
    at, own = visible.real, np.diag(root)
    # log det P - tr P, as of rows whose entries are independent
    total += SHRINK * (np.log(own).sum() - 0.5 * NARROW * (root**2).sum())
    by_root = by_weights[at] @ weights[at].T + np.outer(by_bias[at], bias[at])
    by_root += 2 * by_precision @ root + SHRINK * (np.diag(1 / own) - NARROW * root)
    by_weights[at], by_bias[at] = root.T @ by_weights[at], root.T @ by_bias[at]
    by_logs[: len(own)] = 0.5 * (by_root * root).sum(1)
    by_lateral = np.tril(own[:, None] * by_root, -1)
    return total, [by_weights, by_bias, by_logs, by_hidden, by_lateral]


def maximise(
    value: Value,
    first: list[np.ndarray],
    penalties: Sequence[float | np.ndarray],
    rows: int,
    max_iter: int,
    bounds: Sequence[Bound | list[Bound]],
    on_step: Callable[[int, float], None] | None = None,
) -> tuple[list[np.ndarray], int]:
    """L-BFGS from `first` on a penalised log-likelihood; returns the parameters and the steps.

    `bounds` has one of each part, or a list of those of its entries.
    """
    from scipy.optimize import minimize  # answers do without these, and they take a while to load
    from threadpoolctl import threadpool_limits

    ends = np.cumsum([part.size for part in first])[:-1]

    def split(flat: np.ndarray) -> list[np.ndarray]:
        pieces = np.split(flat, ends)
        return [p.reshape(f.shape) for p, f in zip(pieces, first, strict=True)]

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        parts = split(flat)
        total, slopes = value(parts)
        for part, slope, penalty in zip(parts, slopes, penalties, strict=True):
            total -= 0.5 * float((penalty * part**2).sum())
            slope -= penalty * part
        return -total / rows, -np.concatenate([slope.ravel() for slope in slopes]) / rows

    start = np.concatenate([part.ravel() for part in first])
    pairs = zip(bounds, first, strict=True)
    each = [b for own, part in pairs for b in (own if isinstance(own, list) else [own] * part.size)]
    steps = count(1)

    def tell(intermediate_result: Any) -> None:
        if on_step is not None:
            on_step(next(steps), -float(intermediate_result.fun))

    options = {"maxiter": max_iter}
    how = {"method": "L-BFGS-B", "bounds": each, "options": options, "callback": tell}
    with threadpool_limits(1):  # products this small are slower in threads
        found = minimize(loss, start, jac=True, **how)
    return split(found.x), max(1, int(found.nit))
