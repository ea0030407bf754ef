"""The message of one clique: the product of its inputs, summed or maximised over what goes there.

Small cliques are done in one piece, large ones block by block, or as a product of matrices.
"""

from collections.abc import Callable
from math import inf, log

import numpy as np

from undirected.inference.networks.blocks import Blocks, fused, multiplied
from undirected.inference.networks.cliques import Clique
from undirected.inference.networks.contractions import Factors, smallest
from undirected.inference.networks.messages import Message, Table, log_of
from undirected.inference.networks.simplify import Inconsistent

SMALL = 2**13
"""Entries of a clique that is done in one piece."""


def summed(
    clique: Clique, inputs: list[Table], factors: Factors | None, deadline: float
) -> tuple[Message, Table | None]:
    """The message of a clique, and its product where it is small.

    Two factors of it are multiplied as matrices, where they are given.
    """
    joint = None
    if clique.size <= SMALL:
        joint = full(multiplied(inputs, np.multiply), clique.shape)
        sums = np.add.reduce(joint.reshape(-1, clique.separator_size))
    elif factors is not None:
        sums = factors.message()
    else:
        sums = np.empty(clique.shape[clique.gone :])
        inputs = fused(inputs, clique.shape, np.multiply)
        parts = Blocks(clique.shape, clique.gone, deadline)

        def work(index: tuple[int, ...]) -> None:
            own = multiplied([parts.at(x, index) for x in inputs], np.multiply)
            own = full(own, parts.shape).reshape(parts.first_size, -1)
            sums[index] = np.add.reduce(own).reshape(sums[index].shape)

        parts.each(work)
    top = float(sums.max())
    if top == 0:
        raise Inconsistent
    sums /= top
    least = smallest(sums) if sums.size > SMALL else None
    return Message(sums.reshape(clique.shape[clique.gone :]), log(top), least=least), joint


def log_summed(clique: Clique, inputs: list[Table], deadline: float) -> Message:
    """The message of a clique, in logarithms."""

    def log_sum(own: Table) -> Table:
        top = own.max(0)
        top[top == -inf] = 0.0
        with np.errstate(under="ignore"):
            return log_of(np.add.reduce(np.exp(own - top))) + top

    sums, top = _reduce_logs(clique, inputs, log_sum, deadline)
    try:
        return Message(np.exp(sums), top, wide=True)
    except FloatingPointError:
        return Message(sums, top, logs=True, wide=True)


def maximised(clique: Clique, inputs: list[Table], deadline: float) -> Message:
    """The maximum of a clique's product over the variables that it eliminates."""
    values, top = _reduce_logs(clique, inputs, np.maximum.reduce, deadline)
    return Message(values, top, logs=True, wide=True)


def _reduce_logs(
    clique: Clique, inputs: list[Table], reduce: Callable[[Table], Table], deadline: float
) -> tuple[Table, float]:
    """The sum of logarithms with its first axis reduced, less its maximum, and that."""
    if clique.size <= SMALL:
        own = full(multiplied(inputs, np.add), clique.shape)
        found = reduce(own.reshape(-1, clique.separator_size))
        found = found.reshape(clique.shape[clique.gone :])
    else:
        found = np.empty(clique.shape[clique.gone :])
        inputs = fused(inputs, clique.shape, np.add)
        parts = Blocks(clique.shape, clique.gone, deadline)

        def work(index: tuple[int, ...]) -> None:
            own = full(multiplied([parts.at(x, index) for x in inputs], np.add), parts.shape)
            own = reduce(own.reshape(parts.first_size, -1))
            found[index] = own.reshape(found[index].shape)

        parts.each(work)
    top = float(found.max())
    if top == -inf:
        raise Inconsistent
    return found - top, top


def full(joint: Table, shape: tuple[int, ...]) -> Table:
    """A product in full shape, where no input depends on a variable."""
    return joint if joint.shape == shape else np.broadcast_to(joint, shape)
