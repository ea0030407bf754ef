"""All pairwise couplings of categorical variables at once, from what each is given the others.

Three convex objectives share their matrix products: pseudo-likelihood, and the two of interaction
screening (RISE and logRISE; Vuffray et al. 2016, Lokhov et al. 2018). Every pair is coupled, states
are integers, and L-BFGS goes to the minimum. NumPy on a CPU, JAX on an accelerator.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from undirected.core.errors import UndirectedError, check_counts
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
        pairs = self.couplings.ravel() @ other.couplings.ravel()
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

    def __post_init__(self) -> None:
        for value in (self.fields, self.couplings):
            if not isinstance(value, Real) or not 0 <= value < np.inf:
                raise UndirectedError(f"penalty: l2 is {value!r:.40}; pass a number from 0")


def fit_pairwise(
    states: Int[np.ndarray, "N L"],
    q: int,
    weights: Float[np.ndarray, " N"] | None = None,
    objective: str = "pseudo-likelihood",
    penalty: Penalty | None = None,
    iterations: int = 200,
    tolerance: float = 1e-6,
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
    check_counts("pairwise", iterations=iterations)
    states = np.asarray(states)
    own = np.ones(len(states)) if weights is None else np.asarray(weights, float)
    check_weights("pairwise", own, len(states))
    problem = _Problem(states, q, own, objective, penalty or Penalty())
    scale = problem.curvature()
    found = minimise(problem, problem.start(), scale, iterations, tolerance, progress)
    return found._replace(at=Pairwise(*(np.asarray(part) for part in found.at)))


class _Problem:
    """The objective and its gradient, as a sum over chunks of different rows.

    Units are those of letters that are not the commonest of their variable, whose share of the
    fields is the same in every row: it is added once, and its slopes are what the others lack.
    """

    def __init__(
        self, states: np.ndarray, q: int, weights: np.ndarray, objective: str, penalty: Penalty
    ) -> None:
        states, which = np.unique(states, axis=0, return_inverse=True)
        weights = np.bincount(which.ravel(), weights)  # equal for equal rows before any rounding
        states, weights = states[weights > 0], weights[weights > 0]
        share = (weights / weights.sum()).astype(np.float32)
        self.q, self.penalty, self.objective = q, penalty, objective
        self.length = states.shape[1]
        counts = [np.bincount(column, share, q) for column in states.T]
        self.single = np.stack(counts).astype(np.float32)
        self.common = np.arange(self.length), self.single.argmax(1)
        self.xp, to_units, self.part = _engine()
        self.chunks = [
            (to_units(states[rows], self.common[1], q), states[rows].astype(np.int32), share[rows])
            for rows in (slice(k, k + ROWS) for k in range(0, len(states), ROWS))
        ]

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
        # Steps that go too far overflow, have no finite value, and are halved.
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            value, slopes = self._sum(at)
        pull = self.penalty
        value += pull.fields * float((at.fields**2).sum())
        value += 0.5 * pull.couplings * float((at.couplings**2).sum())
        return value, slopes.plus(
            2.0, Pairwise(pull.fields * at.fields, pull.couplings * at.couplings)
        )

    def _sum(self, at: Pairwise) -> tuple[float, Pairwise]:
        usual = at.couplings[self.common]
        fields = (at.fields + usual.sum(0)).reshape(-1)
        matrix = (at.couplings - usual[:, None]).reshape(self.length * self.q, -1)
        at_rows = [(*chunk, fields, matrix) for chunk in self.chunks]
        kind, logs = self.objective, self.xp.zeros(self.length, np.float32)
        if kind == "logrise":
            # d log S_i = dS_i / S_i, with logarithms: a float may be too small to hold S_i.
            sums = (self.part(*rows, logs, kind="log of rise") for rows in at_rows)
            kind, logs = "rise", reduce(self.xp.logaddexp, sums)
        parts = (self.part(*rows, logs, kind=kind) for rows in at_rows)
        value, *slopes = reduce(lambda a, b: [x + y for x, y in zip(a, b, strict=True)], parts)
        value = logs if self.objective == "logrise" else value
        return float(value.sum()), self._shape(*slopes)

    def _shape(self, fields: Any, pairs: Any) -> Pairwise:
        """Slopes of symmetric couplings from those of the rows; none within a position."""
        length, q = self.length, self.q
        fields, pairs = fields.reshape(length, q), pairs.reshape(length, q, length, q)
        chosen = self.xp.asarray(np.eye(q, dtype=np.float32)[self.common[1]])
        pairs = pairs + chosen[:, :, None, None] * (fields[None] - pairs.sum(1))[:, None]
        both = pairs + pairs.transpose(2, 3, 0, 1)
        keep = (1 - np.eye(length, dtype=np.float32))[:, None, :, None]
        return Pairwise(fields, both * keep)


def check_weights(caller: str, weights: Float[np.ndarray, " N"], rows: int) -> None:
    """Refuse weights that are not one a row, or of which no share can be taken."""
    good = weights.shape == (rows,) and (weights >= 0).all() and 0 < weights.sum() < np.inf
    if not good:
        raise UndirectedError(
            f"{caller}: weights of shape {weights.shape} for {rows} rows; pass one a row, none "
            "below 0, and not all of them 0"
        )


def one_hot(states: Int[np.ndarray, "N L"], q: int) -> Float[np.ndarray, "N Lq"]:
    """q units for each variable, one of them 1."""
    n, length = states.shape
    units = np.zeros((n, length * q), np.float32)
    np.put_along_axis(units, states + q * np.arange(length), 1.0, axis=1)
    return units


def _engine() -> tuple[Any, Callable[..., Any], Callable[..., Any]]:
    """The array library, the units of some rows, and the sums over them.

    On a CPU sparse units make sums of some rows of the couplings, a third of the time of the
    products of dense ones where q is 21; an accelerator takes the products.
    """
    import jax

    if jax.default_backend() == "cpu":
        return np, _sparse_units, partial(_part, np)
    import jax.numpy as jnp

    compiled = jax.jit(partial(_part, jnp), static_argnames="kind")

    def part(*args: Any, kind: str) -> Any:
        with jax.default_matmul_precision("highest"):
            return compiled(*args, kind=kind)

    def units(*args: Any) -> Any:
        return _sparse_units(*args).toarray()

    return jnp, units, part


def _sparse_units(states: Int[np.ndarray, "n L"], common: Int[np.ndarray, " L"], q: int) -> Any:
    """One-hot units of the letters that are not the commonest of their variable, (n, L q)."""
    from scipy.sparse import csr_matrix

    other = states != common
    ends = np.concatenate([[0], np.cumsum(other.sum(1))])
    places = (states + q * np.arange(states.shape[1]))[other]
    shape = len(states), states.shape[1] * q
    return csr_matrix((np.ones(len(places), np.float32), places, ends), shape)


def _part(
    xp: Any, units: Any, states: Any, share: Any, fields: Any, matrix: Any, logs: Any, kind: str
) -> Any:
    """Objective of every position, and its slopes, of some rows; of "log of rise" no slopes.

    RISE is divided by exp(logs). A step so long that an exponential overflows has no finite value,
    and is halved.
    """
    n, length = states.shape
    q = fields.shape[0] // length
    field = (units @ matrix + fields[None]).reshape(n, length, q)
    chosen = xp.take_along_axis(field, states[..., None], 2)[..., 0]
    if kind == "pseudo-likelihood":
        weight = xp.exp(field)
        norm = weight @ np.ones(q, np.float32)  # a product sums short rows faster than sum does
        losses, pull = xp.log(norm) - chosen, xp.broadcast_to(share[:, None], norm.shape)
        slope = weight * (pull / norm)[..., None]
    else:
        # exp(-(field of the state - mean field of all states)): at the truth its slope vanishes.
        exponent = field @ np.full(q, 1 / q, np.float32) - chosen
        if kind == "log of rise":
            most = exponent.max(0)
            return most + xp.log(share @ xp.exp(exponent - most[None]))
        losses = xp.exp(exponent - logs[None])
        pull = losses * share[:, None]
        slope = (pull / q)[..., None]
    slope = slope - pull[..., None] * (states[..., None] == np.arange(q)[None, None])
    slope = slope.reshape(n, length * q)
    return share @ losses, slope.sum(0), units.T @ slope
