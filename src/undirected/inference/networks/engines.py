"""The choice between exact and approximate engines, by time and memory.

The tree of the cheapest order found is taken where it fits; otherwise the parts of the network that
do not hang together are looked at one by one, and those that are still too large are approximated.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, log2

import numpy as np
from jaxtyping import Float, Int

from undirected.core.errors import UndirectedError
from undirected.inference.networks import (
    accelerator,
    approximate_marginals,
    approximate_states,
    conditioning,
)
from undirected.inference.networks.blocks import THREADS
from undirected.inference.networks.cliques import CliqueTree, clique_tree
from undirected.inference.networks.clock import OutOfTime
from undirected.inference.networks.junction_tree import JunctionTree
from undirected.inference.networks.marginal_map import climb
from undirected.inference.networks.network import Network
from undirected.inference.networks.orders import Order, find_order
from undirected.inference.networks.simplify import Inconsistent, simplify

RATES = {"pr": 10e-9, "mar": 22e-9, "map": 15e-9, "mmap": 20e-9}
"""Seconds for an entry of a clique on one core, by task; a little on the safe side."""
PER_CLIQUE = 6e-5
"""Seconds for a clique, however small."""
ORDER_SHARES, EXACT_SHARE = (0.1, 0.18, 0.26, 0.35), 0.8
"""Of the time that is left: to look for orders, and longer where the first is too costly; and what
an exact engine may need by its plan."""
SEARCH_RATE = 0.2
"""Of the time of an order, which products of matrices and better orders cut: what is searched."""
FIRST_SHARE, GIVEN_UP = 0.1, 90.0
"""Of the time that is left: for the first order; and log2 of the entries of all its tables at which
no better one is looked for."""
PLAN_SHARE = 0.3
"""Of the time that is left: what the plan for one order may take."""
LATEST_SHARE = 0.5
"""Of the time that is left: when even the first order is given up."""
AT_ONCE = 0.05
"""Of the time that is left: what a part may take to be done before others are planned."""
CANDIDATES = 8
"""Orders nearly as cheap as the best that are looked at where that one takes too long."""
MOST_ORDERS, HOPELESS, FAR = 10**6, 45.0, 6.0
"""Orders that are tried; log2 of the entries of a table that no cutset makes small; and how much
cheaper a longer search, and products of matrices, may make an order, by its log2."""
PATIENCE = 0.88
"""Of the time that is left: when an exact engine that takes longer than expected is given up."""
ALONE = 0.96
"""The same where no other engine would be faster."""
INTERRUPTED = 1.0
"""Seconds for an approximate answer after Ctrl-C ended an exact engine."""
EASY = 18.0
"""Log2 of the entries of all tables of an order that is taken without a search for a better one."""
ENTRY = 8
"""Bytes."""


@dataclass(frozen=True)
class Budget:
    """What an answer may cost.

    Args:
        deadline: when it must be there, by `time.monotonic`.
        memory: bytes for tables.
        seed: of all random draws.
        device: whether an accelerator may be used where it is worth it.
    """

    deadline: float
    memory: int
    seed: int = 0
    device: bool = True

    @property
    def left(self) -> float:
        """Seconds."""
        return max(self.deadline - time.monotonic(), 0.0)


@dataclass
class Outcome:
    """An answer about a network.

    Args:
        value: log Z, or the log value of `state`.
        marginals: of every variable, for the task "mar".
        state: of every variable, for "map"; -1 for those that "mmap" sums out.
        lower: a number that log Z, or the best value, is not below.
        upper: a number that it is not above.
        exact: whether the answer is exact but for rounding.
        method: the engines in words.
        notes: what a reader should know.
    """

    value: float
    marginals: list[Float[np.ndarray, " k"]] | None = None
    state: Int[np.ndarray, " n"] | None = None
    lower: float = -inf
    upper: float = inf
    exact: bool = False
    method: str = ""
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Plan:
    """A clique tree, the cutset with which it fits into memory, and what it should take.

    On a device large cliques are done by an accelerator.
    """

    tree: CliqueTree
    cut: tuple[int, ...]
    seconds: float
    method: str
    device: bool = False


def answer(
    network: Network, task: str, budget: Budget, maximised: frozenset[int] = frozenset()
) -> Outcome:
    """The best answer that the budget allows; Ctrl-C cuts the budget.

    Raises:
        Inconsistent: no state is allowed.
    """
    last = maximised if task == "mmap" else frozenset()
    try:
        until = time.monotonic() + FIRST_SHARE * budget.left
        sizes, scopes = network.cardinalities, network.scopes
        latest = time.monotonic() + LATEST_SHARE * budget.left
        first = find_order(sizes, scopes, until, restarts=0, last=last, latest=latest)
        if first is not None and _is_easy(first, len(sizes), budget.memory):
            found = _at_once(network, task, budget, maximised, last, first)
            return found or _approximate(network, task, budget, maximised)
        parts = grouped(network, first)
    except KeyboardInterrupt:
        first, budget, parts = None, replace(budget, deadline=time.monotonic() + INTERRUPTED), []
    if len(parts) < 2:
        hopeless = first is None or first.cost > GIVEN_UP
        return _whole(network, task, budget, maximised, last, hopeless)
    return _by_parts(network, task, budget, maximised, parts)


def _is_easy(order: Order, variables: int, memory: int) -> bool:
    """Whether the tables of an order are so small that no better one is worth a search."""
    few = order.cost <= max(EASY, log2(variables + 1) + 4)
    return few and 2.0**order.cost * ENTRY <= memory


def _at_once(
    network: Network,
    task: str,
    budget: Budget,
    maximised: frozenset[int],
    last: frozenset[int],
    order: Order,
) -> Outcome | None:
    """The answer of the tree of an easy order; None where it is not there in time.

    Nothing else would be faster, so no plan is asked how long it takes.
    """
    sizes, until = network.cardinalities, time.monotonic() + ALONE * budget.left
    try:
        tree = clique_tree(sizes, network.scopes, order, last, task != "map", until)
    except OutOfTime:
        return None
    return _exact(network, task, budget, Plan(tree, (), 0.0, _method(order)), maximised, ALONE)


def _whole(
    network: Network,
    task: str,
    budget: Budget,
    maximised: frozenset[int],
    last: frozenset[int],
    hopeless: bool,
) -> Outcome:
    """An answer about a network that hangs together, exact where that fits."""
    try:
        plan = None if hopeless else plan_exact(network, task, budget, last)
        found = plan and _planned(network, task, budget, plan, maximised)
    except KeyboardInterrupt:
        budget, found = replace(budget, deadline=time.monotonic() + INTERRUPTED), None
    return found or _approximate(network, task, budget, maximised)


def grouped(network: Network, order: Order | None) -> list[list[int]]:
    """The parts that do not hang together; those that are easy by this order are one."""
    parts = components(network)
    if order is None or not order.complete:
        return parts
    sizes, cost = network.cardinalities, [0.0] * len(network.cardinalities)
    for clique in order.cliques:
        cost[clique[0]] = float(np.prod([float(sizes[v]) for v in clique]))
    hard = [part for part in parts if sum([cost[v] for v in part]) > 2**EASY]
    easy = [v for part in parts if sum([cost[v] for v in part]) <= 2**EASY for v in part]
    return [easy, *hard] if easy else hard


def plan_exact(
    network: Network,
    task: str,
    budget: Budget,
    last: frozenset[int] = frozenset(),
    part: float = 1.0,
) -> Plan | None:
    """How to answer exactly, None where that is not to be expected within the budget.

    A network that is one of several takes a part of the time to look for orders.
    """
    begun, whole, order = time.monotonic(), part * budget.left, None
    close: list[Order] = []
    for share in ORDER_SHARES:
        order = find_order(
            network.cardinalities,
            network.scopes,
            begun + share * whole,
            budget.seed,
            MOST_ORDERS,
            last,
            rate=RATES[task] * SEARCH_RATE,
            known=order,
            close=close,
            latest=begun + LATEST_SHARE * whole,
        )
        if order is None or order.width > HOPELESS:
            return None
        close.sort(key=lambda one: one.cost)
        try:
            orders = [order, *close[:CANDIDATES]]
            plans = (plan_tree(network, task, budget, one, last) for one in orders)
            plan = next((plan for plan in plans if plan is not None), None)
            plan = faster(network, task, budget, order, plan)
            if plan is not None:
                return plan
        except OutOfTime:
            return None
        del close[:CANDIDATES]
        affordable = EXACT_SHARE * budget.left
        if 2.0 ** (order.cost - FAR) * RATES[task] > affordable:
            return None
    return None


def plan_tree(
    network: Network, task: str, budget: Budget, order: Order, last: frozenset[int]
) -> Plan | None:
    """The tree of an order, None where it would not be done within the budget.

    Raises:
        OutOfTime: the plan itself takes too long.
    """
    rate, until = RATES[task], time.monotonic() + PLAN_SHARE * budget.left
    sizes, scopes = network.cardinalities, network.scopes
    tree = clique_tree(sizes, scopes, order, last, task != "map", until)
    affordable = EXACT_SHARE * budget.left
    if tree.work(THREADS) * rate > affordable:
        return None  # a cutset never makes it less work
    most = THREADS * affordable / rate if rate else inf
    cut = conditioning.choose_cutset(tree, budget.memory // ENTRY, most, until)
    if cut is None or (cut and task == "mmap"):
        return None
    cost = 2.0 ** conditioning.work(tree, cut, THREADS) * rate
    seconds = cost + len(tree.cliques) * PER_CLIQUE
    if seconds > EXACT_SHARE * budget.left:
        return None
    return Plan(tree, cut, seconds, _method(order, cut))


def faster(
    network: Network, task: str, budget: Budget, order: Order, plan: Plan | None
) -> Plan | None:
    """A plan, or one for an accelerator where that should be done earlier."""
    known = EXACT_SHARE * budget.left if plan is None else plan.seconds
    if known < accelerator.STARTING or not (budget.device and accelerator.available()):
        return plan
    until = time.monotonic() + PLAN_SHARE * budget.left
    tree = clique_tree(network.cardinalities, network.scopes, order, sums=False, deadline=until)
    seconds = accelerator.seconds(tree, task)
    if seconds is None or seconds > known:
        return plan
    return Plan(tree, (), seconds, f"{_method(order)} on an accelerator", device=True)


def _method(order: Order, cut: tuple[int, ...] = ()) -> str:
    """A tree in words."""
    slices = f", {len(cut)} variables conditioned on" if cut else ""
    return f"junction tree ({order.method}, largest table 2^{order.width:.1f} entries{slices})"


def _exact(
    network: Network,
    task: str,
    budget: Budget,
    plan: Plan,
    maximised: frozenset[int],
    patience: float | None = None,
) -> Outcome | None:
    """The answer of a tree; None where it takes more time or memory than planned."""
    until = time.monotonic() + (PATIENCE if patience is None else patience) * budget.left
    try:
        kind = _kind(plan)
        if task == "mar":
            value, table = conditioning.marginals(network, plan.tree, plan.cut, until, kind)
            found = Outcome(value, marginals=table)
        elif task == "pr":
            found = Outcome(conditioning.log_partition(network, plan.tree, plan.cut, until, kind))
        else:
            value, state = conditioning.maximum(network, plan.tree, maximised, plan.cut, until)
            found = Outcome(value, state=state)
    except (OutOfTime, MemoryError):
        return None
    except Inconsistent:
        raise
    except (UndirectedError, RuntimeError):  # too wide a range, or the device has no room
        if not plan.device:
            raise
        return None
    return replace(found, lower=found.value, upper=found.value, exact=True, method=plan.method)


def _kind(plan: Plan) -> Callable[..., JunctionTree]:
    """What makes the tree of a plan; that of a device imports JAX."""
    if not plan.device:
        return JunctionTree
    from undirected.inference.networks.device_tree import DeviceTree

    return partial(DeviceTree, host=accelerator.HOST)


def _planned(
    network: Network,
    task: str,
    budget: Budget,
    plan: Plan,
    maximised: frozenset[int],
) -> Outcome | None:
    """The answer of a plan; what a device could not do is planned anew without it."""
    found = _exact(network, task, budget, plan, maximised)
    if found is not None or not plan.device:
        return found
    budget = replace(budget, device=False)
    again = plan_exact(network, task, budget)  # a device maximises nothing, so none goes last
    return None if again is None else _exact(network, task, budget, again, maximised)


def _by_parts(
    network: Network,
    task: str,
    budget: Budget,
    maximised: frozenset[int],
    parts: Sequence[Sequence[int]],
) -> Outcome:
    """Every part by the engine that it allows: exact ones first, then the others share the time."""
    found: dict[int, Outcome] = {}
    planned: list[tuple[float, int, Plan]] = []
    own = split(network, parts, maximised)
    for i, (net, most) in enumerate(own):
        last = most if task == "mmap" else frozenset()
        if budget.left <= 0:
            break
        plan = plan_exact(net, task, budget, last, 1 / (len(own) - i))
        if plan is not None and plan.seconds <= AT_ONCE * budget.left:
            exact = _planned(net, task, budget, plan, most)
            found |= {} if exact is None else {i: exact}
        elif plan is not None:
            planned.append((plan.seconds, i, plan))
    for seconds, i, plan in sorted(planned, key=lambda item: item[:2]):
        if seconds <= EXACT_SHARE * budget.left:
            exact = _planned(own[i][0], task, budget, plan, own[i][1])
            found |= {} if exact is None else {i: exact}
    rest = [i for i in range(len(own)) if i not in found]
    weight = {i: len(own[i][0].cardinalities) for i in rest}
    for i in rest:
        share = weight[i] / sum(weight[j] for j in rest if j not in found)
        until = time.monotonic() + budget.left * share
        found[i] = _approximate(own[i][0], task, replace(budget, deadline=until), own[i][1])
    return _joined(network, parts, [found[i] for i in range(len(own))])


def _joined(network: Network, parts: Sequence[Sequence[int]], found: list[Outcome]) -> Outcome:
    """One answer from those of the parts: logarithms add up."""
    constant = network.offset + sum(float(table) for table in network.tables if table.ndim == 0)
    marginals, state = None, None
    if all(one.marginals is not None for one in found):
        marginals = [np.ones(1)] * len(network.cardinalities)
    if all(one.state is not None for one in found):
        state = np.full(len(network.cardinalities), -1)
    for part, one in zip(parts, found, strict=True):
        for i, v in enumerate(part):
            if marginals is not None and one.marginals is not None:
                marginals[v] = one.marginals[i]
            if state is not None and one.state is not None:
                state[v] = one.state[i]
    exact = sum(one.exact for one in found)
    methods = sorted({one.method for one in found if not one.exact}) or [
        max(zip(parts, found, strict=True), key=lambda item: len(item[0]))[1].method
    ]
    return Outcome(
        constant + sum(one.value for one in found),
        marginals,
        state,
        constant + sum(one.lower for one in found),
        constant + sum(one.upper for one in found),
        exact == len(found),
        ", ".join(methods),
        [f"{exact} of {len(found)} separate parts exactly", *found[-1].notes],
    )


def split(
    network: Network, parts: Sequence[Sequence[int]], maximised: frozenset[int]
) -> list[tuple[Network, frozenset[int]]]:
    """The network of each part, and which of its variables are maximised."""
    place = {v: (p, i) for p, part in enumerate(parts) for i, v in enumerate(part)}
    own: list[list[int]] = [[] for _ in parts]
    for k, scope in enumerate(network.scopes):
        if scope:
            own[place[scope[0]][0]].append(k)
    found = []
    for part, tables in zip(parts, own, strict=True):
        sizes = tuple(network.cardinalities[v] for v in part)
        scopes = tuple(tuple(place[v][1] for v in network.scopes[k]) for k in tables)
        late = frozenset(place[v][1] for v in part if v in maximised)
        found.append((Network(sizes, scopes, tuple(network.tables[k] for k in tables)), late))
    return found


def components(network: Network) -> list[list[int]]:
    """The variables of each part that shares no table with another."""
    leader = list(range(len(network.cardinalities)))

    def find(v: int) -> int:
        while leader[v] != v:
            leader[v] = leader[leader[v]]
            v = leader[v]
        return v

    for scope in network.scopes:
        for v in scope[1:]:
            leader[find(v)] = find(scope[0])
    found: dict[int, list[int]] = {}
    for v in range(len(leader)):
        found.setdefault(find(v), []).append(v)
    return list(found.values())


def _approximate(network: Network, task: str, budget: Budget, maximised: frozenset[int]) -> Outcome:
    return APPROXIMATE[task](network, budget, maximised)


def _marginals(network: Network, budget: Budget, maximised: frozenset[int]) -> Outcome:
    found = approximate_marginals.marginals(network, budget.deadline, budget.memory, budget.seed)
    notes = [found.note] if found.note else []
    own = found.log_z, found.marginals, None, found.lower, found.upper
    return Outcome(*own, found.exact, found.method, notes)


def _log_z(network: Network, budget: Budget, maximised: frozenset[int]) -> Outcome:
    """Bounds that meet prove log Z; what propagation says of single variables they do not."""
    found = _marginals(network, budget, maximised)
    meet = found.upper - found.lower <= 1e-9 * max(abs(found.value), 1.0)
    return replace(found, exact=found.exact or meet)


def _best_state(network: Network, budget: Budget, maximised: frozenset[int]) -> Outcome:
    found = approximate_states.best_state(network, budget.deadline, budget.memory, budget.seed)
    exact = found.upper <= found.value + 1e-9 * max(abs(found.value), 1.0)
    return Outcome(found.value, None, found.state, found.value, found.upper, exact, found.method)


def _marginal_map(network: Network, budget: Budget, maximised: frozenset[int]) -> Outcome:
    """The likeliest state of each maximised variable, then improved one at a time."""
    start, whole, proven = time.monotonic(), budget.left, []
    known = answer(network, "mar", replace(budget, deadline=start + whole / 2))
    guess = np.array([int(table.argmax()) for table in known.marginals or ()])

    def value(state: Int[np.ndarray, " n"]) -> float:
        until = min(budget.deadline, time.monotonic() + whole / 10)
        fixed = simplify(network, {v: int(state[v]) for v in maximised}, (), until)
        found = answer(fixed.network, "pr", replace(budget, deadline=until))
        proven.append(found.exact)
        return found.value

    until = budget.deadline - whole / 10
    state, best = climb(guess, known.marginals or [], maximised, value, until, budget.seed)
    hidden = [v for v in range(len(state)) if v not in maximised]
    state[hidden] = -1
    lower = best if all(proven) else -inf
    return Outcome(
        best, None, state, lower, known.upper, False, f"coordinate search, {known.method}"
    )


APPROXIMATE: dict[str, Callable[[Network, Budget, frozenset[int]], Outcome]] = {
    "mar": _marginals,
    "pr": _log_z,
    "map": _best_state,
    "mmap": _marginal_map,
}
"""The approximate engine of each task."""
