"""Weighted mini-bucket elimination: bounds on log Z and on the best value within an i-bound.

A bucket that is too large for one table is split, and its sum is bounded by Hölder's inequality:
Σ_x Π_r f_r ≤ Π_r (Σ_x f_r^{1/w_r})^{w_r} for weights w_r > 0 that add up to 1, and ≥ where one
weight is positive and the others negative. Weights of 0 mean maxima. Before that the minis of a
bucket share out what they say of its variable (moment matching), which makes the bound tighter.
"""

import time
from dataclasses import dataclass
from math import inf, log2

import numpy as np
from jaxtyping import Float, Int

from undirected.inference.networks.clock import OutOfTime, check_time
from undirected.inference.networks.join_graph import Scope, Table, partition
from undirected.inference.networks.network import Network

KINDS = ("upper", "lower", "max")


@dataclass(frozen=True, eq=False)
class Mini:
    """A part of a bucket.

    Args:
        scope: its variables in the order of elimination, the bucket's own first.
        table: the log of the product of what it was given, after matching.
        weight: its exponent in Hölder's inequality.
    """

    scope: Scope
    table: Table
    weight: float

    def rows(self, states: Int[np.ndarray, "s n"]) -> Float[np.ndarray, "s k"]:
        """Log values of the bucket's variable given the states of the others."""
        flat = self.table.reshape(self.table.shape[0], -1)
        place = np.zeros(len(states), int)
        for v, size in zip(self.scope[1:], self.table.shape[1:], strict=True):
            place = place * size + states[:, v]
        return flat[:, place].T


@dataclass(frozen=True, eq=False)
class MiniBuckets:
    """A network with all variables eliminated, bucket by bucket.

    Args:
        network: the network.
        order: of elimination.
        buckets: the minis of each variable in that order, kept to draw or decode states.
        value: the bound.
        exact: whether no bucket was split.
    """

    network: Network
    order: list[int]
    buckets: list[list[Mini]]
    value: float
    exact: bool


