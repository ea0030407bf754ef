"""Block Gibbs for visible units of every kind over binary hidden units."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float, Int, Key

from undirected.core import rectified
from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.layout import Block, Domain, joint_states
from undirected.core.numerics import row
from undirected.core.protocols import Info
from undirected.core.random import logistic
from undirected.core.units import draw, free_variables
from undirected.sampling.base import ChainState


@dataclass(frozen=True)
class MixedGibbs:
    """All hidden units given the visible ones, then all visible ones given the hidden.

    The model has `hidden_fields(v)`, `visible_fields(h)` and `precision`, as `MixedRBM` does; real
    units that are coupled are drawn together.

    Args:
        sweeps: sweeps of one step.
        backward: take the visible units first.

    Example:
        >>> import undirected as un
        >>> model = un.MixedRBM.create(["binary", 3, "real"], 2, seed=0)
        >>> un.run_chains(un.MixedGibbs(), model, chains=2, samples=4, seed=0).x.shape
        (4, 2, 7)
    """

    sweeps: int = 1
    backward: bool = False

    def __post_init__(self) -> None:
        if self.sweeps < 1:
            raise UndirectedError(f"MixedGibbs: sweeps is {self.sweeps}; pass 1 or more")

    def reversed(self) -> "MixedGibbs":
        """The time reversal of this kernel."""
        return replace(self, backward=not self.backward)

    def init(self, model: Any, x: Float[Array, "*chains n"], key: Key[Array, ""]) -> ChainState:
        """Chains that start at x."""
        if not (hasattr(model, "visible_fields") and hasattr(model, "precision")):
            raise UnsupportedFactor(
                f"MixedGibbs: {type(model).__name__} has no visible_fields and precision; use "
                "BlockGibbs or Gibbs"
            )
        return ChainState(joint_states("MixedGibbs", model.layout, x))

    def step(
        self, model: Any, state: ChainState, free: Bool[Array, "*#chains n"], key: Key[Array, ""]
    ) -> tuple[ChainState, Info]:
        """`sweeps` sweeps of every chain."""
        count = model.layout.n_visible
        free = free_variables("MixedGibbs", model.layout, free)
        tied = getattr(model, "real_couplings", None) is not None
        coupled = _Coupled(model, free[..., :count]) if tied else None
        free = jnp.broadcast_to(free, state.x.shape)

        def hidden(v: Array, h: Array, key: Key[Array, ""]) -> Array:
            noise = logistic(key, h.shape).astype(h.dtype)
            on = (model.hidden_fields(v) + noise > 0).astype(h.dtype)
            return jnp.where(free[..., count:], on, h)

        def visible(v: Array, h: Array, key: Key[Array, ""]) -> Array:
            fields = model.visible_fields(h)
            new = draw_visible(model, fields, key)
            if coupled is not None:
                new = coupled.draw(new, fields, v, key)
            return jnp.where(free[..., :count], new, v)

        def once(i: Int[Array, ""], parts: tuple[Array, Array]) -> tuple[Array, Array]:
            up, down = jax.random.split(jax.random.fold_in(key, i))
            v, h = parts
            if self.backward:
                v = visible(v, h, down)
                return v, hidden(v, h, up)
            h = hidden(v, h, up)
            return visible(v, h, down), h

        first = state.x[..., :count], state.x[..., count:]
        v, h = jax.lax.fori_loop(0, self.sweeps, once, first)
        return ChainState(jnp.concatenate([v, h], -1)), {}


class _Coupled:
    """Real units that are coupled, given the hidden units and those that are not free."""

    def __init__(self, model: Any, free: Bool[Array, "*#chains v"]):
        self.where, self.couplings = model.real_units, model.real_couplings
        self.free = free[..., self.where]
        both = self.free[..., :, None] & self.free[..., None, :]
        precision = jnp.diag(model.precision[self.where]) - self.couplings
        self.root = jnp.linalg.cholesky(jnp.where(both, precision, jnp.eye(len(precision))))

    def draw(
        self,
        new: Float[Array, "*chains v"],
        fields: Float[Array, "*chains v"],
        v: Float[Array, "*chains v"],
        key: Key[Array, ""],
    ) -> Float[Array, "*chains v"]:
        """New visible units whose real ones are drawn together: T' x = y + noise, T y = fields."""
        x, l = v[..., self.where], fields[..., self.where]
        l = jnp.where(self.free, l + jnp.where(self.free, 0.0, x) @ self.couplings, 0.0)
        root = jnp.broadcast_to(self.root, (*l.shape, l.shape[-1]))
        y = solve_triangular(root, l[..., None], lower=True)
        noise = jax.random.normal(jax.random.fold_in(key, 1), y.shape, y.dtype)
        found = solve_triangular(root, y + noise, lower=True, trans=1)[..., 0]
        return new.at[..., self.where].set(found)


def draw_visible(
    model: Any, fields: Float[Array, "*chains v"], key: Key[Array, ""]
) -> Float[Array, "*chains v"]:
    """Independent draws of all visible units in these fields, as if real ones were not coupled."""
    blocks = [block for block in model.layout.blocks if block.visible]
    keys, precision = jax.random.split(key, len(blocks)), model.precision
    parts = [
        _draw(block, fields[..., block.slice], precision[block.slice], k)
        for block, k in zip(blocks, keys, strict=True)
    ]
    return jnp.concatenate(parts, -1)


def _draw(block: Block, l: Array, precision: Array, key: Key[Array, ""]) -> Array:
    if block.domain is Domain.REAL:
        r = row(precision, l)
        return l / r + jax.random.normal(key, l.shape, l.dtype) / jnp.sqrt(r)
    if block.domain is Domain.NONNEGATIVE:
        return rectified.draw(l, jnp.broadcast_to(row(precision, l), l.shape), key)
    return draw(block, l, key)
