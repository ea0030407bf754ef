"""Conditioning: a tree whose messages would not fit is done for each state of a cutset in turn."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from math import inf, log2, prod
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from undirected.inference.networks.cliques import CliqueTree
from undirected.inference.networks.clock import check_time
from undirected.inference.networks.junction_tree import JunctionTree
from undirected.inference.networks.network import Network
from undirected.inference.networks.simplify import Inconsistent
from undirected.inference.networks.states import best_state

MOST_SLICES = 2**14
"""More states of a cutset are not tried."""


def choose_cutset(
    tree: CliqueTree, most: int, most_work: float = inf, deadline: float = inf
) -> tuple[int, ...] | None:
    """Variables to condition on so that messages need at most so many entries.

    Each next one is the variable of the largest table that leaves the least total work; where that
    is more than `most_work` there is no cutset.

    Returns:
        The variables, none where the messages fit as they are; None where no cutset is small.

    Raises:
        OutOfTime: the deadline passed.
    """
    cut: list[int] = []
    slices = 1
    while stored_entries(tree) > most:
        wide = max(tree.cliques, key=lambda clique: clique.held)
        sizes = wide.sizes
        options = [v for v, k in sizes.items() if k > 1]
        slices_after = {v: slices * sizes[v] for v in options}
        options = [v for v in options if slices_after[v] <= MOST_SLICES]
        if not options:
            return None
        cost = {}
        for v in options:
            check_time(deadline)
            cost[v] = sliced(tree, (v,)).work() * slices_after[v]
        v = min(options, key=cost.__getitem__)
        if cost[v] > most_work:
            return None
        slices = slices_after[v]
        cut.append(v)
        tree = sliced(tree, (v,))
    return tuple(cut)


def stored_entries(tree: CliqueTree) -> int:
    """Entries held at once at most: all messages, sums on the way back, and what is worked on."""
    largest = max((clique.held for clique in tree.cliques), default=1)
    return 2 * tree.stored + 4 * largest


def sliced(tree: CliqueTree, cut: tuple[int, ...]) -> CliqueTree:
    """The tree whose cut variables have one state."""
    if not cut:
        return tree
    gone = set(cut)
    cliques = [
        replace(
            clique,
            shape=tuple(
                1 if v in gone else k for v, k in zip(clique.scope, clique.shape, strict=True)
            ),
        )
        for clique in tree.cliques
    ]
    return CliqueTree(cliques, tree.when, tree.home)


def restricted(network: Network, fixed: dict[int, int]) -> Network:
    """The network in which some variables have only the state given here."""
    if not fixed:
        return network
    sizes = tuple(1 if v in fixed else k for v, k in enumerate(network.cardinalities))
    tables = []
    for scope, table in zip(network.scopes, network.tables, strict=True):
        place = tuple(slice(fixed[v], fixed[v] + 1) if v in fixed else slice(None) for v in scope)
        tables.append(table[place])
    return Network(sizes, network.scopes, tuple(tables), network.offset)


def slices(
    network: Network,
    tree: CliqueTree,
    cut: tuple[int, ...],
    kind: Callable[..., JunctionTree] = JunctionTree,
    **settings: Any,
) -> Iterator[tuple[dict[int, int], JunctionTree, float]]:
    """For each state of the cutset that is possible: it, its tree, and what `collect` gave."""
    narrow = sliced(tree, cut)
    for state in product(*(range(network.cardinalities[v]) for v in cut)):
        fixed = dict(zip(cut, state, strict=True))
        own = kind(restricted(network, fixed), narrow, **settings)
        try:
            yield fixed, own, own.collect()
        except Inconsistent:
            continue


def marginals(
    network: Network,
    tree: CliqueTree,
    cut: tuple[int, ...] = (),
    deadline: float = inf,
    kind: Callable[..., JunctionTree] = JunctionTree,
) -> tuple[float, list[Float[np.ndarray, " k"]]]:
    """Log Z and the marginals of all variables, by one kind of tree.

    Raises:
        Inconsistent: no state is allowed.
        OutOfTime: the deadline passed.
    """
    log_z, sums = -inf, [np.zeros(k) for k in network.cardinalities]
    for fixed, own, value in slices(network, tree, cut, kind, deadline=deadline):
        found = own.distribute([(v,) for v in range(len(sums))])
        total = float(np.logaddexp(log_z, value))
        for v, table in enumerate(found):
            sums[v] *= np.exp(log_z - total)
            place = slice(fixed[v], fixed[v] + 1) if v in fixed else slice(None)
            sums[v][place] += np.exp(value - total) * table
        log_z = total
    if log_z == -inf:
        raise Inconsistent
    return log_z, sums


def log_partition(
    network: Network,
    tree: CliqueTree,
    cut: tuple[int, ...] = (),
    deadline: float = inf,
    kind: Callable[..., JunctionTree] = JunctionTree,
) -> float:
    """Log Z alone, with messages forgotten once they are used."""
    values = [v for *_, v in slices(network, tree, cut, kind, deadline=deadline, keep=False)]
    if not values:
        raise Inconsistent
    return float(np.logaddexp.reduce(values))


def maximum(
    network: Network,
    tree: CliqueTree,
    maximised: frozenset[int],
    cut: tuple[int, ...] = (),
    deadline: float = inf,
) -> tuple[float, Int[np.ndarray, " n"]]:
    """The largest value over the maximised variables, and their states; others are -1.

    A cutset must be of maximised variables.
    """
    best, state = -inf, np.full(len(network.cardinalities), -1)
    for fixed, own, value in slices(network, tree, cut, maximised=maximised, deadline=deadline):
        if value > best:
            best, state = value, best_state(own)
            state[list(fixed)] = list(fixed.values())
    if best == -inf:
        raise Inconsistent
    return best, state


def work(tree: CliqueTree, cut: tuple[int, ...], threads: int) -> float:
    """Log2 of the work on all cliques over all slices."""
    sizes = {}
    for clique in tree.cliques:
        sizes.update(zip(clique.scope, clique.shape, strict=True))
    many = prod(sizes[v] for v in cut)
    return log2(max(sliced(tree, cut).work(threads) * many, 1))
