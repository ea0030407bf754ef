"""Conditional RBMs over discrete outputs, exactly and in NumPy: hidden states are enumerated."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from undirected.core.table_units import TableUnits
from undirected.tasks.enumerated import MOST_NUMBERS, Visible, hidden_states, log_sum
from undirected.tasks.enumerated_learning import WEAK, maximise


@dataclass(frozen=True, eq=False)
class EnumeratedConditionalRBM:
    """A conditional RBM over discrete outputs, a category being one softmax unit.

    -E(v, h; x) = v' W h + v' (A x + b) + h' (C x + c).

    Args:
        visible: the outputs.
        weights: W (V, H).
        visible_features: A (V, X).
        hidden_features: C (H, X).
        visible_bias: b (V,).
        hidden_bias: c (H,).
    """

    visible: Visible
    weights: Float[np.ndarray, "V H"]
    visible_features: Float[np.ndarray, "V X"]
    hidden_features: Float[np.ndarray, "H X"]
    visible_bias: Float[np.ndarray, " V"]
    hidden_bias: Float[np.ndarray, " H"]

    @cached_property
    def states(self) -> Float[np.ndarray, "S H"]:
        """All states of the hidden units."""
        return hidden_states(len(self.hidden_bias))

    def fields(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Biases of outputs and of hidden units that rows of features give."""
        outputs = x @ self.visible_features.T + self.visible_bias
        return outputs, x @ self.hidden_features.T + self.hidden_bias

    def _enumerate(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """log Z of each row, p(h | x), and the means of the outputs given h and x."""
        outputs, hidden = self.fields(x)
        fields = outputs[:, None] + (self.states @ self.weights.T)[None]
        sums = self.visible.log_sums(fields, np.ones(0))
        joint = hidden @ self.states.T + sums.sum(2)
        log_z, p = log_sum(joint)
        return log_z[:, 0], p, np.exp(fields - self.visible.spread(sums))

    def _chunks(self, rows: int) -> list[slice]:
        size = max(1, MOST_NUMBERS // (len(self.states) * self.visible.size))
        return [slice(start, start + size) for start in range(0, rows, size)]

    def predict(self, x: Float[np.ndarray, "rows X"]) -> Float[np.ndarray, "rows V"]:
        """p(v = 1 | x) of every output unit."""
        found = np.empty((len(x), self.visible.size))
        for part in self._chunks(len(x)):
            _, p, means = self._enumerate(x[part])
            found[part] = np.einsum("ns,nsd->nd", p, means)
        return found

    def slope(self, x: np.ndarray, v: np.ndarray) -> tuple[float, list[np.ndarray]]:
        """The conditional log-likelihood, and its gradient by W, A, C, b and c."""
        total, slopes = 0.0, [np.zeros(())] * 5
        for c in self._chunks(len(x)):
            outputs, hidden = self.fields(x[c])
            hidden = hidden + v[c] @ self.weights
            log_z, p, means = self._enumerate(x[c])
            free = (v[c] * outputs).sum(1) + np.logaddexp(0, hidden).sum(1)
            total += float((free - log_z).sum())
            joint, on = p[:, :, None] * means, expit(hidden)
            d_out, d_hidden = v[c] - joint.sum(1), on - p @ self.states
            moved = v[c].T @ on - joint.sum(0).T @ self.states
            own = [moved, d_out.T @ x[c], d_hidden.T @ x[c], d_out.sum(0), d_hidden.sum(0)]
            slopes = [a + b for a, b in zip(slopes, own, strict=True)]
        return total, slopes


def fit_conditional(
    columns: Any,
    x: Float[np.ndarray, "rows X"],
    v: Float[np.ndarray, "rows V"],
    n_hidden: int,
    rng: np.random.RandomState,
    *,
    alpha: float = 1.0,
    max_iter: int = 200,
) -> tuple[EnumeratedConditionalRBM, int]:
    """The most probable conditional RBM under a normal prior of variance 1 / alpha.

    Args:
        columns: what each output is: "binary", or its number of states.
        x: features.
        v: units of the outputs.
        n_hidden: hidden units, up to 10.
        rng: of the first weights.
        alpha: the penalty of the squared weights is half of it.
        max_iter: most iterations of L-BFGS.

    Returns:
        The model, and the iterations.
    """
    visible, X = Visible(TableUnits.of(columns)), x.shape[1]
    share = (v.sum(0) + 0.5) / (len(v) + 1.0)
    first = [
        rng.normal(0, 0.1, (visible.size, n_hidden)),
        np.zeros((visible.size, X)),
        rng.normal(0, 0.1, (n_hidden, X)),
        np.log(share) - np.where(visible.spread(visible.is_binary), np.log1p(-share), 0.0),
        np.zeros(n_hidden),
    ]

    def value(parts: list[np.ndarray]) -> tuple[float, list[np.ndarray]]:
        return EnumeratedConditionalRBM(visible, *parts).slope(x, v)

    penalties, free = [alpha, alpha, alpha, WEAK, WEAK], [(None, None)] * 5
    parts, steps = maximise(value, first, penalties, len(x), max_iter, free)
    return EnumeratedConditionalRBM(visible, *parts), steps
