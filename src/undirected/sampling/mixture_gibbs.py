"""Gibbs sampling of models with a component: it is drawn together with the visible units."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.layout import joint_states
from undirected.core.protocols import Componential, Info
from undirected.core.units import draw, free_variables
from undirected.sampling.base import ChainState


@dataclass(frozen=True)
class MixtureGibbs:
    """Hidden units given the visibles; then component and visibles together given the hiddens.

    The component is drawn from p(z | h), the visible units summed out, so that a chain goes from
    one cluster to another in one step, where block Gibbs would have to carry v there unit by unit.
    That sum costs chains x components x columns; a share `jumps` of the steps makes it, the others
    draw the component given the visibles.

    Args:
        jumps: share of the steps that sum the visible units out.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> means = [[0.9, 0.9, 0.1], [0.2, 0.1, 0.8]]
        >>> model = un.MixtureRBM.from_mixture(np.log([0.5, 0.5]), means, 2, seed=0)
        >>> un.run_chains(un.MixtureGibbs(), model, chains=2, samples=4, seed=0).x.shape
        (4, 2, 7)
    """

    jumps: float = 0.2

    def __post_init__(self) -> None:
        if not 0 <= self.jumps <= 1:
            raise UndirectedError(f"MixtureGibbs: jumps is {self.jumps}; pass a share, 0 to 1")

    def init(
        self, model: Componential, x: Float[Array, "*chains n"], key: Key[Array, ""]
    ) -> ChainState:
        """Chains that start at x."""
        return ChainState(joint_states("MixtureGibbs", model.layout, x))

    def step(
        self,
        model: Componential,
        state: ChainState,
        free: Bool[Array, "*#chains n"],
        key: Key[Array, ""],
    ) -> tuple[ChainState, Info]:
        """One step of every chain; `info["flips"]` is the share of free units that moved."""
        if not isinstance(model, Componential):
            raise UnsupportedFactor(
                f"MixtureGibbs: {type(model).__name__} has no component; use BlockGibbs or Gibbs"
            )
        before, layout = state.x, model.layout
        free = jnp.broadcast_to(free_variables("MixtureGibbs", layout, free), before.shape)
        keys = jax.random.split(key, 4)
        x = self._move(model, 1, model.conditional(1, before), before, free, keys[0])

        def jump() -> Float[Array, "*chains K"]:
            visible, hidden = layout.blocks[:2]
            held = 1 - free[..., visible.slice].astype(x.dtype)
            return model.component_fields(x[..., hidden.slice], held, x[..., visible.slice])

        fields = jax.lax.cond(
            jax.random.uniform(keys[3]) < self.jumps, jump, lambda: model.conditional(2, x)
        )
        x = self._move(model, 2, fields, x, free, keys[1])
        x = self._move(model, 0, model.conditional(0, x), x, free, keys[2])
        moved = (x != before).sum(-1) / jnp.maximum(free.sum(-1), 1)
        return ChainState(x), {"flips": moved.astype(before.dtype)}

    def _move(
        self, model: Any, index: int, fields: Array, x: Array, free: Array, key: Key[Array, ""]
    ) -> Float[Array, "*chains n"]:
        """Draw the free units of a block from their fields."""
        block = model.layout.blocks[index]
        new = jnp.where(free[..., block.slice], draw(block, fields, key), x[..., block.slice])
        return jnp.concatenate([x[..., : block.start], new, x[..., block.stop :]], -1)
