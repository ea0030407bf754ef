"""Annealed importance sampling: the log partition function of any model at the end of a path."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Key
from numpy.typing import ArrayLike

from undirected.core import rectified
from undirected.core.errors import NotFinite, UndirectedError
from undirected.core.layout import CONTINUOUS, Block, Domain, Layout, check_discrete
from undirected.core.mesh import (
    agree,
    check_mesh,
    gather,
    place,
    place_chains,
    split_chains,
    told_of_loss,
    use_mesh,
)
from undirected.core.numerics import row
from undirected.core.potentials import Potentials, clamp
from undirected.core.protocols import Annealable, Kernel, Summable
from undirected.core.random import make_key
from undirected.core.units import draw, log_normaliser
from undirected.evaluation.estimate import check_binary, check_data, check_finite
from undirected.factors import Squares

BLOCK, ON_GPU = 0.5, 1000
"""Seconds of annealing after which the program looks up (a block takes up to twice as long), and
betas of a block on a GPU, which does not wait for the host within a number of steps it knows."""


@dataclass(frozen=True)
class AISResult:
    """An estimate of log Z in nats from independent chains.

    `interval` holds log Z with the confidence asked for; `log_weights` is each chain's own estimate
    of log Z; `ess` is the number of equally weighted chains that would be worth as much: with less
    than a handful take more betas; `samples` are the chains' last states (chains, n).
    """

    log_z: float
    stderr: float
    interval: tuple[float, float]
    log_weights: Float[np.ndarray, " chains"]
    ess: float
    samples: Float[Array, "chains n"]


@dataclass(frozen=True)
class Bracket:
    """log Z from both sides: `lower` is low and `upper` is high in expectation.

    The two agree where their intervals meet and span no more than `width` nats together. Where they
    do not meet the chains do not mix, where they span more too little is known: take more betas.
    """

    lower: AISResult
    upper: AISResult
    width: float = 1.0

    @property
    def agree(self) -> bool:
        """Whether the sides meet within `width` nats: log Z is known that well."""
        return self.meet and self.spread <= self.width

    @property
    def meet(self) -> bool:
        """Whether the two intervals have a point in common, however wide they are."""
        low, high = self.lower.interval, self.upper.interval
        return max(low[0], high[0]) <= min(low[1], high[1])

    @property
    def spread(self) -> float:
        """The length of `interval` in nats."""
        return self.interval[1] - self.interval[0]

    @property
    def log_z(self) -> float:
        """The middle of the two estimates."""
        return 0.5 * (self.lower.log_z + self.upper.log_z)

    @property
    def interval(self) -> tuple[float, float]:
        """From the lowest to the highest end of the two intervals."""
        low, high = self.lower.interval, self.upper.interval
        return min(low[0], high[0]), max(low[1], high[1])


def ais(
    path: Any,
    kernel: Kernel,
    key: Key[Array, ""] | None = None,
    *,
    seed: int | None = None,
    chains: int = 100,
    betas: int | ArrayLike = 1000,
    confidence: float = 0.99,
    mesh: Mesh | None = None,
) -> AISResult:
    """log Z of `path.target` by annealing exact samples of `path.base`; Neal (2001), eq. 11.

    log w = log Z_base + sum_k F_{k-1}(v_{k-1}) - F_k(v_{k-1}), v_k moved from v_{k-1} by the kernel
    at beta_k, and Z = mean w. Hidden units are summed out of the weights where the model has a free
    energy.

    Args:
        path: a `ModelPath` whose base has no couplings: `model.independent(data_means)`, or
            `model.independent()`, which is uniform.
        kernel: how the chains move.
        key: of all draws.
        seed: the same as a number; pass one of the two.
        chains: independent chains, at least 2.
        betas: how many, evenly spaced from 0 to 1, or the increasing values themselves.
        confidence: with which the interval holds log Z.
        mesh: devices over which the chains are split, such as `un.device_mesh()`.

    Returns:
        An `AISResult`: `log_z`, `stderr`, `interval`, and the chains' own weights and last states.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> path = un.ModelPath(model.independent(), model)
        >>> found = un.ais(path, un.Gibbs(), seed=0, betas=100)
        >>> found.interval[0] < float(un.Exact()(model).log_z) < found.interval[1]
        True
    """
    schedule = _schedule(betas)
    _check(path, confidence)
    if chains < 2:
        raise UndirectedError(f"ais: chains is {chains}; an interval needs at least 2, better 100")
    first, rest = jax.random.split(make_key("ais", key, seed))
    x, base_log_z = _start(path.base, chains, first)
    x, log_w = _anneal(path, kernel, x, schedule, rest, check_mesh("ais", mesh))
    return _result(log_w, base_log_z, 1, confidence, x)


def reverse_ais(
    path: Any,
    kernel: Kernel,
    samples: ArrayLike,
    key: Key[Array, ""],
    *,
    betas: int | ArrayLike = 1000,
    confidence: float = 0.99,
    mesh: Mesh | None = None,
) -> AISResult:
    """log Z of `path.target` by annealing samples of it back to the base: 1 / Z = mean 1 / w.

    An upper bound in expectation where `samples` (chains, n or n_visible) follow the target; Burda,
    Grosse & Salakhutdinov (2015). Chains that share an origin make the interval too narrow.
    """
    schedule = _schedule(betas)[::-1]
    _check(path, confidence)
    x = _samples(path.target, samples)
    _, base_log_z = _start(path.base, len(x), key)
    x, log_w = _anneal(path, kernel, x, schedule, key, check_mesh("reverse_ais", mesh))
    return _result(log_w, base_log_z, -1, confidence, x)


def bracket(
    path: Any,
    kernel: Kernel,
    key: Key[Array, ""] | None = None,
    *,
    seed: int | None = None,
    samples: ArrayLike | None = None,
    chains: int = 100,
    betas: int | ArrayLike = 1000,
    confidence: float = 0.99,
    width: float = 1.0,
    mesh: Mesh | None = None,
) -> Bracket:
    """log Z from both sides: `ais`, and `reverse_ais` back along the same path.

    Args:
        path: a `ModelPath` whose base has no couplings: `model.independent(data_means)`, or
            `model.independent()`, which is uniform.
        kernel: how the chains move.
        key: of all draws.
        seed: the same as a number; pass one of the two.
        samples: of the target, where the reverse run starts. Without them it starts from the last
            states of the forward run, drawn again by their weights: good where the forward run is,
            blind to a mode that it missed.
        chains: independent chains of each run.
        betas: how many, evenly spaced from 0 to 1, or the increasing values themselves.
        confidence: of the intervals.
        width: nats within which the two sides must lie to agree.
        mesh: devices over which the chains are split, such as `un.device_mesh()`.

    Returns:
        A `Bracket`: `lower` and `upper`, `log_z` between them, and `agree`, whether that is known
        within `width` nats.

    Example:
        >>> import undirected as un
        >>> model = un.Ising.from_spins([0.5, 0.5], [1.0, 0.0, 0.0], un.graph.chain(3))
        >>> path = un.ModelPath(model.independent(), model)
        >>> un.bracket(path, un.Gibbs(), seed=0, betas=100).agree
        True
    """
    forward, choice, backward = jax.random.split(make_key("bracket", key, seed), 3)
    shared = {"betas": betas, "confidence": confidence, "mesh": mesh}
    lower = ais(path, kernel, forward, chains=chains, **shared)
    if samples is None:
        weights = jnp.asarray(lower.log_weights - lower.log_z)
        samples = lower.samples[jax.random.categorical(choice, weights, shape=(chains,))]
    upper = reverse_ais(path, kernel, samples, backward, **shared)
    return Bracket(lower, upper, width)


def ais_rows(
    path: Any,
    kernel: Kernel,
    v: ArrayLike,
    key: Key[Array, ""],
    *,
    chains: int = 20,
    betas: int | ArrayLike = 1000,
) -> Float[np.ndarray, " rows"]:
    """log of the sum of exp(-E) over the hidden and the missing units of every row, by AIS.

    What is observed in a row is held; NaN is missing. Less log Z these are log-likelihoods of the
    observed part: of models whose hidden units cannot be summed out, such as deep ones
    (Salakhutdinov & Hinton 2009), and of rows with holes. Each is a little low in expectation, the
    less the more chains a row has and the more betas. Hidden units must be discrete; the base of
    the path has no couplings.
    """
    schedule = _schedule(betas)
    _check(path, 0.5)
    layout = path.target.layout
    check_discrete("ais_rows", *(block for block in layout.blocks if not block.visible))
    rows = jnp.asarray(check_data("ais_rows", layout, v, holes=True))
    seen = ~jnp.isnan(rows)
    first, rest = jax.random.split(key)
    x, _ = _start(path.base, len(rows) * chains, first)
    free = jnp.pad(~seen, [(0, 0), (0, layout.n - layout.n_visible)], constant_values=True)
    values = jnp.pad(jnp.where(seen, rows, 0.0), [(0, 0), (0, layout.n - layout.n_visible)])
    free, values = (jnp.repeat(a, chains, 0) for a in (free, values))
    x = jnp.where(free, x, values.astype(x.dtype))
    _, log_w = _anneal(path, _Held(kernel, free), x, schedule, rest)
    ratios = np.asarray(log_w, np.float64).reshape(len(rows), chains)
    check_finite("ais_rows: log weights", ratios)
    top = ratios.max(1, keepdims=True)
    log_means = (top + np.log(np.exp(ratios - top).mean(1, keepdims=True)))[:, 0]
    return log_means + np.asarray(_base_sums(path.base, rows, seen), np.float64)


@eqx.filter_jit
def _base_sums(base: Any, rows: Array, seen: Array) -> Float[Array, " rows"]:
    """The same sums of a model without couplings: every unit adds its own."""
    p = clamp(base.lower(), seen, rows)
    none = jnp.zeros(p.layout.n, p.unary.dtype)
    squares = sum((f.precision(p.layout) for f in p.factors if isinstance(f, Squares)), none)
    return p.offset + log_normaliser(p.layout, p.unary, 1.0, p.evidence, squares, p.held)


class _Held(eqx.Module):
    """A kernel that leaves observed units as they are."""

    kernel: Any
    free: Bool[Array, "chains n"]

    def init(self, model: Any, x: Array, key: Key[Array, ""]) -> Any:
        return self.kernel.init(model, x, key)

    def step(self, model: Any, state: Any, free: Array, key: Key[Array, ""]) -> Any:
        return self.kernel.step(model, state, row(free, self.free) & self.free, key)


def brackets(
    paths: Sequence[Any],
    kernel: Kernel,
    key: Key[Array, ""],
    *,
    chains: int = 100,
    betas: int | ArrayLike = 1000,
    confidence: float = 0.99,
) -> list[Bracket]:
    """`bracket` of several paths between models of one shape, whose chains move side by side."""
    schedule = _schedule(betas)
    for path in paths:
        _check(path, confidence)
    arrays = [eqx.filter(path, eqx.is_inexact_array) for path in paths]
    rest = eqx.filter(paths[0], eqx.is_inexact_array, inverse=True)
    stacked = eqx.combine(jax.tree.map(lambda *a: jnp.stack(a), *arrays), rest)
    start_key, choice, forward, backward = (
        jax.random.split(part, len(paths)) for part in jax.random.split(key, 4)
    )
    begun = [_start(path.base, chains, k) for path, k in zip(paths, start_key, strict=True)]
    x, log_w = _anneal(stacked, kernel, jnp.stack([x for x, _ in begun]), schedule, forward)
    lower = [_result(w, z, 1, confidence, s) for w, (_, z), s in zip(log_w, begun, x, strict=True)]
    picked = [
        one.samples[jax.random.categorical(k, jnp.asarray(one.log_weights), shape=(chains,))]
        for one, k in zip(lower, choice, strict=True)
    ]
    x, log_w = _anneal(stacked, kernel, jnp.stack(picked), schedule[::-1], backward)
    upper = [_result(w, z, -1, confidence, s) for w, (_, z), s in zip(log_w, begun, x, strict=True)]
    return [Bracket(*both) for both in zip(lower, upper, strict=True)]


@eqx.filter_jit
def _start(base: Any, chains: int, key: Key[Array, ""]) -> tuple[Array, Array]:
    """Exact samples of a model without couplings, or of a tractable one, and its log Z."""
    if isinstance(base, Annealable):
        return base.exact_samples(chains, key)
    p = base.lower()
    if not any(block.domain in CONTINUOUS for block in p.layout.blocks):
        fields = jnp.broadcast_to(p.unary, (chains, p.layout.n))
        return draw(p.layout, fields, key), log_normaliser(p.layout, p.unary) + p.offset
    parts, log_z = [], p.offset
    for i in range(len(p.layout.blocks)):
        key = jax.random.fold_in(key, i)
        part, own = _start_block(p, i, chains, key)
        parts.append(part)
        log_z = log_z + own
    return jnp.concatenate(parts, -1), log_z


def _start_block(
    p: Potentials, index: int, chains: int, key: Key[Array, ""]
) -> tuple[Float[Array, "chains size"], Float[Array, ""]]:
    """Samples and log Z of the independent units of one block: discrete, normal, rectified."""
    block = p.layout.blocks[index]
    field = p.unary[block.slice]
    fields = jnp.broadcast_to(field, (chains, block.size))
    if block.domain not in CONTINUOUS:
        return draw(block, fields, key), log_normaliser(Layout((_alone(block),)), field)
    (square,) = (f.weight for f in p.factors if isinstance(f, Squares) and f.block == index)
    precision = -2 * square
    if block.domain is Domain.NONNEGATIVE:
        log_z = rectified.log_normaliser(field, precision).sum()
        return rectified.draw(fields, jnp.broadcast_to(precision, fields.shape), key), log_z
    noise = jax.random.normal(key, fields.shape, field.dtype)
    log_z = 0.5 * (field**2 / precision + jnp.log(2 * jnp.pi / precision)).sum()
    return (field / precision)[None] + noise / jnp.sqrt(precision)[None], log_z


def _alone(block: Block) -> Block:
    """The same units as the only block of a layout."""
    return replace(block, start=0, stop=block.size)


def _anneal(
    path: Any,
    kernel: Kernel,
    x: Float[Array, "*models chains n"],
    betas: np.ndarray,
    key: Key[Array, "*models"],
    mesh: Mesh | None = None,
) -> tuple[Float[Array, "*models chains n"], Float[Array, "*models chains"]]:
    """Last states and log weights of chains led from betas[0] to betas[-1].

    With an axis over models in front, so have the parameters of the path.

    Blocks of betas double until one takes `BLOCK` seconds; Ctrl-C is answered between two blocks.
    Processes that share a mesh go by the clock of the first.
    """
    steps = jnp.asarray(betas, x.dtype)
    path, kernel, steps, key = place(mesh, (path, kernel, steps, key))
    chains = *place_chains(mesh, (x, jnp.zeros(x.shape[:-1], x.dtype))), key
    known = _known()
    start, size = 1, ON_GPU if known else 1
    while start < len(steps):
        begun, count = time.monotonic(), min(size, len(steps) - start)
        number = count if known else np.asarray(count)
        with use_mesh(mesh), told_of_loss(mesh):
            chains = _block(path, kernel, chains, steps, np.asarray(start), number)
            jax.block_until_ready(chains)
        if not known and agree(mesh, time.monotonic() - begun < BLOCK):
            size *= 2
        start += count
    return gather(mesh, chains[:2])


def _known() -> bool:
    """Whether blocks are compiled for their number of betas."""
    return jax.default_backend() == "gpu"


@eqx.filter_jit
def _block(
    path: Any, kernel: Kernel, chains: tuple, steps: Array, start: Any, count: Any
) -> tuple[Float[Array, "chains n"], Float[Array, " chains"], Key[Array, ""]]:
    """States, log weights and key of chains led from steps[start - 1] over `count` steps."""
    if chains[0].ndim == 2:
        return _lead(path, kernel, chains, steps, start, count)
    axes = jax.tree.map(lambda a: 0 if eqx.is_inexact_array(a) else None, path)
    each = eqx.filter_vmap(
        lambda path, chains: _lead(path, kernel, chains, steps, start, count), in_axes=(axes, 0)
    )
    return each(path, chains)


def _lead(
    path: Any, kernel: Kernel, chains: tuple, steps: Array, start: Array, count: int | Array
) -> tuple[Float[Array, "chains n"], Float[Array, " chains"], Key[Array, ""]]:
    """The same for the chains of one model."""
    free = jnp.ones(chains[0].shape[-1], bool)

    def one(k: Array, chains: tuple) -> tuple:
        x, log_w, key = chains
        key, refresh, init, move = jax.random.split(key, 4)
        before, model = path(steps[start + k - 1]), path(steps[start + k])
        log_w = log_w + _energy(before, x) - _energy(model, x)
        x = _refresh(model, x, refresh)
        state, _ = kernel.step(model, kernel.init(model, x, init), free, move)
        return *split_chains((state.x, log_w)), key

    return jax.lax.fori_loop(0, count, one, chains)


def _hidden(model: Any) -> list[int]:
    """The hidden blocks that can be summed out and drawn given the visibles; none if not all."""
    hidden = [i for i, block in enumerate(model.layout.blocks) if not block.visible]
    return hidden if isinstance(model, Summable) and hasattr(model, "conditional") else []


def _energy(model: Any, x: Float[Array, "chains n"]) -> Float[Array, " chains"]:
    if not _hidden(model):
        return model.energy(x)
    return model.free_energy(x[..., : model.layout.n_visible])


def _refresh(model: Any, x: Float[Array, "chains n"], key: Key[Array, ""]) -> Array:
    """Draw h from p(h | v): free energies weigh such pairs, not hiddens of an earlier beta."""
    for index in _hidden(model):
        block = model.layout.blocks[index]
        own = key if index == _hidden(model)[0] else jax.random.fold_in(key, index)
        drawn = draw(block, model.conditional(index, x), own)
        x = jnp.concatenate([x[..., : block.start], drawn, x[..., block.stop :]], -1)
    return x


def _result(
    log_w: Array, base_log_z: Array, sign: int, confidence: float, samples: Array
) -> AISResult:
    """The estimate from the chains' log weights of Z / Z_base (sign 1) or Z_base / Z (sign -1)."""
    signed = np.asarray(log_w, np.float64) + sign * float(base_log_z)
    if not np.isfinite(signed).all():
        bad = (~np.isfinite(signed)).sum()
        raise NotFinite(f"ais: the weights of {bad} of {len(signed)} chains are not finite")
    log_mean, stderr, ess, low, high = _log_mean(signed, confidence)
    interval = (low, high) if sign > 0 else (-high, -low)
    return AISResult(sign * log_mean, stderr, interval, sign * signed, ess, samples)


