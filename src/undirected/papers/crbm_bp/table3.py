"""Table 3: denoising and completion of Caltech101 Silhouettes."""

from typing import Any

from undirected.experiments.record import Outcome
from undirected.experiments.stages import Context
from undirected.papers.crbm_bp import _images

TITLE = "Denoising and completing Caltech101 Silhouettes with conditional RBMs (Table 3)"
PARTS = ("cases", "methods")
_FEW = {
    "batch": 40,
    "epochs": 60,
    "choose_epochs": 20,
    "validate_epochs": 4,
    "decays": [0.0, 0.003, 0.01, 0.02, 0.04],
}
CONFIG = {
    "smoke": _images.SMOKE,
    "quick": _images.QUICK | _images.CALTECH | {"valid": 500, "test": 1000},
    "full": _images.FULL | _images.CALTECH | _FEW,
}
CASES = {"Caltech, noise 20 %": "noise 20 %", "Caltech, occluded 12x12": "occluded 12x12"}
_NOISE = {
    "LR": (5.653, 11.460),
    "CD-1": (5.876, 12.423),
    "CD-10": (5.736, 12.013),
    "CD-PercLoss": (5.622, 10.808),
    "MLE-MF": (5.617, 11.083),
    "MLE-BP": (5.445, 10.731),
    "LSSVM": (5.628, 11.468),
    "MSSVM": (5.549, 11.389),
}
_OCCLUDED = {
    "LR": (4.771, 16.587),
    "CD-1": (5.033, 20.300),
    "CD-10": (5.149, 21.087),
    "CD-PercLoss": (5.081, 15.102),
    "MLE-MF": (4.692, 15.995),
    "MLE-BP": (4.548, 16.541),
    "LSSVM": (4.703, 16.014),
    "MSSVM": (4.534, 14.918),
}
PAPER = _images.printed(CASES, _NOISE, _OCCLUDED)
CLAIMS = _images.claims(PAPER)


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """Errors of every learner on both tasks."""
    return run_seeds(config, [seed], context)[0]


def run_seeds(config: dict[str, Any], seeds: list[int], context: Context) -> list[Outcome]:
    """The same for several seeds, with settings chosen by the first."""
    return _images.run_cases(CASES, PAPER, config, seeds, context)
