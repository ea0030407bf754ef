"""The linear relaxation of the best state of a binary pairwise model, by HiGHS or a minimum cut."""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from undirected.core.errors import NotFinite, UndirectedError, UnsupportedFactor
from undirected.core.potentials import (
    Beliefs,
    Bilinear,
    Edges,
    Potentials,
    Symmetric,
    inner,
    statistics,
)


@dataclass(frozen=True)
class Relaxation:
    """The optimum over locally consistent marginals: of units, of pairs both on, and its value."""

    unary: Float[np.ndarray, " n"]
    pairs: Float[np.ndarray, " E"]
    value: float

    @property
    def state(self) -> Float[np.ndarray, " n"]:
        """Marginals rounded to the nearest value; one half goes to 0."""
        return (self.unary > 0.5).astype(self.unary.dtype)


@dataclass(frozen=True)
class LinearProgram:
    """Best states by the LP relaxation (pmp, eq. 5 without entropy), with rounding.

    Runs on the host, one instance after the other: it cannot be traced by `jit` or `vmap`.
    `solver="cut"` finds an optimum of values 0, 1/2 and 1 as a minimum cut, with weights rounded to
    a part in 10^9 of their sum: the way to relax dense models of hundreds of units.
    """

    solver: Literal["highs", "cut"] = "highs"

    def __post_init__(self) -> None:
        if self.solver not in ("highs", "cut"):
            raise UndirectedError(
                f"linear program: solver is {self.solver!r}; pass 'highs' or 'cut'"
            )

    def relax(self, potentials: Potentials) -> Relaxation:
        """Solve the relaxation of one instance."""
        if self.solver == "highs":
            return self._highs(potentials)
        p = potentials
        edges, weight = pairs_of(p)
        unary, evidence = np.asarray(p.unary, float), np.asarray(p.evidence)
        held = 1 + np.abs(unary) + _at_ends(edges, np.abs(weight), len(unary))
        x = minimum_cut(np.where(evidence == 0, unary, np.sign(evidence) * held), edges, weight)
        i, j = edges.T
        pairs = np.where(weight > 0, np.minimum(x[i], x[j]), np.maximum(x[i] + x[j] - 1, 0.0))
        return Relaxation(x, pairs, float(p.offset) + float(unary @ x + weight @ pairs))

    def _highs(self, potentials: Potentials) -> Relaxation:
        from scipy.optimize import linprog
        from scipy.sparse import coo_array

        p = potentials
        edges, weight = pairs_of(p)
        n, m = p.layout.n, len(edges)
        unary = np.asarray(p.unary, float)
        row, e = np.arange(m), n + np.arange(m)
        i, j = edges.T
        # mu_ij <= mu_i, mu_ij <= mu_j, mu_i + mu_j - mu_ij <= 1.
        rows = np.concatenate([row, row, row + m, row + m, row + 2 * m, row + 2 * m, row + 2 * m])
        columns = np.concatenate([e, i, e, j, i, j, e])
        signs = np.repeat([1.0, -1.0, 1.0, -1.0, 1.0, 1.0, -1.0], m)
        limits = np.concatenate([np.zeros(2 * m), np.ones(m)])
        evidence = np.asarray(p.evidence)
        low, high = (evidence > 0).astype(float), (evidence >= 0).astype(float)
        bounds = np.concatenate([np.stack([low, high], 1), np.tile([0.0, 1.0], (m, 1))])
        found = linprog(
            -np.concatenate([unary, weight]),
            A_ub=coo_array((signs, (rows, columns)), (3 * m, n + m)).tocsr() if m else None,
            b_ub=limits if m else None,
            bounds=bounds,
            method="highs",
        )
        if found.status != 0:
            raise NotFinite(f"linear program: HiGHS stopped without an optimum: {found.message}")
        return Relaxation(found.x[:n], found.x[n:], float(p.offset) - found.fun)

    def __call__(self, potentials: Potentials, key: Key[Array, ""] | None = None) -> Beliefs:
        """Beliefs of the rounded state; `log_z` is its value. `relax` has the relaxation itself."""
        p = potentials
        state = statistics(p, jnp.asarray(self.relax(p).state, p.unary.dtype))
        return eqx.tree_at(lambda b: b.log_z, state, inner(p, state))

    def decode(
        self, potentials: Potentials
    ) -> tuple[Float[Array, "batch n"], Bool[Array, " batch"], Int[Array, " batch"]]:
        """Rounded states of many instances that share their factors."""
        p = potentials
        rows = [
            self.relax(eqx.tree_at(lambda q: (q.unary, q.evidence), p, pair)).state
            for pair in zip(np.asarray(p.unary), np.asarray(p.evidence), strict=True)
        ]
        x = jnp.asarray(np.stack(rows), p.unary.dtype)
        return x, jnp.ones(len(rows), bool), jnp.ones(len(rows), jnp.int32)


