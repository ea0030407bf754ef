"""A model as plain JSON for a page: arrays as base64, of the shortest numbers that are enough."""

import base64
from typing import Any

import numpy as np

from undirected.core.errors import UndirectedError
from undirected.core.layout import CONTINUOUS, Block, Domain
from undirected.core.potentials import Potentials
from undirected.factors import Bilinear, Squares, Symmetric
from undirected.io.uai import UaiModel

HALVED = 1_000_000
"""Weights beyond which a page keeps them in half precision, and says so."""
MOST_WEIGHTS = 8_000_000
"""Weights that a page can hold."""
MOST_VARIABLES, MOST_ENTRIES = 300, 2**20
"""Variables of a factor graph on a page, and entries of all of its tables."""


def packed(array: Any, dtype: str = "float32") -> dict[str, Any]:
    """An array as {"dtype", "data"}, little-endian."""
    data = np.ascontiguousarray(array, np.dtype(dtype).newbyteorder("<")).tobytes()
    return {"dtype": dtype, "data": base64.b64encode(data).decode("ascii")}


def harmonium_outline(p: Potentials) -> dict[str, Any] | None:
    """The variables of a harmonium without its weights; None where the form is another."""
    visible, hidden = _layers(p)
    if not _layered(p, visible, hidden):
        return None
    return {"form": "remote", "variables": [v for block in visible for v in _variables(block)]}


def harmonium(p: Potentials, dtype: str | None = None) -> dict[str, Any] | None:
    """Visible units of any kind over one layer of binary hidden units, perhaps with a softmax unit.

    None where the potentials are of another form. `dtype` is that of the weights; by default they
    are float32, and float16 where there are more than a million.
    """
    outline = harmonium_outline(p)
    if outline is None:
        return None
    visible, hidden = _layers(p)
    V, H = visible[-1].stop, hidden[0].size
    components = hidden[1].size if len(hidden) == 2 else 0
    if V * (H + components) > MOST_WEIGHTS:
        raise UndirectedError(
            f"explore: the model has {V * (H + components):,} weights; a page holds up to "
            f"{MOST_WEIGHTS:,}: use --serve, which answers from the engine"
        )
    weights, precision = _couplings(p, V, H + components)
    between = [f.weight for f in p.factors if isinstance(f, Symmetric)]
    fields = np.asarray(p.unary, np.float64)
    plain = "float64" if dtype == "float64" else "float32"
    return {
        **outline,
        "form": "harmonium",
        "hidden": H,
        "components": components,
        "weights": packed(weights, dtype or ("float16" if weights.size > HALVED else "float32")),
        "fields": packed(fields[:V], plain),
        "precision": packed(precision, plain),
        "hiddenBias": packed(fields[V:], plain),
        "offset": float(p.offset),
        **({"couplings": packed(between[0], plain)} if between else {}),
    }


def _layers(p: Potentials) -> tuple[list[Block], list[Block]]:
    """Visible and hidden blocks."""
    blocks = p.layout.blocks
    return [b for b in blocks if b.visible], [b for b in blocks if not b.visible]


def _couplings(p: Potentials, V: int, J: int) -> tuple[np.ndarray, np.ndarray]:
    """What multiplies v_i h_j, and the precision of every visible unit."""
    weights, precision = np.zeros((V, J)), np.zeros(V)
    for factor in p.factors:
        if isinstance(factor, Bilinear):
            row, col = (p.layout.blocks[b] for b in (factor.rows, factor.cols))
            weights[row.slice, col.start - V : col.stop - V] += np.asarray(factor.weight)
        elif isinstance(factor, Squares):
            precision += np.asarray(factor.precision(p.layout))[:V]
    return weights, precision


def _layered(p: Potentials, visible: list[Block], hidden: list[Block]) -> bool:
    """Whether hidden units are one binary block, perhaps with a softmax unit, and all is pairs."""
    if not visible or not hidden or hidden[0].domain is not Domain.BINARY:
        return False
    softmax = [b.domain is Domain.CATEGORICAL and b.variables == 1 for b in hidden[1:]]
    if len(hidden) > 2 or not all(softmax):
        return False
    first = len(visible)
    pairs = (f.rows < first <= f.cols for f in p.factors if isinstance(f, Bilinear))
    # Couplings within a block are those of real units.
    tied = [visible[f.block] for f in p.factors if isinstance(f, Symmetric) and f.block < first]
    known = all(isinstance(f, Bilinear | Squares | Symmetric) for f in p.factors)
    known = known and all(block.domain is Domain.REAL for block in tied)
    return known and all(pairs) and not any(b.domain in CONTINUOUS for b in hidden)


def _variables(block: Block) -> list[dict[str, Any]]:
    if block.domain is Domain.CATEGORICAL:
        return [{"kind": "category", "states": block.states}] * block.variables
    return [{"kind": block.domain.value}] * block.variables


def network(found: UaiModel) -> dict[str, Any]:
    """Variables, scopes and tables of a factor graph."""
    n, entries = len(found.cardinalities), sum(table.size for table in found.tables)
    if n > MOST_VARIABLES or entries > MOST_ENTRIES:
        raise UndirectedError(
            f"explore: the network has {n:,} variables and tables of {entries:,} entries; a page "
            f"shows up to {MOST_VARIABLES} and {MOST_ENTRIES:,}: use --serve, or `undirected solve`"
        )
    flat = [np.ravel(table) for table in found.tables]
    return {
        "form": "network",
        "cards": list(found.cardinalities),
        "scopes": [list(map(int, scope)) for scope in found.scopes],
        "tables": packed(np.concatenate(flat) if flat else np.zeros(0), "float64"),
    }
