"""Numbers that stay finite: one certainty constant, the log-odds message, entropies."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from undirected.core.errors import NotFinite, UndirectedError
from undirected.core.mesh import unit_parts

CERTAIN = 1e9
"""Log-odds of hard evidence: far beyond any sum of fields, and finite so that 0 * CERTAIN is 0."""
NEG_INF = -CERTAIN
HARD = 0.1 * CERTAIN
"""Log-odds beyond this come from a hard factor or from evidence."""
MOST = 98
"""Numbers between 1/2 and 2 that share a logarithm: their product is far from float32's ends."""
ROUNDING = 1e-5
"""By which a mean of zeros and ones may miss them."""
STIFFNESS, NEAR = 5.0, 1e-9
"""Nats that a forbidden state costs half way to a target; how near to 1 a beta is told from it."""


def between(beta: float | Array, a: Array, b: Array) -> Array:
    """A parameter on the line from `a` to `b`; a log-potential of -1e9 comes gradually."""
    soft = (1 - beta) * a + beta * b
    cost = STIFFNESS * beta / jnp.maximum(1 - beta, NEAR)
    return jnp.where((b < -HARD) & (a > -HARD), jnp.maximum(b, a - cost), soft)


def softplus(x: Array, temperature: float | Array = 1.0) -> Array:
    """T log(1 + exp(x / T)); its limit max(0, x) at T = 0."""
    if is_zero(temperature):
        return jnp.maximum(x, 0.0)
    return temperature * jax.nn.softplus(x / temperature)


@jax.custom_jvp
def sum_softplus(x: Float[Array, "*s n"]) -> Float[Array, "*s"]:
    """sum_i log(1 + exp(x_i)) along the last axis.

    softplus(x) = max(x, 0) - log(max(p, 1 - p)), p = sigmoid(x), which is the slope as well; few
    logarithms are taken.
    """
    return _sum_softplus(x)[0]


