"""Interaction screening: couplings of Ising and Potts models, a convex problem a variable."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from undirected.core.cells import unmasked
from undirected.core.errors import UndirectedError
from undirected.learning.pairwise import Penalty, fit_pairwise
from undirected.models import Ising, Potts

METHODS = ("rise", "logrise")


def interaction_screening(
    model: Ising | Potts,
    data: Any,
    *,
    method: str = "logrise",
    l2: float = 1e-4,
    weights: Float[np.ndarray, " N"] | None = None,
    iterations: int = 300,
) -> Any:
    """Fit an Ising or Potts model in which every pair is coupled, by interaction screening.

    The mean of exp(-what a variable's state gains over the mean of its states), summed over the
    variables, has its minimum at the true couplings where data are many; it needs no chains, and
    fewer samples than pseudo-likelihood where couplings are strong.

    Args:
        model: an `Ising` or `Potts` without a graph of its own; its parameters are not used.
        data: rows of 0 and 1 for an `Ising`; of a `Potts` one integer a variable, or one-hot units.
        method: "rise", or "logrise", which takes the logarithm of every variable's mean.
        l2: penalty of the squares of fields and couplings.
        weights: of the rows.
        iterations: of L-BFGS at most.

    Returns:
        A model of the same class.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> first = np.arange(400) % 2
        >>> second = np.where(np.arange(400) % 8 < 6, first, 1 - first)
        >>> found = un.interaction_screening(un.Ising.create(2), np.stack([first, second], 1))
        >>> round(float(found.couplings[0, 1]), 1)
        2.2
    """
    if method not in METHODS:
        raise UndirectedError(f"interaction_screening: method '{method}'; pass rise or logrise")
    states, q = _states(model, data)
    found = fit_pairwise(states, q, weights, method, Penalty(l2, l2), iterations, 1e-7)
    if isinstance(model, Potts):
        return Potts.dense(*found.at).zero_sum()
    fields, couplings = (np.asarray(part, np.float64) for part in found.at)
    # A table of two states as a product x_i x_j, two biases and a constant.
    pairs = couplings[:, 1, :, 1] - couplings[:, 1, :, 0]
    pairs = pairs - couplings[:, 0, :, 1] + couplings[:, 0, :, 0]
    bias = fields[:, 1] - fields[:, 0] + (couplings[:, 1, :, 0] - couplings[:, 0, :, 0]).sum(1)
    return Ising(jnp.asarray(pairs, float), jnp.asarray(bias, float))


def _states(model: Any, data: Any) -> tuple[Int[np.ndarray, "N n"], int]:
    """The data as integers, and the number of states."""
    array = np.asarray(unmasked(data))
    if isinstance(model, Potts):
        n, q = model.fields.shape
        dense = model.graph.n_edges == n * (n - 1) // 2 and model.couplings.ndim == 3
    elif isinstance(model, Ising):
        n, q, dense = model.bias.shape[0], 2, model.graph is None
    else:
        raise UndirectedError(
            f"interaction_screening: got a {type(model).__name__}; pass an Ising or a Potts model"
        )
    if not dense:
        raise UndirectedError(
            "interaction_screening: the model has a graph or shared couplings; every pair is "
            "learned here: pass one without, as Ising.create(n) or Potts.create(n, q)"
        )
    if isinstance(model, Potts) and array.ndim == 2 and array.shape[1] == n * q != n:
        array = array.reshape(-1, n, q).argmax(2)
    if array.ndim != 2 or array.shape[1] != n or len(array) < 2:
        raise UndirectedError(
            f"interaction_screening: data of shape {array.shape}; pass at least two rows of {n} "
            "variables"
        )
    if not np.isin(array, np.arange(q)).all():
        raise UndirectedError(f"interaction_screening: states must be integers from 0 to {q - 1}")
    return array.astype(np.int64), q
