"""Gibbs sampling of large blocks: each is drawn exactly given its cutset.

Marginals are averages of exact conditionals (Rao-Blackwell), taken over the moves in which a
variable was free. The choice of blocks does not depend on the state, so every move leaves the
distribution as it is, zeros included.
"""

import time
from dataclasses import dataclass, field
from math import inf

import numpy as np
from jaxtyping import Float, Int

from undirected.inference.networks.clock import OutOfTime, check_time
from undirected.inference.networks.cutsets import Block, random_block
from undirected.inference.networks.join_graph import (
    Propagation,
    Scope,
    Shape,
    Table,
    join_graph,
)
from undirected.inference.networks.network import Network
from undirected.inference.networks.orders import neighbours
from undirected.inference.networks.simplify import aligned

BLOCKS = 12
"""How many blocks take turns."""


@dataclass(frozen=True, eq=False)
class BlockTree:
    """A block and its join tree, ready for any state of its cutset.

    Args:
        free: the variables of the block, sorted.
        run: messages on the tree.
        logs: for each cluster that touches the cutset, the log of the tables that do not.
        touched: for each of these, the tables that do: scope, table, and scope within the block.
        shapes: the shape of each cluster.
    """

    free: list[int]
    run: Propagation
    logs: dict[int, Table]
    touched: dict[int, list[tuple[Scope, Table, Scope]]]
    shapes: list[tuple[int, ...]]

    @classmethod
    def of(cls, network: Network, block: Block, deadline: float = inf) -> "BlockTree":
        free = sorted(block.order)
        place = {v: i for i, v in enumerate(free)}
        sizes = tuple(network.cardinalities[v] for v in free)
        inner, outer = [], []
        for scope, table in zip(network.scopes, network.tables, strict=True):
            check_time(deadline)
            inside = tuple(place[v] for v in scope if v in place)
            if inside:
                (inner if len(inside) == len(scope) else outer).append((scope, table, inside))
        # Tables at the cutset give their scopes to the tree; their values come with each state.
        empty = [np.zeros([sizes[v] for v in inside]) for _, _, inside in outer]
        small = Network(
            sizes,
            tuple(inside for _, _, inside in [*inner, *outer]),
            (*(table for _, table, _ in inner), *empty),
        )
        tree = join_graph(small, [place[v] for v in block.order], inf, deadline)
        run = Propagation.start(small, tree, deadline)
        touched: dict[int, list[tuple[Scope, Table, Scope]]] = {}
        for item, home in zip(outer, tree.homes[len(inner) :], strict=True):
            touched.setdefault(home, []).append(item)
        with np.errstate(divide="ignore"):
            logs = {c: np.log(run.tables[c]) for c in touched}
        shapes = [tuple(sizes[v] for v in scope) for scope in tree.scopes]
        return cls(free, run, logs, touched, shapes)

    @property
    def entries(self) -> int:
        return sum(table.size for table in self.run.tables)

    def load(self, state: Int[np.ndarray, " n"], deadline: float = inf) -> None:
        """Take the states of the cutset from here, and start messages again."""
        free = set(self.free)
        for c, items in self.touched.items():
            check_time(deadline)
            logs = self.logs[c].reshape(self.shapes[c])
            for scope, table, inside in items:
                own = table[tuple(slice(None) if v in free else state[v] for v in scope)]
                logs = logs + aligned(own, inside, self.run.structure.scopes[c])
            top = logs.max()
            self.run.tables[c] = np.exp(logs - (top if top > -inf else 0.0)).ravel()
        for message in self.run.messages.values():
            message.fill(1.0)


