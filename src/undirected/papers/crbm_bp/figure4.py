"""Figure 4: the share of training instances on which belief propagation converges."""

from typing import Any

from undirected.experiments.record import Outcome, Row, curve
from undirected.experiments.stages import Context
from undirected.papers.crbm_bp import _images

TITLE = "Convergence of belief propagation during learning (Figure 4)"
_ONE = {"methods": ["MLE-BP"]}
CONFIG = {
    "smoke": _images.SMOKE | _ONE,
    "quick": _images.QUICK | _ONE,
    "full": _images.FULL | _ONE,
}


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """T = 7 + epoch iterations, tolerance 0.001, MNIST with an 8x8 patch occluded."""
    task = _images.image_task("occluded 8x8", config, seed)
    found = _images.learn_all("occluded 8x8", task, config, seed, context)["MLE-BP"]
    epochs, share = _images.converged(found)
    metric = "converged training instances (%)"
    rows = [
        Row(f"epoch {epoch:.0f}", "MLE-BP", metric, value, better="higher")
        for epoch, value in zip(epochs, share, strict=True)
    ]
    series = {"MLE-BP": (epochs, share)}
    return Outcome(rows, curves=[curve("Converged instances", "epoch", "%", series)])