def power_sum(logs: Table, weight: float, axis: int) -> Table:
    """log (Σ exp(logs / w))^w over one axis; the maximum for w = 0."""
    if weight == 0:
        return logs.max(axis)
    scaled = logs / weight
    top = scaled.max(axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        return weight * (np.log(np.exp(scaled - top).sum(axis)) + top.squeeze(axis))


def weights(count: int, kind: str) -> list[float]:
    """Exponents of the minis of one bucket."""
    if kind == "max":
        return [0.0] * count
    if kind == "upper" or count == 1:
        return [1 / count] * count
    return [float(count)] + [-1.0] * (count - 1)


def match(minis: list[tuple[Scope, Table]], exponents: list[float]) -> list[Table]:
    """Shift logs between minis until all say the same of the bucket's variable.

    What is added to one is taken from the others, so that their sum stays; a state that one mini
    forbids is forbidden in all.
    """
    says = []
    for (_, table), w in zip(minis, exponents, strict=True):
        own = table.reshape(table.shape[0], -1)
        says.append(own.max(1) if w == 0 else power_sum(own, w, 1) / w)
    shares = [w or 1 / len(minis) for w in exponents]
    with np.errstate(invalid="ignore"):
        mean = sum(w * own for w, own in zip(shares, says, strict=True))
    out = []
    for (_, table), w, own in zip(minis, exponents, says, strict=True):
        known = np.isfinite(mean) & np.isfinite(own)
        shift = np.where(known, (w or 1.0) * (mean - np.where(known, own, 0.0)), -inf)
        out.append(table + shift.reshape(-1, *[1] * (table.ndim - 1)))
    return out


def combine(items: list[tuple[Scope, Table]], place: dict[int, int]) -> tuple[Scope, Table]:
    """The sum of log tables, its axes in the order of elimination."""
    scope = tuple(sorted({v for own, _ in items for v in own}, key=place.__getitem__))
    total: Table = np.zeros([1] * len(scope))
    for own, table in items:
        inside = set(own)
        axes = iter(table.shape)
        total = total + table.reshape([next(axes) if v in inside else 1 for v in scope])
    return scope, total


def eliminate(
    network: Network,
    order: list[int],
    bound: float,
    kind: str = "upper",
    matching: bool = True,
    keep: bool = True,
    deadline: float = inf,
) -> MiniBuckets | None:
    """All variables out, in minis of at most 2^bound entries (or one table).

    Args:
        network: the network.
        order: of elimination.
        bound: log2 of the entries of the largest mini.
        kind: "upper" or "lower" for a bound on log Z, "max" for an upper bound on the best value.
        matching: whether minis of a bucket share what they say of its variable. A lower bound is
            one with and without it; either may be better.
        keep: whether the minis are kept, to draw or decode states.
        deadline: when to give up.

    Returns:
        The bound and its minis, None where the deadline passed.
    """
    place = {v: i for i, v in enumerate(order)}
    logs = [log2(k) for k in network.cardinalities]
    waiting = _sorted_tables(network, place)
    value, exact, buckets = network.offset, True, []
    for scope, table in zip(network.scopes, network.tables, strict=True):
        value += float(table) if not scope else 0.0
    for v in order:
        if time.monotonic() >= deadline:
            return None
        items = waiting.pop(place[v], [])
        if not items:
            value += 0.0 if kind == "max" else np.log(network.cardinalities[v])
            buckets.append([])
            continue
        parts = partition([scope for scope, _ in items], logs, bound)
        minis = [combine([items[k] for k in members], place) for _, members in parts]
        exponents, exact = weights(len(minis), kind), exact and len(minis) == 1
        tables = [table for _, table in minis]
        if matching and len(minis) > 1:
            tables = match(minis, exponents)
        own = [Mini(*one) for one in zip([s for s, _ in minis], tables, exponents, strict=True)]
        for mini in own:
            message = power_sum(mini.table, mini.weight, 0)
            if len(mini.scope) > 1:
                waiting.setdefault(place[mini.scope[1]], []).append((mini.scope[1:], message))
            else:
                value += float(message)
        buckets.append(own if keep else [])
    return MiniBuckets(network, order, buckets, float(value), exact)


def _sorted_tables(network: Network, place: dict[int, int]) -> dict[int, list[tuple[Scope, Table]]]:
    """The tables by the place of their first variable, axes in the order of elimination."""
    waiting: dict[int, list[tuple[Scope, Table]]] = {}
    for scope, table in zip(network.scopes, network.tables, strict=True):
        if scope:
            axes = sorted(range(len(scope)), key=lambda i: place[scope[i]])
            ordered = tuple(scope[i] for i in axes)
            waiting.setdefault(place[ordered[0]], []).append((ordered, table.transpose(axes)))
    return waiting


def work(
    network: Network, order: list[int], bound: float, deadline: float = inf
) -> tuple[float, float, bool]:
    """The entries of all minis, of the largest, and whether a bucket would be split.

    Raises:
        OutOfTime: the deadline passed.
    """
    place = {v: i for i, v in enumerate(order)}
    logs = [log2(k) for k in network.cardinalities]
    waiting: dict[int, list[Scope]] = {}
    for scope in network.scopes:
        if scope:
            ordered = tuple(sorted(scope, key=place.__getitem__))
            waiting.setdefault(place[ordered[0]], []).append(ordered)
    total, most, split = 0.0, 0.0, False
    for v in order:
        check_time(deadline)
        parts = partition(waiting.pop(place[v], []), logs, bound)
        split |= len(parts) > 1
        for union, _ in parts:
            size = 2.0 ** sum(logs[u] for u in union)
            total, most = total + size, max(most, size)
            if len(union) > 1:
                scope = tuple(sorted(union - {v}, key=place.__getitem__))
                waiting.setdefault(place[scope[0]], []).append(scope)
    return total, most, split


def largest_bound(
    network: Network, order: list[int], entries: float, most: int = 28, deadline: float = inf
) -> int:
    """The largest i-bound whose minis have this many entries at most.

    None is larger than what it takes to split no bucket, and after the deadline no larger one is
    looked for.
    """
    best = 1
    for bound in range(1, most + 1):
        try:
            total, _, split = work(network, order, bound, deadline)
        except OutOfTime:
            break
        if total > entries:
            break
        best = bound
        if not split:
            break
    return best


def decode(buckets: MiniBuckets) -> Int[np.ndarray, " n"]:
    """The state that maximises bucket after bucket, the last variable first."""
    state = np.zeros((1, len(buckets.order)), int)
    for v, minis in zip(reversed(buckets.order), reversed(buckets.buckets), strict=True):
        if minis:
            state[0, v] = int(np.sum([mini.rows(state)[0] for mini in minis], 0).argmax())
    return state[0]
