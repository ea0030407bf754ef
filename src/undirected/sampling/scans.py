"""The inner loop of single-site Gibbs sampling on sparse couplings: sites of one colour at once."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from undirected.core.graph import Graph
from undirected.factors import Edges


def scan_colours(
    edges: Edges,
    backward: bool,
    unary: Float[Array, "n c"],
    x: Float[Array, "n c"],
    free: Bool[Array, "n c"],
    noise: Float[Array, "n c"],
) -> Float[Array, "n c"]:
    """Draw all sites of one colour at once, colour after colour; columns are chains."""
    graph, count = edges.graph, edges.graph.colours.shape[0]
    pull = _neighbour_sum(graph, edges.weight)

    def visit(k: Int[Array, ""], x: Array) -> Array:
        sites = graph.colours[count - 1 - k if backward else k]
        old = x.at[sites].get(mode="clip")
        level = unary.at[sites].get(mode="clip") + noise.at[sites].get(mode="clip")
        new = (level + pull(sites, x) > 0).astype(x.dtype)
        moves = free.at[sites].get(mode="clip")
        return x.at[sites].set(jnp.where(moves, new, old), mode="drop")

    return lax.fori_loop(0, count, visit, x)


def _neighbour_sum(graph: Graph, weight: Float[Array, " E"]) -> Callable[[Array, Array], Array]:
    """sum_j w_ij x_j for some sites i, from their neighbours alone where the graph has a table."""
    if graph.incoming is None:
        return lambda sites, x: graph.fields(weight, x.T).T.at[sites].get(mode="clip")
    neighbour = graph.source.at[graph.incoming].get(mode="clip")
    strength = jnp.tile(weight, 2).at[graph.incoming].get(mode="fill", fill_value=0)

    def pull(sites: Int[Array, " m"], x: Float[Array, "n c"]) -> Float[Array, "m c"]:
        near = neighbour.at[sites].get(mode="clip")
        return jnp.einsum("md,mdc->mc", strength.at[sites].get(mode="clip"), x[near])

    return pull


def by_columns(scan: Callable[..., Array], *arrays: Array) -> Array:
    """Call a scan that wants (n, chains) on arrays (*chains, n)."""
    shape = arrays[0].shape
    return scan(*(a.reshape(-1, shape[-1]).T for a in arrays)).T.reshape(shape)
