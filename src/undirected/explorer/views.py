"""What a page is told of a model: which view, the columns in their own words, rows to load."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from undirected.core.columns import Column, Schema
from undirected.core.errors import BadFile, UndirectedError
from undirected.core.layout import Block, Domain, Layout
from undirected.core.potentials import Potentials, lowered
from undirected.explorer.film import film_of
from undirected.explorer.payload import harmonium, network
from undirected.io.frames import as_frame
from undirected.io.metrics import read as read_metrics
from undirected.io.model_files import load_model
from undirected.io.model_record import describe_model
from undirected.io.tables import read_table
from undirected.models import ConditionalRBM, FactorGraph
from undirected.tasks import read_network
from undirected.tasks.dependences import strongest_dependences
from undirected.tasks.files import as_tables
from undirected.tasks.rows import has_columns
from undirected.tasks.table_model import TableModel

MOST_ROWS = 60
"""Rows of a table that a page keeps."""
MOST_PAIRS = 24
MOST_COLUMNS = 400
MOST_STEPS = 300
"""Points of a curve of learning."""


class Subject(NamedTuple):
    """A model with what is known of its columns."""

    model: Any
    schema: Schema | None
    image: tuple[int, int] | None
    name: str
    folder: Path | None = None


def payload_of(
    model: Any,
    *,
    rows: Any = None,
    image: tuple[int, int] | None = None,
    title: str | None = None,
    body: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What a page needs, as plain JSON; `body` stands for a model whose weights stay elsewhere."""
    subject = model if isinstance(model, Subject) else subject_of(model, image)
    if isinstance(subject.model, ConditionalRBM):
        raise UndirectedError(
            "explore: a conditional model has no distribution of rows; use `undirected query`"
        )
    p = lowered("explore", subject.model)
    layered = body or harmonium(p)
    if layered is None and p.layout.is_continuous.any():
        raise UndirectedError(
            f"explore: a {type(subject.model).__name__} couples real or nonnegative units among "
            "themselves, which a page does not take; use un.query"
        )
    told = layered or network(as_tables(p))
    view = _view(subject, p, layered is not None)
    listed = _listed(subject, p, layered is not None)
    columns = _columns(subject, listed)
    return {
        "view": view,
        "title": title or _title(subject),
        "model": told,
        "small": _small(subject, p, told),
        "image": list(subject.image) if view == "image" and subject.image else None,
        "columns": [] if view == "image" else columns,
        "label": subject.schema.label if subject.schema else None,
        "rows": _rows(subject, rows, len(columns)),
        "couplings": _dependences(subject, listed) if view == "table" else [],
        "history": history_of(subject.folder) if subject.folder else {},
        "film": _film(subject, p, layered is not None),
    }


def subject_of(model: Any, image: tuple[int, int] | None) -> Subject:
    """The model of a folder or file, of a `TableModel`, or itself."""
    if isinstance(model, TableModel):
        kept = model.notes.get("image")
        return Subject(model.model, model.schema, image or _pair(kept), "Table")
    if not isinstance(model, str | Path):
        return Subject(model, None, image, type(model).__name__)
    path = Path(model)
    if path.is_file():
        return Subject(read_network(path), None, None, path.name)
    found, extra = load_model(path), describe_model(path)["extra"]
    kept, schema = extra.get("image"), None
    if extra.get("schema") is not None:
        schema = Schema.from_json(extra["schema"])
    elif extra.get("names"):
        names = extra["names"]
        if not isinstance(names, list) or len(names) != found.layout.n_visible:
            raise BadFile(f"{path}: its names are not those of {found.layout.n_visible} columns")
        schema = Schema(tuple(Column(str(name), "binary", ("0", "1")) for name in names))
    return Subject(found, schema, image or _pair(kept), path.resolve().name, path)


def _pair(found: Any) -> tuple[int, int] | None:
    return (int(found[0]), int(found[1])) if found else None


def _view(subject: Subject, p: Potentials, layered: bool) -> str:
    visible = [block for block in p.layout.blocks if block.visible]
    if subject.image:
        pixels = subject.image[0] * subject.image[1]
        count = sum(block.variables for block in visible)
        binary = all(block.domain is Domain.BINARY for block in visible)
        if layered and binary and pixels == count:
            return "image"
        if pixels != count:
            raise UndirectedError(
                f"explore: image is {subject.image[0]}x{subject.image[1]}, {pixels} pixels; the "
                f"model has {count} visible variables"
            )
    if not layered and (subject.schema is None or isinstance(subject.model, FactorGraph)):
        return "network"
    return "table"


def _columns(subject: Subject, listed: Sequence[Column]) -> list[dict[str, Any]]:
    """Every column with its words, and the number of its variable in the payload."""
    place = np.arange(len(listed))
    if subject.schema is not None and has_columns(subject.model):
        place = np.argsort(subject.model.table.order)
    if len(listed) > MOST_COLUMNS and not subject.image:
        raise UndirectedError(
            f"explore: the model has {len(listed)} columns; a page shows up to {MOST_COLUMNS}: "
            "use `undirected query`"
        )
    return [
        {
            "name": column.name,
            "kind": column.kind,
            "states": list(column.states),
            "mean": column.mean,
            "scale": column.scale,
            "decimals": column.decimals,
            "variable": int(place[i]),
        }
        for i, column in enumerate(listed)
    ]


def _listed(subject: Subject, p: Potentials, layered: bool) -> Sequence[Column]:
    """The columns in the order of the page."""
    if subject.schema is not None:
        return subject.schema.columns
    return _unnamed(p.layout, layered)


