"""`undirected query | sample`: what a fitted model has to say."""

import itertools
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from undirected.cli import console
from undirected.cli.columns import is_plain, names_other_columns, read_by_schema
from undirected.core.columns import Column, Kind, Schema, listed
from undirected.core.errors import BadFile, UndirectedError
from undirected.core.files import check_place
from undirected.core.layout import Domain
from undirected.core.protocols import Model
from undirected.core.table_units import TableUnits, part_of, same_states
from undirected.inference import QueryNetwork
from undirected.io.frames import Frame, check_writable, kind_of, write_frame
from undirected.io.model_files import load_model
from undirected.io.model_record import describe_model
from undirected.io.tables import read_table, write_table
from undirected.learning.column_mixture import ColumnMixture
from undirected.models import ConditionalRBM, FactorGraph, Potts
from undirected.report.images import image_grid, readable_scale
from undirected.tasks import answer_rows
from undirected.tasks.conditional_columns import given_and_asked
from undirected.tasks.network_data import network_schema, network_units
from undirected.tasks.query import check_completion
from undirected.tasks.rows import has_columns
from undirected.tasks.table_model import TableModel
from undirected.tasks.words import ColumnAnswer, asked_cells, filled
from undirected.tasks.yardsticks import Yardstick, load_yardsticks

MOST_SHOWN = 60
"""Answers that are printed where no file is named for them."""


@dataclass(frozen=True)
class Saved:
    """A model from a folder, with what `fit` wrote beside it."""

    model: Any
    names: list[str]
    image: tuple[int, int] | None
    means: Float[Array, " v"] | None
    network: QueryNetwork | None = None
    schema: Schema | None = None
    yardsticks: dict[str, Yardstick] = field(default_factory=dict)
    given: tuple[int, ...] = ()

    @property
    def table(self) -> TableModel:
        """The model with its schema, that of a table of 0 and 1 where it has none."""
        means = None if self.means is None else np.asarray(self.means).tolist()
        return TableModel(self.model, schema_of(self), self.network, self.given, {"means": means})

    @property
    def has_words(self) -> bool:
        """Whether its table has words or units of its own, not 0 and 1 alone."""
        return self.schema is not None and (not self.schema.is_zero_one or bool(self.given))


def open_model(folder: Path) -> Saved:
    """Load a model folder."""
    model, extra = load_model(folder), describe_model(folder)["extra"]
    if isinstance(extra.get("family"), dict):
        raise UndirectedError(
            f"{folder}: a Potts model of an alignment has no table of columns; use `undirected "
            "contacts`, `sample`, `evaluate` or `describe`, or un.load_family in Python"
        )
    if isinstance(model, ConditionalRBM) and extra.get("schema") is not None:
        return _conditional(folder, model, extra)
    if not isinstance(model, Model):
        raise UndirectedError(
            f"{folder}: a {type(model).__name__} gives outputs for features, which a table of its "
            "outputs does not hold; use it from Python, as model.at(features)"
        )
    return saved_with(folder, model, extra)


def _conditional(folder: Path, model: ConditionalRBM, extra: dict[str, Any]) -> Saved:
    """A conditional model with the columns that it is given and those that it answers."""
    schema, given = Schema.from_json(extra["schema"]), extra.get("given")
    if not isinstance(given, list) or not all(type(i) is int for i in given):
        raise _wrong(folder, "given", given, "numbers of columns")
    kinds = TableUnits.of(schema)
    inputs, outputs = given_and_asked(kinds, given)
    wanted = part_of(kinds, outputs).n_units, part_of(kinds, inputs).n_units
    if model.visible_features.shape != wanted:
        raise _wrong(folder, "schema", schema.names, "one with the columns of the model")
    return Saved(model, schema.names, None, None, None, schema, {}, inputs)


