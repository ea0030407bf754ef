"""Normal vectors with one precision matrix and a mean for every hidden state; rows with holes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from undirected.tasks.enumerated import MOST_NUMBERS


@dataclass(frozen=True, eq=False)
class Normals:
    """Densities exp(l' x - x' P x / 2) of real vectors, one for every l.

    Rows of `x` hold 0 where an entry is missing; `holes` is what `holes` says of those that are.

    Args:
        fields: l (S, R).
        precision: P (R, R).
    """

    fields: Float[np.ndarray, "S R"]
    precision: Float[np.ndarray, "R R"]

    @cached_property
    def covariance(self) -> Float[np.ndarray, "R R"]:
        """The inverse of P."""
        return np.linalg.inv(self.precision)

    @cached_property
    def means(self) -> Float[np.ndarray, "S R"]:
        """The mean of every density."""
        return self.fields @ self.covariance

    @cached_property
    def log_masses(self) -> Float[np.ndarray, " S"]:
        """The log of the integral of each density."""
        logs = np.linalg.slogdet(self.precision)[1] - len(self.precision) * np.log(2 * np.pi)
        return 0.5 * (self.fields * self.means).sum(1) - 0.5 * logs

    @cached_property
    def _pairs(self) -> Float[np.ndarray, "S RR"]:
        """Products of every two entries of the means: one matrix product then serves all holes."""
        return (self.means[:, :, None] * self.means[:, None]).reshape(len(self.means), -1)

    @cached_property
    def second(self) -> Float[np.ndarray, "S R"]:
        """The second moment of every entry."""
        return self.means**2 + np.diag(self.covariance)

    def log_densities(self, x: np.ndarray, holes: "Sequence[Holes]") -> Float[np.ndarray, "rows S"]:
        """log p of the observed entries of every row under every density."""
        found = np.empty((len(x), len(self.fields)))
        for part in holes:
            own = part.apply(part.inverse, x[part.rows])
            squares = part.inverse.reshape(len(part.inverse), -1) @ self._pairs.T
            squares += part.log_norm[:, None]
            found[part.rows] = own @ self.means.T
            found[part.rows] -= 0.5 * (squares[part.number] + (own * x[part.rows]).sum(1)[:, None])
        return found

    def given(
        self, x: np.ndarray, holes: "Sequence[Holes]"
    ) -> Iterator[tuple[slice, Float[np.ndarray, "rows S R"], Float[np.ndarray, "rows R R"]]]:
        """Means of whole rows given their observed entries, and covariances, chunk by chunk."""
        for part in holes:
            rest = np.eye(len(self.precision)) - part.regression
            own = self.means @ rest.transpose(0, 2, 1)
            mean = part.apply(part.regression, x[part.rows])[:, None] + own[part.number]
            yield part.rows, mean, (rest @ self.covariance)[part.number]

    def moments(
        self, x: np.ndarray, holes: "Sequence[Holes]", shares: Float[np.ndarray, "rows S"]
    ) -> tuple[Float[np.ndarray, "S R"], Float[np.ndarray, "R R"]]:
        """Sums over rows of E[x; state] and E[x x'] given what is observed; `shares` of states."""
        R = len(self.precision)
        first, second = np.zeros(self.fields.shape), np.zeros((R, R))
        for part in holes:
            own, rest = shares[part.rows], np.eye(R) - part.regression
            known = part.apply(part.regression, x[part.rows])
            filled = part.apply(rest, own @ self.means)
            weights = part.summed(own)
            first += own.T @ known
            moved = (weights.T @ rest.reshape(len(rest), -1)).reshape(-1, R, R)
            first += (moved @ self.means[:, :, None])[..., 0]
            pairs = (weights @ self._pairs).reshape(-1, R, R)
            second += (rest @ pairs @ rest.transpose(0, 2, 1)).sum(0)
            second += known.T @ known + known.T @ filled + filled.T @ known
            second += np.tensordot(weights.sum(1), rest, 1) @ self.covariance
        return first, second

    def alone(self, x: np.ndarray, entry: int) -> Float[np.ndarray, "rows S"]:
        """log p of one entry given all others, under every density; rows without holes."""
        own = self.precision[entry, entry]
        away = (x @ self.precision[entry])[:, None] - self.fields[:, entry]
        return 0.5 * (np.log(own / (2 * np.pi)) - away**2 / own)

    def holes(self, seen: np.ndarray) -> "list[Holes]":
        """What is missing in rows whose observed entries are 1 in `seen`, chunk by chunk."""
        R, S = len(self.precision), len(self.fields)
        size = max(1, MOST_NUMBERS // (R * max(R, S)))
        parts = [slice(start, start + size) for start in range(0, len(seen), size)]
        return [Holes.of(rows, seen[rows], self.covariance) for rows in parts]


@dataclass(frozen=True, eq=False)
class Holes:
    """What follows from which entries of rows are observed, once for every pattern of them.

    Attributes:
        rows: which these are.
        number: of the pattern of every row.
        inverse: of the covariance of the observed entries, 0 elsewhere.
        regression: what takes observed entries to the mean of all, of zero means.
        log_norm: log det of 2 pi times the covariance of the observed entries.
    """

    rows: slice
    number: Int[np.ndarray, " rows"]
    inverse: Float[np.ndarray, "P R R"]
    regression: Float[np.ndarray, "P R R"]
    log_norm: Float[np.ndarray, " P"]

    @classmethod
    def of(cls, rows: slice, seen: np.ndarray, covariance: Float[np.ndarray, "R R"]) -> "Holes":
        """From the observed entries of rows."""
        patterns, number = np.unique(seen.astype(bool), axis=0, return_inverse=True)
        both = patterns[:, :, None] & patterns[:, None, :]
        kept = np.where(both, covariance, np.eye(len(covariance)))
        inverse = np.linalg.inv(kept) * both
        # Exactly what is observed comes back as it is.
        regression = np.where(patterns[:, :, None], np.eye(len(covariance)), covariance @ inverse)
        logs = np.linalg.slogdet(kept)[1] + np.log(2 * np.pi) * patterns.sum(1)
        return cls(rows, number.reshape(-1), inverse, regression, logs)

    def summed(self, values: Float[np.ndarray, "rows S"]) -> Float[np.ndarray, "P S"]:
        """Sums over the rows of every pattern."""
        order = np.argsort(self.number, kind="stable")
        starts = np.searchsorted(self.number[order], np.arange(len(self.inverse)))
        return np.add.reduceat(values[order], starts, axis=0)

    def apply(self, matrices: Float[np.ndarray, "P R R"], x: np.ndarray) -> np.ndarray:
        """The matrix of its pattern times every row."""
        if len(matrices) == 1:
            return x @ matrices[0].T
        return np.einsum("nij,nj->ni", matrices[self.number], x)
