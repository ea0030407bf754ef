"""Orders in which variables are eliminated, by greedy heuristics with random restarts."""

import heapq
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, combinations
from math import inf, log2

Neighbours = list[set[int]]

CHECK = 8
"""Eliminations between two looks at the clock."""
HUB = 512
"""Neighbours from which on missing edges are not counted one by one."""
HOPELESS = 100.0
"""Log2 of a clique's entries at which the rest of an order is no longer played through."""
NOISE = (0.1, 0.3, 0.6, 1.0)
"""Relative noise of scores in restarts, of which one is drawn."""
RULES = ("min-fill", "weighted min-fill", "front", "min-fill", "min-weight", "weighted min-fill")
"""Heuristics of restarts, in turn."""
KEPT = (0.3, 0.5, 0.7, 0.8, 0.9)
"""Shares of the best order after which it is begun anew, of which one is drawn."""
CLOSE = 0.7
"""Log2 of how much more an order may cost to be nearly as cheap as the best."""
TRIES = 4
"""How often an order is begun anew at one place."""


@dataclass(frozen=True)
class Order:
    """The elimination of all variables, one after the other.

    Args:
        cliques: for each step the variable that goes, and its neighbours at that time.
        width: log2 of the entries of the largest clique table.
        cost: log2 of the entries of all clique tables together.
        method: the heuristic.
        complete: whether the order was played through. If not, the last cliques are single
            variables, and width and cost are infinite.
    """

    cliques: list[tuple[int, ...]]
    width: float
    cost: float
    method: str
    complete: bool = True


def neighbours(n: int, scopes: Iterable[Sequence[int]]) -> Neighbours:
    """For each variable those that share a table with it."""
    near: Neighbours = [set() for _ in range(n)]
    for scope in scopes:
        for v in scope:
            near[v].update(scope)
    for v in range(n):
        near[v].discard(v)
    return near


def find_order(
    sizes: Sequence[int],
    scopes: Iterable[Sequence[int]],
    deadline: float = inf,
    seed: int = 0,
    restarts: int = 100,
    last: frozenset[int] = frozenset(),
    good: float = 16.0,
    rate: float = inf,
    known: Order | None = None,
    close: list[Order] | None = None,
    latest: float | None = None,
) -> Order | None:
    """The cheapest order that greedy heuristics and restarts with noise find in their time.

    "min-weight" takes the variable whose clique is the smallest, "min-fill" the one that joins the
    fewest neighbours, counted by their numbers of states where it is "weighted"; "front" takes the
    smallest clique next to what is gone, and so sweeps over the graph. Half of the restarts keep
    the beginning of the best order.

    Args:
        sizes: the number of states of each variable.
        scopes: the tables' variables.
        deadline: when to stop, by `time.monotonic`. The first order is finished in any case
            unless it is not there at `latest`.
        seed: of the noise.
        restarts: how many more orders are tried at most.
        last: variables that go after all others, as the maximised ones of marginal MAP must.
        good: log2 of the entries at which no better order is looked for.
        rate: seconds that an entry will take. The search ends when it has taken longer than the
            best order would.
        known: an order to be improved.
        close: takes all orders that are nearly as cheap as the best at their time: the number of
            entries is not all that counts.
        latest: when even the first order is given up: by default after five times as long as there
            was.

    Returns:
        The order, or None where not one could be finished in time.
    """
    search = _Search(
        sizes, neighbours(len(sizes), scopes), deadline, random.Random(seed), last, close
    )
    now = time.monotonic()
    patience = now + 5 * max(deadline - now, 0.2) if latest is None else latest
    best = known or eliminate(search.near, search.logs, "min-weight", deadline=patience, last=last)
    if best is None or best.cost <= max(good, log2(len(sizes) + 1) + 3) or not best.complete:
        return best
    attempt = 0
    while attempt < restarts and search.ready:
        clock = time.monotonic()
        if clock > deadline or best.cost <= good or 2.0**best.cost * rate < clock - now:
            break
        if attempt % (2 * len(RULES)) < len(RULES) and not (known and attempt == 0):
            best = search.fresh(attempt % len(RULES), best, attempt < len(RULES) and not known)
        else:
            best = search.again(best)
        attempt += 1
    return best


