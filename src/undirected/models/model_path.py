"""Paths between models: a tempered model is just another model."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float


class ModelPath(eqx.Module):
    """path(beta): parameters on the straight line from `base` (beta = 0) to `target` (beta = 1).

    For an exponential family this is the geometric path p_0^(1 - beta) p_1^beta between the joint
    distributions.
    """

    base: Any
    target: Any

    def __call__(self, beta: float | Float[Array, ""]) -> Any:
        base, _ = eqx.partition(self.base, eqx.is_inexact_array)
        target, rest = eqx.partition(self.target, eqx.is_inexact_array)
        mixed = jax.tree.map(lambda a, b: (1 - beta) * a + beta * b, base, target)
        return eqx.combine(mixed, rest)


def tempered(model: Any) -> ModelPath:
    """The path from no energy at all (beta = 0) to the model: exp(-beta E)."""
    zero = jax.tree.map(lambda a: a * 0 if eqx.is_inexact_array(a) else a, model)
    return ModelPath(zero, model)
