"""Running an experiment: its config with overrides, its seeds, and one record at the end."""

import hashlib
import json
import operator
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from undirected.core.errors import UndirectedError
from undirected.data import cache
from undirected.experiments import provenance, registry
from undirected.experiments import record as records
from undirected.experiments.joining import addition, has_part
from undirected.experiments.record import Outcome, Record
from undirected.experiments.sharing import alone_at
from undirected.experiments.stages import Context, Event, workers


def run(
    name: str,
    profile: str = "quick",
    seed: int = 0,
    out: Path = Path("results"),
    *,
    seeds: int = 1,
    side_by_side: bool = True,
    overrides: Sequence[str] = (),
    resume: bool = True,
    on_event: Callable[[Event], object] = lambda event: None,
) -> Record:
    """Run one experiment and write its record to `record_path(out, name, profile)`.

    With several `seeds`, from `seed` on, the rows are means over them. An experiment that can learn
    them in one program does so unless `side_by_side` is False; one that averages over runs by
    itself (`REPEATS`) makes at least that many, all from `seed`. A run that was stopped goes on
    after its last finished stage, provided experiment, config, seeds and library version are the
    same; `resume=False` starts afresh, and may replace a record of another config or seed.
    Processes that run the same experiment into the same folder share its seeds and stages, and
    each writes the whole record. `overrides`: `key=value` texts. An experiment that can be run part
    by part (`PARTS`: case by case, method by method) adds to a record of other parts, of the same
    config and seeds; with `resume=False` it makes parts of that record again, and the rest stays.
    """
    experiment, seed = registry.load(name), operator.index(seed)
    several = _seeds(seed, seeds)
    config = override(experiment.config(profile), overrides)
    if experiment.repeats is not None:
        config = _repeated(config, experiment.repeats, len(several))
        several = [seed]
    path = record_path(out, experiment.name, profile)
    plan, stood = _Plan(experiment, profile, config, several, side_by_side, path), _stamp(path)
    begun = plan.begun
    if not resume:
        plan.forget()
    elif not begun and addition(path, config, several, experiment.parts) is None:
        _check_same(path, config, several)
    contexts = plan.contexts(on_event)
    contexts[0].tell("start", experiment.title)
    with ExitStack() as here:
        for context in contexts:
            here.enter_context(context.workers.hold_any())
        outcome = plan.run(contexts)
        changed = [f"config of profile {profile!r} changed: {setting}" for setting in overrides]
        result = plan.record(outcome, contexts, seed, changed)
        with alone_at(path):
            came = _stamp(path) != stood  # another run has written its record meanwhile
            asked = path, config, several, experiment.parts
            others = addition(*asked, again=not resume or (begun and not came))
            if others is not None:
                whole = experiment.config(profile)
                parts = {name: whole[name] for name in experiment.parts}
                records.write(others.joined(result, parts), path)
            elif not (came and has_part(*asked)):  # else one that shared this run has joined it
                if came:
                    _check_same(path, config, several)
                records.write(result, path)
        alone = not any(context.workers.shared for context in contexts)
    if alone:
        plan.forget()
    contexts[0].tell("done", str(path), 1.0)
    return result


