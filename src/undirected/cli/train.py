"""`undirected fit`: from a table of 0/1 (or grey) values to a model folder."""

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from undirected.cli import console
from undirected.cli.query_report import questions, remove_report, write_report
from undirected.core.errors import BadFile, UndirectedError
from undirected.core.files import atomic_write
from undirected.evaluation import pseudo_log_likelihood
from undirected.inference import Exact, QueryNetwork, SumProduct
from undirected.io.checkpoint import Checkpoints
from undirected.io.metrics import MetricsLog
from undirected.io.model_files import save_model
from undirected.io.tables import Table, read_table
from undirected.learning import (
    Batches,
    ContrastiveDivergence,
    FitResult,
    Persistent,
    Progress,
    PseudoLikelihood,
    QueryTraining,
    TwoPhase,
    fit,
    query_losses,
)
from undirected.models import RBM, Ising
from undirected.sampling import BlockGibbs, Gibbs

METHODS = ("pcd", "cd", "pl", "bp", "exact", "query-training")
LAYERS = 10
"""Sweeps of belief propagation that query training learns through."""
BP_ROUNDS = 30
MISSING = -1
LEAST_VALID = 5
"""Where fewer rows would be held out, none are."""


@dataclass(frozen=True)
class Settings:
    """The options of a fit; None or "auto" is filled in from the table."""

    model: str = "rbm"
    method: str = "auto"
    hidden: int | None = None
    epochs: float | None = None
    batch: int | None = None
    learning_rate: float = 2e-3
    validation: float = 0.1
    patience: int | None = None
    image: str | None = None
    seed: int = 0


def fit_table(
    path: Path, header: bool | None, out: Path, settings: Settings, fresh: bool, as_json: bool
) -> None:
    """Fit a model to a table and write its folder."""
    started = time.monotonic()
    grey = settings.method == "query-training"
    table = read_table(path, binary=not grey, grey=grey, header=header)
    settings = choose(settings, table.values)
    train, valid = split(table.values, settings)
    if settings.patience is not None and not len(valid):
        raise UndirectedError(
            f"fit: patience is {settings.patience}, but no rows are held out to judge by, because "
            f"{settings.validation:g} of the complete rows is fewer than {LEAST_VALID}; raise "
            "--validation, or leave --patience out"
        )
    work = _prepare(out, settings, table, fresh)
    console.say(
        f"{path}: {len(table.values):,} rows of {len(table.names)} columns, "
        f"{np.isnan(table.values).mean():.1%} missing; {describe(settings)}"
    )
    result = train_model(train, valid, settings, work)
    if result.stopped == "interrupted":
        raise UndirectedError(
            f"fit: interrupted at step {result.step}; give the same command again to go on"
        )
    extra = {
        "names": table.names,
        "image": image_shape(settings.image, len(table.names)),
        "means": column_means(train).tolist(),
        "settings": asdict(settings),
    }
    model, scale, name = result.best_model, 1.0, "pseudo_log_likelihood"
    report = None
    if isinstance(model, QueryNetwork):
        if len(valid):
            report = write_report(out, model, train, valid, table.names, settings.seed)
        extra["query"] = {"layers": model.layers, "strength": float(model.strength)}
        model, scale, name = model.model, -1.0, "bits_per_target"
    best = None if result.best is None else scale * result.best
    if report is None:
        remove_report(out)
    save_model(out, model, extra)
    shutil.rmtree(work / "checkpoints", ignore_errors=True)
    summary = {
        "model": str(out),
        "rows": len(table.values),
        "columns": len(table.names),
        "steps": result.step,
        "stopped": result.stopped,
        f"validation_{name}": best,
        "report": report and str(report),
        "seconds": round(time.monotonic() - started, 2),
        "settings": asdict(settings),
    }
    words = name.replace("_", " ").replace("pseudo log ", "pseudo-log-")
    score = "" if best is None else f", validation {words} {best:.3f}"
    line = f"Wrote {out} after {result.step:,} steps in {summary['seconds']:.0f} s{score}"
    console.result(summary, as_json, [line] + ([f"Wrote {report}"] if report else []))


