"""Gibbs with gradients: single-site moves proposed by the gradient of the energy."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from undirected.core.errors import check_counts
from undirected.core.layout import Domain, Layout
from undirected.core.numerics import NEG_INF
from undirected.core.potentials import Potentials
from undirected.core.protocols import Info, Lowerable
from undirected.factors import Symmetric
from undirected.ops.flips import flip_sites
from undirected.sampling.adjusted import Place, accept, at_places, gain, gradient, place
from undirected.sampling.base import ChainState, Evaluations, discrete_start, flat_chains

STRETCH = 256
"""Updates of a dense model between two times that its slopes are summed anew."""


@dataclass(frozen=True)
class GibbsWithGradients:
    """Metropolis-Hastings on single variables (Grathwohl et al. 2021, Algorithm 1).

    A move of one variable to another value is proposed with probability proportional to exp(d / 2),
    d the first-order estimate of its gain (exact for pairwise models), and accepted by the
    Metropolis rule. Binary units flip; a categorical variable goes to a state it is not in. States
    that differ in several variables of one hard factor are not joined by such moves.

    Args:
        updates: proposals of one step, for each chain; as many as there are variables are a sweep.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> kernel = un.GibbsWithGradients(updates=3)
        >>> un.run_chains(kernel, model, chains=2, samples=4, seed=0).x.shape
        (4, 2, 3)
    """

    updates: int = 1

    def __post_init__(self) -> None:
        check_counts("GibbsWithGradients", updates=self.updates)

    def init(
        self, model: Lowerable, x: Float[Array, "*chains n"], key: Key[Array, ""]
    ) -> ChainState:
        """Chains that start at x."""
        return discrete_start("GibbsWithGradients", model, x)

    def step(
        self,
        model: Lowerable,
        state: ChainState,
        free: Bool[Array, "*#chains n"],
        key: Key[Array, ""],
    ) -> tuple[ChainState, Info]:
        """`updates` proposals for every chain; `info["accepted"]` is the share accepted."""
        p, x, loose = flat_chains("GibbsWithGradients", model, state, free)
        weight = _dense_weight(p)
        if weight is None:
            x, accepted = _updates(p, x, loose, self.updates, key)
        else:
            x, accepted = _flips(p, weight, x, loose, self.updates, key)
        share = (accepted / self.updates).reshape(state.x.shape[:-1])
        return ChainState(x.reshape(state.x.shape)), {"accepted": share}

    def evaluations(self, model: Lowerable) -> Evaluations:
        """Gradients at the start and every proposal; as many energies where not all are pairs.

        In dense models a proposal takes one row of the couplings, which is 1 / n of a gradient.
        """
        p = model.lower()
        if _dense_weight(p) is None:
            return at_places(p, 1 + self.updates)
        return Evaluations(0, -(-self.updates // STRETCH) + self.updates / p.layout.n)


def _dense_weight(p: Potentials) -> Float[Array, "n n"] | None:
    """The weights of a binary model whose only factor couples all pairs of units."""
    match p.factors:
        case (Symmetric(weight=weight),) if p.layout.is_binary and len(weight) == p.layout.n:
            return weight
    return None


def _flips(
    p: Potentials,
    weight: Float[Array, "n n"],
    x: Float[Array, "chains n"],
    free: Array,
    updates: int,
    key: Key[Array, ""],
) -> tuple[Array, Array]:
    """The states after all updates, and the number accepted; slopes are summed anew every stretch.

    For dense binary models (see `ops.flips`).
    """

    def stretch(state: tuple[Array, Array], length: int, number: Any) -> tuple[Array, Array]:
        x, accepted = state
        shape = (len(x), length, 2)
        uniform = jax.random.uniform(jax.random.fold_in(key, number), shape, x.dtype)
        x, more = flip_sites(weight, gradient(p, x), x, free, uniform)
        return x, accepted + more

    whole, rest = divmod(updates, STRETCH)
    state = x, jnp.zeros(len(x), x.dtype)
    state = lax.fori_loop(0, whole, lambda i, s: stretch(s, STRETCH, i), state)
    return stretch(state, rest, whole) if rest else state


def _updates(
    p: Potentials, x: Float[Array, "chains n"], free: Array, updates: int, key: Key[Array, ""]
) -> tuple[Array, Array]:
    """The states after all updates, and the number accepted, for any model."""

    def update(i: Int[Array, ""], carry: tuple[Place, Array]) -> tuple[Place, Array]:
        here, accepted = carry
        pick_key, accept_key = jax.random.split(jax.random.fold_in(key, i))
        unit = jax.random.categorical(pick_key, log_proposal(p.layout, here, free))
        here, yes = accept(here, *propose(p, here, free, unit), accept_key)
        return here, accepted + yes

    start = place(p, x), jnp.zeros(len(x), x.dtype)
    here, accepted = lax.fori_loop(0, updates, update, start)
    return here.x, accepted


def log_proposal(
    layout: Layout, here: Place, free: Bool[Array, "chains n"]
) -> Float[Array, "chains n"]:
    """log q(unit | x): half the estimated gain of moving each unit, normalised over the free ones.

    Moving a categorical unit puts its variable into that state; the present one is no move.
    """
    x, slope = here.x, here.slope
    rise = (1 - 2 * x) * slope
    for block in layout.blocks:
        if block.domain is Domain.CATEGORICAL:
            now, along = _grouped(block.states, x[:, block.slice], slope[:, block.slice])
            more = along - (now * along).sum(-1, keepdims=True)
            more = jnp.where(now > 0.5, NEG_INF, more)
            rise = rise.at[:, block.slice].set(more.reshape(len(x), -1))
    return jax.nn.log_softmax(jnp.where(free, 0.5 * rise, NEG_INF), -1)


def propose(
    p: Potentials, here: Place, free: Bool[Array, "chains n"], unit: Int[Array, " chains"]
) -> tuple[Place, Float[Array, " chains"]]:
    """Where chains are with one unit moved, and the log acceptance ratio."""
    moved, way_back = _moved(p.layout, here.x, unit)
    there, chains = place(p, moved), jnp.arange(len(unit))
    away = log_proposal(p.layout, here, free)[chains, unit]
    back = log_proposal(p.layout, there, free)[chains, way_back]
    log_ratio = gain(p, here, there) + back - away
    return there, jnp.where(free[chains, unit], log_ratio, NEG_INF)


def _moved(
    layout: Layout, x: Float[Array, "chains n"], unit: Int[Array, " chains"]
) -> tuple[Float[Array, "chains n"], Int[Array, " chains"]]:
    """The states with the unit flipped, or its variable put there; and the unit that undoes it."""
    here = jax.nn.one_hot(unit, layout.n, dtype=x.dtype)
    if layout.is_binary:
        return jnp.abs(x - here), unit
    group = jnp.asarray(layout.variables.owner)
    same = group[None] == group[unit][:, None]
    wide = jnp.asarray(_is_categorical(layout))[unit]
    moved = jnp.where(wide[:, None], jnp.where(same, here, x), jnp.abs(x - here))
    before = jnp.argmax(jnp.where(same, x, -1.0), -1)
    return moved, jnp.where(wide, before, unit)


def _grouped(states: int, *parts: Array) -> list[Array]:
    return [part.reshape(len(part), -1, states) for part in parts]


def _is_categorical(layout: Layout) -> np.ndarray:
    return np.concatenate([np.full(b.size, b.domain is Domain.CATEGORICAL) for b in layout.blocks])
