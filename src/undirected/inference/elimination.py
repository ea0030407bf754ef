"""Exact inference by a junction tree, for graphs of small tree-width."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from undirected.core.errors import NotFinite, TooLarge, UndirectedError, check_counts
from undirected.core.layout import Layout, Variables, check_discrete, to_units
from undirected.core.numerics import HARD, NEG_INF
from undirected.core.potentials import Beliefs, Potentials, lowered, statistics
from undirected.core.random import make_key
from undirected.factors import Factor, TableGroup, require
from undirected.inference.base import Decoded, Inference, finished, instance
from undirected.inference.networks.cliques import CliqueTree, clique_tree
from undirected.inference.networks.junction_tree import JunctionTree
from undirected.inference.networks.low_degree import LowDegree, eliminate_low_degree
from undirected.inference.networks.network import Network
from undirected.inference.networks.orders import find_order
from undirected.inference.networks.simplify import Inconsistent
from undirected.inference.networks.states import best_state, best_states, sample_states

IMPOSSIBLE = "elimination: every state is forbidden by a constraint or by evidence"
RESTARTS = 12
"""Orders that are tried where the first ones are not small."""
MOST_TABLE = 2**27
"""Entries of a table that a factor of `network_of` is written as."""
MOST_WIDTH = 60
"""Log2 of the entries of a clique that is worth a look."""
MANY, FEW_STATES = 1000, 8
"""Variables, of at most so many states, from which on those of chains and trees go together."""
Scope = tuple[int, ...]
Logs = Float[np.ndarray, "*states"]
Shares = Float[np.ndarray, "*states"]


class Elimination(Inference):
    """Exact marginals, best states (temperature 0), samples and log Z of discrete models.

    Variables are summed out one after the other, in the cheapest order that several heuristics
    find; a second pass over the same tree of cliques gives all marginals. Takes every group that
    can be written as tables. Runs on the host in double precision, one instance at a time: it
    cannot be traced by `jit` or `vmap`, and needs no compilation.

    Args:
        temperature: 1 for marginals, 0 for a best state.
        most: entries that the tables of all cliques may have together: the work. They are never
            held at once.

    Returns:
        A call gives `Beliefs`; `decode` gives best states, `best` the best few of one instance,
        `sample` independent draws.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> routine = un.Elimination()
        >>> print(round(float(routine(model).log_z), 3), routine.decode(model).x)
        2.753 [1. 1. 1.]
        >>> states, values = routine.best(model, 2)
        >>> print(states, values.round(1))
        [[1. 1. 1.]
         [1. 0. 0.]] [2. 1.]
    """

    temperature: float = 1.0
    most: int = 2**28

    on_host = True

    @property
    def finds_best_state(self) -> bool:
        return True

    def infer(self, p: Potentials, key: Key[Array, ""] | None) -> Beliefs:
        """Nothing here is random: the key is not used."""
        T = self.temperature
        plan = _Plan.of(p, [_fields(p)], self.most)
        if T == 0:
            tree, value = plan.collect(0, T)
            best = plan.full(best_state(tree))
            state = statistics(p, to_units(p.layout, best).astype(p.unary.dtype))
            log_z = jnp.asarray(float(p.offset) + value, p.unary.dtype)
            return eqx.tree_at(lambda b: b.log_z, state, log_z)
        shares, value = plan.answers(T)
        log_z = jnp.asarray(float(p.offset) + value, p.unary.dtype)
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
        found = [plan.full(best_state(plan.collect(i, 0.0)[0])) for i in range(len(plan.tables))]
        x = to_units(p.layout, np.stack(found)).astype(p.unary.dtype)
        how = (jnp.full(leading, value) for value in finished())
        return Decoded(x.reshape(*leading, p.layout.n), *how)

    def best(
        self, model: Any, count: int
    ) -> tuple[Float[np.ndarray, "count n"], Float[np.ndarray, " count"]]:
        """The best states of one instance, the best first, and minus their energies.

        Fewer than `count` come back where fewer are allowed.
        """
        check_counts("elimination", count=count)
        p = lowered("elimination", model)
        plan = _Plan.of(p, [_fields(p)], self.most)
        states, values = best_states(*plan.collect(0, 0.0), count)
        return np.asarray(to_units(p.layout, plan.full(states))), values + float(p.offset)

    def sample(
        self,
        model: Any,
        count: int,
        key: Key[Array, ""] | None = None,
        seed: int | None = None,
    ) -> Float[Array, "count n"]:
        """Independent exact draws of all units at the temperature, which must be above 0."""
        check_counts("elimination", count=count)
        if not self.temperature > 0:
            raise UndirectedError(
                f"elimination: samples at temperature {self.temperature}; pass one above 0"
            )
        p = lowered("elimination", model)
        plan = _Plan.of(p, [_fields(p)], self.most)
        own = make_key("elimination", key, seed)
        rng = np.random.default_rng(np.asarray(jax.random.key_data(own)))
        tree, _ = plan.collect(0, self.temperature)
        return to_units(p.layout, plan.full(sample_states(tree, count, rng)))


def network_of(caller: str, model: Any) -> tuple[Network, Layout]:
    """A model as log tables, its variables in the order of `layout.names`; and its layout."""
    p = lowered(caller, model)
    if p.unary.ndim != 1:
        raise UndirectedError(
            f"{caller}: got {p.unary.shape[:-1]} instances; pass a model or one instance"
        )
    require(caller, p, "tables", "use un.query or un.log_partition")
    place = np.argsort(p.layout.order)
    levels = _fields(p)
    found: list[tuple[Scope, Logs]] = [((int(place[v]),), own) for v, own in enumerate(levels)]
    for factor in p.factors:
        for scope, logs in _hard_tables(factor, p.layout, MOST_TABLE):
            found.append((tuple(int(place[v]) for v in scope), logs))
    sizes = tuple(len(levels[v]) for v in p.layout.order)
    scopes, tables = zip(*found, strict=True)
    return Network(sizes, scopes, tables, float(p.offset)), p.layout


@dataclass(frozen=True)
class _Plan:
    """A clique tree of the variables that evidence leaves open, and the tables of each instance.

    States that are excluded in all instances are left out of the tables, and with one state left a
    variable is. `allowed` are the states that stay, `whole` the variables that keep all of them.
    """

    scopes: list[Scope]
    states: Int[np.ndarray, " variables"]
    allowed: list[Int[np.ndarray, " k"]]
    whole: frozenset[int]
    open_scopes: tuple[Scope, ...]
    tables: list[list[Logs]]
    most: int

    @classmethod
    def of(cls, p: Potentials, each: list[list[Logs]], most: int) -> "_Plan":
        variables = Variables.of(p.layout)
        finite = np.any([np.isfinite(np.concatenate(one)) for one in each], 0)
        allowed = [np.flatnonzero(own) for own in _split(finite, variables)]
        if any(len(states) == 0 for states in allowed):
            raise NotFinite(IMPOSSIBLE)
        require("elimination", p, "tables", "use Exact, or belief propagation")
        both = [item for factor in p.factors for item in _hard_tables(factor, p.layout, most)]
        scopes = [*((v,) for v in range(len(variables))), *(scope for scope, _ in both)]
        sizes = [len(states) for states in allowed]
        whole = frozenset(np.flatnonzero(variables.states == sizes).tolist())
        open_ = tuple(_open(scope, sizes, whole) for scope in scopes)

        def cut(scope: Scope, logs: Logs) -> Logs:
            if whole.issuperset(scope):
                return logs
            kept = logs[np.ix_(*(allowed[v] for v in scope))]
            return kept.reshape([sizes[v] for v in scope if sizes[v] > 1])

        shared = [cut(*item) for item in both]
        tables = [[*(cut((v,), own) for v, own in enumerate(one)), *shared] for one in each]
        return cls(scopes, variables.states, allowed, whole, open_, tables, most)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many states each variable has left."""
        return tuple(len(states) for states in self.allowed)

    @cached_property
    def tree(self) -> CliqueTree:
        """Cliques along the cheapest order found."""
        order = find_order(self.sizes, self.open_scopes, restarts=RESTARTS)
        if order is not None and order.width < MOST_WIDTH:
            tree = clique_tree(self.sizes, self.open_scopes, order)
            if tree.entries <= self.most:
                return tree
        raise TooLarge(
            f"elimination: its tables would have more than {self.most:,} entries; use belief "
            "propagation or sampling, or raise `most`"
        )

    def network(self, instance: int, temperature: float) -> Network:
        """The tables of an instance, divided by the temperature."""
        tables = tuple(table / temperature for table in self.tables[instance])
        return Network(self.sizes, self.open_scopes, tables)

    def collect(self, instance: int, temperature: float) -> tuple[JunctionTree, float]:
        """A tree after its first pass, and T log Z, or at T = 0 the best value."""
        T = temperature or 1.0
        every = frozenset(range(len(self.sizes))) if temperature == 0 else frozenset()
        tree = JunctionTree(self.network(instance, T), self.tree, maximised=every)
        try:
            return tree, tree.collect() * T
        except Inconsistent as error:
            raise NotFinite(IMPOSSIBLE) from error

    def answers(self, temperature: float) -> tuple[Iterator[Shares], float]:
        """The joint probabilities of the variables of every table, and T log Z.

        Variables of long chains and trees go many at once.
        """
        if self.is_sparse:
            try:
                small = eliminate_low_degree(self.network(0, temperature), marginals=False)
            except Inconsistent as error:
                raise NotFinite(IMPOSSIBLE) from error
            if len(small.kept) == 0:
                return self.shares(small), small.network.offset * temperature
        tree, value = self.collect(0, temperature)
        return self.shares(tree), value

    @property
    def is_sparse(self) -> bool:
        """Whether there are many variables of few states, few of which share a table."""
        n, states = len(self.sizes), max(self.sizes)
        if n < MANY or states > FEW_STATES or n * states**3 > self.most:
            return False
        pairs = {frozenset(scope) for scope in self.open_scopes if len(scope) > 1}
        return len(pairs) < 2 * n and all(len(pair) == 2 for pair in pairs)

    def full(self, state: Int[np.ndarray, "*m variables"]) -> Int[np.ndarray, "*m variables"]:
        """States of the open variables as states of all."""
        return np.stack([states[state[..., v]] for v, states in enumerate(self.allowed)], -1)

    def shares(self, tree: JunctionTree | LowDegree) -> Iterator[Shares]:
        """The joint probabilities of the variables of every table."""
        for scope, share in zip(self.scopes, tree.distribute(self.open_scopes), strict=True):
            if self.whole.issuperset(scope):
                yield share
                continue
            kept = [self.allowed[v] for v in scope]
            full = np.zeros([self.states[v] for v in scope])
            full[np.ix_(*kept)] = share.reshape([len(states) for states in kept])
            yield full


