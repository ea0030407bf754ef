"""MPLP: convergent message passing on the dual of the linear relaxation of the best state."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.graph import Graph
from undirected.core.iterate import iterate, largest, settled
from undirected.core.layout import best
from undirected.core.moments import values
from undirected.core.numerics import message
from undirected.core.potentials import Beliefs, Edges, Potentials, Symmetric, statistics


class MPLP(eqx.Module):
    """Coordinate descent on the dual of the LP relaxation, edge by edge (Globerson and Jaakkola
    2007).

    Edges that share no unit are updated together, which is the same as in turn. The dual never
    rises, and for binary pairwise models it ends at the optimum of the relaxation. Make one with
    `MPLP.plan(graph)`; it takes models on that graph, or dense ones if the graph is complete.
    `log_z` is the value of the decoded state; `dual` gives the bound above the best state.
    """

    edges: Int[Array, "E 2"]
    rounds: Int[Array, "C M"]
    iterations: int | Array = 1000
    tolerance: float | None = 1e-6

    @classmethod
    def plan(
        cls, graph: Graph, iterations: int | Array = 1000, tolerance: float | None = 1e-6
    ) -> "MPLP":
        """Sort the edges into rounds of disjoint ones."""
        rounds = _matchings(graph.n, np.asarray(graph.edges))
        return cls(graph.edges, jnp.asarray(rounds, jnp.int32), iterations, tolerance)

    @eqx.filter_jit
    def __call__(self, potentials: Potentials, key: Key[Array, ""] | None = None) -> Beliefs:
        """Beliefs of the decoded state of one instance; the key is not used."""
        p = potentials
        _, total, change, count = self._descend(p)
        x = best(p.layout, total)
        state = statistics(p, x)
        value = values(p, x[None])[0]
        return Beliefs(x, state.factors, value, settled(change, self.tolerance), count)

    @eqx.filter_jit
    def decode(
        self, potentials: Potentials
    ) -> tuple[Float[Array, "batch n"], Bool[Array, " batch"], Int[Array, " batch"]]:
        """Decoded states of many instances that share their factors; which converged, rounds."""
        p = potentials

        def one(unary: Array, evidence: Array) -> tuple[Array, Array, Array]:
            q = eqx.tree_at(lambda q: (q.unary, q.evidence), p, (unary, evidence))
            _, total, change, count = self._descend(q)
            return best(p.layout, total), settled(change, self.tolerance), count

        return jax.vmap(one)(p.unary, p.evidence)

    @eqx.filter_jit
    def dual(self, potentials: Potentials) -> Float[Array, ""]:
        """An upper bound of the value of the best state: the dual after the descent."""
        p = potentials
        sent, total, _, _ = self._descend(p)
        weight = self._weights(p)
        to_i, to_j = sent[:, 0], sent[:, 1]
        options = jnp.stack([jnp.zeros_like(to_i), -to_i, -to_j, weight - to_i - to_j])
        fixed = jnp.where(p.evidence > 0, total - p.evidence, jnp.maximum(total, 0.0))
        return p.offset + fixed.sum() + options.max(0).sum()

    def _descend(self, p: Potentials) -> tuple[Array, Array, Array, Array]:
        """Messages of every edge to its two ends, fields with them added, last change, rounds."""
        weight = self._weights(p)

        def update(carry: tuple[Array, Array], chosen: Array) -> tuple[tuple[Array, Array], None]:
            sent, total = carry
            ends = self.edges.at[chosen].get(mode="clip")
            old = sent.at[chosen].get(mode="clip")
            w = weight.at[chosen].get(mode="clip")
            cavity = total[ends] - old
            other = message(cavity[:, ::-1], w[:, None], 0.0)
            new = 0.5 * (other - cavity)
            inside = (chosen < len(weight))[:, None]
            sent = sent.at[chosen].set(new, mode="drop")
            total = total.at[ends].add(jnp.where(inside, new - old, 0.0))
            return (sent, total), None

        def sweep(carry: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
            after, _ = jax.lax.scan(update, carry, self.rounds)
            return after, largest(after[0] - carry[0])

        start = jnp.zeros((len(weight), 2), p.unary.dtype), p.fields
        (sent, total), change, count = iterate(sweep, start, self.iterations, self.tolerance)
        return sent, total, change, count

    def _weights(self, p: Potentials) -> Float[Array, " E"]:
        if p.layout.is_binary and len(p.factors) == 1:
            match p.factors[0]:
                case Edges(weight=weight) if len(weight) == len(self.edges):
                    return weight
                case Symmetric(weight=weight) if len(weight) == p.layout.n:
                    if len(self.edges) != p.layout.n * (p.layout.n - 1) // 2:
                        raise UndirectedError(
                            f"MPLP: planned for {len(self.edges)} edges, the model has all pairs "
                            f"of {p.layout.n} units; use MPLP.plan(complete({p.layout.n}))"
                        )
                    return weight[self.edges[:, 0], self.edges[:, 1]]
        names = ", ".join(type(f).__name__ for f in p.factors)
        raise UnsupportedFactor(
            f"MPLP: needs one Edges or Symmetric group on binary units and a plan for its graph "
            f"of {len(self.edges)} edges, got {names}"
        )


def _matchings(n: int, edges: np.ndarray) -> np.ndarray:
    """Rounds of edges that share no unit, greedily, padded with the number of edges."""
    taken: list[set[int]] = [set() for _ in range(n)]
    rounds: list[list[int]] = []
    for e, (i, j) in enumerate(edges.tolist()):
        used = taken[i] | taken[j]
        colour = next(c for c in range(len(used) + 1) if c not in used)
        taken[i].add(colour)
        taken[j].add(colour)
        if colour == len(rounds):
            rounds.append([])
        rounds[colour].append(e)
    table = np.full((len(rounds), max(map(len, rounds), default=0)), len(edges))
    for row, members in zip(table, rounds, strict=True):
        row[: len(members)] = members
    return table
