"""Samplers that leave a mode by way of flatter models: tempered transitions, parallel tempering."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from undirected.core.errors import UndirectedError
from undirected.core.protocols import Info

MakePath = Callable[[Any], Callable[[Array], Any]]


def ladder(lowest: float, count: int) -> tuple[float, ...]:
    """`count` inverse temperatures, evenly spaced from 1 down to `lowest`, both ends included."""
    if count < 2 or not lowest < 1:
        raise UndirectedError(
            f"ladder: {count} betas down to {lowest}; pass at least 2 and a lowest below 1"
        )
    return tuple(np.linspace(1.0, lowest, count).tolist())


def respace(betas: Sequence[float], rates: Sequence[float]) -> tuple[float, ...]:
    """As many betas, placed so that neighbours would swap equally often.

    `rates` are the swap rates of neighbours, measured on `betas`. Rejections add up along the
    ladder to a curve that hardly depends on where its rungs are (Syed et al. 2022): cut it evenly.
    """
    if len(rates) != len(betas) - 1:
        raise UndirectedError(
            f"respace: {len(betas)} betas have {len(betas) - 1} neighbours, got {len(rates)} rates"
        )
    barrier = np.concatenate([[0.0], np.cumsum(np.maximum(1 - np.asarray(rates), 1e-6))])
    even = np.linspace(0, barrier[-1], len(betas))
    placed = np.interp(even, barrier, betas)
    placed[0], placed[-1] = betas[0], betas[-1]
    return tuple(placed.tolist())


def _check_betas(name: str, betas: Sequence[float]) -> tuple[float, ...]:
    values = tuple(float(beta) for beta in betas)
    if len(values) < 2 or values[0] != 1 or (np.diff(values) >= 0).any():
        raise UndirectedError(
            f"{name}: betas are {values}; pass at least two that fall from 1, as `ladder` does"
        )
    return values


class TemperedState(eqx.Module):
    """The chains, as the base kernel keeps them."""

    inside: Any

    @property
    def x(self) -> Float[Array, "*chains n"]:
        return self.inside.x


@dataclass(frozen=True)
class TemperedTransitions:
    """Down to the flattest model and back, accepted as a whole (Neal 1996; tempered, Algorithm 2).

    On the way down the kernel moves the chains once at every level, and on the way back its
    reversal does. Memory does not grow with the number of levels.

    Args:
        kernel: what moves the chains; it needs `reversed()`, the kernel of its moves in reverse
            order.
        path: `path(model)(beta)` is the model at inverse temperature beta, as with `tempered`.
        betas: inverse temperatures, falling from 1; `sampling.ladder` spaces them evenly.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> kernel = un.TemperedTransitions(un.Gibbs(), un.tempered, (1.0, 0.5, 0.1))
        >>> un.run_chains(kernel, model, chains=2, samples=4, seed=0).x.shape
        (4, 2, 3)
    """

    kernel: Any
    path: MakePath
    betas: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", _check_betas("tempered transitions", self.betas))
        if not hasattr(self.kernel, "reversed"):
            raise UndirectedError(
                f"tempered transitions: {type(self.kernel).__name__} has no reversed(), the kernel "
                "of its moves in reverse order (itself where it is reversible); add it, or use "
                "ParallelTempering"
            )

    def reversed(self) -> "TemperedTransitions":
        """The kernel is its own time reversal."""
        return self

    def init(self, model: Any, x: Float[Array, "*chains n"], key: Key[Array, ""]) -> TemperedState:
        """Chains that start at x."""
        return TemperedState(self.kernel.init(model, x, key))

    def step(
        self,
        model: Any,
        state: TemperedState,
        free: Bool[Array, "*#chains n"],
        key: Key[Array, ""],
    ) -> tuple[TemperedState, Info]:
        """One run; `accepted` (0 or 1), `log_ratio`, and `distance`, the share of units it moves.

        log ratio = sum_i [E_i - E_{i+1}](x_i) - [E_i - E_{i+1}](x'_i), x_i the state on the way
        down before the move at level i + 1, x'_i the one after it on the way back.
        """
        path = self.path(model)
        betas = jnp.asarray(self.betas, state.x.dtype)
        down_key, up_key, accept_key = jax.random.split(key, 3)
        back = self.kernel.reversed()

        def gap(i: Int[Array, ""], x: Array) -> Float[Array, "*chains"]:
            return path(betas[i]).energy(x) - path(betas[i + 1]).energy(x)

        def down(i: Int[Array, ""], carry: tuple[Any, Array]) -> tuple[Any, Array]:
            inside, log_ratio = carry
            log_ratio = log_ratio + gap(i, inside.x)
            moved, _ = self.kernel.step(
                path(betas[i + 1]), inside, free, jax.random.fold_in(down_key, i)
            )
            return moved, log_ratio

        def up(k: Int[Array, ""], carry: tuple[Any, Array]) -> tuple[Any, Array]:
            inside, log_ratio = carry
            i = len(self.betas) - 2 - k
            moved, _ = back.step(path(betas[i + 1]), inside, free, jax.random.fold_in(up_key, i))
            return moved, log_ratio - gap(i, moved.x)

        levels = len(self.betas) - 1
        carry = state.inside, jnp.zeros(state.x.shape[:-1], state.x.dtype)
        carry = jax.lax.fori_loop(0, levels, down, carry)
        proposed, log_ratio = jax.lax.fori_loop(0, levels, up, carry)
        chance = jax.random.uniform(accept_key, log_ratio.shape, log_ratio.dtype)
        accepted = jnp.log(chance) < log_ratio
        distance = jnp.mean(proposed.x != state.x, axis=-1, dtype=log_ratio.dtype)
        kept = _where(accepted, proposed, state.inside)
        info = {
            "accepted": accepted.astype(log_ratio.dtype),
            "log_ratio": log_ratio,
            "distance": distance,
        }
        return TemperedState(kept), info


class LadderState(eqx.Module):
    """Replicas at every beta, (rungs, *chains, n), hottest last, and whose turn it is to swap."""

    rungs: Float[Array, "k *chains n"]
    odd: Int[Array, ""]

    @property
    def x(self) -> Float[Array, "*chains n"]:
        """The replicas at beta 1."""
        return self.rungs[0]


@dataclass(frozen=True)
class ParallelTempering:
    """Replicas at falling betas, each moved by a kernel; neighbours then offer to swap states.

    Pairs (0, 1), (2, 3), ... and (1, 2), (3, 4), ... take turns. The product of the tempered models
    is invariant, so that the replica at beta 1 follows the model.

    Args:
        kernel: what moves a replica.
        path: `path(model)(beta)` is the model at inverse temperature beta, as with `tempered`.
        betas: inverse temperatures, falling from 1; `sampling.ladder` spaces them evenly.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> kernel = un.ParallelTempering(un.Gibbs(), un.tempered, (1.0, 0.5, 0.1))
        >>> un.run_chains(kernel, model, chains=2, samples=4, seed=0).x.shape
        (4, 2, 3)
    """

    kernel: Any
    path: MakePath
    betas: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", _check_betas("parallel tempering", self.betas))

    def init(self, model: Any, x: Float[Array, "*chains n"], key: Key[Array, ""]) -> LadderState:
        """All replicas start at x."""
        x = self.kernel.init(model, x, key).x
        return LadderState(jnp.repeat(x[None], len(self.betas), 0), jnp.zeros((), jnp.int32))

    def step(
        self, model: Any, state: LadderState, free: Bool[Array, "*#chains n"], key: Key[Array, ""]
    ) -> tuple[LadderState, Info]:
        """Move all replicas, then offer swaps; `swap_rates` are the chances of each neighbours'.

        They are (*chains, rungs - 1), of every pair of neighbours, also of those whose turn it is
        not: `respace` wants their means over the chains and over time.
        """
        path = self.path(model)
        betas = jnp.asarray(self.betas, state.x.dtype)
        init_key, move_key, swap_key = jax.random.split(key, 3)

        def move(beta: Array, x: Array, key: Key[Array, ""]) -> Array:
            tempered = path(beta)
            inside = self.kernel.init(tempered, x, init_key)
            return self.kernel.step(tempered, inside, free, key)[0].x

        keys = jax.random.split(move_key, len(self.betas))
        rungs = jax.vmap(move)(betas, state.rungs, keys)
        rungs, chance = _swap(path, betas, rungs, state.odd, swap_key)
        return LadderState(rungs, 1 - state.odd), {"swap_rates": jnp.moveaxis(chance, 0, -1)}


def _swap(
    path: Callable, betas: Float[Array, " k"], rungs: Array, odd: Array, key: Key[Array, ""]
) -> tuple[Float[Array, "k *chains n"], Float[Array, "pairs *chains"]]:
    """Swap every other pair of neighbours by Metropolis; also all pairs' chances."""
    energy = jax.vmap(lambda beta, x: path(beta).energy(x))
    here = energy(betas, rungs)
    up, down = energy(betas[:-1], rungs[1:]), energy(betas[1:], rungs[:-1])
    log_ratio = here[:-1] + here[1:] - up - down
    chance = jnp.exp(jnp.minimum(log_ratio, 0.0))
    pair = jnp.arange(len(betas) - 1).reshape(-1, *[1] * (log_ratio.ndim - 1))
    drawn = jax.random.uniform(key, log_ratio.shape, log_ratio.dtype) < chance
    swap = drawn & (pair % 2 == odd)
    no = jnp.zeros_like(swap[:1])
    with_next = jnp.concatenate([swap, no])[..., None]
    with_previous = jnp.concatenate([no, swap])[..., None]
    rungs = jnp.where(
        with_next,
        jnp.roll(rungs, -1, 0),
        jnp.where(with_previous, jnp.roll(rungs, 1, 0), rungs),
    )
    return rungs, chance


def _where(chosen: Bool[Array, "*chains"], new: Any, old: Any) -> Any:
    """One state or the other for every chain: leaves lead with the chains' axes."""

    def pick(a: Array, b: Array) -> Array:
        return jnp.where(chosen.reshape(chosen.shape + (1,) * (a.ndim - chosen.ndim)), a, b)

    return jax.tree.map(pick, new, old)
