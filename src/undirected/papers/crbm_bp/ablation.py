"""What makes MLE-BP+ better than MLE-BP: one change at a time, on Caltech101 Silhouettes."""

from typing import Any

from undirected.experiments.record import Outcome, Row
from undirected.experiments.stages import Context
from undirected.papers.crbm_bp import _images
from undirected.papers.crbm_bp._learners import Setting, learn

TITLE = "What helps learning by belief propagation"
CONFIG: dict[str, dict[str, Any]] = {
    "smoke": _images.SMOKE | {"variants": ["once", "afresh"]},
    "quick": _images.QUICK | {"train": 1000, "variants": ["once", "afresh"]},
    "full": _images.FULL
    | _images.CALTECH
    | {
        "batch": 40,
        "epochs": 30,
        "epochs_of": {"MLE-BP+": 60},
        "decays": [0.0],
        "rates": [0.02],
        "variants": [
            "once",
            "afresh",
            "afresh, constant rate",
            "afresh, Adam",
            "afresh, no regression first",
            "afresh, 64 hidden units",
            "afresh, 512 hidden units",
            "afresh, 5 iterations",
        ],
    },
}
CASES = ("noise 20 %", "occluded 12x12")
_CHANGES: dict[str, dict[str, Any]] = {
    "constant rate": {"optimiser": "constant"},
    "Adam": {"optimiser": "adam", "rates": [0.002]},
    "64 hidden units": {"hidden": 64},
    "512 hidden units": {"hidden": 512},
    "5 iterations": {"most_iterations": 5},
}


def run(config: dict[str, Any], seed: int, context: Context) -> Outcome:
    """Test errors of every variant: the corruption drawn once or afresh, and one further change."""
    rows: list[Row] = []
    for case in CASES:
        task = _images.image_task(case, config, seed)
        alone = _setting(config, "random")
        start = context.stage(
            f"{case}, LR", lambda t=task, a=alone: learn(t, "LR", config, seed, a)
        )
        for variant in config["variants"]:
            corruption, _, change = variant.partition(", ")
            method = "MLE-BP" if corruption == "once" else "MLE-BP+"
            changed = config | _CHANGES.get(change, {})
            first = "random" if change == "no regression first" else "regression"
            setting = _setting(changed, first)
            context.progress(f"{case}, {variant}: learning")
            got = context.stage(
                f"{case}, {variant}",
                lambda t=task, m=method, c=changed, s=setting, r=start: learn(t, m, c, seed, s, r),
            )
            rows += _images.error_rows(case, f"drawn {variant}", got, len(task.test[0]))
    return Outcome(rows)


def _setting(config: dict[str, Any], start: str) -> Setting:
    """The only rate and decay of a config."""
    (rate,), (decay,) = config["rates"], config["decays"]
    return Setting(rate, decay, start)
