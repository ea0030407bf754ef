"""Exact answers by messages over a tree of cliques.

Weights are plain numbers, scaled so that the largest is 1. Where a product loses small entries
(the processor says so), the clique is done in logarithms instead; so are maxima.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import exp, inf, log
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from undirected.inference.networks.blocks import Blocks, fused, multiplied
from undirected.inference.networks.cliques import Clique, CliqueTree
from undirected.inference.networks.clock import check_time
from undirected.inference.networks.contractions import SAFE, Factors, smallest
from undirected.inference.networks.network import Network
from undirected.inference.networks.simplify import Inconsistent

Scope = tuple[int, ...]
Table = Float[np.ndarray, "*states"]

SMALL = 2**13
"""Entries of a clique that is done in one piece."""
TINY = 1e-300
"""Weights below this are done in logarithms."""
KEPT = 2**22
"""Entries of products that are kept for the way back."""


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


@dataclass
class JunctionTree:
    """Messages over a clique tree: `collect` comes first, the other methods use what it found.

    Args:
        network: the tables.
        tree: cliques for it.
        maximised: variables to maximise over, which the tree must eliminate last; others are
            summed out.
        deadline: when to give up with `OutOfTime`, by `time.monotonic`.
        keep: keep all messages for the way back; log Z alone needs none of them twice.
    """

    network: Network
    tree: CliqueTree
    maximised: frozenset[int] = frozenset()
    deadline: float = inf
    keep: bool = True
    messages: list[Message] = field(default_factory=list)
    kept: dict[int, Table] = field(default_factory=dict)
    weights: list[Table | None] = field(default_factory=list)
    room: int = KEPT

    def collect(self) -> float:
        """Log Z, or the maximum, by messages from the leaves to the roots.

        Raises:
            Inconsistent: no state is allowed.
            OutOfTime: the deadline passed.
        """
        total = self.network.offset + constant(self.network)
        self.weights, scale = plain_weights(self.network.tables)
        total += scale
        with np.errstate(under="raise"):
            return total + self._collect()

    def _collect(self) -> float:
        total = 0.0
        for c, clique in enumerate(self.tree.cliques):
            if c % 64 == 0 or clique.size > SMALL:
                check_time(self.deadline)
            if clique.scope[0] in self.maximised:
                message = self._max(clique, self.inputs(clique, logs=True))
            else:
                message = self._send(c, clique)
            self.messages.append(message)
            total += message.scale
            if not self.keep:
                for child in clique.children:
                    self.messages[child] = SPENT
        return total

    def _send(self, c: int, clique: Clique) -> Message:
        """The sum of a clique's product, in logarithms where plain numbers do not do."""
        try:
            message, joint = self._sum(clique, self.inputs(clique))
        except FloatingPointError:
            return self._log_sum(clique, self.inputs(clique, logs=True))
        if joint is not None and self.keep and joint.size <= self.room:
            self.kept[c] = joint
            self.room -= joint.size
        return message

    def inputs(self, clique: Clique, logs: bool = False) -> list[Table]:
        """The clique's tables, with largest entry 1, and the messages to it.

        Raises:
            FloatingPointError: they have a wider range than plain numbers.
        """
        found = []
        for k in clique.tables:
            table, plain = self.network.tables[k], self.weights[k]
            if plain is None and not logs:
                raise FloatingPointError
            own = table - table.max() if plain is None or logs else plain
            found.append(clique.aligned(own, self.network.scopes[k]))
        for c in clique.children:
            message = self.messages[c]
            if message.logs and not logs:
                raise FloatingPointError
            values = log_of(message.values) if logs and not message.logs else message.values
            found.append(clique.aligned(values, self.tree.cliques[c].separator))
        return found or [np.zeros((1,) * len(clique.shape)) + (not logs)]

    def _sum(self, clique: Clique, inputs: list[Table]) -> tuple[Message, Table | None]:
        """The message of a clique, and its product where it is small."""
        joint = None
        if clique.size <= SMALL:
            joint = full(multiplied(inputs, np.multiply), clique.shape)
            sums = np.add.reduce(joint.reshape(-1, clique.separator_size))
        elif (factors := self._factors(clique, inputs)) is not None:
            sums = factors.message()
        else:
            sums = np.empty(clique.shape[clique.gone :])
            inputs = fused(inputs, clique.shape, np.multiply)
            parts = Blocks(clique.shape, clique.gone, self.deadline)

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

    def _factors(self, clique: Clique, inputs: list[Table]) -> Factors | None:
        """Two factors to multiply as matrices, None where that is not fast, or not safe."""
        if clique.split is None:
            return None
        own = Factors.of(
            clique.scope, clique.shape, clique.gone, clique.split, inputs, self.deadline
        )
        return own if self._least(clique) > SAFE or own.safe else None

    def _least(self, clique: Clique) -> float:
        """A number that no product of a clique's inputs is below, unless it is 0."""
        least = 1.0
        for k in clique.tables:
            plain = self.weights[k]
            least *= 0.0 if plain is None else smallest(plain)
        for c in clique.children:
            message = self.messages[c]
            least *= smallest(message.values) if message.least is None else message.least
        return least

    def _log_sum(self, clique: Clique, inputs: list[Table]) -> Message:
        """The same in logarithms."""

        def log_sum(own: Table) -> Table:
            top = own.max(0)
            top[top == -inf] = 0.0
            with np.errstate(under="ignore"):
                return log_of(np.add.reduce(np.exp(own - top))) + top

        sums, top = self._reduce_logs(clique, inputs, log_sum)
        try:
            return Message(np.exp(sums), top, wide=True)
        except FloatingPointError:
            return Message(sums, top, logs=True, wide=True)

    def _max(self, clique: Clique, inputs: list[Table]) -> Message:
        """The maximum of a clique's product over the variables that it eliminates."""
        values, top = self._reduce_logs(clique, inputs, np.maximum.reduce)
        return Message(values, top, logs=True, wide=True)

    def _reduce_logs(
        self, clique: Clique, inputs: list[Table], reduce: Callable[[Table], Table]
    ) -> tuple[Table, float]:
        """The sum of logarithms with its first axis reduced, less its maximum, and that."""
        if clique.size <= SMALL:
            own = full(multiplied(inputs, np.add), clique.shape)
            found = reduce(own.reshape(-1, clique.separator_size))
            found = found.reshape(clique.shape[clique.gone :])
        else:
            found = np.empty(clique.shape[clique.gone :])
            inputs = fused(inputs, clique.shape, np.add)
            parts = Blocks(clique.shape, clique.gone, self.deadline)

            def work(index: tuple[int, ...]) -> None:
                own = full(multiplied([parts.at(x, index) for x in inputs], np.add), parts.shape)
                own = reduce(own.reshape(parts.first_size, -1))
                found[index] = own.reshape(found[index].shape)

            parts.each(work)
        top = float(found.max())
        if top == -inf:
            raise Inconsistent
        return found - top, top

    def distribute(self, scopes: Sequence[Scope]) -> list[Table]:
        """The probabilities of the states of each scope, which a clique must hold.

        Call `collect` before.
        """
        asked, read = sources(self.tree, scopes)
        beliefs: dict[int, Table] = {}
        found: list[Table] = [np.ones(())] * len(scopes)
        with np.errstate(under="ignore"):
            for c in reversed(range(len(self.tree.cliques))):
                clique = self.tree.cliques[c]
                if c % 64 == 0 or clique.size > SMALL:
                    check_time(self.deadline)
                outs = [self.tree.cliques[child].separator for child in clique.children]
                own = beliefs.pop(c, np.ones(()))
                for i in read.get(c, ()):
                    found[i] = reduced(own, clique.separator, scopes[i])
                wanted = [*outs, *(scopes[i] for i in asked.get(c, ()))]
                if not wanted:
                    continue
                sums = self._beliefs(c, own, wanted)
                beliefs.update(zip(clique.children, sums, strict=False))
                for i, value in zip(asked.get(c, ()), sums[len(outs) :], strict=True):
                    found[i] = value
        return normalised(found)

    def _beliefs(self, c: int, separator: Table, wanted: list[Scope]) -> list[Table]:
        """Sums of p(clique) onto parts of it, from the probabilities of its separator.

        p(clique) is the product of its inputs times p(separator) / message. Equal parts are summed
        once.
        """
        if self.tree.cliques[c].size <= SMALL:
            return self._different_beliefs(c, separator, wanted)
        parts = list(dict.fromkeys(wanted))
        found = dict(zip(parts, self._different_beliefs(c, separator, parts), strict=True))
        return [found[scope] for scope in wanted]

    def _different_beliefs(self, c: int, separator: Table, wanted: list[Scope]) -> list[Table]:
        clique, message = self.tree.cliques[c], self.messages[c]
        if c in self.kept:
            joint = self.kept.pop(c) * ratio(separator, message)
            return [reduced(joint, clique.scope, scope) for scope in wanted]
        if not message.wide:
            factors = self._factors(clique, self.inputs(clique))
            if factors is not None and _known(clique, wanted):
                return _factor_beliefs(clique, factors, ratio(separator, message), wanted)
        return self._block_beliefs(clique, message, separator, wanted)

    def _block_beliefs(
        self, clique: Clique, message: Message, separator: Table, wanted: list[Scope]
    ) -> list[Table]:
        """The same block by block."""
        combine = np.add if message.wide else np.multiply
        inputs = fused(self.inputs(clique, message.wide), clique.shape, combine)
        parts = Blocks(clique.shape, clique.gone, self.deadline)
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
        return [
            _ordered(total, clique.scope, scope) for total, scope in zip(sums, wanted, strict=True)
        ]


def _known(clique: Clique, wanted: list[Scope]) -> bool:
    """Whether each of the scopes is inside one of a clique's two factors."""
    assert clique.split is not None
    left, right = clique.split.knows
    return all(left.issuperset(scope) or right.issuperset(scope) for scope in wanted)


def _factor_beliefs(
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


def full(joint: Table, shape: tuple[int, ...]) -> Table:
    """A product in full shape, where no input depends on a variable."""
    return joint if joint.shape == shape else np.broadcast_to(joint, shape)


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
