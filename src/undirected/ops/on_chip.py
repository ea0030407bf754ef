"""Sum-product on batches of dense bipartite models on a GPU, with messages that stay on chip.

The same messages as in `bipartite`: one instance belongs to a team of programs, each of which holds
a stripe of rows in registers for all iterations. Programs of a team meet once per iteration: each
hands in its part of the sums at the columns and how far its rows moved, waits until all have, and
reads what the others handed in. Nothing else leaves the chip. A team never waits for a later one,
and a GPU starts programs in their order, so that all of a waiting team are running; should one wait
in vain all the same, the plain form answers in the place of all.

An instance that has settled stops by itself, one iteration after it did: how far the rows of the
others moved is known when the next one is half done.
"""

from functools import partial, reduce
from operator import mul

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jaxtyping import Array, Float, Int

from undirected.core.devices import is_ampere
from undirected.core.mesh import on_mesh
from undirected.ops import bipartite

STRIPE, SPLIT, WARPS = 32, (4, 4), 4
"""Rows of a program, a power of two; tiles along rows and columns; warps: best of those tried."""
NARROWEST, WIDEST, LARGEST_TEAM = 64, 256, 32
"""Columns that such a stripe is good for, and programs that any GPU runs at once."""
PATIENCE = 2**22
"""Looks at the counter before a program gives up."""

Tiles = tuple[tuple[Array, ...], ...]


def fits(rows: int, cols: int) -> bool:
    """Whether models of this size can run so on this machine: an NVIDIA GPU, Ampere or later."""
    sized = rows <= LARGEST_TEAM * STRIPE and NARROWEST <= cols <= WIDEST
    return is_ampere() and sized and not on_mesh()


def sum_product(
    weight: Float[Array, "a b"],
    row_fields: Float[Array, " a"],
    col_fields: Float[Array, " b"],
    iterations: int | Array,
    tolerance: float | None,
) -> bipartite.Loop:
    """`bipartite.sum_product` of one instance; batches run on chip.

    Instances of a batch share their weights, or those of each of several batches do. Needs
    |weight| <= `bipartite.GENTLE`. Where the tolerance is met before the last iteration, one more
    is made. One instance alone and derivatives take the plain form.
    """

    def plain(weight: Array, rows: Array, cols: Array, bound: Array) -> tuple[Array, ...]:
        most = iterations if isinstance(iterations, int) else bound
        return bipartite.sum_product(weight, rows, cols, most, tolerance, 0.0, False)

    rows_of_set = jax.vmap(plain, (None, 0, 0, 0))

    @jax.custom_batching.custom_vmap
    def sets(weight: Array, rows: Array, cols: Array, bound: Array) -> tuple[Array, ...]:
        found = run(weight, rows, cols, bound, tolerance)
        given_up = jnp.isnan(found[3]).any()
        again = jax.vmap(rows_of_set)
        return lax.cond(given_up, again, lambda *_: found, weight, rows, cols, bound)

    @sets.def_vmap
    def _(size: int, batched: list[bool], *inputs: Array) -> tuple:
        """Batches of sets go the plain way."""
        axes = [0 if b else None for b in batched]
        return jax.vmap(jax.vmap(rows_of_set), axes)(*inputs), (True,) * 5

    @jax.custom_batching.custom_vmap
    def batch(weight: Array, rows: Array, cols: Array, bound: Array) -> tuple[Array, ...]:
        found = sets(*(part[None] for part in (weight, rows, cols, bound)))
        return tuple(part[0] for part in found)

    @batch.def_vmap
    def _(size: int, batched: list[bool], *inputs: Array) -> tuple:
        return sets(*_all_batched(size, batched, inputs)), (True,) * 5

    @jax.custom_batching.custom_vmap
    def one(weight: Array, rows: Array, cols: Array, bound: Array) -> tuple[Array, ...]:
        return plain(weight, rows, cols, bound)

    @one.def_vmap
    def _(size: int, batched: list[bool], weight: Array, *inputs: Array) -> tuple:
        parts = _all_batched(size, batched[1:], inputs)
        if not batched[0]:
            return batch(weight, *parts), (True,) * 5
        found = sets(weight, *(part[:, None] for part in parts))
        return tuple(part[:, 0] for part in found), (True,) * 5

    @jax.custom_jvp
    def differentiable(weight: Array, rows: Array, cols: Array, bound: Array) -> tuple[Array, ...]:
        return one(weight, rows, cols, bound)

    @differentiable.defjvp
    def _(primals: tuple, tangents: tuple) -> tuple:
        return jax.jvp(plain, primals, tangents)

    bound = jnp.asarray(iterations, jnp.int32)
    to_rows, at_rows, at_cols, change, made = differentiable(weight, row_fields, col_fields, bound)
    return to_rows, at_rows, at_cols, change, made


def _all_batched(size: int, batched: list[bool], parts: tuple[Array, ...]) -> list[Array]:
    """All of them with a leading axis."""
    pairs = zip(parts, batched, strict=True)
    return [part if b else jnp.broadcast_to(part, (size, *part.shape)) for part, b in pairs]


