"""Samplers that leave a mode by way of flatter models: tempered transitions, parallel tempering."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from undirected.core.errors import UndirectedError, check_counts, kind_told
from undirected.core.numerics import full_precision
from undirected.core.protocols import Info
from undirected.core.units import log_normaliser
from undirected.sampling.base import Evaluations

MakePath = Callable[[Any], Callable[[Array], Any]]


def ladder(lowest: float, count: int) -> tuple[float, ...]:
    """`count` inverse temperatures, evenly spaced from 1 down to `lowest`, both ends included."""
    check_counts("ladder", count=count)
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
    values = np.asarray(betas)
    real = values.ndim == 1 and len(values) > 1 and np.issubdtype(values.dtype, np.number)
    if not real or values[0] != 1 or not (np.diff(values) < 0).all() or values[-1] == -np.inf:
        raise UndirectedError(
            f"{name}: betas are {betas!r:.80}; pass at least two that fall from 1, as `ladder` does"
        )
    return tuple(values.astype(float).tolist())


def _check_path(name: str, path: Any) -> None:
    """Refuse a path of one model, where a function that makes paths of models is wanted."""
    if not callable(path) or hasattr(path, "target"):
        raise UndirectedError(
            f"{name}: path is {kind_told(path)}; pass what makes the path of a model, such as "
            "un.tempered, or TrainingPath.along where a TrainingPath is the model"
        )


def _path_of(name: str, path: MakePath, model: Any) -> Callable[[Array], Any]:
    """The path of a model; it must give models at inverse temperatures."""
    found = path(model)
    if not callable(found):
        raise UndirectedError(
            f"{name}: path(model) is {kind_told(found)}, which gives no model at a beta; pass "
            "un.tempered as path, or TrainingPath.along and a TrainingPath as the model"
        )
    return found


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
        _check_path("tempered transitions", self.path)
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
        _path_of("tempered transitions", self.path, model)
        return TemperedState(self.kernel.init(model, x, key))

    def evaluations(self, model: Any) -> Evaluations:
        """Those of the kernel at every level, down and back, and two energies at each end of it."""
        levels = 2 * (len(self.betas) - 1)
        inside = self.kernel.evaluations(self.path(model)(jnp.ones(())))
        return Evaluations(levels * (inside.energies + 2), levels * inside.gradients)

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
    """Replicas at every beta, (rungs, *chains, n), hottest last, and whose turn it is to swap.

    `last_end` says of every replica which end of the ladder it was at last: 1 the cold one, 2 the
    hot one, 0 neither yet.
    """

    rungs: Float[Array, "k *chains n"]
    odd: Int[Array, ""]
    last_end: Int[Array, "k *chains"]

    @property
    def x(self) -> Float[Array, "*chains n"]:
        """The replicas at beta 1."""
        return self.rungs[0]


def _check_ladder(state: Any, betas: int) -> None:
    """Refuse what is no state of replicas at as many betas."""
    rungs = len(state.rungs) if isinstance(state, LadderState) else 0
    if rungs != betas:
        told = f"that of a ladder of {rungs} betas" if rungs else kind_told(state)
        raise UndirectedError(
            f"parallel tempering: the state is {told}; pass that of a ladder of {betas} betas: the "
            "`state` of what run_chains gives with this kernel, or the second of what `adapted` "
            "gives"
        )


@dataclass(frozen=True)
class ParallelTempering:
    """Replicas at falling betas, each moved by a kernel; neighbours then offer to swap states.

    Pairs (0, 1), (2, 3), ... and (1, 2), (3, 4), ... take turns, which lets replicas travel instead
    of diffuse (non-reversible parallel tempering, Syed et al. 2022). The product of the tempered
    models is invariant, so that the replica at beta 1 follows the model. `adapted` spaces the
    ladder, `log_partitions` reads log Z off it; with `Houdayer(kernel)` replicas of different
    chains exchange clusters too.

    Args:
        kernel: what moves a replica.
        path: `path(model)(beta)` is the model at inverse temperature beta, as with `tempered`; with
            `TrainingPath.along` replicas are at models of a training, and its path is the model.
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
        _check_path("parallel tempering", self.path)

    def init(self, model: Any, x: Float[Array, "*chains n"], key: Key[Array, ""]) -> LadderState:
        """All replicas start at x."""
        path = _path_of("parallel tempering", self.path, model)
        x = self.kernel.init(path(jnp.ones(())), x, key).x
        rungs = jnp.repeat(x[None], len(self.betas), 0)
        return LadderState(rungs, jnp.zeros((), jnp.int32), jnp.zeros(rungs.shape[:-1], jnp.int32))

    def step(
        self, model: Any, state: LadderState, free: Bool[Array, "*#chains n"], key: Key[Array, ""]
    ) -> tuple[LadderState, Info]:
        """Move all replicas, then offer swaps.

        `swap_rates` are (*chains, rungs - 1), the chances of all neighbours, also of those whose
        turn it is not; `round_trips` counts the replicas of each chain that came back to beta 1
        in this step after a visit to the hottest rung.
        """
        betas = jnp.asarray(self.betas, state.x.dtype)
        state, swaps = self._climb(model, betas, state, free, key)
        return state, {
            "swap_rates": jnp.moveaxis(swaps.chance, 0, -1),
            "round_trips": swaps.trips.astype(state.x.dtype),
        }

    def evaluations(self, model: Any) -> Evaluations:
        """Those of the kernel at every rung; energies of replicas there and at both neighbours."""
        rungs = len(self.betas)
        inside = self.kernel.evaluations(self.path(model)(jnp.ones(())))
        return Evaluations(rungs * inside.energies + 3 * rungs - 2, rungs * inside.gradients)

    def adapted(
        self,
        model: Any,
        x: Float[Array, "*chains n"],
        key: Key[Array, ""],
        *,
        rounds: int = 6,
        steps: int = 50,
        free: Bool[Array, "*#chains n"] | None = None,
    ) -> tuple["ParallelTempering", LadderState]:
        """The same ladder, its rungs placed where neighbours swap equally often, and its chains.

        For the time before the draws: `steps` steps on the ladder as it is, twice as many after
        each of `rounds` respacings. The ends stay.
        """
        check_counts("parallel tempering", rounds=rounds, steps=steps)
        init_key, key = jax.random.split(key)
        state = self.init(model, jnp.asarray(x), init_key)
        free = jnp.ones(model.layout.n, bool) if free is None else jnp.asarray(free, bool)
        betas = self.betas
        for k in range(rounds):
            count, now = jnp.asarray(steps * 2**k), jnp.asarray(betas, state.x.dtype)
            state, rates = _measure(
                self, model, now, state, free, jax.random.fold_in(key, k), count
            )
            betas = respace(betas, np.asarray(rates).tolist())
        return ParallelTempering(self.kernel, self.path, betas), state

    def log_partition(
        self, model: Any, state: LadderState, key: Key[Array, ""], *, samples: int
    ) -> tuple[float, float]:
        """log Z of the model at beta 1, and its standard error; see `log_partitions`."""
        values, errors = self.log_partitions(model, state, key, samples=samples)
        return float(values[0]), float(errors[0])

    def log_partitions(
        self, model: Any, state: LadderState, key: Key[Array, ""], *, samples: int
    ) -> tuple[Float[np.ndarray, " rungs"], Float[np.ndarray, " rungs"]]:
        """log Z at every beta, and standard errors, by Bennett's ratio of neighbours.

        From `samples` more steps. At the last beta, 0, there may be no couplings: log Z is known
        there. Errors are those over chains, of which 4 or more are needed.
        """
        check_counts("parallel tempering", samples=samples)
        _check_ladder(state, len(self.betas))
        chains = state.x.reshape(-1, state.x.shape[-1]).shape[0]
        p = self.path(model)(jnp.zeros(())).lower()
        hard = any(f.forbids for f in p.factors)
        coupled = hard or any(np.any(np.asarray(f.weight) != 0) for f in p.factors)
        if self.betas[-1] != 0 or coupled or chains < 4:
            what = f", where there are {'hard constraints' if hard else 'couplings'}" * coupled
            raise UndirectedError(
                f"parallel tempering: log Z from {chains} chains and a ladder down to "
                f"{self.betas[-1]}{what}; pass 4 chains or more, betas down to 0, and a path that "
                "begins without couplings" + ", such as that to model.tabulated()" * hard
            )
        free = jnp.ones(model.layout.n, bool)
        with full_precision():
            there, back = _record(self, model, state, free, key, samples)
        there, back = (np.asarray(a, np.float64).reshape(*a.shape[:2], -1) for a in (there, back))
        each = np.zeros((len(self.betas), chains))  # log Z over that at beta 0
        for k in reversed(range(there.shape[1])):
            each[k] = each[k + 1] + [bennett(there[:, k, c], back[:, k, c]) for c in range(chains)]
        start = float(log_normaliser(p.layout, p.unary) + p.offset)
        return start + each.mean(1), each.std(1, ddof=1) / np.sqrt(chains)

    def _climb(
        self, model: Any, betas: Array, state: LadderState, free: Array, key: Key[Array, ""]
    ) -> tuple[LadderState, "Swaps"]:
        """One step on a ladder whose betas are data."""
        path = self.path(model)
        init_key, move_key, swap_key = jax.random.split(key, 3)

        def move(beta: Array, x: Array, key: Key[Array, ""]) -> Array:
            tempered = path(beta)
            inside = self.kernel.init(tempered, x, init_key)
            return self.kernel.step(tempered, inside, free, key)[0].x

        keys = jax.random.split(move_key, len(self.betas))
        rungs = jax.vmap(move)(betas, state.rungs, keys)
        swaps = offer_swaps(path, betas, rungs, state.odd, swap_key)
        ends = _swapped(state.last_end, swaps.taken)
        trips = (ends[0] == 2).astype(jnp.int32)
        ends = ends.at[0].set(1).at[-1].set(2)
        rungs = _swapped(rungs, swaps.taken[..., None])
        return LadderState(rungs, 1 - state.odd, ends), Swaps(
            swaps.chance, swaps.taken, swaps.there, swaps.back, trips
        )


