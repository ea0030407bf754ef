"""Answers about one given discrete network: exact where it fits, as good as time allows elsewhere.

Nothing here imports JAX unless the network is a model of the library.
"""

import re
import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from undirected.core.errors import UndirectedError, check_counts
from undirected.core.memory import MOST_UNITS, available_memory
from undirected.inference.networks.engines import Budget, Outcome, answer
from undirected.inference.networks.low_degree import eliminate_low_degree
from undirected.inference.networks.network import Network
from undirected.inference.networks.simplify import Inconsistent, simplify
from undirected.io.uai import UaiModel, read_uai
from undirected.tasks.named_columns import known_by_name

TASKS = ("mar", "pr", "map", "mmap")
UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
MANY = 2000
"""Variables from which on those with few neighbours are eliminated first."""
RESERVE, PER_VARIABLE = 0.05, 1e-5
"""Seconds kept to carry an answer back to its names, and the same for each variable."""
SIMPLIFY_SHARE = 0.3
"""Of the time that is left: what simplification may take."""


@dataclass(frozen=True, eq=False)
class Solution:
    """An answer about a network, by name and in the order in which variables were declared.

    Args:
        task: "mar", "pr", "map" or "mmap".
        names: the name of each variable.
        tables: for "mar" the probabilities of the states of each variable, in that order.
        states: for "map" the state of each variable, in that order; for "mmap" -1 where a variable
            is summed out.
        log_z: log Z of the network given the evidence, where the task finds it.
        log_value: for "map" the log value of the state, for "mmap" the log of its sum.
        lower: a number that log Z (or, of "map" and "mmap", the best value) is not below.
        upper: a number that it is not above.
        exact: whether the answer is exact but for rounding.
        method: the engines that gave it.
        notes: what a reader should know.
        seconds: what it took.
        words: the words for the states of each variable.

    Example:
        >>> import undirected as un
        >>> net = un.markov_network([2, 2], {(0, 1): [[3, 1], [1, 3]]})
        >>> found = un.solve(net, "pr")
        >>> round(found.log_z, 4), found.lower == found.upper, found.exact
        (2.0794, True, True)
    """

    task: str
    names: tuple[Hashable, ...]
    tables: list[Float[np.ndarray, " k"]] | None
    states: Int[np.ndarray, " n"] | None
    log_z: float | None
    log_value: float | None
    lower: float
    upper: float
    exact: bool
    method: str
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    words: Sequence[Sequence[Hashable]] = field(default=(), repr=False)

    @property
    def marginals(self) -> dict[Hashable, dict[Hashable, float]]:
        """`{variable: {state: probability}}`."""
        if self.tables is None:
            raise UndirectedError(f'the task was "{self.task}"; marginals come with task="mar"')
        return {
            name: dict(zip(words, table.tolist(), strict=False))
            for name, words, table in zip(self.names, self.words, self.tables, strict=True)
        }

    @property
    def state(self) -> dict[Hashable, Hashable]:
        """`{variable: state}`, without variables that are summed out."""
        if self.states is None:
            raise UndirectedError(
                f'the task was "{self.task}"; states come with task="map" or "mmap"'
            )
        return {
            name: words[x]
            for name, words, x in zip(self.names, self.words, self.states, strict=True)
            if x >= 0
        }


