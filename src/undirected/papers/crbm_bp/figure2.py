"""Figure 2: digits as they were, as they are seen, and as belief propagation restores them."""

from typing import Any

from undirected.experiments.record import Outcome
from undirected.experiments.stages import Context
from undirected.papers.crbm_bp import _images

TITLE = "Restored digits (Figure 2)"
_METHODS = {"methods": ["LR", "CD-10", "MLE-BP"]}
CONFIG = {
    "smoke": _images.SMOKE | _METHODS,
    "quick": _images.QUICK | _METHODS | {"train": 1000},
    "full": _images.FULL | _METHODS | {"train": 10_000},
}
CASES = {"MNIST, noise 10 %": "noise 10 %", "MNIST, occluded 8x8": "occluded 8x8"}


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """A sheet of test digits for noise and for an occluding patch, with the errors behind it."""
    return run_seeds(config, [seed], context)[0]


def run_seeds(config: dict[str, Any], seeds: list[int], context: Context) -> list[Outcome]:
    """The same for several seeds, with settings chosen by the first."""
    return _images.run_cases(CASES, {}, config, seeds, context)
