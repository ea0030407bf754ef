"""What Metropolis-adjusted kernels share: where a chain stands, the loop, adaptation in burn-in."""

from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from undirected.core.errors import UndirectedError, check_counts
from undirected.core.potentials import Potentials, local_fields, values
from undirected.core.protocols import Info, Lowerable
from undirected.factors import PottsPairs
from undirected.sampling.base import ChainState, Evaluations, discrete_start, flat_chains

Numbers = dict[str, Array]
"""Settings as data, so that another value of them compiles nothing."""


class Place(eqx.Module):
    """A state, the slope of the negative energy in every unit there, and the negative energy.

    `value` is 0 for pairwise models, of which the slopes of two states tell the difference.
    """

    x: Float[Array, "chains n"]
    slope: Float[Array, "chains n"]
    value: Float[Array, " chains"]


def place(p: Potentials, x: Float[Array, "chains n"]) -> Place:
    """Where chains at x stand; evidence counts as a field."""
    return Place(x, gradient(p, x), jnp.zeros(len(x), x.dtype) if is_pairwise(p) else values(p, x))


def gradient(p: Potentials, x: Float[Array, "chains n"]) -> Float[Array, "chains n"]:
    """Slope of the negative energy in every unit; evidence counts as a field."""
    return jnp.broadcast_to(p.fields, x.shape) + local_fields(p, x)


def gain(p: Potentials, here: Place, there: Place) -> Float[Array, " chains"]:
    """How much lower the energy is there, evidence included."""
    change = there.x - here.x
    if is_pairwise(p):
        return 0.5 * (change * (here.slope + there.slope)).sum(-1)
    seen = (jnp.broadcast_to(p.evidence, change.shape) * change).sum(-1)
    return there.value - here.value + seen


def is_pairwise(p: Potentials) -> bool:
    """Whether the energy is quadratic in the units."""
    return all(factor.pairwise or isinstance(factor, PottsPairs) for factor in p.factors)


def at_places(p: Potentials, count: int) -> Evaluations:
    """What so many calls of `place` compute."""
    return Evaluations(0 if is_pairwise(p) else count, count)


@dataclass(frozen=True)
class Adjusted:
    """A kernel whose moves are proposed by the slopes of the energy and accepted or rejected.

    Who derives from it writes `move`; `tuned` is the setting that `adapted` finds, which makes
    moves larger, and `reach` is what it may be.
    """

    tuned: ClassVar[str] = "step_size"
    reach: ClassVar[tuple[float, float]] = (1e-2, 1e3)

    updates: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        name, value = type(self).__name__, getattr(self, self.tuned)
        check_counts(name, updates=self.updates)
        if not isinstance(value, Real) or not float(value) > 0:
            raise UndirectedError(f"{name}: {self.tuned} is {value!r:.40}; pass a number above 0")

    def reversed(self) -> Self:
        """The kernel itself: it is reversible."""
        return self

    def init(
        self, model: Lowerable, x: Float[Array, "*chains n"], key: Key[Array, ""]
    ) -> ChainState:
        """Chains that start at x."""
        return discrete_start(type(self).__name__, model, x)

    def numbers(self, p: Potentials) -> Numbers:
        """The settings that are adapted, as data."""
        return {self.tuned: jnp.asarray(getattr(self, self.tuned), p.unary.dtype)}

    def move(
        self,
        p: Potentials,
        here: Place,
        free: Bool[Array, "chains n"],
        key: Key[Array, ""],
        numbers: Numbers,
    ) -> tuple[Place, Float[Array, " chains"]]:
        """A proposal for every chain, and the log ratio by which it is accepted."""
        raise NotImplementedError

    def step(
        self,
        model: Lowerable,
        state: ChainState,
        free: Bool[Array, "*#chains n"],
        key: Key[Array, ""],
    ) -> tuple[ChainState, Info]:
        """`updates` proposals for every chain; `info["accepted"]` is the share accepted."""
        p, x, free = flat_chains(type(self).__name__, model, state, free)
        numbers = self.numbers(p)

        def update(i: Int[Array, ""], carry: tuple[Place, Array]) -> tuple[Place, Array]:
            here, yes = self._moved(p, carry[0], free, jax.random.fold_in(key, i), numbers)
            return here, carry[1] + yes

        start = place(p, x), jnp.zeros(len(x), x.dtype)
        here, accepted = lax.fori_loop(0, self.updates, update, start)
        share = (accepted / self.updates).reshape(state.x.shape[:-1])
        return ChainState(here.x.reshape(state.x.shape)), {"accepted": share}

    def evaluations(self, model: Lowerable) -> Evaluations:
        """Gradients at the start and every proposal; as many energies where not all are pairs."""
        return at_places(model.lower(), 1 + self.updates)

    def adapted(
        self,
        model: Lowerable,
        x: Float[Array, "*chains n"],
        key: Key[Array, ""],
        *,
        steps: int = 500,
        target: float = 0.574,
        free: Bool[Array, "*#chains n"] | None = None,
    ) -> tuple[Self, ChainState]:
        """The same kernel, its moves as large as this share of them is accepted, and its chains.

        For the time before the draws: `steps` proposals for every chain, after each of which moves
        grow or shrink, ever less.
        """
        if steps < 2 or not 0 < target < 1:
            raise UndirectedError(
                f"{type(self).__name__}: {steps} steps to a share of {target}; pass 2 steps or "
                "more and a share between 0 and 1"
            )
        init_key, key = jax.random.split(key)
        state = self.init(model, jnp.asarray(x), init_key)
        free = jnp.ones(model.layout.n, bool) if free is None else jnp.asarray(free, bool)
        numbers = self.numbers(model.lower())
        how = key, numbers, jnp.asarray(steps), target
        found = tune(self._widest(), model, state, free, *how)
        return self._settled(model, found, free, key, steps, target)

    def _widest(self) -> Self:
        """The kernel that has room for the largest moves that adaptation tries."""
        return self

    def _settled(
        self, model: Lowerable, found: "Tuned", free: Array, key: Array, steps: int, target: float
    ) -> tuple[Self, ChainState]:
        """The kernel with the numbers found."""
        return replace(self, **{self.tuned: float(found.numbers[self.tuned])}), found.state

    def _moved(
        self, p: Potentials, here: Place, free: Array, key: Key[Array, ""], numbers: Numbers
    ) -> tuple[Place, Bool[Array, " chains"]]:
        """Where chains are after a proposal, and for which of them it was accepted."""
        move_key, accept_key = jax.random.split(key)
        there, log_ratio = self.move(p, here, free, move_key, numbers)
        return accept(here, there, log_ratio, accept_key)


