"""Tree-reweighted belief propagation: marginals and an upper bound of log Z on pairwise models."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from undirected.core.errors import UndirectedError, UnsupportedFactor
from undirected.core.iterate import iterate, largest, status_of
from undirected.core.layout import check_discrete
from undirected.core.numerics import NEG_INF, is_traced
from undirected.core.potentials import Beliefs, Potentials, lowered
from undirected.factors import Factor, TableGroup, require
from undirected.factors.sums import sum_axes
from undirected.inference.base import Inference
from undirected.inference.mplp import state_fields

MOST = 2**16
"""Entries of the largest table that is taken."""


class TreeReweighted(Inference):
    """Sum-product with every factor weighted by how often it is in a spanning tree (Wainwright,
    Jaakkola and Willsky 2005), on models whose factors join one or two variables.

    Where it has converged `log_z` is an upper bound of log Z, whatever the signs of the couplings,
    and belongs to the one optimum of a convex problem. On a tree every factor has probability 1,
    and it is belief propagation.

    Args:
        appearance: for each group of tables the probabilities (F,) of its factors in a spanning
            tree drawn from any distribution; `TreeReweighted.plan(model)` finds those of uniform
            spanning trees, as a call outside of `jit` does by itself.
        iterations: rounds at most.
        tolerance: stop when no field of a state moves by more; None makes all rounds.
        damping: the share of the old messages kept.

    Returns:
        A call gives beliefs whose `log_z` is the bound.

    Example:
        >>> import undirected as un
        >>> ring = un.quadratic_model(dict.fromkeys("abc", 0), {("a", "b"): -1, ("b", "c"): -1,
        ...                                                     ("a", "c"): -1})
        >>> bool(un.TreeReweighted()(ring).log_z > un.Exact()(ring).log_z)
        True
    """

    appearance: tuple[Float[Array, " F"], ...] | None = None
    iterations: int | Array = 1000
    tolerance: float | None = 1e-5
    damping: float = 0.5

    def __check_init__(self) -> None:
        if not 0 <= self.damping < 1:
            raise UndirectedError(f"tree reweighted: damping {self.damping} is not in [0, 1)")

    @classmethod
    def plan(
        cls,
        model: Any,
        iterations: int | Array = 1000,
        tolerance: float | None = 1e-5,
        damping: float = 0.5,
    ) -> "TreeReweighted":
        """The routine with how often each factor of a model is in a uniform spanning tree."""
        p = lowered("tree reweighted", model)
        groups = [group for own in _groups(p) for group in own]
        found = appearance([np.asarray(g.scopes) for g in groups], len(p.layout.variables))
        rates = tuple(jnp.asarray(rate, p.unary.dtype) for rate in found)
        return cls(rates, iterations, tolerance, damping)

    def __call__(self, model: Any, key: Key[Array, ""] | None = None) -> Beliefs:
        p = lowered("tree reweighted", model)
        if self.appearance is not None:
            return super().__call__(p, key)
        if is_traced(p):
            raise UndirectedError(
                "tree reweighted: inside of jit or vmap the appearance of edges must be given: "
                "TreeReweighted.plan"
            )
        plan = TreeReweighted.plan(p, self.iterations, self.tolerance, self.damping)
        return plan(p, key)

    def infer(self, p: Potentials, key: Key[Array, ""] | None) -> Beliefs:
        """Nothing here is random: the key is not used."""
        own = _groups(p)
        groups = [group for some in own for group in some]
        rates = self._rates(groups)
        start = [
            tuple(jnp.zeros((len(g.scopes), k), p.unary.dtype) for k in g.logs.shape[1:])
            for g in groups
        ]
        levels = state_fields(p)

        def step(state: tuple[list, Array]) -> tuple[tuple[list, Array], Array]:
            sent, total = state
            fresh = [
                _send(g, rate, old, total, self.damping)
                for g, rate, old in zip(groups, rates, sent, strict=True)
            ]
            after = _totals(levels, groups, rates, fresh)
            moved = jnp.where(levels > 0.5 * NEG_INF, after - total, 0.0)
            return (fresh, after), largest(moved)

        found, change, count = iterate(step, (start, levels), self.iterations, self.tolerance)
        sent, total = found
        status = status_of(change, self.tolerance)
        return _beliefs(p, own, rates, sent, total, status, count)

    def _rates(self, groups: list[TableGroup]) -> tuple[Float[Array, " F"], ...]:
        rates = self.appearance or ()
        wanted = [len(group.scopes) for group in groups]
        if [len(rate) for rate in rates] != wanted:
            raise UndirectedError(
                f"tree reweighted: probabilities of {[len(rate) for rate in rates]} factors for a "
                f"model of {wanted}; make them with TreeReweighted.plan"
            )
        return rates


def appearance(
    scopes: list[Int[np.ndarray, "F d"]], variables: int
) -> list[Float[np.ndarray, " F"]]:
    """How often each factor is an edge of a uniform spanning tree: its effective resistance.

    Factors of one variable are in every tree. Several factors on one pair share its probability.
    """
    edges = np.concatenate([np.zeros((0, 2), int), *(s for s in scopes if s.shape[1] == 2)])
    laplacian = np.zeros((variables, variables))
    for i, j in (edges.T, edges.T[::-1]):
        np.add.at(laplacian, (i, i), 1.0)
        np.add.at(laplacian, (i, j), -1.0)
    inverse = np.linalg.pinv(laplacian, rcond=1e-12, hermitian=True)
    found = []
    for scope in scopes:
        i, j = scope[:, 0], scope[:, -1]
        resistance = inverse[i, i] + inverse[j, j] - 2 * inverse[i, j]
        found.append(np.ones(len(scope)) if scope.shape[1] == 1 else np.clip(resistance, 1e-9, 1))
    return found


def _groups(p: Potentials) -> list[list[TableGroup]]:
    """The tables of every factor group, all of one or two variables."""
    check_discrete("tree reweighted", *p.layout.blocks)
    require("tree reweighted", p, "tables", "use SumProduct")
    return [_small(factor, factor.tables(p.layout, MOST)) for factor in p.factors]


def _small(factor: Factor, groups: list[TableGroup]) -> list[TableGroup]:
    for group in groups:
        padded = not is_traced(group.scopes) and bool((np.asarray(group.scopes) < 0).any())
        if group.scopes.shape[1] > 2 or padded:
            raise UnsupportedFactor(
                f"tree reweighted: a {type(factor).__name__} group joins {group.scopes.shape[1]} "
                "variables, and trees are made of pairs; use SumProduct or MPLP"
            )
    return groups


def _ends(group: TableGroup, sent: tuple[Array, ...], total: Array) -> list[Array]:
    """The fields of each variable of the factors without the factor's own message."""
    return [total[group.scopes[:, i], : own.shape[1]] - own for i, own in enumerate(sent)]