class Swaps(eqx.Module):
    """Offers of neighbours: their chances, which were taken, and the log ratios they are made of.

    `there` is E_hot(x) - E_cold(x) of the hotter replica of a pair, `back` that of the colder one:
    the log weights of a bridge between the two models.
    """

    chance: Float[Array, "pairs *chains"]
    taken: Bool[Array, "pairs *chains"]
    there: Float[Array, "pairs *chains"]
    back: Float[Array, "pairs *chains"]
    trips: Int[Array, "*chains"]


@eqx.filter_jit
def _measure(
    pt: ParallelTempering,
    model: Any,
    betas: Array,
    state: LadderState,
    free: Array,
    key: Key[Array, ""],
    count: Array,
) -> tuple[LadderState, Float[Array, " pairs"]]:
    """The chains after so many steps, and the mean chances of swaps."""

    def once(i: Array, carry: tuple) -> tuple:
        state, total = carry
        state, swaps = pt._climb(model, betas, state, free, jax.random.fold_in(key, i))
        return state, total + swaps.chance.reshape(len(total), -1).mean(1)

    zero = jnp.zeros(len(betas) - 1, betas.dtype)
    state, total = jax.lax.fori_loop(0, count, once, (state, zero))
    return state, total / count


@eqx.filter_jit
def _record(
    pt: ParallelTempering,
    model: Any,
    state: LadderState,
    free: Array,
    key: Key[Array, ""],
    samples: int,
) -> tuple[Float[Array, "samples pairs *chains"], Float[Array, "samples pairs *chains"]]:
    """The log weights of all bridges at every step."""
    betas = jnp.asarray(pt.betas, state.x.dtype)

    def once(state: LadderState, key: Key[Array, ""]) -> tuple[LadderState, tuple]:
        state, swaps = pt._climb(model, betas, state, free, key)
        return state, (swaps.there, swaps.back)

    return jax.lax.scan(once, state, jax.random.split(key, samples))[1]