def _log_mean(a: np.ndarray, confidence: float) -> tuple[float, float, float, float, float]:
    """log mean exp(a), its standard error, the effective sample size, and a confidence interval.

    A t interval with ess - 1 degrees of freedom opens up when few chains carry the mean. Its lower
    end stops where Markov's inequality, P(mean w > Z / p) < p, already holds. Its upper end goes at
    least as far as for a log-normal with the median of `a` and the spread of `a` above it: a mean
    of skewed weights is mostly too low.
    """
    from scipy import stats  # takes a second to import, and queries do without

    n, top, miss = len(a), a.max(), (1 - confidence) / 2
    w = np.exp(a - top)
    log_mean = float(top + np.log(w.mean()))
    ess = float(w.sum() ** 2 / (w**2).sum())
    stderr = float(w.std(ddof=1) / w.mean() / np.sqrt(n))
    half = stderr * stats.t.isf(miss, max(ess - 1, 0.5))
    middle = np.median(a)
    spread = 2 * (np.maximum(a - middle, 0) ** 2).mean()
    wide = np.sqrt((np.pi / 2 * spread + spread**2) / n)
    tail = middle + spread / 2 + wide * stats.t.isf(miss, n - 1)
    low, high = log_mean - min(half, -np.log(miss)), max(log_mean + half, tail)
    return log_mean, stderr, ess, float(low), float(high)


