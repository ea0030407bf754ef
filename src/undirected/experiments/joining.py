"""One record from runs of its parts apart: a table may take longer than one sitting."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from undirected.core.errors import UndirectedError
from undirected.experiments import provenance
from undirected.experiments.record import Record, Row, read, together

UNKNOWN = "unknown"
"""The source of a record of an earlier release, which does not name it."""


@dataclass(frozen=True)
class Addition:
    """The record of the other parts, and the setting that names them, such as "cases".

    `again`: parts that this record has too, whose rows, lines of plots and times give way.
    """

    before: Record
    part: str
    again: frozenset[Any] = frozenset()

    def joined(self, record: Record, whole: Mapping[str, Sequence[Any]]) -> Record:
        """Both as one record: the rows of both, lines of plots of one name together.

        Parts and rows are in the order of the whole, whose parts are given by setting.
        """
        before, names = self._others(record), [row.name for row in record.rows]
        if met := [row.name for row in before.rows if row.name in names]:
            raise UndirectedError(
                f"{record.experiment}: the record of other {self.part} has the row "
                f"{' / '.join(met[0])} too; choose another --out"
            )
        parts = list(dict.fromkeys([*before.config[self.part], *record.config[self.part]]))
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
        made = together(*({"device": one.device, **one.versions} for one in (before, record)))
        return replace(
            record,
            config=record.config | {self.part: parts},
            device=made.pop("device"),
            versions=made,
            provenance=described,
            seconds=before.seconds + record.seconds,
            rows=sorted([*before.rows, *record.rows], key=lambda row: _places(whole, row)),
            curves=_curves([*before.curves, *record.curves]),
            images=list(images.values()),
            notes=list(dict.fromkeys([*provenance.warning(described), *notes])),
            timings=timings,
        )

    def _others(self, record: Record) -> Record:
        """The record before, without what is made again."""
        before, again = self.before, self.again
        if not again:
            return before
        kept = {name: t for name, t in before.timings.items() if name not in record.timings}
        curves = [
            {**curve, "series": [line for line in curve["series"] if line["name"] not in again]}
            for curve in before.curves
            if not again & _words(curve["name"].split(": ")[0])
        ]
        return replace(
            before,
            rows=[
                row for row in before.rows if not again & (_words(row.case) | _words(row.method))
            ],
            curves=[curve for curve in curves if curve["series"]],
            timings=kept,
            seconds=before.seconds - sum(before.timings.values()) + sum(kept.values()),
        )


def addition(
    path: Path,
    config: Mapping[str, Any],
    seeds: Sequence[int],
    parts: Sequence[str],
    again: bool = False,
) -> Addition | None:
    """What a run adds to, where the record at a path has other parts of it.

    Its config differs in one of the settings that name parts; all else, and the seeds, are the
    same. Parts that both have are refused (None), unless they are made `again`.
    """
    found = _parted(path, config, seeds, parts)
    if found is None:
        return None
    before, part, there, asked = found
    apart = there and asked and not there <= asked and (again or not there & asked)
    return Addition(before, part, frozenset(there & asked)) if apart else None


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
    """Where the parts that the case and the method of a row name stand, setting by setting."""
    if not all(whole.values()):  # [] stands for all, in an order that is not told
        return []
    return [min(_place(order, name) for name in _parts(row)) for order in whole.values()]


def _parts(row: Row) -> set[str]:
    """The parts that a row may be of, among other words."""
    return _words(row.case) | _words(row.method)


def _words(name: str) -> set[str]:
    """The parts that a name may speak of: "lattice, reset, 5" is of "lattice" and of "reset"."""
    return {name, *name.split(", ")}


def _sources(record: Record) -> list[str]:
    found = record.provenance
    return found.get("sources") or [found.get("source", UNKNOWN)]


def _curves(curves: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for curve in curves:
        known = found.setdefault(curve["name"], {**curve, "series": []})
        known["series"] = [*known["series"], *curve["series"]]
    return list(found.values())
