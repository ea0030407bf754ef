"""What a running experiment may use: a folder, progress, and stages that survive a crash."""

import json
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from undirected.core.errors import BadFile, UndirectedError
from undirected.core.files import atomic_write
from undirected.data import cache
from undirected.experiments.provenance import source_hash
from undirected.experiments.record import Outcome, Row

_ARRAY = "array."  # prefix of names in .npz files: np.savez keeps some, like `file`, for itself


@dataclass(frozen=True)
class Event:
    """Something to tell the user: `kind` is start, stage, resumed, progress or done."""

    kind: str
    experiment: str
    message: str = ""
    fraction: float | None = None


class Context:
    """What a running experiment may use: a folder, progress and stages.

    `out`: folder for artefacts (images), copied beside the record at the end.
    `scratch`: folder for checkpoints within a stage, removed when the record is written.
    `origins`: the sources and the data that went into it, over all attempts.
    """

    def __init__(self, experiment: str, scratch: Path, on_event: Callable[[Event], object]):
        self.out = scratch / "out"
        self.scratch = scratch / "scratch"
        self.clock = Clock(scratch / "clock.json")
        self.origins = Origins(scratch / "origins.json")
        self._outcome = scratch / "outcome.json"
        self._stages = scratch / "stages"
        self._experiment = experiment
        self._on_event = on_event
        self._seen: set[str] = set()
        for folder in (self.out, self.scratch, self._stages):
            folder.mkdir(parents=True, exist_ok=True)

    def progress(self, message: str, fraction: float | None = None) -> None:
        """Tell what is being done, and what fraction of it is behind us (0 to 1)."""
        self.tell("progress", message, fraction)

    def tell(self, kind: str, message: str = "", fraction: float | None = None) -> None:
        """Send an event to whoever listens."""
        self._on_event(Event(kind, self._experiment, message, fraction))

    def stage(self, name: str, fn: Callable[[], Any]) -> Any:
        """The result of `fn()`, computed once: a resumed run reads it from disk instead.

        Results are a list of `Row`, a JSON value, or a dict of arrays. What is returned has always
        been through the disk, so that fresh and resumed runs go on from the same values.
        """
        if name in self._seen:
            raise UndirectedError(f"stage {name!r} occurs twice in one run; give each its own name")
        self._seen.add(name)
        path = self._stages / quote(name, safe="")
        stored = _stored(path)
        if stored is not None:
            try:
                result = _load(stored)
                self.tell("resumed", name)
                return result
            except (BadFile, OSError):
                self.progress(f"{name}: the stored result cannot be read; running it again")
        self.tell("stage", name)
        self.origins.begin(name)
        begun = time.monotonic()
        try:
            stored = _store(path, fn())
        finally:
            self.clock.add(name, time.monotonic() - begun)
            self.origins.save()
        return _load(stored)

    def whole(self, fn: Callable[[], Outcome]) -> Outcome:
        """The outcome of a whole run, kept until the record is written: seeds end one by one."""
        if self._outcome.exists():
            self.tell("resumed", "the whole run")
            return _load_outcome(self._outcome)
        self.origins.begin("")
        with cache.recorded(self.origins.data):
            outcome = fn()
        self.origins.save()
        with atomic_write(self._outcome) as temporary:
            temporary.write_text(json.dumps(_plain(outcome)), encoding="utf-8")
        return outcome


class Origins:
    """What the parts of a run were made with: the source of every stage, and the data.

    A stage that is taken up again after a change of the source has both; "" stands for what is
    done outside of stages.
    """

    def __init__(self, path: Path):
        self._path = path
        self.stages: dict[str, list[str]] = {}
        self.data: dict[str, str] = {}
        if path.exists():
            saved = json.loads(path.read_text(encoding="utf-8"))
            self.stages, self.data = saved["stages"], saved["data"]

    @property
    def sources(self) -> set[str]:
        """Hashes of all sources that had a part in it."""
        return {source for several in self.stages.values() for source in several}

    def begin(self, stage: str) -> None:
        """Note the source of now for a stage, before it runs."""
        before = self.stages.get(stage, []) if stage else []  # what is no stage is done again
        self.stages[stage] = [*before, *({source_hash()} - set(before))]
        self.save()

    def save(self) -> None:
        """Write what is known to disk."""
        with atomic_write(self._path) as temporary:
            data = {"stages": self.stages, "data": self.data}
            temporary.write_text(json.dumps(data), encoding="utf-8")