def run(
    weight: Float[Array, "sets a b"],
    row_fields: Float[Array, "sets batch a"],
    col_fields: Float[Array, "sets batch b"],
    iterations: Int[Array, "sets batch"],
    tolerance: float | None,
    stripe: int = STRIPE,
    split: tuple[int, int] = SPLIT,
    warps: int = WARPS,
) -> bipartite.Loop:
    """What `bipartite.sum_product` gives, of every instance; NaN for changes where one gave up.

    Ratios are multiplied across tiles before one logarithm is taken. Interpreted where there is no
    GPU, and then a stripe must hold all rows.
    """
    (count, batch, a), b = row_fields.shape, weight.shape[2]
    team, width, interpret = -(-a // stripe), pl.next_power_of_2(b), jax.default_backend() != "gpu"
    height, n = team * stripe, count * batch
    odds = jnp.exp(jnp.pad(weight, ((0, 0), (0, height - a), (0, width - b))))
    rows = jnp.pad(row_fields.reshape(n, a), ((0, 0), (0, height - a)))
    cols = jnp.pad(col_fields.reshape(n, b), ((0, 0), (0, width - b)))
    half = jnp.pad(0.5 * weight.sum(1), ((0, 0), (0, width - b)))
    bound = -1.0 if tolerance is None else float(tolerance)
    shapes = [(n, height, width), rows.shape, cols.shape, (n, team), (2, n, team, width)]
    shapes.append((2, n, team))
    ratios, at_rows, at_cols, moved, _, _, made, _ = pl.pallas_call(
        partial(_program, batch, team, stripe, split, bound, interpret),
        grid=(n * team,),
        out_shape=(
            *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes),
            *(jax.ShapeDtypeStruct((n,), jnp.int32) for _ in range(2)),
        ),
        input_output_aliases={5: 7},
        name="on_chip",
        compiler_params=plgpu.CompilerParams(num_warps=warps, num_stages=1),
        interpret=interpret,
    )(odds, rows, cols, half, iterations.reshape(n), jnp.zeros(n, jnp.int32))
    # The largest of several numbers may leave out those that are none; sums do not.
    change = moved.max(1) + 0 * (moved.sum(1) + at_rows.sum(1) + at_cols.sum(1))

    def by_sets(part: Array) -> Array:
        return part.reshape(count, batch, *part.shape[1:])

    sums = by_sets(at_rows[:, :a]), by_sets(at_cols[:, :b])
    return by_sets(jnp.log(ratios[:, :a, :b])), *sums, by_sets(change), by_sets(made)


def _program(
    batch, team, stripe, split, tolerance, interpret,
    odds_ref, rows_ref, cols_ref, half_ref, bounds_ref, _,
    ratios_ref, at_rows_ref, at_cols_ref, moved_ref, parts_ref, moves_ref, made_ref, counter_ref,
):  # fmt: skip
    """One stripe of one instance, for all iterations."""
    program = pl.program_id(0)
    instance, member = lax.div(program, team), lax.rem(program, team)
    own, most = lax.div(instance, batch), bounds_ref[instance]
    high, wide = stripe // split[0], cols_ref.shape[1] // split[1]
    row_parts = [pl.ds(member * stripe + i * high, high) for i in range(split[0])]
    col_parts = [pl.ds(k * wide, wide) for k in range(split[1])]
    row_fields = [rows_ref[instance, part] for part in row_parts]

    def odds(row, col) -> Array:
        return odds_ref[own, row, col]

    def to_cols(messages: Tiles, at_rows: list[Array], moved: Array, t: Array) -> Tiles:
        """Send to the columns; hand in this stripe's part of their sums and how far it moved."""
        messages = _each(messages, odds, row_parts, col_parts, _by_rows(row_fields, at_rows))
        for k, part in enumerate(col_parts):
            product = reduce(mul, [row[k] for row in messages])
            parts_ref[t & 1, instance, member, part] = jnp.log(product).sum(0)
        moves_ref[t & 1, instance, member] = moved
        return messages

    def meet(t: Array) -> tuple[list[Array], Array, Array]:
        """The sums at the columns, how far rows moved, and whether the wait was in vain."""
        late = _wait(counter_ref, instance, (t + 1) * team, interpret)
        at_cols = [_total(parts_ref, t, instance, team, part) for part in col_parts]
        return at_cols, _farthest(moves_ref, t, instance, team), late

    def to_rows(messages: Tiles, at_cols: list[Array]) -> tuple[Tiles, list[Array]]:
        fields = [cols_ref[instance, part] for part in col_parts]
        messages = _each(messages, odds, row_parts, col_parts, _by_cols(fields, at_cols))
        return messages, [jnp.log(reduce(mul, row)).sum(1) for row in messages]

    def iteration(state: tuple) -> tuple:
        """The second half of iteration t and the first half of the next."""
        messages, at_rows, at_cols, cols_moved, t, _, _ = state
        messages, new_rows = to_rows(messages, at_cols)
        messages = to_cols(messages, new_rows, _distance(new_rows, at_rows), t + 1)
        new_cols, rows_moved, late = meet(t + 1)
        settled = jnp.maximum(rows_moved, cols_moved) <= tolerance
        ended = settled | (t + 2 >= most) | (late > 0)
        moved = _distance(new_cols, at_cols)
        return messages, new_rows, new_cols, moved, t + 1, ended.astype(jnp.int32), late

    start = tuple(tuple(jnp.sqrt(odds(r, c)) for c in col_parts) for r in row_parts)
    at_rows = [jnp.log(reduce(mul, line)).sum(1) for line in start]
    unread = at_rows[0].max()  # how far rows moved before the first iteration
    messages = to_cols(start, at_rows, unread, jnp.int32(0))
    at_cols, _, late = meet(jnp.int32(0))
    moved = _distance(at_cols, [half_ref[own, part] for part in col_parts])
    ended = ((most <= 1) | (late > 0)).astype(jnp.int32)
    state = messages, at_rows, at_cols, moved, jnp.int32(0), ended, late
    messages, at_rows, at_cols, moved, t, _, late = lax.while_loop(
        lambda state: state[5] == 0, iteration, state
    )
    messages, new_rows = to_rows(messages, at_cols)
    moved = jnp.maximum(moved, _distance(new_rows, at_rows))
    moved_ref[instance, member] = jnp.where(late > 0, jnp.nan, moved)
    made_ref[instance] = t + 1
    for row, line in zip(row_parts, messages, strict=True):
        for col, tile in zip(col_parts, line, strict=True):
            ratios_ref[instance, row, col] = tile
    for part, value in zip(row_parts, new_rows, strict=True):
        at_rows_ref[instance, part] = value
    for part, value in zip(col_parts, at_cols, strict=True):
        at_cols_ref[instance, part] = value


