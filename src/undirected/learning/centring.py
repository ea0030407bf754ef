"""Centred learning of bilinear models: the optimiser sees couplings of units less their means."""

from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from undirected.core.errors import UndirectedError
from undirected.core.protocols import Optimiser

COUPLINGS = (
    ("weights", "visible_bias", "hidden_bias"),
    ("components", "visible_bias", "component_bias"),
)
"""Fields of a model: a matrix, and the biases of its rows and of its columns."""


class _State(NamedTuple):
    inner: Any
    centres: dict[str, Float[Array, " units"]]


def centred(optimiser: Optimiser) -> Optimiser:
    """The optimiser in the parameters of (v - mu)' W (h - lambda), for an RBM or a MixtureRBM.

    Such a model is the same for other biases, but its gradient does not change when the states of
    units are relabelled, and couplings do not have to learn what biases say (Montavon & Müller
    2012; Melchior, Fischer & Wiskott 2016). The centres are the means of units without couplings at
    the start: give the visible biases those of the data.
    """

    def init(params: Any) -> _State:
        if _pairs(params) == []:
            raise UndirectedError(
                f"centred: a {type(params).__name__} has no weights between visible and hidden "
                "units; use the optimiser itself"
            )
        return _State(optimiser.init(params), _centres(params))

    def update(gradient: Any, state: _State, params: Any = None) -> tuple[Any, _State]:
        mu = state.centres
        for matrix, rows, columns in _pairs(gradient):
            change = jnp.outer(mu[rows], _get(gradient, columns))
            change = change + jnp.outer(_get(gradient, rows), mu[columns])
            gradient = _add(gradient, matrix, -change)
        updates, inner = optimiser.update(gradient, state.inner, params)
        for matrix, rows, columns in _pairs(updates):
            step = _get(updates, matrix)
            updates = _add(updates, rows, -step @ mu[columns])
            updates = _add(updates, columns, -mu[rows] @ step)
        return updates, _State(inner, mu)

    import optax

    return optax.GradientTransformation(init, cast(Any, update))


def _pairs(params: Any) -> list[tuple[str, str, str]]:
    found = []
    for names in COUPLINGS:
        if all(getattr(params, name, None) is not None for name in names):
            found.append(names)
    return found


def _centres(params: Any) -> dict[str, Array]:
    """Means of the units of every bias, without the hidden units."""
    visible, hidden = params.visible_bias, params.hidden_bias
    centres = {"visible_bias": jax.nn.sigmoid(visible), "hidden_bias": jnp.full_like(hidden, 0.5)}
    if getattr(params, "components", None) is not None:
        fields = jax.nn.softplus(visible[:, None] + params.components).sum(0)
        centres["component_bias"] = jax.nn.softmax(params.component_bias + fields)
    return centres


def _get(tree: Any, name: str) -> Array:
    return getattr(tree, name)


def _add(tree: Any, name: str, change: Array) -> Any:
    return eqx.tree_at(lambda t: _get(t, name), tree, _get(tree, name) + change)
