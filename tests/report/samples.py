"""Records as they lie on disk, made up."""

from typing import Any


def row(case, method, metric, ours, stderr=None, n=None, paper=None, better="lower") -> dict:
    values = (case, method, metric, ours, stderr, n, paper, better)
    return dict(
        zip(
            ("case", "method", "metric", "ours", "stderr", "n", "paper", "better"),
            values,
            strict=True,
        )
    )


def full_record(**changes) -> dict[str, Any]:
    """Two metrics; numbers better, worse, equal, near, missing; names that need escaping."""
    record = {
        "experiment": "toy-paper/table1",
        "title": "Errors <on> digits & faces",
        "profile": "full",
        "config": {"epochs": 3, "sizes": [1, 2], "name": "<b>"},
        "seed": 7,
        "device": "One GPU",
        "versions": {"python": "3.11.7", "jax": "0.10.2"},
        "seconds": 3725.0,
        "rows": [
            row("digits", "CD|1", "error [%]", 3.5, 0.25, 10, 3.25),
            row("digits", "PCD", "error [%]", 2.0, 0.1, 10, 2.5),
            row("digits", "*BP*", "error [%]", 2.25, 0.5, 10),
            row("faces", "CD|1", "error [%]", None, None, 10, 4.1),
            row("faces", "PCD", "error [%]", 4.25, 0.125, 10, 4.25),
            row("digits", "PCD", "log-likelihood", -84.3251, 0.13, 5, -85.2, "higher"),
            row("digits", "CD|1", "log-likelihood", -120.125, None, 3, None, "higher"),
        ],
        "curves": [
            {
                "name": "Loss",
                "x_label": "epoch",
                "y_label": "nats < 3",
                "series": [
                    {"name": "CD & PCD", "x": [0, 1, 2, 3], "y": [3.0, None, 2.0, 1.0]},
                    {"name": "BP", "x": [0, 3], "y": [2.5, 0.5]},
                ],
            }
        ],
        "images": [{"name": "samples", "caption": "Samples <here>", "file": "grid.png"}],
        "notes": ["faces / CD|1 / error [%]: ours was nan, written as null"],
        "timings": {"train": 3600.0, "score": 125.0},
    }
    return {**record, **changes}


def small_record() -> dict[str, Any]:
    """The least a record can hold, of a smaller run."""
    keys = ("experiment", "profile", "config", "seed", "device", "versions", "seconds", "rows")
    rows = [row("toy", "Gibbs", "error", 5.0), row("toy", "BP", "error", 5.0)]
    values = ("toy-paper/figure2", "smoke", {}, 0, "CPU", {}, 0.25, rows)
    return dict(zip(keys, values, strict=True))