@dataclass
class BlockGibbs:
    """A chain of states and the sums of its conditionals.

    Args:
        network: the network.
        state: where the chain is: an allowed state.
        sums: for each variable the sum of its conditionals.
        counts: over how many moves.
        moves: how many there were.
    """

    network: Network
    state: Int[np.ndarray, " n"]
    sums: list[Float[np.ndarray, " k"]] = field(default_factory=list)
    counts: Int[np.ndarray, " n"] = field(default_factory=lambda: np.zeros(0, int))
    moves: int = 0

    def __post_init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start the sums again, as after burn-in."""
        self.sums = [np.zeros(k) for k in self.network.cardinalities]
        self.counts = np.zeros(len(self.sums), int)

    def move(self, tree: BlockTree, key: np.random.Generator, deadline: float = inf) -> bool:
        """Draw a block given the rest; False where time ran out before."""
        try:
            tree.load(self.state, deadline)
            if not tree.run.sweep(deadline=deadline):
                return False
            drawn, tables = beliefs_and_draw(tree.run, key, deadline)
        except OutOfTime:
            return False
        self.moves += 1
        if drawn is None:
            return True  # numbers too small to be told from 0: the chain stays
        for v, own, table in zip(tree.free, drawn, tables, strict=True):
            self.state[v] = own
            self.sums[v] += table
            self.counts[v] += 1
        return True

    def marginals(self) -> list[Float[np.ndarray, " k"]]:
        """Averages; uniform for variables that were never free."""
        return [
            own / count if count else np.full(len(own), 1 / len(own))
            for own, count in zip(self.sums, self.counts, strict=True)
        ]


def beliefs_and_draw(
    run: Propagation, key: np.random.Generator, deadline: float = inf
) -> tuple[Int[np.ndarray, " n"] | None, list[Float[np.ndarray, " k"]]]:
    """A state from a calibrated join tree, None where it has none, and all marginals.

    Clusters are visited from the root: each draws what its parent has not.
    """
    sizes = run.network.cardinalities
    state = np.array([key.integers(k) for k in sizes], int)
    tables = [np.full(k, 1 / k) for k in sizes]
    known: set[int] = set()
    for c in reversed(range(len(run.tables))):
        check_time(deadline)
        scope = run.structure.scopes[c]
        new = [v for v in scope if v not in known]
        if not new:
            continue
        belief = run.belief(c)
        for v in new:
            own = Shape.of(scope, (v,), sizes).reduce(belief)
            total = own.sum()
            if not total > 0:
                return None, tables
            tables[v] = own / total
        given = tuple(state[v] if v in known else slice(None) for v in scope)
        rows = belief.reshape([sizes[v] for v in scope])[given]
        sums = rows.ravel().cumsum()
        if not sums[-1] > 0:
            return None, tables
        chosen = int(np.searchsorted(sums, key.random() * sums[-1], side="right"))
        chosen = min(chosen, len(sums) - 1)
        for v, own in zip(new, np.unravel_index(chosen, rows.shape), strict=True):
            state[v] = own
        known.update(new)
    return state, tables


@dataclass
class Chains:
    """Chains that take turns, with blocks as large as the time allows.

    Args:
        chains: from different starts.
        orders: of elimination, which give blocks in turn.
        bound: log2 of the entries of the largest clique of a block.
        most: the largest bound that memory allows.
        entries: of the tables of all blocks together, at most.
        blocks: in use, at the present bound.
    """

    chains: list[BlockGibbs]
    orders: list[list[int]]
    bound: float = 12.0
    most: float = 24.0
    entries: float = 1e8
    blocks: list[BlockTree] = field(default_factory=list)

    def run(
        self, key: np.random.Generator, deadline: float, moves: int = 10**9, wanted: int = 100
    ) -> None:
        """Move until the deadline.

        Blocks grow while at least `wanted` moves would fit into the time that is left. What was
        drawn before the last growth is forgotten, as burn-in.
        """
        network = self.chains[0].network
        near = neighbours(len(network.cardinalities), network.scopes)
        done, slowest = 0, 0.0
        while done < moves and (before := time.monotonic()) + slowest < deadline:
            chain, turn = self.chains[done % len(self.chains)], done // len(self.chains)
            try:
                block = self._block(turn, near, key, deadline)
            except OutOfTime:
                return
            if not chain.move(block, key, deadline):
                return
            done += 1
            now = time.monotonic()
            slowest = max(slowest, now - before)
            pays = slowest * wanted < deadline - now and self.bound < self.most
            if done % (2 * len(self.chains)) == 0 and pays:
                self.bound, slowest, self.blocks = min(self.bound + 1, self.most), 0.0, []
                for own in self.chains:
                    own.forget()

    def _block(
        self, turn: int, near: list[set[int]], key: np.random.Generator, deadline: float
    ) -> BlockTree:
        """One of a few blocks that are used again and again, made when its turn comes first.

        There are as many as memory allows, and at least so many that every variable is free in
        one; more would be fresher, but a block costs more to make than to draw.
        """
        if turn < len(self.blocks):
            return self.blocks[turn]
        network, order = self.chains[0].network, self.orders[turn % len(self.orders)]
        enough = len(self.blocks) >= BLOCKS or self._size() > self.entries
        missing = set(range(len(near))).difference(*(tree.free for tree in self.blocks))
        if enough and not missing:
            return self.blocks[turn % len(self.blocks)]
        block = random_block(network, order, self.bound, key, near, deadline=deadline)
        tree = BlockTree.of(network, block, deadline)
        if self._size() + tree.entries <= self.entries or not self.blocks:
            self.blocks.append(tree)
        return tree

    def _size(self) -> int:
        return sum(tree.entries for tree in self.blocks)

    def marginals(self) -> list[Float[np.ndarray, " k"]]:
        """The average of the chains."""
        return _means([chain.marginals() for chain in self.chains])

    def error(self) -> float:
        """The expected square error of the average, from the difference of the chains."""
        tables = [chain.marginals() for chain in self.chains]
        if len(tables) < 2 or min(chain.counts.min() for chain in self.chains) == 0:
            return inf
        return distance(*tables[:2]) / 4


def _means(tables: list[list[Float[np.ndarray, " k"]]]) -> list[Float[np.ndarray, " k"]]:
    return [np.mean(own, axis=0) for own in zip(*tables, strict=True)]


def distance(a: list[Float[np.ndarray, " k"]], b: list[Float[np.ndarray, " k"]]) -> float:
    """The mean over variables of the square difference of their marginals."""
    return float(np.mean([((p - q) ** 2).sum() for p, q in zip(a, b, strict=True)]))