@dataclass(frozen=True)
class _Plan:
    """How the seeds of one record are run, and where what they leave is kept until it is written.

    Each seed has a folder of its own, which one more seed leaves as it is; seeds learned side by
    side share one.
    """

    experiment: registry.Experiment
    profile: str
    config: dict[str, Any]
    seeds: list[int]
    side_by_side: bool
    path: Path

    @property
    def together(self) -> bool:
        """Whether one call runs all seeds."""
        able = self.experiment.run_seeds is not None and self.side_by_side
        return able and len(self.seeds) > 1

    @property
    def folders(self) -> list[Path]:
        """The folders of what is kept, one for each call."""
        groups: list[Any] = [self.seeds] if self.together else self.seeds
        return [self._folder(seed) for seed in groups]

    def _folder(self, seed: int | list[int]) -> Path:
        version = records.versions()["undirected"]
        key = [self.experiment.name, self.profile, self.config, seed, version]
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:12]
        return self.path.parent / f".{self.path.stem}-{digest}"

    @property
    def begun(self) -> bool:
        """Whether something of an earlier attempt is there."""
        return any(folder.exists() for folder in self.folders)

    def forget(self) -> None:
        """Remove what was kept, unless another process is at work there."""
        for folder in self.folders:
            if folder.exists() and workers(folder).shared:
                raise UndirectedError(
                    f"{self.experiment.name}: another process is running it into this folder; "
                    "leave --fresh out to share its work, or choose another --out"
                )
            shutil.rmtree(folder, ignore_errors=True)

    def contexts(self, on_event: Callable[[Event], object]) -> list[Context]:
        """What each call may use."""
        return [Context(self.experiment.name, folder, on_event) for folder in self.folders]

    def run(self, contexts: list[Context]) -> Outcome:
        """The outcome of all seeds."""
        if self.together:
            return contexts[0].shared_run(partial(self._run_together, contexts[0]))
        found: dict[int, Outcome] = {}
        pairs = list(zip(self.seeds, contexts, strict=True))
        # What another process is at comes last: to join it, or to take up what it leaves.
        for seed, context in sorted(pairs, key=lambda pair: pair[1].busy):
            if len(contexts) > 1:
                context.tell("seed", f"seed {seed}")
            found[seed] = context.shared_run(partial(self._run_seed, seed, context))
        return records.join({seed: found[seed] for seed in self.seeds})

    def _run_seed(self, seed: int, context: Context) -> Outcome:
        context.clock.start()
        try:
            return context.whole(partial(self._run_one, seed, context))
        finally:
            context.clock.stop()

    def record(
        self, outcome: Outcome, contexts: list[Context], seed: int, changed: list[str]
    ) -> Record:
        """What the run gave, with where it comes from; its images go beside it."""
        sources = {source for context in contexts for source in context.origins.sources}
        data = {file: checksum for one in contexts for file, checksum in one.origins.data.items()}
        described = provenance.describe(sources, data)
        machines = [machine for context in contexts for machine in context.origins.machines]
        made = records.together(*machines)
        return Record(
            experiment=self.experiment.name,
            title=self.experiment.title,
            profile=self.profile,
            config=self.config,
            seed=seed,
            seeds=self.seeds,
            device=made.pop("device"),
            versions=made,
            provenance=described,
            seconds=sum(context.clock.seconds for context in contexts),
            rows=outcome.rows,
            curves=outcome.curves,
            images=_publish(outcome, contexts[0].out, self.path.with_suffix("")),
            notes=[*changed, *provenance.warning(described), *outcome.notes],
            timings=outcome.timings,
        )

    def _run_one(self, seed: int, context: Context) -> Outcome:
        result = self.experiment.run(_copy(self.config), seed, context)
        outcome = _outcome(self.experiment, result)
        return replace(outcome, timings={**context.clock.stages, **outcome.timings})

    def _run_together(self, context: Context) -> Outcome:
        """All seeds by one call, which gives an outcome for each."""
        run = self.experiment.run_seeds
        assert run is not None
        context.clock.start()
        context.origins.begin("")
        try:
            with cache.recorded(context.origins.data):
                results = run(_copy(self.config), list(self.seeds), context)
        finally:
            context.clock.stop()
        if not isinstance(results, Sequence) or len(results) != len(self.seeds):
            raise UndirectedError(
                f"{self.experiment.name}: run_seeds must return one outcome for each of "
                f"{len(self.seeds)} seeds"
            )
        outcomes = [_outcome(self.experiment, result) for result in results]
        joined = records.join(dict(zip(self.seeds, outcomes, strict=True)))
        return replace(joined, timings={**context.clock.stages, **joined.timings})


def _repeated(config: dict[str, Any], key: str, least: int) -> dict[str, Any]:
    """The config with at least so many runs inside the experiment."""
    place: Any = config
    for part in key.split("."):
        place = place[part]
    return override(config, [f"{key}={max(place, least)}"])


