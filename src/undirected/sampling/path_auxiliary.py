"""The path-auxiliary sampler: many variables changed one after the other by one gradient."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from undirected.core.errors import check_counts
from undirected.core.layout import Domain, Layout
from undirected.core.numerics import NEG_INF
from undirected.core.potentials import Potentials
from undirected.core.protocols import Lowerable
from undirected.core.random import gumbel
from undirected.sampling.adjusted import Adjusted, Numbers, Place, Tuned, gain, place
from undirected.sampling.base import ChainState

LONGEST = 64
"""The longest path that adaptation tries, on average."""


@dataclass(frozen=True)
class PathAuxiliary(Adjusted):
    """Path-auxiliary sampler (Sun et al. 2022, the fast version), on any discrete model with local
    fields.

    Variables are changed one after the other, none twice, each change with probability
    proportional to exp(d / 2), where d is the slope of the negative energy along it at the start
    of the path. The path is accepted or rejected as a whole, by the probability of the same path
    backwards. The number of changes is 1 to 2 length - 1, each as likely: were it fixed and even,
    half of all states would never be seen. `adapted` finds the length before the draws.

    Args:
        length: changes of a path, on average.
        updates: paths of one step.

    Example:
        >>> import undirected as un
        >>> chain = un.Ising.create(un.graph.chain(3))
        >>> un.run_chains(un.PathAuxiliary(2), chain, chains=4, samples=10).x.shape
        (10, 4, 3)
    """

    tuned: ClassVar[str] = "length"
    reach: ClassVar[tuple[float, float]] = (1, LONGEST)

    length: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts("PathAuxiliary", length=self.length)

    def move(
        self,
        p: Potentials,
        here: Place,
        free: Bool[Array, "chains n"],
        key: Key[Array, ""],
        numbers: Numbers,
    ) -> tuple[Place, Float[Array, " chains"]]:
        length_key, pick_key = jax.random.split(key)
        layout, most = p.layout, 2 * self.length - 1
        loose = free[:, layout.variables.first]
        noisy = _half_gains(layout, here) + gumbel(pick_key, here.x.shape)
        scores = by_variable(layout, noisy, lambda part: part.max(-1))
        scores, path = lax.top_k(jnp.where(loose, scores, NEG_INF), min(most, loose.shape[1]))
        lengths = jax.random.uniform(length_key, (len(here.x), 1)) * (2 * numbers["length"] - 1)
        taken = jnp.arange(path.shape[1])[None] <= lengths
        taken = taken & jnp.take_along_axis(loose, path, 1)
        there = place(p, self.changed(layout, here.x, noisy, path, taken))
        return there, self.log_ratio(p, here, there, free, path, taken)

    def changed(
        self,
        layout: Layout,
        x: Float[Array, "chains n"],
        noisy: Float[Array, "chains n"],
        path: Int[Array, "chains most"],
        taken: Bool[Array, "chains most"],
    ) -> Float[Array, "chains n"]:
        """The states at the end of the path: flipped, or in the state of the largest score."""
        target = 1 - x
        if not layout.is_binary:
            best = by_variable(layout, noisy, lambda part: part.max(-1))
            chosen = noisy == _spread(layout, best)
            target = jnp.where(_wide(layout), chosen.astype(x.dtype), target)
        marked = _mark(path, taken, len(layout.variables))
        return jnp.where(_spread(layout, marked), target, x)

    def log_ratio(
        self,
        p: Potentials,
        here: Place,
        there: Place,
        free: Bool[Array, "chains n"],
        path: Int[Array, "chains most"],
        taken: Bool[Array, "chains most"],
    ) -> Float[Array, " chains"]:
        """Log of the Metropolis-Hastings ratio of these paths: accepted where a draw is below."""
        away = log_path(p.layout, here, there.x, free, path, taken)
        back = log_path(p.layout, there, here.x, free, path[:, ::-1], taken[:, ::-1])
        return gain(p, here, there) + back - away

    def _widest(self) -> Self:
        return replace(self, length=LONGEST)

    def _settled(
        self, model: Lowerable, found: Tuned, free: Array, key: Array, steps: int, target: float
    ) -> tuple[Self, ChainState]:
        return replace(self, length=max(1, round(float(found.numbers["length"])))), found.state


def log_path(
    layout: Layout,
    here: Place,
    to: Float[Array, "chains n"],
    free: Bool[Array, "chains n"],
    path: Int[Array, "chains most"],
    taken: Bool[Array, "chains most"],
) -> Float[Array, " chains"]:
    """Log-probability to go from here to there by changing these variables in this order."""
    half = _half_gains(layout, here)
    loose = free[:, layout.variables.first]
    left = loose & ~_mark(path, taken, loose.shape[1])
    weight = by_variable(layout, half, lambda part: jax.nn.logsumexp(part, -1))
    rest = jax.nn.logsumexp(jnp.where(left, weight, NEG_INF), -1, keepdims=True)
    chosen = jnp.where(to > 0.5, half, NEG_INF)
    on = by_variable(layout, chosen, lambda part: part.max(-1), binary=half)
    each, all_of = (jnp.take_along_axis(a, path, 1) for a in (on, weight))
    # What may still be chosen: the rest, this one and those that come after it.
    later = lax.cumlogsumexp(jnp.where(taken, all_of, NEG_INF), axis=1, reverse=True)
    return jnp.where(taken, each - jnp.logaddexp(rest, later), 0.0).sum(-1)


def by_variable(
    layout: Layout,
    units: Float[Array, "chains n"],
    reduce: Callable[[Array], Array],
    binary: Float[Array, "chains n"] | None = None,
) -> Float[Array, "chains variables"]:
    """One number for each variable: of the units of a categorical one, or that of a binary unit."""
    parts = []
    for block in layout.blocks:
        part = units[:, block.slice]
        if block.domain is Domain.CATEGORICAL:
            part = reduce(part.reshape(len(part), -1, block.states))
        elif binary is not None:
            part = binary[:, block.slice]
        parts.append(part)
    return jnp.concatenate(parts, -1)


def _half_gains(layout: Layout, here: Place) -> Float[Array, "chains n"]:
    """Half of what a flip of each binary unit gains, by the slope, or each state not taken."""
    gains = (1 - 2 * here.x) * here.slope
    if not layout.is_binary:
        now = by_variable(layout, here.x * here.slope, lambda part: part.sum(-1))
        rise = jnp.where(here.x > 0.5, 2 * NEG_INF, here.slope - _spread(layout, now))
        gains = jnp.where(_wide(layout), rise, gains)
    return 0.5 * gains


def _wide(layout: Layout) -> Bool[np.ndarray, "1 n"]:
    """Which units are those of categorical variables."""
    return (layout.variables.width > 1)[layout.variables.owner][None]


def _spread(layout: Layout, each: Array) -> Array:
    """To every unit what its variable has."""
    return each if layout.is_binary else each[:, layout.variables.owner]


def _mark(
    path: Int[Array, "chains most"], taken: Bool[Array, "chains most"], variables: int
) -> Bool[Array, "chains variables"]:
    """Which variables are on the path."""
    chains = jnp.arange(len(path))[:, None]
    return jnp.zeros((len(path), variables), bool).at[chains, path].max(taken)
