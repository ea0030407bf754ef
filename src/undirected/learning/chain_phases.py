"""What the sampling learners share: completing the data, running chains, the mean energy."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree

from undirected.core.errors import UndirectedError
from undirected.core.layout import Domain, Layout, check_discrete
from undirected.core.potentials import batch_axes, clamp
from undirected.core.protocols import Inference, Info, Kernel, Summable
from undirected.core.units import random_units


def detach(model: PyTree) -> PyTree:
    """The same model, seen as a constant by autodiff."""
    return jax.tree.map(lambda a: jax.lax.stop_gradient(a) if eqx.is_array(a) else a, model)


def visible(model: Any, batch: Array) -> Float[Array, "rows v"]:
    """The batch as floats, one column a visible unit."""
    v = jnp.asarray(batch)
    n = model.layout.n_visible
    if v.ndim != 2 or v.shape[1] != n:
        raise UndirectedError(
            f"learning: a batch has shape {v.shape}; the model has {n} visible units, "
            f"pass data of shape (rows, {n})"
        )
    return v if jnp.issubdtype(v.dtype, jnp.floating) else v.astype(float)


def check_visible(caller: str, layout: Layout) -> None:
    """Refuse visible units that are neither binary nor categorical."""
    check_discrete(caller, *(block for block in layout.blocks if block.visible))


def check_values(layout: Layout | None, rows: PyTree) -> None:
    """Refuse entries of discrete visible units beyond [0, 1]; NaN is missing, other rows pass."""
    if layout is None or not eqx.is_array(rows) or rows.shape[1:] != (layout.n_visible,):
        return
    for block in layout.blocks:
        if block.visible and block.domain in (Domain.BINARY, Domain.CATEGORICAL):
            part = rows[:, block.slice]
            for extreme in (jnp.nanmin(part, initial=0), jnp.nanmax(part, initial=1)):
                if not 0 <= extreme <= 1:
                    raise UndirectedError(
                        f"learning: the data have the value {extreme:g} in block '{block.name}', "
                        f"which is {block.domain.value}; wanted 0, 1 or between: (x > threshold), "
                        "x / largest, or (spins + 1) / 2"
                    )


def block_check(layout: Layout | None) -> Callable[[PyTree, int], None] | None:
    """A function that does the same to blocks of rows, in NumPy, and knows where a block begins."""
    if layout is None:
        return None
    kinds = Domain.BINARY, Domain.CATEGORICAL
    parts = [b for b in layout.blocks if b.visible and b.domain in kinds]

    def check(rows: PyTree, first: int) -> None:
        if not isinstance(rows, np.ndarray) or rows.shape[1:] != (layout.n_visible,):
            return
        for block in parts:
            part = rows[:, block.slice]
            bad = part > 1 if part.dtype.kind in "ub" else (part < 0) | (part > 1)
            if bad.any():
                row, column = (int(place) for place in np.argwhere(bad)[0])
                raise UndirectedError(
                    f"learning: row {first + row} of the data has the value {part[row, column]:g} "
                    f"in block '{block.name}', which is {block.domain.value}; wanted 0, 1 or "
                    "between"
                )

    return check


def observed(layout: Layout, v: Float[Array, "rows v"]) -> Bool[Array, "rows v"]:
    """Which entries are given (not NaN); a categorical variable is, when all of its units are."""
    seen = ~jnp.isnan(v)
    for block in layout.blocks:
        if block.visible and block.domain is Domain.CATEGORICAL:
            groups = seen[:, block.slice].reshape(len(v), -1, block.states)
            whole = jnp.repeat(groups.all(-1), block.states, axis=-1)
            seen = seen.at[:, block.slice].set(whole)
    return seen


def complete(
    kernel: Kernel,
    model: Any,
    v: Float[Array, "rows v"],
    steps: int,
    key: Key[Array, ""],
    least: int = 0,
    near: Float[Array, "chains n"] | None = None,
) -> Float[Array, "rows n"]:
    """States of all units given the observed entries of v; missing and hidden ones are sampled.

    They start at the state of `near` that agrees best with what is observed (at random without it)
    and move for `steps` kernel steps while the observed units are held. In a batch without missing
    entries `least` steps are made; with none, the hidden units are 0.
    """
    layout, n = model.layout, v.shape[1]
    seen = observed(layout, v)
    count = jnp.where(seen.all(), least, steps)

    def sample() -> Float[Array, "rows n"]:
        start_key, init_key, move_key = jax.random.split(key, 3)
        if near is None:
            start = random_units(layout, start_key, (len(v),)).astype(v.dtype)
        else:
            start = nearest(near, v, seen).astype(v.dtype)
        x = start.at[:, :n].set(jnp.where(seen, v, start[:, :n]))
        free = jnp.ones(x.shape, bool).at[:, :n].set(~seen)

        def move(i: Array, state: Any) -> Any:
            return kernel.step(model, state, free, jax.random.fold_in(move_key, i))[0]

        return jax.lax.fori_loop(0, count, move, kernel.init(model, x, init_key)).x

    def as_given() -> Float[Array, "rows n"]:
        return jnp.pad(v, ((0, 0), (0, layout.n - n)))

    return sample() if least else jax.lax.cond(count == 0, as_given, sample)


def nearest(
    states: Float[Array, "chains n"], v: Float[Array, "rows v"], seen: Bool[Array, "rows v"]
) -> Float[Array, "rows n"]:
    """For each row the state that is nearest to it in what is observed, by squared distance."""
    x, weight = states[:, : v.shape[1]], seen.astype(v.dtype)
    known = jnp.where(seen, v, 0.0)
    distance = weight @ (x * x).T - 2 * known @ x.T
    return jax.lax.stop_gradient(states[jnp.argmin(distance, 1)])


def posterior_means(
    infer: Inference, model: Any, v: Float[Array, "rows v"], key: Key[Array, ""]
) -> Float[Array, "rows n"]:
    """Means of all units given the observed entries of v, which are kept as they are."""
    p = model.lower()
    seen = observed(model.layout, v)
    answer = jax.vmap(infer, in_axes=(batch_axes(p), 0))
    means = answer(clamp(p, seen, v), jax.random.split(key, len(v))).unary
    n = v.shape[1]
    return jax.lax.stop_gradient(means.at[:, :n].set(jnp.where(seen, v, means[:, :n])))


def run(
    kernel: Kernel, model: Any, state: Any, steps: int, key: Key[Array, ""]
) -> tuple[Any, Info]:
    """The chains after so many free kernel steps, and the means of what the kernel reports."""
    free = jnp.ones(model.layout.n, bool)

    def move(state: Any, key: Key[Array, ""]) -> tuple[Any, Info]:
        return kernel.step(model, state, free, key)

    state, info = jax.lax.scan(move, state, jax.random.split(key, steps))
    return state, {name: jnp.mean(values) for name, values in info.items()}


def mean_energy(model: Any, x: Float[Array, "rows n"]) -> Float[Array, ""]:
    """Mean free energy of the visible units; the mean energy where the hiddens cannot be summed."""
    if isinstance(model, Summable):
        return model.free_energy(x[:, : model.layout.n_visible]).mean()
    return model.energy(x).mean()
