"""Gibbs with gradients on dense binary models: chains propose and accept flips of single sites.

A flip of site i is proposed with a probability proportional to e_i = exp(g_i / 2), g_i its gain in
-energy. For pairwise models g is exact, the flip back has the gain -g_i, and the acceptance ratio
of Metropolis is the ratio of the sums of all e, before the flip and after it: so a proposal that is
accepted has made everything the next one needs. The draws are a function of uniform numbers made
beforehand, two for each proposal. Rows of the arrays are chains.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from undirected.core.mesh import on_mesh

TILE = 32
"""Sites among which one is looked for at a time."""
WARPS = 4
"""Warps of a block of the fused kernel: one chain each."""

LEAST, MOST = 1e-18, 1e18
"""Sums of all e, over the largest one when that was last looked for, that need no new look."""

Chains = Float[Array, "c n"]
Moved = tuple[Chains, Float[Array, " c"]]


def flip_sites(
    weight: Float[Array, "n n"],
    slope: Chains,
    x: Chains,
    free: Bool[Array, "c n"],
    uniform: Float[Array, "c updates 2"],
) -> Moved:
    """The states after all proposals, and how many of them each chain accepted.

    `slope` is the field of every site in the state x; `weight` is symmetric with a zero diagonal;
    sites that are not free stay. On an NVIDIA GPU one fused kernel, elsewhere a compiled loop.
    """
    if on_mesh():  # XLA cannot split a fused kernel over devices
        return flip_looped(weight, slope, x, free, uniform)
    return lax.platform_dependent(
        weight, slope, x, free, uniform, cuda=flip_fused, default=flip_looped
    )


def flip_looped(
    weight: Float[Array, "n n"],
    slope: Chains,
    x: Chains,
    free: Bool[Array, "c n"],
    uniform: Float[Array, "c updates 2"],
) -> Moved:
    """A compiled loop over proposals, all chains at once."""
    chains, n = x.shape
    sites, rows = jnp.arange(n), jnp.arange(chains)

    def propose(k: Array, carry: tuple) -> tuple:
        x, slope, weights, total, accepted = carry
        site = _pick(weights, uniform[:, k, 0])
        change = 1 - 2 * x[rows, site]
        new_slope = slope + change[:, None] * weight[site]
        new_x = jnp.where(sites[None] == site[:, None], 1 - x, x)
        new_weights, new_total = _proposal(new_x, new_slope, free)
        yes = (jnp.log(uniform[:, k, 1]) < total - new_total) & free[rows, site]
        new = new_x, new_slope, new_weights, new_total
        kept = jax.tree.map(
            lambda a, b: jnp.where(yes.reshape(-1, *[1] * (a.ndim - 1)), a, b), new, carry[:4]
        )
        return *kept, accepted + yes

    start = x, slope, *_proposal(x, slope, free), jnp.zeros(chains, x.dtype)
    x, *_, accepted = lax.fori_loop(0, uniform.shape[1], propose, start)
    return x, accepted


def _proposal(x: Chains, slope: Chains, free: Array) -> tuple[Chains, Float[Array, " c"]]:
    """exp of half the gain of each flip, up to a factor per chain, and the log of their sum."""
    half_gain = jnp.where(free, (0.5 - x) * slope, -jnp.inf)
    top = jnp.maximum(half_gain.max(-1), jnp.finfo(x.dtype).min)
    weights = jnp.exp(half_gain - top[:, None])
    return weights, top + jnp.log(weights.sum(-1))


def _pick(weights: Chains, uniform: Float[Array, " c"]) -> Array:
    """A site of each chain with a probability proportional to its weight, by its running sum.

    First the tile is found, then the site within it: sums run over few numbers.
    """
    chains, n = weights.shape
    count = -(-n // TILE)
    tiles = jnp.pad(weights, ((0, 0), (0, count * TILE - n))).reshape(chains, count, TILE)
    sums = tiles.sum(-1)
    ends = _running(sums)
    level = uniform * ends[:, -1]
    tile = jnp.minimum((ends <= level[:, None]).sum(-1), count - 1)
    rows = jnp.arange(chains)
    within = _running(tiles[rows, tile])
    level = level - (ends[rows, tile] - sums[rows, tile])
    place = (within <= level[:, None]).sum(-1)
    last = TILE - 1 - jnp.argmax(tiles[rows, tile, ::-1] > 0, -1)
    return jnp.minimum(tile * TILE + jnp.minimum(place, last), n - 1)


def _running(a: Float[Array, "c k"]) -> Float[Array, "c k"]:
    """Running sums of short rows."""
    k = a.shape[1]
    return jnp.matmul(a, jnp.triu(jnp.ones((k, k), a.dtype)), precision="highest")


def flip_fused(
    weight: Float[Array, "n n"],
    slope: Chains,
    x: Chains,
    free: Bool[Array, "c n"],
    uniform: Float[Array, "c updates 2"],
    *,
    warps: int = WARPS,
    interpret: bool = False,
) -> Moved:
    """One Pallas kernel for all proposals: a block per chain, whose state stays in registers."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    (chains, n), updates = x.shape, uniform.shape[1]
    width = pl.next_power_of_2(n)  # vectors of other lengths cannot be held in registers

    def wide(a: Array) -> Array:
        return jnp.pad(a.astype(x.dtype), ((0, 0), (0, width - n)))

    whole = pl.BlockSpec((n, width), lambda chain: (0, 0))
    own = pl.BlockSpec((1, width), lambda chain: (chain, 0))
    numbers = pl.BlockSpec((1, 2 * updates), lambda chain: (chain, 0))
    one = pl.BlockSpec((1,), lambda chain: (chain,))
    call = pl.pallas_call(
        partial(_propose_all, updates),
        out_shape=[
            jax.ShapeDtypeStruct((chains, width), x.dtype),
            jax.ShapeDtypeStruct((chains,), x.dtype),
        ],
        grid=(chains,),
        in_specs=[whole, own, own, own, numbers],
        out_specs=[own, one],
        compiler_params=triton.CompilerParams(num_warps=warps),
        interpret=interpret,
        name="flip_sites",
    )
    flat = uniform.reshape(chains, 2 * updates)
    x, accepted = call(wide(weight), wide(slope), wide(x), wide(free), flat)
    return x[:, :n], accepted


