"""Table 1: denoising of MNIST digits with 10 % and 20 % of the pixels flipped."""

from typing import Any

from undirected.experiments.record import Outcome
from undirected.experiments.stages import Context
from undirected.papers.crbm_bp import _images

TITLE = "Denoising MNIST with conditional RBMs (Table 1)"
PARTS = ("cases", "methods")
CONFIG = {"smoke": _images.SMOKE, "quick": _images.QUICK, "full": _images.FULL}
CASES = {"MNIST, noise 10 %": "noise 10 %", "MNIST, noise 20 %": "noise 20 %"}
_LOW = {
    "LR": (1.960, 12.531),
    "CD-1": (1.925, 12.229),
    "CD-10": (1.816, 11.103),
    "CD-PercLoss": (1.760, 11.121),
    "MLE-MF": (1.862, 11.319),
    "MLE-BP": (1.688, 10.718),
    "LSSVM": (1.807, 11.565),
    "MSSVM": (1.751, 11.023),
}
_HIGH = {
    "LR": (4.088, 12.609),
    "CD-1": (4.012, 12.597),
    "CD-10": (3.995, 11.271),
    "CD-PercLoss": (3.970, 10.876),
    "MLE-MF": (3.917, 10.939),
    "MLE-BP": (3.691, 10.409),
    "LSSVM": (3.910, 11.175),
    "MSSVM": (3.804, 10.627),
}
PAPER = _images.printed(CASES, _LOW, _HIGH)
CLAIMS = _images.claims(PAPER)


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """Errors of every learner on both noise levels."""
    return run_seeds(config, [seed], context)[0]


def run_seeds(config: dict[str, Any], seeds: list[int], context: Context) -> list[Outcome]:
    """The same for several seeds, with settings chosen by the first."""
    return _images.run_cases(CASES, PAPER, config, seeds, context)
