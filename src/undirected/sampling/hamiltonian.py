"""Hamiltonian Monte Carlo that bounces off the walls x = 0 of rectified Gaussians."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Key

from undirected.core import linalg
from undirected.core.errors import UndirectedError
from undirected.core.protocols import Info
from undirected.sampling.base import ChainState
from undirected.sampling.rectified import checked_start


@dataclass(frozen=True)
class ReflectiveHamiltonian:
    """Leapfrog steps whose free flights reflect at zero, then a Metropolis test; any copositive W.

    A flight x + step p with unit mass crosses walls coordinate by coordinate, so |x| and a flipped
    p follow it exactly. Steps above about 2 / sqrt(largest eigenvalue of W) are rejected.
    """

    step_size: float = 0.2
    leaps: int = 10

    def __post_init__(self) -> None:
        if self.leaps < 1 or not self.step_size > 0:
            raise UndirectedError(
                f"ReflectiveHamiltonian: step_size is {self.step_size} and leaps {self.leaps}; "
                "both must be above 0"
            )

    def init(self, model: Any, x: Float[Array, "*chains n"], key: Key[Array, ""]) -> ChainState:
        """Chains that start at x; what is below zero starts at zero."""
        return ChainState(jnp.maximum(checked_start("ReflectiveHamiltonian", model, x), 0.0))

    def step(
        self,
        model: Any,
        state: ChainState,
        free: Bool[Array, "*#chains n"],
        key: Key[Array, ""],
    ) -> tuple[ChainState, Info]:
        """One trajectory of every chain; `info["accepted"]` is the share of chains that moved."""
        momentum_key, length_key, accept_key = jax.random.split(key, 3)
        x = state.x
        free = jnp.broadcast_to(free, x.shape)
        p = jnp.where(free, jax.random.normal(momentum_key, x.shape, x.dtype), 0.0)
        # A random length, per chain, avoids trajectories that come back to where they began.
        step = self.step_size * jax.random.uniform(
            length_key, (*x.shape[:-1], 1), x.dtype, minval=0.5, maxval=1.0
        )

        def force(x: Array) -> Array:
            pull = model.log_odds(x) - jnp.broadcast_to(model.diagonal, x.shape) * x
            return jnp.where(free, pull, 0.0)

        def leap(_: Any, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            x, p = carry
            p = p + 0.5 * step * force(x)
            x = x + step * p
            p = jnp.where(x < 0, -p, p)
            x = jnp.abs(x)
            return x, p + 0.5 * step * force(x)

        after, q = lax.fori_loop(0, self.leaps, leap, (x, p))
        gain = model.energy(x) - model.energy(after) + 0.5 * (p * p - q * q).sum(-1)
        uniform = jax.random.uniform(accept_key, gain.shape, gain.dtype)
        accepted = jnp.log(uniform) < gain
        moved = jnp.where(accepted[..., None], after, x)
        return ChainState(moved), {"accepted": accepted.astype(x.dtype)}


@dataclass(frozen=True)
class ExactHamiltonian:
    """Exact trajectories of truncated Gaussians (Pakman, Paninski 2014); W positive definite.

    With mass W every coordinate moves as mu + A cos t + B sin t; at a wall the velocity is
    reflected in the metric W. No step size and no rejection, but one bounce after the other. A
    chain with a unit that must stay does not move at all.
    """

    time: float = 0.5 * np.pi
    bounces: int = 1000

    def init(self, model: Any, x: Float[Array, "*chains n"], key: Key[Array, ""]) -> ChainState:
        """Chains that start at x, moved inside; an indefinite matrix is refused."""
        matrix = model.matrix
        if not isinstance(matrix, Tracer):
            lowest = float(np.linalg.eigvalsh(np.asarray(matrix, np.float64))[0])
            if lowest <= 1e-6 * float(np.abs(np.asarray(matrix)).max()):
                raise UndirectedError(
                    f"ExactHamiltonian: the lowest eigenvalue of the couplings is {lowest:.3g}; "
                    "exact trajectories need a positive definite matrix, use ReflectiveHamiltonian"
                )
        start = checked_start("ExactHamiltonian", model, x)
        return ChainState(jnp.maximum(start, 1e-6))

    def step(
        self,
        model: Any,
        state: ChainState,
        free: Bool[Array, "*#chains n"],
        key: Key[Array, ""],
    ) -> tuple[ChainState, Info]:
        """One trajectory of every chain; `info["bounces"]` is the number of walls it met."""
        matrix = model.matrix
        factor = linalg.cholesky(matrix)
        inverse = jax.scipy.linalg.cho_solve((factor, True), jnp.eye(model.n, dtype=matrix.dtype))
        centre = inverse @ model.bias
        shape = state.x.shape
        noise = jax.random.normal(key, shape, state.x.dtype).reshape(-1, shape[-1])
        speed = jax.scipy.linalg.solve_triangular(factor.T, noise.T, lower=False).T

        def travel(x: Array, v: Array) -> tuple[Array, Array]:
            first = x, v, jnp.full((), self.time, x.dtype), jnp.zeros((), jnp.int32)
            x, _, _, count = lax.while_loop(
                lambda c: (c[2] > 0) & (c[3] < self.bounces),
                lambda c: _fly(centre, inverse, *c),
                first,
            )
            return x, count

        x, count = jax.vmap(travel)(state.x.reshape(-1, shape[-1]), speed)
        moved = jnp.where(
            jnp.broadcast_to(free, shape).all(-1, keepdims=True), x.reshape(shape), state.x
        )
        return ChainState(moved), {"bounces": count.reshape(shape[:-1]).astype(x.dtype)}


def _fly(
    centre: Float[Array, " n"],
    inverse: Float[Array, "n n"],
    x: Float[Array, " n"],
    v: Float[Array, " n"],
    left: Float[Array, ""],
    count: Array,
) -> tuple[Array, Array, Array, Array]:
    """Fly to the next wall, or for the time left, and reflect there."""
    a, b = x - centre, v
    radius = jnp.hypot(a, b)
    # centre + radius cos(t - phase) = 0 first happens falling, at phase + arccos(-centre / radius).
    phase = jnp.arctan2(b, a)
    ratio = jnp.clip(-centre / jnp.maximum(radius, 1e-30), -1.0, 1.0)
    hit = jnp.mod(phase + jnp.arccos(ratio), 2 * jnp.pi)
    tiny = 64 * jnp.finfo(x.dtype).eps
    at_wall = (x <= tiny * jnp.maximum(jnp.abs(centre), 1.0)) & (v >= 0)
    again = hit > 2 * jnp.pi - 1e-3  # a wall just left, met again by rounding
    hit = jnp.where((jnp.abs(centre) >= radius) | (at_wall & ((hit < 1e-3) | again)), jnp.inf, hit)
    wall = jnp.argmin(hit)
    t = jnp.minimum(hit[wall], left)
    x = jnp.maximum(centre + a * jnp.cos(t) + b * jnp.sin(t), 0.0)
    v = b * jnp.cos(t) - a * jnp.sin(t)
    met = hit[wall] <= left
    bounced = v - 2 * v[wall] / inverse[wall, wall] * inverse[wall]
    x = jnp.where(met, x.at[wall].set(0.0), x)
    return x, jnp.where(met, bounced, v), left - t, count + met
