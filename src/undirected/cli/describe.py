"""`undirected describe`: what is in a model folder."""

from pathlib import Path
from typing import Any

import numpy as np

from undirected.cli import console
from undirected.cli.answer import open_model, schema_of
from undirected.cli.columns import schema_lines
from undirected.io.model_files import describe_model
from undirected.tasks.couplings import strongest_couplings

MOST_COUPLINGS = 10


def describe_folder(folder: Path, js: bool) -> None:
    """Print kind, size, columns, training, scores and the strongest couplings of a model."""
    saved, record = open_model(folder), describe_model(folder)
    extra, schema = record["extra"], schema_of(saved)
    blocks = saved.model.layout.blocks if hasattr(saved.model, "layout") else ()
    sizes = {block.name: block.size for block in blocks}
    couplings = strongest_couplings(saved.model, schema, MOST_COUPLINGS)
    training = {k: v for k, v in _mapping(extra, "settings").items() if v is not None}
    scores, rows = _mapping(extra, "scores"), extra.get("rows")
    summary = {
        "model": str(folder),
        "class": record["class"],
        "written_by": record["library"],
        "units": sizes,
        "parameters": _parameters(saved.model),
        "columns": schema.to_json()["columns"],
        "dropped": dict(schema.dropped),
        "training": training,
        "scores": scores,
        "couplings": [list(pair) for pair in couplings],
    }
    lines = [
        f"{folder}: {record['class']}, written by undirected {record['library']}",
        *["units: " + ", ".join(f"{name} {size}" for name, size in sizes.items())] * bool(sizes),
        f"parameters: {summary['parameters']:,}",
        f"columns: {len(schema)}" + (" of 0 and 1" if schema.is_zero_one else ""),
        *schema_lines(schema, rows if type(rows) is int else 0),
    ]
    if training:
        lines.append("training: " + ", ".join(f"{k} {v}" for k, v in training.items()))
    lines += [f"{name.replace('_', ' ')}: {value}" for name, value in scores.items()]
    lines += ["strongest couplings:"] * bool(couplings)
    lines += [f"  {pair.first} – {pair.second}: {pair.strength:.3f}" for pair in couplings]
    console.result(summary, js, lines)


def _mapping(extra: dict[str, Any], note: str) -> dict[str, Any]:
    """A note of the folder that is a mapping; anything else is passed over."""
    found = extra.get(note)
    return found if isinstance(found, dict) else {}


def _parameters(model: Any) -> int:
    import jax

    return sum(int(np.size(leaf)) for leaf in jax.tree.leaves(model))