def _propose_all(updates: int, weight, slope, x, free, uniform, out, accepted) -> None:
    """The body of the fused kernel: every proposal of one chain, in order.

    The e of all sites are kept as their running sum, over exp(shift); the shift stays as it is
    until their sum comes near the ends of what a number can hold.
    """
    loose = free[0, :] > 0
    sites = jnp.arange(loose.shape[0])
    nothing = jnp.zeros_like(x[0, :])
    lowest = jnp.full_like(nothing, -1e30)

    def running(half_gain: Array, shift: Array) -> tuple[Array, Array]:
        ends = jnp.cumsum(jnp.where(loose, jnp.exp(half_gain - shift), nothing))
        return ends, jnp.max(ends)

    def afresh(half_gain: Array) -> tuple[Array, Array, Array]:
        top = jnp.max(jnp.where(loose, half_gain, lowest))
        return *running(half_gain, top), top

    def propose(k: Array, carry: tuple) -> tuple:
        x, slope, ends, total, shift, count = carry
        before = ends <= uniform[0, 2 * k] * total
        site = jnp.minimum(jnp.sum(before.astype(jnp.int32)), weight.shape[0] - 1)
        here = (sites == site) & loose
        change = jnp.sum(jnp.where(here, 1 - 2 * x, nothing))
        new_slope = slope + change * weight[site, :]
        new_x = jnp.where(here, 1 - x, x)
        half_gain = (0.5 - new_x) * new_slope
        new_ends, new_total = running(half_gain, shift)
        yes = (uniform[0, 2 * k + 1] * new_total < total) & (change != 0)
        ends, total, shift = lax.cond(
            yes & ((new_total < LEAST) | (new_total > MOST)),
            lambda: afresh(half_gain),
            lambda: (jnp.where(yes, new_ends, ends), jnp.where(yes, new_total, total), shift),
        )
        return (
            jnp.where(yes, new_x, x),
            jnp.where(yes, new_slope, slope),
            ends,
            total,
            shift,
            jnp.where(yes, count + 1, count),
        )

    begin = afresh((0.5 - x[0, :]) * slope[0, :])
    start = x[0, :], slope[0, :], *begin, jnp.zeros((), nothing.dtype)
    new, *_, count = lax.fori_loop(0, updates, propose, start)
    out[0, :] = new
    accepted[0] = count
