"""Connected components of many subgraphs of one graph at once, by labels that shrink.

Columns are subgraphs: bond e of column c is there or not. Every site begins with its own number as
label. In a round it takes the smallest label among its bonded neighbours, the site that its old
label names takes it too (so that whole trees hook onto each other), and labels are followed to the
labels of the sites they name. Rounds grow as the logarithm of the size of a component.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int

from undirected.core.graph import Graph

Labels = Int[Array, "n c"]
SURE = "promise_in_bounds"


def components(edges: Int[Array, "E 2"], bonds: Bool[Array, "E c"], n: int) -> Labels:
    """For every site the smallest number of a site that bonds join it with."""
    first, second = edges.T

    def spread(label: Labels, at: Callable[[Array], Array]) -> Labels:
        ends = label[first], label[second]
        least = jnp.where(bonds, jnp.minimum(*ends), n).reshape(-1)
        flat = label.reshape(-1)
        for end in ends:
            flat = flat.at[at(end).reshape(-1)].min(least, mode=SURE)
        return flat.reshape(label.shape)

    return _shrink(spread, n, bonds.shape[1])


def graph_components(graph: Graph, bonds: Bool[Array, "E c"]) -> Labels:
    """The same by the neighbours of every site, where the graph has a table of them."""
    if graph.incoming is None:
        return components(graph.edges, bonds, graph.n)
    neighbour = graph.source.at[graph.incoming].get(mode="clip")
    # Padding names a message after the last one, along which there is no bond.
    sent = jnp.concatenate([bonds, bonds, jnp.zeros_like(bonds[:1])])
    # Without the barrier XLA would gather the bonds again in every round.
    count = range(neighbour.shape[1])
    there = lax.optimization_barrier([sent[graph.incoming[:, d]] for d in count])

    def spread(label: Labels, at: Callable[[Array], Array]) -> Labels:
        least = label
        for d in count:
            near = label.at[neighbour[:, d]].get(mode=SURE)
            least = jnp.minimum(least, jnp.where(there[d], near, graph.n))
        flat = least.reshape(-1).at[at(label).reshape(-1)].min(least.reshape(-1), mode=SURE)
        return flat.reshape(label.shape)

    return _shrink(spread, graph.n, bonds.shape[1])


def _shrink(spread: Callable[..., Labels], n: int, columns: int) -> Labels:
    """Spread labels and follow them until none changes."""
    column = jnp.arange(columns, dtype=jnp.int32)[None]

    def at(label: Array) -> Array:
        return label * columns + column

    def follow(label: Labels) -> Labels:
        return label.reshape(-1).at[at(label)].get(mode=SURE)

    def round_(state: tuple[Labels, Array]) -> tuple[Labels, Array]:
        label, _ = state
        new = follow(follow(spread(label, at)))
        return new, (new != label).any()

    own = jnp.broadcast_to(jnp.arange(n, dtype=jnp.int32)[:, None], (n, columns))
    return lax.while_loop(lambda state: state[1], round_, (own, jnp.asarray(True)))[0]
