"""Answers of a conditional model for many rows of features, in chunks of bounded memory."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from numpy.typing import ArrayLike

from undirected.core.cells import unmasked
from undirected.core.chunks import map_rows
from undirected.core.errors import UndirectedError
from undirected.core.protocols import Inference


def predict(
    model: Any, x: ArrayLike, infer: Inference, key: Key[Array, ""], *, budget: int = 2**30
) -> Float[np.ndarray, "rows v"]:
    """Beliefs of the outputs of `model.at(x)` for every row of features x (rows, X).

    With `SumProduct` or `MeanField` they are probabilities, with `MaxProduct` the joint MAP and
    with `MixedProduct` the marginal MAP.

    Args:
        model: a conditional model: `model.at(x)` of one row of features is a model that lowers.
        x: features, one row for each answer.
        infer: the routine asked about `model.at(x)`.
        key: for routines that draw random numbers; every row gets a key of its own.
        budget: bytes that the messages of a chunk may take.

    Returns:
        The means of the visible units of `model.at(x)`, row by row.
    """
    if not hasattr(model, "at"):
        raise UndirectedError(
            f"predict: got a {type(model).__name__}; pass a conditional model, whose at(x) is a "
            "model given one row of features"
        )
    rows = _features(model, x)
    like = jax.ShapeDtypeStruct(rows.shape[1:], rows.dtype)
    p = eqx.filter_eval_shape(lambda one: model.at(one).lower(), like)
    visible = p.layout.n_visible
    entries = sum(leaf.size for leaf in jax.tree.leaves(p))
    if getattr(infer, "on_host", False):
        each = [infer(model.at(jnp.asarray(row)), key).unary[:visible] for row in rows]
        return np.asarray(each, np.float32).reshape(len(rows), visible)

    def answer(chunk: Array, start: int) -> Array:
        return _beliefs(model, chunk, infer, jax.random.fold_in(key, start))[:, :visible]

    return map_rows(answer, rows, 16 * (entries + 1), budget=budget)


def _features(model: Any, x: ArrayLike) -> Float[np.ndarray, "rows X"]:
    """Rows of finite features, as many as the model says it has."""
    rows = np.asarray(unmasked(x), np.float32)
    wanted = getattr(model, "n_features", rows.shape[-1] if rows.ndim else 0)
    if rows.ndim != 2 or rows.shape[1] != wanted:
        raise UndirectedError(f"predict: features have shape {rows.shape}; pass (rows, {wanted})")
    if not np.isfinite(rows).all():
        bad = np.argwhere(~np.isfinite(rows))[0].tolist()
        raise UndirectedError(
            f"predict: feature {bad[1]} of row {bad[0]} is {rows[tuple(bad)]}; features are finite"
        )
    return rows


@eqx.filter_jit
def _beliefs(model: Any, x: Array, infer: Inference, key: Key[Array, ""]) -> Array:
    def one(x: Array, key: Key[Array, ""]) -> Array:
        return infer(model.at(x), key).unary

    return jax.vmap(one)(x, jax.random.split(key, len(x)))