@sum_softplus.defjvp
def _(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    total, slope = _sum_softplus(primals[0])
    return total, (slope * tangents[0]).sum(-1)


def _sum_softplus(x: Float[Array, "*s n"]) -> tuple[Array, Array]:
    """The sum, and its slopes in an array of their own: CPUs are slow at them inside products."""
    p = jax.lax.optimization_barrier(jax.nn.sigmoid(x))
    return jnp.maximum(x, 0.0).sum(-1) - sum_logs(jnp.maximum(p, 1 - p)), p


def sum_logs(terms: Float[Array, "*s n"]) -> Float[Array, "*s"]:
    """Sum of the logarithms of numbers between 1/2 and 2 along the last axis, few of them taken."""
    *shape, n = terms.shape
    # Units that are split over devices are not gathered for it.
    groups = max(-(-n // MOST), 1) if unit_parts() == 1 else n
    # Groups of one size need no filling up, which CPUs are slow at.
    groups = next((g for g in range(groups, 4 * groups) if n % g == 0), groups)
    padded = jnp.pad(terms, [(0, 0)] * len(shape) + [(0, -n % groups)], constant_values=1)
    return jnp.log(padded.reshape(*shape, groups, -1).prod(-1)).sum(-1)


def logsumexp(x: Array, temperature: float | Array = 1.0, axis: int = -1) -> Array:
    """T log sum exp(x / T) along an axis; the maximum at T = 0."""
    if is_zero(temperature):
        return jnp.max(x, axis)
    return temperature * jax.nn.logsumexp(x / temperature, axis)


def message(field: Array, weight: Array, temperature: float | Array = 1.0) -> Array:
    """Log-odds message of the factor exp(w x y) from a unit with cavity log-odds `field`.

    T [softplus((m + w) / T) - softplus(m / T)], written as the exact max-product message plus two
    bounded corrections, so that nothing cancels however large field and weight are (T = 0: max).
    """
    if is_zero(temperature):
        return _hard_message(field, weight)
    return _soft_message(field, weight, temperature)


def _hard_message(field: Array, weight: Array) -> Array:
    half = 0.5 * weight
    inside = jnp.clip(field + half, -jnp.abs(half), jnp.abs(half))
    return half + jnp.where(half > 0, inside, -inside)


@jax.custom_jvp
def _soft_message(field: Array, weight: Array, temperature: float | Array) -> Array:
    """The message at T > 0; its parts have corners, where the whole has none."""
    up = jnp.log1p(jnp.exp(-jnp.abs(field + weight) / temperature))
    down = jnp.log1p(jnp.exp(-jnp.abs(field) / temperature))
    return _hard_message(field, weight) + temperature * (up - down)


def _slopes(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    """The message, and its change along the tangents; some of them may be symbolic zeros."""
    field, weight, temperature = primals
    with_factor = jax.nn.sigmoid((field + weight) / temperature)
    without = jax.nn.sigmoid(field / temperature)
    spread = binary_entropy(with_factor) - binary_entropy(without)
    terms = [
        slope * tangent
        for slope, tangent in zip(
            (with_factor - without, with_factor, spread), tangents, strict=True
        )
        if not isinstance(tangent, SymbolicZero)
    ]
    value = _soft_message(field, weight, temperature)
    return value, sum(terms, jnp.zeros_like(value))


_soft_message.defjvp(_slopes, symbolic_zeros=True)


def entropy(p: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """-p log p, 0 at p = 0, elementwise; tiny negative rounding of p counts as 0.

    Its slope at p = 0 is given as 0: there means are saturated, and do not move.
    """
    p = jnp.maximum(p, 0.0)
    return -p * jnp.log(jnp.where(p > 0, p, 1.0))


def binary_entropy(p: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """Entropy of a {0, 1} variable with mean p, elementwise."""
    return entropy(p) + entropy(1.0 - p)


def row(vector: Float[Array, " n"], like: Array) -> Array:
    """A vector with leading axes of length one, to meet a batch `like` it of any rank."""
    return vector.reshape((1,) * (like.ndim - 1) + vector.shape)


def sum_rows(x: Float[Array, "rows a b"]) -> Float[Array, "a b"]:
    """The sum over rows, as a matrix product: on a CPU far faster than XLA's own reduction."""
    ones = jnp.ones((1, len(x)), x.dtype)
    flat = x.reshape(len(x), -1)
    return jnp.matmul(ones, flat, precision="highest").reshape(x.shape[1:])


def is_zero(temperature: float | Array) -> bool:
    """Whether a temperature is the plain number 0: maximisation instead of a sum."""
    return isinstance(temperature, int | float) and temperature == 0


@contextmanager
def full_precision() -> Iterator[None]:
    """Products of matrices with all digits of their factors, unless the user has said otherwise.

    Accelerators round factors of 32 bits to some 11 for speed. Learning does not mind, but the free
    energy of hundreds of units is then off by a hundredth of a nat or a tenth.
    """
    chosen = getattr(jax.config, "jax_default_matmul_precision", None)
    if jax.default_backend() == "cpu" or chosen is not None:
        yield
    else:
        with jax.default_matmul_precision("highest"):
            yield


def is_traced(tree: Any) -> bool:
    """Whether some array of the tree is known by its shape alone, as inside of jit or vmap."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))


def check_finite(caller: str, model: Any) -> None:
    """Refuse a model with a parameter that is NaN or infinite."""
    for place, leaf in jax.tree_util.tree_leaves_with_path(model):
        near = isinstance(leaf, np.ndarray) or (
            isinstance(leaf, jax.Array) and not is_traced(leaf) and leaf.is_fully_addressable
        )
        if not (near and jnp.issubdtype(leaf.dtype, jnp.floating)) or np.isfinite(leaf).all():
            continue
        name, kind = jax.tree_util.keystr(place)[1:], type(model).__name__
        if np.isnan(leaf).any():
            raise NotFinite(
                f"{caller}: {name} of the {kind} has NaN; "
                "take the model from before a fit diverged, or fit with a lower learning rate"
            )
        raise NotFinite(
            f"{caller}: {name} of the {kind} is infinite; pass finite numbers, and say in `given` "
            "or by un.observe which units are held"
        )


def unit_means(model: str, means: Any, like: Array) -> Array:
    """Means of units of 0 and 1, in the shape and type of the biases that they are to move."""
    if is_traced(means):
        return jnp.asarray(means, like.dtype).reshape(like.shape)
    try:
        found = np.asarray(means, np.float64)
    except (TypeError, ValueError) as error:
        raise UndirectedError(f"{model}: means are {means!r:.40}; pass numbers") from error
    if found.shape not in (like.shape, (like.size,)):
        raise UndirectedError(
            f"{model}: means have shape {found.shape}; pass ({like.size},), one for each unit"
        )
    wrong = ~((found >= -ROUNDING) & (found <= 1 + ROUNDING))
    if wrong.any():
        unit = int(np.argmax(wrong))
        raise UndirectedError(
            f"{model}: the mean of unit {unit} is {found.flat[unit]:g}; pass numbers from 0 to 1"
        )
    return jnp.asarray(found.reshape(like.shape), like.dtype)
