"""Persistent contrastive divergence: the negative chains live as long as the run."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from undirected.core.errors import UndirectedError
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

    The chains start at rows of the first batch and move by `steps` kernel steps per update. Missing
    entries (NaN) are drawn from the model given the observed ones, by `fill_steps` kernel steps
    from a random start; the same steps draw the hidden units of a model without a free energy. With
    `posterior` they take their means under that inference instead, the observed ones clamped: with
    `MeanField` that is the learning of deep Boltzmann machines (Salakhutdinov & Hinton 2009).
    """

    kernel: Kernel
    chains: int = 100
    steps: int = 1
    fill_steps: int = 10
    posterior: Inference | None = None

    def __post_init__(self) -> None:
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
            x = complete(self.kernel, constant, v, self.fill_steps, fill_key, least)
            data = mean_energy(model, x)
        return data - mean_energy(model, chains.x), (chains, info)
