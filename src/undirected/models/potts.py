"""Potts models: categorical variables of equally many states, coupled in pairs."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike

from undirected.core.errors import UndirectedError, check_counts, shape_of
from undirected.core.graph import Graph, check_graph, complete
from undirected.core.layout import Block, Domain, Layout, joint_states, visible_states
from undirected.core.numerics import row, unit_means
from undirected.core.potentials import Potentials, potentials, values
from undirected.factors.potts import PottsPairs


class Potts(eqx.Module):
    """-E(s) = sum over edges of J_ij[s_i, s_j] + sum_i h_i[s_i] + offset, s_i in 0..q-1.

    A state is one-hot: q units for each of n variables, x[i q + s_i] = 1.

    Args:
        couplings: (E, q, q), rows are the states of an edge's first end; or (q, q) for all edges.
        fields: (n, q).
        graph: its nodes are the variables; without it every pair is joined, in the order (0, 1),
            (0, 2), ..., (1, 2), ...
        offset: a constant.

    Example:
        >>> import undirected as un
        >>> potts = un.Potts.standard(un.graph.chain(2), states=3, coupling=1.0)
        >>> un.query(potts, given={0: 2})
        {1: {0: 0.2119416, 1: 0.2119416, 2: 0.5761169}}
    """

    couplings: Float[Array, "*edges q q"]
    fields: Float[Array, "n q"]
    graph: Graph
    offset: Float[Array, ""]

    def __init__(
        self,
        couplings: Float[Array, "*edges q q"],
        fields: Float[Array, "n q"],
        graph: Graph | None = None,
        offset: float | Float[Array, ""] = 0.0,
    ) -> None:
        shape_of("Potts", "couplings", couplings)
        shape_of("Potts", "fields", fields, 2)
        check_graph("Potts", graph)
        self.couplings, self.fields = couplings, fields
        self.graph = complete(fields.shape[0]) if graph is None else graph
        self.offset = jnp.asarray(offset, float)

    def __check_init__(self) -> None:
        n, q = self.fields.shape
        wanted = (q, q), (self.graph.n_edges, q, q)
        if self.couplings.shape not in wanted or self.graph.n != n or q < 2:
            raise UndirectedError(
                f"Potts: couplings {self.couplings.shape} and fields {self.fields.shape} on a "
                f"graph of {self.graph.n} nodes and {self.graph.n_edges} edges; pass fields "
                f"(nodes, q) with q at least 2, and couplings {wanted[0]} or {wanted[1]}"
            )

    @classmethod
    def create(cls, graph: int | Graph, states: int, shared: bool = False) -> "Potts":
        """All-zero parameters.

        Args:
            graph: a number of variables, every pair joined, or a graph of them.
            states: the number of states of each variable.
            shared: whether all edges have the same couplings.
        """
        check_counts("Potts.create", states=states)
        where = graph if isinstance(graph, Graph) else complete(graph)
        shape = (states, states) if shared else (where.n_edges, states, states)
        return cls(jnp.zeros(shape), jnp.zeros((where.n, states)), where)

    @classmethod
    def standard(cls, graph: Graph, states: int, coupling: float) -> "Potts":
        """The Potts model of physics: `coupling` for every edge whose ends agree, no fields."""
        if not isinstance(graph, Graph):
            raise UndirectedError(
                f"Potts.standard: graph is {graph!r:.40}; pass one such as un.graph.grid(3, 3)"
            )
        check_counts("Potts.standard", states=states)
        return cls(coupling * jnp.eye(states), jnp.zeros((graph.n, states)), graph)

    @classmethod
    def dense(cls, fields: ArrayLike, couplings: ArrayLike) -> "Potts":
        """Every pair joined: `fields` (n, q), and J_ij[a, b] is `couplings[i, a, j, b]`, i < j."""
        shape = np.shape(fields)
        if len(shape) != 2 or np.shape(couplings) != shape + shape:
            raise UndirectedError(
                f"Potts.dense: fields are {shape} and couplings {np.shape(couplings)}; pass (n, q) "
                "and (n, q, n, q)"
            )
        n = shape[0]
        first, second = np.triu_indices(n, 1)
        tables = np.asarray(couplings, np.float32)[first, :, second]
        return cls(jnp.asarray(tables), jnp.asarray(fields, float))

    @property
    def coupling_matrix(self) -> Float[np.ndarray, "n q n q"]:
        """J_ij[a, b] at [i, a, j, b], symmetric; zero where no edge joins i and j."""
        (n, q), (first, second) = self.fields.shape, np.asarray(self.graph.edges).T
        matrix = np.zeros((n, q, n, q), np.float32)
        tables = np.broadcast_to(np.asarray(self.couplings), (len(first), q, q))
        matrix[first, :, second] = tables
        matrix[second, :, first] = tables.swapaxes(1, 2)
        return matrix

    def zero_sum(self) -> "Potts":
        """The same distribution in the zero-sum gauge: rows, columns and fields sum to zero."""
        tables = jnp.asarray(self.couplings)
        rows, columns = tables.mean(-1, keepdims=True), tables.mean(-2, keepdims=True)
        both = tables.mean((-2, -1), keepdims=True)
        n_edges, q = self.graph.n_edges, self.states
        first, second = self.graph.edges.T
        to_first = jnp.broadcast_to((rows - both)[..., 0], (n_edges, q))
        to_second = jnp.broadcast_to((columns - both)[..., 0, :], (n_edges, q))
        fields = jnp.asarray(self.fields).at[first].add(to_first).at[second].add(to_second)
        level = fields.mean(1, keepdims=True)
        shift = level.sum() + jnp.broadcast_to(both, (n_edges, 1, 1)).sum()
        offset = self.offset + shift
        return Potts(tables - rows - columns + both, fields - level, self.graph, offset)

    @property
    def states(self) -> int:
        """The number of states of each variable."""
        return self.fields.shape[1]

    @property
    def layout(self) -> Layout:
        size = self.fields.size
        return Layout((Block("visible", 0, size, Domain.CATEGORICAL, self.states),))

    def lower(self) -> Potentials:
        """One group of pairs, with the colours of the graph."""
        group = PottsPairs(self.couplings, self.graph, 0)
        return potentials(
            self.layout, self.fields.reshape(-1), (group,), self.offset, self._colours()
        )

    def energy(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """E(x) of one-hot states."""
        x = joint_states("Potts.energy", self.layout, x)
        return -values(self.lower(), x.reshape(-1, x.shape[-1])).reshape(x.shape[:-1])

    def free_energy(self, v: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """E(v): nothing is hidden."""
        return self.energy(v)

    def log_odds(self, v: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        """Fields of the states of each variable given all others."""
        v = visible_states("Potts.log_odds", self.layout, v)
        p = self.lower()
        pulls = p.factors[0].local_field(p.layout, v)
        return pulls + row(p.unary, pulls)

    def independent(self, means: Float[Array, " n"] | None = None) -> "Potts":
        """The same variables without couplings, at these means of units (uniform without them)."""
        fields = jnp.zeros_like(self.fields)
        if means is not None:
            shares = jnp.clip(unit_means("Potts", means, fields), 1e-4, 1.0)
            fields = jnp.log(shares)
        zero = jnp.zeros_like(self.couplings)
        return Potts(zero, fields, self.graph, jnp.zeros_like(self.offset))

    def _colours(self) -> Int[Array, "C m"]:
        """The units of the variables of every colour, padded with the number of units."""
        colours, q = self.graph.colours, self.states
        units = q * colours[:, :, None] + np.arange(q)[None, None]
        return jnp.minimum(units, self.fields.size).reshape(len(colours), -1)
