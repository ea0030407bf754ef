"""All pairwise couplings of categorical variables at once, from what each is given the others.

Three convex objectives share their matrix products: pseudo-likelihood, and the two of interaction
screening (RISE and logRISE; Vuffray et al. 2016, Lokhov et al. 2018). Every pair is coupled, states
are integers, and L-BFGS goes to the minimum. NumPy on a CPU, JAX on an accelerator.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from undirected.core.errors import UndirectedError
from undirected.learning.lbfgs import Minimum, minimise

OBJECTIVES = ("pseudo-likelihood", "rise", "logrise")
ROWS = 2048
"""Rows of one product: their fields are a few times the size of the couplings at most."""


class Pairwise(NamedTuple):
    """Fields (L, q) and symmetric couplings (L, q, L, q) with empty blocks i, i.

    Its inner product counts every pair once.
    """

    fields: Any
    couplings: Any

    def dot(self, other: "Pairwise") -> float:
        pairs = (self.couplings * other.couplings).sum()
        return float((self.fields * other.fields).sum()) + 0.5 * float(pairs)

    def plus(self, step: float, other: "Pairwise") -> "Pairwise":
        return Pairwise(self.fields + step * other.fields, self.couplings + step * other.couplings)

    def times(self, other: "Pairwise") -> "Pairwise":
        return Pairwise(self.fields * other.fields, self.couplings * other.couplings)


@dataclass(frozen=True)
class Penalty:
    """l2 penalties: sum of h^2 times `fields`, sum over pairs i < j of J^2 times `couplings`."""

    fields: float = 0.01
    couplings: float = 0.01


def fit_pairwise(
    states: Int[np.ndarray, "N L"],
    q: int,
    weights: Float[np.ndarray, " N"] | None = None,
    objective: str = "pseudo-likelihood",
    penalty: Penalty | None = None,
    iterations: int = 100,
    tolerance: float = 1e-5,
    progress: Callable[[int, float], None] | None = None,
) -> Minimum[Pairwise]:
    """Fields and couplings that minimise an objective of the conditionals.

    Args:
        states: integers from 0 to q - 1.
        q: the number of states of each variable.
        weights: of the rows; all equal without them.
        objective: "pseudo-likelihood", "rise" or "logrise".
        penalty: l2, beside the mean of the objective over the rows.
        iterations: of L-BFGS at most.
        tolerance: stop where one iteration improves the objective by less than this share of it.
        progress: told iterations done and the objective.

    Returns:
        The minimum: `at` (fields and couplings), `value`, `iterations`, `converged`.
    """
    if objective not in OBJECTIVES:
        raise UndirectedError(f"objective '{objective}' is unknown; pass one of {OBJECTIVES}")
    states = np.asarray(states)
    share = np.ones(len(states)) if weights is None else np.asarray(weights, float)
    share = (share / share.sum()).astype(np.float32)
    problem = _Problem(states, q, share, objective, penalty or Penalty())
    scale = problem.curvature()
    found = minimise(problem, problem.start(), scale, iterations, tolerance, progress)
    return found._replace(at=Pairwise(*(np.asarray(part) for part in found.at)))


class _Problem:
    """The objective and its gradient, as a sum over chunks of rows."""

    def __init__(
        self, states: np.ndarray, q: int, share: np.ndarray, objective: str, penalty: Penalty
    ) -> None:
        self.states, self.q, self.share, self.penalty = states, q, share, penalty
        self.objective, self.length = objective, states.shape[1]
        self.xp, self.part = _engine()
        counts = [np.bincount(column, share, q) for column in states.T]
        self.single = np.stack(counts).astype(np.float32)

    def start(self) -> Pairwise:
        """Independent variables."""
        length, q = self.single.shape
        fields = np.log(self.single + 1e-2)
        fields -= fields.mean(1, keepdims=True)
        couplings = self.xp.zeros((length, q, length, q), np.float32)
        return Pairwise(self.xp.asarray(fields), couplings)

    def curvature(self) -> Pairwise:
        """1 / the second derivatives of the pseudo-likelihood of independent variables."""
        single = self.single
        spread = single * (1 - single)
        both = np.multiply.outer(single, spread) + np.multiply.outer(spread, single)
        fields = 1 / (spread + 2 * self.penalty.fields + 1e-4)
        couplings = 1 / (both + 2 * self.penalty.couplings + 1e-4)
        couplings[np.arange(self.length), :, np.arange(self.length)] = 0
        return Pairwise(self.xp.asarray(fields), self.xp.asarray(couplings, np.float32))

    def __call__(self, at: Pairwise) -> tuple[float, Pairwise]:
        """The value and the gradient."""
        value, slopes = self._sum(at)
        pull = self.penalty
        value += pull.fields * float((at.fields**2).sum())
        value += 0.5 * pull.couplings * float((at.couplings**2).sum())
        return value, slopes.plus(
            2.0, Pairwise(pull.fields * at.fields, pull.couplings * at.couplings)
        )

    def _sum(self, at: Pairwise) -> tuple[float, Pairwise]:
        matrix = at.couplings.reshape(self.length * self.q, -1)
        value, fields, pairs = self._chunks(at.fields.reshape(-1), matrix, None)
        if self.objective == "logrise":
            # d log S_i = dS_i / S_i: a second pass, in which every position is divided by its own.
            value, fields, pairs = self._chunks(at.fields.reshape(-1), matrix, value)
            return float(self.xp.log(value).sum()), self._shape(fields, pairs)
        return float(value.sum()), self._shape(fields, pairs)

    def _chunks(self, fields: Any, matrix: Any, divide: Any) -> tuple[Any, Any, Any]:
        """Sums over rows: the objective of every position, and the slopes."""
        total = None
        kind = "pseudo-likelihood" if self.objective == "pseudo-likelihood" else "rise"
        ones = np.ones(self.length, np.float32) if divide is None else divide
        for start in range(0, len(self.states), ROWS):
            rows = slice(start, start + ROWS)
            units = one_hot(self.states[rows], self.q)
            found = self.part(units, self.share[rows], fields, matrix, 1 / ones, kind=kind)
            total = found if total is None else [a + b for a, b in zip(total, found, strict=True)]
        assert total is not None
        return total[0], total[1], total[2]

    def _shape(self, fields: Any, pairs: Any) -> Pairwise:
        """Slopes of symmetric couplings from those of the rows; none within a position."""
        length, q = self.length, self.q
        both = (pairs + pairs.T).reshape(length, q, length, q)
        keep = (1 - np.eye(length, dtype=np.float32))[:, None, :, None]
        return Pairwise(fields.reshape(length, q), both * keep)


def one_hot(states: Int[np.ndarray, "N L"], q: int) -> Float[np.ndarray, "N Lq"]:
    """q units for each variable, one of them 1."""
    n, length = states.shape
    units = np.zeros((n, length * q), np.float32)
    np.put_along_axis(units, states + q * np.arange(length), 1.0, axis=1)
    return units


def _engine() -> tuple[Any, Callable[..., Any]]:
    """NumPy, whose matrix products are the fastest on a CPU, or JAX on an accelerator."""
    import jax

    if jax.default_backend() == "cpu":
        return np, partial(_part, np)
    import jax.numpy as jnp

    compiled = jax.jit(partial(_part, jnp), static_argnames="kind")

    def part(*args: Any, kind: str) -> Any:
        with jax.default_matmul_precision("highest"):
            return compiled(*args, kind=kind)

    return jnp, part


def _part(
    xp: Any, units: Any, share: Any, fields: Any, matrix: Any, scale: Any, kind: str
) -> tuple[Any, Any, Any]:
    """Objective of every position, and its slopes, of some rows."""
    length = scale.shape[0]
    n, q = units.shape[0], units.shape[1] // length
    field = (units @ matrix + fields[None]).reshape(n, length, q)
    own = units.reshape(n, length, q)
    if kind == "pseudo-likelihood":
        field = field - field.max(2, keepdims=True)
        weight = xp.exp(field)
        norm = weight.sum(2, keepdims=True)
        losses = xp.log(norm[..., 0]) - (own * field).sum(2)
        slope = weight / norm - own
    else:
        # exp(-(field of the state - mean field of all states)): at the truth its slope vanishes.
        losses = xp.exp(field.mean(2) - (own * field).sum(2))
        slope = (1 / q - own) * (losses * scale[None])[..., None]
    slope = (slope * share[:, None, None]).reshape(n, length * q)
    return share @ losses, slope.sum(0), units.T @ slope
