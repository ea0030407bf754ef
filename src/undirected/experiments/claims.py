"""What a paper claims, as code: which rows of a record, which comparison, and what came out.

A `Claim` stands beside its experiment, in its list `CLAIMS`. Its verdict is worked out from the
record whenever it is asked for, so that a new record changes it by itself.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from undirected.experiments import registry
from undirected.experiments.record import Difference, Record, Row, paired_difference, read
from undirected.experiments.runner import record_path
from undirected.report.tables import Table

CONFIDENCE = 0.95
ENOUGH = 3
"""Runs from which a claim can be made."""
HOLDS, PARTLY, FAILS = "holds", "holds in part", "does not hold here"
COUNTED = {1: "one seed", 2: "two seeds"}


@dataclass(frozen=True)
class Finding:
    """What one check found: whether it held, in how many runs, and the numbers in words."""

    held: bool
    runs: int
    text: str


class Check(Protocol):
    """One comparison; None where the record does not have its rows."""

    def __call__(self, record: Record, repeats: bool) -> Finding | None: ...


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, its figure in the paper's own numbers, and the checks it stands on.

    It holds where all checks hold, in part where some do. `caveat`: what else a reader must know.
    """

    sentence: str
    paper: str
    checks: Sequence[Check]
    caveat: str = ""


@dataclass(frozen=True)
class Verdict:
    """What became of a claim: the verdict in words, ours with its interval, and why."""

    claim: Claim
    verdict: str
    ours: str
    why: str


@dataclass(frozen=True)
class Ahead:
    """`method` is better than `other`: the interval of their difference leaves 0 on its side.

    Differences are paired by seed where the record has the values of the single runs.
    """

    case: str
    metric: str
    method: str
    other: str

    def __call__(self, record: Record, repeats: bool) -> Finding | None:
        """How far it is ahead."""
        ours, theirs = (_row(record, self.case, m, self.metric) for m in (self.method, self.other))
        if ours is None or theirs is None or ours.ours is None or theirs.ours is None:
            return None
        gap, low, high = _interval(_difference(ours, theirs, repeats))
        sign = 1 if ours.better == "higher" else -1
        ends = sorted((sign * low, sign * high))
        state = "ahead of" if ends[0] > 0 else "behind" if ends[1] < 0 else "level with"
        runs = min(_runs(ours, repeats), _runs(theirs, repeats))
        text = f"{self.case}: {self.method} {state} {self.other}, {_shown(gap, low, high)}"
        return Finding(ends[0] > 0, runs, text)


@dataclass(frozen=True)
class Meets:
    """Our figure is as good as the paper's, or no worse by more than its interval.

    The paper's figure is that of the row, or `target`; printed with `decimals`, it stands for all
    that round to it.
    """

    case: str
    metric: str
    method: str
    target: float | None = None
    decimals: int | None = None

    def __call__(self, record: Record, repeats: bool) -> Finding | None:
        """Ours beside it."""
        row = _row(record, self.case, self.method, self.metric)
        target = self.target if row is None or self.target is not None else row.paper
        if row is None or row.ours is None or target is None:
            return None
        runs = _runs(row, repeats)
        value, low, high = _interval(Difference(row.ours, row.stderr if runs > 1 else None, runs))
        best = max(value, high) if row.better == "higher" else min(value, low)
        room = 0.0 if self.decimals is None else 0.5 * 10.0**-self.decimals
        held = best >= target - room if row.better == "higher" else best <= target + room
        text = f"{self.case}: {self.method} {_shown(value, low, high)} against {target:g}"
        return Finding(held, runs, text)


@dataclass(frozen=True)
class Near:
    """Our figure and the paper's are the same within the interval of ours or a `margin`."""

    case: str
    metric: str
    method: str
    margin: float = 0.0

    def __call__(self, record: Record, repeats: bool) -> Finding | None:
        """Ours beside it."""
        row = _row(record, self.case, self.method, self.metric)
        if row is None or row.ours is None or row.paper is None:
            return None
        runs = _runs(row, repeats)
        value, low, high = _interval(Difference(row.ours, row.stderr if runs > 1 else None, runs))
        held = low - self.margin <= row.paper <= high + self.margin
        text = f"{self.case}: {self.method} {_shown(value, low, high)} against {row.paper:g}"
        return Finding(held, runs, text)


@dataclass(frozen=True)
class Within:
    """In every run our figure is between -limit and limit: errors of a mean may cancel."""

    case: str
    metric: str
    method: str
    limit: float

    def __call__(self, record: Record, repeats: bool) -> Finding | None:
        """How many runs are, and the one that is farthest off."""
        row = _row(record, self.case, self.method, self.metric)
        if row is None or row.ours is None:
            return None
        values = [row.ours] if row.values is None else [v for v in row.values if v is not None]
        inside = sum(abs(value) <= self.limit for value in values)
        farthest = max(values, key=abs)
        text = (
            f"{self.case}: {self.method} within {self.limit:g} in {inside} of {len(values)} runs, "
            f"the farthest at {farthest:.3g}"
        )
        return Finding(inside == len(values), _runs(row, repeats), text)


