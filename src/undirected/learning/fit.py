"""The one training loop: any model, any objective, any optimiser."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Key, PyTree

from undirected.core.agreement import agree, any_process, is_first
from undirected.core.errors import NotFinite, UndirectedError, check_counts
from undirected.core.layout import Layout
from undirected.core.mesh import check_mesh, gather, place
from undirected.core.protocols import Objective, Optimiser
from undirected.learning.batches import Batches
from undirected.learning.chain_phases import block_check, check_values
from undirected.learning.checkpointing import (
    RATE,
    SETTINGS,
    Row,
    Run,
    Saver,
    Store,
    check_listeners,
)
from undirected.learning.ensemble import Ensemble
from undirected.learning.fingerprint import data_fingerprint, fingerprint
from undirected.learning.interrupts import held_interrupts
from undirected.learning.snapshots import SnapshotStore, snapshot_of
from undirected.learning.streams import StreamedBatches
from undirected.learning.train_step import not_finite, trainable_leaves
from undirected.learning.trainer import Trainer

Validator = Callable[[Any, Key[Array, ""]], float | Float[Array, ""]]


class Log(Protocol):
    """Where metrics go: `io.metrics.MetricsLog` is one."""

    def append(self, step: int, metrics: dict[str, Any]) -> None: ...

    def truncate_after(self, step: int) -> None: ...


@dataclass(frozen=True)
class Progress:
    """How far a run is; `rate` is in steps a second, `metrics` the newest row of the history."""

    step: int
    total: int
    rate: float
    metrics: Row


@dataclass(frozen=True)
class FitResult:
    """What a run leaves; `stopped` says why it ended.

    That is "steps", "patience", "interrupted" or "not finite"; of a fit that knows when it is done
    also "converged".

    `best_model` had the best validation value, `best`, at `best_step`; without validation it is
    `model`. `history` has a row of mean metrics for every chunk of steps; `carry` is the
    objective's own state, such as persistent chains.
    """

    model: Any
    best_model: Any
    step: int
    stopped: str
    history: list[Row]
    best: float | None
    best_step: int | None
    carry: Any


class Diverged(NotFinite):
    """A step was not finite; `result` holds everything up to the last good step."""

    def __init__(self, message: str, result: FitResult):
        super().__init__(message)
        self.result = result


def fit(
    model: Any,
    objective: Objective,
    optimiser: Optimiser,
    batches: Batches,
    key: Key[Array, ""],
    *,
    steps: int | None = None,
    epochs: float | None = None,
    trainable: PyTree | Callable[[Any], bool] = eqx.is_inexact_array,
    log_every: int = 100,
    validate: Validator | None = None,
    validate_every: int | None = None,
    mode: Literal["max", "min"] = "max",
    patience: int | None = None,
    store: Store | None = None,
    save_every: float = 60.0,
    log: Log | None = None,
    snapshots: SnapshotStore | None = None,
    on_event: Callable[[Progress], None] | None = None,
    mesh: Mesh | None = None,
) -> FitResult:
    """Minimise the objective for `steps` steps, or `epochs` passes over the data.

    Steps run on the device in chunks of `log_every`; each chunk gives a row of mean metrics to the
    history, to `log` and to `on_event`; the objective's value is in it as `surrogate`, or under the
    objective's `value_name`. Every `validate_every` steps (default: an epoch) and at the end
    `validate(model, key)` is called; after `patience` calls without a better value the run stops.

    With a `store` the run is saved every `save_every` seconds, by a thread while steps go on, at
    the end and on any error, and the same call goes on from there to the same bits as if it had
    never stopped: keys and batches depend on the step alone. `snapshots` get some chains and
    filters at a few chunks, and are written with every checkpoint. Ctrl-C stops the run and returns
    what there is. A step that is not finite raises `Diverged`, which carries the result up to then.

    With a `mesh`, such as `un.device_mesh()`, the rows of the data, of every batch and the chains
    are split over its devices; the model is on each, or its dense weights are split by hidden units
    (`un.device_mesh(units=2)`), also in the result. Where devices belong to several processes, all
    make the same call; process 0 alone writes to the store and the log and tells `on_event`, and
    what depends on a clock is decided there. The result is the same at all, on one device.
    """
    mesh = check_mesh("fit", mesh, model)
    check_listeners("fit", store, log, snapshots, on_event, save_every)
    _check(model, objective, batches, key)
    plan = _Plan(batches, steps, epochs, log_every, validate, validate_every, mode, patience)
    init_key, step_key, validation_key = jax.random.split(key, 3)
    model = jax.tree.map(_as_array, model) if mesh is None else place(mesh, model)
    chosen = trainable_leaves(model, trainable)
    check = block_check(_layout(model, objective)) if batches.transform is None else None
    trainer = Trainer(objective, optimiser, batches, chosen, step_key, mesh, check)
    run = _start(trainer, model, optimiser.init(eqx.filter(model, chosen)), init_key)
    identity = {} if store is None else _identity(objective, optimiser, batches, key, patience)
    saver = Saver(store, save_every, identity, mesh, snapshots)
    run = saver.resume(run)
    log, on_event = (log, on_event) if is_first(mesh) else (None, None)
    if log is not None and store is not None:
        log.truncate_after(run.step)
    run, stopped = _loop(plan, trainer, run, saver, validation_key, log, on_event)
    if run.bad:
        raise Diverged(_advice(plan, run, trainer), _result(run, stopped, mesh))
    return _result(run, stopped, mesh)


def _loop(
    plan: "_Plan",
    trainer: Trainer,
    run: Run,
    saver: Saver,
    validation_key: Key[Array, ""],
    log: Log | None,
    on_event: Callable[[Progress], None] | None,
) -> tuple[Run, str]:
    """The run at its end, and why it ended there; saved whatever happens."""
    stopped, mesh = "", trainer.mesh
    try:
        with held_interrupts(mesh) as interrupted:
            _tell(on_event, run, plan.total, 0.0)
            _snapshot(saver, run, last=False)
            while not (stopped := plan.ended(run)):
                began, before = time.monotonic(), run.step
                after = _chunk(plan, run, trainer, plan.chunk_end(run.step))
                after = plan.judge(after, validation_key, mesh)
                _log(log, before, after)
                run = after
                _snapshot(saver, run, last=bool(plan.ended(run)))
                _tell(on_event, run, plan.total, (run.step - before) / (time.monotonic() - began))
                saver.save_if_due(run)
                if any_process(mesh, interrupted()):
                    stopped = "interrupted"
                    break
    except KeyboardInterrupt:
        stopped = "interrupted"
        saver.leave()
    except BaseException:
        saver.leave()
        raise
    finally:
        trainer.close()
        try:
            saver.save(run)
        finally:
            saver.close()
    return run, stopped


def _log(log: Log | None, before: int, after: Run) -> None:
    """The newest row of the history goes to the log, if steps were made."""
    if log is not None and after.step > before:
        log.append(after.step, {k: v for k, v in after.history[-1].items() if k != "step"})


def _snapshot(saver: Saver, run: Run, last: bool) -> None:
    """A snapshot of the run, where its number is one to keep or the run ends here."""
    number, kept = len(run.history), saver.snapshots
    if kept is None or not (last or kept.wants(number)):
        return
    model, carry = gather(saver.mesh, (run.state.model, run.state.carry))
    if is_first(saver.mesh):
        kept.add(number, run.step, snapshot_of(model, carry))


def _result(run: Run, stopped: str, mesh: Mesh | None) -> FitResult:
    model = gather(mesh, run.state.model)
    return FitResult(
        model=model,
        best_model=model if run.best is None else gather(mesh, run.best_model),
        step=run.step,
        stopped=stopped,
        history=list(run.history),
        best=run.best,
        best_step=run.best_step,
        carry=gather(mesh, run.state.carry),
    )


def _check(model: Any, objective: Objective, batches: Batches, key: Key[Array, ""]) -> None:
    """Refuse data that are no batches, and values that no unit of the model takes."""
    if not isinstance(batches, Batches):
        raise UndirectedError(
            f"fit: batches is a {type(batches).__name__}; pass Batches(data, size)"
        )
    layout = _layout(model, objective)
    if layout is None:
        return
    rows = batches.data
    if isinstance(batches, StreamedBatches):  # the others are checked when they come
        rows = jax.tree.map(lambda source: jnp.asarray(source[: batches.size]), rows)
        rows = rows if batches.transform is None else batches.transform(rows, key)
    elif batches.transform is not None:
        rows = batches.take(rows, jnp.asarray(batches.indices(0, 1)[0]), key)
    check_values(layout, rows)


def _layout(model: Any, objective: Objective) -> Layout | None:
    """The layout of a model that has one; a stack of models has none of its own."""
    return None if isinstance(objective, Ensemble) else getattr(model, "layout", None)


@dataclass(frozen=True)
class _Plan:
    """When a run logs, validates and ends: functions of its step alone."""

    batches: Batches
    steps: int | None
    epochs: float | None
    log_every: int
    validate: Validator | None
    validate_every: int | None
    mode: str
    patience: int | None

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.epochs is None):
            raise UndirectedError(
                f"fit: steps is {self.steps} and epochs {self.epochs}; pass one of them"
            )
        if self.steps is not None:
            check_counts("fit", 0, steps=self.steps)
        if self.mode not in ("max", "min"):
            raise UndirectedError(f"fit: mode is {self.mode!r}; pass 'max' or 'min'")
        for name in ("log_every", "validate_every", "patience"):
            value = getattr(self, name)
            if value is not None:
                check_counts("fit", **{name: value})
        if self.validate is not None and not callable(self.validate):
            raise UndirectedError(
                f"fit: validate is {self.validate!r:.40}; pass a function of (model, key) that "
                "gives a number"
            )
        if self.validate is None and (self.patience is not None or self.validate_every is not None):
            raise UndirectedError(
                "fit: patience and validate_every need a validation value; pass validate="
            )

    @property
    def total(self) -> int:
        """Number of steps of the whole run."""
        return self.batches.steps(self.epochs) if self.epochs is not None else self.steps or 0

    @property
    def every(self) -> int:
        """Number of steps between two validations."""
        return self.validate_every or self.batches.steps(epochs=1)

    def ended(self, run: Run) -> str:
        """Why the run is over; empty while it is not."""
        if run.bad:
            return "not finite"
        if run.step >= self.total:
            return "steps"
        return "patience" if self.patience is not None and run.waited >= self.patience else ""

    def chunk_end(self, step: int) -> int:
        """The end of the chunk that starts at this step."""
        ends = [self.log_every] if self.validate is None else [self.log_every, self.every]
        return min(self.total, *(step - step % every + every for every in ends))

    def judge(self, run: Run, key: Key[Array, ""], mesh: Mesh | None) -> Run:
        """The run with its validation, where one is due."""
        due = run.step % self.every == 0 or run.step == self.total
        if self.validate is None or not due or run.bad:
            return run
        model = gather(mesh, run.state.model)
        value = self.validate(model, jax.random.fold_in(key, run.step))
        if np.ndim(value) or np.asarray(value).dtype.kind not in "iuf":
            raise UndirectedError(
                f"fit: validate gave {value!r:.60}; it must give one number, better if "
                "larger (mode='min': if smaller)"
            )
        return run.judged(agree(mesh, float(value)), self.mode)


def _start(trainer: Trainer, model: Any, memory: Any, key: Key[Array, ""]) -> Run:
    """The run before its first step."""
    state = jax.tree.map(_as_array, trainer.start(model, memory, key))
    return Run(0, state, state.model)


def _chunk(plan: _Plan, run: Run, trainer: Trainer, stop: int) -> Run:
    """The run after the steps up to `stop`, or up to the last good one."""
    if stop == run.step:
        return run
    batches, width = plan.batches, min(plan.log_every, plan.total)
    state, step, metrics, finite = trainer.advance(run.state, run.step, stop, width)
    if bad := not_finite(finite):
        return replace(_chunk(plan, run, trainer, int(step)), bad=bad)
    row = {"step": stop, "epoch": stop * batches.size / batches.rows}
    row |= {name: float(value) for name, value in metrics.items()}
    return replace(run, step=stop, state=state, history=(*run.history, row))


def _tell(on_event: Callable[[Progress], None] | None, run: Run, total: int, rate: float) -> None:
    if on_event is not None:
        on_event(Progress(run.step, total, rate, run.history[-1] if run.history else {}))


def _identity(
    objective: Objective,
    optimiser: Optimiser,
    batches: Batches,
    key: Key[Array, ""],
    patience: int | None,
) -> dict[str, Any]:
    """What must stay the same for a run to go on: a longer run may, one of another kind may not."""
    streamed = isinstance(batches, StreamedBatches)
    return {
        "objective": type(objective).__name__,
        SETTINGS: fingerprint(objective),
        RATE: fingerprint(optimiser),
        "patience": patience,
        "data": data_fingerprint(batches.some_rows() if streamed else batches.data),
        "rows": batches.rows,
        "batch size": batches.size,
        "batch seed": batches.seed,
        "shuffle": batches.shuffle,
        "key": np.asarray(jax.random.key_data(key)).tolist(),
        **(batches.identity if streamed else {}),
    }


def _advice(plan: _Plan, run: Run, trainer: Trainer) -> str:
    """What went wrong and what to do about it."""
    batch = trainer.batch(run.step)
    message = (
        f"fit: {run.bad} became NaN or infinite at step {run.step + 1} of {plan.total}; step "
        f"{run.step} is kept in the result of this error, and in the store where there is one. "
        "Lower the learning rate, or clip the gradient (optax.clip_by_global_norm)"
    )
    numbers = jax.tree.leaves(eqx.filter(batch, eqx.is_inexact_array))
    if any(np.isnan(leaf).any() for leaf in numbers):
        message += (
            ". The batch has missing entries (NaN): Persistent, ContrastiveDivergence and "
            "TwoPhase(positive=...) take them, the other objectives need complete data"
        )
    return message


def _as_array(leaf: Any) -> Any:
    """A NumPy or weakly typed leaf as a plain JAX array: trainable, and compiled for once."""
    if not isinstance(leaf, jax.Array | np.ndarray):
        return leaf
    return jnp.asarray(leaf, jax.dtypes.canonicalize_dtype(leaf.dtype))
