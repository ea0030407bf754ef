"""What simple models would have: independent columns and a small mixture, beside every score."""

from typing import Any

import numpy as np

from undirected.core.layout import Block, Layout
from undirected.core.table_units import Kind
from undirected.learning.column_mixture import (
    ColumnMixture,
    choose_columns_mixture,
    fit_columns,
)
from undirected.learning.mixture import Mixture, fit_mixture, independent_columns
from undirected.models import MixtureRBM

Yardstick = Mixture | ColumnMixture
SMALL, DIGITS = 20, 5
"""Components of the mixture that is kept beside a model, and digits of its numbers in the file."""


def make_yardsticks(train: np.ndarray, mixture: Mixture) -> dict[str, Yardstick]:
    """Independent columns, and the mixture; one of `SMALL` components where that has more."""
    if len(mixture.log_weights) > SMALL:
        mixture = fit_mixture(train, SMALL)
    return _named(independent_columns(train), mixture)


def column_yardsticks(
    train: np.ndarray, valid: np.ndarray, kinds: tuple[Kind, ...]
) -> dict[str, Yardstick]:
    """The same for columns of any kind, whose mixture is chosen here."""
    return _named(fit_columns(train, kinds, 1), choose_columns_mixture(train, valid, kinds))


def _named(alone: Yardstick, mixture: Yardstick) -> dict[str, Yardstick]:
    found = {"independent columns": alone}
    if len(mixture.log_weights) > 1:
        found[f"mixture of {len(mixture.log_weights)}"] = mixture
    return found


def scores_beside(
    name: str, yardsticks: dict[str, Yardstick], rows: np.ndarray, seed: int
) -> dict[str, float]:
    """The validation score of that name for every yardstick; none where no rows are held out.

    `name` is "log_likelihood", "pseudo_log_likelihood", "bits_per_target" or
    "bits_per_held_out_entry"; columns that are not all binary have the first and the last.
    """
    if not len(rows):
        return {}
    found = {}
    for key, one in yardsticks.items():
        if isinstance(one, Mixture):
            found[key] = _score(name, one, rows, seed)
        elif name in ("log_likelihood", "bits_per_held_out_entry"):
            found[key] = _column_score(name, one, rows)
    return found


def _column_score(name: str, mixture: ColumnMixture, rows: np.ndarray) -> float:
    if name == "log_likelihood":
        return float(mixture.log_likelihood(rows).mean())
    cells, asked = _asked(rows)
    return float(mixture.entry_losses(cells, asked).mean() / np.log(2))


def _asked(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cells of held-out rows that are asked for, as a validation of models asks."""
    from undirected.tasks.entries import MOST_ASKED, in_turns
    from undirected.tasks.table_models import MOST_JUDGED

    rows = rows[:MOST_JUDGED]
    return in_turns(Layout((Block("visible", 0, rows.shape[1]),)), rows, 0, MOST_ASKED)


def _score(name: str, mixture: Mixture, rows: np.ndarray, seed: int) -> float:
    # Learning takes long to import, and whoever only reads yardsticks does without.
    from undirected.evaluation import pseudo_log_likelihood
    from undirected.tasks.train_table import questions

    if name in ("bits_per_target", "bits_per_held_out_entry"):
        if name == "bits_per_held_out_entry":
            rows, targets = _asked(rows)
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


def dump_yardsticks(yardsticks: dict[str, Yardstick]) -> dict[str, Any]:
    """As JSON."""
    return {name: _dump(one) for name, one in yardsticks.items()}


def _dump(one: Yardstick) -> dict[str, Any]:
    shares = {"log_weights": one.log_weights.round(DIGITS).tolist()}
    if isinstance(one, Mixture):
        return shares | {"means": np.clip(one.means, 1e-5, 1 - 1e-5).round(DIGITS).tolist()}
    parts = [[[float(f"{x:.{DIGITS}g}") for x in row] for row in part] for part in one.parts]
    return shares | {"columns": parts}


def load_yardsticks(found: dict[str, Any], kinds: tuple[Kind, ...] = ()) -> dict[str, Yardstick]:
    """From what `dump_yardsticks` gave; `kinds` are those of the columns where not all are binary.

    Raises:
        ValueError, TypeError, KeyError, UndirectedError: it is something else.
    """
    return {name: _load(one, kinds) for name, one in found.items()}


def _load(one: dict[str, Any], kinds: tuple[Kind, ...]) -> Yardstick:
    shares = np.asarray(one["log_weights"], float)
    if "means" in one:
        return Mixture(shares, np.asarray(one["means"], float))
    return ColumnMixture(kinds, shares, tuple(np.asarray(part, float) for part in one["columns"]))
