"""What a running experiment may use: a folder, progress, and stages that survive a crash.

Several processes may run the same experiment over one folder: each stage is done by one of them.
"""

import json
import time
import uuid
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from undirected.core.errors import BadFile, UndirectedError
from undirected.core.files import atomic_write
from undirected.data import cache
from undirected.experiments.provenance import source_hash
from undirected.experiments.record import Outcome, Row, device, versions
from undirected.experiments.sharing import LOOK, Claims

_RUN = "run"  # the name of a claim; stages have theirs in a folder of their own
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
    `origins`: sources, machines and data that went into it, over all attempts.
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
        self.claims = Claims(scratch / "claims")
        self._stage_claims = Claims(scratch / "claims" / "stages")
        self.workers = workers(scratch)
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
        been through the disk, so that fresh and resumed runs go on from the same values. Where
        another process is at work on it, its result is waited for.
        """
        return self.map({name: fn})[name]

    def map(self, work: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
        """The results of several stages, by name, none of which needs another's.

        Several processes share them: what nobody is at work on is done first, then the results of
        the others are waited for, or what they left is done.
        """
        for name in work:
            if name in self._seen:
                raise UndirectedError(
                    f"stage {name!r} occurs twice in one run; give each its own name"
                )
            self._seen.add(name)
        found = {}
        for name, fn in work.items():
            if not self._stage_claims.held_by_another(quote(name, safe="")):
                found[name] = self._result(name, fn)
        return {
            name: found[name] if name in found else self._result(name, fn)
            for name, fn in work.items()
        }

    @property
    def has_stages(self) -> bool:
        """Whether a stage was ended or begun, here or by another process."""
        return any(self._stages.iterdir()) or self._stage_claims.shared

    def _result(self, name: str, fn: Callable[[], Any]) -> Any:
        """What is stored of a stage, or comes from another process, or is computed now."""
        path, told = self._stages / quote(name, safe=""), False
        while True:
            known, result = self._read(name, path)
            if known:
                return result
            with self._stage_claims.hold(path.name) as mine:
                if mine:
                    known, result = self._read(name, path)
                    return result if known else self._compute(name, path, fn)
            if not told:
                self.progress(f"{name}: another process is at work on it")
            told = True
            time.sleep(LOOK)

    def _read(self, name: str, path: Path) -> tuple[bool, Any]:
        """Whether a result is stored, and which."""
        stored = _stored(path)
        if stored is None:
            return False, None
        try:
            result = _load(stored)
        except (BadFile, OSError):
            self.progress(f"{name}: the stored result cannot be read; running it again")
            stored.unlink(missing_ok=True)
            return False, None
        self.tell("resumed", name)
        return True, result

    def _compute(self, name: str, path: Path, fn: Callable[[], Any]) -> Any:
        self.tell("stage", name)
        self.origins.begin(name)
        begun = time.monotonic()
        try:
            stored = _store(path, fn())
        finally:
            self.clock.add(name, time.monotonic() - begun)
            self.origins.save()
        return _load(stored)

    @property
    def busy(self) -> bool:
        """Whether another process is at this run."""
        return self.claims.held_by_another(_RUN)

    def shared_run(self, fn: Callable[[], Any]) -> Any:
        """The result of a run that other processes may be at: by sharing its stages, or, where it
        has none, after they ended.
        """
        told = False
        while True:
            with self.claims.hold(_RUN) as mine:
                if mine or self.has_stages:
                    return fn()
            if not told:
                self.progress("another process is at work on this run")
            told = True
            time.sleep(LOOK)

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


def workers(scratch: Path) -> Claims:
    """The processes that run an experiment with this folder."""
    return Claims(scratch / "workers")


class _Parts:
    """JSON values of one kind, a file for every process, so that none writes over another's."""

    def __init__(self, path: Path):
        self._stem, self._folder = path.stem, path.parent
        self._own = path.with_name(f"{path.stem}-{uuid.uuid4().hex[:8]}.json")

    def others(self) -> list[dict[str, Any]]:
        """What other processes saved, and earlier attempts."""
        files = sorted(self._folder.glob(f"{self._stem}*.json"))
        return [json.loads(f.read_text(encoding="utf-8")) for f in files if f != self._own]

    def save(self, value: dict[str, Any]) -> None:
        """Write the value of this process to disk."""
        with atomic_write(self._own) as temporary:
            temporary.write_text(json.dumps(value), encoding="utf-8")


