"""How probable a model finds data: log-likelihood, pseudo-log-likelihood, reconstruction."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from undirected.core.errors import UndirectedError
from undirected.core.layout import Block, Domain, check_discrete
from undirected.core.numerics import full_precision
from undirected.core.protocols import Blocked, Conditionals, Marginal, Model, Summable
from undirected.core.units import block_means
from undirected.evaluation.estimate import Estimate, check_data, check_finite, mean, mean_log


def log_likelihood(model: Model, v: ArrayLike, log_z: float, *, chunk: int = 1000) -> Estimate:
    """Mean over rows of log p(v) = -F(v) - log Z, in nats; exact where `log_z` is.

    Args:
        model: one whose hidden units can be summed out, or that has none.
        v: rows of visible units.
        log_z: from exact inference on small models, otherwise from `ais`, whose own error is not
            part of the standard error here: pass the ends of its interval to see the range.
        chunk: rows worked on at a time.

    Returns:
        An `Estimate`: `mean`, `stderr`, and `rows`, which are log p(v) of each row, -inf where a
        hard factor forbids it.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> found = un.log_likelihood(un.Ising.create(3), np.eye(3), log_z=3 * np.log(2))
        >>> round(found.mean, 4)
        -2.0794
    """
    if hasattr(log_z, "log_z"):
        raise UndirectedError(
            f"log_likelihood: log_z is a {type(log_z).__name__}; pass its number, `.log_z`"
        )
    if not np.isfinite(log_z):
        raise UndirectedError(f"log_likelihood: log_z is {log_z}; pass a finite number")
    if not isinstance(model, Summable) and model.layout.n > model.layout.n_visible:
        raise UndirectedError(
            f"log_likelihood: the hidden units of a {type(model).__name__} cannot be summed out; "
            "use ais_rows, which estimates those sums, less log_z"
        )
    rows = check_data("log_likelihood", model.layout, v)
    free_energy = _by_chunk("log_likelihood", _free_energy, model, rows, chunk)
    return mean_log(-free_energy - log_z, model.layout)


def pseudo_log_likelihood(
    model: Marginal | Conditionals, v: ArrayLike, *, chunk: int = 100
) -> Estimate:
    """Mean over rows of sum_i log p(v_i | all other visibles), hiddens summed out, in nats.

    Besag (1975); a categorical variable is one term, normalised over its states.

    Args:
        model: one that gives the log-odds of each visible unit given all others.
        v: rows of visible units.
        chunk: rows worked on at a time.

    Returns:
        An `Estimate`: `mean`, `stderr`, and `rows`, which are the sums of each row.

    Example:
        >>> import numpy as np
        >>> import undirected as un
        >>> round(un.pseudo_log_likelihood(un.Ising.create(3), np.eye(3)).mean, 4)
        -2.0794
    """
    if not isinstance(model, Marginal | Conditionals):
        raise UndirectedError(
            f"pseudo_log_likelihood: a {type(model).__name__} has no log_odds of its visible units "
            "given all others; use log_likelihood"
        )
    rows = check_data("pseudo_log_likelihood", model.layout, v)
    terms = _by_chunk("pseudo_log_likelihood", _pseudo, model, rows, chunk)
    return mean_log(terms, model.layout)


def reconstruction_error(model: Blocked, v: ArrayLike, *, chunk: int = 1000) -> Estimate:
    """Mean squared difference per visible unit after one mean-field step up and down.

    The hidden blocks take their means given v, then the visible blocks theirs given those.
    """
    if not isinstance(model, Blocked) or model.layout.n == model.layout.n_visible:
        raise UndirectedError(
            f"reconstruction_error: {type(model).__name__} has no hidden blocks with conditionals; "
            "use pseudo_log_likelihood"
        )
    rows = check_data("reconstruction_error", model.layout, v)
    return mean(_by_chunk("reconstruction_error", _reconstruction, model, rows, chunk))


def _by_chunk(
    caller: str, value: Callable[[Any, Array], Array], model: Any, rows: np.ndarray, chunk: int
) -> Float[np.ndarray, " rows"]:
    """One value per row, computed for `chunk` rows at a time."""
    with full_precision():
        values = np.asarray(_map(value, model, rows, chunk), np.float64)
    check_finite(f"{caller}: result", values)
    return values


@eqx.filter_jit
def _map(
    value: Callable[[Any, Array], Array], model: Any, rows: np.ndarray, chunk: int
) -> Float[Array, " rows"]:
    return jax.lax.map(lambda v: value(model, v), rows, batch_size=chunk)


def _free_energy(model: Model, v: Float[Array, " v"]) -> Float[Array, ""]:
    return model.free_energy(v) if isinstance(model, Summable) else model.energy(v)


def _pseudo(model: Marginal | Conditionals, v: Float[Array, " v"]) -> Float[Array, ""]:
    if isinstance(model, Conditionals):
        return model.log_conditionals(v).sum()
    fields = model.log_odds(v)
    visible = [block for block in model.layout.blocks if block.visible]
    parts = [_log_probability(block, v[block.slice], fields[block.slice]) for block in visible]
    return jnp.stack(parts).sum()


def _log_probability(block: Block, v: Array, fields: Array) -> Float[Array, ""]:
    """Log-probability of independent units with these fields."""
    if block.domain is Domain.BINARY:
        return jax.nn.log_sigmoid((2 * v - 1) * fields).sum()
    check_discrete("pseudo_log_likelihood", block)
    return (v * jax.nn.log_softmax(fields.reshape(-1, block.states), -1).ravel()).sum()


def _reconstruction(model: Blocked, v: Float[Array, " v"]) -> Float[Array, ""]:
    layout = model.layout
    x = jnp.concatenate([v, jnp.zeros(layout.n - layout.n_visible, v.dtype)])
    for i in sorted(range(len(layout.blocks)), key=lambda i: layout.blocks[i].visible):
        block = layout.blocks[i]
        x = x.at[block.slice].set(block_means(block, model.conditional(i, x)))
    return ((x[: layout.n_visible] - v) ** 2).mean()
