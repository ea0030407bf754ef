"""Answers of a conditional model for many rows of features, in chunks of bounded memory."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from numpy.typing import ArrayLike

from undirected.core.errors import UndirectedError
from undirected.core.protocols import Inference


def predict(
    model: Any, x: ArrayLike, infer: Inference, key: Key[Array, ""], *, budget: int = 2**30
) -> Float[np.ndarray, "rows v"]:
    """Beliefs of the outputs of `model.at(x)` for every row of features x (rows, X).

    With `SumProduct` or `MeanField` they are probabilities, with `MaxProduct` the joint MAP and
    with `MixedProduct` the marginal MAP. `budget`: bytes that the messages of a chunk may take.
    """
    rows = np.asarray(x, np.float32)
    if rows.ndim != 2 or rows.shape[1] != model.n_features:
        raise UndirectedError(
            f"predict: features have shape {rows.shape}; pass (rows, {model.n_features})"
        )
    if not np.isfinite(rows).all():
        bad = np.argwhere(~np.isfinite(rows))[0].tolist()
        raise UndirectedError(
            f"predict: feature {bad[1]} of row {bad[0]} is {rows[tuple(bad)]}; features are finite"
        )
    size = int(np.clip(budget // (16 * (model.weights.size + 1)), 1, max(1, len(rows))))
    answers = np.empty((len(rows), model.n_visible), np.float32)
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        chunk = jnp.pad(jnp.asarray(part), ((0, size - len(part)), (0, 0)))
        unary = _beliefs(model, chunk, infer, jax.random.fold_in(key, start))
        answers[start : start + size] = unary[: len(part), : model.n_visible]
    return answers


@eqx.filter_jit
def _beliefs(model: Any, x: Array, infer: Inference, key: Key[Array, ""]) -> Array:
    def one(x: Array, key: Key[Array, ""]) -> Array:
        return infer(model.at(x).lower(), key).unary

    return jax.vmap(one)(x, jax.random.split(key, len(x)))
