"""The report beside a query-trained model: how well it answers, and whether it can be believed."""

from pathlib import Path

import numpy as np
from jaxtyping import Float

from undirected.evaluation import binary_cross_entropy, calibration, calibration_error
from undirected.experiments.record import curve
from undirected.inference import QueryNetwork
from undirected.learning import answers
from undirected.report.page import Section, write_sections
from undirected.report.tables import Table
from undirected.tasks.train_table import questions

NAME, TITLE = "report.html", "Query training"


def write_report(
    folder: Path,
    network: QueryNetwork,
    train: Float[np.ndarray, "rows v"],
    valid: Float[np.ndarray, "held v"],
    names: list[str],
    seed: int,
) -> Path:
    """Ask half of every held-out row, given the other half; write `report.html` into the folder."""
    targets = questions(valid, seed) & ~np.isnan(valid)
    p = answers(network, np.where(targets, np.nan, valid))
    valid = np.where(np.isnan(valid), 0.0, valid)  # where nothing is asked
    means = np.broadcast_to(np.clip(np.nanmean(train, 0), 1e-4, 1 - 1e-4), valid.shape)
    bins = calibration(p, valid, targets)
    predicted, observed = [b.predicted for b in bins], [b.observed for b in bins]
    ours, base = (binary_cross_entropy(q, valid, targets) for q in (p, means))
    sections = [
        Section(
            "Answers to held-out rows",
            f"Half of the entries of {len(valid)} rows that were not learned from are asked, given "
            f"the other half: {ours.mean:.3f} ± {ours.stderr:.3f} bits per entry, where the "
            f"frequency of each column alone needs {base.mean:.3f}.",
        ),
        Section(
            "Calibration",
            "Among the entries that the model gives the probability on the horizontal axis, the "
            "share that was one. On the diagonal, probabilities mean what they say; on average "
            f"they are off by {calibration_error(bins):.3f}.",
            curves=[
                curve(
                    "Predicted and observed",
                    "predicted probability",
                    "share of ones",
                    {"model": (predicted, observed), "perfect": ([0.0, 1.0], [0.0, 1.0])},
                )
            ],
        ),
        Section(
            "Column by column",
            "Bits per asked entry, hardest columns first.",
            table=_columns(p, means, valid, targets, names),
        ),
    ]
    path = Path(folder) / NAME
    write_sections(sections, path, TITLE)
    return path


def remove_report(folder: Path) -> None:
    """Remove the report of an earlier fit; a file of the user's by that name stays."""
    path = Path(folder) / NAME
    if path.is_file() and f"<title>{TITLE}</title>".encode() in path.read_bytes():
        path.unlink()


def _columns(
    p: np.ndarray, means: np.ndarray, x: np.ndarray, targets: np.ndarray, names: list[str]
) -> Table:
    rows = []
    for j in np.flatnonzero(targets.any(0)):
        asked = targets[:, j]
        one, other = (binary_cross_entropy(q[asked, j], x[asked, j]).mean for q in (p, means))
        rows.append((one, [names[j], f"{one:.3f}", f"{other:.3f}", str(int(asked.sum()))]))
    rows.sort(key=lambda row: -row[0])
    return Table(["column", "model", "its frequency alone", "asked"], [row for _, row in rows])
