"""Tables to look at, and the pivot of a record into one table per metric: case by method."""

import itertools
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BEST = "★"
NEAR = "≈"
NO_NUMBER = "n/a"
NO_ROW = "–"
NEARER = "nearer to 0"
WIDEST = 4
"""Methods side by side in a table; more of them go downwards where there are fewer cases."""


@dataclass(frozen=True)
class Cell:
    """A text with small print beside it; `better` sets it in bold, `best` gives it a star."""

    text: str
    aside: str = ""
    better: bool = False
    best: bool = False


@dataclass(frozen=True)
class Table:
    """A table whose first column names the rows.

    `groups`: (label, columns) of a second header line above `header[1:]`. `legend`: what the marks
    mean, one sentence each.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    title: str = ""
    groups: Sequence[tuple[str, int]] = ()
    legend: Sequence[str] = ()

    @property
    def texts(self) -> set[int]:
        """Columns of words, counted from 0; all others hold numbers."""
        return {0} | {i for row in self.rows for i, cell in enumerate(row) if _is_words(cell)}

    @property
    def starts(self) -> set[int]:
        """Columns with which a group begins, counted from 0."""
        widths = [columns for _, columns in self.groups]
        return set(itertools.accumulate(widths[:-1], initial=1)) if widths else set()


def _is_words(cell: str | Cell) -> bool:
    return isinstance(cell, str) and re.match(r"\W*(\d|$)", cell) is None


def pivot(record: Mapping[str, Any]) -> list[Table]:
    """One table per metric of a record, ours beside the paper's numbers."""
    metrics: dict[tuple[str, str], list[Mapping]] = {}
    for row in record["rows"]:
        finite = {key: None if _not_finite(value) else value for key, value in row.items()}
        metrics.setdefault((row["metric"], row["better"]), []).append(finite)
    return [_metric_table(*key, rows) for key, rows in metrics.items()]


def _not_finite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _metric_table(metric: str, better: str, rows: list[Mapping]) -> Table:
    """Cases downwards and methods across, or the other way where that would be too wide."""
    names = {axis: list(dict.fromkeys(row[axis] for row in rows)) for axis in ("case", "method")}
    down, across = "case", "method"
    if len(names["method"]) > max(WIDEST, len(names["case"])):
        down, across = across, down
    compared = {row[across] for row in rows if row["paper"] is not None}
    width = {name: 3 if name in compared else 1 for name in names[across]}
    columns = [name for w in width.values() for name in ("ours", "paper", "difference")[:w]]
    goal = _goal(metric, better, rows)
    best = {
        case: _best([row["ours"] for row in rows if row["case"] == case], goal)
        for case in names["case"]
    }
    counts = {row["n"] for row in rows}
    decimals = _decimals(rows)
    lines = []
    for name in names[down]:
        found = {a: [r for r in rows if (r[down], r[across]) == (name, a)] for a in names[across]}
        for i in range(max(map(len, found.values()))):
            line: list[str | Cell] = [name]
            for other, some in found.items():
                here = some[i] if i < len(some) else None
                top = None if here is None else best[here["case"]]
                line += _cells(here, width[other], decimals, top, show_n=len(counts) > 1)
            lines.append(line)
    return Table(
        header=[down, *(columns if compared else names[across])],
        rows=lines,
        title=f"{metric} ({goal} is better)" if goal else metric,
        groups=list(width.items()) if compared else (),
        legend=_legend(lines, rows, counts),
    )


def _cells(
    row: Mapping | None, width: int, decimals: int, best: float | None, show_n: bool
) -> list[Cell]:
    """The cells of one row of a record: ours and, where there is room, paper and difference."""
    if row is None:
        return [Cell(NO_ROW)] * width
    ours, stderr, paper = row["ours"], row["stderr"], row["paper"]
    error = f"± {number(stderr, decimals)}" if stderr is not None and ours is not None else ""
    count = f"n = {row['n']}" if show_n and row["n"] is not None else ""
    aside = ", ".join(text for text in (error, count) if text)
    ahead = _compare(row)
    digits = 1 if ours is None or abs(ours) >= 1 else 2
    cells = [
        Cell(number(ours, decimals, digits), aside, ahead > 0, ours is not None and ours == best)
    ]
    if width == 3:
        theirs = NO_ROW if paper is None else f"{paper:.10g}"
        cells += [Cell(theirs, better=ahead < 0), Cell(_difference(ours, stderr, paper, decimals))]
    return cells