def saved_with(folder: Path, model: Any, extra: dict[str, Any]) -> Saved:
    """A model with the notes of its folder, each of the kind that it must be."""
    n = model.layout.n_visible
    schema = _schema(folder, model, extra.get("schema"))
    if schema is None and not extra.get("names") and isinstance(model, FactorGraph):
        schema = network_schema(model.layout)
    names = extra.get("names") or (schema and schema.names) or [f"x{i}" for i in range(n)]
    image, means, query = extra.get("image"), extra.get("means"), extra.get("query")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _wrong(folder, "names", names, "a list of words")
    if schema is None and len(names) != n:
        raise _wrong(folder, "names", names, f"{n} names, one a visible unit")
    if schema is not None and schema.names != names:
        raise _wrong(folder, "schema", schema.names, "one with the names of the columns")
    if image and not (_are(image, int) and len(image) == 2 and image[0] * image[1] == len(names)):
        raise _wrong(folder, "image", image, f"rows and columns of {len(names)} pixels")
    if means is not None and not (_are(means, float) and np.shape(means) == (n,)):
        raise _wrong(folder, "means", means, f"{n} finite numbers")
    if query and not (
        isinstance(query, dict)
        and set(query) == {"layers", "strength"}
        and type(query["layers"]) is int
        and 0 < query["layers"] < 10_000
        and _are([query["strength"]], float)
    ):
        raise _wrong(folder, "query", query, "layers and strength of a query network")
    return Saved(
        model,
        names,
        tuple(image) if image else None,
        None if means is None else jnp.asarray(means, jnp.float32),
        QueryNetwork(model, **query) if query else None,
        schema,
        _yardsticks(folder, extra.get("yardsticks"), n, schema),
    )


def _schema(folder: Path, model: Any, found: Any) -> Schema | None:
    """The schema that was noted, which must be one of this model's columns."""
    if found is None:
        return None
    schema = Schema.from_json(found)
    if has_columns(model):
        suits = TableUnits.of(schema).kinds == model.table.kinds
    elif isinstance(model, FactorGraph) and model.layout.labels is not None:
        suits = network_units(model.layout, schema) is not None
    elif isinstance(model, Potts):
        suits = same_states(TableUnits.of(schema)).n_units == model.layout.n_visible
    else:
        suits = len(schema) == model.layout.n_visible and "category" not in schema.kinds
    if not suits:
        raise _wrong(folder, "schema", schema.names, "one with the columns of the model")
    return schema


def _yardsticks(folder: Path, found: Any, n: int, schema: Schema | None) -> dict[str, Yardstick]:
    """The mixtures that were noted, of the columns that there are."""
    kinds = () if schema is None else TableUnits.of(schema).kinds
    try:
        made = load_yardsticks(found or {}, kinds)
    except (AttributeError, KeyError, TypeError, ValueError, UndirectedError) as error:
        raise _wrong(folder, "yardsticks", found, "mixtures of independent columns") from error
    for one in made.values():
        weights = one.log_weights
        if weights.ndim != 1 or not np.isfinite(weights).all():
            raise _wrong(folder, "yardsticks", found, "finite weights")
        if isinstance(one, ColumnMixture):
            continue  # its parts were looked at
        if one.means.shape != (len(weights), n):
            raise _wrong(folder, "yardsticks", found, f"mixtures of {n} columns")
        if not ((one.means > 0) & (one.means < 1)).all():
            raise _wrong(folder, "yardsticks", found, "means from 0 to 1")
    return made


def _are(values: Any, kind: type) -> bool:
    """Whether these are finite numbers, whole ones where `kind` is int, in a list."""
    kinds = (int,) if kind is int else (int, float)
    return isinstance(values, list | tuple) and all(
        type(value) in kinds and -1e30 < value < 1e30 for value in values
    )


def _wrong(folder: Path, note: str, got: Any, wanted: str) -> BadFile:
    return BadFile(f"{folder}: model.json notes `{note}` as {got!r:.60}; wanted {wanted}")


