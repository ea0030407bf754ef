"""A table of factor groups: one entry here puts a group before every check and every algorithm.

A row says in plain NumPy what a group adds to the negative energy, and what its statistic is. Its
factors form a tree unless it says otherwise, so that message passing must be exact.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

import jax.numpy as jnp
import numpy as np

from tests import factor_oracle as oracle
from undirected.core.graph import from_edges
from undirected.core.layout import Layout
from undirected.factors import (
    Bilinear,
    ConvolutionalOr,
    Edges,
    Factor,
    Symmetric,
    count,
    logical_and,
    logical_or,
    mixed_tables,
    pool,
    potts,
    sparse_tables,
    tables,
    third_order,
)
from undirected.models import FactorGraph, discrete

NO = oracle.FORBIDDEN
PAIRS_ONLY = frozenset({"cut", "tree reweighted"})
"""What takes couplings of two variables alone."""


@dataclass(frozen=True)
class Row:
    """A group on the variables of named blocks, and what it must answer.

    `value` and `statistic` take the states of all variables as whole numbers. `flipped` is the
    group after the states of every variable have been renamed in reverse order, with what that adds
    to the fields; None where the group cannot say it. `refuses` names the algorithms that must not
    take the group.
    """

    blocks: dict[str, int | tuple[int, int]]
    group: Callable[[Layout], Factor]
    value: Callable[[np.ndarray], float]
    statistic: Callable[[np.ndarray], np.ndarray]
    flipped: Callable[[Layout], tuple[Factor, np.ndarray | float]] | None = None
    refuses: frozenset[str] = frozenset()
    tree: bool = True
    own_layout: Layout | None = field(default=None)

    @property
    def layout(self) -> Layout:
        return discrete(**self.blocks) if self.own_layout is None else self.own_layout

    @cached_property
    def sizes(self) -> list[int]:
        """The number of states of every variable."""
        pairs = [size if isinstance(size, tuple) else (size, 2) for size in self.blocks.values()]
        return [states for number, states in pairs for _ in range(number)]

    @cached_property
    def slices(self) -> list[slice]:
        """The units of every variable."""
        widths = [1 if k == 2 else k for k in self.sizes]
        stops = np.cumsum(widths).tolist()
        return [slice(stop - width, stop) for stop, width in zip(stops, widths, strict=True)]

    @cached_property
    def unary(self) -> np.ndarray:
        """Fields in which no state is as good as another."""
        return np.random.default_rng(5).normal(size=self.slices[-1].stop)

    @cached_property
    def world(self) -> oracle.World:
        """Every state of the group in these fields."""
        return self.world_at(self.unary)

    @cached_property
    def allowed(self) -> np.ndarray:
        """The numbers of the states that no hard factor forbids."""
        return np.flatnonzero(self.world.log_weights > 0.5 * NO)

    def world_at(self, unary: np.ndarray) -> oracle.World:
        states = np.array(list(product(*(range(k) for k in self.sizes))))
        units = np.concatenate(
            [
                states[:, [i]] if k == 2 else np.eye(k)[states[:, i]]
                for i, k in enumerate(self.sizes)
            ],
            1,
        ).astype(float)
        values = np.array([self.value(s) for s in states])
        return oracle.World(states, units, units @ unary + values)

    def model(self) -> FactorGraph:
        layout = self.layout
        return FactorGraph.create(layout, [self.group(layout)], jnp.asarray(self.unary))

    def flipped_model(self) -> FactorGraph:
        """The same distribution with the states of every variable in reverse order."""
        assert self.flipped is not None
        layout = self.layout
        group, extra = self.flipped(layout)
        fields = self.reverse(self.unary) * np.where(self.binary_units, -1, 1) + extra
        return FactorGraph.create(layout, [group], jnp.asarray(fields))

    @cached_property
    def binary_units(self) -> np.ndarray:
        return np.concatenate(
            [np.full(s.stop - s.start, s.stop - s.start == 1) for s in self.slices]
        )

    def reverse(self, units: np.ndarray) -> np.ndarray:
        """The units of every variable in reverse order (a binary variable has but one)."""
        return np.concatenate([np.asarray(units)[..., s][..., ::-1] for s in self.slices], -1)

    def flip_means(self, units: np.ndarray) -> np.ndarray:
        """Means of units after the states of every variable have been renamed in reverse order."""
        turned = self.reverse(units)
        return np.where(self.binary_units, 1 - turned, turned)


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return scale * np.random.default_rng(seed).normal(size=shape)


def one_hot(states: np.ndarray, k: int) -> np.ndarray:
    return np.eye(k)[states].ravel()


# Dense and sparse couplings of two units.


def bilinear(rows: int, cols: int, tree: bool) -> Row:
    """Binary units: w (1 - x) (1 - y) = w - w x - w y + w x y."""
    w = normal(rows, cols)
    return Row(
        {"a": rows, "b": cols},
        lambda layout: Bilinear(jnp.asarray(w), 0, 1),
        lambda s: s[:rows] @ w @ s[rows:],
        lambda s: np.outer(s[:rows], s[rows:]),
        lambda layout: (Bilinear(jnp.asarray(w), 0, 1), -np.concatenate([w.sum(1), w.sum(0)])),
        tree=tree,
    )


def categorical_bilinear() -> Row:
    """One variable of three states joined with two such."""
    w = normal(3, 6)
    turned = w[::-1].reshape(3, 2, 3)[..., ::-1].reshape(3, 6)
    return Row(
        {"a": (1, 3), "b": (2, 3)},
        lambda layout: Bilinear(jnp.asarray(w), 0, 1),
        lambda s: float(w[s[0], s[1]] + w[s[0], 3 + s[2]]),
        lambda s: np.outer(one_hot(s[:1], 3), one_hot(s[1:], 3)),
        lambda layout: (Bilinear(jnp.asarray(turned.copy()), 0, 1), 0.0),
        frozenset({"cut"}),
    )


def mixed_bilinear() -> Row:
    """Two binary units joined with a variable of three states: w (1 - x) y = w y - w x y."""
    w = normal(2, 3)
    return Row(
        {"a": 2, "b": (1, 3)},
        lambda layout: Bilinear(jnp.asarray(w), 0, 1),
        lambda s: float((s[:2] * w[:, s[2]]).sum()),
        lambda s: np.outer(s[:2], one_hot(s[2:], 3)),
        lambda layout: (
            Bilinear(jnp.asarray(-w[:, ::-1]), 0, 1),
            np.concatenate([np.zeros(2), w.sum(0)[::-1]]),
        ),
        frozenset({"cut"}),
    )


def symmetric(n: int) -> Row:
    """Every pair of units: a tree if there are two."""
    w = np.triu(normal(n, n), 1)
    w = w + w.T
    return Row(
        {"x": n},
        lambda layout: Symmetric(jnp.asarray(w), 0),
        lambda s: 0.5 * s @ w @ s,
        lambda s: np.outer(s, s) * (1 - np.eye(n)),
        lambda layout: (Symmetric(jnp.asarray(w), 0), -w.sum(1)),
        tree=n == 2,
    )


def edges() -> Row:
    pairs, w = np.array([[0, 2], [1, 2], [1, 3]]), normal(3)
    ends = np.zeros(4)
    np.add.at(ends, pairs, w[:, None])
    return Row(
        {"x": 4},
        lambda layout: Edges(jnp.asarray(w), from_edges(4, pairs)),
        lambda s: float((w * s[pairs].prod(1)).sum()),
        lambda s: s[pairs].prod(1),
        lambda layout: (Edges(jnp.asarray(w), from_edges(4, pairs)), -ends),
    )


# Explicit tables.


def table(
    blocks: dict, scopes: list[list[int]], weight: np.ndarray, refuses: frozenset = frozenset()
) -> Row:
    """A table for each scope, or one for all; -inf forbids."""
    order = len(scopes[0])
    shared = weight.ndim == order
    finite = np.maximum(weight, NO)

    def statistic(s: np.ndarray) -> np.ndarray:
        found = np.zeros((len(scopes), *weight.shape[-order:]))
        for f, scope in enumerate(scopes):
            found[(f, *s[scope])] = 1
        return found.sum(0) if shared else found

    def turned(layout: Layout) -> tuple[Factor, float]:
        axes = tuple(range(weight.ndim - order, weight.ndim))
        return tables(layout, scopes, np.flip(weight, axes).copy()), 0.0

    return Row(
        blocks,
        lambda layout: tables(layout, scopes, weight),
        lambda s: float((finite * statistic(s)).sum()),
        statistic,
        turned,
        refuses,
    )


def table_with_zeros() -> Row:
    weight = normal(2, 2, 3)
    weight[0, 1, 1] = weight[1, 0, 2] = -np.inf
    return table({"x": 2, "y": (1, 3)}, [[0, 2], [1, 2]], weight, frozenset({"cut"}))


def mixed_tables_row() -> Row:
    """Tables of four shapes on a tree of two binary variables, one of three states, one of four."""
    sizes, scopes = (2, 2, 3, 4), [[3, 2], [0, 1], [2, 1]]
    each = [normal(*(sizes[v] for v in scope), seed=f) for f, scope in enumerate(scopes)]
    each[0][1, 2] = each[2][2, 1] = -np.inf
    by_shape = [1, 2, 0]  # (2, 2), (3, 2), (4, 3)

    def hits(s: np.ndarray) -> np.ndarray:
        found = np.zeros((3, 4, 3))
        for row, f in enumerate(by_shape):
            found[(row, *s[scopes[f]])] = 1
        return found

    def turned(layout: Layout) -> tuple[Factor, float]:
        return mixed_tables(layout, scopes, [np.flip(table) for table in each]), 0.0

    return Row(
        {"x": 2, "y": (1, 3), "z": (1, 4)},
        lambda layout: mixed_tables(layout, scopes, each),
        lambda s: float(
            sum(max(t[tuple(s[scope])], NO) for t, scope in zip(each, scopes, strict=True))
        ),
        hits,
        turned,
        frozenset({"cut"}),
    )


# Hard constraints. Their statistic is whether each factor is violated.


def constraint(
    build: Callable, value: Callable, many: list[list[int]], one: list[int], turn: Callable | None
) -> Row:
    scopes = [[*(v for v in own if v >= 0), last] for own, last in zip(many, one, strict=True)]

    def violated(s: np.ndarray) -> np.ndarray:
        return np.array([value(*s[scope]) < 0 for scope in scopes], float)

    return Row(
        {"x": 5},
        lambda layout: build(layout, many, one),
        lambda s: NO * violated(s).sum(),
        violated,
        None if turn is None else lambda layout: (turn(layout, many, one), 0.0),
        PAIRS_ONLY,
    )


def counts(*, shared: bool) -> Row:
    """Two factors that share a variable; the shared weights say nothing of three, which is out."""
    scopes = [[0, 1, 2], [2, 3, 4]]
    weight = normal(3) if shared else normal(2, 4)
    own = np.broadcast_to(weight, (2, weight.shape[-1]))

    def statistic(s: np.ndarray) -> np.ndarray:
        number = s[scopes].sum(1)
        found = (number[:, None] == np.arange(weight.shape[-1])).astype(float)
        return found.sum(0) if shared else found

    def value(s: np.ndarray) -> float:
        pairs = zip(own, s[scopes].sum(1), strict=True)
        return float(sum(w[n] if n < len(w) else NO for w, n in pairs))

    return Row(
        {"x": 5},
        lambda layout: count(layout, scopes, weight),
        value,
        statistic,
        None if shared else lambda layout: (count(layout, scopes, weight[:, ::-1].copy()), 0.0),
        PAIRS_ONLY,
    )


def stamps() -> Row:
    """One feature of two places at one location: pixel = place AND location, twice."""
    group = ConvolutionalOr(None, 1, (1, 1, 2), (1, 1))

    def violated(s: np.ndarray) -> np.ndarray:
        return (s[:2] != s[2:4] * s[4]).astype(float).reshape(1, 1, 2)

    return Row(
        {"pixels": 2, "features": 2, "locations": 1},
        lambda layout: group,
        lambda s: NO * violated(s).sum(),
        violated,
        None,
        PAIRS_ONLY | {"sum product", "MPLP", "linear program", "elimination", "log odds"},
        own_layout=group.layout,
    )


def potts_pairs(pairs: list[tuple[int, int]], *, shared: bool, tree: bool = True) -> Row:
    """Three variables of three states; without a list of pairs, all of them are joined."""
    ends = np.array(pairs or [(0, 1), (0, 2), (1, 2)])
    weight = normal(3, 3) if shared else normal(len(ends), 3, 3)

    def group(layout: Layout, weight: np.ndarray) -> Factor:
        return potts(layout, weight, from_edges(3, pairs) if pairs else None)

    def statistic(s: np.ndarray) -> np.ndarray:
        found = np.zeros((len(ends), 3, 3))
        found[np.arange(len(ends)), s[ends[:, 0]], s[ends[:, 1]]] = 1
        return found.sum(0) if shared else found

    return Row(
        {"y": (3, 3)},
        lambda layout: group(layout, weight),
        lambda s: float((weight * statistic(s)).sum()),
        statistic,
        lambda layout: (group(layout, weight[..., ::-1, ::-1].copy()), 0.0),
        frozenset({"cut"}),
        tree,
    )


def triples() -> Row:
    """Two triples that share a unit. Renamed, a triple is one with pairs and fields beside it."""
    scopes, w = [[0, 1, 2], [4, 2, 3]], normal(2, scale=2.0)
    return Row(
        {"x": 5},
        lambda layout: third_order(layout, scopes, w),
        lambda s: float((w * s[scopes].prod(1)).sum()),
        lambda s: s[scopes].prod(1),
        None,
        PAIRS_ONLY,
    )


def listed(blocks: dict, scopes: list[list[int]], allowed: np.ndarray, weight: np.ndarray) -> Row:
    """A list of allowed configurations for each scope, or one for all."""
    each = np.broadcast_to(allowed, (len(scopes), *allowed.shape[-2:]))
    own = np.broadcast_to(weight, (len(scopes), weight.shape[-1]))

    def hits(s: np.ndarray) -> np.ndarray:
        return (s[scopes][:, None] == each).all(-1).astype(float)

    def turned(layout: Layout) -> tuple[Factor, float]:
        states = layout.variables.states[np.array(scopes[0])]
        return sparse_tables(layout, scopes, states - 1 - allowed, weight), 0.0

    pairs = len(scopes[0]) == 2
    return Row(
        blocks,
        lambda layout: sparse_tables(layout, scopes, allowed, weight),
        lambda s: float((own * hits(s)).sum() + NO * (len(scopes) - hits(s).sum())),
        lambda s: hits(s).sum(0) if weight.ndim == 1 else hits(s),
        turned,
        frozenset({"cut"}) if pairs else PAIRS_ONLY,
    )


ROWS: dict[str, Row] = {
    "bilinear star": bilinear(3, 1, tree=True),
    "bilinear loop": bilinear(2, 2, tree=False),
    "categorical bilinear": categorical_bilinear(),
    "mixed bilinear": mixed_bilinear(),
    "symmetric": symmetric(2),
    "symmetric loop": symmetric(3),
    "edges": edges(),
    "tables": table({"x": 3}, [[0, 1], [1, 2]], normal(2, 2, 2)),
    "shared table": table({"x": 3}, [[0, 1], [1, 2]], normal(2, 2)),
    "tables with zeros": table_with_zeros(),
    "table of three": table(
        {"x": 2, "y": (1, 3)}, [[0, 2, 1]], normal(1, 2, 3, 2), frozenset(PAIRS_ONLY)
    ),
    "mixed tables": mixed_tables_row(),
    "or": constraint(logical_or, oracle.log_or, [[0, 1], [3, -1]], [3, 4], logical_and),
    "and": constraint(logical_and, oracle.log_and, [[0, 1], [3, -1]], [3, 4], logical_or),
    "pool": constraint(pool, oracle.log_pool, [[0, 1], [2, 3]], [2, 4], None),
    "counts": counts(shared=False),
    "shared count": counts(shared=True),
    "convolutional or": stamps(),
    "potts": potts_pairs([(0, 1), (1, 2)], shared=False),
    "shared potts": potts_pairs([(0, 1), (1, 2)], shared=True),
    "dense potts": potts_pairs([], shared=False, tree=False),
    "third order": triples(),
    "sparse tables": listed(
        {"x": 2, "y": (1, 3)},
        [[0, 2], [1, 2]],
        np.array([[[0, 0], [1, 0], [0, 2], [1, 1]], [[1, 0], [0, 0], [0, 1], [1, 2]]]),
        normal(2, 4),
    ),
    "shared sparse table": listed(
        {"x": 5},
        [[0, 1, 2], [4, 2, 3]],
        np.array([[0, 0, 0], [1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 1, 1]]),
        normal(5),
    ),
}
