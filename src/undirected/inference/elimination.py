"""Exact inference by summing variables out one after the other, for graphs of small tree-width."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from math import prod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from undirected.core.errors import NotFinite, UndirectedError
from undirected.core.layout import Layout, Variables, to_units
from undirected.core.numerics import NEG_INF
from undirected.core.potentials import Beliefs, Potentials, lowered, statistics
from undirected.factors import Factor, require
from undirected.factors.wired import HARD
from undirected.inference.base import Decoded, Inference, finished, instance
from undirected.inference.exact import narrow_order

IMPOSSIBLE = "elimination: every state is forbidden by a constraint or by evidence"
Scope = tuple[int, ...]
Logs = Float[np.ndarray, "*states"]
Shares = Float[np.ndarray, "*states"]


class Elimination(Inference):
    """Exact marginals, best states (temperature 0) and log Z of discrete models.

    Variables are summed out one after the other: at each time the one that leaves the smallest
    table, or along the graph, whichever is cheaper. Takes every group that can be written as
    tables. Runs on the host in double precision, one instance at a time: it cannot be traced by
    `jit` or `vmap`, and needs no compilation.

    Args:
        temperature: 1 for marginals, 0 for a best state.
        most: entries, of eight bytes, that all tables together may have.

    Returns:
        A call gives `Beliefs`; `decode` gives best states.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> routine = un.Elimination()
        >>> print(round(float(routine(model).log_z), 3), routine.decode(model).x)
        2.753 [1. 1. 1.]
    """

    temperature: float = 1.0
    most: int = 2**27

    on_host = True

    @property
    def finds_best_state(self) -> bool:
        return True

    def infer(self, p: Potentials, key: Key[Array, ""] | None) -> Beliefs:
        """Nothing here is random: the key is not used."""
        T = self.temperature
        plan = _Plan.of(p, [_fields(p)], self.most)
        value = plan.tree.collect(plan.tables[0], T)
        log_z = jnp.asarray(float(p.offset) + value, p.unary.dtype)
        if T == 0:
            state = statistics(p, to_units(p.layout, plan.best()).astype(p.unary.dtype))
            return eqx.tree_at(lambda b: b.log_z, state, log_z)
        shares = plan.shares()
        width = Variables.of(p.layout).width
        unary = np.concatenate([next(shares)[1 if w == 1 else 0 :] for w in width])
        means = tuple(_mean(factor, p.layout, shares, self.most) for factor in p.factors)
        return Beliefs(jnp.asarray(unary, p.unary.dtype), means, log_z, *finished())

    def decode(self, model: Any, key: Key[Array, ""] | None = None) -> Decoded:
        """Best states of one or many instances that share their factors."""
        p = lowered("elimination", model)
        leading, flat = p.unary.shape[:-1], (-1, p.layout.n)
        rows = p.unary.reshape(flat), p.evidence.reshape(flat)
        q = eqx.tree_at(lambda q: (q.unary, q.evidence), p, rows)
        plan = _Plan.of(q, [_fields(instance(q, i)) for i in range(len(q.unary))], self.most)
        found = []
        for tables in plan.tables:
            plan.tree.collect(tables, 0.0)
            found.append(plan.best())
        x = to_units(p.layout, np.stack(found)).astype(p.unary.dtype)
        how = (jnp.full(leading, value) for value in finished())
        return Decoded(x.reshape(*leading, p.layout.n), *how)


@dataclass(frozen=True)
class _Plan:
    """An elimination of the variables that evidence leaves open, and the tables of each instance.

    States that are excluded in all instances are left out of the tables, and with one state left a
    variable is. `allowed` are the states that stay.
    """

    scopes: list[Scope]
    states: Int[np.ndarray, " variables"]
    allowed: list[Int[np.ndarray, " k"]]
    tree: "_Tree"
    tables: list[list[Logs]]

    @classmethod
    def of(cls, p: Potentials, each: list[list[Logs]], most: int) -> "_Plan":
        variables = Variables.of(p.layout)
        allowed = [
            np.flatnonzero(np.isfinite(np.stack(own)).any(0)) for own in zip(*each, strict=True)
        ]
        if any(len(states) == 0 for states in allowed):
            raise NotFinite(IMPOSSIBLE)
        require("elimination", p, "tables", "use Exact, or belief propagation")
        both = [item for factor in p.factors for item in table_list(factor, p.layout, most)]
        both = [(scope, _forbid(logs)) for scope, logs in both]
        scopes = [*((v,) for v in range(len(variables))), *(scope for scope, _ in both)]
        open_ = [tuple(v for v in scope if len(allowed[v]) > 1) for scope in scopes]
        sizes = np.array([len(states) for states in allowed])

        def cut(scope: Scope, logs: Logs) -> Logs:
            kept = logs[np.ix_(*(allowed[v] for v in scope))]
            return kept.reshape([sizes[v] for v in scope if sizes[v] > 1])

        shared = [cut(*item) for item in both]
        tables = [[*(cut((v,), own) for v, own in enumerate(one)), *shared] for one in each]
        return cls(scopes, variables.states, allowed, _Tree(sizes, open_, most), tables)

    def best(self) -> Int[np.ndarray, " variables"]:
        """The state whose value the tree found at T = 0."""
        state = self.tree.best()
        return np.array([states[i] for states, i in zip(self.allowed, state, strict=True)])

    def shares(self) -> Iterator[Shares]:
        """The joint probabilities of the variables of every table."""
        for scope, share in zip(self.scopes, self.tree.distribute(), strict=True):
            kept = [self.allowed[v] for v in scope]
            full = np.zeros([self.states[v] for v in scope])
            full[np.ix_(*kept)] = share.reshape([len(states) for states in kept])
            yield full


@dataclass
class _Tree:
    """Cliques of variables, one for each variable, which is summed out of it.

    A clique is sorted by the time its variables go, so that all tables meet by broadcasting.
    """

    states: Int[np.ndarray, " variables"]
    scopes: list[Scope]
    most: int
    cliques: list[Scope] = field(init=False)
    when: dict[int, int] = field(init=False)
    joints: dict[int, Logs] = field(init=False, default_factory=dict)
    sent: dict[int, Logs] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.cliques = self._order()
        self.when = {clique[0]: time for time, clique in enumerate(self.cliques)}
        self.cliques = [tuple(sorted(c, key=self.when.__getitem__)) for c in self.cliques]

    def _order(self) -> list[Scope]:
        """Each variable with its neighbours at the time it goes, in the cheapest order found."""
        edges = {(a, b) for scope in self.scopes for a, b in combinations(sorted(scope), 2)}
        along = narrow_order(len(self.states), np.array(sorted(edges), int).reshape(-1, 2))
        tries = [self._go(edges), self._go(edges, np.argsort(along))]
        found = [one for one in tries if one is not None]
        if not found:
            raise UndirectedError(
                f"elimination: its tables would have more than {self.most:,} entries; use belief "
                "propagation or sampling, or raise `most`"
            )
        return min(found)[1]

    def _go(
        self, edges: set[tuple[int, int]], place: Int[np.ndarray, " variables"] | None = None
    ) -> tuple[int, list[Scope]] | None:
        """The cliques when variables go by `place`, or first where they leave the smallest table.

        With the number of entries of all tables; None where that is beyond the limit.
        """
        near: list[set[int]] = [set() for _ in self.states]
        for a, b in edges:
            near[a].add(b)
            near[b].add(a)

        def turn(v: int) -> int:
            return self._size((v, *near[v])) if place is None else int(place[v])

        queue = [(turn(v), v) for v in range(len(near))]
        heapq.heapify(queue)
        total, cliques, gone = 0, [], set()
        while queue:
            now, v = heapq.heappop(queue)
            if v in gone or now != turn(v):
                continue  # there is a newer entry
            clique = (v, *near[v])
            total += self._size(clique)
            if total > self.most:
                return None
            gone.add(v)
            cliques.append(clique)
            for w in near[v]:
                near[w] |= near[v]
                near[w] -= {v, w}
            for w in near[v] if place is None else ():
                heapq.heappush(queue, (turn(w), w))
        return total, cliques

    def _size(self, clique: Scope) -> int:
        return prod(int(self.states[v]) for v in clique)

    def _axes(self, scope: Scope, clique: Scope) -> tuple[int, ...]:
        """The shape in which a sorted table over `scope` meets those over the clique."""
        return tuple(int(self.states[v]) if v in scope else 1 for v in clique)

    def collect(self, tables: list[Logs], temperature: float) -> float:
        """Sum or maximise all variables out; returns T log of the sum, or the maximum."""
        T = temperature
        waiting: dict[int, list[tuple[Scope, Logs]]] = {v: [] for v in self.when}
        total = 0.0
        for scope, logs in zip(self.scopes, tables, strict=True):
            if not scope:
                total += float(logs) / (T or 1.0)
                continue
            axes = sorted(range(len(scope)), key=lambda i: self.when[scope[i]])
            place = tuple(scope[i] for i in axes)
            waiting[place[0]].append((place, logs.transpose(axes) / (T or 1.0)))
        for clique in self.cliques:
            v, rest = clique[0], clique[1:]
            joint = np.zeros(self._axes(clique, clique))
            for scope, logs in waiting.pop(v):
                joint += logs.reshape(self._axes(scope, clique))
            message = joint.max(0)
            if T:
                top = np.where(np.isfinite(message), message, 0.0)
                with np.errstate(divide="ignore"):
                    message = top + np.log(np.exp(joint - top).sum(0))
            self.joints[v], self.sent[v] = joint, message
            if rest:
                waiting[rest[0]].append((rest, message))
            else:
                total += float(message)
        if not np.isfinite(total):
            raise NotFinite(IMPOSSIBLE)
        return total * (T or 1.0)

    def best(self) -> Int[np.ndarray, " variables"]:
        """The state whose value `collect` found at T = 0."""
        state = np.zeros(len(self.states), int)
        for clique in reversed(self.cliques):
            rest = tuple(state[v] for v in clique[1:])
            state[clique[0]] = self.joints[clique[0]][(slice(None), *rest)].argmax()
        return state

    def distribute(self) -> Iterator[Shares]:
        """The joint probabilities of every table's variables, after `collect` at T > 0.

        They take the place of the logarithms, which may be large.
        """
        for clique in reversed(self.cliques):
            v, rest = clique[0], clique[1:]
            share = self.joints[v]
            share -= np.where(np.isfinite(self.sent[v]), self.sent[v], 0.0)
            np.exp(share, out=share)
            if rest:
                share *= self._marginal(rest[0], rest)
        for scope in self.scopes:
            if not scope:
                yield np.ones(())
                continue
            first = min(scope, key=self.when.__getitem__)
            found = self._marginal(first, scope)
            place = sorted(range(len(scope)), key=lambda i: self.when[scope[i]])
            yield found.transpose(np.argsort(place))

    def _marginal(self, of: int, scope: Scope) -> Shares:
        """The probabilities of a variable's clique without the variables beyond `scope`."""
        clique = self.cliques[self.when[of]]
        return self.joints[of].sum(tuple(i for i, v in enumerate(clique) if v not in scope))