def bennett(there: np.ndarray, back: np.ndarray) -> float:
    """log Z_1 / Z_0 from log f_1 / f_0 at draws of 0 (`there`) and as many of 1 (`back`).

    Bennett (1976): the root d of mean sigmoid(there - d) = mean sigmoid(d - back).
    """
    from scipy.optimize import brentq
    from scipy.special import expit

    def gap(d: float) -> float:
        return float(expit(there - d).mean() - expit(d - back).mean())

    low, high = min(there.min(), back.min()) - 1.0, max(there.max(), back.max()) + 1.0
    return float(brentq(gap, low, high))  # pyright: ignore[reportArgumentType]


def offer_swaps(
    path: Callable, betas: Float[Array, " k"], rungs: Array, odd: Array, key: Key[Array, ""]
) -> Swaps:
    """Metropolis on every other pair of neighbours; also all pairs' chances."""
    energy = jax.vmap(lambda beta, x: path(beta).energy(x))
    here = energy(betas, rungs)
    up, down = energy(betas[:-1], rungs[1:]), energy(betas[1:], rungs[:-1])
    there, back = here[1:] - up, down - here[:-1]
    chance = jnp.exp(jnp.minimum(there - back, 0.0))
    pair = jnp.arange(len(betas) - 1).reshape(-1, *[1] * (chance.ndim - 1))
    drawn = jax.random.uniform(key, chance.shape, chance.dtype) < chance
    none = jnp.zeros(chance.shape[1:], jnp.int32)
    return Swaps(chance, drawn & (pair % 2 == odd), there, back, none)


def _swapped(rungs: Array, taken: Bool[Array, "pairs ..."]) -> Array:
    """The rungs, neighbours exchanged where a swap was taken."""
    no = jnp.zeros_like(taken[:1])
    with_next, with_previous = jnp.concatenate([taken, no]), jnp.concatenate([no, taken])
    return jnp.where(
        with_next,
        jnp.roll(rungs, -1, 0),
        jnp.where(with_previous, jnp.roll(rungs, 1, 0), rungs),
    )


def _where(chosen: Bool[Array, "*chains"], new: Any, old: Any) -> Any:
    """One state or the other for every chain: leaves lead with the chains' axes."""

    def pick(a: Array, b: Array) -> Array:
        return jnp.where(chosen.reshape(chosen.shape + (1,) * (a.ndim - chosen.ndim)), a, b)

    return jax.tree.map(pick, new, old)
