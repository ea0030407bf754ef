"""How rate, decay and start of a method are chosen, on validation."""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from undirected.papers.crbm_bp._learners import Arrays, Setting, Task, epochs_of, train


def choose(
    task: Task, method: str, config: dict[str, Any], seed: int, regression: Arrays | None = None
) -> dict[str, Any]:
    """The setting with the lowest validation error after `choose_epochs`, found by a walk.

    The walk starts in the middle of the grid and goes along the decays, then the rates, then the
    starts, as long as the next one is better. Of one point nothing is learned.
    """
    here, tried = _middle(grid(method, config)), {}

    def error(setting: Setting) -> float:
        if setting not in tried:
            epochs = min(config["choose_epochs"], epochs_of(method, config))
            (run,) = train([task], method, config, [seed], setting, [regression], epochs)
            tried[setting] = run.error
        return tried[setting]

    for name, values in grid(method, config).items():
        here = _walk(here, name, values, error)
    return {
        **asdict(here),
        "tried": [{**asdict(setting), "error": value} for setting, value in tried.items()],
    }


def grid(method: str, config: dict[str, Any]) -> dict[str, list]:
    """The values of every part of a setting, in the order in which they are chosen."""
    starts = ["random"] if method == "LR" else config["starts"]
    return {"decay": config["decays"], "rate": config["rates"], "start": starts}


def _middle(values: dict[str, list]) -> Setting:
    return Setting(**{name: several[len(several) // 2] for name, several in values.items()})


def _walk(here: Setting, name: str, values: list, error: Callable[[Setting], float]) -> Setting:
    """The best setting met from here on in both directions, until one is worse than the best.

    Equals are passed by: where learning only harms, all settings stay at the start, and a gentler
    one may not.
    """
    best, first = here, values.index(getattr(here, name))
    for direction in (1, -1):
        at = first + direction
        while 0 <= at < len(values):
            there = replace(here, **{name: values[at]})
            if error(there) > error(best):
                break
            best = there if error(there) < error(best) else best
            at += direction
    return best
