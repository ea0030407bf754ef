"""Table 2: completion of MNIST digits with an 8x8 or 12x12 patch set to zero."""

from typing import Any

from undirected.experiments.record import Outcome
from undirected.experiments.stages import Context
from undirected.papers.crbm_bp import _images

TITLE = "Completing MNIST with conditional RBMs (Table 2)"
PARTS = ("cases", "methods")
CONFIG = {
    "smoke": _images.SMOKE | {"methods": _images.FULL["methods"]},
    "quick": _images.QUICK,
    "full": _images.FULL,
}
CASES = {"MNIST, occluded 8x8": "occluded 8x8", "MNIST, occluded 12x12": "occluded 12x12"}
_SMALL = {
    "LR": (1.468, 61.304),
    "CD-1": (1.814, 63.130),
    "CD-10": (1.707, 67.925),
    "CD-PercLoss": (1.394, 45.684),
    "MLE-MF": (1.492, 49.553),
    "MLE-BP": (1.329, 39.785),
    "LSSVM": (1.496, 44.037),
    "MSSVM": (1.391, 41.829),
}
_LARGE = {
    "LR": (3.498, 53.971),
    "CD-1": (3.983, 58.376),
    "CD-10": (3.921, 63.237),
    "CD-PercLoss": (3.483, 35.755),
    "MLE-MF": (3.477, 40.703),
    "MLE-BP": (3.117, 36.233),
    "LSSVM": (3.468, 39.140),
    "MSSVM": (3.273, 35.712),
}
PAPER = _images.printed(CASES, _SMALL, _LARGE)
CLAIMS = _images.claims(PAPER)


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """Errors of every learner on both patch sizes."""
    return run_seeds(config, [seed], context)[0]


def run_seeds(config: dict[str, Any], seeds: list[int], context: Context) -> list[Outcome]:
    """The same for several seeds, with settings chosen by the first."""
    return _images.run_cases(CASES, PAPER, config, seeds, context)
