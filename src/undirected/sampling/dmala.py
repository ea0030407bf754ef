"""Discrete Langevin moves: all variables at once, each by the gradient of the energy."""

from dataclasses import dataclass, replace
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Key

from undirected.core.errors import UndirectedError, check_counts
from undirected.core.layout import Domain, Layout
from undirected.core.potentials import Potentials
from undirected.core.protocols import Lowerable
from undirected.core.units import draw, random_units
from undirected.sampling.adjusted import (
    Adjusted,
    Numbers,
    Place,
    Tuned,
    at_places,
    gain,
    place,
    tune,
)
from undirected.sampling.base import ChainState, Evaluations, flat_chains


@dataclass(frozen=True)
class DiscreteLangevin(Adjusted):
    """Discrete Metropolis-adjusted Langevin: DMALA (Zhang, Liu and Liu 2022), on any discrete model
    with local fields.

    Every variable draws a new state by itself, with log-odds d / 2 - |x' - x|^2 / (2 step_size),
    where d is the slope of the negative energy along the change; all the changes of a chain are
    then accepted or rejected together. `adapted` finds the step size before the draws.

    Args:
        step_size: larger steps move more variables at a time, and are accepted less often.
        updates: proposals of one step.

    Example:
        >>> import undirected as un
        >>> chain = un.Ising.create(un.graph.chain(3))
        >>> un.run_chains(un.DiscreteLangevin(), chain, chains=4, samples=10).x.shape
        (10, 4, 3)
    """

    step_size: float = 0.2

    def odds(self, layout: Layout, here: Place, numbers: Numbers) -> Float[Array, "chains n"]:
        """The fields from which every variable draws its new state.

        A binary unit that moves is 1 away, the two units of a categorical variable 2 together.
        """
        return 0.5 * here.slope + _stay(layout, here.x) / numbers["step_size"]

    def move(
        self,
        p: Potentials,
        here: Place,
        free: Bool[Array, "chains n"],
        key: Key[Array, ""],
        numbers: Numbers,
    ) -> tuple[Place, Float[Array, " chains"]]:
        drawn = draw(p.layout, self.odds(p.layout, here, numbers), key)
        there = place(p, jnp.where(free, drawn, here.x))
        return there, self.log_ratio(p, here, there, free, numbers)

    def log_ratio(
        self,
        p: Potentials,
        here: Place,
        there: Place,
        free: Bool[Array, "chains n"],
        numbers: Numbers,
    ) -> Float[Array, " chains"]:
        """Log of the Metropolis-Hastings ratio of these moves: accepted where a draw is below."""
        away = log_proposal(p.layout, self.odds(p.layout, here, numbers), there.x, free)
        back = log_proposal(p.layout, self.odds(p.layout, there, numbers), here.x, free)
        return gain(p, here, there) + back - away


BALANCES = 0.5, 0.6, 0.7, 0.8, 0.9, 1.0
"""Shares of the slope that adaptation of the any-scale sampler tries."""
STATES = 256
"""Random states from which it tells how much variables feel each other."""
LEAST, MOST = 0.1, 10.0
"""The entries of its diagonal, whose median is 1, are between these."""


@dataclass(frozen=True)
class AnyScale(DiscreteLangevin):
    """Langevin moves balanced for their scale (any-scale balanced sampler, Sun et al. 2023).

    Half the slope is right for small moves. Where moves are large a larger share is, up to the
    whole slope of variables that hardly feel each other; and variables that feel the others much
    should move less often. So the log-odds are balance d - diagonal |x' - x|^2 / (2 step_size).
    `adapted` finds all three; the paper's second-order term is left out, its diagonal kept.

    Args:
        step_size: larger steps move more variables at a time, and are accepted less often.
        balance: the share of the slope, 1/2 to 1.
        diagonal: a number for each variable, larger for those that should move less; 1 where empty.
        updates: proposals of one step.

    Example:
        >>> import jax
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> start, key = jax.numpy.zeros((8, 3)), jax.random.key(0)
        >>> kernel, state = un.AnyScale().adapted(model, start, key, steps=20)
        >>> un.run_chains(kernel, model, state, samples=10).x.shape
        (10, 8, 3)
    """

    balance: float = 0.5
    diagonal: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.balance <= 1 or any(not d > 0 for d in self.diagonal):
            raise UndirectedError(
                f"AnyScale: balance is {self.balance} and the least of the diagonal "
                f"{min(self.diagonal, default=1)}; pass a balance of 0 to 1 and a diagonal above 0"
            )

    def numbers(self, p: Potentials) -> Numbers:
        variables = len(p.layout.variables)
        if len(self.diagonal) not in (0, variables):
            raise UndirectedError(
                f"AnyScale: the diagonal has {len(self.diagonal)} entries, the model {variables} "
                "variables; pass one each, or none"
            )
        diagonal = self.diagonal or (1.0,) * variables
        more = {"balance": self.balance, "diagonal": diagonal}
        return super().numbers(p) | {k: jnp.asarray(a, p.unary.dtype) for k, a in more.items()}

    def odds(self, layout: Layout, here: Place, numbers: Numbers) -> Float[Array, "chains n"]:
        stay = numbers["diagonal"][layout.variables.owner] / numbers["step_size"]
        return numbers["balance"] * here.slope + _stay(layout, here.x) * stay[None]

    def _settled(
        self, model: Lowerable, found: Tuned, free: Array, key: Array, steps: int, target: float
    ) -> tuple[Self, ChainState]:
        """The diagonal by the couplings, then the balance whose accepted moves go furthest."""
        dtype, all_found = found.hops.dtype, []
        diagonal = roughness(model, found.state.x, free, key)
        numbers = found.numbers | {"diagonal": jnp.asarray(diagonal, dtype)}
        for i, balance in enumerate(BALANCES):
            numbers = numbers | {"balance": jnp.asarray(balance, dtype)}
            how = jax.random.fold_in(key, i), numbers, jnp.asarray(steps), target
            found = tune(self, model, found.state, free, *how)
            numbers = found.numbers
            all_found.append(found)
        best = max(all_found, key=lambda one: float(one.hops))
        kept = {k: np.asarray(a, float).tolist() for k, a in best.numbers.items()}
        return replace(self, **kept | {"diagonal": tuple(kept["diagonal"])}), best.state


