"""Ising models and other pairwise binary Markov random fields, dense or on a graph."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from undirected.core.errors import UndirectedError, check_counts, shape_of
from undirected.core.graph import Graph, check_graph
from undirected.core.layout import Block, Layout, joint_states, visible_states
from undirected.core.numerics import HARD, is_traced, row, unit_means
from undirected.core.potentials import Potentials, potentials
from undirected.factors import Edges, Factor, Symmetric


class Ising(eqx.Module):
    """-E(x) = sum_{i<j} w_ij x_i x_j + b' x + offset, with units in {0, 1}.

    `Ising.create(n)` has all parameters 0; `Ising.from_spins(J, h)` takes those of spins in {-1,
    1}.

    Args:
        weights: w, (n, n), of which the symmetric part without the diagonal counts; or (E,), one
            for each edge of `graph`.
        bias: b (n,); one of 1e8 or more in size holds its unit.
        graph: which units are coupled; None couples all pairs.
        offset: a constant that is added to -E.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> print(np.asarray(un.Exact()(model).unary).round(2))
        [0.88 0.68 0.58]
    """

    weights: Float[Array, "..."]
    bias: Float[Array, " n"]
    graph: Graph | None = None
    offset: Float[Array, ""] = eqx.field(default_factory=lambda: jnp.zeros(()))

    def __check_init__(self) -> None:
        check_graph("Ising", self.graph)
        (n,) = shape_of("Ising", "bias", self.bias, 1)
        found = shape_of("Ising", "weights", self.weights)
        wanted = (n, n) if self.graph is None else (self.graph.n_edges,)
        if found != wanted or (self.graph is not None and self.graph.n != n):
            where = "no graph" if self.graph is None else f"a graph of {self.graph.n} units"
            raise UndirectedError(
                f"Ising: weights are {found} and biases ({n},) with {where}; "
                f"weights must be {wanted}"
            )

    @classmethod
    def create(cls, n: int | Graph) -> "Ising":
        """All-zero parameters on n fully connected units, or on a graph."""
        if not isinstance(n, int | np.integer | Graph):
            raise UndirectedError(
                f"Ising.create: got {n!r:.60}; pass a number of units, or a graph as "
                "core.graph.from_edges(n, edges) makes one"
            )
        if isinstance(n, Graph):
            return cls(jnp.zeros(n.n_edges), jnp.zeros(n.n), n)
        check_counts("Ising.create", n=n)
        return cls(jnp.zeros((n, n)), jnp.zeros(n))

    @classmethod
    def from_spins(
        cls, couplings: Float[Array, "..."], fields: Float[Array, " n"], graph: Graph | None = None
    ) -> "Ising":
        """The same distribution and log Z as -E(s) = sum_{i<j} J_ij s_i s_j + h' s, s in {-1, 1}.

        With s = 2x - 1: w = 4J, b_i = 2h_i - 2 sum_j J_ij, offset = sum_{i<j} J_ij - sum_i h_i.
        Biases of 1e8 and more hold a unit, so couplings that add up to as much are refused.
        """
        couplings, fields = 1.0 * jnp.asarray(couplings), 1.0 * jnp.asarray(fields)
        cls(couplings, fields, graph)  # the shapes are checked
        if not is_traced((couplings, fields)):
            _check_moderate(couplings, fields, graph)
        at_units, total = _coupling_sums(couplings, fields, graph)
        bias = 2 * fields - 2 * at_units
        return cls(4 * couplings, bias, graph, total - fields.sum())

    def to_spins(self) -> tuple[Float[Array, "..."], Float[Array, " n"], Float[Array, ""]]:
        """(J, h, constant) of the same energy over s in {-1, 1}: the inverse of `from_spins`."""
        at_units, total = _coupling_sums(self.weights, self.bias, self.graph)
        couplings = self.weights if self.graph is not None else _symmetric(self.weights)
        fields = 0.5 * self.bias + 0.25 * at_units
        return couplings / 4, fields, self.offset + 0.5 * self.bias.sum() + 0.25 * total

    @property
    def n(self) -> int:
        return self.bias.shape[-1]

    @property
    def layout(self) -> Layout:
        return Layout((Block("visible", 0, self.n),))

    @property
    def couplings(self) -> Float[Array, "..."]:
        """Edge weights, or the symmetric matrix with a zero diagonal."""
        return _symmetric(self.weights) if self.graph is None else self.weights

    def lower(self) -> Potentials:
        """One symmetric or edge group."""
        factor: Factor = (
            Symmetric(self.couplings, 0) if self.graph is None else Edges(self.weights, self.graph)
        )
        return potentials(self.layout, self.bias, (factor,), self.offset)

    def energy(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """E(x)."""
        x = joint_states("Ising.energy", self.layout, x)
        pulls = self._pulls(x)
        return -0.5 * (pulls * x).sum(-1) - x @ self.bias - self.offset

    def free_energy(self, v: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """E(v): nothing is hidden."""
        return self.energy(v)

    def log_odds(self, v: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        """Log-odds of each unit given all others: b + W x."""
        v = visible_states("Ising.log_odds", self.layout, v)
        pulls = self._pulls(v)
        return pulls + row(self.bias, pulls)

    def independent(self, means: Float[Array, " n"] | None = None) -> "Ising":
        """The same units without couplings, at these means (uniform without them)."""
        bias = jnp.zeros_like(self.bias)
        if means is not None:
            p = jnp.clip(unit_means("Ising", means, bias), 0.005, 0.995)
            bias = jnp.log(p / (1 - p))
        return Ising(jnp.zeros_like(self.weights), bias, self.graph, jnp.zeros_like(self.offset))

    def _pulls(self, x: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
        if self.graph is None:
            return x @ self.couplings
        return self.graph.fields(self.weights, x)


@partial(jax.jit, inline=True)
def _symmetric(weights: Float[Array, "n n"]) -> Float[Array, "n n"]:
    w = jnp.asarray(weights)
    return 0.5 * (w + w.T) * (1 - jnp.eye(w.shape[0], dtype=w.dtype))


def _coupling_sums(weights: Array, like: Array, graph: Graph | None) -> tuple[Array, Array]:
    """sum_j w_ij for every unit, and sum_{i<j} w_ij."""
    if graph is None:
        matrix = _symmetric(weights)
        return matrix.sum(1), 0.5 * matrix.sum()
    return graph.fields(weights, jnp.ones_like(like)), weights.sum()


def _check_moderate(couplings: Array, fields: Array, graph: Graph | None) -> None:
    """Refuse couplings of spins that would be read as certainty of single units."""
    pulls = 2 * np.asarray(_coupling_sums(jnp.abs(couplings), fields, graph)[0])
    if (pulls >= HARD).any():
        unit = int(pulls.argmax())
        raise UndirectedError(
            f"Ising.from_spins: the couplings of unit {unit} add up to {pulls[unit] / 2:.3g}; from "
            f"{HARD / 2:.0e} on they would stand for certainty. Divide couplings and fields by one "
            "number, which is a temperature, and say in `given` or by a field of 1e9 which units "
            "are held"
        )
