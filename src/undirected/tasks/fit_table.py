"""A table of any kind of columns in, a fitted `TableModel` out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from difflib import get_close_matches
from typing import Any

from undirected.core.columns import Schema, listed, some_names
from undirected.core.errors import UndirectedError, check_options
from undirected.inference import QueryNetwork
from undirected.io.frames import as_frame
from undirected.io.infer import infer_schema
from undirected.models import ConditionalRBM
from undirected.tasks.dependences import strongest_dependences
from undirected.tasks.table_model import TableModel
from undirected.tasks.train_table import (
    Settings,
    Trained,
    column_means,
    score_of,
    train_table,
)


def fit_table(
    table: Any,
    *,
    types: Mapping[str, str] | None = None,
    drop: str | Iterable[str] | None = (),
    columns: str | Iterable[str] | None = None,
    label: str | None = None,
    given: str | Sequence[str] | None = (),
    seed: int = 0,
    **options: Any,
) -> TableModel:
    """Fit a model to a table of any kind of columns, which may have holes.

    Args:
        table: a file's path, a pandas, polars or Arrow table, a mapping of columns, or rows.
        types: the kind of some columns: "binary", "category", "real" or "nonnegative"; of the
            others it is found out.
        drop: columns to leave out; a name or some.
        columns: the columns to take, a name or some; by default all.
        label: the column that is to be predicted; it is never left out unasked.
        given: a name or some, of columns that will always be known: the model is then a
            conditional one, of the others given these.
        seed: of all draws.
        options: fields of `Settings`, such as model, hidden and epochs.

    Returns:
        A `TableModel`, which answers in the table's own words and units.

    Example:
        >>> import undirected as un
        >>> table = {"sky": ["clear", "grey", "dark"] * 20, "mm": [0.2, 1.4, 9.1] * 20}
        >>> model = un.fit_table(table, epochs=2, hidden=2)
        >>> list(model.query({"sky": ["dark"]}))
        ['sky', 'mm', 'mm_sd']
    """
    check_options("fit_table", options, set(Settings.__dataclass_fields__) - {"seed"})
    frame = as_frame(table)
    schema = infer_schema(frame, types=types, drop=drop, columns=columns, label=label)
    values = schema.encode(frame.cells, frame.place)
    known = given_columns(given, schema)
    if known and options.get("model", "auto") == "auto":
        options["model"] = "conditional"
    settings = settings_for(Settings(seed=seed, **options), schema)
    check_given("fit_table", settings, known)
    trained = train_table(values, settings, columns=columns_of(settings, schema), given=known)
    return table_model(trained, schema, known)


def given_columns(names: str | Sequence[str] | None, schema: Schema) -> tuple[int, ...]:
    """The numbers of the columns that a conditional model is given, from their names."""
    known = some_names("given", names)
    for name in known:
        if name not in schema.names:
            near = get_close_matches(name, schema.names, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"there are {listed(schema.names)}"
            raise UndirectedError(f"given: no column is called '{name}'; {hint}")
    return tuple(sorted(schema.names.index(name) for name in known))


def check_given(caller: str, settings: Settings, given: Sequence[Any]) -> None:
    """A conditional model, and no other, is told what it takes as known."""
    if settings.model == "conditional" and not given:
        raise UndirectedError(
            f"{caller}: a conditional model needs to know what is given; name columns, as in "
            "--given a,b, or given=['a', 'b'] in Python"
        )
    if given and settings.model != "conditional":
        raise UndirectedError(
            f"{caller}: columns are given, which is for model 'conditional', not '{settings.model}'"
        )


def settings_for(settings: Settings, schema: Schema) -> Settings:
    """Settings whose model, where it was left open, takes columns of all the schema's kinds."""
    if settings.model != "auto" or schema.kinds == {"binary"}:
        return settings
    return replace(settings, model="mixed")


def columns_of(settings: Settings, schema: Schema) -> Schema | None:
    """The schema for models of columns; those of 0/1 alone need none, and refuse other kinds."""
    if settings.model not in ("auto", "mixture-rbm", "rbm", "ising"):
        return schema
    other = [column for column in schema if column.kind != "binary"]
    if other:
        raise UndirectedError(
            f"fit: model '{settings.model}' takes binary columns; '{other[0].name}' is "
            f"{other[0].kind}: drop it, or use model 'mixed', which takes all kinds"
        )
    return None


def table_model(trained: Trained, schema: Schema, given: tuple[int, ...] = ()) -> TableModel:
    """The model of a finished training with its schema and notes."""
    model, network = trained.result.best_model, None
    notes = _notes(trained)
    if isinstance(model, ConditionalRBM):
        return TableModel(
            model, schema, None, given, notes | {"given": list(given), "dependences": []}
        )
    if isinstance(model, QueryNetwork):
        network, model = model, model.model
        notes["query"] = {"layers": network.layers, "strength": float(network.strength)}
    notes["dependences"] = [list(pair) for pair in strongest_dependences(model, schema)]
    if schema.kinds == {"binary"} and model.layout.n_visible == len(schema):
        notes["means"] = column_means(trained.train).tolist()
    return TableModel(model, schema, network, (), notes)


def _notes(trained: Trained) -> dict[str, Any]:
    """What is written down of every training."""
    score, best = score_of(trained)
    return {
        "settings": asdict(trained.settings),
        "rows": len(trained.train) + len(trained.valid),
        "scores": {f"validation_{score}": best},
    }