def minimum_cut(
    unary: Float[np.ndarray, " n"], edges: Int[np.ndarray, "E 2"], weight: Float[np.ndarray, " E"]
) -> Float[np.ndarray, " n"]:
    """Marginals 0, 1/2 or 1 that maximise the relaxation of unary x + sum of w_ij x_i x_j.

    Every unit and its complement are nodes of a network (roof duality: Hammer, Hansen & Simeone
    1984). A unit is 1 where it alone of the two is on the side of the source, 1/2 where both are
    or neither is.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    n = len(unary)
    source, sink = 2 * n, 2 * n + 1
    i, j = edges.T
    attracts = weight > 0
    gain = unary + 0.5 * _at_ends(edges, np.maximum(weight, 0.0), n)
    # An arc (u, v, c) costs c where u is 1 and v is 0; each cost is shared with its mirror image.
    partner, price = np.where(attracts, j, j + n), np.where(attracts, 0.25, 0.5) * np.abs(weight)
    k, up, down = np.arange(n), 0.5 * np.maximum(gain, 0.0), 0.5 * np.maximum(-gain, 0.0)
    ends = [(i, partner, price), (_mirror(partner, n), i + n, price)]
    a, b = i[attracts], j[attracts]
    ends += [(b, a, price[attracts]), (a + n, b + n, price[attracts])]
    ends += [(np.full(n, source), k, up), (k + n, np.full(n, sink), up)]
    ends += [(np.full(n, source), k + n, down), (k, np.full(n, sink), down)]
    tail, head, capacity = (np.concatenate(part) for part in zip(*ends, strict=True))
    unit = max(2 * (up + down).sum(), capacity.max(initial=0.0), 1e-300) / 2**30
    whole = np.rint(capacity / unit).astype(np.int32)
    network = coo_array((whole, (tail, head)), (2 * n + 2, 2 * n + 2)).tocsr()
    left = network - maximum_flow(network, source, sink).flow
    left.data = np.maximum(left.data, 0)
    left.eliminate_zeros()
    reached = np.zeros(2 * n + 2, bool)
    reached[breadth_first_order(left, source, return_predecessors=False)] = True
    return 0.5 + 0.5 * (reached[:n].astype(float) - reached[n : 2 * n])


def _mirror(node: Int[np.ndarray, " E"], n: int) -> Int[np.ndarray, " E"]:
    return np.where(node < n, node + n, node - n)


def _at_ends(
    edges: Int[np.ndarray, "E 2"], value: Float[np.ndarray, " E"], n: int
) -> Float[np.ndarray, " n"]:
    """For every unit the sum of the values of its edges."""
    return np.bincount(edges.ravel(), np.repeat(value, 2), n)


def pairs_of(p: Potentials) -> tuple[Int[np.ndarray, "E 2"], Float[np.ndarray, " E"]]:
    """All coupled pairs of units and their weights, from every pairwise group."""
    if not p.layout.is_binary:
        raise UnsupportedFactor("linear program: takes binary units alone")
    edges, weights = [np.zeros((0, 2), int)], [np.zeros(0)]
    for factor in p.factors:
        blocks = p.layout.blocks
        match factor:
            case Edges():
                pairs, weight = np.asarray(factor.graph.edges), np.asarray(factor.weight)
            case Symmetric():
                upper = np.triu_indices(len(factor.weight), 1)
                pairs = np.stack(upper, 1) + blocks[factor.block].start
                weight = np.asarray(factor.weight)[upper]
            case Bilinear():
                places = np.indices(factor.weight.shape).reshape(2, -1).T
                starts = [blocks[factor.rows].start, blocks[factor.cols].start]
                pairs, weight = places + np.asarray(starts), np.asarray(factor.weight).ravel()
            case _:
                raise UnsupportedFactor(
                    f"linear program: {type(factor).__name__} is not a pairwise group"
                )
        edges.append(pairs)
        weights.append(weight)
    return np.concatenate(edges), np.concatenate(weights).astype(float)
