"""The rectified normal exp(l x - r x^2 / 2) on x >= 0: safe over the whole real line.

With a = l / sqrt(r), the mean of the normal in standard deviations, all follows from one number.
Near zero and above, the hazard phi(a) / Phi(a) gives all. Deep in the tail its terms cancel, and
ratios of moments are used instead: with I_k the integral of y^k / k! exp(a y - y^2 / 2),
I_k / I_{k-1} = 1 / (-a + (k + 1) I_{k+1} / I_k), a continued fraction of positive terms.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, ndtr, ndtri
from jaxtyping import Array, Float, Key

_TAIL = 5.0  # where Newton's steps on the integrated hazard take over in `quantile`
_NEWTON_STEPS = 3


class Cumulants(NamedTuple):
    """Mean, variance, third cumulant, and `spread`, the variance of (x - mean)^2."""

    mean: Array
    variance: Array
    third: Array
    spread: Array


def log_normaliser(l: Float[Array, "*s"], r: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """Log of the integral of exp(l x - r x^2 / 2) over x >= 0; r > 0."""
    return log_mass(l / jnp.sqrt(r)) - 0.5 * jnp.log(r)


def cumulants(l: Float[Array, "*s"], r: Float[Array, "*s"]) -> Cumulants:
    """Cumulants of the rectified normal with natural parameters (l, -r / 2), r > 0."""
    scale = 1 / jnp.sqrt(r)
    a = l * scale
    return Cumulants(
        mean(a) * scale, variance(a) * scale**2, third(a) * scale**3, spread(a) * scale**4
    )


def draw(l: Float[Array, "*s"], r: Float[Array, "*s"], key: Key[Array, ""]) -> Float[Array, "*s"]:
    """One sample each, by inversion: exact however far the normal's mean lies below zero."""
    scale = 1 / jnp.sqrt(r)
    return quantile(l * scale, uniform(key, l.shape, l.dtype)) * scale


def uniform(key: Key[Array, ""], shape: tuple[int, ...], dtype: Any) -> Float[Array, "*s"]:
    """Uniform numbers strictly between 0 and 1: the middles of the cells that JAX draws."""
    return jax.random.uniform(key, shape, dtype) + 0.5 * jnp.finfo(dtype).eps


