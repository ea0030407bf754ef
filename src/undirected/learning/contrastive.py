"""Contrastive divergence: short negative chains, started anew at every step."""

from dataclasses import dataclass
from typing import Any, Literal

import jax
from jaxtyping import Array, Float, Key

from undirected.core.errors import UndirectedError
from undirected.core.protocols import Info, Kernel, Summable
from undirected.core.units import random_units
from undirected.learning.chain_phases import complete, detach, mean_energy, run, visible


@dataclass(frozen=True)
class ContrastiveDivergence:
    """CD-k (Hinton 2002): mean F(v) - mean F(v'), v' after k kernel steps from the data v.

    `start="random"` starts the chains at uniformly drawn states instead, which conditional models
    want: chains started at the answer never learn to find it (Mnih, Larochelle & Hinton 2011).
    Missing entries (NaN) are drawn from the model given the observed ones, by `fill_steps` kernel
    steps from a random start; the same steps draw the hidden units of a model without a free
    energy.
    """

    kernel: Kernel
    steps: int = 1
    fill_steps: int = 10
    start: Literal["data", "random"] = "data"

    def __post_init__(self) -> None:
        if self.start not in ("data", "random"):
            raise UndirectedError(
                f"contrastive divergence: start is {self.start!r}; pass 'data' or 'random'"
            )
        if self.steps < 1 or self.fill_steps < 1:
            raise UndirectedError(
                f"contrastive divergence: steps is {self.steps} and fill_steps "
                f"{self.fill_steps}; both must be 1 or more"
            )

    def init(self, model: Any, batch: Float[Array, "rows v"], key: Key[Array, ""]) -> None:
        """Nothing is carried from step to step."""
        return None

    def __call__(
        self, model: Any, batch: Float[Array, "rows v"], carry: None, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], tuple[None, Info]]:
        """The surrogate, whose gradient is the contrastive divergence update."""
        fill_key, start_key, init_key, key = jax.random.split(key, 4)
        constant = detach(model)
        least = 1 if isinstance(model, Summable) else self.fill_steps
        x = complete(self.kernel, constant, visible(model, batch), self.fill_steps, fill_key, least)
        first = x
        if self.start == "random":
            first = random_units(model.layout, start_key, (len(x),)).astype(x.dtype)
        chains = self.kernel.init(constant, first, init_key)
        chains, info = run(self.kernel, constant, chains, self.steps, key)
        return mean_energy(model, x) - mean_energy(model, chains.x), (None, info)
