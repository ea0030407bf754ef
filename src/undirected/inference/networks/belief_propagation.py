"""Loopy belief propagation on a network: tables of one shape are worked on together.

Messages are logarithms with maximum 0. A forbidden state has `FLOOR` instead of -inf, so that
differences of messages are defined; its probability is exp(FLOOR) = 0.
"""

import time
from dataclasses import dataclass
from functools import cached_property
from math import inf

import numpy as np
from jaxtyping import Float, Int

from undirected.inference.networks.answers import Approximation
from undirected.inference.networks.network import Network

FLOOR = -1e4
"""The logarithm that stands for 0."""

Flat = Float[np.ndarray, " entries"]


@dataclass(frozen=True, eq=False)
class Group:
    """All tables of one shape.

    Args:
        tables: non-negative, each divided by its largest entry, as logs in `tops`.
        index: for each axis the places of its variables' states in a flat vector of all states.
        start: for each axis where its messages start in the flat vector of all messages.
    """

    tables: Float[np.ndarray, "m *states"]
    tops: Float[np.ndarray, " m"]
    index: tuple[Int[np.ndarray, "m k"], ...]
    start: tuple[int, ...]

    def slot(self, flat: Flat, axis: int) -> Float[np.ndarray, "m k"]:
        """The messages of one axis, as a view of the vector of all messages."""
        rows, size = self.index[axis].shape
        return flat[self.start[axis] : self.start[axis] + rows * size].reshape(rows, size)


