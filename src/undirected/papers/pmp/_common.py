"""What the experiments share: samplers by name, learning from moments, draws with their time."""

import time
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key, Shaped

from undirected.core.potentials import Beliefs, inner, mean_statistics
from undirected.core.protocols import Info, Kernel
from undirected.core.random import logistic
from undirected.core.units import random_units
from undirected.data import border_ownership, mnist
from undirected.data.ownership import CONTOUR, SIDE
from undirected.experiments.fitting import fit
from undirected.inference import MaxProduct
from undirected.learning import Batches, Ensemble, member, stack
from undirected.learning.chain_phases import detach
from undirected.models import Ising
from undirected.ops.sequential import scan_sites
from undirected.sampling import BlockGibbs, Gibbs, GibbsWithGradients, PerturbAndMap


def contours(rows: int, pool: int) -> Float[np.ndarray, "rows n"]:
    """Contour images of the training zeros; `pool` > 1 shrinks them by a maximum over squares."""
    labels = border_ownership().train.y
    digits = mnist().train.y
    assert labels is not None
    assert digits is not None
    found = (labels[np.asarray(digits) == 0][:rows] == CONTOUR).reshape(-1, SIDE, SIDE)
    side = SIDE // pool
    small = found.reshape(-1, side, pool, side, pool).max((2, 4))
    return small.reshape(-1, side * side).astype(np.float32)


def binary(x: Int[np.ndarray, "rows n"]) -> Float[np.ndarray, "rows n"]:
    """Grey values 0..255 as 0 or 1: the authors divide by 255 and ask for more than 0.5."""
    return (x / 255 > 0.5).astype(np.float32)


def perturb(sweeps: int, persistent: bool = False) -> PerturbAndMap:
    """The paper's sampler: parallel max-product, half of the old message kept (Algorithm 1)."""
    infer = MaxProduct(sweeps, None, 0.5, parallel=True)
    return PerturbAndMap(infer, persistent=persistent)


def kernel(method: str, sweeps: int, variables: int) -> Kernel:
    """A sampler by name, for that many full sweeps per step; "reset" starts afresh every step."""
    name = method.removesuffix("-reset")
    inside: Kernel
    match name:
        case "PMP":
            return perturb(sweeps)
        case "Gibbs":
            inside = Gibbs(sweeps)
        case "GWG":
            inside = GibbsWithGradients(sweeps * variables)
        case "block Gibbs":
            inside = BlockGibbs(sweeps)
        case _:
            raise KeyError(f"no sampler is called {method!r}")
    return Fresh(inside) if method.endswith("-reset") else inside


@dataclass(frozen=True)
class Fresh:
    """A kernel whose every step starts from random units."""

    kernel: Kernel

    def init(self, model: Any, x: Float[Array, "*chains n"], key: Key[Array, ""]) -> Any:
        """Only the shape of x matters."""
        return self.kernel.init(model, x, key)

    def step(
        self, model: Any, state: Any, free: Bool[Array, "*#chains n"], key: Key[Array, ""]
    ) -> tuple[Any, Info]:
        """One step of the kernel from Bernoulli(1/2) starts; units that are not free stay."""
        start_key, key = jax.random.split(key)
        start = random_units(model.layout, start_key, state.x.shape[:-1]).astype(state.x.dtype)
        begun = self.kernel.init(model, jnp.where(free, start, state.x), key)
        return self.kernel.step(model, begun, free, key)


@dataclass(frozen=True)
class MatchMoments:
    """<statistics> of chains minus those of the data, which are given once as mean beliefs.

    The batch is the data's beliefs with a leading axis of one. `l1` punishes the couplings.
    """

    kernel: Kernel
    chains: int
    l1: float = 0.0
    value_name: ClassVar[str] = "surrogate"

    def init(self, model: Any, batch: Beliefs, key: Key[Array, ""]) -> Any:
        """Chains at random units."""
        start_key, key = jax.random.split(key)
        x = random_units(model.layout, start_key, (self.chains,))
        return self.kernel.init(model, x.astype(batch.unary.dtype), key)

    def __call__(
        self, model: Any, batch: Beliefs, carry: Any, key: Key[Array, ""]
    ) -> tuple[Float[Array, ""], tuple[Any, Info]]:
        """The surrogate and the moved chains."""
        constant = detach(model)
        state, info = self.kernel.step(constant, carry, jnp.ones(model.layout.n, bool), key)
        natural = model.lower()
        ours = mean_statistics(constant.lower(), state.x)
        data = jax.tree.map(lambda a: a[0], batch)
        loss = inner(natural, ours) - inner(natural, data)
        if self.l1:
            loss = loss + self.l1 * jnp.abs(model.couplings).sum() / 2
        return loss, (state, {k: jnp.mean(v) for k, v in info.items()})


