"""Likelihood learning by inference: beliefs of the data against beliefs of the model."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from undirected.core.errors import UndirectedError, check_offers
from undirected.core.potentials import Potentials, batch_axes, clamp, inner
from undirected.core.protocols import Inference, Info, Lowerable, Summable
from undirected.learning.chain_phases import check_visible, detach, observed, visible


@dataclass(frozen=True)
class TwoPhase:
    """Likelihood learning by inference: gradient -<statistics>_data + <statistics>_model.

    Args:
        negative: infers the beliefs of the model, once per step.
        positive: infers the beliefs of every row with its observed units clamped, so that entries
            may be missing (NaN); a clamped value is taken as 1 above 0.5. Without it the data are
            complete, and the hidden units are summed out exactly.

    Returns:
        A call with a model, a batch of rows, None and a key gives a surrogate, whose gradient is
        that of the log-likelihood as far as the inference is exact, and to report `log_z` and
        whether it converged; `fit` calls it.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> rows = np.repeat([[0, 0, 1], [1, 1, 0]], 5, 0)
        >>> un.fit(un.RBM.create(3, 2, seed=0), rows, un.TwoPhase(un.Exact()), steps=2).step
        2
    """

    negative: Inference
    positive: Inference | None = None

    def __post_init__(self) -> None:
        check_offers("two-phase", "negative", self.negative, "SumProduct()", "__call__")
        if self.positive is not None:
            check_offers("two-phase", "positive", self.positive, "SumProduct()", "__call__")

    def init(self, model: Any, batch: Float[Array, "rows v"], key: Key[Array, ""]) -> None:
        """Nothing is carried from step to step; the model is checked."""
        name = type(model).__name__
        if not isinstance(model, Lowerable):
            raise UndirectedError(
                f"two-phase: {name} has no lower() beside its layout and energy(); use Persistent"
            )
        if self.positive is None and not isinstance(model, Summable):
            raise UndirectedError(
                f"two-phase: {name} cannot sum out its hidden units; pass positive=, "
                "the inference of the hidden units given a row of data"
            )
        if self.positive is not None:
            check_visible("two-phase with positive=", model.layout)

    def __call__(
        self, model: Any, batch: Float[Array, "rows v"], carry: None, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], tuple[None, Info]]:
        """The surrogate; log_z_data - log_z is the log-likelihood, as exact as the inference."""
        v = visible(model, batch)
        negative_key, positive_key = jax.random.split(key)
        natural = model.lower()
        constant = detach(natural)
        beliefs = self.negative(constant, negative_key)
        if self.positive is None:
            data = -model.free_energy(v).mean()
            log_z_data = data
        else:
            data, log_z_data = self._data_phase(natural, constant, v, positive_key)
        info = {
            "log_z": beliefs.log_z,
            "log_z_data": log_z_data,
            "converged": beliefs.converged,
            "iterations": beliefs.iterations,
        }
        return inner(natural, detach(beliefs)) - data, (None, info)

    def _data_phase(
        self, natural: Potentials, constant: Potentials, v: Float[Array, "rows v"], key: Array
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Mean expected negative energy and mean log_z of the rows, observed units clamped."""
        assert self.positive is not None
        clamped = clamp(constant, observed(constant.layout, v), v)
        infer = jax.vmap(self.positive, in_axes=(batch_axes(constant), 0))
        beliefs = detach(infer(clamped, jax.random.split(key, len(v))))
        data = jax.vmap(inner, in_axes=(None, 0))(natural, beliefs)
        return jnp.mean(data), jnp.mean(beliefs.log_z)
