"""Connected components of many subgraphs at once against SciPy's of each."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from undirected.core import graph
from undirected.ops.components import components, graph_components


def smallest_members(n, edges, bonds):
    """For every site the smallest site of its component, one subgraph."""
    i, j = edges[bonds].T
    _, part = connected_components(coo_array((np.ones(len(i)), (i, j)), (n, n)), directed=False)
    return np.array([np.flatnonzero(part == k)[0] for k in part])


GRAPHS = {
    "torus": lambda: graph.torus(6, 5),
    "long path": lambda: graph.chain(200),
    "star": lambda: graph.from_edges(40, [(0, i) for i in range(1, 40)]),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_labels_are_the_smallest_members(name):
    wiring = GRAPHS[name]()
    rng = np.random.default_rng(0)
    chance = np.array([0.0, 0.3, 0.6, 0.97, 1.0])
    bonds = rng.random((wiring.n_edges, 5)) < chance
    edges = np.asarray(wiring.edges)
    if name == "long path":  # numbers in random order: labels travel both ways
        edges = rng.permutation(wiring.n)[edges]
        wiring = graph.from_edges(wiring.n, edges)
        edges = np.asarray(wiring.edges)
    wanted = np.stack([smallest_members(wiring.n, edges, b) for b in bonds.T], 1)
    by_edges = jax.jit(components, static_argnums=2)(wiring.edges, jnp.asarray(bonds), wiring.n)
    np.testing.assert_array_equal(by_edges, wanted)
    np.testing.assert_array_equal(jax.jit(graph_components)(wiring, jnp.asarray(bonds)), wanted)