def learn(
    starts: list[Any],
    data: list[Beliefs],
    objective: MatchMoments,
    optimiser: optax.GradientTransformation,
    steps: int,
    key: Key[Array, ""],
) -> tuple[list[Any], float]:
    """Models learned side by side, and the seconds each of them took.

    The first quarter of the steps, which compiles, is taken to be as long as the others.
    """
    batches = Batches(
        jax.tree.map(lambda *a: jnp.stack(a)[:, None], *data), size=len(data), shuffle=False
    )
    every, times = -(-steps // 4), dict[int, float]()
    found = fit(
        stack(starts),
        Ensemble(objective, own_data=True),
        optimiser,
        batches,
        key,
        steps=steps,
        log_every=every,
        on_event=lambda now: times.setdefault(now.step, time.perf_counter()),
    )
    begun = every if every < steps else 0
    rate = (times[steps] - times[begun]) / (steps - begun)
    return [member(found.model, i) for i in range(len(starts))], rate * steps / len(starts)


def learn_pairs(
    sampler: Kernel, data: Float[np.ndarray, "rows n"], config: dict[str, Any], seed: int
) -> tuple[list[Ising], float]:
    """Dense Ising models of one data set, as many as `seeds`; the seconds each of them took."""
    n, seeds = data.shape[1], config["seeds"]
    start = Ising(jnp.zeros((n, n)), jnp.zeros(n))
    return learn(
        [start] * seeds,
        [moments(start, jnp.asarray(data))] * seeds,
        MatchMoments(sampler, config["samples"]),
        optax.adam(config["rate"]),
        config["steps"],
        jax.random.key(seed),
    )


def draw(
    sampler: Kernel,
    model: Any,
    count: int,
    key: Key[Array, ""],
    chunk: int = 200,
    start: Float[np.ndarray, "count n"] | None = None,
) -> tuple[Float[np.ndarray, "count n"], float]:
    """Samples by one step of the kernel from `start` or random units, and the seconds of each.

    The first chunk, which compiles, is left out of the time unless it is the only one.
    """
    if start is None:
        start = np.asarray(random_units(model.layout, jax.random.fold_in(key, 2**31 - 1), (count,)))
    padded = np.concatenate([start, start[: -count % chunk]])
    parts, begun = [], time.perf_counter()
    for i in range(0, len(padded), chunk):
        x = jnp.asarray(padded[i : i + chunk])
        part = _move(sampler, model, x, jax.random.fold_in(key, i))
        parts.append(np.asarray(part))
        if i == 0 and len(padded) > chunk:
            begun = time.perf_counter()
    spent = (time.perf_counter() - begun) / max(chunk, len(padded) - chunk)
    return np.concatenate(parts)[:count], spent


@eqx.filter_jit
def _move(
    sampler: Kernel, model: Any, x: Float[Array, "chunk n"], key: Key[Array, ""]
) -> Float[Array, "chunk n"]:
    init_key, key = jax.random.split(key)
    state = sampler.init(model, x, init_key)
    return sampler.step(model, state, jnp.ones(model.layout.n, bool), key)[0].x


@eqx.filter_jit
def moments(model: Any, data: Shaped[Array, "rows n"]) -> Beliefs:
    """The mean statistics of fully observed data."""
    return mean_statistics(model.lower(), jnp.asarray(data, float))


class SiteState(eqx.Module):
    """Chains, and the site that all of them visit next."""

    x: Float[Array, "chains n"]
    site: Int[Array, ""]


@dataclass(frozen=True)
class SiteGibbs:
    """Single-site Gibbs on a dense Ising model: sites in order, going on where it stopped."""

    updates: int

    def init(self, model: Any, x: Float[Array, "chains n"], key: Key[Array, ""]) -> SiteState:
        """Chains at x; the first site is next."""
        return SiteState(x, jnp.zeros((), jnp.int32))

    def step(
        self, model: Any, state: SiteState, free: Bool[Array, " n"], key: Key[Array, ""]
    ) -> tuple[SiteState, Info]:
        """`updates` sites, one after the other, at most all of them at a time."""
        n, done = state.x.shape[1], 0
        while done < self.updates:
            count = min(self.updates - done, n)
            state = _visit(model, state, free, count, jax.random.fold_in(key, done))
            done += count
        return state, {}


def _visit(
    model: Any, state: SiteState, free: Bool[Array, " n"], count: int, key: Key[Array, ""]
) -> SiteState:
    """The next `count` sites, which see the others as a field that stays."""
    x, n = state.x, state.x.shape[1]
    sites = (state.site + jnp.arange(count)) % n
    inside, here = model.couplings[sites][:, sites], x[:, sites]
    outside = x.at[:, sites].set(0.0) @ model.couplings[:, sites] + model.bias[sites][None]
    loose = jnp.broadcast_to(free[sites][None], here.shape)
    new = scan_sites(inside, outside, here, loose, logistic(key, here.shape))
    return SiteState(x.at[:, sites].set(new), (state.site + count) % n)