def number(value: float | None, decimals: int, digits: int = 1) -> str:
    """A number with so many decimals, or more to show so many digits of it, or in powers of ten."""
    if value is None:
        return NO_NUMBER
    if abs(value) >= 1e7 or 0 < abs(value) < 1e-5:
        return f"{value:.2e}"
    return f"{value:.{max(decimals, _decimals_for(value, digits))}f}"


def _difference(
    ours: float | None, stderr: float | None, paper: float | None, decimals: int
) -> str:
    if ours is None or paper is None:
        return NO_ROW
    difference = ours - paper
    text = number(difference, decimals)
    near = f"{NEAR} " if stderr is not None and abs(difference) <= 2 * stderr else ""
    return f"{near}{'+' if difference > 0 else ''}{text}"


def _decimals(rows: list[Mapping]) -> int:
    """Decimals for a table: two digits of the usual standard error, else four of the usual number.

    Never fewer than the paper's numbers have.
    """
    errors = [row["stderr"] for row in rows if row["stderr"]]
    values = [abs(row["ours"]) for row in rows if row["ours"]]
    least = max((_written(row["paper"]) for row in rows if row["paper"]), default=0)
    if errors:
        wanted = _decimals_for(statistics.median(errors), digits=2)
    elif all(float(value).is_integer() for value in values):
        wanted = 0
    else:
        wanted = _decimals_for(statistics.median(values), digits=4)
    return min(max(wanted, least), 6)


def _decimals_for(value: float, digits: int) -> int:
    """Decimals that show so many significant digits of a number."""
    return max(digits - 1 - math.floor(math.log10(abs(value))), 0) if value else 0


def _written(value: float) -> int:
    """Decimals with which a number is written in full."""
    decimals = f"{value:.10g}".partition(".")[2]
    return len(decimals) if decimals.isdigit() else 0


def _is_target(metric: str) -> bool:
    """Whether there is a better and a worse: a learned parameter is neither."""
    return not metric.startswith("learned ")


def _goal(metric: str, better: str, rows: list[Mapping]) -> str:
    """What is better, if anything: an error with a sign is best near 0, however low it may be."""
    if not _is_target(metric):
        return ""
    signed = any(row["ours"] is not None and row["ours"] < 0 for row in rows)
    return NEARER if signed and re.search(r"\berror\b", metric) else better


def _best(values: list[float | None], goal: str) -> float | None:
    """The best of several numbers; None when there are not two to compare, or nothing is better."""
    known = [value for value in values if value is not None]
    if len(known) < 2 or not goal:
        return None
    return max(known) if goal == "higher" else min(known, key=abs if goal == NEARER else None)


def _compare(row: Mapping[str, Any]) -> int:
    """1 where ours is better, -1 where the paper's is, 0 where neither is or one is missing."""
    ours, paper = row["ours"], row["paper"]
    if ours is None or paper is None or not _is_target(row["metric"]):
        return 0
    if _goal(row["metric"], row["better"], [row, {**row, "ours": paper}]) == NEARER:
        ours, paper = abs(ours), abs(paper)
    if ours == paper:
        return 0
    return 1 if (ours < paper) == (row["better"] == "lower") else -1


def agreement(record: Mapping[str, Any]) -> tuple[int, int]:
    """How many of the paper's numbers were reached, within two standard errors, of how many."""
    rows = [row for row in record["rows"] if row["paper"] is not None]
    return sum(map(_reached, rows)), len(rows)


def _reached(row: Mapping[str, Any]) -> bool:
    ours, paper = row["ours"], row["paper"]
    if ours is None:
        return False
    near = abs(ours - paper) <= 2 * (row["stderr"] or 0.0)
    return near or _compare(row) > 0


def _legend(lines: list[list[str | Cell]], rows: list[Mapping], counts: set) -> list[str]:
    cells = [cell for line in lines for cell in line if isinstance(cell, Cell)]
    legend = []
    if any(row["stderr"] is not None for row in rows):
        legend.append("±: standard error.")
    if len(counts) == 1 and counts != {None}:
        legend.append(f"Each of ours over n = {min(counts)}.")
    if any(cell.better for cell in cells):
        legend.append("Bold: the better of ours and the paper's.")
    if any(cell.best for cell in cells):
        legend.append(f"{BEST}: best of ours in its case.")
    if any(cell.text.startswith(NEAR) for cell in cells):
        legend.append(f"{NEAR}: within two standard errors of the paper's number.")
    return legend
