"""L-BFGS over parameters of any shape, with a diagonal metric of the caller's."""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

MEMORY = 6
"""Steps that are remembered."""
LEAST_STEP = 2.0**-20


class Vector(Protocol):
    """What parameters must be able to do."""

    def dot(self, other: Any, /) -> float: ...
    def plus(self, step: float, other: Any, /) -> Any: ...
    def times(self, other: Any, /) -> Any: ...


V = TypeVar("V", bound=Vector)


class Minimum(NamedTuple, Generic[V]):
    """Where L-BFGS stopped."""

    at: V
    value: float
    iterations: int
    converged: bool


def minimise(
    objective: Callable[[V], tuple[float, V]],
    at: V,
    scale: V,
    iterations: int = 100,
    tolerance: float = 1e-5,
    progress: Callable[[int, float], None] | None = None,
) -> Minimum[V]:
    """Minimise a smooth convex objective.

    Args:
        objective: gives value and gradient.
        at: where to start.
        scale: about 1 / the second derivatives, elementwise.
        iterations: at most.
        tolerance: stop where an iteration improves the value by less than this share of it.
        progress: told iterations done and the value.
    """
    value, slope = objective(at)
    past: list[tuple[V, V, float]] = []
    for k in range(1, iterations + 1):
        way = _direction(slope, past, scale)
        moved = _search(objective, at, value, way, way.dot(slope), 1.0 if past else 0.25)
        if moved is None:
            return Minimum(at, value, k, True)
        new_at, new_value, new_slope = moved
        step, change = new_at.plus(-1.0, at), new_slope.plus(-1.0, slope)
        curvature = step.dot(change)
        if curvature > 0:
            past = [*past[-(MEMORY - 1) :], (step, change, 1 / curvature)]
        gain, at, value, slope = value - new_value, new_at, new_value, new_slope
        if progress is not None:
            progress(k, value)
        if gain < tolerance * abs(value):
            return Minimum(at, value, k, True)
    return Minimum(at, value, iterations, False)


def _direction(slope: V, past: list[tuple[V, V, float]], scale: V) -> V:
    """The two loops: minus the inverse Hessian times the gradient."""
    shares, way = [], slope
    for step, change, inverse in reversed(past):
        share = inverse * step.dot(way)
        shares.append(share)
        way = way.plus(-share, change)
    if past:
        # The metric is scaled so that it explains the last change of slope.
        step, change, inverse = past[-1]
        size = 1 / (inverse * change.dot(change.times(scale)))
        way = way.times(scale)
        way = way.plus(size - 1, way)
    else:
        way = way.times(scale)
    for (step, change, inverse), share in zip(past, reversed(shares), strict=True):
        way = way.plus(share - inverse * change.dot(way), step)
    return way.plus(-2.0, way)


def _search(
    objective: Callable[[V], tuple[float, V]],
    at: V,
    value: float,
    way: V,
    descent: float,
    step: float,
) -> tuple[V, float, V] | None:
    """The first of the halved steps that improves enough; None where rounding hides any."""
    while step > LEAST_STEP:
        there = at.plus(step, way)
        found, slope = objective(there)
        if np.isfinite(found) and found <= value + 1e-4 * step * descent:
            return there, found, slope
        step *= 0.5
    return None
