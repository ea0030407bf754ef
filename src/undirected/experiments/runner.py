"""Running an experiment: its config with overrides, and one record at the end."""

import hashlib
import json
import operator
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from undirected.core.errors import UndirectedError
from undirected.experiments import record as records
from undirected.experiments import registry
from undirected.experiments.record import Outcome, Record
from undirected.experiments.stages import Context, Event


def run(
    name: str,
    profile: str = "quick",
    seed: int = 0,
    out: Path = Path("results"),
    *,
    overrides: Sequence[str] = (),
    resume: bool = True,
    on_event: Callable[[Event], object] = lambda event: None,
) -> Record:
    """Run one experiment and write its record to `record_path(out, name, profile)`.

    A run that was stopped goes on after its last finished stage, provided experiment, config, seed
    and library version are the same; `resume=False` starts afresh, and may replace a record of
    another config or seed. `overrides`: `key=value` texts.
    """
    experiment, seed = registry.load(name), operator.index(seed)
    config = override(experiment.config(profile), overrides)
    path = record_path(out, experiment.name, profile)
    versions = records.versions()
    key = [experiment.name, profile, config, seed, versions["undirected"]]
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:12]
    scratch = path.parent / f".{path.stem}-{digest}"
    if not resume and scratch.exists():
        shutil.rmtree(scratch)
    elif resume and not scratch.exists():
        _check_same(path, config, seed)
    context = Context(experiment.name, scratch, on_event)
    context.tell("start", experiment.title)
    try:
        outcome = _outcome(experiment, experiment.run(_copy(config), seed, context))
    finally:
        context.clock.save()
    notes = [f"config of profile {profile!r} changed: {setting}" for setting in overrides]
    result = Record(
        experiment=experiment.name,
        title=experiment.title,
        profile=profile,
        config=config,
        seed=seed,
        device=records.device(),
        versions=versions,
        seconds=context.clock.seconds,
        rows=outcome.rows,
        curves=outcome.curves,
        images=_publish(outcome, context.out, path.with_suffix("")),
        notes=[*notes, *outcome.notes],
        timings={**context.clock.stages, **outcome.timings},
    )
    records.write(result, path)
    shutil.rmtree(scratch)
    context.tell("done", str(path), 1.0)
    return result


def _check_same(path: Path, config: Mapping[str, Any], seed: int) -> None:
    """Refuse to replace the record of another run."""
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        same = before["config"] == json.loads(json.dumps(config)) and before["seed"] == seed
    except (OSError, ValueError, KeyError, TypeError):
        return
    if not same:
        raise UndirectedError(
            f"{path} holds the record of another config or of another seed ({before['seed']}); "
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
