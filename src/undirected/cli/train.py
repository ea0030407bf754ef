"""`undirected fit`: from a table to a model folder."""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import Mesh

from undirected.cli import console
from undirected.cli.columns import Wishes, names_in, read_to_fit, tell_outliers, tell_schema
from undirected.cli.devices import mesh_of
from undirected.cli.fit_report import write_fit_report
from undirected.cli.streams import identity_of, names_of, rows_to_stream
from undirected.core.agreement import by_first, is_first
from undirected.core.columns import Schema
from undirected.core.errors import BadFile, UndirectedError
from undirected.core.files import atomic_write, locked
from undirected.core.table_units import TableUnits
from undirected.io.checkpoint import Checkpoints
from undirected.io.infer import zero_one_schema
from undirected.io.metrics import MetricsLog
from undirected.io.model_files import save_model
from undirected.io.snapshots import Snapshots
from undirected.io.tables import Table
from undirected.learning import Progress
from undirected.tasks import Settings, Trained, train_table
from undirected.tasks.fit_table import (
    check_given,
    columns_of,
    given_columns,
    settings_for,
    table_model,
)
from undirected.tasks.train_stream import choose_stream, sample_rows, train_stream
from undirected.tasks.train_table import choose_for, score_name, score_of, split
from undirected.tasks.yardsticks import (
    Yardstick,
    column_yardsticks,
    dump_yardsticks,
    lines_of,
    make_yardsticks,
    scores_beside,
)


def fit_table(
    path: Path,
    wishes: Wishes,
    out: Path,
    settings: Settings,
    fresh: bool,
    as_json: bool,
    devices: str | None = None,
    stream: bool | None = None,
) -> None:
    """Fit a model to a table and write its folder; of several processes the first writes."""
    mesh = mesh_of(devices)
    if wishes.given and settings.model == "auto":
        settings = replace(settings, model="conditional")
    check_given("fit", settings, wishes.given or ())
    source = rows_to_stream(path, stream) if wishes.are_plain else None
    if source is None:
        job = _read_job(path, wishes, out, settings)
    else:
        job = _stream_job(path, source, wishes, out, settings)
    settings = job.settings
    image_shape(settings.image, len(job.table.names))
    console.say(
        f"{path}: {job.rows:,} rows of {_columns(len(job.table.names))}, "
        f"{_holes(job.table.values)} missing; {describe(settings)}"
    )
    tell_schema(job.schema, job.rows)
    tell_outliers(job.schema, job.table.values)
    with ExitStack() as held:
        by_first(mesh, lambda: held.enter_context(locked(out, "fitting a model")))
        by_first(mesh, lambda: _prepare(job, fresh))
        _fit(job, as_json, mesh)


def _columns(count: int) -> str:
    return f"{count} column{'s' * (count != 1)}"


def _read_job(path: Path, wishes: Wishes, out: Path, settings: Settings) -> "Job":
    """The job of a table in memory."""
    grey = settings.method == "query-training"
    table, schema = read_to_fit(path, wishes, grey, settings.model)
    given = given_columns(names_in(wishes.given), schema)
    settings = settings_for(settings, schema)
    settings = choose_for(settings, columns_of(settings, schema), table.values)
    values = hashlib.sha256(table.values.tobytes()).hexdigest()
    return Job(table, schema, given, out, settings, len(table.values), values)


def _stream_job(path: Path, source: Any, wishes: Wishes, out: Path, settings: Settings) -> "Job":
    """The job of a table that is read as it is needed."""
    console.say(f"{path}: read as it is needed; a sample of its rows chooses the settings")
    sample, rows = sample_rows(source, settings.seed), source.shape[0]
    table = Table(sample, names_of(source))
    schema = zero_one_schema(sample, table.names, wishes.label)
    settings = choose_stream(settings, rows, sample)
    return Job(table, schema, (), out, settings, rows, identity_of(path), source)


@dataclass(frozen=True)
class Job:
    """What is to be fitted; of a `source` that is streamed the table is a sample.

    `values` names the contents of the table, so that no run goes on with others.
    """

    table: Table
    schema: Schema
    given: tuple[int, ...]
    out: Path
    settings: Settings
    rows: int
    values: str
    source: Any = None

    def train(self, work: Path, mesh: Mesh | None) -> Trained:
        """Learn, with a progress bar."""
        if self.source is not None:
            with _bar("fit", self.settings, self.table.values) as show:
                return train_stream(
                    self.source, self.settings, **_kept(work, mesh), on_event=show, mesh=mesh
                )
        columns = columns_of(self.settings, self.schema)
        return train_with_bar(
            self.table.values, self.settings, work, columns=columns, given=self.given, mesh=mesh
        )


