"""MPLP: convergent message passing on the dual of the linear relaxation of the best state."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from undirected.core.errors import UndirectedError
from undirected.core.graph import Graph, members
from undirected.core.iterate import iterate, largest, status_of
from undirected.core.layout import Block, Layout, Variables
from undirected.core.numerics import NEG_INF, is_traced
from undirected.core.potentials import (
    Beliefs,
    Potentials,
    batch_axes,
    lowered,
    potentials,
    statistics,
    values,
)
from undirected.factors import Edges, TableGroup, require
from undirected.inference.base import Inference, rounded

MOST = 2**16
"""Entries of the largest table that is taken."""


class MPLP(Inference):
    """Coordinate descent on the dual of the LP relaxation (Globerson and Jaakkola 2007).

    Takes every model whose groups can be written as tables. Factors that share no variable are
    updated together, which is the same as in turn. The dual never rises, and for binary pairwise
    models it ends at the optimum of the relaxation. `dual` gives this bound above the best state.

    Args:
        rounds: which factors are updated together; `MPLP.plan(model)` sorts them, as a call outside
            of `jit` does by itself.
        iterations: sweeps over all factors at most.
        tolerance: stop when no message moves by more; None makes all sweeps.
        sizes: numbers of factors that the rounds were made for.

    Returns:
        A call gives `Beliefs` of the decoded state, whose value is `log_z`.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> found = un.MPLP()(model)
        >>> print(found.unary, round(float(found.log_z), 3))
        [1. 1. 1.] 2.0
    """

    rounds: tuple[Int[Array, "C M"], ...] | None = None
    iterations: int | Array = 1000
    tolerance: float | None = 1e-6
    sizes: tuple[int, ...] = eqx.field(static=True, default=())

    @classmethod
    def plan(
        cls, model: Any, iterations: int | Array = 1000, tolerance: float | None = 1e-6
    ) -> "MPLP":
        """Sort the factors of a model, or the edges of a graph, into rounds of disjoint ones."""
        p = _on_graph(model) if isinstance(model, Graph) else lowered("MPLP", model)
        scopes = [np.asarray(group.scopes) for group in _groups(p)]
        rounds = tuple(jnp.asarray(_disjoint(len(p.layout.variables), s)) for s in scopes)
        return cls(rounds, iterations, tolerance, tuple(len(s) for s in scopes))

    @property
    def finds_best_state(self) -> bool:
        return True

    def __call__(self, model: Any, key: Key[Array, ""] | None = None) -> Beliefs:
        p = lowered("MPLP", model)
        if self.rounds is None:
            return MPLP.plan(_known(p), self.iterations, self.tolerance)(p, key)
        return super().__call__(p, key)

    def infer(self, p: Potentials, key: Key[Array, ""] | None) -> Beliefs:
        """Beliefs of the decoded state; the key is not used."""
        _, total, change, count = self._descend(p)
        x = _decoded(p, total)
        status = status_of(change, self.tolerance)
        broken = jnp.where(p.evidence > 0, 1 - x, jnp.where(p.evidence < 0, x, 0.0))
        value = values(p, x[None])[0] + NEG_INF * broken.sum()
        return Beliefs(x, statistics(p, x).factors, value, status, count)

    def dual(self, model: Any) -> Float[Array, "*batch"]:
        """An upper bound of the value of the best state: the dual after the descent."""
        p = lowered("MPLP", model)
        routine = self if self.rounds is not None else MPLP.plan(p, self.iterations, self.tolerance)
        return _dual(routine, p)

    def _descend(self, p: Potentials) -> tuple[list[list[Array]], Array, Array, Array]:
        """Messages (group, slot) -> (F, states); fields with them added; last change; rounds."""
        groups = _groups(p)
        self._check(groups)
        start = [_neutral(group, p.unary.dtype) for group in groups]

        def sweep(state: tuple) -> tuple[tuple, Array]:
            sent, total = state
            after = []
            for group, rounds, own in zip(groups, self.rounds or (), sent, strict=True):
                (own, total), _ = jax.lax.scan(
                    lambda carry, chosen, g=group: (_update(g, carry, chosen), None),
                    (own, total),
                    rounds,
                )
                after.append(own)
            moves = jax.tree.map(lambda a, b: largest(a - b), after, sent)
            return (after, total), jnp.stack([jnp.zeros(()), *jax.tree.leaves(moves)]).max()

        total = state_fields(p)
        for group, sent in zip(groups, start, strict=True):
            for i, own in enumerate(sent):
                scope = group.scopes[:, i]
                place = jnp.where(scope >= 0, scope, len(total))[:, None]
                total = total.at[place, jnp.arange(own.shape[1])[None]].add(own, mode="drop")
        first = start, total
        (sent, total), change, count = iterate(sweep, first, self.iterations, self.tolerance)
        return sent, total, change, count

    def _check(self, groups: Sequence[TableGroup]) -> None:
        sizes = tuple(len(group.scopes) for group in groups)
        if self.sizes != sizes:
            raise UndirectedError(
                f"MPLP: planned for groups of {self.sizes} factors, this model has {sizes}; use "
                "MPLP.plan(model)"
            )


def _neutral(group: TableGroup, dtype: Any) -> list[Float[Array, "F states"]]:
    """The messages to begin with: what each table says of each of its variables alone.

    That is its mean over the allowed states of the others. The descent then does not depend on how
    the same energy is shared out between tables and fields, nor on which state is called 0.
    """
    order = group.logs.ndim - 1
    allowed = group.logs > 0.5 * NEG_INF
    logs = jnp.where(allowed, group.logs, 0.0).astype(dtype)
    messages = []
    for i in range(order):
        others = tuple(k + 1 for k in range(order) if k != i)
        mean = logs.sum(others) / jnp.maximum(allowed.sum(others), 1)
        mean = mean - mean.mean(1, keepdims=True)
        messages.append(jnp.where((group.scopes[:, i] >= 0)[:, None], mean, 0.0))
    return messages


def _update(group: TableGroup, carry: tuple, chosen: Int[Array, " M"]) -> tuple:
    """Share out the max-marginals of the chosen factors evenly among their variables."""
    sent, total = carry
    order, size = len(sent), len(group.scopes)
    scopes = group.scopes.at[chosen].get(mode="clip")
    joint = group.logs.at[chosen].get(mode="clip")
    used = (chosen < size)[:, None]
    old = [own.at[chosen].get(mode="clip") for own in sent]
    cavities = []
    for i, own in enumerate(old):
        cavity = total[scopes[:, i], : own.shape[1]] - own
        cavity = jnp.where((scopes[:, i] >= 0)[:, None], cavity, _idle(group, own))
        cavities.append(cavity)
        shape = [len(chosen)] + [1] * order
        shape[i + 1] = own.shape[1]
        joint = joint + cavity.reshape(shape)
    fresh = []
    for i, cavity in enumerate(cavities):
        most = joint.max(tuple(k + 1 for k in range(order) if k != i))
        # A state that evidence forbids keeps its field: halves of 1e9 would swallow soft numbers.
        new = jnp.where(cavity > 0.5 * NEG_INF, most / order - cavity, 0.0)
        real = used & (scopes[:, i] >= 0)[:, None]
        place = jnp.where(real[:, 0], scopes[:, i], len(total))
        states = jnp.arange(cavity.shape[1])
        total = total.at[place[:, None], states[None]].add(new - old[i], mode="drop")
        fresh.append(sent[i].at[chosen].set(jnp.where(real, new, 0.0), mode="drop"))
    return fresh, total


def _idle(group: TableGroup, own: Array) -> Array:
    """The cavity of a slot that is not used: certain of its idle state."""
    return jnp.where(jnp.arange(own.shape[1])[None] == group.idle, 0.0, NEG_INF)


@eqx.filter_jit
def _dual(routine: MPLP, p: Potentials) -> Float[Array, "*batch"]:
    if p.unary.ndim > 1:
        return jax.vmap(lambda q: _dual(routine, q), in_axes=(batch_axes(p),))(p)
    sent, total, _, _ = routine._descend(p)
    bound, levels = p.offset + total.max(-1).sum(), state_fields(p)
    for group, own in zip(_groups(p), sent, strict=True):
        rest = group.logs
        for i, messages in enumerate(own):
            scope = group.scopes[:, i]
            # States that evidence forbids do not count, whatever message they were left with.
            barred = jnp.where(levels[scope, : messages.shape[1]] < 0.5 * NEG_INF, NEG_INF, 0.0)
            unused = jnp.where((scope < 0)[:, None], _idle(group, messages), barred)
            shape = [len(rest)] + [1] * len(own)
            shape[i + 1] = messages.shape[1]
            rest = rest + (unused - messages).reshape(shape)
        bound = bound + rest.reshape(len(rest), -1).max(-1).sum()
    return bound


def _groups(p: Potentials) -> list[TableGroup]:
    require("MPLP", p, "tables", "use MaxProduct")
    return [group for factor in p.factors for group in factor.tables(p.layout, MOST)]


def state_fields(p: Potentials) -> Float[Array, "variables most"]:
    """The field of every state of every variable; states that do not exist are forbidden."""
    variables = Variables.of(p.layout)
    state = np.arange(int(variables.states.max()))
    exists = state < variables.states[:, None]
    binary = variables.width[:, None] == 1
    place = variables.first[:, None] + np.where(binary | ~exists, 0, state)
    levels, seen = p.unary[place], p.evidence[place]
    on, off = levels + jnp.minimum(seen, 0.0), jnp.where(seen > 0, NEG_INF, 0.0)
    levels = jnp.where(binary & (state == 0), off, on)
    return jnp.where(exists, levels, NEG_INF)


def _decoded(p: Potentials, total: Float[Array, "variables most"]) -> Float[Array, " n"]:
    """The units of the best state of each variable alone; ties are rounded by their fields."""
    variables = Variables.of(p.layout)
    owner = variables.owner
    step = np.arange(len(owner)) - variables.first[owner]
    binary = variables.width[owner] == 1
    odds = total[owner, np.where(binary, 1, step)] - jnp.where(binary, total[owner, 0], 0.0)
    size = 1 + jnp.abs(total.max(-1)).max(initial=0.0)
    return rounded(p, odds, 64 * jnp.finfo(total.dtype).eps * size)


def _known(p: Potentials) -> Potentials:
    if is_traced(p):
        raise UndirectedError("MPLP: inside of jit or vmap its rounds must be given: MPLP.plan")
    return p


def _on_graph(graph: Graph) -> Potentials:
    layout = Layout((Block("units", 0, graph.n),))
    return potentials(layout, jnp.zeros(graph.n), (Edges(jnp.zeros(graph.n_edges), graph),))


def _disjoint(n: int, scopes: Int[np.ndarray, "F d"]) -> Int[np.ndarray, "C M"]:
    """Rounds of factors that share no variable, greedily, padded with the number of factors."""
    taken: list[set[int]] = [set() for _ in range(n)]
    colour = np.zeros(len(scopes), int)
    for f, scope in enumerate(scopes.tolist()):
        own = [v for v in scope if v >= 0]
        used = set().union(*(taken[v] for v in own))
        colour[f] = next(c for c in range(len(used) + 1) if c not in used)
        for v in own:
            taken[v].add(int(colour[f]))
    return members(colour, int(colour.max(initial=-1)) + 1, fill=len(scopes))