def _unnamed(layout: Layout, layered: bool) -> list[Column]:
    """Columns of a model that came without names; those of a network are in the user's order."""
    if layered:
        blocks = [block for block in layout.blocks if block.visible]
        each = [(b.domain, b.states) for b in blocks for _ in range(b.variables)]
        return [_column(f"x{i}", domain, states) for i, (domain, states) in enumerate(each)]
    return unnamed_columns(layout)


def unnamed_columns(layout: Layout) -> list[Column]:
    """The variables of a network in the user's order, by his names where he gave any."""
    labels, found = layout.labels, []
    for number, v in enumerate(layout.order):
        states = int(layout.variables.states[v])
        name = str(number) if labels is None else str(labels.names[v])
        words = None if labels is None else labels.states[v]
        kind = "binary" if states == 2 else "category"
        words = tuple(map(str, words or range(states)))
        found.append(Column(name, kind, words) if states > 1 else _alone(name))
    return found


def _alone(name: str) -> Column:
    """A variable of one state, which has nothing to be asked about."""
    return Column(name, "binary", ("0", "never"))


def _column(name: str, domain: Domain, states: int) -> Column:
    if domain is Domain.BINARY:
        return Column(name, "binary", ("0", "1"))
    if domain is Domain.CATEGORICAL:
        return Column(name, "category", tuple(map(str, range(states))))
    return Column(name, "real" if domain is Domain.REAL else "nonnegative")


def _rows(subject: Subject, rows: Any, count: int) -> list[list[float | None]]:
    """Rows to load, one cell a column; None is missing."""
    if rows is None:
        return []
    if subject.schema is not None and not _is_plain(subject.schema):
        values = TableModel(subject.model, subject.schema).encode(as_frame(rows))
    elif isinstance(rows, str | Path):
        values = read_table(rows).values
    else:
        values = np.asarray(rows, np.float32)
    if values.ndim != 2 or values.shape[1] != count:
        raise UndirectedError(
            f"explore: rows have shape {values.shape}; pass (rows, {count}), one cell a column"
        )
    if subject.image or (subject.schema is not None and _is_plain(subject.schema)):
        values = np.where(np.isnan(values), np.nan, np.rint(np.clip(values, 0, 1)))
    return [[_cell(x) for x in row] for row in values[:MOST_ROWS]]


def _is_plain(schema: Schema) -> bool:
    return schema.is_zero_one


def _cell(x: float) -> float | int | None:
    if np.isnan(x):
        return None
    return int(x) if x == int(x) else round(float(x), 6)


def _dependences(subject: Subject, listed: Sequence[Column]) -> list[list[float | int | bool]]:
    """What columns tell of each other as [column, column, bits, whether they have a sign]."""
    numbers = {column.name: i for i, column in enumerate(listed)}
    several = {column.name for column in listed if column.kind == "category"}
    if subject.schema is None and has_columns(subject.model):  # the page has them by their units
        listed = [listed[i] for i in np.argsort(subject.model.table.order)]
    found = strongest_dependences(subject.model, Schema(tuple(listed)), MOST_PAIRS)
    return [
        [numbers[pair.first], numbers[pair.second], pair.bits, not several & set(pair[:2])]
        for pair in found
    ]


def history_of(folder: Path) -> dict[str, list[list[float]]]:
    """The measures of a fit by name, each as [[step, value], ...], from its training folder."""
    path, found = folder / "training" / "metrics.jsonl", {}
    if not path.is_file():
        return {}
    for row in read_metrics(path):
        for name, value in row.items():
            if name not in ("step", "epoch") and _is_number(value) and _is_number(row["step"]):
                found.setdefault(name, []).append([row["step"], round(float(value), 6)])
    return {name: _thinned(points) for name, points in found.items() if len(points) > 1}


def _film(subject: Subject, p: Potentials, layered: bool) -> dict[str, Any] | None:
    """Samples and filters of the fit, for models whose units a page knows."""
    return film_of(subject.folder, p.layout.n_visible) if subject.folder and layered else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and bool(np.isfinite(value))


def _thinned(points: list[list[float]]) -> list[list[float]]:
    """At most `MOST_STEPS` points, the first and the last among them."""
    kept = np.unique(np.linspace(0, len(points) - 1, MOST_STEPS).round().astype(int))
    return [points[k] for k in kept]


def _title(subject: Subject) -> str:
    return f"Explore {subject.name}"


def extent(block: Block) -> str:
    """784 visible units, 12 hidden variables of 10 states, 3 real visible units."""
    part, many = "visible" if block.visible else "hidden", "" if block.variables == 1 else "s"
    if block.domain is Domain.CATEGORICAL:
        return f"{block.variables:,} {part} variable{many} of {block.states} states"
    kind = "" if block.domain is Domain.BINARY else f"{block.domain.value} "
    return f"{block.size:,} {kind}{part} unit{many}"


def _small(subject: Subject, p: Potentials, body: dict[str, Any]) -> str:
    """The small print: what the model is, and how exactly the page holds it."""
    sizes = ", ".join(extent(block) for block in p.layout.blocks[:6])
    if body["form"] == "network":
        sizes = f"{len(body['cards']):,} variables"
    kind = type(subject.model).__name__
    exactly = ""
    if body["form"] == "harmonium" and body["weights"]["dtype"] == "float16":
        exactly = " Weights are kept in half precision, so answers may differ in the third digit."
    where = "Everything is computed in this page; nothing is loaded or sent."
    if body["form"] == "remote":
        where = "The engine on this machine answers; nothing leaves it."
    return f"{kind}: {sizes}.{exactly} {where}"
