"""Placeholder: independent uniform variables."""

import numpy as np

from undirected.inference.networks.answers import Approximation, BestState
from undirected.inference.networks.network import Network


def marginals(network: Network, deadline: float, memory: int, seed: int) -> Approximation:
    """Uniform."""
    uniform = [np.full(k, 1 / k) for k in network.cardinalities]
    return Approximation(uniform, 0.0, -np.inf, np.inf, "uniform")


def best_state(network: Network, deadline: float, memory: int, seed: int) -> BestState:
    """The first state of all."""
    state = np.zeros(len(network.cardinalities), int)
    return BestState(state, network.value(state), np.inf, "zeros")
