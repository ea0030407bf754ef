"""Persistent contrastive divergence: the negative chains live as long as the run."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from undirected.core.errors import UndirectedError, check_offers
from undirected.core.protocols import Inference, Info, Kernel, Summable
from undirected.learning.chain_phases import (
    complete,
    detach,
    mean_energy,
    posterior_means,
    run,
    visible,
)


@dataclass(frozen=True)
class Persistent:
    """Stochastic maximum likelihood (Tieleman 2008): mean F(v) - mean F(chains).

    The chains start at rows of the first batch and live as long as the run. Missing entries (NaN)
    are drawn from the model given the observed ones, from the chain that agrees best with those; so
    are the hidden units of a model without a free energy.

    Args:
        kernel: how the chains move, such as `BlockGibbs()`.
        chains: their number.
        steps: kernel steps of an update.
        fill_steps: kernel steps that draw missing entries and hidden units.
        posterior: an inference that gives missing entries and hidden units their means instead, the
            observed ones clamped: with `MeanField` that is the learning of deep Boltzmann machines
            (Salakhutdinov & Hinton 2009).

    Returns:
        A call with a model, a batch of rows, the chains and a key gives a surrogate, whose gradient
        is the update, the moved chains and what the kernel reports; `fit` calls it.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> rows = np.repeat([[0, 0, 1], [1, 1, 0]], 5, 0)
        >>> objective = un.Persistent(un.BlockGibbs(), chains=10)
        >>> un.fit(un.RBM.create(3, 2, seed=0), rows, objective, steps=2).carry.x.shape
        (10, 5)
    """

    kernel: Kernel
    chains: int = 100
    steps: int = 1
    fill_steps: int = 10
    posterior: Inference | None = None

    def __post_init__(self) -> None:
        check_offers("persistent", "kernel", self.kernel, "BlockGibbs()", "init", "step")
        if min(self.chains, self.steps, self.fill_steps) < 1:
            raise UndirectedError(
                f"persistent: chains is {self.chains}, steps {self.steps} and fill_steps "
                f"{self.fill_steps}; all must be 1 or more"
            )

    def init(self, model: Any, batch: Float[Array, "rows v"], key: Key[Array, ""]) -> Any:
        """The state of the chains."""
        fill_key, init_key = jax.random.split(key)
        rows = jnp.arange(self.chains) % len(batch)
        v = visible(model, batch)[rows]
        x = complete(self.kernel, model, v, self.fill_steps, fill_key, least=1)
        return self.kernel.init(model, x, init_key)

    def __call__(
        self, model: Any, batch: Float[Array, "rows v"], carry: Any, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], tuple[Any, Info]]:
        """The surrogate, the moved chains and what the kernel reports."""
        fill_key, key = jax.random.split(key)
        constant = detach(model)
        v = visible(model, batch)
        chains, info = run(self.kernel, constant, carry, self.steps, key)
        if self.posterior is not None:
            data = model.energy(posterior_means(self.posterior, constant, v, fill_key)).mean()
        else:
            least = 0 if isinstance(model, Summable) else self.fill_steps
            near = carry.x if carry.x.ndim == 2 else None
            x = complete(self.kernel, constant, v, self.fill_steps, fill_key, least, near)
            data = mean_energy(model, x)
        return data - mean_energy(model, chains.x), (chains, info)
