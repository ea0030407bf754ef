"""Brute force in plain NumPy: the truth every other test is held against.

Nothing here imports the library. A model is given as an energy on {0, 1} states (or as weights), is
enumerated (up to about 16 units), and answers log Z, marginals, pair moments, MAP and gradients.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np


@dataclass(frozen=True)
class Truth:
    """An enumerated distribution: its states (S, n), their probabilities, log Z."""

    states: np.ndarray
    log_weights: np.ndarray
    log_z: float

    @property
    def probabilities(self) -> np.ndarray:
        return np.exp(self.log_weights - self.log_z)

    @property
    def means(self) -> np.ndarray:
        return self.probabilities @ self.states

    @property
    def moments(self) -> np.ndarray:
        """<x_i x_j>, all pairs."""
        return (self.states * self.probabilities[:, None]).T @ self.states

    @property
    def best(self) -> np.ndarray:
        return self.states[self.log_weights.argmax()]

    @property
    def best_value(self) -> float:
        return float(self.log_weights.max())

    def max_marginals(self) -> np.ndarray:
        """max over states with x_i = 1 minus max over states with x_i = 0."""
        return np.array(
            [
                self.log_weights[self.states[:, i] == 1].max()
                - self.log_weights[self.states[:, i] == 0].max()
                for i in range(self.states.shape[1])
            ]
        )

    def given(self, mask: np.ndarray, x: np.ndarray) -> "Truth":
        """The distribution over the states that agree with x under the mask."""
        keep = (self.states[:, mask] == x[mask]).all(1)
        return from_log_weights(self.states[keep], self.log_weights[keep])

    def tempered(self, temperature: float) -> "Truth":
        """The distribution p^(1/T); its `log_z` is of exp(-E / T)."""
        return from_log_weights(self.states, self.log_weights / temperature)


def binary_states(n: int) -> np.ndarray:
    """All 2^n states, float64."""
    return np.array(list(product((0.0, 1.0), repeat=n))).reshape(-1, n)


def grouped_states(groups: list[int]) -> np.ndarray:
    """All states of variables given as 1 (one binary unit) or K (K one-hot units)."""
    choices = [np.eye(k) if k > 1 else np.array([[0.0], [1.0]]) for k in groups]
    return np.array([np.concatenate(parts) for parts in product(*choices)])


def enumerate_energy(energy: Callable[[np.ndarray], float], states: np.ndarray) -> Truth:
    """The distribution exp(-energy(x)) / Z over these states."""
    return from_log_weights(states, np.array([-float(energy(x)) for x in states]))


def rbm(weights, visible_bias, hidden_bias, label_states: int = 0) -> Truth:
    """Joint distribution of an RBM over (v, h)."""
    weights, visible_bias, hidden_bias = (
        np.asarray(a, np.float64) for a in (weights, visible_bias, hidden_bias)
    )
    V, H = weights.shape
    groups = [1] * (V - label_states) + ([label_states] if label_states else []) + [1] * H
    states = grouped_states(groups)
    v, h = states[:, :V], states[:, V:]
    return from_log_weights(
        states, np.einsum("si,ij,sj->s", v, weights, h) + v @ visible_bias + h @ hidden_bias
    )


def semi_restricted(weights, visible_bias, hidden_bias, lateral, label_states: int = 0) -> Truth:
    """An RBM whose visibles before the label are also coupled; the upper triangle counts."""
    plain = rbm(weights, visible_bias, hidden_bias, label_states)
    upper = np.triu(np.asarray(lateral, np.float64), 1)
    pixels = plain.states[:, : len(upper)]
    pairs = np.einsum("si,ij,sj->s", pixels, upper, pixels)
    return from_log_weights(plain.states, plain.log_weights + pairs)


def mixture_rbm(weights, components, visible_bias, hidden_bias, component_bias) -> Truth:
    """Joint distribution over (v, h, z) of an RBM with one more hidden unit, the one-hot z."""
    w, u, b, c, d = (
        np.asarray(a, np.float64)
        for a in (weights, components, visible_bias, hidden_bias, component_bias)
    )
    V, H = w.shape
    states = grouped_states([1] * (V + H) + [u.shape[1]])
    v, h, z = states[:, :V], states[:, V : V + H], states[:, V + H :]
    pairs = np.einsum("si,ij,sj->s", v, w, h) + np.einsum("si,ik,sk->s", v, u, z)
    return from_log_weights(states, pairs + v @ b + h @ c + z @ d)


def pairwise(matrix, bias, offset: float = 0.0) -> Truth:
    """sum_{i<j} w_ij x_i x_j + b' x + offset over {0, 1}^n; the upper triangle counts."""
    upper = np.triu(np.asarray(matrix, np.float64), 1)
    bias = np.asarray(bias, np.float64)
    states = binary_states(len(bias))
    return from_log_weights(
        states, np.einsum("si,ij,sj->s", states, upper, states) + states @ bias + offset
    )


def spins(couplings, fields) -> Truth:
    """sum_{i<j} J_ij s_i s_j + h' s over s in {-1, 1}^n; `states` are given as (s + 1) / 2."""
    upper = np.triu(np.asarray(couplings, np.float64), 1)
    fields = np.asarray(fields, np.float64)
    states = binary_states(len(fields))
    s = 2 * states - 1
    return from_log_weights(states, np.einsum("si,ij,sj->s", s, upper, s) + s @ fields)


def potts(couplings, fields, edges, offset: float = 0.0) -> Truth:
    """sum_e J_e[s_i, s_j] + sum_i h_i[s_i] + offset; `states` are one-hot."""
    couplings, fields = (np.asarray(a, np.float64) for a in (couplings, fields))
    n, q = fields.shape
    states = grouped_states([q] * n)
    values = []
    for s in states.reshape(-1, n, q).argmax(-1):
        pairs = zip(couplings, np.asarray(edges), strict=True)
        own = sum(fields[i, s[i]] for i in range(n))
        values.append(own + sum(J[s[i], s[j]] for J, (i, j) in pairs) + offset)
    return from_log_weights(states, np.array(values))


def edge_matrix(n: int, edges, weights) -> np.ndarray:
    """The upper-triangular matrix of an edge list."""
    matrix = np.zeros((n, n))
    for (i, j), w in zip(np.asarray(edges), np.asarray(weights), strict=True):
        matrix[min(i, j), max(i, j)] += w
    return matrix


def visible_marginal(truth: Truth, n_visible: int) -> dict[tuple[int, ...], float]:
    """log of the unnormalised marginal of each visible state."""
    table: dict[tuple[int, ...], list[float]] = {}
    for state, lw in zip(truth.states, truth.log_weights, strict=True):
        table.setdefault(tuple(int(a) for a in state[:n_visible]), []).append(lw)
    return {v: _logsumexp(np.array(lws)) for v, lws in table.items()}


def finite_difference(
    function: Callable[[np.ndarray], float], at: np.ndarray, step: float = 1e-5
) -> np.ndarray:
    """Central differences of a scalar function, entry by entry."""
    gradient = np.zeros_like(at)
    for index in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[index] += step
        down[index] -= step
        gradient[index] = (function(up) - function(down)) / (2 * step)
    return gradient


def from_log_weights(states: np.ndarray, log_weights: np.ndarray) -> Truth:
    """The distribution with these log weights."""
    return Truth(states, log_weights, _logsumexp(log_weights))


def _logsumexp(a: np.ndarray) -> float:
    top = a.max()
    return float(top + np.log(np.exp(a - top).sum()))
