"""`undirected describe`: what is in a model folder.

A folder that `fit` or `TableModel.save` wrote says all of it in its notes, and is described without
JAX; of others the model is loaded.
"""

from pathlib import Path
from typing import Any

import numpy as np

from undirected.cli import console
from undirected.cli.schema_lines import schema_lines
from undirected.core.columns import Schema
from undirected.core.errors import BadFile, UndirectedError
from undirected.io.model_record import read_folder
from undirected.io.tensors import check_finite, unpack

MOST_PAIRS = 10
Pairs = list[tuple[str, str, float]]


def describe_folder(folder: Path, js: bool) -> None:
    """Print kind, size, columns, training, scores and what hangs together in a model."""
    record, data = read_folder(folder)
    extra = record["extra"]
    parameters = _parameters(folder, unpack(data, str(folder)))
    blocks = _blocks(folder, record["layout"])
    schema, dependences = _noted(folder, extra) or _loaded(folder)
    training = {k: v for k, v in _mapping(extra, "settings").items() if v is not None}
    scores, rows = _mapping(extra, "scores"), extra.get("rows")
    summary = {
        "model": str(folder),
        "class": record["class"],
        "written_by": record["library"],
        "units": {block["name"]: block["size"] for block in blocks},
        "parameters": parameters,
        "columns": schema.to_json()["columns"],
        "dropped": dict(schema.dropped),
        "training": training,
        "scores": scores,
        "dependences": [list(pair) for pair in dependences],
    }
    lines = [
        f"{folder}: {record['class']}, written by undirected {record['library']}",
        *["units: " + _units(blocks)] * bool(blocks),
        f"parameters: {parameters:,}",
        f"columns: {len(schema)}" + (" of 0 and 1" if schema.is_zero_one else ""),
        *schema_lines(schema, rows if type(rows) is int else 0),
        *_training_lines(training, scores),
        *["what two columns tell of each other, in bits, the others known:"] * bool(dependences),
        *(f"  {first} – {second}: {bits:.3f}" for first, second, bits in dependences),
    ]
    console.result(summary, js, lines)


def _parameters(folder: Path, arrays: dict[str, np.ndarray]) -> int:
    """How many numbers there are, edges of graphs apart; those that are not finite are refused."""
    try:
        for name, array in arrays.items():
            check_finite(array, name)
    except UndirectedError as error:
        raise BadFile(f"{folder}: model.json cannot be loaded: {error}") from error
    return sum(array.size for array in arrays.values() if array.dtype.kind == "f")


def _blocks(folder: Path, layout: list[Any]) -> list[dict[str, Any]]:
    """The blocks of units that were noted, each of the kind that it must be."""
    wanted = {"name": str, "size": int, "domain": str, "visible": bool}
    for block in layout:
        found = {name: type(block.get(name)) for name in wanted} if type(block) is dict else {}
        if found != wanted:
            raise BadFile(f"{folder}: model.json notes `layout` as {layout!r:.60}; wanted blocks")
    return layout


def _units(blocks: list[dict[str, Any]]) -> str:
    """The numbers of visible units by their kind, and of hidden ones."""
    counts: dict[str, int] = {}
    for block in sorted(blocks, key=lambda block: not block["visible"]):
        kind = block["domain"] if block["visible"] else "hidden"
        counts[kind] = counts.get(kind, 0) + block["size"]
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.items())


def _noted(folder: Path, extra: dict[str, Any]) -> tuple[Schema, Pairs] | None:
    """Schema and dependences where both were noted."""
    found, pairs = extra.get("schema"), extra.get("dependences")
    if found is None or pairs is None:
        return None
    schema = Schema.from_json(found)
    known = isinstance(pairs, list) and all(_is_pair(pair, schema) for pair in pairs)
    if not known:
        raise BadFile(f"{folder}: model.json notes `dependences` as {pairs!r:.60}; wanted pairs")
    return schema, [(first, second, float(size)) for first, second, size in pairs[:MOST_PAIRS]]


def _is_pair(pair: Any, schema: Schema) -> bool:
    """Whether these are two columns and a finite number."""
    if not isinstance(pair, list) or len(pair) != 3:
        return False
    names = all(isinstance(name, str) and name in schema.names for name in pair[:2])
    return names and type(pair[2]) in (int, float) and abs(pair[2]) < np.inf


def _loaded(folder: Path) -> tuple[Schema, Pairs]:
    """The same from the model itself."""
    from undirected.cli.answer import open_model, schema_of
    from undirected.tasks.dependences import strongest_dependences

    saved = open_model(folder)
    schema = schema_of(saved)
    found = strongest_dependences(saved.model, schema, MOST_PAIRS)
    return schema, [(pair.first, pair.second, pair.bits) for pair in found]


def _training_lines(training: dict[str, Any], scores: dict[str, Any]) -> list[str]:
    """Settings and scores in words; exact learning has no schedule, and so no rate."""
    rate = {"learning_rate"} if "epochs" not in training else set()
    told = [f"{k.replace('_', ' ')} {v}" for k, v in training.items() if k not in rate]
    lines = ["training: " + ", ".join(told)] * bool(told)
    for name, value in scores.items():
        number = f"{value:.4g}" if isinstance(value, float) else str(value)
        lines.append(f"{console.score_in_words(str(name))}: {number}")
    return lines


def _mapping(extra: dict[str, Any], note: str) -> dict[str, Any]:
    """A note of the folder that is a mapping; anything else is passed over."""
    found = extra.get(note)
    return found if isinstance(found, dict) else {}
