"""One record from runs of its parts apart: a table may take longer than one sitting."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from undirected.core.errors import UndirectedError
from undirected.experiments import provenance
from undirected.experiments.record import Record, Row, read


@dataclass(frozen=True)
class Addition:
    """The record of the other parts, and the setting that names them, such as "cases"."""

    before: Record
    part: str

    def joined(self, record: Record, whole: Mapping[str, Sequence[Any]]) -> Record:
        """Both as one record: the rows of both, lines of plots of one name together.

        Parts and rows are in the order of the whole, whose parts are given by setting.
        """
        before, names = self.before, [row.name for row in record.rows]
        if met := [row.name for row in before.rows if row.name in names]:
            raise UndirectedError(
                f"{record.experiment}: the record of other {self.part} has the row "
                f"{' / '.join(met[0])} too; choose another --out"
            )
        parts = [*before.config[self.part], *record.config[self.part]]
        parts.sort(key=partial(_place, whole[self.part]))
        timings = dict(before.timings)
        for name, seconds in record.timings.items():
            timings[name] = timings.get(name, 0.0) + seconds
        sources = [s for one in (before, record) for s in _sources(one)]
        data = before.provenance.get("data", {}) | record.provenance.get("data", {})
        described = provenance.describe(sources, data)
        earlier = [w for one in (before, record) for w in provenance.warning(one.provenance)]
        notes = [note for note in (*before.notes, *record.notes) if note not in earlier]
        images = {image["file"]: image for image in (*before.images, *record.images)}
        return replace(
            record,
            config=record.config | {self.part: parts},
            device=" and ".join(dict.fromkeys([before.device, record.device])),
            provenance=described,
            seconds=before.seconds + record.seconds,
            rows=sorted([*before.rows, *record.rows], key=lambda row: _places(whole, row)),
            curves=_curves([*before.curves, *record.curves]),
            images=list(images.values()),
            notes=list(dict.fromkeys([*provenance.warning(described), *notes])),
            timings=timings,
        )


def addition(
    path: Path, config: Mapping[str, Any], seeds: Sequence[int], parts: Sequence[str]
) -> Addition | None:
    """What a run adds to, where the record at a path has other parts of it alone.

    Its config differs in one of the settings that name parts, and shares none of them; all else,
    and the seeds, are the same.
    """
    found = _parted(path, config, seeds, parts)
    if found is None:
        return None
    before, part, there, asked = found
    apart = there and asked and not there & asked
    return Addition(before, part) if apart else None


def has_part(
    path: Path, config: Mapping[str, Any], seeds: Sequence[int], parts: Sequence[str]
) -> bool:
    """Whether the record at a path has the parts that a run asks for, among others."""
    found = _parted(path, config, seeds, parts)
    return found is not None and bool(found[3]) and found[3] < found[2]


def _parted(
    path: Path, config: Mapping[str, Any], seeds: Sequence[int], parts: Sequence[str]
) -> tuple[Record, str, set[Any], set[Any]] | None:
    """The record at a path, the one setting of parts it differs in, and what each has of it."""
    if not parts or not path.is_file():
        return None
    before, wanted = read(path), json.loads(json.dumps(config))
    held = before.config
    differing = [key for key in {**held, **wanted} if held.get(key) != wanted.get(key)]
    if list(before.seeds) != list(seeds) or len(differing) != 1 or differing[0] not in parts:
        return None
    return before, differing[0], set(held[differing[0]]), set(wanted[differing[0]])


def _place(order: Sequence[Any], name: Any) -> int:
    """Where a part stands; behind the others where it is none of the whole."""
    return order.index(name) if name in order else len(order)


def _places(whole: Mapping[str, Sequence[Any]], row: Row) -> list[int]:
    """Where the parts that the case and the method of a row name stand, setting by setting.

    Names have several words: the row "lattice, reset, 5" is of the parts "lattice" and "reset".
    """
    if not all(whole.values()):  # [] stands for all, in an order that is not told
        return []
    names = {part for name in (row.case, row.method) for part in (name, *name.split(", "))}
    return [min(_place(order, name) for name in names) for order in whole.values()]


def _sources(record: Record) -> list[str]:
    found = record.provenance
    return found.get("sources") or [s for s in [found.get("source")] if s]


def _curves(curves: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for curve in curves:
        known = found.setdefault(curve["name"], {**curve, "series": []})
        known["series"] = [*known["series"], *curve["series"]]
    return list(found.values())
