"""MCMC maximum likelihood: the partition function by importance sampling from a fixed model."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from undirected.core.errors import UndirectedError
from undirected.core.protocols import Info, Kernel, Summable
from undirected.core.units import random_units
from undirected.learning.chain_phases import run, visible

Carry = tuple[Float[Array, "samples v"], Float[Array, " samples"], Any]


@dataclass(frozen=True)
class ImportanceSampled:
    """Geyer's MCMC-MLE (tempered, eqs. 5 and 6), hidden units summed out.

    -mean_i [F_0(v_i) - F(v_i)] + log mean_k exp(F_0(s_k) - F(s_k)) over data v and samples s of the
    model at the start of the run (F_0), drawn once by `burn_in` steps of `kernel` from random
    units. `ess` is the number of equally weighted samples that the weights are worth: once it falls
    to a handful, the value and its gradient say little about the likelihood.
    """

    kernel: Kernel
    samples: int = 1000
    burn_in: int = 1000
    value_name: ClassVar[str] = "negative_log_likelihood_ratio"

    def __post_init__(self) -> None:
        if self.samples < 2 or self.burn_in < 1:
            raise UndirectedError(
                f"importance sampled: samples is {self.samples} and burn_in {self.burn_in}; pass 2 "
                "or more samples and 1 or more steps"
            )

    def init(self, model: Any, batch: Float[Array, "rows v"], key: Key[Array, ""]) -> Carry:
        """The samples, their free energies under the proposal, and the proposal itself."""
        if not isinstance(model, Summable):
            raise UndirectedError(
                f"importance sampled: {type(model).__name__} has no free energy; use Persistent"
            )
        start_key, init_key, key = jax.random.split(key, 3)
        x = random_units(model.layout, start_key, (self.samples,))
        state = self.kernel.init(model, x, init_key)
        state, _ = run(self.kernel, model, state, self.burn_in, key)
        v = state.x[:, : model.layout.n_visible]
        return v, model.free_energy(v), model

    def __call__(
        self, model: Any, batch: Float[Array, "rows v"], carry: Carry, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], tuple[Carry, Info]]:
        """Minus the estimated log-likelihood ratio to the proposal, and the samples' worth."""
        samples, before, proposal = carry
        v = visible(model, batch)
        gain = (proposal.free_energy(v) - model.free_energy(v)).mean()
        log_w = before - model.free_energy(samples)
        log_ratio = jax.nn.logsumexp(log_w) - jnp.log(len(samples))
        share = jax.nn.softmax(log_w)
        return log_ratio - gain, (carry, {"ess": 1 / (share**2).sum()})
