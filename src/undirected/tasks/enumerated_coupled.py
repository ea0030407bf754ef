"""RBMs of few hidden units whose real units are coupled: normal vectors given the hidden ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float

from undirected.models import MixedRBM
from undirected.tasks.enumerated import EnumeratedRBM, log_sum
from undirected.tasks.normals import Holes, Normals


def enumerated(model: MixedRBM) -> EnumeratedRBM:
    """A model whose hidden states are enumerated, with or without couplings of real units."""
    return EnumeratedRBM.of(model) if model.lateral is None else CoupledRBM.of(model)


@dataclass(frozen=True, eq=False)
class CoupledRBM(EnumeratedRBM):
    """An `EnumeratedRBM` with -v' P v / 2 of its real units in place of -v_i^2 / (2 s_i^2).

    Args:
        precision: P (R, R); the entries of `log_precision` for real units count for nothing.
    """

    precision: Float[np.ndarray, "R R"]

    @classmethod
    def of(cls, model: MixedRBM) -> "CoupledRBM":
        """The parameters of a model."""
        assert model.lateral is not None
        apart = EnumeratedRBM.of(model)
        at = apart.visible.real
        root = root_of(apart.log_precision[: at.stop - at.start], np.array(model.lateral, float))
        precision, weights, bias = root @ root.T, apart.weights, apart.bias
        weights[at] = root @ np.array(model.weights, np.float64)[at]
        bias[at] = precision @ np.array(model.visible_bias, np.float64)[at]
        return cls(apart.visible, weights, bias, apart.log_precision, apart.hidden_bias, precision)

    def model(self) -> MixedRBM:
        """The model with these parameters."""
        import jax

        at = self.visible.real
        root = np.linalg.cholesky(self.precision)
        own = np.diag(root)
        logs = self.log_precision.copy()
        logs[: len(own)] = 2 * np.log(own)
        weights, bias = self.weights.copy(), self.bias.copy()
        # What `EnumeratedRBM.model` takes for the fields of real units apart.
        weights[at] = np.linalg.solve(root, weights[at]) * own[:, None]
        bias[at] = np.linalg.solve(self.precision, bias[at]) * own**2
        apart = EnumeratedRBM(self.visible, weights, bias, logs, self.hidden_bias).model()
        lateral = jax.device_put(np.tril(root / own[:, None], -1).astype(np.float32))
        return replace(apart, lateral=lateral)

    @cached_property
    def normals(self) -> Normals:
        """The real units, for every hidden state."""
        return Normals(self.fields[:, self.visible.real], self.precision)

    @cached_property
    def log_sums(self) -> Float[np.ndarray, "S G"]:
        """Log normalisers of the variables apart, for every hidden state; 0 for real ones."""
        found = self.visible.log_sums(self.fields, self.variance)
        found[:, self.visible.real_variables] = 0.0
        return found

    @cached_property
    def moments(self) -> tuple[Float[np.ndarray, "S V"], Float[np.ndarray, "S C"]]:
        """Means and second moments of the visible units, for every hidden state."""
        means, squares = self.visible.moments(self.fields, self.variance)
        means[:, self.visible.real] = self.normals.means
        squares[:, : len(self.precision)] = self.normals.second
        return means, squares

    @cached_property
    def _log_masses(self) -> Float[np.ndarray, " S"]:
        apart = self.states @ self.hidden_bias + self.log_sums.sum(1)
        return apart + self.normals.log_masses

    @property
    def log_z(self) -> float:
        """log Z of the `MixedRBM`, whose real units have the energy (v - b)' P (v - b) / 2."""
        bias = self.bias[self.visible.real]
        shift = 0.5 * bias @ np.linalg.solve(self.precision, bias)
        return float(log_sum(self._log_masses)[0][0] - shift)

    def joint(self, v: np.ndarray, seen: np.ndarray) -> Float[np.ndarray, "rows S"]:
        """log p(v, h) of the observed part of rows, as `Visible.observed` has it."""
        return self._joint(v, seen, self._holes(seen))

    def _joint(self, v: np.ndarray, seen: np.ndarray, holes: list[Holes]) -> np.ndarray:
        apart, known = v.copy(), seen.copy()
        apart[:, self.visible.real] = known[:, self.visible.real_variables] = 0.0
        reals = self.normals.log_densities(v[:, self.visible.real], holes)
        return super().joint(apart, known) + reals

    def _expected(
        self, v: np.ndarray, seen: np.ndarray
    ) -> tuple[Float[np.ndarray, "rows V"], Float[np.ndarray, "rows C"]]:
        """Means, and variances of continuous units, given what is observed.

        An observed number may put a mean far out, where the square of that would swallow them.
        """
        posterior = log_sum(self.joint(v, seen))[1]
        first, second = (posterior @ each for each in self.moments)
        variance = second - first[:, self.visible.discrete :] ** 2
        at, R = self.visible.real, len(self.precision)
        asked = np.flatnonzero((seen[:, self.visible.real_variables] == 0).any(1))
        for part, mean, spread in self.normals.given(v[asked, at], self._holes(seen[asked])):
            rows, own = asked[part], posterior[asked[part]][:, None]
            middle = own @ mean
            first[rows, at] = middle[:, 0]
            variance[rows, :R] = (own @ (mean - middle) ** 2)[:, 0] + np.diagonal(spread, 0, 1, 2)
        return first, variance

    def slope(self, v: np.ndarray, seen: np.ndarray) -> tuple[float, list[np.ndarray]]:
        """The log-likelihood of rows, and its gradient by W, b, log 1 / s^2, c and P."""
        holes = self._holes(seen)
        total, posterior = log_sum(self._joint(v, seen, holes))
        prior = len(v) * np.exp(self.log_weights)
        gap, second = self._gaps(v, seen, posterior, prior)
        means = self.normals.means
        first, pairs = self.normals.moments(v[:, self.visible.real], holes, posterior)
        gap[:, self.visible.real] = first - prior[:, None] * means
        pairs -= len(v) * self.normals.covariance + (prior[:, None] * means).T @ means
        second[: len(self.precision)] = 0.0
        return float(total.sum()), [*self._moved(gap, second, posterior, prior), -0.5 * pairs]

    def _logs(
        self, v: np.ndarray, variable: int, known: Sequence[np.ndarray] | None = None
    ) -> Float[np.ndarray, "rows S"]:
        """log p(v_g | h, what is known of the real units) of one variable; else of all others."""
        entry = variable - self.visible.real_variables.start
        if not 0 <= entry < len(self.precision):
            return super()._logs(v, variable)
        x = v[:, self.visible.real]
        if known is None:
            return self.normals.alone(x, entry)
        found = np.empty((len(v), len(self.states)))
        holes = self._holes(known[1])
        for at, mean, spread in self.normals.given(known[0][:, self.visible.real], holes):
            own = spread[:, entry, entry, None]
            away = x[at, entry, None] - mean[:, :, entry]
            found[at] = -0.5 * (np.log(2 * np.pi * own) + away**2 / own)
        return found

    def _draw(self, row: np.ndarray, chosen: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Visible units given hidden states and the known real units of a row."""
        found, at = super()._draw(row, chosen, rng), self.visible.real
        v, seen = self.visible.observed(row[None])
        _, mean, spread = next(iter(self.normals.given(v[:, at], self._holes(seen))))
        asked = np.flatnonzero(np.isnan(row[at]))
        root = np.linalg.cholesky(spread[0][np.ix_(asked, asked)])
        noise = rng.normal(size=(len(chosen), len(asked))) @ root.T
        found[:, at.start + asked] = mean[0][chosen][:, asked] + noise
        return found

    def _holes(self, seen: np.ndarray) -> list[Holes]:
        """Which real units of rows are observed."""
        return self.normals.holes(seen[:, self.visible.real_variables])


def root_of(logs: np.ndarray, lateral: np.ndarray) -> np.ndarray:
    """The lower triangular T = A / s, so that P = T T'."""
    return np.exp(0.5 * logs)[:, None] * (np.tril(lateral, -1) + np.eye(len(lateral)))
