"""Contrastive divergence: short negative chains, started anew at every step."""

from dataclasses import dataclass
from typing import Any, Literal

import jax
from jaxtyping import Array, Float, Key

from undirected.core.errors import UndirectedError, check_offers
from undirected.core.protocols import Info, Kernel, Summable
from undirected.core.units import random_units
from undirected.learning.chain_phases import complete, detach, mean_energy, run, visible


@dataclass(frozen=True)
class ContrastiveDivergence:
    """CD-k (Hinton 2002): mean F(v) - mean F(v'), v' after k kernel steps from the data v.

    Missing entries (NaN) are drawn from the model given the observed ones, from a random start; so
    are the hidden units of a model without a free energy.

    Args:
        kernel: how the chains move, such as `BlockGibbs()`.
        steps: k.
        fill_steps: kernel steps that draw missing entries and hidden units.
        start: "data"; or "random" to start the chains at uniformly drawn states, which conditional
            models want: chains started at the answer never learn to find it (Mnih, Larochelle &
            Hinton 2011).

    Returns:
        A call with a model, a batch of rows, None and a key gives a surrogate, whose gradient is
        the update, and what the kernel reports; `fit` calls it.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> rows = np.repeat([[0, 0, 1], [1, 1, 0]], 5, 0)
        >>> objective = un.ContrastiveDivergence(un.BlockGibbs())
        >>> un.fit(un.RBM.create(3, 2, seed=0), rows, objective, steps=2).step
        2
    """

    kernel: Kernel
    steps: int = 1
    fill_steps: int = 10
    start: Literal["data", "random"] = "data"

    def __post_init__(self) -> None:
        name = "contrastive divergence"
        check_offers(name, "kernel", self.kernel, "BlockGibbs()", "init", "step")
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