def choose(settings: Settings, values: np.ndarray) -> Settings:
    """Fill in what the user left open from the shape of the table, and check the rest."""
    rows, columns = values.shape
    missing = bool(np.isnan(values).any())
    if settings.model not in ("rbm", "ising"):
        raise UndirectedError(f"fit: model '{settings.model}' is unknown; pass rbm or ising")
    if settings.method not in ("auto", *METHODS):
        raise UndirectedError(
            f"fit: method '{settings.method}' is unknown; pass one of {', '.join(METHODS)}"
        )
    if rows < 2:
        raise UndirectedError(f"fit: the table has {rows} row; at least 2 are needed")
    if not 0 <= settings.validation < 1:
        raise UndirectedError(
            f"fit: validation is {settings.validation}; pass a share of the rows from 0 up to 1"
        )
    for name in ("hidden", "epochs", "batch", "patience", "learning_rate"):
        value = getattr(settings, name)
        if value is not None and not 0 < value < np.inf:
            raise UndirectedError(f"fit: {name.replace('_', ' ')} is {value}; pass a number over 0")
    if settings.model == "ising" and settings.hidden is not None:
        raise UndirectedError("fit: an Ising model has no hidden units; leave --hidden out")
    image_shape(settings.image, columns)
    method = settings.method
    if method == "auto":
        method = "pcd" if settings.model == "rbm" or missing else "pl"
    if missing and method == "pl":
        raise UndirectedError("fit: pl needs complete rows; with missing entries use pcd")
    batch = settings.batch or int(np.clip(rows // 20, 10, 100))
    epochs = settings.epochs or float(np.clip(4000 * batch / rows, 3, 200).round())
    hidden = settings.hidden or int(np.clip(columns, 8, 256))
    if settings.model == "ising":
        hidden = None
    return replace(settings, method=method, batch=min(batch, rows), epochs=epochs, hidden=hidden)


def describe(settings: Settings) -> str:
    """The settings in words."""
    units = f" with {settings.hidden} hidden units" if settings.hidden else ""
    return (
        f"{settings.model}{units} by {settings.method}, {settings.epochs:g} epochs in batches of "
        f"{settings.batch}"
    )


def split(values: np.ndarray, settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Training rows, and complete validation rows (none where there would be too few)."""
    complete = np.flatnonzero(~np.isnan(values).any(1))
    count = min(int(len(complete) * settings.validation), 1000)
    if count < LEAST_VALID or len(values) - count < 2:
        return values, values[:0]
    held = np.random.default_rng(settings.seed).choice(complete, count, replace=False)
    keep = np.ones(len(values), bool)
    keep[held] = False
    return values[keep], values[held]


def train_model(
    train: np.ndarray, valid: np.ndarray, settings: Settings, work: Path, title: str = "fit"
) -> FitResult:
    """Fit with a progress bar; checkpoints and metrics go to the folder `work`."""
    assert settings.batch
    assert settings.epochs
    key = jax.random.key(settings.seed)
    model = new_model(train, settings)
    whole = np.where(np.isnan(train), MISSING, train)
    coded = whole.astype(np.int8)
    if (coded != whole).any():
        coded = whole.astype(np.float32)
    batches = Batches(coded, settings.batch, settings.seed, transform=_decode)
    steps = batches.steps(settings.epochs)
    slope = optax.linear_schedule(settings.learning_rate, 0.0, steps // 2, steps - steps // 2)
    bar = console.Bar(title)

    def show(progress: Progress) -> None:
        shown = [f"{k} {v:.3f}" for k, v in progress.metrics.items() if k in ("validation",)]
        bar.update(progress.step, progress.total, progress.rate, " ".join(shown))

    with bar.running():
        return fit(
            model,
            objective(settings),
            optax.adam(slope),
            batches,
            key,
            steps=steps,
            log_every=steps_at_once(settings, train.shape[1]),
            validate=validator(valid, settings),
            validate_every=max(1, steps // 10) if len(valid) else None,
            patience=settings.patience,
            store=Checkpoints(work / "checkpoints"),
            save_every=15.0,
            log=MetricsLog(work / "metrics.jsonl"),
            on_event=show,
        )


def steps_at_once(settings: Settings, columns: int) -> int:
    """Steps between two looks at Ctrl-C and the clock: a second or two on a slow machine."""
    assert settings.batch
    sweeps = {"query-training": 3 * LAYERS, "bp": BP_ROUNDS}.get(settings.method, 1)
    messages = settings.batch * columns * (settings.hidden or columns) * sweeps
    return int(np.clip(10**9 // messages, 1, 100))


def new_model(train: np.ndarray, settings: Settings) -> Any:
    """The model before its first step: biases at the base rates of the columns."""
    means = jnp.asarray(column_means(train))
    if settings.model == "ising":
        model = Ising.create(train.shape[1]).independent(means)
    else:
        assert settings.hidden
        key = jax.random.fold_in(jax.random.key(settings.seed), 1)
        model = RBM.create(train.shape[1], settings.hidden, key, means=means)
    if settings.method == "query-training":
        return QueryNetwork(model, jnp.asarray(1.0), LAYERS)
    return model


def validator(valid: np.ndarray, settings: Settings) -> Callable[[Any, Any], float] | None:
    """What tells the best step, higher is better: pseudo-likelihood, or bits of random queries."""
    if not len(valid):
        return None
    if settings.method != "query-training":
        return lambda model, _: pseudo_log_likelihood(model, valid).mean
    targets = jnp.asarray(questions(valid, settings.seed))
    ask = eqx.filter_jit(lambda model, x: query_losses(model, x, targets))

    def bits(model: Any, _: Any) -> float:
        totals, counts = ask(model, jnp.asarray(valid, jnp.float32))
        return -float(totals.sum() / counts.sum() / np.log(2))

    return bits


def objective(settings: Settings) -> Any:
    """The objective of a method name."""
    kernel = BlockGibbs() if settings.model == "rbm" else Gibbs()
    match settings.method:
        case "pcd":
            return Persistent(kernel, chains=100)
        case "cd":
            return ContrastiveDivergence(kernel)
        case "pl":
            return PseudoLikelihood()
        case "query-training":
            return QueryTraining(reduction="mean")
        case "bp":
            bp = SumProduct(iterations=BP_ROUNDS, tolerance=1e-3, damping=0.2)
            return TwoPhase(negative=bp, positive=bp)
    return TwoPhase(negative=Exact(), positive=Exact())


def column_means(values: np.ndarray) -> np.ndarray:
    """Share of ones among the observed entries of each column, drawn a little towards 1/2."""
    seen = (~np.isnan(values)).sum(0)
    return ((np.nansum(values, 0) + 1.0) / (seen + 2.0)).astype(np.float32)


def image_shape(text: str | None, columns: int) -> tuple[int, int] | None:
    """Rows and columns of an image from a text such as 28x28."""
    if text is None:
        return None
    parts = text.lower().split("x")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):
        raise UndirectedError(f"image: '{text}' is not a shape; pass rows x columns, as in 28x28")
    shape = int(parts[0]), int(parts[1])
    if shape[0] * shape[1] != columns:
        raise UndirectedError(
            f"image: {text} has {shape[0] * shape[1]} pixels, the table has {columns} columns"
        )
    return shape


def _prepare(out: Path, settings: Settings, table: Table, fresh: bool) -> Path:
    """The folder of a run in progress; refuse to mix two different runs."""
    work = Path(out) / "training"
    values = hashlib.sha256(table.values.tobytes()).hexdigest()
    plan = {"settings": asdict(settings), "values": values, "names": table.names}
    plan_file = work / "plan.json"
    if work.exists() and not plan_file.is_file() and any(work.glob("[!.]*")):
        raise UndirectedError(
            f"fit: {work} holds files that are not of a fit; move them away or choose another --out"
        )
    if fresh and work.exists():
        shutil.rmtree(work)
    if plan_file.is_file() and (work / "checkpoints").is_dir():
        if _read_plan(plan_file) != plan:
            raise UndirectedError(
                f"fit: {out} holds an interrupted run with other settings or other data; give its "
                "command again to go on, add --fresh to start anew, or choose another --out"
            )
        console.say(f"{out}: going on with the interrupted run")
        return work
    if work.exists():
        shutil.rmtree(work)
    with atomic_write(plan_file) as temporary:
        temporary.write_text(json.dumps(plan), encoding="utf-8")
    return work


def _read_plan(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadFile(
            f"{path}: damaged, so that the interrupted run cannot go on; add --fresh to start anew"
        ) from error


def _decode(batch: jax.Array, key: jax.Array) -> jax.Array:
    return jnp.where(batch == MISSING, jnp.nan, batch.astype(jnp.float32))
