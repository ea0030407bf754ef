"""Messages between cliques: plain numbers with largest entry 1, or logarithms where need be."""

from collections import defaultdict
from collections.abc import Sequence
from math import exp, inf
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from undirected.inference.networks.network import Network
from undirected.inference.networks.simplify import Inconsistent

Table = Float[np.ndarray, "*states"]

TINY = 1e-300
"""Weights below this are done in logarithms."""


class Message(NamedTuple):
    """Weights on a separator with largest entry 1, or their logarithms; times exp(scale).

    Args:
        values: the weights.
        scale: a logarithm.
        logs: the values are logarithms.
        wide: the clique it comes from has a wider range than plain numbers.
        least: the smallest entry above 0, where it is known.
    """

    values: Table
    scale: float
    logs: bool = False
    wide: bool = False
    least: float | None = None


SPENT = Message(np.ones(()), 0.0)


def constant(network: Network) -> float:
    """The sum of the tables without variables."""
    total = sum(float(table) for table in network.tables if table.ndim == 0)
    if total == -inf:
        raise Inconsistent
    return total


def plain_weights(tables: Sequence[Table]) -> tuple[list[Table | None], float]:
    """Tables as weights with largest entry 1, and the sum of the logarithms of their scales.

    None stands for a table whose range is wider than that of plain numbers. Tables of one shape
    are done together.
    """
    found: list[Table | None] = [None] * len(tables)
    total = 0.0
    for numbers in _by_shape(tables).values():
        stack = np.stack([tables[k] for k in numbers])
        flat = stack.reshape(len(numbers), -1)
        tops = flat.max(1)
        if stack.ndim > 1:
            total += float(tops.sum())
        if (tops == -inf).any():
            raise Inconsistent
        with np.errstate(under="ignore"):
            flat = np.exp(flat - tops[:, None])
        wide = ((flat < TINY) & (stack.reshape(flat.shape) > -inf)).any(1)
        for k, own, out in zip(numbers, flat.reshape(stack.shape), wide, strict=True):
            found[k] = None if out else own
    return found, total


def _by_shape(tables: Sequence[Table]) -> dict[tuple[int, ...], list[int]]:
    """The numbers of the tables of each shape."""
    found = defaultdict(list)
    for k, table in enumerate(tables):
        found[table.shape].append(k)
    return found


def normalised(tables: list[Table]) -> list[Table]:
    """Each table divided by its sum: rounding errors of long trees are taken back."""
    found = list(tables)
    for numbers in _by_shape(tables).values():
        stack = np.stack([tables[k] for k in numbers])
        stack /= stack.reshape(len(numbers), -1).sum(1).reshape((-1,) + (1,) * (stack.ndim - 1))
        for k, own in zip(numbers, stack, strict=True):
            found[k] = own
    return found


def log_of(values: Table) -> Table:
    """Logarithms, -inf for 0."""
    with np.errstate(divide="ignore"):
        return np.log(values)


def ratio(separator: Table, message: Message) -> Table:
    """p(separator) / message, 0 where both are."""
    found = np.asarray(np.maximum(message.values, TINY))
    np.divide(separator, found, out=found)
    found *= exp(-message.scale)
    return found
