"""Wiring of sparse pairwise models: integer arrays, built vectorised, passed as traced data."""

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from undirected.core.errors import UndirectedError, check_counts
from undirected.core.numerics import row

if TYPE_CHECKING:
    import networkx


class Graph(eqx.Module):
    """An undirected graph on n units, with its messages and a colouring.

    Made by `un.graph`: `from_edges`, `grid`, `torus`, `chain`, `complete`, `bipartite`,
    `erdos_renyi` and `from_networkx`. Along E edges run 2E messages: first one along each edge (i,
    j), then one along each (j, i). All arrays are data under `jit`: another graph of the same
    shapes does not recompile.

    Args:
        edges: (E, 2), the two units of each edge.
        incoming: for each unit the messages that end there, padded with 2E; None where degrees are
            so uneven that the table would waste memory.
        colours: for each colour the units of it, padded with n; no edge joins two of them.
        n: number of units.
        sides: rows and columns of a torus of two, None for other graphs.

    Example:
        >>> import undirected as un
        >>> square = un.graph.from_edges(4, [(0, 1), (1, 2), (2, 3), (0, 3)])
        >>> square.n, square.n_edges, len(square.colours)
        (4, 4, 2)
    """

    edges: Int[Array, "E 2"]
    incoming: Int[Array, "n D"] | None
    colours: Int[Array, "C m"]
    n: int = eqx.field(static=True)
    sides: tuple[int, int] | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        incoming = None if self.incoming is None else jnp.shape(self.incoming)
        rows, cols = self.sides or (self.n, 1)
        if (
            jnp.shape(self.edges)[1:] != (2,)
            or (incoming is not None and incoming[:1] != (self.n,))
            or rows * cols != self.n
            or min(rows, cols) < 0
        ):
            raise UndirectedError(
                f"Graph: {self.n} units with edges {jnp.shape(self.edges)}, incoming messages "
                f"{incoming} and sides {self.sides}; edges are (E, 2), incoming messages "
                f"({self.n}, D) or None, and the product of the sides of a torus is {self.n}"
            )

    @property
    def n_edges(self) -> int:
        return self.edges.shape[0]

    @property
    def source(self) -> Int[Array, " 2E"]:
        """The unit each message leaves."""
        return jnp.concatenate([self.edges[:, 0], self.edges[:, 1]])

    @property
    def target(self) -> Int[Array, " 2E"]:
        """The unit each message enters."""
        return jnp.concatenate([self.edges[:, 1], self.edges[:, 0]])

    def gather(self, messages: Float[Array, "*batch 2E"]) -> Float[Array, "*batch n"]:
        """Sum of the messages that enter each unit."""
        if self.incoming is None:
            moved = jnp.moveaxis(messages, -1, 0)
            return jnp.moveaxis(jax.ops.segment_sum(moved, self.target, self.n), 0, -1)
        return jnp.take(messages, self.incoming, -1, mode="fill", fill_value=0.0).sum(-1)

    def fields(
        self, weight: Float[Array, " E"], x: Float[Array, "*batch n"]
    ) -> Float[Array, "*batch n"]:
        """sum_j w_ij x_j for every unit i."""
        return _fields(self, weight, x)


@partial(jax.jit, inline=True)
def _fields(
    graph: Graph, weight: Float[Array, " E"], x: Float[Array, "*batch n"]
) -> Float[Array, "*batch n"]:
    sent = x[..., graph.source]
    return graph.gather(row(jnp.tile(weight, 2), sent) * sent)


def check_graph(caller: str, graph: Any) -> None:
    """Refuse what is neither a graph nor None."""
    if graph is not None and not isinstance(graph, Graph):
        raise UndirectedError(
            f"{caller}: graph is {graph!r:.40}; pass one such as un.graph.from_edges(n, edges)"
        )


def from_edges(n: int, edges: np.ndarray | list[tuple[int, int]]) -> Graph:
    """The graph on units 0..n-1 with these edges; loops, repeats and unknown units are refused."""
    check_counts("from_edges", 0, n=n)
    pairs = _checked(n, edges)
    return _build(n, pairs, colour_sites(n, pairs))


def _checked(n: int, edges: np.ndarray | list[tuple[int, int]]) -> Int[np.ndarray, "E 2"]:
    """Pairs of different units, the smaller first, each once."""
    pairs = np.asarray(edges)
    if pairs.size == 0:
        pairs = np.zeros((0, 2), np.int32)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise UndirectedError(f"graph: edges have shape {pairs.shape}; pass an array (edges, 2)")
    if not np.issubdtype(pairs.dtype, np.integer):
        raise UndirectedError(f"graph: edges are {pairs.dtype}; pass integer unit indices")
    if pairs.size and (pairs.min() < 0 or pairs.max() >= n):
        bad = pairs[((pairs < 0) | (pairs >= n)).any(1)][0]
        raise UndirectedError(f"graph: edge {tuple(bad.tolist())} leaves the units 0..{n - 1}")
    if (pairs[:, 0] == pairs[:, 1]).any():
        raise UndirectedError(
            f"graph: unit {pairs[pairs[:, 0] == pairs[:, 1]][0, 0]} has an edge to itself; "
            "put self-interaction into the bias"
        )
    pairs = np.sort(pairs.astype(np.int64), 1)
    code, counts = np.unique(pairs[:, 0] * n + pairs[:, 1], return_counts=True)
    if (counts > 1).any():
        twice = divmod(int(code[counts > 1][0]), n)
        raise UndirectedError(f"graph: edge {twice} is given {counts.max()} times; add the weights")
    return pairs


