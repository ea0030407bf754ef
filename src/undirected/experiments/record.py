"""The record of one experiment: what a run gave, whatever it gave, as strictly valid JSON."""

import json
import math
import operator
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from undirected.core.errors import BadFile, UndirectedError
from undirected.core.files import atomic_write
from undirected.experiments import provenance

BETTER = ("lower", "higher")
POINTS = 200
OPTIONAL = ("title", "seeds", "provenance", "curves", "images", "notes", "timings")
_WORDS = {str: "text", int: "a whole number", list: "a list", dict: "an object with named entries"}


@dataclass(frozen=True)
class Row:
    """One number of ours, with its standard error over `n` repetitions, beside the paper's.

    `values` are the numbers of the single runs, in the order of the record's seeds (None where a
    run gave none): `ours` is then their mean, `stderr` the standard error between runs and `n`
    their number. Without them `n` may count anything, such as test images.
    """

    case: str
    method: str
    metric: str
    ours: float | None
    stderr: float | None = None
    n: int | None = None
    paper: float | None = None
    values: tuple[float | None, ...] | None = None
    better: str = field(kw_only=True)

    def __post_init__(self):
        where = f"row {self.case!r} / {self.method!r} / {self.metric!r}"
        for key in ("case", "method", "metric"):
            _require(getattr(self, key), str, f"{where}: {key}")
        if self.better not in BETTER:
            raise UndirectedError(f"{where}: better is {self.better!r}; wanted 'lower' or 'higher'")
        for key in ("ours", "stderr", "paper"):
            object.__setattr__(self, key, _number(getattr(self, key), f"{where}: {key}"))
        object.__setattr__(self, "n", _count(self.n, f"{where}: n"))
        if self.values is not None:
            _require(self.values, (list, tuple), f"{where}: values")
            numbers = tuple(_number(value, f"{where}: values") for value in self.values)
            object.__setattr__(self, "values", numbers)

    @property
    def name(self) -> tuple[str, str, str]:
        """Case, method and metric: what tells the rows of a record apart."""
        return self.case, self.method, self.metric

    @classmethod
    def average(
        cls,
        case: str,
        method: str,
        metric: str,
        values: Iterable[float],
        paper: float | None = None,
        *,
        better: str,
    ) -> "Row":
        """The mean over repetitions, with its standard error where there are several."""
        a = np.asarray(list(values), float)
        stderr = a.std(ddof=1) / np.sqrt(len(a)) if len(a) > 1 else None
        return cls(case, method, metric, a.mean(), stderr, len(a), paper, better=better)

    @classmethod
    def over_runs(
        cls,
        case: str,
        method: str,
        metric: str,
        values: Iterable[float | None],
        paper: float | None = None,
        *,
        better: str,
    ) -> "Row":
        """The mean over independent runs, whose values are kept; None where a run gave none."""
        kept = tuple(values)
        numbers = [value for value in kept if value is not None]
        if not numbers:
            return cls(case, method, metric, None, paper=paper, values=kept, better=better)
        row = cls.average(case, method, metric, numbers, paper, better=better)
        return cls(**{**vars(row), "values": kept})

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON values; a number that is not finite becomes null."""
        data = {key: _finite(value) for key, value in asdict(self).items()}
        values = data.pop("values")
        return data if values is None else data | {"values": [_finite(v) for v in values]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Row":
        """The row of a JSON object with the fields of `Row`; `values` may be missing."""
        _require(data, dict, "row")
        _check_keys(data, [f.name for f in fields(cls) if f.name != "values"], ["values"], "row")
        return cls(**data)


@dataclass(frozen=True)
class Outcome:
    """What an experiment's `run` returns when it has more than rows to show.

    `curves`: dicts made by `curve`. `images`: {"name", "caption", "file"}, the file relative to
    `context.out`. `timings`: named seconds; those of the stages are added by the runner.
    """

    rows: Sequence[Row] = ()
    curves: Sequence[dict] = ()
    images: Sequence[dict] = ()
    notes: Sequence[str] = ()
    timings: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self):
        for row in self.rows:
            _require(row, Row, "rows: entry")
        for note in self.notes:
            _require(note, str, "notes: entry")
        images = [_image(image) for image in self.images]
        timings = {k: _number(v, f"timings: {k}") for k, v in self.timings.items()}
        object.__setattr__(self, "rows", tuple(self.rows))
        object.__setattr__(self, "curves", tuple(_curve(c) for c in self.curves))
        object.__setattr__(self, "images", tuple(images))
        object.__setattr__(self, "notes", tuple(self.notes))
        object.__setattr__(self, "timings", timings)


@dataclass(frozen=True, kw_only=True)
class Record(Outcome):
    """An outcome with all that is needed to run it again: config, seeds, device, versions.

    `seed` is the first of `seeds`. `provenance` names the source and the data (`provenance.py`);
    records of earlier releases have none.
    """

    experiment: str
    profile: str
    config: dict[str, Any]
    seed: int
    device: str
    versions: dict[str, str]
    seconds: float
    title: str = ""
    seeds: Sequence[int] = ()
    provenance: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        super().__post_init__()
        for key in ("experiment", "profile", "device", "title"):
            _require(getattr(self, key), str, key)
        for key in ("config", "versions", "provenance"):
            _require(getattr(self, key), dict, key)
        for name, version in self.versions.items():
            _require(version, str, f"versions: {name}")
        _require(self.seed, int, "seed")
        _require(self.seeds, (list, tuple), "seeds")
        for seed in self.seeds:
            _require(seed, int, "seeds: entry")
        object.__setattr__(self, "seeds", tuple(self.seeds) or (self.seed,))
        if self.seeds[0] != self.seed:
            raise UndirectedError(f"seed is {self.seed}, but the first of seeds {self.seeds[0]}")
        object.__setattr__(self, "seconds", _number(self.seconds, "seconds"))

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON values; a note names every number that was not finite."""
        lost = [note for row in self.rows for note in _not_finite(row)]
        data: dict[str, Any] = {
            "experiment": self.experiment,
            "profile": self.profile,
            "config": self.config,
            "seed": self.seed,
            "seeds": list(self.seeds),
            "device": self.device,
            "versions": self.versions,
            "seconds": _finite(self.seconds),
            "rows": [row.to_dict() for row in self.rows],
            "title": self.title,
            "provenance": self.provenance,
            "curves": list(self.curves),
            "images": list(self.images),
            "notes": [*self.notes, *lost],
            "timings": {name: _finite(value) for name, value in self.timings.items()},
        }
        return {key: value for key, value in data.items() if value or key not in OPTIONAL}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Record":
        """The record of a JSON object; raises `UndirectedError` naming the key at fault."""
        _require(data, dict, "record")
        required = [f.name for f in fields(cls) if f.name not in OPTIONAL]
        _check_keys(data, required, OPTIONAL, "record")
        for key in ("rows", "curves", "images", "notes"):
            _require(data.get(key, []), list, key)
        _require(data.get("timings", {}), dict, "timings")
        return cls(**{**data, "rows": [Row.from_dict(row) for row in data["rows"]]})


