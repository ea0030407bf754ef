"""What simple models would have: independent columns and a small mixture, beside every score."""

from typing import Any

import numpy as np

from undirected.core.layout import Block, Layout
from undirected.learning.mixture import Mixture, fit_mixture, independent_columns
from undirected.models import MixtureRBM

SMALL, DIGITS = 20, 5
"""Components of the mixture that is kept beside a model, and digits of its numbers in the file."""


def make_yardsticks(train: np.ndarray, mixture: Mixture | None) -> dict[str, Mixture]:
    """Independent columns, and the mixture; one of `SMALL` components where that has more.

    None where columns are not all binary, so that there is no mixture.
    """
    if mixture is None:
        return {}
    if len(mixture.log_weights) > SMALL:
        mixture = fit_mixture(train, SMALL)
    found = {"independent columns": independent_columns(train)}
    if len(mixture.log_weights) > 1:
        found[f"mixture of {len(mixture.log_weights)}"] = mixture
    return found


def scores_beside(
    name: str, yardsticks: dict[str, Mixture], rows: np.ndarray, seed: int
) -> dict[str, float]:
    """The validation score of that name for every yardstick; none where no rows are held out.

    `name` is "log_likelihood", "pseudo_log_likelihood", "bits_per_target" or
    "bits_per_held_out_entry".
    """
    if not len(rows):
        return {}
    return {key: _score(name, mixture, rows, seed) for key, mixture in yardsticks.items()}


def _score(name: str, mixture: Mixture, rows: np.ndarray, seed: int) -> float:
    # Learning takes long to import, and whoever only reads yardsticks does without.
    from undirected.evaluation import pseudo_log_likelihood
    from undirected.tasks.entries import MOST_ASKED, in_turns
    from undirected.tasks.table_models import MOST_JUDGED
    from undirected.tasks.train_table import questions

    if name in ("bits_per_target", "bits_per_held_out_entry"):
        if name == "bits_per_held_out_entry":
            rows = rows[:MOST_JUDGED]
            layout = Layout((Block("visible", 0, rows.shape[1]),))
            rows, targets = in_turns(layout, rows, 0, MOST_ASKED)
        else:
            targets = questions(rows, seed) & ~np.isnan(rows)
        p = np.clip(mixture.predict(np.where(targets, np.nan, rows)), 1e-6, 1 - 1e-6)
        losses = -rows * np.log2(p) - (1 - rows) * np.log2(1 - p)
        return float(losses[targets].mean())
    if name == "log_likelihood" or len(mixture.log_weights) == 1:
        return float(mixture.log_likelihood(rows).mean())
    model = MixtureRBM.from_mixture(mixture.log_weights, mixture.means, 1, scale=0.0)
    return float(pseudo_log_likelihood(model, rows).mean)


def lines_of(beside: dict[str, float]) -> list[str]:
    """One line of text, or none."""
    if not beside:
        return []
    return ["beside it: " + ", ".join(f"{name} {value:.3f}" for name, value in beside.items())]


def dump_yardsticks(yardsticks: dict[str, Mixture]) -> dict[str, Any]:
    """As JSON."""
    return {
        name: {
            "log_weights": mixture.log_weights.round(DIGITS).tolist(),
            "means": np.clip(mixture.means, 1e-5, 1 - 1e-5).round(DIGITS).tolist(),
        }
        for name, mixture in yardsticks.items()
    }


def load_yardsticks(found: dict[str, Any]) -> dict[str, Mixture]:
    """From what `dump_yardsticks` gave."""
    return {
        name: Mixture(np.asarray(one["log_weights"], float), np.asarray(one["means"], float))
        for name, one in found.items()
    }
