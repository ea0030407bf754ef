"""A run between two chunks of steps: what a checkpoint holds, and how a run goes on from one."""

import time
from dataclasses import dataclass, replace
from typing import Any, Protocol

import equinox as eqx
import numpy as np
from jaxtyping import PyTree

from undirected.core.errors import BadFile, UndirectedError
from undirected.learning.train_step import TrainState

Row = dict[str, float]


class Store(Protocol):
    """Where checkpoints go: `io.checkpoint.Checkpoints` is one."""

    def save(self, step: int, tree: PyTree, meta: dict[str, Any]) -> Any: ...

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


class Saver:
    """Checkpoints of one run, at most one every so many seconds; without a store it does nothing.

    `identity` is what must not change between the parts of a run and no shape betrays.
    """

    def __init__(self, store: Store | None, every: float, identity: dict[str, Any]):
        self.store, self.every, self.identity = store, every, identity
        self.step, self.time = 0, time.monotonic()

    def resume(self, start: Run) -> Run:
        """The run of the newest checkpoint, or `start` where there is none."""
        if self.store is None:
            return start
        advice = (
            "go on with the settings of that run, use another folder, or remove this one "
            "(on the command line: --fresh)"
        )
        try:
            found = self.store.latest(_arrays(start))
        except BadFile as error:
            raise BadFile(f"fit: cannot go on with the stored run: {error}; {advice}") from error
        if found is None:
            return start
        self.step, tree, meta = found
        for name, now in self.identity.items():
            if (before := meta["run"].get(name)) != now:
                raise UndirectedError(f"fit: the store has {name} {before}, not {now}: {advice}")
        state = eqx.combine(TrainState(tree.model, tree.optimiser, tree.carry), start.state)
        best_model = eqx.combine(tree.best_model, start.best_model)
        history = tuple(meta["history"])
        counters = meta["best"], meta["best_step"], meta["waited"]
        return Run(self.step, state, best_model, *counters, history)

    def save_if_due(self, run: Run) -> None:
        """Write a checkpoint when the last one is old enough."""
        if time.monotonic() - self.time >= self.every:
            self.save(run)

    def save(self, run: Run) -> None:
        """Write a checkpoint unless the run stands where the last one was written."""
        if self.store is None or run.step == self.step:
            return
        meta = {
            "run": self.identity,
            "best": run.best,
            "best_step": run.best_step,
            "waited": run.waited,
            "history": list(run.history),
        }
        self.store.save(run.step, _arrays(run), meta)
        self.step, self.time = run.step, time.monotonic()


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
