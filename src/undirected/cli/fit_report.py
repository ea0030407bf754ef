"""The page beside a fitted model: how it learned, how well it answers, what it found."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from undirected.cli.console import score_in_words
from undirected.core.columns import Column
from undirected.core.errors import UndirectedError
from undirected.core.layout import Block, Layout
from undirected.evaluation import calibration, calibration_error
from undirected.experiments.record import curve
from undirected.report.images import image_grid, readable_scale
from undirected.report.page import Image, Section, write_sections
from undirected.report.tables import Table
from undirected.tasks.entries import in_turns
from undirected.tasks.table_model import TableModel
from undirected.tasks.train_table import Trained
from undirected.tasks.words import ColumnAnswer

NAME, TITLE = "report.html", "Fit of a table"
MOST_ROWS, MOST_COLUMNS = 300, 60
DRAWN, WIDE = 40, 8
TINY = 1e-6
CURVES = (
    ("validation", "score of held-out rows"),
    ("surrogate", "objective"),
    ("log_posterior", "penalised log-likelihood"),
)


def write_fit_report(
    folder: Path,
    trained: Trained,
    model: TableModel,
    summary: dict[str, Any],
    image: tuple[int, int] | None,
) -> Path | None:
    """Write `report.html` into the folder of a model; a file of the user's by that name stays."""
    path = Path(folder) / NAME
    if path.is_file() and f"<title>{TITLE}</title>".encode() not in path.read_bytes():
        return None
    sections = [_overview(summary), _learning(trained)]
    sections += _held_out(trained, model, listed=image is None)
    sections += [_dependences(model)]
    if image is not None and not model.given:
        sections.append(_pictures(model, image, trained.settings.seed))
    sections.append(_columns(model, summary["rows"]))
    write_sections([section for section in sections if section], path, TITLE)
    return path


def _overview(summary: dict[str, Any]) -> Section:
    settings = summary["settings"]
    known = {k.replace("_", " "): v for k, v in settings.items() if v is not None}
    if settings["epochs"] is None:  # exact learning has no schedule
        known.pop("learning rate", None)
    shown = {k: f"{v:g}" if isinstance(v, float) else str(v) for k, v in known.items()}
    scores = {
        score_in_words(k.removeprefix("validation_")): v
        for k, v in summary.items()
        if k.startswith("validation_")
    }
    told = [f"{name} {value:.3f}" for name, value in scores.items() if value is not None]
    beside = [f"{name} {value:.3f}" for name, value in (summary.get("beside") or {}).items()]
    if told and beside:
        told = [f"{', '.join(told)}; simpler models have: {', '.join(beside)}"]
    rows, columns = summary["rows"], summary["columns"]
    text = f"{rows:,} rows of {columns} columns, {summary['steps']:,} steps of learning."
    return Section(
        "What was fitted",
        text + (f" Of the held-out rows: {', '.join(told)}." if told else ""),
        facts={name: [value] for name, value in shown.items()},
    )


def _learning(trained: Trained) -> Section | None:
    """The learning curve: what was logged at every look, and the score of held-out rows."""
    history = trained.result.history
    curves = []
    for key, label in CURVES:
        points = [(row["step"], row[key]) for row in history if key in row]
        points = [(x, y) for x, y in points if np.isfinite(y)]
        if len(points) > 1:
            x, y = zip(*points, strict=True)
            curves.append(curve(label.capitalize(), "step", label, {label: (x, y)}))
    if not curves:
        return None
    text = "Held-out rows tell when to stop; the objective is a surrogate, not a likelihood."
    if trained.settings.method == "exact" and trained.settings.model == "mixed":
        text = (
            "Hidden states are enumerated, so the likelihood is exact; a prior keeps weights small."
        )
    return Section("Learning", text, curves=curves)


def _held_out(trained: Trained, model: TableModel, listed: bool = True) -> list[Section]:
    """Cells of held-out rows, hidden and asked for given the rest of their row.

    Pixels are not `listed` one by one.
    """
    rows = trained.valid[:MOST_ROWS]
    if not len(rows):
        return [
            Section("Held-out cells", "No rows were held out, so there is nothing to score by.")
        ]
    count, columns = len(rows), Layout((Block("visible", 0, rows.shape[1]),))
    rows, asked = in_turns(columns, rows, trained.settings.seed, MOST_ROWS)
    asked[:, list(model.given)] = False
    if not asked.any():
        return []
    try:
        answers = model.answers(np.where(asked, np.nan, rows))
    except UndirectedError as error:
        return [Section("Held-out cells", f"They could not be asked for: {error}")]
    lines, pairs = [], []
    for j, answer in enumerate(answers):
        hidden = asked[:, j]
        if hidden.any():
            lines.append(_line(answer, rows[:, j], hidden, trained.train[:, j]))
            pairs += _pairs(answer, rows[:, j], hidden)
    lines.sort(key=lambda line: -line.gain)
    text = (
        f"{int(asked.sum()):,} cells of {count} rows that were not learned from were hidden, one "
        "in five at a time, and asked for given the rest of their row."
    )
    text += _in_all([line for line in lines if line.right is not None])
    if not listed:
        return [Section("Held-out cells", text), *_calibration(pairs)]
    text += (
        " Words are scored in bits, numbers by the root mean square error in their own units, the "
        "less the better; beside stands what the column alone would give."
    )
    header = ["column", "asked", "bits or error", "column alone", "right words"]
    table = Table(header, [line.cells for line in lines[:MOST_COLUMNS]])
    more = len(lines) - MOST_COLUMNS
    notes = [f"{more} more columns are not shown."] if more > 0 else []
    return [Section("Held-out cells", text, table=table, notes=notes), *_calibration(pairs)]


