"""Exact answers in plain NumPy where full enumeration is out of reach, and models to test with."""

import jax.numpy as jnp
import numpy as np

from tests import oracle
from undirected.core.graph import torus
from undirected.models import RBM, Ising


def rbm_log_z(weights, visible_bias, hidden_bias) -> float:
    """Sum over all hidden states, the binary visibles summed out."""
    W, b, c = (np.asarray(a, np.float64) for a in (weights, visible_bias, hidden_bias))
    h = oracle.binary_states(W.shape[1])
    return oracle._logsumexp(h @ c + np.logaddexp(0, b + h @ W.T).sum(1))


def torus_log_z(side: int, temperature: float) -> float:
    """log trace of the transfer matrix between rows, to the power of the number of rows."""
    s = 2 * oracle.binary_states(side) - 1
    row = (s * np.roll(s, 1, axis=1)).sum(1) / temperature
    matrix = np.exp(s @ s.T / temperature + row[:, None] / 2 + row[None, :] / 2)
    values = np.linalg.eigvalsh(matrix)
    return float(np.log((values**side).sum()))


def make_rbm(
    n_visible: int, n_hidden: int, scale: float, seed: int = 0, label_states: int = 0
) -> RBM:
    rng = np.random.default_rng(seed)
    return RBM(
        jnp.asarray(scale * rng.standard_normal((n_visible, n_hidden))),
        jnp.asarray(rng.standard_normal(n_visible) - 1),
        jnp.asarray(rng.standard_normal(n_hidden) - 1),
        label_states,
    )


def make_torus(side: int, temperature: float) -> Ising:
    graph = torus(side, side)
    return Ising.from_spins(jnp.full(graph.n_edges, 1 / temperature), jnp.zeros(graph.n), graph)
