"""Importance sampling from weighted mini-buckets.

A state is drawn variable by variable, against the order of elimination: each from a mixture over
the minis of its bucket, whose shares are the weights of Hölder's inequality. No weight p̃(x) / q(x)
then exceeds the upper bound, so the mean weight is an unbiased estimate of Z of bounded spread.
"""

import time
from dataclasses import dataclass
from math import inf

import numpy as np
from jaxtyping import Float, Int

from undirected.inference.networks.mini_buckets import MiniBuckets
from undirected.inference.networks.network import Network


@dataclass(frozen=True, eq=False)
class Draws:
    """Weighted states.

    Args:
        states: the states, one row each.
        log_weights: log p̃(x) - log q(x), -inf for states that are forbidden.
    """

    states: Int[np.ndarray, "s n"]
    log_weights: Float[np.ndarray, " s"]


def log_values(network: Network, states: Int[np.ndarray, "s n"]) -> Float[np.ndarray, " s"]:
    """log p̃ of each row."""
    total = np.full(len(states), network.offset)
    for scope, table in zip(network.scopes, network.tables, strict=True):
        total += table[tuple(states[:, v] for v in scope)]
    return total


def draw(buckets: MiniBuckets, count: int, key: np.random.Generator) -> Draws:
    """States from the mixtures of the mini-buckets, with their weights."""
    network = buckets.network
    states = np.zeros((count, len(network.cardinalities)), int)
    log_q = np.zeros(count)
    for v, minis in zip(reversed(buckets.order), reversed(buckets.buckets), strict=True):
        p = np.zeros((count, network.cardinalities[v]))
        for mini in minis:
            rows = mini.rows(states) / mini.weight
            rows -= np.maximum(rows.max(1, keepdims=True), -1e300)
            own = np.exp(rows)
            total = own.sum(1, keepdims=True)
            p += mini.weight * np.divide(own, total, out=np.zeros_like(own), where=total > 0)
        # Where every mini forbids every state the row has weight 0 whatever is drawn.
        total = p.sum(1, keepdims=True)
        p = np.where(total > 0, p / np.where(total > 0, total, 1.0), 1 / p.shape[1])
        edges = p.cumsum(1)
        chosen = (key.random((count, 1)) * edges[:, -1:] >= edges).sum(1)
        states[:, v] = np.minimum(chosen, p.shape[1] - 1)
        with np.errstate(divide="ignore"):
            log_q += np.log(p[np.arange(count), states[:, v]])
    return Draws(states, log_values(network, states) - log_q)


@dataclass
class Estimate:
    """Running sums over weighted states, all relative to the largest weight so far.

    Args:
        sizes: the number of states of each variable.
        count: how many states were drawn.
        top: the log of the largest weight.
        total: Σ w.
        squares: Σ w².
        tables: Σ w of each state of each variable.
    """

    sizes: tuple[int, ...]
    count: int = 0
    top: float = -inf
    total: float = 0.0
    squares: float = 0.0
    tables: list[Float[np.ndarray, " k"]] | None = None

    def add(self, draws: Draws) -> None:
        logs = draws.log_weights
        self.count += len(logs)
        top = max(self.top, float(logs.max()))
        if top == -inf:
            return
        shrink = np.exp(self.top - top)
        w = np.exp(logs - top)
        self.total = self.total * shrink + w.sum()
        self.squares = self.squares * shrink**2 + (w**2).sum()
        old = self.tables or [np.zeros(k) for k in self.sizes]
        self.tables = [
            own * shrink + np.bincount(draws.states[:, v], w, minlength=self.sizes[v])
            for v, own in enumerate(old)
        ]
        self.top = top

    @property
    def log_z(self) -> float:
        """log of the mean weight."""
        if self.total == 0:
            return -inf
        return float(self.top + np.log(self.total) - np.log(self.count))

    @property
    def effective(self) -> float:
        """The effective number of states, (Σ w)² / Σ w²."""
        return self.total**2 / self.squares if self.squares else 0.0

    @property
    def error(self) -> float:
        """The standard error of the mean weight, relative to it."""
        if self.effective == 0:
            return inf
        return float(np.sqrt(max(1 / self.effective - 1 / self.count, 0.0)))

    def marginals(self) -> list[Float[np.ndarray, " k"]]:
        if self.tables is None:
            return [np.full(k, 1 / k) for k in self.sizes]
        return [own / own.sum() for own in self.tables]


def sample(
    buckets: MiniBuckets,
    key: np.random.Generator,
    deadline: float,
    batch: int = 1000,
    most: int = 10**9,
) -> Estimate:
    """Draw batches until the deadline, or until there are `most` states."""
    estimate = Estimate(buckets.network.cardinalities)
    while estimate.count < most and (estimate.count == 0 or time.monotonic() < deadline):
        estimate.add(draw(buckets, min(batch, most - estimate.count), key))
    return estimate
