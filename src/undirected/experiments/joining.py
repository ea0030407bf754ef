"""One record from runs of its cases apart: a table may take longer than one sitting."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from undirected.experiments import provenance
from undirected.experiments.record import Record, read

CASES = "cases"
"""The setting that names the cases of a run."""


def other_cases(path: Path, config: Mapping[str, Any], seeds: Sequence[int]) -> Record | None:
    """The record at a path, where it has other cases of the same run: same config, same seeds."""
    asked = config.get(CASES)
    if not asked or not path.is_file():
        return None
    before = read(path)
    held, wanted = dict(before.config), json.loads(json.dumps(config))
    there = held.pop(CASES, None)
    wanted.pop(CASES)
    same = held == wanted and list(before.seeds) == list(seeds)
    return before if there and same and not set(there) & set(asked) else None


def joined(before: Record, record: Record) -> Record:
    """Both as one record: rows one after the other, lines of plots of one name together."""
    timings = dict(before.timings)
    for name, seconds in record.timings.items():
        timings[name] = timings.get(name, 0.0) + seconds
    sources = [s for one in (before, record) for s in _sources(one)]
    data = before.provenance.get("data", {}) | record.provenance.get("data", {})
    described = provenance.describe(sources, data)
    earlier = [w for one in (before, record) for w in provenance.warning(one.provenance)]
    notes = [note for note in (*before.notes, *record.notes) if note not in earlier]
    return replace(
        record,
        config=record.config | {CASES: [*before.config[CASES], *record.config[CASES]]},
        device=" and ".join(dict.fromkeys([before.device, record.device])),
        provenance=described,
        seconds=before.seconds + record.seconds,
        rows=[*before.rows, *record.rows],
        curves=_curves([*before.curves, *record.curves]),
        images=[*before.images, *record.images],
        notes=list(dict.fromkeys([*provenance.warning(described), *notes])),
        timings=timings,
    )


def _sources(record: Record) -> list[str]:
    found = record.provenance
    return found.get("sources") or [s for s in [found.get("source")] if s]


def _curves(curves: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for curve in curves:
        known = found.setdefault(curve["name"], {**curve, "series": []})
        known["series"] = [*known["series"], *curve["series"]]
    return list(found.values())
