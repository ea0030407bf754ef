"""`undirected evaluate`: the log-likelihood of a table, by whatever the model can do."""

from pathlib import Path
from typing import Any

import numpy as np

from undirected.cli import console
from undirected.cli.answer import Saved, open_model, read_for
from undirected.tasks import Evaluation
from undirected.tasks.evaluate import check_lowerable
from undirected.tasks.yardsticks import lines_of


def evaluate_table(
    folder: Path,
    table: Path,
    header: bool | None,
    method: str,
    chains: int,
    betas: int,
    seed: int,
    js: bool,
    show: bool = False,
) -> None:
    """Print the log-likelihood of a table under a model."""
    saved = open_model(folder)
    saved.table.check_joint("evaluate")
    check_lowerable("evaluate", saved.model)
    rows = read_for(saved, table, header)
    bar = console.Bar("evaluate", "steps", told=show)
    with bar.running():
        found = saved.table.score(
            rows, method=method, chains=chains, betas=betas, seed=seed, progress=bar.teller
        )
    beside = {
        name: float(mixture.log_likelihood(rows).mean())
        for name, mixture in saved.yardsticks.items()
    }
    label, lines = _label_score(saved, rows), _lines(found) + lines_of(beside)
    if label:
        lines.append(f"{label['name']} from the other columns: {label['told']}")
    if saved.schema is not None and saved.schema.kinds & {"real", "nonnegative"}:
        lines.append("note: densities of numbers are those of their standardised values")
    summary = _summary(found) | {"beside": beside, "label": label}
    console.result(summary, js, lines)


def _label_score(saved: Saved, rows: np.ndarray) -> dict[str, Any] | None:
    """How well the label is found from the other columns."""
    if saved.schema is None or saved.schema.label is None:
        return None
    j = saved.schema.names.index(saved.schema.label)
    known = rows[~np.isnan(rows[:, j])]
    if not len(known):
        return None
    asked = known.copy()
    asked[:, j] = np.nan
    answer = saved.table.answers(asked)[j]
    if answer.probabilities is None:
        assert answer.mean is not None
        error = float(np.sqrt(np.mean((answer.mean - answer.column.decode(known[:, j])) ** 2)))
        return {"name": answer.column.name, "rmse": error, "told": f"error {error:.4g} (rms)"}
    right = float((answer.probabilities.argmax(1) == known[:, j]).mean())
    return {"name": answer.column.name, "accuracy": right, "told": f"{right:.1%} right"}


def _summary(found: Evaluation) -> dict[str, Any]:
    ll, log_z, pl = found.log_likelihood, found.log_z, found.pseudo_log_likelihood
    low, high = log_z.interval
    return {
        "log_likelihood": ll.mean,
        "stderr": ll.stderr,
        "log_z": log_z.value,
        "log_z_interval": [low, high],
        "log_z_width": high - low,
        "log_z_method": log_z.method,
        "log_z_sides_meet": log_z.sides is None or log_z.sides.meet,
        "log_z_settled": log_z.agree,
        "hidden_sums": found.hidden_sums,
        "pseudo_log_likelihood": None if pl is None else pl.mean,
        "rows": found.rows,
        "impossible_rows": found.impossible,
        "complete_rows": found.complete_rows,
        "bits_per_held_out_entry": None if found.held_out is None else found.held_out.mean,
    }


def _lines(found: Evaluation) -> list[str]:
    ll, log_z, pl = found.log_likelihood, found.log_z, found.pseudo_log_likelihood
    low, high = log_z.interval
    doubt = max(high - log_z.value, log_z.value - low)
    from_z = f" (± {doubt:.3f} from log Z, 99 %)" if log_z.method == "ais" else ""
    lines = [
        f"log-likelihood per row   {ll.mean:.3f} ± {ll.stderr:.3f} nats{from_z}",
        f"log Z                    {log_z.value:.3f} by {log_z.method}",
    ]
    if pl is not None:
        lines.append(f"pseudo-log-likelihood    {pl.mean:.3f} ± {pl.stderr:.3f}")
    if found.held_out is not None:
        bits = found.held_out
        lines.append(f"bits per hidden entry    {bits.mean:.4f} ± {bits.stderr:.4f}")
    holes = found.rows - found.complete_rows
    if holes:
        lines.append(
            f"note: {holes:,} of {found.rows:,} rows have missing entries; their likelihood is "
            "that of what is there"
        )
    if found.impossible:
        lines.append(f"note: {found.impossible:,} of {found.rows:,} rows have probability 0")
    if found.hidden_sums == "ais":
        what = "missing entries" if holes else "hidden units"
        lines.append(f"note: {what} summed out by AIS, which is a little low in expectation")
    if log_z.note:
        lines.append(
            f"note: {log_z.note}".replace(" betas", " --betas").replace(" chains", " --chains")
        )
    return lines
