"""Random blocks of variables that can be summed or maximised out exactly, given all others.

With the variables of a cutset fixed, what is left of a network has a narrow elimination order. Such
blocks hold nearly all variables of many networks that are too wide as a whole, so that drawing or
maximising one block after another mixes or climbs fast.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log2

import numpy as np
from jaxtyping import Float, Int

from undirected.inference.networks.clock import check_time
from undirected.inference.networks.network import Network
from undirected.inference.networks.orders import neighbours


@dataclass(frozen=True, eq=False)
class Block:
    """Variables that are free together.

    Args:
        order: the free variables, in an order of elimination whose cliques are small.
        fixed: the cutset.
    """

    order: list[int]
    fixed: list[int]


def random_block(
    network: Network,
    order: Sequence[int],
    bound: float,
    key: np.random.Generator,
    near: list[set[int]] | None = None,
    reluctance: Float[np.ndarray, " n"] | None = None,
    deadline: float = inf,
) -> Block:
    """Eliminate along an order, and fix random members of each clique that is too large.

    One variable, drawn at random, is never fixed: so each is free now and then, whatever hangs on
    it, and chains that draw such blocks can reach every state.

    Args:
        network: the network.
        order: of elimination of all variables.
        bound: log2 of the entries of the largest clique that is allowed.
        key: of the choice.
        near: the neighbours of each variable, where they are known.
        reluctance: of each variable to be free, which chance and the number of variables that hang
            on it decide by default.
        deadline: when to give up with `OutOfTime`.
    """
    logs = [log2(k) for k in network.cardinalities]
    graph = [set(own) for own in near or neighbours(len(logs), network.scopes)]
    chance = key.random(len(logs))
    free = int(key.integers(len(logs)))
    fixed: set[int] = set()
    kept = []
    for v in order:
        check_time(deadline)
        if v in fixed:
            continue
        clique = graph[v]
        weight = logs[v] + sum(logs[u] for u in clique)
        while weight > bound and clique - {free}:
            # Of the others the likeliest to go are those that many variables hang on.
            gone = max(
                clique - {free},
                key=lambda u: len(graph[u]) * chance[u] if reluctance is None else reluctance[u],
            )
            weight -= logs[gone]
            _fix(gone, graph, fixed)
        if weight > bound and v != free:
            _fix(v, graph, fixed)
            continue
        kept.append(v)
        for u in clique:
            own = graph[u]
            own |= clique
            own.discard(u)
            own.discard(v)
    return Block(kept, sorted(fixed))


def around(centre: int, near: list[set[int]], key: np.random.Generator) -> Float[np.ndarray, " n"]:
    """The distance of each variable from one of them, and a random part of 1."""
    far = np.full(len(near), float(len(near)))
    far[centre] = 0.0
    front, distance = {centre}, 0
    while front:
        distance += 1
        front = {u for v in front for u in near[v] if far[u] == len(near)}
        far[list(front)] = distance
    return far + key.random(len(near))


def _fix(v: int, graph: list[set[int]], fixed: set[int]) -> None:
    """Put a variable into the cutset, and take it from the graph."""
    fixed.add(v)
    for u in graph[v]:
        graph[u].discard(v)
    graph[v] = set()


def condition(network: Network, block: Block, state: Int[np.ndarray, " n"]) -> Network:
    """The network of the free variables, sorted by number, given the states of the others."""
    free = sorted(block.order)
    place = {v: i for i, v in enumerate(free)}
    scopes, tables, offset = [], [], network.offset
    for scope, table in zip(network.scopes, network.tables, strict=True):
        inside = tuple(place[v] for v in scope if v in place)
        if len(inside) < len(scope):
            table = table[tuple(slice(None) if v in place else state[v] for v in scope)]
        if inside:
            scopes.append(inside)
            tables.append(table)
        else:
            offset += float(table)
    sizes = tuple(network.cardinalities[v] for v in free)
    return Network(sizes, tuple(scopes), tuple(tables), offset)