def _fit(job: Job, as_json: bool, mesh: Mesh | None) -> None:
    """Train, and write the model, its report and the summary."""
    table, schema, given, out, settings = job.table, job.schema, job.given, job.out, job.settings
    started, work = time.monotonic(), out / "training"
    image = image_shape(settings.image, len(table.names))
    trained = job.train(work, mesh)
    result = trained.result
    if result.stopped == "interrupted":
        raise console.Interrupted(
            f"fit: interrupted at step {result.step}; give the same command again to go on"
        )
    if not is_first(mesh):
        return
    fitted = table_model(trained, schema, given)
    yardsticks = _yardsticks(trained, columns_of(settings, schema))
    score, best = score_of(trained)
    beside = scores_beside(score, yardsticks, trained.valid, settings.seed)
    extra = {**fitted.notes, "names": table.names, "image": image, "schema": schema.to_json()}
    extra["rows"] = job.rows
    if yardsticks:
        extra["yardsticks"] = dump_yardsticks(yardsticks)
    summary = {
        "model": str(out),
        "rows": job.rows,
        "columns": len(table.names),
        "steps": result.step,
        "stopped": result.stopped,
        f"validation_{score}": best,
        "beside": beside,
    }
    save_model(out, fitted.model, extra)
    shutil.rmtree(work / "checkpoints", ignore_errors=True)
    report = write_fit_report(out, trained, fitted, summary | {"settings": asdict(settings)}, image)
    summary |= {
        "report": report and str(report),
        "seconds": round(time.monotonic() - started, 2),
        "settings": asdict(settings),
    }
    told = "" if best is None else f", validation {console.score_in_words(score)} {best:.3f}"
    line = f"Wrote {out} after {result.step:,} steps in {summary['seconds']:.0f} s{told}"
    more = [f"Wrote {report}"] if report else []
    console.result(summary, as_json, [line, *lines_of(beside), *more])


def train_with_bar(
    values: np.ndarray,
    settings: Settings,
    work: Path,
    title: str = "fit",
    columns: Schema | None = None,
    given: tuple[int, ...] = (),
    mesh: Mesh | None = None,
) -> Trained:
    """Fit with a progress bar; checkpoints and metrics go to the folder `work`."""
    options = {"columns": columns, "given": given, "mesh": mesh, **_kept(work, mesh)}
    with _bar(title, settings, split(values, settings)[1]) as show:
        return train_table(values, settings, on_event=show, **options)


def _yardsticks(trained: Trained, schema: Schema | None) -> dict[str, Yardstick]:
    """Simple models of the same rows; none beside a conditional model, which has no joint score."""
    if trained.mixture is not None:
        return make_yardsticks(trained.train, trained.mixture)
    if schema is None or trained.settings.model == "conditional":
        return {}
    return column_yardsticks(trained.train, trained.valid, TableUnits.of(schema).kinds)


def _kept(work: Path, mesh: Mesh | None) -> dict[str, Any]:
    """Where checkpoints, metrics and snapshots of a run go."""
    log = MetricsLog(work / "metrics.jsonl") if is_first(mesh) else None
    snapshots = Snapshots(work / "snapshots.safetensors")
    return {"store": Checkpoints(work / "checkpoints"), "log": log, "snapshots": snapshots}


@contextmanager
def _bar(title: str, settings: Settings, valid: np.ndarray) -> Iterator[Callable[[Progress], None]]:
    """What shows the progress of a run while the block runs, with the score of held-out rows."""
    bar = console.Bar(title)
    name, sign = score_name(settings, valid)

    def show(progress: Progress) -> None:
        score = progress.metrics.get("validation")
        told = "" if score is None else f"{console.score_in_words(name)} {sign * score:.3f}"
        bar.update(progress.step, progress.total, progress.rate, told)

    with bar.running():
        yield show


def _holes(values: np.ndarray) -> str:
    share = float(np.isnan(values).mean())
    return f"{share:.1%}" if share >= 0.001 else "under 0.1%" if share else "none"


def describe(settings: Settings) -> str:
    """The settings in words."""
    units = f" with {settings.hidden} hidden units" if settings.hidden else ""
    if settings.model == "mixture-rbm":
        units += f" on a mixture of up to {settings.components}"
    schedule = ""
    if settings.epochs:
        schedule = f", {settings.epochs:g} epochs in batches of {settings.batch}"
    return f"{settings.model}{units} by {settings.method}{schedule}"


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


def _prepare(job: Job, fresh: bool) -> Path:
    """The folder of a run in progress; refuse to mix two runs, or to lose a model of other data."""
    out, names = job.out, job.table.names
    work = Path(out) / "training"
    plan = {"settings": asdict(job.settings), "values": job.values, "names": names}
    if not job.schema.is_zero_one:
        plan["schema"] = job.schema.to_json()
    if job.given:
        plan["given"] = list(job.given)
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
    if (Path(out) / "model.json").exists() and not fresh:
        _check_same_data(out, plan_file, plan)
    if work.exists():
        shutil.rmtree(work)
    with atomic_write(plan_file) as temporary:
        temporary.write_text(json.dumps(plan), encoding="utf-8")
    return work


def _check_same_data(out: Path, plan_file: Path, plan: dict[str, Any]) -> None:
    """Refuse to replace a finished model of other data."""
    old = _read_plan(plan_file) if plan_file.is_file() else {}
    old = old if isinstance(old, dict) else {}
    if any(old.get(part) != plan.get(part) for part in ("values", "names", "schema")):
        raise UndirectedError(
            f"fit: {out} holds a model of other data; add --fresh to replace it, or choose another "
            "--out"
        )


def _read_plan(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadFile(
            f"{path}: damaged, so that the interrupted run cannot go on; add --fresh to start anew"
        ) from error