class Difference(NamedTuple):
    """A mean difference over `n` paired runs, and its standard error (None for a single run)."""

    mean: float
    stderr: float | None
    n: int


def paired_difference(first: Row, second: Row) -> Difference:
    """`first` minus `second`, run by run: what both runs of a seed share cancels.

    Only runs that have both values count; raises where there is none.
    """
    for row in (first, second):
        if row.values is None:
            raise UndirectedError(f"row {row.name}: it keeps no values of single runs")
    ours, theirs = first.values or (), second.values or ()
    if len(ours) != len(theirs):
        raise UndirectedError(
            f"rows {first.name} and {second.name} have {len(ours)} and {len(theirs)} runs; "
            "take both from one record"
        )
    both = [(a, b) for a, b in zip(ours, theirs, strict=True) if _known(a) and _known(b)]
    if not both:
        raise UndirectedError(f"rows {first.name} and {second.name} have no run in common")
    gaps = np.asarray([a - b for a, b in both])  # type: ignore[operator]
    stderr = float(gaps.std(ddof=1) / np.sqrt(len(gaps))) if len(gaps) > 1 else None
    return Difference(float(gaps.mean()), stderr, len(gaps))


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def join(outcomes: Mapping[int, Outcome]) -> Outcome:
    """One outcome of those of several seeds: rows are averaged by case, method and metric.

    Seconds add up. Notes that all seeds share are said once, others name their seed. Curves and
    images are those of the first seed.
    """
    first, *others = outcomes.values()
    if not others:
        return first
    names = list(dict.fromkeys(row.name for one in outcomes.values() for row in one.rows))
    rows = [_joined([_find(one, name) for one in outcomes.values()]) for name in names]
    shown = bool(first.curves or first.images)
    about = [f"Curves and images are of seed {next(iter(outcomes))}."] if shown else []
    timings: dict[str, float] = {}
    for one in outcomes.values():
        for name, seconds in one.timings.items():
            timings[name] = timings.get(name, 0.0) + seconds
    notes = [*_joined_notes(outcomes), *about]
    return Outcome(rows, first.curves, first.images, notes, timings)


def _find(outcome: Outcome, name: tuple[str, str, str]) -> Row | None:
    found = [row for row in outcome.rows if row.name == name]
    if len(found) > 1:
        raise UndirectedError(f"row {name} occurs {len(found)} times in one run; name it apart")
    return found[0] if found else None


def _joined(rows: Sequence[Row | None]) -> Row:
    """The mean of the rows of all seeds; None where a seed has no such row."""
    one = next(row for row in rows if row is not None)
    values = [None if row is None else row.ours for row in rows]
    return Row.over_runs(*one.name, values, one.paper, better=one.better)


def _joined_notes(outcomes: Mapping[int, Outcome]) -> list[str]:
    notes = []
    shared = set.intersection(*(set(one.notes) for one in outcomes.values()))
    for index, (seed, one) in enumerate(outcomes.items()):
        for note in one.notes:
            if note in shared:
                notes += [note] if index == 0 else []
            else:
                notes.append(f"Seed {seed}: {note}")
    return notes


