"""Exact inference by summing variables out one after the other, for graphs of small tree-width."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import singledispatch
from itertools import combinations
from math import prod

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from undirected.core.errors import NotFinite, UndirectedError, UnsupportedFactor
from undirected.core.factors import Count, Logic, Pool, Tables, Wired, means_of
from undirected.core.numerics import NEG_INF
from undirected.core.potentials import (
    Beliefs,
    Edges,
    Factor,
    Potentials,
    check_potentials,
    statistics,
)
from undirected.core.states import units
from undirected.core.wiring import Variables
from undirected.inference.exact import narrow_order
from undirected.inference.factor_messages import HARD

IMPOSSIBLE = "elimination: every state is forbidden by a constraint or by evidence"
Scope = tuple[int, ...]
Logs = Float[np.ndarray, "*states"]
Shares = Float[np.ndarray, "*states"]


@dataclass(frozen=True)
class Elimination:
    """Exact marginals, best states (temperature 0) and log Z of discrete models.

    Variables are summed out one after the other: at each time the one that leaves the smallest
    table, or along the graph, whichever is cheaper. All tables together may have `most` entries of
    eight bytes. Takes groups of tables, constraints, counts and edges. Runs on the host in double
    precision, one instance at a time: it cannot be traced by `jit` or `vmap`, and needs no
    compilation.
    """

    temperature: float = 1.0
    most: int = 2**27

    def __call__(self, potentials: Potentials, key: Key[Array, ""] | None = None) -> Beliefs:
        """Exact beliefs and log Z of one instance; the key is not used."""
        p, T = potentials, self.temperature
        check_potentials("elimination", p)
        plan = _Plan.of(p, [_fields(p)], self.most)
        value = plan.tree.collect(plan.tables[0], T)
        log_z = jnp.asarray(float(p.offset) + value, p.unary.dtype)
        if T == 0:
            state = statistics(p, units(p.layout, plan.best()).astype(p.unary.dtype))
            return eqx.tree_at(lambda b: b.log_z, state, log_z)
        shares = plan.shares()
        width = Variables.of(p.layout).width
        unary = np.concatenate([next(shares)[1 if w == 1 else 0 :] for w in width])
        means = [
            _mean(factor, [next(shares) for _ in range(count)])
            for factor, count in zip(p.factors, plan.counts, strict=True)
        ]
        done = jnp.asarray(True), jnp.asarray(1)
        return Beliefs(jnp.asarray(unary, p.unary.dtype), tuple(means), log_z, *done)

    def decode(
        self, potentials: Potentials
    ) -> tuple[Float[Array, "batch n"], Bool[Array, " batch"], Int[Array, " batch"]]:
        """Best states of many instances that share their factors."""
        p, rows = potentials, []
        pairs = zip(np.asarray(p.unary), np.asarray(p.evidence), strict=True)
        each = [_fields(eqx.tree_at(lambda q: (q.unary, q.evidence), p, pair)) for pair in pairs]
        plan = _Plan.of(p, each, self.most)
        for tables in plan.tables:
            plan.tree.collect(tables, 0.0)
            rows.append(plan.best())
        x = units(p.layout, np.stack(rows)).astype(p.unary.dtype)
        return x, jnp.ones(len(rows), bool), jnp.ones(len(rows), jnp.int32)


@dataclass(frozen=True)
class _Plan:
    """An elimination of the variables that evidence leaves open, and the tables of each instance.

    States that are excluded in all instances are left out of the tables, and with one state left a
    variable is. `allowed` are the states that stay; `counts` the factors of every group.
    """

    scopes: list[Scope]
    states: Int[np.ndarray, " variables"]
    allowed: list[Int[np.ndarray, " k"]]
    counts: list[int]
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
        groups = [list(_tables(f, variables, most)) for f in p.factors]
        both = [item for group in groups for item in group]
        scopes = [*((v,) for v in range(len(variables))), *(scope for scope, _ in both)]
        open_ = [tuple(v for v in scope if len(allowed[v]) > 1) for scope in scopes]
        sizes = np.array([len(states) for states in allowed])

        def cut(scope: Scope, logs: Logs) -> Logs:
            kept = logs[np.ix_(*(allowed[v] for v in scope))]
            return kept.reshape([sizes[v] for v in scope if sizes[v] > 1])

        shared = [cut(*item) for item in both]
        tables = [[*(cut((v,), own) for v, own in enumerate(one)), *shared] for one in each]
        counts, tree = [len(group) for group in groups], _Tree(sizes, open_, most)
        return cls(scopes, variables.states, allowed, counts, tree, tables)

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


def _fields(p: Potentials) -> list[Logs]:
    """A value for every state of every variable, -inf where evidence excludes it."""
    unary, evidence = np.asarray(p.unary, float), np.asarray(p.evidence, float)
    variables, found = Variables.of(p.layout), []
    for first, width in zip(variables.first, variables.width, strict=True):
        own, seen = unary[first : first + width], evidence[first : first + width]
        x = np.array([[0.0], [1.0]]) if width == 1 else np.eye(width)
        found.append(_forbid((x * own + np.where(seen > 0, NEG_INF * (1 - x), seen * x)).sum(1)))
    return found


def _forbid(logs: Logs) -> Logs:
    """Hard entries as -inf, which no sum can undo."""
    return np.where(logs < -HARD, -np.inf, logs)


def _scopes(factor: Wired, variables: Variables) -> Iterator[Scope]:
    """The variables of the used slots of every factor, one for each variable."""
    owner = variables.owner
    rows, start = [], 0
    slots = np.asarray(factor.wires.units)
    widths = factor.widths if isinstance(factor, Tables) else (1,) * len(slots)
    for width in widths:
        rows.append(slots[start])
        start += width
    for column in np.stack(rows, 1):
        yield tuple(int(v) for v in owner[column[column < len(owner)]])


@singledispatch
def _tables(factor: Factor, variables: Variables, most: int) -> Iterator[tuple[Scope, Logs]]:
    """Every factor of a group as variables and a table."""
    raise UnsupportedFactor(
        f"elimination: takes no {type(factor).__name__} group; use Exact, or belief propagation"
    )


@_tables.register
def _(factor: Tables, variables: Variables, most: int) -> Iterator[tuple[Scope, Logs]]:
    weight = _forbid(np.asarray(factor.weight, float))
    for i, scope in enumerate(_scopes(factor, variables)):
        yield scope, weight if factor.shared else weight[i]


@_tables.register(Logic)
@_tables.register(Pool)
@_tables.register(Count)
def _(
    factor: Logic | Pool | Count, variables: Variables, most: int
) -> Iterator[tuple[Scope, Logs]]:
    for i, scope in enumerate(_scopes(factor, variables)):
        if 2 ** len(scope) > most:
            raise UndirectedError(
                f"elimination: a {type(factor).__name__} factor has {len(scope)} variables, a "
                f"table of {2.0 ** len(scope):.3g} entries (limit {most}); use belief propagation"
            )
        yield scope, _constraint(factor, i, np.indices((2,) * len(scope)))


def _constraint(factor: Logic | Pool | Count, i: int, x: Int[np.ndarray, "m *states"]) -> Logs:
    match factor:
        case Count():
            weight = np.asarray(factor.weight, float)
            levels = np.append(weight if weight.ndim == 1 else weight[i], -np.inf)
            return _forbid(levels[np.minimum(x.sum(0), len(levels) - 1)])
        case Logic():
            one = x[:-1].min(0) if factor.conjunction else x[:-1].max(0)
        case _:
            one = x[:-1].sum(0)
    return np.where(one == x[-1], 0.0, -np.inf)


@_tables.register
def _(factor: Edges, variables: Variables, most: int) -> Iterator[tuple[Scope, Logs]]:
    owner = variables.owner
    weight = np.asarray(factor.weight, float)
    for value, ends in zip(weight, np.asarray(factor.graph.edges), strict=True):
        scope = tuple(int(v) for v in owner[ends])
        if not (variables.width[list(scope)] == 1).all():
            raise UnsupportedFactor("elimination: an Edges group needs binary units")
        yield scope, np.array([[0.0, 0.0], [0.0, value]])


def _mean(factor: Factor, shares: list[Shares]) -> Factor:
    """The expected statistic of a group from the joint probabilities of its factors."""
    if isinstance(factor, Edges):
        both = jnp.asarray([share[1, 1] for share in shares], factor.weight.dtype)
        return eqx.tree_at(lambda f: f.weight, factor, both)
    if isinstance(factor, Logic | Pool):
        return means_of(factor, None)
    if isinstance(factor, Count):
        numbers = np.asarray(factor.weight).shape[-1]
        shares = [
            np.bincount(np.indices(s.shape).sum(0).ravel(), s.ravel(), numbers)[:numbers]
            for s in shares
        ]
    shared = np.ndim(factor.weight) == (1 if isinstance(factor, Count) else len(factor.states))
    weight = np.stack(shares).sum(0) if shared else np.stack(shares)
    return means_of(factor, jnp.asarray(weight, factor.weight.dtype))
