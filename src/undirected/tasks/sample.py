"""Samples of a model, free or given what is known."""

from numbers import Real
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Key

from undirected.core.chunks import BUDGET, map_rows
from undirected.core.errors import TooLarge, UndirectedError, check_counts, check_offers
from undirected.core.layout import Layout, marginals
from undirected.core.memory import available_memory
from undirected.core.mesh import check_mesh
from undirected.core.progress import Progress
from undirected.core.protocols import Kernel
from undirected.core.random import make_key
from undirected.sampling import run_chains
from undirected.sampling.lead_in import broken, forbids, led
from undirected.tasks.choose import check_model, kernel_for
from undirected.tasks.rows import check_whole, clamped_start, evidence_units, has_columns
from undirected.tasks.sampler import Sampler, sampler_for


def sample(
    model: Any,
    count: int = 100,
    *,
    given: Any = None,
    sweeps: int = 1000,
    kernel: Kernel | None = None,
    key: Key[Array, ""] | None = None,
    seed: int | None = None,
    budget: int = BUDGET,
    mesh: Mesh | None = None,
    progress: Progress | None = None,
) -> Any:
    """Independent samples of the visible units: exact draws, or each from a chain of its own.

    `un.choose_sampler` says which, and why: no chains are run where hidden units can be enumerated
    or a junction tree is small.

    Args:
        model: any model that can be sampled.
        count: number of samples.
        given: what is known: `{variable: state}` by names, one row of a data frame, or a row with
            NaN for the rest.
        sweeps: steps of every chain, from a random start.
        kernel: how chains move; by default what `un.choose_sampler` says.
        key: of all draws.
        seed: the same as a number; pass one of the two.
        budget: bytes that the chains of one chunk may take.
        mesh: devices over which the chains of a chunk are split, such as `un.device_mesh()`; the
            samples are the same on any.
        progress: told the sweeps done and the sweeps in all, of all samples together.

    Returns:
        An array (count, visible units), or (count, columns) of a model with columns; for a network
        with names `{variable: array of states}`.

    Example:
        >>> import undirected as un
        >>> un.sample(un.Ising.create(3), 5, given=[1, 1, float("nan")], sweeps=10).shape
        (5, 3)
    """
    check_model("sample", model)
    if kernel is not None:
        such_as = "Gibbs(), or none to have it chosen"
        check_offers("sample", "kernel", kernel, such_as, "init", "step")
    row = evidence_units("sample", model, given)
    found = sample_units(
        model,
        count,
        row,
        make_key("sample", key, seed),
        sweeps=sweeps,
        sampler=None if kernel is None else Sampler(kernel, "asked for"),
        budget=budget,
        mesh=check_mesh("sample", mesh, model),
        progress=progress,
    )[:, : model.layout.n_visible]
    if has_columns(model):
        return model.table.to_table(found)
    return found if model.layout.labels is None else _by_name(model.layout, found)


def sample_units(
    model: Any,
    count: int,
    row: Float[np.ndarray, " v"],
    key: Key[Array, ""],
    *,
    sweeps: int = 1000,
    sampler: Sampler | None = None,
    budget: int = BUDGET,
    mesh: Mesh | None = None,
    progress: Progress | None = None,
) -> Float[np.ndarray, "count n"]:
    """`sample` of all units, hidden ones too, given one row of visible units with NaN."""
    check_counts("sample", count=count, sweeps=sweeps)
    _check_room(model.layout, count)
    mover, _, exactly = sampler or sampler_for(model, row)
    if exactly is not None:
        found = np.asarray(exactly(count, key), np.float32)
        if progress is not None:
            progress(count * sweeps, count * sweeps)
        return found
    assert mover is not None
    check_whole("sample", model.layout, row[None], "give one of its states, or NaN for all")
    hard = forbids(model)
    lead = kernel_for(model) if hard else mover

    def draw(chunk: Array, start: int) -> Array:
        start_key, run_key = jax.random.split(jax.random.fold_in(key, start))
        x, free = clamped_start(model, chunk, start_key)
        x = led(lead, model, x, free, start_key, sweeps) if hard else x
        own = min(len(chunk), count - start)

        def tell(done: int, _: int) -> None:
            if progress is not None:
                progress(start * sweeps + own * done, count * sweeps)

        found = run_chains(
            mover,
            model,
            x,
            run_key,
            burn_in=sweeps - 1,
            samples=1,
            free=free,
            keep=False,
            mesh=mesh,
            progress=None if progress is None else tell,
        ).state.x
        tell(sweeps, sweeps)
        return found

    rows = np.broadcast_to(row, (count, model.layout.n_visible))
    found = map_rows(draw, rows, 64 * model.layout.n, budget=budget)
    if hard and (lost := broken(model, found)).any():
        raise UndirectedError(
            f"sample: {lost.sum()} of {count} chains ended in a state that the model forbids; pass "
            "more sweeps, or another kernel; un.solve says whether any state is allowed"
        )
    return found


def _check_room(layout: Layout, count: int) -> None:
    """Refuse samples that would not fit into memory, at 4 bytes a unit and as much to join them."""
    needed, room = 8.0 * count * layout.n, available_memory()
    if needed > room:
        most = int(room / (8 * layout.n))
        raise TooLarge(
            f"sample: {count:,} samples of {layout.n} units take {needed / 2**30:,.1f} GiB, and "
            f"{room / 2**30:,.1f} are left; pass a count of {most:,} or less, more than once"
        )


def _by_name(layout: Layout, found: np.ndarray) -> dict[Any, np.ndarray]:
    """The states of every variable, in its user's words."""
    states = np.asarray(marginals(layout, np.asarray(found))).argmax(-1)
    answers = {}
    for variable, name in zip(layout.order, layout.names, strict=True):
        answers[name] = _words(layout.states_of(variable))[states[:, variable]]
    return answers


def _words(states: tuple[Any, ...]) -> np.ndarray:
    """The words for the states of a variable as they are: NumPy would make text of 1 beside "a"."""
    alike = any(all(isinstance(word, kind) for word in states) for kind in (str, Real))
    return np.asarray(states) if alike else np.fromiter(states, object, len(states))
