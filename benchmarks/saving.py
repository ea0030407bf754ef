"""The record of a benchmark on this machine."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from undirected.experiments import record as records
from undirected.experiments.record import Record, Row
from undirected.report.markdown import table


def make_record(
    name: str,
    profile: str,
    config: Mapping[str, Any],
    seconds: float,
    rows: Sequence[Row],
    title: str,
    notes: Sequence[str],
    **more: Any,
) -> Record:
    return Record(
        experiment=f"benchmarks/{name}",
        profile=profile,
        config=dict(config),
        seed=0,
        device=records.device(),
        versions=records.versions(),
        seconds=seconds,
        rows=list(rows),
        title=title,
        notes=list(notes),
        **more,
    )


def save(record: Record, file: Path) -> None:
    """Write a record, into a new folder where there is none."""
    file.parent.mkdir(parents=True, exist_ok=True)
    records.write(record, file)


def docs_page(
    title: str, introduction: str, record: Mapping[str, Any], level: int = 1, body: str = ""
) -> str:
    """What was measured and where, the notes, and the table (or another body).

    A page of the documentation, or with a larger level a part of one.
    """
    parts = [f"{'#' * level} {title}", "", introduction, f"On {record['device']}.", ""]
    parts += [f"- {note}" for note in record.get("notes", ())]
    return "\n".join([*parts, "", body or table(record)])
