"""Small models of every kind that can be saved; their numbers are written down, not drawn."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from undirected.core.graph import from_edges, grid, torus
from undirected.core.layout import Block, Domain, Layout
from undirected.core.table_units import TableUnits
from undirected.factors import (
    Bilinear,
    ConvolutionalOr,
    Edges,
    Symmetric,
    at_most,
    count,
    logical_and,
    logical_or,
    pool,
    potts,
    sparse_tables,
    tables,
    third_order,
)
from undirected.models import (
    RBM,
    ConditionalRBM,
    DeepBM,
    FactorGraph,
    GaussianRBM,
    GridMRF,
    Ising,
    MixedRBM,
    MixtureRBM,
    ModelPath,
    NonnegativeBM,
    Potts,
    SemiRestrictedBM,
    SpinForm,
    Stack,
    discrete,
    markov_network,
)

MIXED = Layout(
    (
        Block("x", 0, 5),
        Block("digit", 5, 11, Domain.CATEGORICAL, 3),
        Block("h", 11, 13, visible=False),
    )
)


def ramp(*shape: int, start: float = -1.0) -> Array:
    """Different numbers, which float32 rounds."""
    size = int(np.prod(shape))
    return jnp.asarray((start + 0.1 * np.arange(size)).reshape(shape).astype(np.float32))


def rbm(label_states: int = 0) -> RBM:
    return RBM(ramp(4, 3), ramp(4), ramp(3), label_states)


def ising(graph) -> Ising:
    return Ising(ramp(graph.n_edges), ramp(graph.n), graph, jnp.asarray(0.3))


def nonnegative(graph) -> NonnegativeBM:
    return NonnegativeBM(
        ramp(graph.n_edges, start=0.1), ramp(graph.n, start=5), ramp(graph.n), graph
    )


def groups() -> FactorGraph:
    """Every group of factors that a factor graph had from the start."""
    factors = [
        tables(MIXED, [[0, 5], [1, 6]], ramp(2, 2, 3)),
        tables(MIXED, [[5, 6]], ramp(3, 3)),
        logical_or(MIXED, [[0, 1], [2, -1]], [3, 4]),
        logical_and(MIXED, [[0, 1]], [7]),
        pool(MIXED, [[1, 2]], [8]),
        count(MIXED, [[0, 1, 2]], ramp(3)),
        at_most(MIXED, [[2, 3, 4]], 1),
        Bilinear(ramp(5, 2), 0, 2),
        Symmetric(jnp.ones((5, 5)) - jnp.eye(5), 0),
        Edges(ramp(2), from_edges(13, [(0, 1), (1, 12)])),
    ]
    return FactorGraph.create(MIXED, factors, ramp(13))


def new_groups() -> FactorGraph:
    layout = discrete(spin=3, colour=(3, 3))
    return FactorGraph.create(
        layout,
        [
            third_order(layout, [[0, 1, 2]], ramp(1)),
            sparse_tables(layout, [[0, 3]], [[0, 0], [1, 2]], ramp(2)),
            potts(layout, ramp(3, 3), block="colour"),
        ],
    )


def torus_groups() -> FactorGraph:
    return FactorGraph.create(discrete(spin=9), [Edges(ramp(18), torus(3, 3))])


def star() -> Ising:
    """A hub and isolated units: no table of incoming messages."""
    return ising(from_edges(30, [(0, i) for i in range(1, 4)]))


def convolutional_or() -> FactorGraph:
    group = ConvolutionalOr(None, 2, (2, 2, 2), (1, 2), 1.5)
    return FactorGraph.create(group.layout, [group])


def gaussian(learned: bool = False) -> GaussianRBM:
    return GaussianRBM(ramp(4, 3), ramp(4), ramp(3), ramp(4) if learned else None)


def cast(model: Any, dtype: Any) -> Any:
    """The model with parameters of another precision."""
    return jax.tree.map(lambda a: a.astype(dtype) if eqx.is_inexact_array(a) else a, model)


FIRST: dict[str, Any] = {
    "rbm": rbm,
    "label": lambda: rbm(label_states=2),
    "semi_restricted": lambda: SemiRestrictedBM(rbm(label_states=2), ramp(2, 2)),
    "dense": lambda: Ising(ramp(4, 4), ramp(4)),
    "grid": lambda: ising(grid(2, 3)),
    "torus": lambda: ising(torus(3, 4)),
    "star": star,
    "conditional": lambda: ConditionalRBM(ramp(4, 3), ramp(4, 2), ramp(3, 2), ramp(4), ramp(3)),
    "nonnegative": lambda: NonnegativeBM(ramp(3, 3), ramp(3, start=5), ramp(3)),
    "nonnegative_grid": lambda: nonnegative(grid(2, 3)),
    "groups": groups,
    "torus_groups": torus_groups,
    "no_groups": lambda: FactorGraph.create(discrete(a=2, b=(1, 3)), [], ramp(5)),
    "deep": lambda: DeepBM((ramp(4, 3), ramp(3, 2)), (ramp(4), ramp(3), ramp(2))),
    "grid_mrf": lambda: GridMRF(ramp(4, 3, 3), (2, 1), (4, 5)),
    "gaussian": gaussian,
    "gaussian_learned": lambda: gaussian(learned=True),
}
"""What files of version 1 could hold, by the name of their folder in `version1`."""

LATER: dict[str, Any] = {
    "nonnegative_torus": lambda: nonnegative(torus(3, 3)),
    "convolutional_or": convolutional_or,
    "named": lambda: markov_network(
        {"sky": ["clear", "grey", "NaN"], 7: 2}, {("sky", 7): [[1, 2], [3, 4], [5, 6]]}
    ),
    "potts": lambda: Potts(ramp(3, 3), ramp(9, 3), torus(3, 3)),
    "dense_potts": lambda: Potts(ramp(3, 2, 2), ramp(3, 2)),
    "new_groups": new_groups,
    "spin_form": lambda: SpinForm(ising(torus(3, 3))),
    "mixture_rbm": lambda: MixtureRBM(ramp(4, 3), ramp(4, 2), ramp(4), ramp(3), ramp(2)),
    "mixed": lambda: MixedRBM(
        ramp(6, 2), ramp(6), ramp(2), ramp(2), TableUnits(("real", 3, "binary", "nonnegative"))
    ),
    "mixed_coupled": lambda: MixedRBM(
        ramp(3, 2), ramp(3), ramp(2), ramp(2), TableUnits(("binary", "real", "real")), ramp(2, 2)
    ),
    "mixed_named": lambda: MixedRBM(
        ramp(2, 1), ramp(2), ramp(1), ramp(1), TableUnits(("real", "binary"), ("NaN", "ill"))
    ),
    "path": lambda: ModelPath(rbm(), rbm()),
    "stack": lambda: Stack(
        GaussianRBM(ramp(2, 4), ramp(2), ramp(4), None), RBM(ramp(4, 3), ramp(4), ramp(3))
    ),
}

ALL = FIRST | LATER