def write(record: Record, path: Path) -> None:
    """Write a record as JSON; on failure the file that was there stays as it was."""
    text = json.dumps(record.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    with atomic_write(Path(path)) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read(path: Path) -> Record:
    """Read a record; raises `BadFile` naming the file and what is wrong with it."""
    try:
        return Record.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
    except ValueError as error:
        raise BadFile(f"{path}: not a record: {error}; write it again with `reproduce`") from error


def curve(
    name: str, x_label: str, y_label: str, series: Mapping[str, tuple[Iterable, Iterable]]
) -> dict[str, Any]:
    """A plot for `Outcome.curves`: one line per entry `name: (x, y)` of `series`.

    Of a line with more points than a plot can show, so many are kept, evenly.
    """
    lines = [{"name": key, "x": _some(x), "y": _some(y)} for key, (x, y) in series.items()]
    return _curve({"name": name, "x_label": x_label, "y_label": y_label, "series": lines})


def _some(values: Iterable) -> list:
    values = list(values)
    last = max(1, min(len(values), POINTS) - 1)
    return [values[i * (len(values) - 1) // last] for i in range(min(len(values), POINTS))]


def versions() -> dict[str, str]:
    """Versions of what a result may depend on, read without importing any of it."""
    packages = {name: provenance.version(name) for name in ("undirected", "jax", "numpy")}
    return {**packages, "python": platform.python_version(), "platform": platform.platform()}


def device() -> str:
    """The device JAX runs on, in words."""
    import jax

    devices = jax.devices()
    if devices[0].platform == "cpu":
        return f"CPU, {os.cpu_count()} cores, {platform.machine()}"
    count = "" if len(devices) == 1 else f"{len(devices)} × "
    return f"{count}{devices[0].device_kind} ({devices[0].platform.upper()})"


_AND = " and "


def together(*facts: Mapping[str, str]) -> dict[str, str]:
    """Facts of the same names as one: what is not the same is told of each, in their order."""
    found: dict[str, dict[str, None]] = {}
    for one in facts:
        for name, value in one.items():
            found.setdefault(name, {}).update(dict.fromkeys(value.split(_AND)))
    return {name: _AND.join(values) for name, values in found.items()}


def _require(value: Any, kind: type | tuple[type, ...], what: str) -> None:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        first = kind[0] if isinstance(kind, tuple) else kind
        wanted = _WORDS.get(first, f"a {first.__name__}")
        raise UndirectedError(f"{what} is {value!r:.80}; wanted {wanted}")


def _check_keys(data: Mapping, required: Iterable[str], optional: Iterable[str], what: str) -> None:
    missing = [key for key in required if key not in data]
    if missing:
        raise UndirectedError(f"{what}: key {', '.join(map(repr, missing))} is missing")
    unknown = sorted(set(data) - set(required) - set(optional))
    if unknown:
        known = ", ".join([*required, *optional])
        raise UndirectedError(f"{what}: unknown key {unknown[0]!r}; the keys are {known}")


def _number(value: Any, what: str) -> float | None:
    """A Python float of any real scalar (NumPy's and JAX's too); None stays None."""
    try:
        if isinstance(value, str | bytes | bool):
            raise TypeError
        return None if value is None else float(value)
    except (TypeError, ValueError) as error:
        raise UndirectedError(f"{what} is {value!r:.80}; wanted one number or None") from error


def _count(value: Any, what: str) -> int | None:
    try:
        return None if value is None else operator.index(value)
    except TypeError as error:
        raise UndirectedError(f"{what} is {value!r:.80}; wanted a whole number") from error


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _not_finite(row: Row) -> Iterable[str]:
    for key in ("ours", "stderr", "paper"):
        value = getattr(row, key)
        if value is not None and not math.isfinite(value):
            yield f"{row.case} / {row.method} / {row.metric}: {key} was {value}, written as null"


def _curve(data: Mapping[str, Any]) -> dict[str, Any]:
    """A curve with its numbers as lists of floats; one that is not finite becomes None (a gap)."""
    _require(data, dict, "curve")
    _check_keys(data, ("name", "x_label", "y_label", "series"), (), "curve")
    where = f"curve {data['name']!r}"
    lines = []
    for line in data["series"]:
        _require(line, dict, f"{where}: series entry")
        _check_keys(line, ("name", "x", "y"), (), f"{where}: series")
        x, y = ([_finite(_number(v, where)) for v in line[axis]] for axis in ("x", "y"))
        if len(x) != len(y):
            name = line["name"]
            raise UndirectedError(f"{where}: series {name!r} has {len(x)} x and {len(y)} y values")
        lines.append({"name": line["name"], "x": x, "y": y})
    return {**data, "series": lines}


def _image(data: Mapping[str, Any]) -> dict[str, str]:
    _require(data, dict, "image")
    _check_keys(data, ("name", "caption", "file"), (), "image")
    return {**data, "file": Path(data["file"]).as_posix()}
