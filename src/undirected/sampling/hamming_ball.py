"""Hamming-ball Gibbs: a few variables drawn together from all states near an auxiliary one."""

from dataclasses import dataclass
from itertools import combinations, product
from math import comb

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from undirected.core.errors import UndirectedError, check_counts
from undirected.core.layout import Domain, Layout
from undirected.core.numerics import NEG_INF
from undirected.core.potentials import Potentials, values
from undirected.core.protocols import Info, Lowerable
from undirected.core.random import gumbel, uniform
from undirected.sampling.adjusted import gradient, is_pairwise
from undirected.sampling.base import ChainState, Evaluations, discrete_start, flat_chains

MOST = 4096
"""States of a ball, whose energies are computed one after the other."""


@dataclass(frozen=True)
class HammingBall:
    """Hamming-ball Gibbs sampling (Titsias and Yau 2017), on any discrete model that lowers.

    For every chain a block of variables is chosen at random. An auxiliary state is drawn from all
    that differ from the present one in at most `radius` of them, each as likely; then the new state
    from the model, among those within the same distance of the auxiliary one. With `radius` equal
    to `block` all states of the block are weighed: block Gibbs without structure.

    Args:
        block: variables of a block.
        radius: how many of them may change, twice in a draw.
        updates: draws of one step.

    Example:
        >>> import undirected as un
        >>> chain = un.Ising.create(un.graph.chain(3))
        >>> un.run_chains(un.HammingBall(block=2), chain, chains=4, samples=10).x.shape
        (10, 4, 3)
    """

    block: int = 10
    radius: int = 1
    updates: int = 1

    def __post_init__(self) -> None:
        check_counts("HammingBall", block=self.block, radius=self.radius, updates=self.updates)
        if self.radius > self.block:
            raise UndirectedError(
                f"HammingBall: radius is {self.radius}, block {self.block}; pass a radius of at "
                "most the block"
            )

    def reversed(self) -> "HammingBall":
        """The kernel itself: it is reversible."""
        return self

    def init(
        self, model: Lowerable, x: Float[Array, "*chains n"], key: Key[Array, ""]
    ) -> ChainState:
        """Chains that start at x."""
        return discrete_start("HammingBall", model, x)

    def step(
        self,
        model: Lowerable,
        state: ChainState,
        free: Bool[Array, "*#chains n"],
        key: Key[Array, ""],
    ) -> tuple[ChainState, Info]:
        """`updates` draws for every chain; `info["changed"]` is the share that is another state."""
        p, x, free = flat_chains("HammingBall", model, state, free)
        loose, ball = free[:, p.layout.variables.first], self.ball(p.layout)

        def update(i: Int[Array, ""], carry: tuple[Array, Array]) -> tuple[Array, Array]:
            x, changed = carry
            keys = jax.random.split(jax.random.fold_in(key, i), 3)
            order = jnp.where(loose, uniform(keys[0], loose.shape), -1.0)
            block = lax.top_k(order, ball.shape[1])[1]
            allowed = possible(p.layout, ball, block, loose)
            noise = [gumbel(k, allowed.shape) for k in keys[1:]]
            picked = jnp.argmax(jnp.where(allowed, noise[0], NEG_INF), 1)
            near = shifted(p.layout, x, block, ball[picked])
            weights = self.log_weights(p, near, block, ball, allowed)
            picked = jnp.argmax(weights + noise[1], 1)
            new = shifted(p.layout, near, block, ball[picked])
            return new, changed + (new != x).any(-1)

        start = x, jnp.zeros(len(x), x.dtype)
        x, changed = lax.fori_loop(0, self.updates, update, start)
        share = (changed / self.updates).reshape(state.x.shape[:-1])
        return ChainState(x.reshape(state.x.shape)), {"changed": share}

    def evaluations(self, model: Lowerable) -> Evaluations:
        """A gradient a draw where slopes tell all, else the energies of all states of a ball."""
        if self._by_slopes(model.lower()):
            return Evaluations(0, self.updates)
        return Evaluations(self.updates * len(self.ball(model.layout)), 0)

    def _by_slopes(self, p: Potentials) -> bool:
        return self.radius == 1 and is_pairwise(p)

    def ball(self, layout: Layout) -> Int[Array, "states block"]:
        """All changes of a block, as what is added to its states, that leave enough of it alone."""
        block, q = min(self.block, len(layout.variables)), int(layout.variables.states.max())
        radius = min(self.radius, block)
        count = sum(comb(block, k) * (q - 1) ** k for k in range(radius + 1))
        if count > MOST:
            raise UndirectedError(
                f"HammingBall: {count} states within {self.radius} changes of {block} variables of "
                f"{q} states; pass a smaller block or radius, for at most {MOST}"
            )
        ball = np.zeros((count, block), np.int32)
        places = (c for k in range(radius + 1) for c in combinations(range(block), k))
        pairs = ((c, new) for c in places for new in product(range(1, q), repeat=len(c)))
        for row, (where, new) in zip(ball, pairs, strict=True):
            row[list(where)] = new
        return jnp.asarray(ball)

    def log_weights(
        self,
        p: Potentials,
        x: Float[Array, "chains n"],
        block: Int[Array, "chains block"],
        ball: Int[Array, "states block"],
        allowed: Bool[Array, "chains states"],
    ) -> Float[Array, "chains states"]:
        """The negative energies, but for a constant, of all states within the ball around x.

        Of pairwise models the slopes at x tell what the change of one variable gains.
        """
        by_slopes = self._by_slopes(p)
        slope = gradient(p, x) if by_slopes else jnp.broadcast_to(p.evidence, x.shape)

        def value(change: Int[Array, " block"]) -> Float[Array, " chains"]:
            moved = shifted(p.layout, x, block, jnp.broadcast_to(change, block.shape))
            gained = (slope * (moved - x)).sum(-1)
            return gained if by_slopes else values(p, moved) + gained

        return jnp.where(allowed, lax.map(value, ball).T, 2 * NEG_INF)


def possible(
    layout: Layout,
    ball: Int[Array, "states block"],
    block: Int[Array, "chains block"],
    loose: Bool[Array, "chains variables"],
) -> Bool[Array, "chains states"]:
    """Changes of free variables only, to states that they have."""
    most = jnp.asarray(layout.variables.states)[block]
    most = jnp.where(jnp.take_along_axis(loose, block, 1), most, 1)
    return (ball[None] < most[:, None]).all(-1)


def shifted(
    layout: Layout,
    x: Float[Array, "chains n"],
    block: Int[Array, "chains block"],
    change: Int[Array, "chains block"],
) -> Float[Array, "chains n"]:
    """The states with those of the block counted on by so much, from the last to the first."""
    chains, parts, first = jnp.arange(len(x))[:, None], [], 0
    more = jnp.zeros((len(x), len(layout.variables)), jnp.int32).at[chains, block].set(change)
    for b in layout.blocks:
        now, here = x[:, b.slice], more[:, first : first + b.variables]
        if b.domain is Domain.BINARY:
            parts.append(jnp.abs(now - here.astype(x.dtype)))
        else:
            state = now.reshape(len(x), b.variables, b.states).argmax(-1)
            new = jax.nn.one_hot((state + here) % b.states, b.states, dtype=x.dtype)
            parts.append(new.reshape(len(x), -1))
        first += b.variables
    return jnp.concatenate(parts, -1)
