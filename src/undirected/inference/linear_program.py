"""The linear relaxation of the best state of a binary pairwise model, solved by HiGHS."""

from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from undirected.core.errors import NotFinite, UnsupportedFactor
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
    """

    def relax(self, potentials: Potentials) -> Relaxation:
        """Solve the relaxation of one instance."""
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