def query_table(
    folder: Path,
    rows: Path,
    header: bool | None,
    out: Path | None,
    completion: Path | None,
    method: str,
    seed: int,
    js: bool,
    show: bool = False,
) -> None:
    """Answer the missing entries of a table."""
    started = time.monotonic()
    check_writable(*(path for path in (out, completion) if path))
    saved = open_model(folder)
    _check_words(saved, out, completion)
    if completion is not None:
        saved.table.check_joint("query: --completion")
        check_completion("query: --completion", saved.model)
    by_network = method in ("auto", "bp") and saved.network is not None
    values, frame = read_rows(saved, rows, header, grey=by_network and completion is None)
    missing = np.isnan(values)
    _tell_holes(saved, rows, missing, out)
    bar = console.Bar(f"query ({method})", "rows", told=show)
    with bar.running():
        answers, converged = saved.table.answers_and_status(
            values, method=method, seed=seed, progress=bar.teller
        )
    if out is not None:
        _write_answers(saved, out, values, answers, frame)
    if completion is not None:
        best = answer_rows(saved.model, saved.table.rows(values), method="map", seed=seed)
        _write_rows(saved, completion, saved.table.table(best.values))
    if converged is not None and converged < 1:
        console.say(
            f"note: {method} settled for {converged:.1%} of the rows; "
            "for the others check with --method gibbs"
        )
    summary = {
        "answers": _told(answers) if out is None else str(out),
        "completion": None if completion is None else str(completion),
        "rows": len(values),
        "missing": int(missing.sum()),
        "converged": converged,
        "seconds": round(time.monotonic() - started, 2),
    }
    line = f"Wrote {out}: {missing.sum():,} missing entries of {len(values):,} rows answered"
    lines = answer_lines(answers) if out is None else [line]
    console.result(summary, js, lines + ([f"Wrote {completion}"] if completion else []))


def _tell_holes(saved: Saved, rows: Path, missing: np.ndarray, out: Path | None) -> None:
    """Say where nothing is asked for, or something that a conditional model does not answer."""
    if not missing.any():
        what = "there is nothing to answer" if out is None else "the answers are a copy"
        console.say(f"{rows}: no entry is missing; {what}")
    holes = [saved.names[j] for j in saved.given if missing[:, j].any()]
    if holes:
        console.say(
            f"{rows}: {listed(holes)} has missing entries; the model takes it as given, does not "
            "answer it, and reckons with the middle of the column"
        )


KINDS: dict[Domain, Kind] = {Domain.REAL: "real", Domain.NONNEGATIVE: "nonnegative"}


def schema_of(saved: Saved) -> Schema:
    """The schema of a model; where it has none, its units as columns of 0/1 or of numbers."""
    if saved.schema is not None:
        return saved.schema
    blocks = [block for block in saved.model.layout.blocks if block.visible]
    kinds: list[Kind] = [
        KINDS.get(block.domain, "binary") for block in blocks for _ in range(block.size)
    ]
    columns = [
        Column(name, "binary", ("0", "1")) if kind == "binary" else Column(name, kind)
        for name, kind in zip(saved.names, kinds, strict=True)
    ]
    return Schema(tuple(columns))


