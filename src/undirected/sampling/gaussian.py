"""Block Gibbs for models of real visible units and binary hidden units."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from undirected.core.errors import UnsupportedFactor
from undirected.core.layout import joint_states
from undirected.core.protocols import Info
from undirected.sampling.base import ChainState, check_sweeps


@dataclass(frozen=True)
class GaussianGibbs:
    """All hiddens given the visibles, then all visibles, normal given the hiddens.

    The model has `hidden_fields(v)` and `visible_given(h)`, as `GaussianRBM` does. `backward` takes
    the visibles first.
    """

    sweeps: int = 1
    backward: bool = False

    def __post_init__(self) -> None:
        check_sweeps("GaussianGibbs", self.sweeps)

    def reversed(self) -> "GaussianGibbs":
        """The time reversal of this kernel."""
        return replace(self, backward=not self.backward)

    def init(self, model: Any, x: Float[Array, "*chains n"], key: Key[Array, ""]) -> ChainState:
        """Chains that start at x."""
        if not hasattr(model, "visible_given"):
            raise UnsupportedFactor(
                f"GaussianGibbs: {type(model).__name__} has no real visible units; use BlockGibbs "
                "or Gibbs"
            )
        return ChainState(joint_states("GaussianGibbs", model.layout, x))

    def step(
        self, model: Any, state: ChainState, free: Bool[Array, "*#chains n"], key: Key[Array, ""]
    ) -> tuple[ChainState, Info]:
        """`sweeps` sweeps of every chain."""
        count = model.layout.n_visible
        free = jnp.broadcast_to(jnp.asarray(free, bool), state.x.shape)

        def hidden(v: Array, h: Array, key: Key[Array, ""]) -> Array:
            noise = jax.random.logistic(key, h.shape, h.dtype)
            on = (model.hidden_fields(v) + noise > 0).astype(h.dtype)
            return jnp.where(free[..., count:], on, h)

        def visible(v: Array, h: Array, key: Key[Array, ""]) -> Array:
            mean, scale = model.visible_given(h)
            new = mean + scale * jax.random.normal(key, v.shape, v.dtype)
            return jnp.where(free[..., :count], new, v)

        def once(i: Int[Array, ""], x: Array) -> Array:
            up, down = jax.random.split(jax.random.fold_in(key, i))
            v, h = x[..., :count], x[..., count:]
            if self.backward:
                v = visible(v, h, down)
                h = hidden(v, h, up)
            else:
                h = hidden(v, h, up)
                v = visible(v, h, down)
            return jnp.concatenate([v, h], -1)

        return ChainState(jax.lax.fori_loop(0, self.sweeps, once, state.x)), {}
