"""Paths between models: a tempered model is just another model."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float


class ModelPath(eqx.Module):
    """path(beta): parameters on the straight line from `base` (beta = 0) to `target` (beta = 1).

    For an exponential family this is the geometric path p_0^(1 - beta) p_1^beta between the joint
    distributions. Annealed importance sampling and tempering walk along it.

    Args:
        base: the model at beta = 0, of the same class and shape as `target`.
        target: the model at beta = 1.

    Returns:
        A call with a number beta gives the model there.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> path = un.ModelPath(model.independent(), model)
        >>> print(path(0.5).weights)
        [1. 1.]
    """

    base: Any
    target: Any

    def __call__(self, beta: float | Float[Array, ""]) -> Any:
        base, _ = eqx.partition(self.base, eqx.is_inexact_array)
        target, rest = eqx.partition(self.target, eqx.is_inexact_array)
        mixed = jax.tree.map(lambda a, b: (1 - beta) * a + beta * b, base, target)
        return eqx.combine(mixed, rest)


def tempered(model: Any) -> ModelPath:
    """The path from no energy at all (beta = 0) to the model (beta = 1): exp(-beta E).

    Args:
        model: any model.

    Returns:
        A `ModelPath`; a call of it with an inverse temperature gives the model at that temperature.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> print(un.tempered(model)(0.25).weights)
        [0.5 0.5]
    """
    zero = jax.tree.map(lambda a: a * 0 if eqx.is_inexact_array(a) else a, model)
    return ModelPath(zero, model)
