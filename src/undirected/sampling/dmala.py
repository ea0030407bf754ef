"""Discrete Langevin moves: all variables at once, each by the gradient of the energy."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from undirected.core.errors import UndirectedError
from undirected.core.layout import Domain, Layout, check_discrete
from undirected.core.potentials import Potentials, local_fields, values
from undirected.core.protocols import Info, Lowerable
from undirected.core.units import draw, free_variables
from undirected.sampling.base import ChainState, check_lowerable, joint_states


@dataclass(frozen=True)
class DiscreteLangevin:
    """Discrete Metropolis-adjusted Langevin: DMALA (Zhang, Liu and Liu 2022), on any discrete model
    with local fields.

    Every variable draws a new state by itself, with log-odds d / 2 - |x' - x|^2 / (2 step_size),
    where d is the slope of the negative energy along the change; all the changes of a chain are
    then accepted or rejected together.

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
    updates: int = 1

    def __post_init__(self) -> None:
        if self.updates < 1 or not self.step_size > 0:
            raise UndirectedError(
                f"DiscreteLangevin: step_size is {self.step_size} and updates {self.updates}; pass "
                "a step size above 0 and at least 1 update"
            )

    def reversed(self) -> "DiscreteLangevin":
        """The kernel itself: it is reversible."""
        return self

    def init(
        self, model: Lowerable, x: Float[Array, "*chains n"], key: Key[Array, ""]
    ) -> ChainState:
        """Chains that start at x."""
        check_lowerable("DiscreteLangevin", model, "BlockGibbs")
        check_discrete("DiscreteLangevin", *model.layout.blocks)
        return ChainState(joint_states("DiscreteLangevin", model.layout, x))

    def step(
        self,
        model: Lowerable,
        state: ChainState,
        free: Bool[Array, "*#chains n"],
        key: Key[Array, ""],
    ) -> tuple[ChainState, Info]:
        """`updates` proposals for every chain; `info["accepted"]` is the share accepted."""
        p = model.lower()
        x = state.x.reshape(-1, state.x.shape[-1])
        free = free_variables("DiscreteLangevin", p.layout, free)
        free = jnp.broadcast_to(free, state.x.shape).reshape(x.shape)

        def update(i: Int[Array, ""], carry: tuple[Array, Array]) -> tuple[Array, Array]:
            x, accepted = carry
            draw_key, accept_key = jax.random.split(jax.random.fold_in(key, i))
            odds = proposal(p, x, self.step_size)
            moved = jnp.where(free, draw(p.layout, odds, draw_key), x)
            ratio = self.log_ratio(p, x, moved, free)
            level = jnp.log(jax.random.uniform(accept_key, ratio.shape, x.dtype))
            yes = level < ratio
            return jnp.where(yes[:, None], moved, x), accepted + yes

        start = x, jnp.zeros(len(x), x.dtype)
        x, accepted = lax.fori_loop(0, self.updates, update, start)
        share = (accepted / self.updates).reshape(state.x.shape[:-1])
        return ChainState(x.reshape(state.x.shape)), {"accepted": share}

    def log_ratio(
        self,
        p: Potentials,
        x: Float[Array, "chains n"],
        moved: Float[Array, "chains n"],
        free: Bool[Array, "chains n"],
    ) -> Float[Array, " chains"]:
        """Log of the Metropolis-Hastings ratio of these moves: accepted where a draw is below."""
        there = log_proposal(p.layout, proposal(p, x, self.step_size), moved, free)
        back = log_proposal(p.layout, proposal(p, moved, self.step_size), x, free)
        seen = (jnp.broadcast_to(p.evidence, x.shape) * (moved - x)).sum(-1)
        return values(p, moved) - values(p, x) + seen + back - there


def proposal(
    p: Potentials, x: Float[Array, "chains n"], step_size: float
) -> Float[Array, "chains n"]:
    """The fields from which every variable draws its new state.

    A binary unit that moves is 1 away, the two units of a categorical variable 2 together.
    """
    half = 0.5 * (jnp.broadcast_to(p.fields, x.shape) + local_fields(p, x))
    wide = [b.domain is Domain.CATEGORICAL for b in p.layout.blocks]
    parts = [
        half[:, block.slice] + (x[:, block.slice] if many else x[:, block.slice] - 0.5) / step_size
        for block, many in zip(p.layout.blocks, wide, strict=True)
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
