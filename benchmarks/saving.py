"""The record of a benchmark on this machine."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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


class Kept(NamedTuple):
    """What stays of an earlier record."""

    rows: list[Row]
    notes: list[str]
    seconds: float


def others(file: Path, cases: Collection[str], methods: Collection[str] = ()) -> Kept:
    """What a record has beside the cases that are renewed, or beside some methods in them.

    Notes are kept that begin with the name of another case; where methods are named, all are.
    """
    if not file.is_file():
        return Kept([], [], 0.0)
    record = records.read(file)
    rows = [
        row
        for row in record.rows
        if row.case not in cases or (methods and row.method not in methods)
    ]
    left = tuple(f"{row.case}:" for row in rows)
    notes = [note for note in record.notes if methods or note.startswith(left)]
    return Kept(rows, notes, record.seconds)


def docs_page(
    title: str, introduction: str, record: Mapping[str, Any], level: int = 1, body: str = ""
) -> str:
    """What was measured and where, the notes, and the table (or another body).

    A page of the documentation, or with a larger level a part of one.
    """
    parts = [f"{'#' * level} {title}", "", introduction, f"On {record['device']}.", ""]
    parts += [f"- {note}" for note in record.get("notes", ())]
    return "\n".join([*parts, "", body or table(record)])
