"""`undirected fit`: from a table to a model folder."""

import hashlib
import json
import shutil
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import Mesh

from undirected.cli import console
from undirected.cli.choices import check_choices
from undirected.cli.columns import Wishes, given_columns, read_to_fit, tell_schema
from undirected.cli.devices import mesh_of
from undirected.cli.fit_report import in_words, write_fit_report
from undirected.core.columns import Schema
from undirected.core.errors import BadFile, UndirectedError
from undirected.core.files import atomic_write, locked
from undirected.core.mesh import by_first, is_first
from undirected.io.checkpoint import Checkpoints
from undirected.io.metrics import MetricsLog
from undirected.io.model_files import save_model
from undirected.io.tables import Table
from undirected.learning import Progress
from undirected.tasks import Settings, Trained, train_table
from undirected.tasks.table_model import columns_of, settings_for, table_model
from undirected.tasks.train_table import choose_for, score_name
from undirected.tasks.yardsticks import (
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
) -> None:
    """Fit a model to a table and write its folder; of several processes the first writes."""
    check_choices(settings)
    mesh = mesh_of(devices)
    _check_given(settings, wishes)
    grey = settings.method == "query-training"
    table, schema = read_to_fit(path, wishes, grey, settings.model)
    given = given_columns(wishes.given, schema)
    settings = settings_for(settings, schema)
    columns = columns_of(settings, schema)
    settings = choose_for(settings, columns, table.values)
    image_shape(settings.image, len(table.names))
    console.say(
        f"{path}: {len(table.values):,} rows of {len(table.names)} columns, "
        f"{np.isnan(table.values).mean():.1%} missing; {describe(settings)}"
    )
    tell_schema(schema, len(table.values))
    with ExitStack() as held:
        by_first(mesh, lambda: held.enter_context(locked(out, "fitting a model")))
        by_first(mesh, lambda: _prepare(out, settings, table, schema, given, fresh))
        _fit(table, schema, given, out, settings, as_json, mesh)


def _fit(
    table: Table,
    schema: Schema,
    given: tuple[int, ...],
    out: Path,
    settings: Settings,
    as_json: bool,
    mesh: Mesh | None,
) -> None:
    """Train, and write the model, its report and the summary."""
    started, work = time.monotonic(), out / "training"
    image = image_shape(settings.image, len(table.names))
    columns = columns_of(settings, schema)
    trained = train_with_bar(table.values, settings, work, columns=columns, given=given, mesh=mesh)
    result = trained.result
    if result.stopped == "interrupted":
        raise console.Interrupted(
            f"fit: interrupted at step {result.step}; give the same command again to go on"
        )
    if not is_first(mesh):
        return
    fitted = table_model(trained, schema, given)
    yardsticks = make_yardsticks(trained.train, trained.mixture) if trained.mixture else {}
    score, best = _score(trained)
    beside = scores_beside(score, yardsticks, trained.valid, settings.seed)
    extra = {"names": table.names, "image": image, **fitted.notes}
    if yardsticks:
        extra["yardsticks"] = dump_yardsticks(yardsticks)
    if not schema.is_zero_one or schema.label or columns is not None:
        extra["schema"] = schema.to_json()
    summary = {
        "model": str(out),
        "rows": len(table.values),
        "columns": len(table.names),
        "steps": result.step,
        "stopped": result.stopped,
        f"validation_{score}": best,
        "beside": beside,
    }
    extra |= {"rows": summary["rows"], "scores": {f"validation_{score}": best}}
    save_model(out, fitted.model, extra)
    shutil.rmtree(work / "checkpoints", ignore_errors=True)
    report = write_fit_report(out, trained, fitted, summary | {"settings": asdict(settings)}, image)
    summary |= {
        "report": report and str(report),
        "seconds": round(time.monotonic() - started, 2),
        "settings": asdict(settings),
    }
    told = "" if best is None else f", validation {in_words(score)} {best:.3f}"
    line = f"Wrote {out} after {result.step:,} steps in {summary['seconds']:.0f} s{told}"
    more = [f"Wrote {report}"] if report else []
    console.result(summary, as_json, [line, *lines_of(beside), *more])


def _score(trained: Trained) -> tuple[str, float | None]:
    """The name and the value of the score by which the best step was chosen."""
    name, sign = score_name(trained.settings, trained.valid)
    return name, None if trained.result.best is None else sign * trained.result.best


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
    bar = console.Bar(title)

    def show(progress: Progress) -> None:
        shown = [f"{k} {v:.3f}" for k, v in progress.metrics.items() if k in ("validation",)]
        bar.update(progress.step, progress.total, progress.rate, " ".join(shown))

    with bar.running():
        return train_table(
            values,
            settings,
            columns=columns,
            given=given,
            store=Checkpoints(work / "checkpoints"),
            log=MetricsLog(work / "metrics.jsonl") if is_first(mesh) else None,
            on_event=show,
            mesh=mesh,
        )


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


def _check_given(settings: Settings, wishes: Wishes) -> None:
    """A conditional model, and no other, is told what it takes as known."""
    if settings.model == "conditional" and not wishes.given:
        raise UndirectedError(
            "fit: a conditional model needs to know what is given; name columns, as in --given a,b"
        )
    if wishes.given and settings.model != "conditional":
        raise UndirectedError("fit: --given is for --model conditional; leave it out")


def _prepare(
    out: Path,
    settings: Settings,
    table: Table,
    schema: Schema,
    given: tuple[int, ...],
    fresh: bool,
) -> Path:
    """The folder of a run in progress; refuse to mix two runs, or to lose a model of other data."""
    work = Path(out) / "training"
    values = hashlib.sha256(table.values.tobytes()).hexdigest()
    plan = {"settings": asdict(settings), "values": values, "names": table.names}
    if not schema.is_zero_one:
        plan["schema"] = schema.to_json()
    if given:
        plan["given"] = list(given)
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