@dataclass
class _Search:
    """Orders by noisy heuristics, from the beginning and from the middle of the best one."""

    sizes: Sequence[int]
    near: Neighbours
    deadline: float
    draw: random.Random
    last: frozenset[int]
    close: list[Order] | None

    def __post_init__(self) -> None:
        self.logs = [log2(k) for k in self.sizes]
        self.weights = {
            "min-fill": [1.0] * len(self.logs),
            "weighted min-fill": edge_weights(self.logs),
        }
        self.fills: dict[str, list[float]] = {}

    @property
    def ready(self) -> bool:
        """Whether the missing edges could be counted in time."""
        for rule, weights in self.weights.items():
            if rule not in self.fills:
                found = initial_fills(self.near, weights, self.deadline)
                if found is None:
                    return False
                self.fills[rule] = found
        return True

    def fresh(self, turn: int, best: Order, plain: bool) -> Order:
        """A new order, the first time without noise; half of them by the rule of the best."""
        own = best.method if best.method in self.fills and not plain and turn % 2 else RULES[turn]
        noise = 0.0 if plain else self.draw.choice(NOISE)
        found = eliminate(
            self.near,
            self.logs,
            own,
            self.fills.get(own),
            noise,
            self.draw,
            self.deadline,
            best.cost + self.slack,
            self.last,
        )
        return self._better(best, found)

    def again(self, best: Order) -> Order:
        """Orders that begin as the best one does."""
        rule = best.method if best.method in self.fills else "weighted min-fill"
        done = best.cliques[: int(self.draw.choice(KEPT) * len(best.cliques))]
        near = [set(own) for own in self.near]
        for v, *_ in done:
            join(near, v)
        fills = initial_fills(near, self.weights[rule], self.deadline)
        for _ in range(TRIES if fills else 0):
            noise = self.draw.choice(NOISE)
            found = eliminate(
                near,
                self.logs,
                rule,
                fills,
                noise,
                self.draw,
                self.deadline,
                best.cost + self.slack,
                self.last,
                done,
            )
            best = self._better(best, found)
        return best

    @property
    def slack(self) -> float:
        """How much more an order may cost than the best, by its log2."""
        return 0.0 if self.close is None else CLOSE

    def _better(self, best: Order, found: Order | None) -> Order:
        if found is None:
            return best
        if self.close is not None:
            self.close.append(found)
        return found if found.cost < best.cost else best


def join(near: Neighbours, v: int) -> set[int]:
    """Join v's neighbours with each other and take v out; these neighbours."""
    own = near[v]
    for u in own:
        joined = near[u]
        joined |= own
        joined.discard(u)
        joined.discard(v)
    near[v] = set()
    return own


def edge_weights(logs: Sequence[float]) -> list[float]:
    """What a variable counts at the ends of edges: never nothing, or edges would be forgotten."""
    return [max(x, 0.1) for x in logs]


def initial_fills(
    near: Neighbours, weights: Sequence[float], deadline: float = inf
) -> list[float] | None:
    """For each variable the edges missing among its neighbours, None where time runs out.

    An edge counts by the product of its ends' weights. Hubs get an estimate.
    """
    fills = []
    for v, own in enumerate(near):
        if v % CHECK == 0 and time.monotonic() > deadline:
            return None
        if len(own) > HUB:
            fills.append(float(len(own) ** 2))
            continue
        missing = (weights[u] * sum([weights[w] for w in own - near[u] if w != u]) for u in own)
        fills.append(sum(missing) / 2 if len(own) > 1 else 0.0)
    return fills


