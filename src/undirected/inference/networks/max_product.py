"""States that max-product messages prefer, as a start for searches for the best state."""

import time

import numpy as np
from jaxtyping import Float

from undirected.inference.networks.belief_propagation import FactorGraphArrays, arrays, propagate
from undirected.inference.networks.network import Network
from undirected.inference.networks.reduction import reduce_network
from undirected.inference.networks.search import (
    REDUCED_SHARE,
    SETTLED,
    Search,
    State,
    forbids,
    offer,
)

MESSAGES = ((8.0, 0.3), (6.0, 0.3), (7.0, 0.3), (8.0, 0.0), (9.0, 0.3), (7.0, 0.5), (6.0, 0.0))
"""Log2 of the entries of cliques that are maximised out before messages, and their damping."""
PERTURBED = (0.1, 0.3, 1.0)
"""The scale of random changes of tables."""


def max_product_states(search: Search) -> None:
    """The states that max-product messages prefer, after different variables were maximised out."""
    for bound, damping in MESSAGES:
        if time.monotonic() > search.until(0.3):
            return
        max_product(search, bound, damping, 0.0)


def perturbed_states(search: Search) -> None:
    """The same with random changes of the tables, which lead to other good states."""
    turn, share = 0, 0.8 if forbids(search.network) else 0.35
    while time.monotonic() < search.until(share):
        bound, damping = MESSAGES[turn % len(MESSAGES)]
        max_product(search, bound, damping, PERTURBED[turn % len(PERTURBED)])
        turn += 1


def max_product(search: Search, bound: float, damping: float, noise: float) -> None:
    """Offer the states that messages prefer every few sweeps."""
    if bound not in search.reduced:
        until = time.monotonic() + REDUCED_SHARE * (search.deadline - search.start)
        search.reduced[bound] = reduce_network(search.network, bound, until)
    small = search.reduced[bound]
    network = perturbed(small.network, noise, search.key) if noise else small.network
    graph, flat = arrays(network), None
    until = time.monotonic() + 0.06 * (search.deadline - search.start)
    for _ in range(8):
        run = propagate(graph, flat, damping, 20, SETTLED, until, maximise=True)
        offer(search, small.state(_preferred(graph, run.beliefs(graph))), "max-product")
        if run.residual <= SETTLED or time.monotonic() >= until:
            return
        flat = run.flat


def perturbed(network: Network, noise: float, key: np.random.Generator) -> Network:
    """The network with random numbers added to the log values of single variables."""
    scopes = tuple((v,) for v in range(len(network.cardinalities)))
    extra = tuple(noise * key.gumbel(size=k) for k in network.cardinalities)
    return Network(
        network.cardinalities, network.scopes + scopes, network.tables + extra, network.offset
    )


def _preferred(graph: FactorGraphArrays, logs: Float[np.ndarray, " states"]) -> State:
    return np.array([int(own.argmax()) for own in graph.split(logs)], int)