@dataclass(frozen=True)
class Either:
    """At least one of several checks holds: that one is shown, or else the first."""

    checks: Sequence[Check]

    def __call__(self, record: Record, repeats: bool) -> Finding | None:
        """The first check that holds."""
        found = [one for check in self.checks if (one := check(record, repeats)) is not None]
        return next((one for one in found if one.held), found[0] if found else None)


def everywhere(
    cases: Iterable[str], metric: str, method: str, others: Iterable[str]
) -> tuple[Check, ...]:
    """`Ahead` of every other method in every case."""
    others = tuple(others)
    return tuple(Ahead(case, metric, method, other) for case in cases for other in others)


def judge(claim: Claim, record: Record | None, repeats: bool = False) -> Verdict:
    """The verdict on a claim; `repeats`: the rows are means over runs made inside the experiment.

    Fewer than three runs make no claim, whatever they show.
    """
    found = [] if record is None else [check(record, repeats) for check in claim.checks]
    known = [one for one in found if one is not None]
    if not known:
        return Verdict(claim, "not recorded", "–", claim.caveat or "No record has these rows.")
    held = [one for one in known if one.held]
    runs = min(one.runs for one in known)
    if runs < ENOUGH:
        verdict = f"{COUNTED.get(runs, f'{runs} seeds')}: not a claim yet"
    elif len(held) == len(found):
        verdict = HOLDS
    else:
        verdict = PARTLY if held else FAILS
    count = f"{len(held)} of {len(found)} comparisons" if len(found) > 1 else ""
    seeds = COUNTED.get(runs, f"{runs} seeds")
    broken = [one.text for one in known if not one.held] or [one.text for one in known[:1]]
    missing = len(found) - len(known)
    lost = [f"{missing} not in the record"] if missing else []
    why = "; ".join([*broken[:3], *(["…"] if len(broken) > 3 else []), *lost])
    ours = ", ".join(part for part in (count or known[0].text, seeds) if part)
    return Verdict(claim, verdict, ours, ". ".join(filter(None, (why, claim.caveat))))


def verdicts(name: str, results: Path) -> list[Verdict]:
    """Those on all claims of an experiment, by its full record among these results."""
    experiment, path = registry.load(name), record_path(results, name, "full")
    record = read(path) if path.is_file() else None
    repeats = experiment.repeats is not None
    return [judge(claim, record, repeats) for claim in experiment.claims]


def table(verdicts: Sequence[Verdict]) -> Table:
    """The claims of a paper and what became of them."""
    header = ["claim", "in the paper", "ours", "verdict", "why"]
    rows = [[v.claim.sentence, v.claim.paper, v.ours, v.verdict, v.why] for v in verdicts]
    legend = [
        f"Intervals are of {100 * CONFIDENCE:.0f} %, between runs; differences are paired by seed. "
        f"A claim needs {ENOUGH} seeds."
    ]
    return Table(header, rows, legend=legend)


def _row(record: Record, case: str, method: str, metric: str) -> Row | None:
    return next((row for row in record.rows if row.name == (case, method, metric)), None)


def _runs(row: Row, repeats: bool) -> int:
    """How many independent runs a row stands on."""
    if row.values is not None:
        return sum(value is not None for value in row.values)
    return row.n or 1 if repeats else 1


def _difference(ours: Row, theirs: Row, repeats: bool) -> Difference:
    if ours.values and theirs.values and len(ours.values) == len(theirs.values):
        return paired_difference(ours, theirs)
    runs = min(_runs(ours, repeats), _runs(theirs, repeats))
    assert ours.ours is not None
    assert theirs.ours is not None
    errors = ours.stderr, theirs.stderr
    known = [error for error in errors if error is not None]
    stderr = sum(e**2 for e in known) ** 0.5 if runs > 1 and len(known) == 2 else None
    return Difference(ours.ours - theirs.ours, stderr, runs)


def _interval(found: Difference) -> tuple[float, float, float]:
    """The value and the ends of its interval; all the same where a single run gave it."""
    if found.stderr is None:
        return found.mean, found.mean, found.mean
    from scipy import stats

    half = float(stats.t.isf((1 - CONFIDENCE) / 2, found.n - 1)) * found.stderr
    return found.mean, found.mean - half, found.mean + half


def _shown(value: float, low: float, high: float) -> str:
    """A number with its interval, to two digits of the half width."""
    if low == high:
        return f"{value:.4g}"
    half = (high - low) / 2
    digits = max(0, 1 - int(f"{half:e}".split("e")[1])) if half else 4
    return f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"
