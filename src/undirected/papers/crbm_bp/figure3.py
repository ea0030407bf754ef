"""Figure 3: the error as the occluding patch grows, up to the whole image."""

from typing import Any

import numpy as np

from undirected.experiments.record import Outcome, Row, curve
from undirected.experiments.stages import Context
from undirected.papers.crbm_bp import _images

TITLE = "Completion against the size of the occluding patch (Figure 3)"
_METHODS = ["CD-10", "MLE-BP"]
CONFIG = {
    "smoke": _images.SMOKE | {"methods": _METHODS, "sizes": [8, 28]},
    "quick": _images.QUICK | {"methods": _METHODS, "sizes": [8, 16, 28], "train": 1000},
    "full": _images.FULL
    | {"methods": _METHODS, "sizes": [4, 8, 12, 16, 20, 24, 28], "train": 10_000},
}


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """Errors of both learners at every size; at 28x28 nothing is seen."""
    rows: list[Row] = []
    errors: dict[str, list[float]] = {method: [] for method in config["methods"]}
    for size in config["sizes"]:
        case = f"occluded {size}x{size}"
        task = _images.image_task(case, config, seed)
        for method, got in _images.learn_all(case, task, config, seed, context).items():
            rows += _images.error_rows(case, method, got, len(task.test[0]))
            errors[method].append(float(got["all"][0]))
    sides = np.asarray(config["sizes"], float).tolist()
    series = {method: (sides, values) for method, values in errors.items()}
    return Outcome(rows, curves=[curve("Test error", "side of the patch", "% of pixels", series)])
