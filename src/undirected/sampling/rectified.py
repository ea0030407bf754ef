"""Gibbs sampling of rectified Gaussians: one rectified normal after the other, tails included."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from undirected.core import rectified
from undirected.core.errors import UnsupportedFactor
from undirected.core.graph import Graph
from undirected.core.layout import Domain, joint_states
from undirected.core.protocols import Info, Lowerable
from undirected.sampling.base import ChainState, check_sweeps


@dataclass(frozen=True)
class RectifiedGibbs:
    """`sweeps` sweeps over all units: colour by colour on a graph, site by site otherwise.

    The model has `bias`, `diagonal`, `couplings` and `graph`, as `NonnegativeBM` does.
    """

    sweeps: int = 1

    def __post_init__(self) -> None:
        check_sweeps("RectifiedGibbs", self.sweeps)

    def init(self, model: Any, x: Float[Array, "*chains n"], key: Key[Array, ""]) -> ChainState:
        """Chains that start at x; every unit that is free is drawn afresh in the first sweep."""
        return ChainState(checked_start("RectifiedGibbs", model, x))

    def step(
        self,
        model: Any,
        state: ChainState,
        free: Bool[Array, "*#chains n"],
        key: Key[Array, ""],
    ) -> tuple[ChainState, Info]:
        """`sweeps` sweeps of every chain; `info["move"]` is how far a unit moved, in the mean."""
        shape = state.x.shape
        held = ~jnp.broadcast_to(free, shape).reshape(-1, shape[-1]).T
        columns = state.x.reshape(-1, shape[-1]).T
        visit = _by_site if model.graph is None else _by_colour

        def sweep(i: Int[Array, ""], x: Float[Array, "n c"]) -> Float[Array, "n c"]:
            noise = rectified.uniform(jax.random.fold_in(key, i), x.shape, x.dtype)
            return visit(model, x, held, lax.optimization_barrier(noise))

        after = lax.fori_loop(0, self.sweeps, sweep, columns).T.reshape(shape)
        return ChainState(after), {"move": jnp.abs(after - state.x).mean(-1)}


def checked_start(kernel: str, model: Any, x: Float[Array, "*chains n"]) -> Array:
    """The states x, checked against the model."""
    layout = model.layout
    if not isinstance(model, Lowerable) or any(
        b.domain is not Domain.NONNEGATIVE for b in layout.blocks
    ):
        raise UnsupportedFactor(
            f"{kernel}: {type(model).__name__} does not have nonnegative units alone; use Gibbs"
        )
    return joint_states(kernel, layout, x)


def _by_site(
    model: Any, x: Float[Array, "n c"], held: Bool[Array, "n c"], noise: Float[Array, "n c"]
) -> Float[Array, "n c"]:
    couplings, scale = model.couplings, 1 / jnp.sqrt(model.diagonal)

    def visit(i: Int[Array, ""], x: Array) -> Array:
        field = model.bias[i] - couplings[i] @ x
        new = rectified.quantile(field * scale[i], noise[i]) * scale[i]
        return x.at[i].set(jnp.where(held[i], x[i], new))

    return lax.fori_loop(0, len(x), visit, x)


def _by_colour(
    model: Any, x: Float[Array, "n c"], held: Bool[Array, "n c"], noise: Float[Array, "n c"]
) -> Float[Array, "n c"]:
    graph: Graph = model.graph
    scale = 1 / jnp.sqrt(model.diagonal)[:, None]

    def visit(x: Array, sites: Int[Array, " m"]) -> tuple[Array, None]:
        pull = _neighbour_sums(graph, model.weights, sites, x)
        own = scale.at[sites].get(mode="clip")
        field = model.bias.at[sites].get(mode="clip")[:, None] - pull
        new = rectified.quantile(field * own, noise.at[sites].get(mode="clip")) * own
        kept = held.at[sites].get(mode="clip")
        return x.at[sites].set(
            jnp.where(kept, x.at[sites].get(mode="clip"), new), mode="drop"
        ), None

    return lax.scan(visit, x, graph.colours)[0]


def _neighbour_sums(
    graph: Graph, weights: Float[Array, " E"], sites: Int[Array, " m"], x: Float[Array, "n c"]
) -> Float[Array, "m c"]:
    """sum_j w_ij x_j for some sites i of every column."""
    if graph.incoming is None:
        return graph.fields(weights, x.T).T.at[sites].get(mode="clip")
    messages = graph.incoming.at[sites].get(mode="clip")
    strength = jnp.tile(weights, 2).at[messages].get(mode="fill", fill_value=0.0)
    near = graph.source.at[messages].get(mode="clip")
    return jnp.einsum("md,mdc->mc", strength, x[near])