def grid(*sides: int) -> Graph:
    """The open lattice with these sides, such as rows x cols, units in row-major order."""
    site = _lattice("grid", sides)
    pairs = [
        np.stack([site.take(range(side - 1), axis), site.take(range(1, side), axis)], -1)
        for axis, side in reversed([*enumerate(sides)])
    ]
    colour = np.indices(site.shape).sum(0) % 2
    return _build(site.size, np.concatenate([p.reshape(-1, 2) for p in pairs]), colour.ravel())


def torus(*sides: int) -> Graph:
    """The periodic lattice with these sides, such as rows x cols or three of a cube.

    Two colours where all sides are even, three otherwise.
    """
    site = _lattice("torus", sides)
    if min(sides) < 3:
        raise UndirectedError(
            f"torus: sides {' x '.join(map(str, sides))}; a side under 3 would join units twice, "
            "use grid"
        )
    axes = reversed(range(len(sides)))
    pairs = [np.stack([site, np.roll(site, -1, axis)], -1).reshape(-1, 2) for axis in axes]
    cycles = np.meshgrid(*map(_cycle_colours, sides), indexing="ij")
    colour = np.sum(cycles, 0) % (3 if any(side % 2 for side in sides) else 2)
    flat = (sides[0], sides[1]) if len(sides) == 2 else None
    return _build(site.size, np.sort(np.concatenate(pairs), 1), colour.ravel(), flat)


def _lattice(caller: str, sides: tuple[int, ...]) -> Int[np.ndarray, "*sides"]:
    """The numbers of the units of a lattice."""
    if not sides:
        raise UndirectedError(f"{caller}: no sides; pass one for each direction, as in 8, 8")
    for side in sides:
        check_counts(caller, side=side)
    return np.arange(math.prod(sides)).reshape(sides)


def chain(n: int) -> Graph:
    """The path 0 - 1 - ... - n-1."""
    return grid(1, n)


def complete(n: int) -> Graph:
    """Every pair of n units."""
    check_counts("complete", n=n)
    return _build(n, np.stack(np.triu_indices(n, 1), 1), np.arange(n))


def bipartite(
    left: int, right: int, edges: np.ndarray | list[tuple[int, int]] | None = None
) -> Graph:
    """Units 0..left-1 joined to left..left+right-1: by these edges, or each to each.

    An edge within a side is refused, and so is every odd cycle, which has one.
    """
    check_counts("bipartite", 0, left=left, right=right)
    if edges is None:
        i, j = np.meshgrid(np.arange(left), left + np.arange(right), indexing="ij")
        edges = np.stack([i.ravel(), j.ravel()], 1)
    pairs, n = _checked(left + right, edges), left + right
    inside = (pairs[:, 0] < left) == (pairs[:, 1] < left)
    if inside.any():
        bad = pairs[inside][0]
        side = f"the left side, 0..{left - 1}" if bad[0] < left else f"the right, {left}..{n - 1}"
        raise UndirectedError(
            f"bipartite: edge {tuple(bad.tolist())} joins two units of {side}; edges go from side "
            "to side, so that a graph with an odd cycle is not bipartite: use from_edges"
        )
    return _build(n, pairs, np.repeat([0, 1], [left, right]))


def erdos_renyi(n: int, probability: float, seed: int) -> Graph:
    """Each pair of n units joined independently with this probability."""
    check_counts("erdos_renyi", n=n)
    if not 0 <= probability <= 1:
        raise UndirectedError(f"erdos_renyi: probability {probability} is not between 0 and 1")
    rng = np.random.default_rng(seed)
    total = n * (n - 1) // 2
    count = rng.binomial(total, probability)
    ranks = np.sort(rng.choice(total, count, replace=False, shuffle=False))
    starts = np.concatenate([[0], np.cumsum(np.arange(n - 1, 0, -1))])
    i = np.searchsorted(starts, ranks, side="right") - 1
    return from_edges(n, np.stack([i, ranks - starts[i] + i + 1], 1))


def from_networkx(graph: "networkx.Graph") -> Graph:
    """The wiring of a networkx graph, its nodes numbered in their own order."""
    number = {node: i for i, node in enumerate(graph.nodes)}
    return from_edges(len(number), [(number[a], number[b]) for a, b in graph.edges()])