def _send(
    group: TableGroup, rate: Array, sent: tuple[Array, ...], total: Array, damping: float
) -> tuple[Array, ...]:
    """The new messages of the factors, whose logs count as many times more as they are rare."""
    ends = _ends(group, sent, total)
    if len(ends) == 1:
        fresh = [group.logs]
    else:
        logs = group.logs / rate[:, None, None]
        fresh = [
            sum_axes(logs + ends[1][:, None, :], (2,), 1.0),
            sum_axes(logs + ends[0][:, :, None], (1,), 1.0),
        ]
    pairs = zip(fresh, sent, strict=True)
    return tuple(
        (1 - damping) * jnp.maximum(new - new.max(-1, keepdims=True), NEG_INF) + damping * old
        for new, old in pairs
    )


def _joint(group: TableGroup, rate: Array, ends: list[Array]) -> Float[Array, "F *states"]:
    """Log-beliefs of the joint states of every factor, not normalised."""
    if len(ends) == 1:
        return group.logs + ends[0]
    return group.logs / rate[:, None, None] + ends[0][:, :, None] + ends[1][:, None, :]


def _totals(
    levels: Array, groups: list[TableGroup], rates: tuple[Array, ...], sent: list
) -> Float[Array, "variables most"]:
    """Fields with all messages added, each as often as its factor appears."""
    total = levels
    for group, rate, messages in zip(groups, rates, sent, strict=True):
        for i, own in enumerate(messages):
            place = group.scopes[:, i, None], jnp.arange(own.shape[1])[None]
            total = total.at[place].add(rate[:, None] * own)
    return total


def _beliefs(
    p: Potentials,
    own: list[list[TableGroup]],
    rates: tuple[Array, ...],
    sent: list,
    total: Array,
    status: Array,
    count: Array,
) -> Beliefs:
    """log Z is the sum over variables, and over factors of what they add to their variables."""
    alone = sum_axes(total, (1,), 1.0)
    log_z, factors, position = p.offset + alone.sum(), [], 0
    for factor, groups in zip(p.factors, own, strict=True):
        shares = []
        for group in groups:
            rate, messages = rates[position], sent[position]
            position += 1
            joint = _joint(group, rate, _ends(group, messages, total))
            axes = tuple(range(1, joint.ndim))
            normaliser = sum_axes(joint, axes, 1.0)
            added = normaliser - alone[group.scopes].sum(1)
            log_z = log_z + (rate * added).sum()
            shares.append(jnp.exp(joint - normaliser.reshape(-1, *(1 for _ in axes))))
        factors.append(factor.from_tables(p.layout, shares))
    unary = _unit_means(p, jax.nn.softmax(total, -1))
    return Beliefs(unary, tuple(factors), log_z, status, count)


def _unit_means(p: Potentials, shares: Float[Array, "variables most"]) -> Float[Array, " n"]:
    """The probability that each unit is on."""
    variables = p.layout.variables
    owner = variables.owner
    step = np.arange(len(owner)) - variables.first[owner]
    return shares[owner, np.where(variables.width[owner] == 1, 1, step)]