def _open(scope: Scope, sizes: list[int], whole: frozenset[int]) -> Scope:
    """The variables of a scope that have several states left."""
    return scope if whole.issuperset(scope) else tuple(v for v in scope if sizes[v] > 1)


def state_levels(p: Potentials) -> list[Logs]:
    """A value for every state of every variable, -1e9 or less where evidence excludes it."""
    check_discrete("factor graph", *p.layout.blocks)
    unary, evidence = np.asarray(p.unary, float), np.asarray(p.evidence, float)
    found: list[Logs] = []
    for block in p.layout.blocks:
        shape = block.variables, block.width
        own, seen = unary[block.slice].reshape(shape), evidence[block.slice].reshape(shape)
        levels = own + np.minimum(seen, 0.0)
        if block.width == 1:
            found += [*np.concatenate([NEG_INF * (seen > 0), levels], 1)]
        else:
            # units that are on where this state is off
            others = (seen > 0).sum(1, keepdims=True) - (seen > 0)
            found += [*(levels + NEG_INF * others)]
    return found


def table_list(factor: Factor, layout: Layout, most: int) -> Iterator[tuple[Scope, Logs]]:
    """Every factor of a group as variables and a table, without slots that are not used."""
    for group in factor.tables(layout, most):
        yield from _each(group, np.asarray(group.logs, float))