def accept(
    here: Place, there: Place, log_ratio: Float[Array, " chains"], key: Key[Array, ""]
) -> tuple[Place, Bool[Array, " chains"]]:
    """There where a draw is below the ratio, elsewhere here; and for which chains it was."""
    level = jnp.log(jax.random.uniform(key, log_ratio.shape, here.x.dtype))
    yes = level < log_ratio

    def pick(new: Array, old: Array) -> Array:
        return jnp.where(yes.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return jax.tree.map(pick, there, here), yes


class Tuned(eqx.Module):
    """What adaptation found: the numbers, the chains, and `hops`, how many units a move changes.

    Hops are a mean over its second half; a move that is rejected changes none.
    """

    numbers: Numbers
    state: ChainState
    hops: Float[Array, ""]


@eqx.filter_jit
def tune(
    kernel: Adjusted,
    model: Any,
    state: ChainState,
    free: Array,
    key: Key[Array, ""],
    numbers: Numbers,
    steps: Int[Array, ""],
    target: float,
) -> Tuned:
    """Stochastic approximation of the logarithm of the tuned number, averaged at the end."""
    p, x, free = flat_chains(type(kernel).__name__, model, state, free)
    low, high = np.log(kernel.reach)

    def once(i: Array, carry: tuple) -> tuple:
        here, log_scale, sums = carry
        now = numbers | {kernel.tuned: jnp.exp(log_scale)}
        after, yes = kernel._moved(p, here, free, jax.random.fold_in(key, i), now)
        error = yes.mean(dtype=x.dtype) - target
        log_scale = jnp.clip(log_scale + 2 * error / jnp.sqrt(1.0 + i), low, high)
        hops = (after.x != here.x).sum(-1).mean(dtype=x.dtype)
        late = i >= steps // 2
        return after, log_scale, sums + jnp.where(late, jnp.stack([log_scale, hops]), 0.0)

    start = place(p, x), jnp.log(numbers[kernel.tuned]), jnp.zeros(2, x.dtype)
    here, _, sums = lax.fori_loop(0, steps, once, start)
    log_scale, hops = sums / (steps - steps // 2)
    state = ChainState(here.x.reshape(state.x.shape))
    return Tuned(numbers | {kernel.tuned: jnp.exp(log_scale)}, state, hops)