def _build(
    n: int, pairs: np.ndarray, colour: np.ndarray, sides: tuple[int, int] | None = None
) -> Graph:
    target = np.concatenate([pairs[:, 1], pairs[:, 0]])
    degree = np.bincount(target, minlength=n)
    width = int(degree.max(initial=0))
    incoming = None
    if 0 < n * width <= 8 * len(target):
        incoming = members(target, n, fill=len(target))
    return Graph(
        edges=jnp.asarray(pairs, jnp.int32),
        incoming=None if incoming is None else jnp.asarray(incoming),
        colours=jnp.asarray(members(colour, int(colour.max(initial=-1)) + 1, fill=n)),
        n=int(n),
        sides=sides,
    )


def members(group: np.ndarray, n_groups: int, fill: int) -> np.ndarray:
    """Members of each group, one row a group, padded with `fill`."""
    order = np.argsort(group, kind="stable")
    count = np.bincount(group, minlength=n_groups)
    place = np.arange(len(group)) - np.repeat(np.cumsum(count) - count, count)
    table = np.full((n_groups, int(count.max(initial=0))), fill, np.int32)
    table[group[order], place] = order
    return table


def _cycle_colours(n: int) -> np.ndarray:
    colour = np.arange(n) % 2
    if n % 2:
        colour[-1] = 2
    return colour


def colour_sites(n: int, pairs: Int[np.ndarray, "E 2"]) -> Int[np.ndarray, " n"]:
    """A colour for each site such that joined ones differ.

    Two colours where the graph is bipartite. Otherwise greedy: one site after the other (hubs
    first, ties at random) takes the smallest colour that no neighbour has.
    """
    a, b = pairs[:, 0], pairs[:, 1]
    i, j = np.concatenate([a, b]), np.concatenate([b, a])
    # Two copies of the graph, joined across: a site meets its copy only along an odd cycle.
    part = first_of_component(2 * n, i, j + n)
    if not (part[:n] == part[n:]).any():
        return (part[:n] > part[n:]).astype(np.int64)
    order = np.lexsort((np.random.default_rng(0).random(n), -np.bincount(i, minlength=n)))
    rank = np.empty(n, np.int64)
    rank[order] = np.arange(n)
    return _greedy_colours(n, np.sort(rank[pairs], 1))[rank]


def first_of_component(
    n: int, i: Int[np.ndarray, " E"], j: Int[np.ndarray, " E"]
) -> Int[np.ndarray, " n"]:
    """For each site the first one that it is connected with.

    Every round the first site of each part learns of the smallest one next to its part, and all
    take what their first has found: parts at least double, so that rounds are few. SciPy has this
    too, and takes longer to import than a small graph needs.
    """
    first = np.arange(n)
    while True:
        a, b = first[i], first[j]
        apart = a != b
        if not apart.any():
            return first
        i, j, a, b = i[apart], j[apart], a[apart], b[apart]
        np.minimum.at(first, np.maximum(a, b), np.minimum(a, b))
        while (first != (further := first[first])).any():
            first = further


def _greedy_colours(n: int, pairs: Int[np.ndarray, "E 2"]) -> Int[np.ndarray, " n"]:
    """Greedy colours of sites in their order, of pairs (earlier, later); in waves, vectorised.

    A wave is all sites whose earlier neighbours have their colours, so that each edge is looked at
    once from either end, however many waves there are.
    """
    later = _Lists(n, pairs[:, 0], pairs[:, 1])
    earlier = _Lists(n, pairs[:, 1], pairs[:, 0])
    colour, waits_for = np.full(n, -1), earlier.counts.copy()
    wave = np.flatnonzero(waits_for == 0)
    while wave.size:
        asker, neighbour = earlier.of(wave)
        colour[wave] = _smallest_free(len(wave), asker, colour[neighbour])
        freed = later.of(wave)[1]
        np.subtract.at(waits_for, freed, 1)
        wave = np.unique(freed[waits_for[freed] == 0])
    return colour


class _Lists:
    """Lists of sites, one a site, in one array: `members` of site k, from `starts[k]` on."""

    def __init__(self, n: int, owner: np.ndarray, member: np.ndarray):
        self.members = member[np.argsort(owner, kind="stable")]
        self.counts = np.bincount(owner, minlength=n)
        self.starts = np.cumsum(self.counts) - self.counts

    def of(self, sites: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All members of the lists of these sites, each after the place of its site in `sites`."""
        counts = self.counts[sites]
        shift = self.starts[sites] - (np.cumsum(counts) - counts)
        places = np.repeat(shift, counts) + np.arange(counts.sum())
        return np.repeat(np.arange(len(sites)), counts), self.members[places]


def _smallest_free(n: int, site: np.ndarray, taken: np.ndarray) -> Int[np.ndarray, " n"]:
    """For each of n sites the smallest colour that no (site, taken) has."""
    most = int(taken.max(initial=0)) + 1
    site, taken = np.divmod(np.unique(site * most + taken), most)
    place = np.arange(len(site)) - np.searchsorted(site, site)
    # Sorted colours 0, 1, 2, ... count up with their place until the first gap.
    gap = taken != place
    free = np.bincount(site, minlength=n)
    np.minimum.at(free, site[gap], place[gap])
    return free
