"""Many independent models learned at once: repetitions, or a sweep over learning rates."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree
from numpy.typing import ArrayLike

from undirected.core.errors import UndirectedError
from undirected.core.protocols import Info, Objective


@dataclass(frozen=True)
class Ensemble:
    """One objective on all models of a `stack`, as if each were learned by itself.

    Args:
        objective: of each model.
        own_data: whether a batch leads with an axis over models, as the parameters do; by default
            all models see the same rows in the same order.
        rates: a factor of each model's gradient: a sweep over learning rates, where steps are as
            long as the gradient says. Those of Adam are not; it takes no notice of a factor.

    Returns:
        A call with a stack, a batch, what is carried and a key gives the sum over models, so that
        each has its own gradient; `fit` calls it.

    Example:
        >>> import numpy as np
        >>> import optax
        >>> import undirected as un
        >>> from undirected.learning import stack
        >>> models = stack([un.Ising.create(3), un.Ising.create(3)])
        >>> rows = un.Batches(np.repeat([[0, 0, 1], [1, 1, 0]], 5, 0), 5)
        >>> objective = un.Ensemble(un.PseudoLikelihood(), rates=[1.0, 0.1])
        >>> un.fit(models, rows, objective, optax.sgd(0.1), steps=2).model.bias.shape
        (2, 3)
    """

    objective: Objective
    own_data: bool = False
    rates: ArrayLike | None = None
    value_name: ClassVar[str] = "sum_over_models"

    def init(self, model: Any, batch: PyTree, key: Key[Array, ""]) -> Any:
        """What the objective carries, for every model."""
        axes = model_axes(model), 0 if self.own_data else None, 0
        start = eqx.filter_vmap(self.objective.init, in_axes=axes)
        return start(model, batch, jax.random.split(key, size(model)))

    def __call__(
        self, model: Any, batch: PyTree, carry: Any, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], tuple[Any, Info]]:
        """The sum over models, so that each has its own gradient."""
        axes = model_axes(model), 0 if self.own_data else None, eqx.if_array(0), 0
        step = eqx.filter_vmap(self.objective, in_axes=axes)
        loss, rest = step(model, batch, carry, jax.random.split(key, size(model)))
        if self.rates is not None:
            loss = jnp.asarray(self.rates, loss.dtype) * loss
        return loss.sum(), rest


def stack(models: Sequence[Any]) -> Any:
    """One model whose parameters lead with an axis over the models; the rest is the first one's."""
    if not models:
        raise UndirectedError("stack: there are no models; pass one or more")
    return jax.tree.map(lambda *a: jnp.stack(a) if eqx.is_inexact_array(a[0]) else a[0], *models)


def member(models: Any, index: int) -> Any:
    """One model of a stack."""
    return jax.tree.map(lambda a: a[index] if eqx.is_inexact_array(a) else a, models)


def size(models: Any) -> int:
    """Number of models of a stack."""
    return jax.tree.leaves(eqx.filter(models, eqx.is_inexact_array))[0].shape[0]


def model_axes(models: Any) -> Any:
    """`in_axes` of a stack: parameters lead with the model axis, the wiring is shared."""
    return jax.tree.map(lambda a: 0 if eqx.is_inexact_array(a) else None, models)