class Clock:
    """Seconds spent on a run, summed over its attempts; saved after every stage and at the end."""

    def __init__(self, path: Path):
        self._path = path
        self._begun: float | None = None
        self._earlier = 0.0
        self.stages: dict[str, float] = {}
        if path.exists():
            saved = json.loads(path.read_text(encoding="utf-8"))
            self._earlier, self.stages = saved["seconds"], saved["stages"]

    @property
    def seconds(self) -> float:
        """Seconds of all attempts so far."""
        now = 0.0 if self._begun is None else time.monotonic() - self._begun
        return self._earlier + now

    def start(self) -> None:
        """An attempt begins."""
        self._begun = time.monotonic()

    def stop(self) -> None:
        """The attempt ends."""
        self._earlier, self._begun = self.seconds, None
        self.save()

    def add(self, stage: str, seconds: float) -> None:
        """Note the time a stage took, added to that of earlier attempts at it, and save."""
        self.stages[stage] = self.stages.get(stage, 0.0) + seconds
        self.save()

    def save(self) -> None:
        """Write the time so far to disk."""
        with atomic_write(self._path) as temporary:
            data = {"seconds": self.seconds, "stages": self.stages}
            temporary.write_text(json.dumps(data), encoding="utf-8")


def _plain(outcome: Outcome) -> dict[str, Any]:
    """An outcome as JSON values."""
    fields = {name: list(getattr(outcome, name)) for name in ("curves", "images", "notes")}
    rows = [vars(row) for row in outcome.rows]
    return {**fields, "rows": rows, "timings": dict(outcome.timings)}


def _load_outcome(file: Path) -> Outcome:
    data = json.loads(file.read_text(encoding="utf-8"))
    return Outcome(**{**data, "rows": [Row(**row) for row in data["rows"]]})


def _stored(path: Path) -> Path | None:
    files = (path.with_name(f"{path.name}{suffix}") for suffix in (".npz", ".json"))
    return next((file for file in files if file.exists()), None)


def _store(path: Path, value: Any) -> Path:
    """Write a stage's result: a dict of arrays as .npz, anything else as .json; returns it."""
    if isinstance(value, dict) and any(hasattr(entry, "__array__") for entry in value.values()):
        return _store_arrays(path.with_name(f"{path.name}.npz"), value)
    rows = isinstance(value, list | tuple) and value and all(isinstance(v, Row) for v in value)
    kind, content = ("rows", [vars(row) for row in value]) if rows else ("json", value)
    try:
        text = json.dumps({"kind": kind, "value": content})
    except (TypeError, ValueError) as error:
        wanted = "a list of Row, JSON values or a dict of arrays"
        raise UndirectedError(f"stage result cannot be stored: {error}; return {wanted}") from error
    file = path.with_name(f"{path.name}.json")
    with atomic_write(file) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return file


def _store_arrays(path: Path, value: dict[str, Any]) -> Path:
    arrays: dict[str, Any] = {f"{_ARRAY}{name}": np.asarray(v) for name, v in value.items()}
    for name, array in arrays.items():
        if array.dtype.kind not in "biufcSU":
            what = f"{name.removeprefix(_ARRAY)!r} of dtype {array.dtype}"
            raise UndirectedError(f"stage result: cannot store {what}; return arrays of numbers")
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)
    return path


def _load(file: Path) -> Any:
    """Read what `_store` wrote; raises `BadFile` when that cannot be done."""
    try:
        if file.suffix == ".npz":
            with file.open("rb") as opened, np.load(opened) as arrays:
                return {name.removeprefix(_ARRAY): arrays[name] for name in arrays}
        data = json.loads(file.read_text(encoding="utf-8"))
        value = data["value"]
        return [Row(**row) for row in value] if data["kind"] == "rows" else value
    except (ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise BadFile(f"{file}: {error}") from error


def store(model: Any) -> dict[str, np.ndarray]:
    """The parameters of a model as arrays for a stage."""
    import equinox as eqx
    import jax

    leaves = jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))
    return {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}


def restore(model: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The model with the parameters of `store`."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp

    inside, outside = eqx.partition(model, eqx.is_inexact_array)
    count = len(jax.tree.leaves(inside))
    leaves = [jnp.asarray(arrays[f"leaf{i}"]) for i in range(count)]
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(inside), leaves), outside)
