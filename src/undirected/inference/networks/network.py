"""A discrete network as log tables over numbered variables."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int


@dataclass(frozen=True, eq=False)
class Network:
    """log p(x) = Σ_k tables[k][x[scopes[k]]] + offset (log values, float64, -inf = forbidden).

    Args:
        cardinalities: the number of states of each variable.
        scopes: for each table its variables, sorted or not, each at most once.
        tables: for each scope an array with one axis for each of its variables.
        offset: a constant that is added to every log value.
    """

    cardinalities: tuple[int, ...]
    scopes: tuple[tuple[int, ...], ...]
    tables: tuple[Float[np.ndarray, "*states"], ...]
    offset: float = 0.0

    def value(self, state: Int[np.ndarray, " n"]) -> float:
        """log p̃ of one joint state, -inf where a table forbids it."""
        own = (
            float(table[tuple(state[v] for v in scope)])
            for scope, table in zip(self.scopes, self.tables, strict=True)
        )
        return self.offset + sum(own)
