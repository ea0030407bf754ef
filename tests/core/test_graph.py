"""Wiring: the right edges, proper colourings, sums at the units, refusals."""

import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

from undirected.core import graph
from undirected.core.errors import UndirectedError
from undirected.core.graph import _greedy_colours

GRAPHS = {
    "grid": lambda: graph.grid(3, 5),
    "even torus": lambda: graph.torus(4, 6),
    "odd torus": lambda: graph.torus(5, 5),
    "mixed torus": lambda: graph.torus(4, 5),
    "cube": lambda: graph.grid(2, 3, 4),
    "even cubic torus": lambda: graph.torus(4, 4, 6),
    "odd cubic torus": lambda: graph.torus(3, 4, 5),
    "ring": lambda: graph.torus(7),
    "chain": lambda: graph.chain(7),
    "complete": lambda: graph.complete(6),
    "bipartite": lambda: graph.bipartite(3, 4),
    "sparse bipartite": lambda: graph.bipartite(3, 2, [(3, 0), (1, 4), (2, 3)]),
    "erdos renyi": lambda: graph.erdos_renyi(40, 0.1, seed=1),
    "star": lambda: graph.from_edges(30, [(0, i) for i in range(1, 25)]),
    "no edges": lambda: graph.from_edges(5, []),
}


@pytest.fixture(params=GRAPHS)
def any_graph(request):
    return GRAPHS[request.param]()


def edge_set(g):
    return {tuple(sorted(e)) for e in np.asarray(g.edges).tolist()}


def test_edges_are_sorted_pairs_without_repeats(any_graph):
    edges = np.asarray(any_graph.edges)
    assert (edges[:, 0] < edges[:, 1]).all()
    assert len(edge_set(any_graph)) == len(edges)


def test_colours_partition_the_units_and_join_no_neighbours(any_graph):
    colours = np.asarray(any_graph.colours)
    sites = colours[colours < any_graph.n]
    assert sorted(sites.tolist()) == list(range(any_graph.n))
    colour_of = np.empty(any_graph.n, int)
    for c, row in enumerate(colours):
        colour_of[row[row < any_graph.n]] = c
    edges = np.asarray(any_graph.edges)
    assert (colour_of[edges[:, 0]] != colour_of[edges[:, 1]]).all()


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("grid", 2),
        ("even torus", 2),
        ("odd torus", 3),
        ("mixed torus", 3),
        ("star", 2),
        ("cube", 2),
        ("even cubic torus", 2),
        ("odd cubic torus", 3),
        ("ring", 3),
    ],
)
def test_colourings_are_small(name, count):
    assert GRAPHS[name]().colours.shape[0] == count


def test_fields_are_the_matrix_product(any_graph, x64):
    rng = np.random.default_rng(0)
    weight = jnp.asarray(rng.normal(size=any_graph.n_edges))
    matrix = np.zeros((any_graph.n, any_graph.n))
    for (i, j), w in zip(np.asarray(any_graph.edges), np.asarray(weight), strict=True):
        matrix[i, j] = matrix[j, i] = w
    x = rng.normal(size=(2, 3, any_graph.n))
    assert np.allclose(any_graph.fields(weight, jnp.asarray(x)), x @ matrix)
    assert np.allclose(any_graph.fields(weight, jnp.asarray(x[0, 0])), x[0, 0] @ matrix)


def test_uneven_degrees_do_without_a_table():
    assert GRAPHS["star"]().incoming is None
    assert GRAPHS["odd torus"]().incoming is not None


@pytest.mark.parametrize("shape", [(4, 6), (5, 5), (3, 7)])
def test_lattices_equal_networkx(shape):
    for ours, periodic in ((graph.grid, False), (graph.torus, True)):
        peer = nx.grid_2d_graph(*shape, periodic=periodic)
        number = {(r, c): r * shape[1] + c for r, c in peer.nodes}
        want = {tuple(sorted((number[a], number[b]))) for a, b in peer.edges}
        assert edge_set(ours(*shape)) == want


@pytest.mark.parametrize("sides", [(5,), (3, 4, 5), (3, 3, 3, 4)])
def test_lattices_of_any_dimension_join_units_one_step_apart(sides):
    place = np.stack(np.unravel_index(np.arange(np.prod(sides)), sides), 1)
    for ours, periodic in ((graph.grid, False), (graph.torus, True)):
        step = np.abs(place[:, None] - place[None])
        if periodic:
            step = np.minimum(step, np.array(sides) - step)
        want = {tuple(sorted(pair)) for pair in np.argwhere(step.sum(2) == 1).tolist()}
        assert edge_set(ours(*sides)) == want


