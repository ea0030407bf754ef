"""Exact answers by messages over a tree of cliques.

Weights are plain numbers, scaled so that the largest is 1. Where a product loses small entries
(the processor says so), the clique is done in logarithms instead; so are maxima.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from undirected.inference.networks.beliefs import (
    block_beliefs,
    factor_beliefs,
    known,
    reduced,
    sources,
)
from undirected.inference.networks.clique_sums import SMALL, log_summed, maximised, summed
from undirected.inference.networks.cliques import Clique, CliqueTree
from undirected.inference.networks.clock import check_time
from undirected.inference.networks.contractions import SAFE, Factors, smallest
from undirected.inference.networks.messages import (
    SPENT,
    Message,
    Table,
    constant,
    log_of,
    normalised,
    plain_weights,
    ratio,
)
from undirected.inference.networks.network import Network

Scope = tuple[int, ...]

KEPT = 2**22
"""Entries of products that are kept for the way back."""


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
                message = maximised(clique, self.inputs(clique, logs=True), self.deadline)
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
            inputs = self.inputs(clique)
            factors = self._factors(clique, inputs) if clique.size > SMALL else None
            message, joint = summed(clique, inputs, factors, self.deadline)
        except FloatingPointError:
            return log_summed(clique, self.inputs(clique, logs=True), self.deadline)
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

        Equal parts are summed once.
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
            if factors is not None and known(clique, wanted):
                return factor_beliefs(clique, factors, ratio(separator, message), wanted)
        inputs = self.inputs(clique, message.wide)
        return block_beliefs(clique, inputs, message, separator, wanted, self.deadline)
