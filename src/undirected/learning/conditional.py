"""Learning of conditional models: any objective, on the model that each row's features give."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from undirected.core.errors import UndirectedError
from undirected.core.protocols import Info, Objective


@dataclass(frozen=True)
class Conditional:
    """The mean of an objective over rows (x, v), each on the model `model.at(x)`.

    Weights are shared, so that the rows of a batch cost matrix products, not copies of the model.

    Args:
        objective: one that carries nothing from step to step, such as `TwoPhase`.

    Returns:
        A call with a model, a batch (features (rows, X), targets (rows, V)), None and a key gives
        the value and what to report; `fit` calls it.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> model = un.ConditionalRBM.create(3, 2, 4, seed=0)
        >>> rows = np.ones((6, 4)), np.ones((6, 3))
        >>> objective = un.Conditional(un.PseudoLikelihood())
        >>> un.fit(model, rows, objective, steps=2).step
        2
    """

    objective: Objective

    def init(self, model: Any, batch: tuple[Array, Array], key: Key[Array, ""]) -> None:
        """Check the batch; the objective may not carry anything from step to step."""
        if not hasattr(model, "at"):
            raise UndirectedError(
                f"conditional: {type(model).__name__} has no at(x); use the objective alone"
            )
        if not (isinstance(batch, tuple) and len(batch) == 2):
            raise UndirectedError("conditional: a batch is a pair (features, targets)")
        x, v = batch
        wanted = (model.n_features, model.n_visible)
        if x.ndim != 2 or v.ndim != 2 or (x.shape[1], v.shape[1]) != wanted:
            raise UndirectedError(
                f"conditional: features are {x.shape} and targets {v.shape}; the model wants "
                f"(rows, {wanted[0]}) and (rows, {wanted[1]})"
            )
        if self.objective.init(model.at(x[0]), v[:1], key) is not None:
            raise UndirectedError(
                f"conditional: {type(self.objective).__name__} keeps chains from step to step, "
                "which make no sense when every row is another model"
            )

    def __call__(
        self, model: Any, batch: tuple[Array, Array], carry: None, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], tuple[None, Info]]:
        """The mean over the rows."""
        x, v = batch

        def one(x: Array, v: Array, key: Key[Array, ""]) -> tuple[Array, Info]:
            value, (_, info) = self.objective(model.at(x), v[None], None, key)
            return value, info

        values, infos = jax.vmap(one)(x, v, jax.random.split(key, len(v)))
        return values.mean(), (None, {name: jnp.mean(value) for name, value in infos.items()})


@dataclass(frozen=True)
class Scheduled:
    """An objective that changes with the step: `make(step)` gives the one to use.

    The step is traced, so `make` may put it into numbers (iterations = 7 + step // 1000), not into
    shapes or choices.
    """

    make: Any

    def init(self, model: Any, batch: Any, key: Key[Array, ""]) -> tuple[Array, Any]:
        """The step, and what the objective carries."""
        step = jnp.zeros((), jnp.int32)
        return step, self.make(step).init(model, batch, key)

    def __call__(
        self, model: Any, batch: Any, carry: tuple[Array, Any], key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], tuple[tuple[Array, Any], Info]]:
        """The objective of this step."""
        step, inside = carry
        value, (inside, info) = self.make(step)(model, batch, inside, key)
        return value, ((step + 1, inside), info)
