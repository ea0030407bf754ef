"""The linear relaxation of the best state of a discrete model, by HiGHS or a minimum cut."""

from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from undirected.core.errors import NotFinite, UndirectedError, UnsupportedFactor
from undirected.core.layout import Layout, check_binary
from undirected.core.numerics import NEG_INF
from undirected.core.potentials import Beliefs, Potentials, Status, inner, lowered, statistics
from undirected.factors import Factor, Pairs, require
from undirected.inference.base import Inference, rounded
from undirected.inference.elimination import state_levels, table_list

MOST = 2**16
"""Entries of the largest table that is taken."""
ALMOST = 1e-6
"""How near to 0, 1/2 or 1 a marginal of the relaxation must be to count as such."""


@dataclass(frozen=True)
class Relaxation:
    """The optimum over locally consistent marginals: of units, and its value.

    `pairs` are the marginals of pairs both on, for binary pairwise models.
    """

    unary: Float[np.ndarray, " n"]
    pairs: Float[np.ndarray, " E"]
    value: float

    @property
    def integral(self) -> bool:
        """Whether the optimum is a state: then it is a best one."""
        return bool(np.abs(self.unary - np.rint(self.unary)).max(initial=0.0) < ALMOST)


class LinearProgram(Inference):
    """Best states by the LP relaxation (pmp, eq. 5 without entropy), with rounding.

    Takes every model whose groups can be written as tables. Where the optimum of the relaxation is
    no state it is rounded (one half by the field that the unit feels there), and the status is
    FRACTIONAL. Runs on the host, one instance after the other: it cannot be traced by `jit` or
    `vmap`.

    Args:
        solver: "highs"; or "cut", for binary pairwise models: an optimum of values 0, 1/2 and 1 as
            a minimum cut, with weights rounded to a part in 10^9 of their sum. That is the way to
            relax dense models of hundreds of units.

    Returns:
        A call gives `Beliefs` of the rounded state, whose value is `log_z`; `relax` gives the
        relaxation itself.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> found = un.LinearProgram("cut")(model)
        >>> print(found.unary, found.converged)
        [1. 1. 1.] True
    """

    solver: Literal["highs", "cut"] = "highs"

    on_host = True

    def __check_init__(self) -> None:
        if self.solver not in ("highs", "cut"):
            raise UndirectedError(
                f"linear program: solver is {self.solver!r}; pass 'highs' or 'cut'"
            )

    @property
    def finds_best_state(self) -> bool:
        return True

    def infer(self, p: Potentials, key: Key[Array, ""] | None) -> Beliefs:
        """Beliefs of the rounded state; `log_z` is its value. `relax` has the relaxation itself."""
        found = self.relax(p)
        x = rounded(p, jnp.asarray(found.unary - 0.5, p.unary.dtype), ALMOST)
        state = statistics(p, x)
        status = int(Status.CONVERGED if found.integral else Status.FRACTIONAL)
        return eqx.tree_at(
            lambda b: (b.log_z, b.status), state, (inner(p, state), jnp.asarray(status))
        )

    def relax(self, model: Any) -> Relaxation:
        """Solve the relaxation of one instance."""
        p = lowered("linear program", model)
        if p.unary.ndim > 1:
            raise UndirectedError(
                f"linear program: got potentials of {p.unary.shape[:-1]} instances; relax one at a "
                "time (a call of the routine takes many)"
            )
        if self.solver == "cut":
            return _by_cut(p)
        if p.layout.is_binary and all(factor.pairwise for factor in p.factors):
            return _by_pairs(p)
        return _by_tables(p)


def _by_cut(p: Potentials) -> Relaxation:
    edges, weight, unary, constant = pairs_of(p)
    evidence = np.asarray(p.evidence)
    i, j = edges.T
    held = 1 + np.abs(unary) + _at_ends(i, j, np.abs(weight), len(unary))
    x = minimum_cut(np.where(evidence == 0, unary, np.sign(evidence) * held), edges, weight)
    pairs = np.where(weight > 0, np.minimum(x[i], x[j]), np.maximum(x[i] + x[j] - 1, 0.0))
    return Relaxation(x, pairs, constant + float(unary @ x + weight @ pairs))


def _by_pairs(p: Potentials) -> Relaxation:
    """Binary pairwise models: one number for each unit and each pair."""
    from scipy.sparse import coo_array

    edges, weight, unary, constant = pairs_of(p)
    n, m = p.layout.n, len(edges)
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
    matrix = coo_array((signs, (rows, columns)), (3 * m, n + m)).tocsr()
    upper = {"A_ub": matrix, "b_ub": limits} if m else {}
    x, value = _solve(np.concatenate([unary, weight]), bounds, **upper)
    return Relaxation(x[:n], x[n:], constant + value)