def state_levels(p: Potentials) -> list[Logs]:
    """A value for every state of every variable, -1e9 or less where evidence excludes it."""
    unary, evidence = np.asarray(p.unary, float), np.asarray(p.evidence, float)
    variables, found = Variables.of(p.layout), []
    for first, width in zip(variables.first, variables.width, strict=True):
        own, seen = unary[first : first + width], evidence[first : first + width]
        x = np.array([[0.0], [1.0]]) if width == 1 else np.eye(width)
        found.append((x * own + np.where(seen > 0, NEG_INF * (1 - x), seen * x)).sum(1))
    return found


def table_list(factor: Factor, layout: Layout, most: int) -> Iterator[tuple[Scope, Logs]]:
    """Every factor of a group as variables and a table, without slots that are not used."""
    for group in factor.tables(layout, most):
        logs = np.asarray(group.logs, float)
        for scope, table in zip(np.asarray(group.scopes).tolist(), logs, strict=True):
            place = tuple(slice(None) if v >= 0 else group.idle for v in scope)
            yield tuple(v for v in scope if v >= 0), table[place]


def _fields(p: Potentials) -> list[Logs]:
    return [_forbid(own) for own in state_levels(p)]


def _forbid(logs: Logs) -> Logs:
    """Hard entries as -inf, which no sum can undo."""
    return np.where(logs < -HARD, -np.inf, logs)


def _mean(factor: Factor, layout: Layout, shares: Iterator[Shares], most: int) -> Factor:
    """The expected statistic of a group from the joint probabilities of its factors."""
    found = []
    for group in factor.tables(layout, most):
        joint = np.zeros(group.logs.shape)
        for f, scope in enumerate(np.asarray(group.scopes).tolist()):
            place = tuple(slice(None) if v >= 0 else group.idle for v in scope)
            joint[(f, *place)] = next(shares)
        found.append(joint)
    return factor.from_tables(layout, found)