class Origins:
    """What the parts of a run were made with: source, device and versions of every stage, and data.

    A stage that is taken up again after a change has both; "" stands for what is done outside of
    stages.
    """

    def __init__(self, path: Path):
        self._parts = _Parts(path)
        self._stages: dict[str, list[dict[str, str]]] = {}
        self.data: dict[str, str] = {}
        for other in self._parts.others():
            self.data |= other["data"]

    @property
    def stages(self) -> dict[str, list[dict[str, str]]]:
        """What every stage was made with, in the order in which it came."""
        found: dict[str, list[dict[str, str]]] = {}
        for stages in (*(other["stages"] for other in self._parts.others()), self._stages):
            for name, makers in stages.items():
                own = found.setdefault(name, [])
                told = [m if isinstance(m, dict) else {"source": m} for m in makers]  # as it was
                own += [maker for maker in told if maker not in own]
        return found | {"": self._stages.get("", [])}  # what is no stage is done again

    @property
    def sources(self) -> set[str]:
        """Hashes of all sources that had a part in it."""
        return {maker["source"] for several in self.stages.values() for maker in several}

    @property
    def machines(self) -> list[dict[str, str]]:
        """Devices and versions of all stages, or, where none tells them, of now."""
        several = [maker for name, makers in self.stages.items() if name for maker in makers]
        told = [maker for maker in several if "device" in maker] or [_maker()]
        return [{k: v for k, v in maker.items() if k != "source"} for maker in told]

    def begin(self, stage: str) -> None:
        """Note what a stage is made with, before it runs."""
        before = self._stages.get(stage, [])
        self._stages[stage] = [*before, *(maker for maker in [_maker()] if maker not in before)]
        self.save()

    def save(self) -> None:
        """Write what is known to disk."""
        self._parts.save({"stages": self._stages, "data": self.data})


def _maker() -> dict[str, str]:
    """What is made now is made with."""
    return {"source": source_hash(), "device": device(), **versions()}


class Clock:
    """Seconds spent on a run, summed over its attempts and over the processes that share it.

    Saved after every stage and at the end.
    """

    def __init__(self, path: Path):
        self._parts = _Parts(path)
        self._begun: float | None = None
        self._earlier = 0.0
        self._stages: dict[str, float] = {}

    @property
    def seconds(self) -> float:
        """Seconds of all attempts so far."""
        return self._own_seconds + sum(other["seconds"] for other in self._parts.others())

    @property
    def stages(self) -> dict[str, float]:
        """Seconds of every stage, in the order in which they came."""
        found: dict[str, float] = {}
        for stages in (*(other["stages"] for other in self._parts.others()), self._stages):
            for name, seconds in stages.items():
                found[name] = found.get(name, 0.0) + seconds
        return found

    @property
    def _own_seconds(self) -> float:
        now = 0.0 if self._begun is None else time.monotonic() - self._begun
        return self._earlier + now

    def start(self) -> None:
        """An attempt begins."""
        self._begun = time.monotonic()

    def stop(self) -> None:
        """The attempt ends."""
        self._earlier, self._begun = self._own_seconds, None
        self.save()

    def add(self, stage: str, seconds: float) -> None:
        """Note the time a stage took, added to that of earlier attempts at it, and save."""
        self._stages[stage] = self._stages.get(stage, 0.0) + seconds
        self.save()

    def save(self) -> None:
        """Write the time so far to disk."""
        self._parts.save({"seconds": self._own_seconds, "stages": self._stages})


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