def eliminate(
    near: Neighbours,
    logs: Sequence[float],
    rule: str,
    fills: list[float] | None = None,
    noise: float = 0.0,
    draw: random.Random | None = None,
    deadline: float = inf,
    most: float = inf,
    last: frozenset[int] = frozenset(),
    done: Sequence[tuple[int, ...]] = (),
) -> Order | None:
    """One order, greedily: next is the variable of least score at its time.

    It goes on after the cliques in `done`, whose variables `near` no longer joins.

    Returns:
        The order; None where its cost reaches `most`, or the deadline passes.
    """
    graph = _Graph([set(own) for own in near], logs, rule, list(fills or ()), noise, draw, last)
    gone = {clique[0] for clique in done}
    heap = [(graph.key(v), v) for v in range(len(near)) if v not in gone]
    heapq.heapify(heap)
    current = {v: key for key, v in heap}
    limit, cliques = 2.0**most if most < 1000 else inf, list(done)
    sizes = [sum([logs[u] for u in clique]) for clique in done]
    total, width = sum([2.0**weight for weight in sizes]), max(sizes, default=0.0)
    lazy = draw is None  # without chance a score that grew may wait until its variable is first
    while heap:
        key, v = heapq.heappop(heap)
        if current.get(v) != key:
            continue  # there is a newer entry
        if lazy and (grown := graph.key(v)) > key:
            current[v] = grown
            heapq.heappush(heap, (grown, v))
            continue
        if len(cliques) % CHECK == 0 and time.monotonic() > deadline:
            return None
        weight = graph.weight(v)
        if weight > HOPELESS and limit == inf:
            rest = sorted(current, key=lambda u: (u in last, graph.weight(u)))
            return Order([*cliques, *((u,) for u in rest)], inf, inf, rule, complete=False)
        del current[v]
        cliques.append((v, *graph.near[v]))
        width, total = max(width, weight), total + 2.0 ** min(weight, 1000)
        if total >= limit:
            return None
        for w in graph.remove(v):
            if w not in current or (key := graph.key(w)) == current[w]:
                continue
            if key < current[w] or not lazy:
                current[w] = key
                heapq.heappush(heap, (key, w))
    return Order(cliques, width, log2(total) if total else 0.0, rule)


@dataclass
class _Graph:
    """A graph that loses its variables, with the number of edges each would add."""

    near: Neighbours
    logs: Sequence[float]
    rule: str
    fills: list[float]
    noise: float
    draw: random.Random | None
    last: frozenset[int]
    front: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        weighted = self.rule == "weighted min-fill"
        self.weights = edge_weights(self.logs) if weighted else [1.0] * len(self.near)
        linked = [x for x, own in zip(self.logs, self.near, strict=True) if own]
        self.sums = list(accumulate(linked)) if len(set(linked)) == 1 else []

    def weight(self, v: int) -> float:
        """Log2 of the entries of the clique that v would make."""
        own, logs = self.near[v], self.logs
        if own and self.sums:  # all variables with neighbours have as many states
            return self.sums[len(own)]
        return logs[v] + sum([logs[u] for u in own])

    def key(self, v: int) -> tuple[bool, bool, float, float]:
        """What is compared: kept to the end or not, away from the front or not, score, tie-break.

        The front starts at a random variable.
        """
        chance = self.draw.random() if self.draw else 0.0
        late, noise = v in self.last, 1 + self.noise * chance
        if self.fills:
            tie = chance if self.noise else self.weight(v)  # with noise there are none to speak of
            return late, False, (self.fills[v] + 1) * noise, tie
        away = self.rule == "front" and v not in self.front
        return late, away, chance if away else self.weight(v) * noise, chance

    def remove(self, v: int) -> set[int]:
        """Join v's neighbours and take v out; the variables whose score changed."""
        return self._remove_filling(v) if self.fills else self._remove(v)

    def _remove(self, v: int) -> set[int]:
        own = join(self.near, v)
        self.front |= own
        return own

    def _remove_filling(self, v: int) -> set[int]:
        near, fills, own, weights = self.near, self.fills, self.near[v], self.weights
        changed = set(own)
        if fills[v] > 1e-9:
            for a, b in combinations(own, 2):
                if b in near[a]:
                    continue
                common = near[a] & near[b]
                edge = weights[a] * weights[b]
                for w in common:  # they miss one edge less
                    fills[w] -= edge
                changed |= common
                fills[a] += weights[b] * sum([weights[w] for w in near[a] - common])
                fills[b] += weights[a] * sum([weights[w] for w in near[b] - common])
                near[a].add(b)
                near[b].add(a)
        for u in own:  # now a clique: pairs of v and what only u knows are missed no more
            only = near[u] - own
            fills[u] -= weights[v] * (sum([weights[w] for w in only]) - weights[v])
            near[u].discard(v)
        changed.discard(v)
        return changed
