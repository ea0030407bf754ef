"""Corrupted images: the cases of the tables, and the run over all methods of a table."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from undirected import data
from undirected.core.errors import UndirectedError
from undirected.data.corruption import flip, occlude
from undirected.evaluation import error_rate
from undirected.experiments.claims import Claim, Meets, everywhere
from undirected.experiments.record import Outcome, Row, curve
from undirected.experiments.stages import Context
from undirected.papers.crbm_bp._choice import choose
from undirected.papers.crbm_bp._learners import (
    EXTRA,
    METHODS,
    SHOWN,
    Pair,
    Scores,
    Setting,
    Task,
    learn_together,
)
from undirected.report.images import image_grid

SHAPE = (28, 28)
FULL: dict[str, Any] = {
    "images": "mnist",
    "white": 1,
    "cases": [],
    "hidden": 256,
    "methods": METHODS + EXTRA,
    "epochs": 40,
    "epochs_of": {"CD-PercLoss": 200},
    "choose_epochs": 10,
    "validate_epochs": 2,
    "most_iterations": 30,
    "decays": [0.0, 0.001, 0.003, 0.01, 0.02],
    "rates": [0.002, 0.005, 0.02, 0.05],
    "starts": ["regression", "random"],
    "batch": 100,
    "train": 50_000,
    "valid": 10_000,
    "test": 10_000,
}
QUICK = FULL | {
    "images": "mnist5k",
    "hidden": 64,
    "methods": ["LR", "CD-1", "MLE-BP"],
    "epochs": 8,
    "epochs_of": {},
    "choose_epochs": 8,
    "validate_epochs": 1,
    "most_iterations": 12,
    "decays": [0.003],
    "rates": [0.02],
    "starts": ["regression"],
    "batch": 20,
    "train": 3500,
    "valid": 500,
    "test": 1000,
}
SMOKE = QUICK | {
    "hidden": 8,
    "epochs": 1,
    "most_iterations": 3,
    "train": 100,
    "valid": 20,
    "test": 20,
}
CALTECH = {
    "images": "caltech101_silhouettes",
    "white": 0,
    "train": 4100,
    "valid": 2264,
    "test": 2307,
}
METRICS = {"all": "error, all pixels (%)", "changed": "error, changed pixels (%)"}
Corrupt = Callable[[Array, Key[Array, ""]], Array]
Found = dict[str, dict[str, Any]]


def printed(
    cases: Iterable[str], *columns: dict[str, tuple[float, float]]
) -> dict[tuple[str, str], tuple[float, float]]:
    """The errors (All, Changed) of a printed table, by (case, method); one column for each case."""
    return {
        (case, method): errors
        for case, column in zip(cases, columns, strict=True)
        for method, errors in column.items()
    }


def claims(table: dict[tuple[str, str], tuple[float, float]]) -> list[Claim]:
    """What the paper says of a printed table, whose keys are (case, method)."""
    cases = tuple(dict.fromkeys(case for case, _ in table))
    others = [method for method in METHODS if method != "MLE-BP"]
    figures = ", ".join(f"{table[case, 'MLE-BP'][0]:g} %" for case in cases)
    won = sum(min(METHODS, key=lambda m: table[case, m][0]) == "MLE-BP" for case in cases)
    return [
        Claim(
            "Learning with belief propagation (MLE-BP) leaves fewer wrong pixels than every other "
            "method.",
            f"lowest error in {won} of {len(cases)} columns",
            everywhere(cases, METRICS["all"], "MLE-BP", others),
        ),
        Claim(
            "The errors of MLE-BP are no higher than the printed ones.",
            figures,
            [Meets(case, METRICS["all"], "MLE-BP") for case in cases],
        ),
    ]


def corruption(case: str, white: float = 1) -> Corrupt:
    """The corruption that a case names: "noise 10 %" or "occluded 8x8".

    An occluding patch has the value of the background: 0 where the shapes are 1, else 1.
    """
    kind, size = case.split()[:2]
    if kind == "noise":
        return lambda v, key: flip(v, float(size) / 100, key)[0]
    side = int(size.split("x")[0])
    return lambda v, key: occlude(v, SHAPE, side, key, value=1 - white)[0]


def image_task(case: str, config: dict[str, Any], seed: int) -> Task:
    """Corrupted and clean binary images of every part; MNIST is thresholded at 127."""
    corrupt = corruption(case, config["white"])
    found = data.load(config["images"])
    if not len(found.valid):
        found = data.hold_out(found, config["valid"], seed)
    level = 127 if found.train.x.max() > 1 else 0
    parts = ("train", "valid", "test")
    pairs: list[Pair] = []
    for part, key in zip(parts, jax.random.split(jax.random.key(seed), 3), strict=True):
        on = getattr(found, part).x[: config[part]] > level
        v = (on == bool(config["white"])).astype(np.uint8)
        pairs.append((np.asarray(corrupt(jnp.asarray(v, jnp.float32), key), np.uint8), v))
    return Task(*pairs, score=_errors, redraw=corrupt)


def _errors(answers: np.ndarray, x: np.ndarray, v: np.ndarray) -> Scores:
    """Wrong pixels in per cent, among all and among those the corruption changed."""
    scores = {"all": error_rate(answers > 0.5, v), "changed": error_rate(answers > 0.5, v, x != v)}
    return {name: (100 * score.mean, 100 * score.stderr) for name, score in scores.items()}


def learn_all(case: str, task: Task, config: dict[str, Any], seed: int, context: Context) -> Found:
    """Every method of the config on one task."""
    return learn_seeds(case, {seed: task}, config, context)[0]


def learn_seeds(
    case: str, tasks: dict[int, Task], config: dict[str, Any], context: Context
) -> list[Found]:
    """Every method of the config on the tasks of all seeds, each a stage.

    The setting of a method is chosen with the first seed, and all learn with it, side by side.
    """
    others = [name for name in config["methods"] if name != "LR"]
    regressions = _learn_group(case, ["LR"], tasks, config, context, [None] * len(tasks))
    starts = [{k: v for k, v in own["LR"].items() if k != "setting"} for own in regressions]
    rest = _learn_group(case, others, tasks, config, context, starts)
    found = [one | more for one, more in zip(regressions, rest, strict=True)]
    return [{method: own[method] for method in config["methods"]} for own in found]


def _learn_group(
    case: str,
    methods: list[str],
    tasks: dict[int, Task],
    config: dict[str, Any],
    context: Context,
    starts: Sequence[dict[str, Any] | None],
) -> list[Found]:
    """Methods that need nothing of each other, from the regressions of every seed."""
    first, *_ = tasks
    chosen = context.map(
        {
            f"{case}, {method}, choice": partial(
                choose, tasks[first], method, config, first, starts[0]
            )
            for method in methods
        }
    )
    work = {}
    for method in methods:
        setting = chosen[f"{case}, {method}, choice"]
        values = Setting(setting["rate"], setting["decay"], setting["start"])
        work[f"{case}, {method}"] = partial(_learn, tasks, method, config, values, starts)
    found: list[Found] = [{} for _ in tasks]
    for method, got in zip(methods, context.map(work).values(), strict=True):
        for i, own in enumerate(found):
            setting = chosen[f"{case}, {method}, choice"]
            own[method] = {name: array[i] for name, array in got.items()} | {"setting": setting}
    return found


def _learn(
    tasks: dict[int, Task],
    method: str,
    config: dict[str, Any],
    setting: Setting,
    starts: Sequence[dict[str, Any] | None],
) -> dict[str, np.ndarray]:
    """What a method learned with every seed, side by side; arrays lead with the seeds."""
    seeds, several = list(tasks), list(tasks.values())
    found = learn_together(several, method, config, seeds, setting, starts)
    return {name: np.stack([own[name] for own in found]) for name in found[0]}


def run_cases(
    cases: dict[str, str],
    paper: dict[tuple[str, str], tuple[float, float]],
    config: dict[str, Any],
    seeds: list[int],
    context: Context,
) -> list[Outcome]:
    """Every method on every case, or on those of `config["cases"]`; an outcome for each seed.

    `paper` has the errors (All, Changed) of (case, method).
    """
    if unknown := set(config["cases"]) - set(cases):
        raise UndirectedError(
            f"crbm-bp: no case {', '.join(sorted(unknown))}; pass some of {'; '.join(cases)}"
        )
    chosen = {case: cases[case] for case in config["cases"] or cases}
    rows: list[list[Row]] = [[] for _ in seeds]
    settled, images = {}, []
    notes = ["Corruption of the training images is drawn once, but afresh each step for MLE-BP+."]
    for case, name in chosen.items():
        tasks = {seed: image_task(name, config, seed) for seed in seeds}
        several = learn_seeds(case, tasks, config, context)
        for found, own, task in zip(several, rows, tasks.values(), strict=True):
            for method, got in found.items():
                theirs = paper.get((case, method), (None, None))
                own += error_rows(case, method, got, len(task.test[0]), theirs)
        notes += [_note(case, method, got) for method, got in several[0].items()]
        if "MLE-BP" in several[0]:
            settled[case] = converged(several[0]["MLE-BP"])
        images.append(picture(case, tasks[seeds[0]].test, several[0], context))
    curves = [curve("Converged instances (MLE-BP)", "epoch", "%", settled)] if settled else []
    return [
        Outcome(own, curves=curves, images=images if i == 0 else (), notes=notes if i == 0 else ())
        for i, own in enumerate(rows)
    ]


def _note(case: str, method: str, got: dict[str, Any]) -> str:
    setting = got["setting"]
    return (
        f"{case}, {method}: decay {setting['decay']:g}, rate {setting['rate']:g} and a "
        f"{setting['start']} start chosen of {max(len(setting['tried']), 1)} settings tried; "
        f"best on validation ({got['validation'].item():.3f} %) after epoch "
        f"{got['best'].item():.0f}."
    )


def error_rows(
    case: str,
    method: str,
    got: dict[str, np.ndarray],
    count: int,
    paper: tuple[float | None, float | None] = (None, None),
) -> list[Row]:
    """Both errors of a method."""
    rows = []
    for (key, metric), published in zip(METRICS.items(), paper, strict=True):
        value, stderr = got[key].tolist()
        rows.append(Row(case, method, metric, value, stderr, count, published, better="lower"))
    return rows


def converged(got: dict[str, np.ndarray]) -> tuple[list[float], list[float]]:
    """Epochs, and the share of training instances (%) whose messages settled in each."""
    return got["epochs"].tolist(), (100 * got["converged"]).tolist()


def picture(case: str, test: Pair, found: Found, context: Context) -> dict[str, str]:
    """A sheet: truth, what is seen, and each method's answer, one row each.

    That of one method alone bears its name: methods run apart keep each other's sheets.
    """
    x, v = (a[:SHOWN] for a in test)
    sheet = np.concatenate([v, x, *(got["shown"] for got in found.values())])
    title = " ".join([case, *found] if len(found) == 1 else [case]).replace("+", " plus")
    name = "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split())
    image_grid(sheet.astype(np.float32), SHAPE, context.out / f"{name}.png", columns=len(x))
    caption = f"{case}. Rows: truth, seen, {', '.join(found)}"
    return {"name": case, "caption": caption, "file": f"{name}.png"}