def _by_tables(p: Potentials) -> Relaxation:
    """Any discrete model: a number for each state of each variable and each entry of each table."""
    from scipy.sparse import coo_array

    require("linear program", p, "tables", "use MaxProduct")
    levels, width = state_levels(p), p.layout.variables.width
    tables = [item for factor in p.factors for item in table_list(factor, p.layout, MOST)]
    sizes = np.array([len(own) for own in levels] + [logs.size for _, logs in tables])
    start = np.cumsum(sizes) - sizes
    V = len(levels)
    # Each variable's states sum to 1; each table summed over the others gives each variable's.
    rows = [np.repeat(np.arange(V), sizes[:V])]
    columns, signs = [np.arange(sizes[:V].sum())], [np.ones(sizes[:V].sum())]
    count = V
    for (scope, logs), first in zip(tables, start[V:], strict=True):
        states = np.indices(logs.shape).reshape(logs.ndim, -1)
        for axis, v in enumerate(scope):
            own = np.arange(sizes[v])
            rows += [count + states[axis], count + own]
            columns += [first + np.arange(logs.size), start[v] + own]
            signs += [np.ones(logs.size), -np.ones(len(own))]
            count += len(own)
    gain = np.concatenate([*levels, *(logs.ravel() for _, logs in tables)])
    bounds = np.stack([np.zeros(len(gain)), (gain > 0.5 * NEG_INF).astype(float)], 1)
    place = np.concatenate(rows), np.concatenate(columns)
    matrix = coo_array((np.concatenate(signs), place), (count, len(gain))).tocsr()
    sums = np.concatenate([np.ones(V), np.zeros(count - V)])
    gain = np.where(bounds[:, 1] > 0, gain, 0.0)
    x, value = _solve(gain, bounds, A_eq=matrix, b_eq=sums)
    parts = np.split(x[: sizes[:V].sum()], np.cumsum(sizes[: V - 1]))
    unary = np.concatenate(
        [part[1:] if w == 1 else part for part, w in zip(parts, width, strict=True)]
    )
    return Relaxation(unary, np.zeros(0), float(p.offset) + value)


def _solve(
    gain: Float[np.ndarray, " m"], bounds: Float[np.ndarray, "m 2"], **constraints: Any
) -> tuple[Float[np.ndarray, " m"], float]:
    """The largest gain within bounds and constraints, and where it is."""
    from scipy.optimize import linprog

    found = linprog(-gain, bounds=bounds, method="highs", **constraints)
    if found.status != 0:
        raise NotFinite(f"linear program: HiGHS stopped without an optimum: {found.message}")
    return found.x, -found.fun


def minimum_cut(
    unary: Float[np.ndarray, " n"], edges: Int[np.ndarray, "E 2"], weight: Float[np.ndarray, " E"]
) -> Float[np.ndarray, " n"]:
    """Marginals 0, 1/2 or 1 that maximise the relaxation of unary x + sum of w_ij x_i x_j."""
    found = np.full(len(unary), 0.5)
    free, unary, edges, weight = _settle(found, unary, edges, weight)
    found[free] = _roof_dual(unary, edges, weight)
    return found


def _settle(
    found: Float[np.ndarray, " n"],
    unary: Float[np.ndarray, " n"],
    edges: Int[np.ndarray, "E 2"],
    weight: Float[np.ndarray, " E"],
) -> tuple[Int[np.ndarray, " m"], np.ndarray, np.ndarray, np.ndarray]:
    """Write down the units whose fields decide whatever the others are: the problem that is left.

    A unit that is settled changes the fields of others, so that more may follow. What is left is
    the numbers of the other units, their fields, and the edges and weights between them.
    """
    free, (i, j) = np.arange(len(unary)), edges.T
    while len(free):
        on = unary + _at_ends(i, j, np.minimum(weight, 0.0), len(free)) > 0
        open_ = ~on & (unary + _at_ends(i, j, np.maximum(weight, 0.0), len(free)) >= 0)
        if open_.all():
            break
        found[free] = np.where(open_, 0.5, on)
        unary = unary + np.bincount(i, weight * on[j], len(free))
        unary = unary + np.bincount(j, weight * on[i], len(free))
        kept, number = np.flatnonzero(open_[i] & open_[j]), np.cumsum(open_) - 1
        i, j, weight = number[i[kept]], number[j[kept]], weight[kept]
        free, unary = free[open_], unary[open_]
    return free, unary, np.stack([i, j], 1), weight


def _roof_dual(
    unary: Float[np.ndarray, " n"], edges: Int[np.ndarray, "E 2"], weight: Float[np.ndarray, " E"]
) -> Float[np.ndarray, " n"]:
    """The marginals by a network.

    Every unit and its complement are nodes (roof duality: Hammer, Hansen & Simeone 1984). A unit is
    1 where it alone of the two is on the side of the source, 1/2 where both are or neither is.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    n = len(unary)
    source, sink = 2 * n, 2 * n + 1
    i, j = edges.T
    attracts = weight > 0
    gain = unary + 0.5 * _at_ends(i, j, np.maximum(weight, 0.0), n)
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
    i: Int[np.ndarray, " E"], j: Int[np.ndarray, " E"], value: Float[np.ndarray, " E"], n: int
) -> Float[np.ndarray, " n"]:
    """For every unit the sum of the values of its edges."""
    return np.bincount(i, value, n) + np.bincount(j, value, n)


def _pairs(factor: Factor, layout: Layout) -> Pairs:
    """The couplings of two binary units of a group, or a refusal that says what takes it."""
    try:
        check_binary(f"{type(factor).__name__}: pairs", *layout.blocks)
        return factor.pairs(layout)
    except UnsupportedFactor as error:
        raise UnsupportedFactor(
            f"linear program: a minimum cut takes couplings of two binary units ({error}); use "
            "LinearProgram('highs') or MaxProduct"
        ) from None


def pairs_of(
    p: Potentials,
) -> tuple[Int[np.ndarray, "E 2"], Float[np.ndarray, " E"], Float[np.ndarray, " n"], float]:
    """All coupled pairs of binary units, their weights, the fields of all units, the constant."""
    edges, weights = [np.zeros((0, 2), int)], [np.zeros(0)]
    unary, constant = np.asarray(p.unary, float), float(p.offset)
    for factor in p.factors:
        found = _pairs(factor, p.layout)
        edges.append(np.asarray(found.edges))
        weights.append(np.asarray(found.weight, float))
        unary, constant = unary + np.asarray(found.field), constant + float(found.constant)
    check_binary("linear program: a minimum cut", *p.layout.blocks)  # there may be no group
    return np.concatenate(edges), np.concatenate(weights), unary, constant