def solve(
    net: Any,
    task: str = "mar",
    *,
    given: Any = None,
    maximise: Any = (),
    seconds: float = 20.0,
    memory: int | str = "4G",
    seed: int = 0,
) -> Solution:
    """Marginals, log Z or best states of a discrete network, within limits of time and memory.

    The network is simplified by evidence and zeros. It is then answered exactly by a junction tree
    where the tables of the best order found fit, and otherwise by approximate engines that improve
    until the time is up; the answer says which.

    Args:
        net: a network: of `markov_network`, any model whose factors can be written as tables, what
            `io.uai.read_uai` gives, or the path of a UAI file.
        task: "mar" (all marginals), "pr" (log Z), "map" (a most probable state) or "mmap" (a most
            probable state of the variables in `maximise`, the others being summed out).
        given: evidence, `{variable: state}`, by names; or a row of a data frame.
        maximise: the variables of the task "mmap", or one.
        seconds: when the answer has to be there at the latest.
        memory: bytes for tables, as a number or such as "500M" or "4G"; never more than 80 % of
            what the system has left.
        seed: of the random draws of heuristics and approximate engines.

    Returns:
        A `Solution`.

    Raises:
        NotFinite: no state agrees with the evidence. The task "pr" answers -inf instead.

    Example:
        >>> import undirected as un
        >>> net = un.markov_network({"rain": 2, "sky": ["clear", "dark"]},
        ...                         {("rain", "sky"): [[8, 2], [1, 3]]})
        >>> found = un.solve(net, given={"sky": "dark"})
        >>> found.exact, round(found.marginals["rain"][1], 7)
        (True, 0.6)
        >>> un.solve(net, "map").state
        {'rain': 0, 'sky': 'clear'}
    """
    start = time.monotonic()
    _check(task, seconds, seed)
    room = int(min(memory_bytes(memory), 0.8 * available_memory()))
    network, names, words = _named(net)
    spare = RESERVE + PER_VARIABLE * len(names)
    budget = Budget(start + max(seconds - spare, 0.5 * seconds), room, seed)
    known = _evidence(names, words, {} if given is None else known_by_name("solve", given))
    asked = _maximised(task, names, maximise)
    found = _outcome(network, task, known, asked, budget)
    return _solution(task, names, words, found, asked, time.monotonic() - start)


def _check(task: str, seconds: float, seed: int) -> None:
    if task not in TASKS:
        known = ", ".join(TASKS)
        raise UndirectedError(f"solve: task {task!r:.40} is unknown; pass one of {known}")
    if not (isinstance(seconds, Real) and seconds > 0):
        raise UndirectedError(f"solve: seconds is {seconds!r:.40}; pass a number above 0")
    check_counts("solve", 0, seed=seed)


def _outcome(
    network: Network, task: str, given: dict[int, int], asked: frozenset[int], budget: Budget
) -> Outcome:
    """The answer about a network."""
    try:
        own = _answer_sparse if len(network.cardinalities) >= MANY else _answer
        return own(network, task, given, asked, budget)
    except Inconsistent:
        if task != "pr":
            raise
        note = "the evidence is inconsistent: its probability is 0"
        return Outcome(-inf, lower=-inf, upper=-inf, exact=True, notes=[note])


def _answer(
    network: Network, task: str, given: dict[int, int], asked: frozenset[int], budget: Budget
) -> Outcome:
    """The same by engines on the simplified network."""
    until = time.monotonic() + SIMPLIFY_SHARE * budget.left
    small = simplify(network, given, None if task in ("mar", "map") else asked, until)
    own = frozenset(small.source[v] for v in asked) - {-1}
    if task == "map":
        own = frozenset(range(len(small.network.cardinalities)))
    found = answer(small.network, task, budget, own)
    return replace(
        found,
        marginals=None if found.marginals is None else small.marginals(found.marginals),
        state=None if found.state is None else small.state(found.state),
    )


def _answer_sparse(
    network: Network, task: str, given: dict[int, int], asked: frozenset[int], budget: Budget
) -> Outcome:
    """The same after all variables with few neighbours are eliminated, many at once."""
    small = eliminate_low_degree(
        network,
        given,
        maximise=task == "map",
        marginals=task == "mar",
        keep=asked,
        deadline=time.monotonic() + SIMPLIFY_SHARE * budget.left,
    )
    place = {v: i for i, v in enumerate(small.kept.tolist())}
    found = _answer(small.network, task, {}, frozenset(place[v] for v in asked), budget)
    marginals, state = None, None
    if found.marginals is not None:
        marginals = small.marginals(found.marginals)
    if found.state is not None and task == "map":
        state = small.state(found.state)
    elif found.state is not None:
        state = np.full(len(network.cardinalities), -1)
        state[small.kept] = found.state
    first = f"{small.eliminated} variables with at most two neighbours eliminated first"
    steps = [first] if small.eliminated else []
    steps += [found.method or "simplification"] if place or not steps else []
    return replace(found, marginals=marginals, state=state, method=", then ".join(steps))