def answer_lines(answers: list[ColumnAnswer]) -> list[str]:
    """The answers as a small table: row, column, word, how sure, and what else it might be."""
    cells = list(itertools.islice(asked_cells(answers), MOST_SHOWN))
    if not cells:
        return []
    head = ("row", "column", "answer", "sure", "else")
    lines = [head, *((str(row + 1), a.column.name, *a.line(row)) for row, a in cells)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    text = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    more = sum(int(answer.asked.sum()) for answer in answers) - len(cells)
    return text + ([f"... and {more:,} more; --out FILE writes them all"] if more else [])


def _told(answers: list[ColumnAnswer]) -> list[dict[str, Any]]:
    return [
        {"row": row + 1, "column": a.column.name, "answer": a.told(row)}
        for row, a in asked_cells(answers)
    ]


def _write_answers(
    saved: Saved, out: Path, values: np.ndarray, answers: list[ColumnAnswer], frame: Frame | None
) -> None:
    """The table with its holes filled: p(1) for a table of 0 and 1, otherwise words and units."""
    if frame is not None and saved.has_words:
        write_frame(out, filled(frame.cells, answers, len(frame)), saved.schema)
        return
    found = np.stack(
        [np.asarray(a.mean if a.probabilities is None else a.probabilities[:, 1]) for a in answers],
        1,
    )
    numbers = np.where(np.isnan(values), found, values).astype(np.float32)
    if frame is None:
        _write_numbers(out, numbers, saved.names)
    else:
        write_frame(out, {**frame.cells, **dict(zip(saved.names, numbers.T, strict=True))})


def _write_rows(saved: Saved, out: Path, values: np.ndarray) -> None:
    """Rows of a model as a table in its own words and units."""
    if saved.has_words and saved.schema is not None:
        write_frame(out, saved.schema.decode(values), saved.schema)
    else:
        _write_numbers(out, values, saved.names)


def _write_numbers(out: Path, values: np.ndarray, names: list[str]) -> None:
    if out.suffix.lower() in (".csv", ".npy", ".npz"):
        write_table(out, values, names, header=True)
    else:
        write_frame(out, dict(zip(names, values.T, strict=True)))


def _check_words(saved: Saved, *paths: Path | None) -> None:
    """Refuse arrays of numbers for a table of words, before any work is done for them."""
    words = saved.has_words and any(column.is_discrete for column in schema_of(saved))
    for path in paths:
        if path is not None and words and kind_of(path) in (".npy", ".npz"):
            raise UndirectedError(
                f"{path}: the table has words, which arrays of numbers cannot hold; write a .csv "
                "or .parquet file"
            )


def sample_model(
    folder: Path,
    out: Path,
    count: int,
    sweeps: int,
    given: Path | None,
    header: bool | None,
    png: Path | None,
    seed: int,
    js: bool,
    show: bool = False,
) -> None:
    """Write samples of a model, and draw them where they are images."""
    check_writable(out)
    if png is not None:
        check_place(png)
    saved = open_model(folder)
    _check_words(saved, out)
    saved.table.check_joint("sample")
    if png is not None and saved.image is None:
        raise UndirectedError(
            f"sample: {folder} does not say that rows are images; fit with --image ROWSxCOLUMNS"
        )
    row = np.full(len(saved.names), np.nan, np.float32)
    if given is not None:
        values = read_for(saved, given, header, fewer=True)
        if len(values) != 1:
            raise UndirectedError(f"{given}: {len(values)} rows; --given takes a table of one row")
        row = values[0]
    sampler = saved.table.sampler(row)
    bar = console.Bar("sample", "sweeps", told=show)
    options = {"sweeps": sweeps, "sampler": sampler, "progress": bar.teller}
    with bar.running():
        values = saved.table.samples(count, row, seed=seed, **options)
    _write_rows(saved, out, values)
    if png is not None and saved.image is not None:
        wide = max(1, int(min(count, 400) ** 0.5))
        scale = readable_scale(saved.image, wide)
        image_grid(values[:400], saved.image, png, columns=wide, scale=scale)
    summary = {"samples": str(out), "count": count, "png": png and str(png)}
    summary |= {"sampler": sampler.why, "sweeps": None if sampler.draw else sweeps}
    lines = [f"Wrote {out}: {count} samples ({sampler.why})"] + ([f"Wrote {png}"] * bool(png))
    console.result(summary, js, lines)


def read_rows(
    saved: Saved, path: Path, header: bool | None = None, grey: bool = False
) -> tuple[np.ndarray, Frame | None]:
    """Read a table for a model, and give it as it was read too where it may have more columns."""
    if saved.has_words or names_other_columns(path, header, saved.names):
        return read_by_schema(path, schema_of(saved), header)
    return read_for(saved, path, header, grey), None


def read_for(
    saved: Saved,
    path: Path,
    header: bool | None = None,
    grey: bool = False,
    fewer: bool = False,
) -> np.ndarray:
    """Read a table for a model: its columns in the model's order, found by name where named so.

    A table of 0 and 1 that lacks some is refused unless it may have `fewer`.
    """
    others = names_other_columns(path, header, saved.names, fewer)
    if saved.has_words or others or not is_plain(path):
        return read_by_schema(path, schema_of(saved), header)[0]
    blocks = [block for block in saved.model.layout.blocks if block.visible]
    discrete = all(block.domain in (Domain.BINARY, Domain.CATEGORICAL) for block in blocks)
    table = read_table(path, binary=discrete and not grey, grey=grey, header=header)
    if set(table.names) == set(saved.names) and len(table.names) == len(saved.names):
        order = [table.names.index(name) for name in saved.names]
        return table.values[:, order]
    wanted = len(saved.names)
    if table.values.shape[1] != wanted:
        raise UndirectedError(
            f"{path}: {table.values.shape[1]} columns, the model has {wanted} "
            f"({', '.join(saved.names[:4])}{', ...' if wanted > 4 else ''})"
        )
    unknown = [name for name in table.names if name not in saved.names]
    if not all(name == f"x{i}" for i, name in enumerate(table.names)):
        raise UndirectedError(
            f"{path}: the model knows no column '{unknown[0]}'; its columns are "
            f"{', '.join(saved.names[:6])}{', ...' if wanted > 6 else ''}"
        )
    return table.values