@dataclass(frozen=True, eq=False)
class FactorGraphArrays:
    """A network as groups of tables and flat vectors.

    Args:
        sizes: the number of states of each variable.
        begin: where the states of each variable begin in a vector of all states.
        groups: the tables by shape.
        target: for each entry of a message its place in the vector of all states.
        offset: the constant of the network.
    """

    sizes: Int[np.ndarray, " n"]
    begin: Int[np.ndarray, " n"]
    groups: list[Group]
    target: Int[np.ndarray, " entries"]
    offset: float

    @cached_property
    def owner(self) -> Int[np.ndarray, " states"]:
        """The variable of each entry in a vector of all states."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @cached_property
    def degree(self) -> Int[np.ndarray, " n"]:
        """How many tables each variable is in."""
        firsts = self.target[np.isin(self.target, self.begin)]
        return np.bincount(self.owner[firsts], minlength=len(self.sizes))

    def normalised(self, logs: Float[np.ndarray, " states"]) -> Float[np.ndarray, " states"]:
        """Probabilities of the states of each variable."""
        top = np.maximum.reduceat(logs, self.begin) if len(logs) else logs
        p = np.exp(logs - top[self.owner])
        return p / np.add.reduceat(p, self.begin)[self.owner] if len(p) else p

    def split(self, flat: Float[np.ndarray, " states"]) -> list[Float[np.ndarray, " k"]]:
        return np.split(flat, self.begin[1:]) if len(self.begin) else []


def arrays(network: Network) -> FactorGraphArrays:
    """Sort the tables by shape and number the states and the messages."""
    sizes = np.array(network.cardinalities, int)
    begin = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(int) if len(sizes) else sizes
    shapes: dict[tuple[int, ...], list[int]] = {}
    offset = network.offset
    for k, table in enumerate(network.tables):
        if table.ndim:
            shapes.setdefault(table.shape, []).append(k)
        else:
            offset += float(table)
    groups, targets, place = [], [], 0
    for shape, members in shapes.items():
        scopes = np.array([network.scopes[k] for k in members])
        logs = np.stack([network.tables[k] for k in members])
        tops = logs.reshape(len(members), -1).max(1)
        safe = np.where(np.isfinite(tops), tops, 0.0)
        tables = np.exp(logs - safe.reshape(-1, *[1] * len(shape)))
        index = tuple(begin[scopes[:, a]][:, None] + np.arange(k) for a, k in enumerate(shape))
        start = []
        for own in index:
            start.append(place)
            place += own.size
            targets.append(own.ravel())
        groups.append(Group(tables, tops, index, tuple(start)))
    target = np.concatenate(targets) if targets else np.zeros(0, int)
    return FactorGraphArrays(sizes, begin, groups, target, offset)


def others(group: Group, cavity: list[np.ndarray], axis: int, maximise: bool) -> np.ndarray:
    """For each state of one axis: the sum (or largest) over the others of table times cavities."""
    product = group.tables
    for other in reversed(range(len(group.index))):
        if other == axis:
            continue
        # Axes after `axis` are gone by then, those before it are not: count from the left.
        place = other + 1
        weights = cavity[other]
        product = np.moveaxis(product, place, -1)
        middle = [1] * (product.ndim - 2)
        weights = weights.reshape(len(weights), *middle, weights.shape[1])
        if maximise:
            product = (product * weights).max(-1)
        else:
            product = np.einsum("m...k,m...k->m...", product, weights)
    return product


@dataclass(frozen=True, eq=False)
class Messages:
    """The state of belief propagation: messages of tables to their variables, one after another."""

    flat: Flat
    residual: float = inf
    sweeps: int = 0

    def beliefs(self, graph: FactorGraphArrays) -> Float[np.ndarray, " states"]:
        """For each variable the sum of its messages."""
        return np.bincount(graph.target, self.flat, minlength=int(graph.sizes.sum()))


def cavities(graph: FactorGraphArrays, flat: Flat) -> list[list[Float[np.ndarray, "m k"]]]:
    """For each group and axis the product of the messages of all other tables, largest entry 1."""
    total = np.bincount(graph.target, flat, minlength=int(graph.sizes.sum()))
    out = []
    for group in graph.groups:
        own = []
        for axis, index in enumerate(group.index):
            logs = total[index] - group.slot(flat, axis)
            own.append(np.exp(logs - logs.max(1, keepdims=True)))
        out.append(own)
    return out


def update(
    graph: FactorGraphArrays, flat: Flat, damping: float, maximise: bool = False
) -> tuple[Flat, float]:
    """All messages once more, and the largest change of a normalised message before damping."""
    new, residual = np.empty_like(flat), 0.0
    for group, cavity in zip(graph.groups, cavities(graph, flat), strict=True):
        for axis in range(len(group.index)):
            out = others(group, cavity, axis, maximise)
            with np.errstate(divide="ignore"):
                logs = np.maximum(np.log(out), FLOOR)
            logs -= logs.max(1, keepdims=True)
            old = group.slot(flat, axis)
            change = np.exp(logs) - np.exp(old)
            residual = max(residual, float(np.abs(change).max()))
            group.slot(new, axis)[:] = damping * old + (1 - damping) * logs
    return new, residual


def bethe(graph: FactorGraphArrays, flat: Flat) -> float:
    """The Bethe approximation of log Z at these messages (at a fixed point, a stationary value)."""
    total = np.bincount(graph.target, flat, minlength=int(graph.sizes.sum()))
    value = graph.offset + _log_sums(graph, total).sum()
    for group, cavity in zip(graph.groups, cavities(graph, flat), strict=True):
        value += group.tops.sum()
        product = group.tables
        for axis in reversed(range(len(cavity))):
            shape = [1] * product.ndim
            shape[0], shape[-1] = cavity[axis].shape
            product = (product * cavity[axis].reshape(shape)).sum(-1)
        with np.errstate(divide="ignore"):
            value += np.log(product).sum()
        for axis, index in enumerate(group.index):
            # log Σ cavity · message, both with the same constants as above and as in `total`.
            logs = total[index]
            cavity_top = (logs - group.slot(flat, axis)).max(1)
            top = logs.max(1)
            value -= (np.log(np.exp(logs - top[:, None]).sum(1)) + top - cavity_top).sum()
    return float(value)


def _log_sums(graph: FactorGraphArrays, logs: Float[np.ndarray, " states"]) -> np.ndarray:
    if not len(logs):
        return np.zeros(0)
    top = np.maximum.reduceat(logs, graph.begin)
    return top + np.log(np.add.reduceat(np.exp(logs - top[graph.owner]), graph.begin))


def propagate(
    graph: FactorGraphArrays,
    start: Flat | None = None,
    damping: float = 0.0,
    iterations: int = 1000,
    tolerance: float = 1e-9,
    deadline: float = inf,
    maximise: bool = False,
) -> Messages:
    """Messages until they change by less than the tolerance, or iterations or time are spent."""
    flat = np.zeros(len(graph.target)) if start is None else start
    residual, done = (0.0 if not len(flat) else inf), 0
    while done < iterations and residual > tolerance and time.monotonic() < deadline:
        flat, residual = update(graph, flat, damping, maximise)
        done += 1
    return Messages(flat, residual, done)


@dataclass(frozen=True)
class LoopyBeliefPropagation:
    """Sum-product messages with damping and random restarts.

    The first run starts from uniform messages without damping; while a run does not converge, the
    next one is damped more, and the later ones start at random. The converged run of the largest
    Bethe log Z is the answer, else the run whose last change was least.

    Args:
        dampings: of the runs, one after the other.
        iterations: at most, in each run.
        tolerance: the largest change of a message at which a run has converged.
        restarts: how many runs start at random after the first ones.
    """

    dampings: tuple[float, ...] = (0.0, 0.5, 0.9)
    iterations: int = 300
    tolerance: float = 1e-8
    restarts: int = 0

    def __call__(self, network: Network, deadline: float = inf, seed: int = 0) -> Approximation:
        """Approximate marginals and the Bethe log Z."""
        graph, draw = arrays(network), np.random.default_rng(seed)
        best, last = None, None
        for attempt in range(len(self.dampings) + self.restarts):
            if best is not None and time.monotonic() >= deadline:
                break
            at_random = attempt >= len(self.dampings)
            start = draw.normal(size=len(graph.target)) if at_random else last
            damping = self.dampings[min(attempt, len(self.dampings) - 1)]
            run = propagate(graph, start, damping, self.iterations, self.tolerance, deadline)
            last, value = run.flat, bethe(graph, run.flat)
            rank = (run.residual <= self.tolerance, value if at_random else -run.residual)
            if best is None or rank > best[0]:
                best = rank, run, value
            if run.residual <= self.tolerance and self.restarts == 0:
                break
        assert best is not None
        return self._answer(graph, best[1], best[2])

    def _answer(self, graph: FactorGraphArrays, run: Messages, value: float) -> Approximation:
        p = graph.normalised(run.beliefs(graph))
        note = "converged" if run.residual <= self.tolerance else f"residual {run.residual:.2g}"
        return Approximation(graph.split(p), value, -inf, inf, "belief propagation", note)