@dataclass(frozen=True)
class MultipleTry(DiscreteLangevin):
    """Multiple-try Metropolis with Langevin proposals and locally balanced weights.

    Several proposals are drawn as `DiscreteLangevin` draws one. One of them is picked with
    probability proportional to the root of its Metropolis-Hastings ratio (Chang et al. 2022), and
    accepted by the ratio of the sum of these weights to that of as many proposals of the way back
    (Liu, Liang and Wong 2000). For devices on which several proposals take the time of one.

    Args:
        step_size: larger steps move more variables at a time, and are accepted less often.
        tries: proposals to pick from; 1 is `DiscreteLangevin`.
        updates: picks of one step.

    Example:
        >>> import undirected as un
        >>> chain = un.Ising.create(un.graph.chain(3))
        >>> un.run_chains(un.MultipleTry(tries=3), chain, chains=4, samples=10).x.shape
        (10, 4, 3)
    """

    tries: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts("MultipleTry", tries=self.tries)

    def move(
        self,
        p: Potentials,
        here: Place,
        free: Bool[Array, "chains n"],
        key: Key[Array, ""],
        numbers: Numbers,
    ) -> tuple[Place, Float[Array, " chains"]]:
        keys = jax.random.split(key, 2 * self.tries)
        chains = jnp.arange(len(here.x))

        def attempts(here: Place, keys: Array) -> tuple[Place, Array]:
            one = super(MultipleTry, self).move
            places, ratios = lax.map(lambda key: one(p, here, free, key, numbers), keys)
            return places, 0.5 * ratios

        places, weights = attempts(here, keys[: self.tries])
        picked = jax.random.categorical(keys[-1], weights, axis=0)
        there = jax.tree.map(lambda a: a[picked, chains], places)
        back = -weights[picked, chains][None]
        if self.tries > 1:
            back = jnp.concatenate([back, attempts(there, keys[self.tries : -1])[1]])
        return there, self.log_accept(weights, back)

    def evaluations(self, model: Lowerable) -> Evaluations:
        """Those of `DiscreteLangevin`, with proposals there and back."""
        return at_places(model.lower(), 1 + self.updates * (2 * self.tries - 1))

    def log_accept(
        self, there: Float[Array, "tries chains"], back: Float[Array, "tries chains"]
    ) -> Float[Array, " chains"]:
        """Log ratio of the sums of the weights."""
        return jax.nn.logsumexp(there, 0) - jax.nn.logsumexp(back, 0)


@eqx.filter_jit
def roughness(
    model: Lowerable, x: Float[Array, "*chains n"], free: Array, key: Key[Array, ""]
) -> Float[Array, " variables"]:
    """How much each variable feels the others: the deviation of its slope over random states.

    For pairwise models the root of the sum of its squared couplings; the median is 1.
    """
    p, x, flat = flat_chains("AnyScale", model, ChainState(x), free)
    variables = p.layout.variables
    places = jnp.arange(STATES) % len(x)
    random = random_units(p.layout, key, (STATES,)).astype(x.dtype)
    slope = place(p, jnp.where(flat[places], random, x[places])).slope
    each = jax.ops.segment_sum(slope.var(0), variables.owner, len(variables)) / variables.width
    rough = jnp.sqrt(each)
    return jnp.clip(rough / jnp.maximum(jnp.median(rough), 1e-12), LEAST, MOST)


def _stay(layout: Layout, x: Float[Array, "chains n"]) -> Float[Array, "chains n"]:
    """What speaks for the present state, by half the squared distance to others."""
    parts = [
        x[:, block.slice] - (0.0 if block.domain is Domain.CATEGORICAL else 0.5)
        for block in layout.blocks
    ]
    return jnp.concatenate(parts, -1)


def log_proposal(
    layout: Layout,
    odds: Float[Array, "chains n"],
    moved: Float[Array, "chains n"],
    free: Bool[Array, "chains n"],
) -> Float[Array, " chains"]:
    """Log-probability that the free variables draw these states from these fields."""
    total = jnp.zeros(len(odds), odds.dtype)
    for block in layout.blocks:
        field, state, loose = (a[:, block.slice] for a in (odds, moved, free))
        if block.domain is Domain.BINARY:
            each = jax.nn.log_sigmoid((2 * state - 1) * field)
        else:
            split = (len(field), block.variables, block.states)
            each = jax.nn.log_softmax(field.reshape(split), -1).reshape(field.shape) * state
        total = total + jnp.where(loose, each, 0.0).sum(-1)
    return total