def _hard_tables(factor: Factor, layout: Layout, most: int) -> Iterator[tuple[Scope, Logs]]:
    """`table_list` with -inf for what is forbidden."""
    for group in factor.tables(layout, most):
        yield from _each(group, _forbid(np.asarray(group.logs, float)))


def _each(group: TableGroup, logs: Float[np.ndarray, "F *states"]) -> Iterator[tuple[Scope, Logs]]:
    scopes = np.asarray(group.scopes)
    if (scopes >= 0).all():
        yield from zip(map(tuple, scopes.tolist()), logs, strict=True)
        return
    for scope, table in zip(scopes.tolist(), logs, strict=True):
        yield tuple(v for v in scope if v >= 0), table[group.place(scope)]


def _split(flat: np.ndarray, variables: Variables) -> list[np.ndarray]:
    """An entry for every state of every variable, variable by variable."""
    stops = np.cumsum(variables.states)
    starts = stops - variables.states
    return [flat[i:j] for i, j in zip(starts.tolist(), stops.tolist(), strict=True)]


def _fields(p: Potentials) -> list[Logs]:
    return _split(_forbid(np.concatenate(state_levels(p))), Variables.of(p.layout))


def _forbid(logs: Logs) -> Logs:
    """Hard entries as -inf, which no sum can undo; NaN and +inf are refused."""
    if not (logs < np.inf).all():
        raise NotFinite(
            "elimination: a log-potential is NaN or infinite; pass finite numbers, and -inf for "
            "what is forbidden"
        )
    return np.where(logs < -HARD, -np.inf, logs)


def _mean(factor: Factor, layout: Layout, shares: Iterator[Shares], most: int) -> Factor:
    """The expected statistic of a group from the joint probabilities of its factors."""
    found = []
    for group in factor.tables(layout, most):
        joint = np.zeros(group.logs.shape)
        for f, scope in enumerate(np.asarray(group.scopes).tolist()):
            joint[(f, *group.place(scope))] = next(shares)
        found.append(joint)
    return factor.from_tables(layout, found)