def quantile(a: Float[Array, "*s"], upper: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """The y >= 0 that the standard rectified normal exceeds with probability `upper`.

    In the body y = a - Phi^-1(upper Phi(a)). In the tail y solves H(y) = -log(upper), H being the
    integrated hazard: convex, so that Newton's steps from above never overshoot.
    """
    body = jnp.maximum(a, -_TAIL)
    near = jnp.maximum(body - ndtri(upper * ndtr(body)), 0.0)
    t = jnp.maximum(-a, _TAIL)
    wanted = -jnp.log(upper)
    base = t + _ratios(t, 1, _TAIL)[0]
    y = 2 * wanted / (t + jnp.sqrt(t * t + 2 * wanted))
    for _ in range(_NEWTON_STEPS):
        hazard = t + y + _ratios(t + y, 1, _TAIL)[0]
        passed = y * (t + 0.5 * y) + jnp.log(hazard / base)
        y = jnp.maximum(y - (passed - wanted) / hazard, 0.0)
    return jnp.where(a < -_TAIL, y, near)


def from_moments(
    first: Float[Array, "*s"], second: Float[Array, "*s"]
) -> tuple[Float[Array, "*s"], Float[Array, "*s"]]:
    """(l, r) of the rectified normal with these moments; 1 < second / first^2 < 2 is needed.

    Outside, the nearest rectified normal of a in [-30, 1000] is given (2 is an exponential).
    """
    ratio = second / first**2

    def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        too_wide = variance(middle) / mean(middle) ** 2 + 1 > ratio
        return jnp.where(too_wide, middle, low), jnp.where(too_wide, high, middle)

    ends = jnp.full_like(ratio, -30.0), jnp.full_like(ratio, 1000.0)
    low, high = jax.lax.fori_loop(0, 60, halve, ends)
    a = 0.5 * (low + high)
    scale = mean(a) / first
    return a * scale, scale**2


def erfcx(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """exp(x^2) erfc(x); overflows to infinity only where its value does."""
    return jnp.sqrt(2 / jnp.pi).astype(x.dtype) * jnp.exp(log_mass(-np.sqrt(2.0).item() * x))


@jax.custom_jvp
def log_mass(a: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """Log of the integral of exp(a y - y^2 / 2), y >= 0: log sqrt(pi / 2) erfcx(-a / sqrt 2)."""
    body, t = jnp.maximum(a, -_edge(a)), jnp.maximum(-a, _edge(a))
    near = 0.5 * body * body + log_ndtr(body) + 0.5 * np.log(2 * np.pi).item()
    return jnp.where(a < -_edge(a), -jnp.log(t + _ratios(t, 1, _edge(a))[0]), near)


@jax.custom_jvp
def mean(a: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """Mean of the standard rectified normal, the derivative of `log_mass`."""
    return jnp.where(a < -_edge(a), _tail(a)[0], _body(a)[1])


@jax.custom_jvp
def variance(a: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """Variance of the standard rectified normal, the derivative of `mean`."""
    one, two, _, _ = _tail(a)
    h, m = _body(a)
    return jnp.where(a < -_edge(a), one * (2 * two - one), 1 - h * m)


@jax.custom_jvp
def third(a: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """Third cumulant of the standard rectified normal, the derivative of `variance`."""
    one, two, three, _ = _tail(a)
    h, m = _body(a)
    far = 2 * one * (3 * two * three - 3 * one * two + one * one)
    return jnp.where(a < -_edge(a), far, h * (m * m - (1 - h * m)))


def spread(a: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """Variance of (y - mean)^2: the fourth cumulant plus twice the squared variance."""
    one, two, three, four = _tail(a)
    cubes = 6 * two * three * four - one * two * two - 6 * one * two * three
    far = 4 * one * (cubes + 4 * one * one * two - one**3)
    h, m = _body(a)
    s = 1 - h * m
    fourth = h * (m * (3 * s - m * m) - h * (m * m - s))
    return jnp.where(a < -_edge(a), far, fourth + 2 * s * s)


@log_mass.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return log_mass(*primals), mean(*primals) * tangents[0]


@mean.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return mean(*primals), variance(*primals) * tangents[0]


@variance.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return variance(*primals), third(*primals) * tangents[0]


@third.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    fourth = spread(*primals) - 2 * variance(*primals) ** 2
    return third(*primals), fourth * tangents[0]


def _edge(a: Array) -> float:
    """The continued fraction takes over at a < -edge: where rounding in the body begins to tell."""
    return 3.0 if a.dtype == jnp.float64 else 1.0


def _body(a: Array) -> tuple[Array, Array]:
    """Hazard phi(a) / Phi(a), and the mean, where a is not in the tail."""
    a = jnp.maximum(a, -_edge(a))
    hazard = jnp.exp(-0.5 * a * a) / (np.sqrt(2 * np.pi).item() * ndtr(a))
    return hazard, a + hazard


def _tail(a: Array) -> tuple[Array, Array, Array, Array]:
    """The first four ratios of moments, at the edge of the tail where a is not in it."""
    one, two, three, four = _ratios(jnp.maximum(-a, _edge(a)), 4, _edge(a))
    return one, two, three, four


@partial(jax.jit, static_argnums=(1, 2))
def _ratios(t: Array, count: int, lowest: float) -> list[Array]:
    """I_k / I_{k-1} for k = 1..count at a = -t, t >= lowest.

    Cut after K terms the fraction is wrong by about exp(-2 t sqrt(2 K)): K is chosen for rounding.
    """
    digits = 50.0 if t.dtype == jnp.float64 else 17.0
    terms = int(0.125 * (digits / lowest) ** 2) + 5
    ratio = 2 / (t + jnp.sqrt(t * t + 4 * terms + 8))  # where it would stand still
    ratios = []
    for k in range(terms, 0, -1):
        ratio = 1 / (t + (k + 1) * ratio)
        if k <= count:
            ratios.append(ratio)
    return ratios[::-1]
