"""Pseudo-likelihood: every visible variable given all the others, no partition function."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from undirected.core.errors import UndirectedError
from undirected.core.layout import Layout
from undirected.core.protocols import Conditionals, Info, Marginal
from undirected.core.units import log_normaliser
from undirected.learning.chain_phases import check_visible, visible


@dataclass(frozen=True)
class PseudoLikelihood:
    """-sum_i log p(v_i | the other visibles), mean over the batch (Besag 1975).

    For complete rows only, and without settings. A categorical variable is one term: the
    cross-entropy of its softmax.

    Returns:
        A call with a model, a batch of rows, None and a key gives the value and nothing to report;
        `fit` calls it.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> rows = np.repeat([[0, 0, 1], [1, 1, 0]], 5, 0)
        >>> un.fit(un.Ising.create(3), rows, un.PseudoLikelihood(), steps=2).step
        2
    """

    value_name: ClassVar[str] = "negative_log_pseudo_likelihood"

    def init(self, model: Any, batch: Float[Array, "rows v"], key: Key[Array, ""]) -> None:
        """Nothing is carried from step to step; the model is checked."""
        if isinstance(model, Conditionals):
            return
        if not isinstance(model, Marginal):
            raise UndirectedError(
                f"pseudo-likelihood: {type(model).__name__} has no log_odds of its visible units; "
                "use Persistent or TwoPhase"
            )
        check_visible("pseudo-likelihood", model.layout)

    def __call__(
        self, model: Any, batch: Float[Array, "rows v"], carry: None, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], tuple[None, Info]]:
        """The negative log pseudo-likelihood."""
        v = visible(model, batch)
        if isinstance(model, Conditionals):
            return -model.log_conditionals(v).sum(-1).mean(), (None, {})
        fields = model.log_odds(v)
        units = Layout(tuple(block for block in model.layout.blocks if block.visible))
        loss = log_normaliser(units, fields) - jnp.sum(v * fields, -1)
        return loss.mean(), (None, {})