class _Line(NamedTuple):
    """How well a column is answered: by bits and the right words, or by the error of numbers."""

    name: str
    count: int
    score: float
    alone: float
    right: float | None = None

    @property
    def gain(self) -> float:
        """The share of the column alone that is saved; a column that hardly varies has little."""
        return (self.alone - self.score) / max(self.alone, TINY if self.right is None else 0.1)

    @property
    def cells(self) -> list[str]:
        """As a row of a table."""
        if self.right is None:
            return [self.name, str(self.count), f"{self.score:.4g}", f"{self.alone:.4g}", ""]
        numbers = f"{self.score:.3f}", f"{self.alone:.3f}", f"{self.right:.0%}"
        return [self.name, str(self.count), *numbers]


def _in_all(lines: list[_Line]) -> str:
    """Bits and right words of all columns of words together."""
    if not lines:
        return ""
    weights = np.array([line.count for line in lines], float)
    table = np.array([[line.score, line.alone, line.right or 0.0] for line in lines])
    bits, alone, right = weights @ table / weights.sum()
    return f" Words took {bits:.3f} bits each ({alone:.3f} by columns alone), {right:.1%} right."


def _line(answer: ColumnAnswer, truth: np.ndarray, hidden: np.ndarray, seen: np.ndarray) -> _Line:
    """The answers of a column beside what it would say alone."""
    column, count = answer.column, int(hidden.sum())
    if answer.probabilities is None:
        assert answer.mean is not None
        own = column.decode(truth[hidden])
        error = float(np.sqrt(np.mean((answer.mean[hidden] - own) ** 2)))
        alone = float(np.sqrt(np.mean((own - np.nanmean(column.decode(seen))) ** 2)))
        return _Line(column.name, count, error, alone)
    states = np.rint(truth[hidden]).astype(int)
    p = np.clip(answer.probabilities[hidden], TINY, 1)
    bits = float(-np.log2(p[np.arange(count), states]).mean())
    shares = np.bincount(np.rint(seen[~np.isnan(seen)]).astype(int), minlength=column.n_states) + 1
    alone = float(-np.log2((shares / shares.sum())[states]).mean())
    return _Line(column.name, count, bits, alone, float((p.argmax(1) == states).mean()))


def _pairs(
    answer: ColumnAnswer, truth: np.ndarray, hidden: np.ndarray
) -> list[tuple[float, float]]:
    """Probabilities and outcomes of every state, of the true one alone for binary columns."""
    if answer.probabilities is None:
        return []
    first = 1 if answer.column.kind == "binary" else 0
    p = answer.probabilities[hidden][:, first:]
    states = np.arange(first, answer.column.n_states)[None]
    hits = np.rint(truth[hidden])[:, None] == states
    return list(zip(p.ravel().tolist(), hits.ravel().astype(float).tolist(), strict=True))


def _calibration(pairs: list[tuple[float, float]]) -> list[Section]:
    if not pairs:
        return []
    p, hits = np.array(pairs).T
    bins = calibration(np.clip(p, 0, 1), hits)
    text = (
        "Among the words that the model gives the probability on the horizontal axis, the share "
        "that was right. On the diagonal, probabilities mean what they say; on average they are "
        f"off by {calibration_error(bins):.3f}."
    )
    lines = {
        "model": ([b.predicted for b in bins], [b.observed for b in bins]),
        "perfect": ([0.0, 1.0], [0.0, 1.0]),
    }
    names = ("Predicted and observed", "predicted probability", "share that was right")
    return [Section("Calibration", text, curves=[curve(*names, lines)])]


def _dependences(model: TableModel) -> Section | None:
    found = model.notes["dependences"]
    if not found:
        return None
    rows = [[f"{first} – {second}", f"{bits:.3f}"] for first, second, bits in found]
    text = (
        "The pairs of columns that tell most of each other where all others are known: by the "
        "model, their mutual information in bits. It is negative where more of one goes with less "
        "of the other; with a category it has no sign."
    )
    return Section("What hangs together", text, table=Table(["columns", "bits"], rows))


def _pictures(model: TableModel, image: tuple[int, int], seed: int) -> Section:
    row = np.full(len(model.schema), np.nan, np.float32)
    drawn = model.samples(DRAWN, row, seed=seed, sweeps=500)
    scale = readable_scale(image, WIDE)
    picture = Image(image_grid(drawn, image, columns=WIDE, scale=scale), f"{DRAWN} samples")
    return Section("Samples", "Ends of Gibbs chains that started from noise.", images=[picture])


def _columns(model: TableModel, rows: int) -> Section:
    """What the columns hold, and where the table has holes."""
    schema = model.schema
    if schema.is_zero_one and not any(column.missing for column in schema):
        return Section("Columns", f"{len(schema)} columns of 0 and 1, none missing.")
    listed = schema.columns[:MOST_COLUMNS]
    lines = [[c.name, c.kind, _content(c), f"{c.missing / max(rows, 1):.1%}"] for c in listed]
    dropped = [f"Left out: {name} ({why})." for name, why in schema.dropped.items()]
    more = len(schema) - len(listed)
    notes = dropped + ([f"{more} more columns are not shown."] if more else [])
    table = Table(["column", "kind", "holds", "missing"], lines)
    return Section("Columns", "What was found in the table.", table=table, notes=notes)


def _content(column: Column) -> str:
    if column.is_discrete:
        return ", ".join(column.states[:6]) + (", …" if column.n_states > 6 else "")
    return f"mean {column.mean:.4g}, sd {column.scale:.4g}" if column.kind == "real" else "from 0"