def _schedule(betas: int | ArrayLike) -> Float[np.ndarray, " betas"]:
    values = np.asarray(betas, np.float64)
    if values.ndim == 0:
        values = np.linspace(0, 1, max(int(values), 0))
    good = values.ndim == 1 and len(values) >= 2 and values[0] == 0 and values[-1] == 1
    if not (good and (np.diff(values) > 0).all()):
        raise UndirectedError(
            f"ais: betas are {betas!r:.60}; pass a number of at least 2, or values that increase "
            "from 0 to 1"
        )
    return values


def _check(path: Any, confidence: float) -> None:
    """Refuse what cannot work before anything is computed."""
    if not 0 < confidence < 1:
        raise UndirectedError(f"ais: confidence is {confidence}; wanted a value between 0 and 1")
    if not (hasattr(path, "base") and hasattr(path, "target")):
        raise UndirectedError(
            f"ais: path is a {type(path).__name__}; pass "
            "ModelPath(model.independent(data_means), model)"
        )
    if path.base.layout != path.target.layout:
        raise UndirectedError("ais: base and target differ in layout; use target.independent()")
    couplings = [f.weight for f in path.base.lower().factors if not isinstance(f, Squares)]
    if any(weight is None for weight in couplings):
        raise UndirectedError(
            "ais: the model has hard constraints (OR, AND or pool), which no path weakens; use "
            "Elimination where the graph is narrow, or the Bethe log Z of SumProduct"
        )
    known = isinstance(path.base, Annealable) and eqx.tree_equal(
        path.base, path.base.tractable(), rtol=1e-4, atol=1e-4
    )
    if not known and any(np.any(np.asarray(weight) != 0) for weight in couplings):
        raise UndirectedError("ais: the base has couplings; use target.independent(data_means)")
    for leaf in jax.tree.leaves(eqx.filter(path, eqx.is_inexact_array)):
        if not np.isfinite(leaf).all():
            raise NotFinite("ais: a parameter of the path is NaN or infinite")


def _samples(target: Any, samples: ArrayLike) -> Float[Array, "chains n"]:
    x, layout = np.asarray(samples, float), target.layout
    visible_only = bool(_hidden(target)) and x.shape[-1:] == (layout.n_visible,)
    if x.ndim != 2 or len(x) < 2 or not (visible_only or x.shape[1] == layout.n):
        raise UndirectedError(
            f"reverse_ais: samples have shape {x.shape}; pass (chains, {layout.n}), 2 or more"
        )
    check_finite("reverse_ais: samples", x)
    check_data("reverse_ais: samples", layout, x[:, : layout.n_visible])
    check_binary("reverse_ais: samples", x[:, layout.n_visible :])
    return jnp.asarray(np.pad(x, [(0, 0), (0, layout.n - x.shape[1])]))
