"""A run between two chunks of steps: what a checkpoint holds, and how a run goes on from one."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

import equinox as eqx
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PyTree

from undirected.core.agreement import agree, by_first, shared
from undirected.core.errors import BadFile, UndirectedError, check_offers
from undirected.core.mesh import gather, place, place_chains
from undirected.learning.snapshots import SnapshotStore
from undirected.learning.train_step import TrainState

Row = dict[str, float]
RATE = "optimiser and rate"
"""The part of a run's identity that may change after a step that was not finite."""
FALLING = (
    "a rate that falls to the end of a run, as that of the default optimiser does, is another one "
    "where the run is longer; runs that are to be longer need a rate that knows nothing of it, "
    "such as optax.adam(2e-3)"
)
SETTINGS = "settings of the objective"
"""The part that a store may leave out: a run then goes on as another of the same kind."""


class Store(Protocol):
    """Where checkpoints go: `io.checkpoint.Checkpoints` is one.

    `prepare` takes what is to be saved and gives a function that writes it, which is called in
    another thread while the run goes on. `latest` has the history in its `meta["history"]`.
    """

    def prepare(
        self, step: int, tree: PyTree, meta: dict[str, Any], history: Sequence[Row]
    ) -> Callable[[], Any]: ...

    def latest(self, like: PyTree) -> tuple[int, PyTree, dict[str, Any]] | None: ...


@dataclass(frozen=True)
class Run:
    """Where a run stands. Replaced as a whole, so that it is consistent at any moment."""

    step: int
    state: TrainState
    best_model: Any
    best: float | None = None
    best_step: int | None = None
    waited: int = 0
    history: tuple[Row, ...] = ()
    bad: str = ""

    def judged(self, value: float, mode: str) -> "Run":
        """The run after a validation: the best model so far, and for how many it has been so."""
        *rows, last = self.history
        run = replace(self, history=(*rows, {**last, "validation": value}))
        best = -np.inf if self.best is None else self.best if mode == "max" else -self.best
        if (value if mode == "max" else -value) > best:
            return replace(
                run, best_model=self.state.model, best=value, best_step=self.step, waited=0
            )
        return replace(run, waited=self.waited + 1)


def check_listeners(
    caller: str, store: Any, log: Any, snapshots: Any, on_event: Any, save_every: Any = 60.0
) -> None:
    """Refuse, before anything is learned, what could not be told of a run or keep it."""
    places: dict[str, tuple[Any, str, tuple[str, ...]]] = {
        "store": (store, "undirected.io.checkpoint.Checkpoints(folder)", ("latest", "prepare")),
        "log": (log, "undirected.io.metrics.MetricsLog(path)", ("append", "truncate_after")),
        "snapshots": (snapshots, "undirected.io.snapshots.Snapshots(path)", ("wants", "resume")),
    }
    for name, (value, such_as, methods) in places.items():
        if value is not None:
            check_offers(caller, name, value, such_as, *methods)
    if snapshots is not None and store is None:
        raise UndirectedError(f"{caller}: snapshots are written with checkpoints; pass store= too")
    if on_event is not None and not callable(on_event):
        raise UndirectedError(
            f"{caller}: on_event is {on_event!r:.40}; pass a function that is told the progress, "
            "such as print"
        )
    real = isinstance(save_every, int | float | np.number) and not isinstance(save_every, bool)
    if not (real and save_every >= 0):
        raise UndirectedError(
            f"{caller}: save_every is {save_every!r:.40}; pass seconds between two checkpoints"
        )