def _each(messages: Tiles, odds, row_parts: list, col_parts: list, scales) -> Tiles:
    """Renew every tile: (s down + odds up) / (s down + up)."""
    renewed = []
    for i, row in enumerate(row_parts):
        line = []
        for k, col in enumerate(col_parts):
            down, up = scales(i, k)
            scaled = messages[i][k] * down
            line.append((scaled + odds(row, col) * up) / (scaled + up))
        renewed.append(tuple(line))
    return tuple(renewed)


def _by_rows(fields: list[Array], incoming: list[Array]):
    scales = [_scales(f + m) for f, m in zip(fields, incoming, strict=True)]
    return lambda i, k: (scales[i][0][:, None], scales[i][1][:, None])


def _by_cols(fields: list[Array], incoming: list[Array]):
    scales = [_scales(f + m) for f, m in zip(fields, incoming, strict=True)]
    return lambda i, k: (scales[k][0][None, :], scales[k][1][None, :])


def _scales(total: Array) -> tuple[Array, Array]:
    """exp(-max(total, 0)) and exp(min(total, 0)): no field overflows."""
    return jnp.exp(-jnp.maximum(total, 0.0)), jnp.exp(jnp.minimum(total, 0.0))


def _distance(new: list[Array], old: list[Array]) -> Array:
    """The largest difference of two lists of tiles."""
    return reduce(jnp.maximum, [jnp.abs(a - b).max() for a, b in zip(new, old, strict=True)])


def _total(parts_ref, t: Array, instance: Array, team: int, part) -> Array:
    """The sum over the team of what each handed in, past the first-level cache."""
    size = pl.next_power_of_2(team)
    inside = (jnp.arange(size) < team)[:, None] & jnp.ones((1, part.size), bool)
    view = parts_ref.at[t & 1, instance, pl.ds(0, size), part]
    return plgpu.load(view, mask=inside, other=0.0, volatile=True).sum(0)


def _farthest(moves_ref, t: Array, instance: Array, team: int) -> Array:
    """The largest over the team of how far rows moved."""
    size = pl.next_power_of_2(team)
    view = moves_ref.at[t & 1, instance, pl.ds(0, size)]
    return plgpu.load(view, mask=jnp.arange(size) < team, other=0.0, volatile=True).max()


def _wait(counter_ref, instance: Array, goal: Array, interpret: bool) -> Array:
    """Until all programs of the team have come this far; 1 where they did not, else 0.

    Interpreted programs run in turn.
    """
    if interpret:
        return jnp.int32(0)
    plgpu.debug_barrier()
    plgpu.atomic_add(counter_ref, (instance,), jnp.int32(1))

    def waiting(state: tuple[Array, Array]) -> Array:
        return (state[0] < goal) & (state[1] < PATIENCE)

    def look(state: tuple[Array, Array]) -> tuple[Array, Array]:
        return plgpu.atomic_add(counter_ref, (instance,), jnp.int32(0)), state[1] + 1

    seen, _ = lax.while_loop(waiting, look, (jnp.int32(0), jnp.int32(0)))
    plgpu.debug_barrier()
    return (seen < goal).astype(jnp.int32)