def _seeds(first: int, count: int) -> list[int]:
    count = operator.index(count)
    if count < 1:
        raise UndirectedError(f"{count} seeds are asked for; pass 1 or more")
    return list(range(first, first + count))


def _stamp(path: Path) -> int | None:
    """When a file was written; None where there is none."""
    return path.stat().st_mtime_ns if path.is_file() else None


def _check_same(path: Path, config: Mapping[str, Any], seeds: list[int]) -> None:
    """Refuse to replace the record of another run."""
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        held = before.get("seeds", [before["seed"]])
        same = before["config"] == json.loads(json.dumps(config)) and held == seeds
    except (OSError, ValueError, KeyError, TypeError):
        return
    if not same:
        named = ", ".join(map(str, held))
        raise UndirectedError(
            f"{path} holds the record of another config or of another seed ({named}); "
            "choose another --out, or add --fresh to replace it"
        )


def record_path(out: Path, name: str, profile: str) -> Path:
    """Where the record of an experiment is kept: `<out>/<paper>/<experiment>-<profile>.json`."""
    return Path(out) / f"{name}-{profile}.json"


def override(config: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """A copy of `config` with `key=value` settings applied; nested keys are written `a.b=value`.

    Every key must exist, and its value keeps its type: a typing error never starts a long run.
    """
    result = _copy(config)
    for setting in settings:
        key, equals, text = setting.partition("=")
        *parents, last = key.strip().split(".")
        place = result
        for parent in parents:
            place = place.get(parent) if isinstance(place, dict) else None
        if not equals or not isinstance(place, dict) or last not in place:
            known = ", ".join(_keys(result))
            raise UndirectedError(f"cannot set {setting!r}; write key=value with a key of: {known}")
        place[last] = _parse(key, text.strip(), place[last])
    return _copy(result)


def _parse(key: str, text: str, now: Any) -> Any:
    """The value written in `text`, of the type of the value it replaces."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except ValueError:
        value = text
    if isinstance(now, str):
        return text
    if not _alike(value, now):
        wanted = f"{type(now).__name__} like {json.dumps(now)}"
        raise UndirectedError(f"cannot set {key} to {text!r}; wanted a value of type {wanted}")
    return float(value) if isinstance(now, float) else value


def _alike(value: Any, now: Any) -> bool:
    if now is None:
        return True
    if isinstance(now, list):
        return isinstance(value, list) and all(_alike(one, now[0]) for one in value if now)
    if isinstance(now, dict):
        same_keys = isinstance(value, dict) and value.keys() == now.keys()
        return same_keys and all(_alike(value[key], now[key]) for key in now)
    if isinstance(now, float):
        return isinstance(value, float | int) and not isinstance(value, bool)
    return type(value) is type(now)


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _keys(config: Mapping[str, Any], prefix: str = "") -> list[str]:
    """All keys of a nested config, dotted."""
    keys = []
    for key, value in config.items():
        nested = isinstance(value, dict) and value
        keys += _keys(value, f"{prefix}{key}.") if nested else [f"{prefix}{key}"]
    return keys


def _copy(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config as the record will hold it; raises when it is not made of finite JSON values."""
    try:
        return json.loads(json.dumps(config, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise UndirectedError(f"config is not made of JSON values: {error}") from error


def _outcome(experiment: registry.Experiment, result: Any) -> Outcome:
    if isinstance(result, Outcome):
        return result
    if isinstance(result, Sequence) and not isinstance(result, str):
        return Outcome(rows=result)
    got = type(result).__name__
    raise UndirectedError(f"{experiment.name}: run returned {got}; wanted list[Row] or Outcome")


def _publish(outcome: Outcome, source: Path, target: Path) -> list[dict[str, str]]:
    """Copy the artefacts beside the record, and name the images from there."""
    images = []
    for image in outcome.images:
        file = source / image["file"]
        if not (file.is_file() and file.is_relative_to(source)):
            raise UndirectedError(f"image {image['file']!r} is not in context.out; write it there")
        images.append({**image, "file": (target.name / file.relative_to(source)).as_posix()})
    if any(source.iterdir()):
        shutil.copytree(source, target, dirs_exist_ok=True)
    return images