class Saver:
    """Checkpoints of one run, at most one every so many seconds; without a store it does nothing.

    A thread writes them, each after the one before; what went wrong there is raised at the next.
    Snapshots are written before the checkpoint of the same step, so that a run that goes on finds
    all of those before it. `identity` is what must not change between the parts of a run and no
    shape betrays. Of several processes that share a mesh the first reads and writes; all call every
    method at the same step.
    """

    def __init__(
        self,
        store: Store | None,
        every: float,
        identity: dict[str, Any],
        mesh: Mesh | None = None,
        snapshots: SnapshotStore | None = None,
    ):
        self.store, self.every, self.identity, self.mesh = store, every, identity, mesh
        self.snapshots = snapshots
        self.step, self.time = 0, time.monotonic()
        self.thread = ThreadPoolExecutor(1, "undirected-writer")
        self.writing: Future | None = None

    def resume(self, start: Run) -> Run:
        """The run of the newest checkpoint, or `start` where there is none."""
        run = start if self.store is None else self._stored(start)
        if (kept := self.snapshots) is not None:
            by_first(self.mesh, lambda: kept.resume(run.step))
        return run

    def _stored(self, start: Run) -> Run:
        whole = gather(self.mesh, _arrays(start))
        found = by_first(self.mesh, lambda: self._read(whole))
        told: tuple[int, dict[str, Any]] | None = agree(
            self.mesh, None if found is None else (found[0], found[2])
        )
        if told is None:
            return start
        self.step, meta = told
        tree = whole if found is None else found[1]
        if self.mesh is not None:
            parts = tree.model, tree.optimiser, tree.best_model
            parts = (*place(self.mesh, parts), place_chains(self.mesh, tree.carry))
            tree = _Saved(parts[0], parts[1], parts[3], parts[2])
        state = eqx.combine(TrainState(tree.model, tree.optimiser, tree.carry), start.state)
        best_model = eqx.combine(tree.best_model, start.best_model)
        history = tuple(meta.get("history", ()))
        counters = meta["best"], meta["best_step"], meta["waited"]
        return Run(self.step, state, best_model, *counters, history)

    def _read(self, like: "_Saved") -> tuple[int, "_Saved", dict[str, Any]] | None:
        """The newest checkpoint, which must be of the same run."""
        assert self.store is not None
        advice = (
            "go on with the settings of that run, use another folder, or remove this one "
            "(on the command line: --fresh)"
        )
        try:
            found = self.store.latest(like)
        except BadFile as error:
            raise BadFile(f"fit: cannot go on with the stored run: {error}; {advice}") from error
        if found is None:
            return None
        run, diverged = found[2]["run"], found[2].get("diverged", False)
        for name, now in self.identity.items():
            if diverged and name == RATE:
                continue  # it was advised to lower it
            if (before := run.get(name, now)) != now:  # older ones know less
                hint = f" ({FALLING})" if name == RATE else ""
                raise UndirectedError(
                    f"fit: the store has {name} {before}, not {now}{hint}: {advice}"
                )
        return found

    def save_if_due(self, run: Run) -> None:
        """Write a checkpoint when the last one is old enough."""
        if agree(self.mesh, time.monotonic() - self.time >= self.every):
            self.save(run)

    def leave(self) -> None:
        """Write nothing any more if other processes, which stand elsewhere, would have to help."""
        if shared(self.mesh):
            self.store = None

    def save(self, run: Run) -> None:
        """Begin to write a checkpoint unless the run stands where the last one was."""
        if self.store is None or run.step == self.step:
            return
        meta = {
            "run": self.identity,
            "best": run.best,
            "best_step": run.best_step,
            "waited": run.waited,
            "diverged": bool(run.bad),
        }
        tree, store = gather(self.mesh, _arrays(run)), self.store

        def begin() -> None:
            self._finish()
            if self.snapshots is not None:
                self.snapshots.save()
            self.writing = self.thread.submit(store.prepare(run.step, tree, meta, run.history))

        by_first(self.mesh, begin)
        self.step, self.time = run.step, time.monotonic()

    def close(self) -> None:
        """Wait until all is written."""
        try:
            by_first(None if self.store is None else self.mesh, self._finish)
        finally:
            self.thread.shutdown()

    def _finish(self) -> None:
        """Wait for the checkpoint that is being written, if there is one."""
        writing, self.writing = self.writing, None
        if writing is not None:
            writing.result()


class _Saved(eqx.Module):
    """The arrays of a checkpoint."""

    model: Any
    optimiser: Any
    carry: Any
    best_model: Any


def _arrays(run: Run) -> _Saved:
    state = run.state
    saved = _Saved(state.model, state.optimiser, state.carry, run.best_model)
    return eqx.filter(saved, eqx.is_array)
