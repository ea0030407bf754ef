"""What approximate engines say about a network."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int


@dataclass(frozen=True, eq=False)
class Approximation:
    """Marginals and log Z of a network, and how they were found.

    Args:
        marginals: the probabilities of the states of each variable.
        log_z: the estimate of log Z.
        lower: a number that log Z is not below, -inf where none is known.
        upper: a number that log Z is not above, inf where none is known.
        method: the engine that gave the marginals.
        note: what a reader should know: whether messages converged, which bounds hold.
        exact: whether the marginals and log Z are exact but for rounding.
    """

    marginals: list[Float[np.ndarray, " k"]]
    log_z: float
    lower: float
    upper: float
    method: str
    note: str = ""
    exact: bool = False


@dataclass(frozen=True, eq=False)
class BestState:
    """The best joint state that was found.

    Args:
        state: the state of each variable.
        value: its log value, -inf where no allowed state was found.
        upper: a number that no state's log value exceeds.
        method: the engine that found it, or proved it best.
    """

    state: Int[np.ndarray, " n"]
    value: float
    upper: float
    method: str