def memory_bytes(memory: int | str) -> int:
    """A number of bytes from a number, or from a text such as "500M" or "4G"."""
    told = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", str(memory).lower())
    if told is None or float(told[1]) <= 0:
        raise UndirectedError(
            f"solve: memory is {memory!r:.40}; pass a number of bytes, or a text such as 500M or 4G"
        )
    return int(float(told[1]) * UNITS[told[2]])


def _named(net: Any) -> tuple[Network, tuple[Hashable, ...], Sequence[Sequence[Hashable]]]:
    """A network in the order of its names, the names, and the words for the states of each."""
    if isinstance(net, str | Path):
        net = read_uai(net)
    if isinstance(net, UaiModel):
        with np.errstate(divide="ignore"):
            tables = tuple(np.log(table) for table in net.tables)
        net = Network(net.cardinalities, net.scopes, tables)
    if isinstance(net, Network):
        if sum(net.cardinalities) > MOST_UNITS:
            raise UndirectedError(
                f"solve: the variables have {sum(net.cardinalities):,} states together; at most "
                f"{MOST_UNITS:,} fit"
            )
        return net, tuple(range(len(net.cardinalities))), [range(k) for k in net.cardinalities]
    from undirected.inference.elimination import network_of

    network, layout = network_of("solve", net)
    return network, layout.names, [layout.states_of(v) for v in layout.order]


def _evidence(
    names: Sequence[Hashable], words: Sequence[Sequence[Hashable]], given: Mapping[Any, Any]
) -> dict[int, int]:
    """Evidence by numbers."""
    if not isinstance(given, Mapping):
        raise UndirectedError(
            f"solve: given is a {type(given).__name__}; pass a dictionary {{variable: state}}, or "
            "a row of a data frame"
        )
    known = {}
    for name, state in given.items():
        v = _number(names, name)
        if not isinstance(state, Hashable) or state not in words[v]:
            some = ", ".join(repr(word) for word in words[v][:6])
            raise UndirectedError(
                f"solve: variable {name!r} has no state {state!r:.40}; pass one of {some}"
            )
        known[v] = words[v].index(state)
    return known


def _maximised(task: str, names: Sequence[Hashable], maximise: Any) -> frozenset[int]:
    one = isinstance(maximise, Hashable) and maximise in names  # a word, or a tuple that is a name
    wanted = [maximise] if one or isinstance(maximise, str) else maximise
    if not isinstance(wanted, Iterable):
        raise UndirectedError(
            f"solve: maximise is {maximise!r:.40}; pass a list of names of variables"
        )
    found = frozenset(_number(names, name) for name in wanted)
    if bool(found) != (task == "mmap"):
        raise UndirectedError(
            f'solve: task "{task}" with {len(found)} variables to maximise; the task "mmap" takes '
            "one or more, other tasks none"
        )
    return found


def _number(names: Sequence[Hashable], name: Any) -> int:
    if isinstance(name, int) and 0 <= name < len(names) and names[name] == name:
        return name  # the search below would be slow for many
    if name not in names:
        some = ", ".join(repr(known) for known in names[:6]) + (", ..." if len(names) > 6 else "")
        raise UndirectedError(f"solve: no variable is called {name!r:.40}; got {some}")
    return names.index(name)


def _solution(
    task: str,
    names: tuple[Hashable, ...],
    words: Sequence[Sequence[Hashable]],
    found: Outcome,
    asked: frozenset[int],
    seconds: float,
) -> Solution:
    """The outcome by the names of the user."""
    states = found.state
    if states is not None and task == "mmap":
        states = np.array([x if v in asked else -1 for v, x in enumerate(states.tolist())])
    sums = task in ("mar", "pr")
    tables = found.marginals
    if tables is not None:  # the forbidden second state of a variable of one has no word
        pairs = zip(tables, words, strict=True)
        tables = [t[:1] if own[1:] == (None,) and not t[1:].any() else t for t, own in pairs]
    return Solution(
        task=task,
        names=names,
        tables=tables,
        states=states,
        log_z=found.value if sums else None,
        log_value=None if sums else found.value,
        lower=found.lower,
        upper=found.upper,
        exact=found.exact,
        method=found.method or "simplification alone",
        notes=tuple(found.notes),
        seconds=seconds,
        words=words,
    )
