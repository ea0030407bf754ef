"""One pass over coupled binary sites: each is drawn given the newest state of all the others.

The draw is a function of noise made beforehand: a site is 1 where its field plus its logistic noise
is above 0. A site that flips corrects the fields of all others by its row of the weights, so that
no field is ever summed anew. Rows of the arrays are chains.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from undirected.core.mesh import on_mesh

TILE = 16
"""Sites that the compiled loop takes per matrix product."""
WARPS = 4
"""Warps of a block of the fused kernel: one chain each."""

Chains = Float[Array, "c n"]


def scan_sites(
    weight: Float[Array, "n n"],
    fields: Chains,
    x: Chains,
    free: Bool[Array, "c n"],
    noise: Chains,
    backward: bool = False,
) -> Chains:
    """The states after site 0, 1, ... (or from the last one down) has been drawn in every chain.

    `fields` are what the sites feel from outside; `weight` is symmetric with a zero diagonal; sites
    that are not free stay. On an NVIDIA GPU one fused kernel, elsewhere a compiled loop over tiles.
    """
    if on_mesh():  # XLA cannot split a fused kernel over devices
        return scan_tiled(weight, fields, x, free, noise, backward=backward)
    return lax.platform_dependent(
        weight,
        fields,
        x,
        free,
        noise,
        cuda=partial(scan_fused, backward=backward),
        default=partial(scan_tiled, backward=backward),
    )


def scan_plain(
    weight: Float[Array, "n n"],
    fields: Chains,
    x: Chains,
    free: Bool[Array, "c n"],
    noise: Chains,
    backward: bool = False,
) -> Chains:
    """The same, as plainly as can be: every field is summed when its site is drawn."""
    n = x.shape[1]

    def visit(k: Array, x: Array) -> Array:
        i = n - 1 - k if backward else k
        on = (fields[:, i] + noise[:, i] + x @ weight[i] > 0).astype(x.dtype)
        return x.at[:, i].set(jnp.where(free[:, i], on, x[:, i]))

    return lax.fori_loop(0, n, visit, x)


def scan_tiled(
    weight: Float[Array, "n n"],
    fields: Chains,
    x: Chains,
    free: Bool[Array, "c n"],
    noise: Chains,
    backward: bool = False,
) -> Chains:
    """A compiled loop: a tile of sites gets its fields by one product with the current state.

    Inside the tile each move corrects the fields of the sites that follow. Columns are chains here,
    so that the inner steps run along them.
    """
    x, free, unlinked = x.T, free.T, (fields + noise).T
    n = x.shape[0]
    tile = min(TILE, n)
    count = -(-n // tile)

    def visit_tile(k: Array, x: Array) -> Array:
        first = (count - 1 - k if backward else k) * tile
        start = jnp.minimum(first, n - tile)
        rows, here, loose, level = (
            lax.dynamic_slice_in_dim(a, start, tile) for a in (weight, x, free, unlinked)
        )
        loose = loose & (start + jnp.arange(tile) >= first)[:, None]
        inside = lax.dynamic_slice_in_dim(rows, start, tile, 1)

        def visit(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            here, level = carry
            i = tile - 1 - i if backward else i
            new = jnp.where(loose[i], (level[i] > 0).astype(x.dtype), here[i])
            return here.at[i].set(new), level + inside[:, i, None] * (new - here[i])[None]

        here, _ = lax.fori_loop(0, tile, visit, (here, level + rows @ x))
        return lax.dynamic_update_slice_in_dim(x, here, start, 0)

    return lax.fori_loop(0, count, visit_tile, x).T


def scan_fused(
    weight: Float[Array, "n n"],
    fields: Chains,
    x: Chains,
    free: Bool[Array, "c n"],
    noise: Chains,
    backward: bool = False,
    *,
    warps: int = WARPS,
    interpret: bool = False,
) -> Chains:
    """One Pallas kernel for the whole pass: a block per chain, whose fields stay in registers."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    chains, n = x.shape
    width = pl.next_power_of_2(n)  # vectors of other lengths cannot be held in registers

    def wide(a: Array) -> Array:
        return jnp.pad(a, ((0, 0), (0, width - n)))

    kernel = partial(_visit_all, n, backward)
    whole = pl.BlockSpec((n, width), lambda chain: (0, 0))
    own = pl.BlockSpec((1, width), lambda chain: (chain, 0))
    level = fields + noise + jnp.matmul(x, weight, precision="highest")
    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((chains, width), x.dtype),
        grid=(chains,),
        in_specs=[whole, own, own, own],
        out_specs=own,
        compiler_params=triton.CompilerParams(num_warps=warps),
        interpret=interpret,
        name="scan_sites",
    )
    stay = jnp.where(free, jnp.zeros_like(x), jnp.ones_like(x))
    return call(wide(weight), wide(level), wide(x), wide(stay))[:, :n]


def _visit_all(n: int, backward: bool, weight, level, x, stay, out) -> None:
    """The body of the fused kernel: every site of one chain, in order.

    A field is read out of the registers by a masked sum, which is exact: all terms but one are 0.
    Only a site that flips reads its row of the weights.
    """
    width = x.shape[1]
    sites = jnp.arange(width)
    zero = jnp.zeros((width,), level.dtype)

    def visit(k: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        level, new = carry
        i = n - 1 - k if backward else k
        here = sites == i
        on = (jnp.sum(jnp.where(here, level, zero)) > 0).astype(level.dtype)
        old = x[0, i]
        step = jnp.where(stay[0, i] > 0, jnp.zeros_like(old), on - old)

        def flip() -> tuple[Array, Array]:
            return level + weight[i, :] * step, jnp.where(here, new + step, new)

        return lax.cond(step != 0, flip, lambda: (level, new))

    _, new = lax.fori_loop(0, n, visit, (level[0, :], x[0, :]))
    out[0, :] = new
