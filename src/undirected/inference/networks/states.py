"""Joint states from a tree that has collected: the best one, the best few, and exact samples.

The cliques are visited from the roots to the leaves. Given the state of its separator, a clique's
inputs alone decide about the variables that it eliminates.
"""

import heapq
from itertools import count

import numpy as np
from jaxtyping import Float, Int

from undirected.inference.networks.cliques import Clique
from undirected.inference.networks.junction_tree import JunctionTree

States = Int[np.ndarray, "m n"]


def best_state(tree: JunctionTree) -> Int[np.ndarray, " n"]:
    """The state of the maximised variables that has the value `collect` gave.

    Variables that were summed out are -1.
    """
    states = np.full((1, len(tree.network.cardinalities)), -1)
    for clique in reversed(tree.tree.cliques):
        if clique.scope[0] in tree.maximised:
            _assign(states, clique, conditional(tree, clique, states).argmax(0))
    return states[0]


def sample_states(tree: JunctionTree, m: int, rng: np.random.Generator) -> States:
    """Independent draws from the distribution, of a tree that sums over all variables."""
    states = np.zeros((m, len(tree.network.cardinalities)), int)
    for clique in reversed(tree.tree.cliques):
        logs = conditional(tree, clique, states)
        _assign(states, clique, (logs + rng.gumbel(size=logs.shape)).argmax(0))
    return states


def best_states(tree: JunctionTree, value: float, m: int) -> tuple[States, Float[np.ndarray, " m"]]:
    """The m best states and their values, of a tree that maximises over all variables.

    A search whose estimate is exact: what a partial state loses against the best is known as soon
    as it is chosen, so nothing is visited that leads to none of the m.

    Args:
        tree: after `collect`.
        value: what `collect` gave.
        m: how many; fewer come back where fewer are allowed.
    """
    cliques = list(reversed(tree.tree.cliques))
    start = np.full((1, len(tree.network.cardinalities)), -1)
    number = count()
    heap = [(0.0, next(number), 0, start)]
    found, losses = [], []
    while heap and len(found) < m:
        loss, _, depth, state = heapq.heappop(heap)
        if depth == len(cliques):
            found.append(state[0])
            losses.append(loss)
            continue
        own = conditional(tree, cliques[depth], state)[:, 0]
        own = own.max() - own
        for choice in np.argsort(own, kind="stable")[: m - len(found)]:
            if own[choice] < np.inf:
                new = state.copy()
                _assign(new, cliques[depth], np.array([choice]))
                heapq.heappush(heap, (loss + own[choice], next(number), depth + 1, new))
    return np.array(found), value - np.array(losses)


def conditional(
    tree: JunctionTree, clique: Clique, states: States
) -> Float[np.ndarray, "choices m"]:
    """Log weights of the joint states of what the clique eliminates, given its separator's."""
    gone, total = clique.gone, np.zeros(())
    for x in tree.inputs(clique, logs=True):
        index = []
        for axis, (v, k) in enumerate(zip(clique.scope, x.shape, strict=True)):
            if axis < gone:
                index.append(np.arange(k).reshape([k if a == axis else 1 for a in range(gone + 1)]))
            else:
                index.append(states[:, v] if k > 1 else 0)
        total = total + x[tuple(index)]
    shape = (*clique.shape[:gone], len(states))
    return np.broadcast_to(total, shape).reshape(-1, len(states))


def _assign(states: States, clique: Clique, choice: Int[np.ndarray, " m"]) -> None:
    """Write a choice, a number of a joint state, into the columns of the variables."""
    own = np.unravel_index(choice, clique.shape[: clique.gone])
    for v, state in zip(clique.scope[: clique.gone], own, strict=True):
        states[:, v] = state