def test_from_networkx_keeps_the_wiring():
    peer = nx.karate_club_graph()
    assert edge_set(graph.from_networkx(peer)) == {tuple(sorted(e)) for e in peer.edges}
    named = nx.Graph([("a", "b"), ("b", "c")])
    assert edge_set(graph.from_networkx(named)) == {(0, 1), (1, 2)}


def test_erdos_renyi_has_the_right_density_and_repeats():
    """Edges are binomial: 5 standard deviations, failure rate 1e-6; half the density must fail."""
    n, p = 300, 0.05
    pairs = n * (n - 1) / 2
    wrong = lambda m: abs(m - p * pairs) > 5 * np.sqrt(pairs * p * (1 - p))  # noqa: E731
    assert not wrong(graph.erdos_renyi(n, p, 0).n_edges)
    assert wrong(graph.erdos_renyi(n, p / 2, 0).n_edges)
    assert edge_set(graph.erdos_renyi(n, p, 3)) == edge_set(graph.erdos_renyi(n, p, 3))
    assert edge_set(graph.erdos_renyi(n, p, 3)) != edge_set(graph.erdos_renyi(n, p, 4))
    assert graph.erdos_renyi(6, 1.0, 0).n_edges == 15
    assert graph.erdos_renyi(6, 0.0, 0).n_edges == 0


def test_a_large_graph_is_built_without_a_python_loop():
    assert graph.torus(1000, 1000).n_edges == 2_000_000


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([(0, 9)], r"edge \(0, 9\) leaves the units 0..4"),
        ([(2, 2)], "unit 2 has an edge to itself"),
        ([(0, 1), (1, 0)], r"edge \(0, 1\) is given 2 times"),
        ([(0, 1, 2)], "shape"),
        ([(0.5, 1.0)], "float64"),
    ],
)
def test_bad_edges_are_refused(edges, message):
    with pytest.raises(UndirectedError, match=message):
        graph.from_edges(5, np.asarray(edges))


def test_bad_sizes_are_refused():
    with pytest.raises(UndirectedError, match="use grid"):
        graph.torus(2, 5)
    with pytest.raises(UndirectedError, match="2 x 5 x 4.*use grid"):
        graph.torus(2, 5, 4)
    for lattice in (graph.grid, graph.torus):
        with pytest.raises(UndirectedError, match="no sides"):
            lattice()
        with pytest.raises(UndirectedError, match="side"):
            lattice(4, 0)
    with pytest.raises(UndirectedError, match=r"probability 1\.5"):
        graph.erdos_renyi(5, 1.5, 0)


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([(0, 3), (0, 4), (3, 4)], r"edge \(3, 4\) joins two units of the right, 3..5"),
        ([(0, 3), (1, 3), (1, 0)], r"edge \(0, 1\) joins two units of the left side, 0..2"),
        ([(0, 3), (0, 9)], r"edge \(0, 9\) leaves the units 0..5"),
    ],
    ids=["triangle", "other triangle", "unknown unit"],
)
def test_an_odd_cycle_is_not_bipartite(edges, message):
    with pytest.raises(UndirectedError, match=message):
        graph.bipartite(3, 3, edges)


def test_sides_are_the_colours_of_a_bipartite_graph():
    colours = np.asarray(GRAPHS["sparse bipartite"]().colours)
    assert colours.tolist() == [[0, 1, 2], [3, 4, 5]]  # 5 is padding
    assert edge_set(GRAPHS["sparse bipartite"]()) == {(0, 3), (1, 4), (2, 3)}


@pytest.mark.parametrize("density", [0.05, 0.3, 1.0])
def test_colours_in_waves_are_those_of_one_site_after_the_other(density):
    n, rng = 40, np.random.default_rng(0)
    pairs = np.stack(np.triu_indices(n, 1), 1)
    pairs = pairs[rng.random(len(pairs)) < density]
    expected: list[int] = []
    for site in range(n):
        taken = {expected[a] for a, b in pairs.tolist() if b == site}
        expected.append(next(c for c in range(n) if c not in taken))
    assert _greedy_colours(n, rng.permutation(pairs)).tolist() == expected


@pytest.mark.parametrize("joined", [0, 30, 60, 300])
def test_the_first_of_a_component_is_that_of_scipy(joined):
    """Of few pieces, of many, and of one."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    i, j = np.random.default_rng(joined).integers(0, 80, (2, joined))
    _, label = connected_components(coo_array((np.ones(joined), (i, j)), (80, 80)))
    found = graph.first_of_component(80, i, j)
    first = np.array([np.flatnonzero(label == own)[0] for own in label])
    assert (found == first).all()
