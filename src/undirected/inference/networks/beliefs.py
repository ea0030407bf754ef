"""The way back: probabilities of parts of a clique, from those of its separator.

p(clique) is the product of its inputs times p(separator) / message.
"""

from collections import defaultdict
from collections.abc import Sequence
from math import inf

import numpy as np

from undirected.inference.networks.blocks import Blocks, fused, multiplied
from undirected.inference.networks.clique_sums import full
from undirected.inference.networks.cliques import Clique, CliqueTree
from undirected.inference.networks.contractions import Factors
from undirected.inference.networks.messages import Message, Table, log_of, ratio

Scope = tuple[int, ...]


def block_beliefs(
    clique: Clique,
    inputs: list[Table],
    message: Message,
    separator: Table,
    wanted: list[Scope],
    deadline: float,
) -> list[Table]:
    """Sums of p(clique) onto parts of it, block by block.

    Inputs are logarithms where the message has a wider range than plain numbers.
    """
    combine = np.add if message.wide else np.multiply
    inputs = fused(inputs, clique.shape, combine)
    parts = Blocks(clique.shape, clique.gone, deadline)
    if message.wide:
        known = message.values if message.logs else log_of(message.values)
        weights, shift = separator, np.where(known > -inf, known, 0.0) + message.scale
    else:
        weights, shift = ratio(separator, message), None
    weights = np.ascontiguousarray(weights)

    def work(index: tuple[int, ...], sums: list[Table]) -> None:
        joint = full(multiplied([parts.at(x, index) for x in inputs], combine), parts.shape)
        joint = np.exp(joint - shift[index]) if shift is not None else joint
        joint = joint * weights[index]
        for before, members in groups:
            part = joint.sum(before, keepdims=True) if before else joint
            for i in members:
                own = parts.at(sums[i], index)
                axes = tuple([a for a, k in enumerate(own.shape) if k == 1])
                own += part.sum(axes, keepdims=True)

    shapes = [clique.axes(scope) for scope in wanted]
    groups = sum_together([parts.within(shape) for shape in shapes])
    sums = parts.each_summing(work, shapes)
    return [_ordered(total, clique.scope, scope) for total, scope in zip(sums, wanted, strict=True)]


def known(clique: Clique, wanted: list[Scope]) -> bool:
    """Whether each of the scopes is inside one of a clique's two factors."""
    assert clique.split is not None
    left, right = clique.split.knows
    return all(left.issuperset(scope) or right.issuperset(scope) for scope in wanted)


def factor_beliefs(
    clique: Clique, factors: Factors, weights: Table, wanted: list[Scope]
) -> list[Table]:
    """Sums of p(clique) onto parts of its two factors."""
    assert clique.split is not None
    left, right = factors.beliefs(weights)
    first = clique.split.knows[0]
    found = []
    for scope in wanted:
        own = left if first.issuperset(scope) else right
        inside = set(scope)
        axes = tuple([i for i, v in enumerate(clique.scope) if v not in inside])
        found.append(_ordered(own.sum(axes, keepdims=True), clique.scope, scope))
    return found


def sources(
    tree: CliqueTree, scopes: Sequence[Scope]
) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """For each scope the clique to sum, or the separator: single variables take the smallest."""
    small: dict[int, tuple[int, int]] = {}
    for c, clique in enumerate(tree.cliques):
        size = clique.separator_size
        for v in clique.separator:
            if v not in small or size < small[v][0]:
                small[v] = size, c
    asked, read = defaultdict(list), defaultdict(list)
    for i, scope in enumerate(scopes):
        if len(scope) == 1 and scope[0] in small:
            read[small[scope[0]][1]].append(i)
        elif scope:
            asked[tree.home[min(scope, key=tree.when.__getitem__)]].append(i)
    return asked, read


def sum_together(shapes: list[tuple[int, ...]]) -> list[tuple[tuple[int, ...], list[int]]]:
    """Groups of sums onto parts of the same table that share a first step.

    The axes are taken in four runs; those runs that no member of a group needs are summed over
    once. A shape has length 1 where an axis is summed over.
    """
    found = defaultdict(list)
    for i, shape in enumerate(shapes):
        run = [4 * axis // len(shape) for axis in range(len(shape))]
        needed = {run[axis] for axis, k in enumerate(shape) if k > 1}
        found[tuple(a for a in range(len(shape)) if run[a] not in needed)].append(i)
    return list(found.items())


def reduced(joint: Table, have: Scope, wanted: Scope) -> Table:
    """A table summed onto some of its variables, in their order."""
    axes = tuple([i for i, v in enumerate(have) if v not in wanted])
    left = tuple([v for v in have if v in wanted])
    return _transposed(np.add.reduce(joint, axes) if axes else joint, left, wanted)


def _ordered(total: Table, have: Scope, wanted: Scope) -> Table:
    """A sum that has an axis of length 1 for each variable that is not wanted."""
    kept = set(wanted)
    axes = tuple(i for i, v in enumerate(have) if v not in kept)
    return _transposed(total.squeeze(axes), tuple(v for v in have if v in kept), wanted)


def _transposed(table: Table, have: Scope, wanted: Scope) -> Table:
    if have == wanted:
        return table
    return table.transpose([have.index(v) for v in wanted])
