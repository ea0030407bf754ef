"""`python -m benchmarks imputation`: hidden cells, filled in by `TableImputer` and by scikit-learn.

A share of all cells is hidden at random, in the rows that are learned from and in the test rows;
the hidden cells of the test rows are asked for. scikit-learn's imputers get a 0/1 column for every
state but the first, and standardised reals; what they fill in is taken for probabilities, which is
what means of columns, of neighbours and of leaves are. Probabilities of all are cut to [0.001, 1]
and normalised.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.saving import docs_page, make_record, others, save
from benchmarks.tables import load_split
from undirected.data.cache import find
from undirected.experiments.record import Row
from undirected.report.page import record_section, write_sections
from undirected.sklearn import TableImputer

OURS, COMMON, NEIGHBOURS = "ours", "most frequent, mean", "KNNImputer"
LINEAR, FOREST = "IterativeImputer", "IterativeImputer, random forest"
BITS, RIGHT, ERROR = "bits per hidden cell", "accuracy", "RMSE in standard deviations"
SECONDS = "CPU seconds"
SHARES = (0.1, 0.3, 0.5)
LEAST = 1e-3
QUICK_ROWS = (400, 200)
MOST_TEST = 2000
SMALL, SPLITS = 350, range(20, 40)
"""Rows to learn from below which several splits are taken, and how many."""
TITLE = "Hidden cells of tables"


class Table(NamedTuple):
    """Rows to learn from and to test on: the number of a state, or a standardised real.

    `kinds` has the number of states of every column, 0 for reals; NaN is not known.
    """

    train: np.ndarray
    test: np.ndarray
    kinds: tuple[int, ...]


class Answers(NamedTuple):
    """What an imputer says of each column: (rows, states) of probabilities, or (rows,) reals."""

    columns: list[np.ndarray]
    seconds: float


class Score(NamedTuple):
    """How well hidden cells were found; None where a table has no such columns."""

    bits: float | None
    accuracy: float | None
    rmse: float | None
    seconds: float


def main(quick: bool, only: str, out: Path) -> None:
    """Run the tables whose name contains a word, renew them in the record, and write its page."""
    profile = "quick" if quick else "full"
    for name, whole in all_tables(quick):
        for share in SHARES:
            case = f"{name}, {share:.0%} hidden"
            if only not in case:
                continue
            began = time.process_time()
            found = compare(whole, share)
            show(case, {name: mean_score(runs) for name, runs in found.items()})
            rows, notes, seconds = others(out / f"imputation-{profile}.json", [case])
            rows += score_rows(case, found)
            seconds += time.process_time() - began
            write(rows, notes, profile, seconds, out)


def write(rows: list[Row], notes: list[str], profile: str, seconds: float, out: Path) -> None:
    """The record and the page of the tables so far."""
    said = [verdict(rows), *notes]
    record = make_record("imputation", profile, {"seed": 0}, seconds, rows, TITLE, said)
    save(record, out / f"imputation-{profile}.json")
    write_sections([record_section(record.to_dict())], out / f"imputation-{profile}.html", TITLE)


INTRODUCTION = """\
`make bench ARGS=imputation` hides a share of all cells of a table at random, learns from what is
left, and asks for the hidden cells of test rows. The imputers of scikit-learn get a 0/1 column for
every state but the first, and standardised reals; what they fill in is taken for probabilities,
which is what means of columns, of neighbours and of leaves are. Probabilities of all are cut to
[0.001, 1]. Small tables are split several times. The numbers are those of the committed record;
this page is written from it by
`python -m benchmarks.page results/benchmarks/imputation-full.json --docs docs/imputation.md`.
"""


def markdown(record: Mapping[str, Any]) -> str:
    """The page of the documentation, written from the record."""
    return docs_page(TITLE, INTRODUCTION, record)


def all_tables(quick: bool) -> Iterator[tuple[str, Table]]:
    """Categories of adult and mushrooms, two tables of mixed columns, black and white digits."""
    for name in ("adult", "mushrooms"):
        file = find(f"uci_{name}.npz")
        if file is not None:
            split = load_split(file)
            groups = exclusive(split.train)
            parts = (as_states(part, groups) for part in (split.train, split.test))
            yield name, _cut(Table(*parts, tuple(len(group) for group in groups)), quick)
    yield "wine", _cut(wine(), quick)
    yield "diabetes", _cut(diabetes(), quick)
    yield "digits", _cut(digits(), quick)


def _cut(whole: Table, quick: bool) -> Table:
    train, test = QUICK_ROWS if quick else (len(whole.train), MOST_TEST)
    return Table(whole.train[:train], whole.test[:test], whole.kinds)


def digits() -> Table:
    """8x8 digits in black and white."""
    from sklearn.datasets import load_digits

    x, _ = load_digits(return_X_y=True)
    return _mixed((x > 7).astype(float), [2] * 64)


def wine() -> Table:
    """13 reals and a category."""
    from sklearn.datasets import load_wine

    x, y = load_wine(return_X_y=True)
    return _mixed(np.concatenate([x, y[:, None]], 1), [0] * 13 + [3])


def diabetes() -> Table:
    """10 reals and a binary column."""
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True, scaled=False)
    x[:, 1] -= 1
    return _mixed(np.concatenate([x, y[:, None]], 1), [0, 2] + [0] * 9)


def _mixed(x: np.ndarray, kinds: list[int]) -> Table:
    """Reals standardised, every fourth row to test on."""
    x = x[np.random.default_rng(0).permutation(len(x))]
    real = np.array(kinds) == 0
    x[:, real] = (x[:, real] - x[:, real].mean(0)) / x[:, real].std(0)
    test = np.arange(len(x)) % 4 == 0
    return Table(x[~test], x[test], tuple(kinds))


def exclusive(rows: np.ndarray) -> list[range]:
    """Runs of 0/1 columns of which at most one is 1 in a row: the states of categories."""
    groups, start = [], 0
    for stop in range(1, rows.shape[1] + 1):
        if stop == rows.shape[1] or rows[:, start : stop + 1].sum(1).max() > 1:
            groups.append(range(start, stop))
            start = stop
    return [group for group in groups if len(group) > 1]


def as_states(rows: np.ndarray, groups: list[range]) -> np.ndarray:
    """The number of the state of every category; NaN where none of its columns is 1."""
    found = [rows[:, list(group)] for group in groups]
    return np.stack([np.where(x.any(1), x.argmax(1), np.nan) for x in found], 1)


def compare(whole: Table, share: float) -> dict[str, list[Score]]:
    """The scores of all imputers on one table; on several splits of a small one."""
    if len(whole.train) >= SMALL:
        runs = [compare_once(whole, share, 0)]
    else:
        runs = [compare_once(shuffled(whole, seed), share, seed) for seed in SPLITS]
    return {name: [run[name] for run in runs] for name in runs[0]}


def shuffled(whole: Table, seed: int) -> Table:
    """Other rows to learn from and to test on, as many as before."""
    rows = np.random.default_rng(seed).permutation(np.concatenate(whole[:2]))
    return Table(rows[: len(whole.train)], rows[len(whole.train) :], whole.kinds)


def mean_score(scores: list[Score]) -> Score:
    """The mean of what is known."""
    parts = zip(*scores, strict=True)
    known = ([value for value in part if value is not None] for part in parts)
    return Score(*(float(np.mean(part)) if part else None for part in known))


def compare_once(whole: Table, share: float, seed: int) -> dict[str, Score]:
    """The scores of all imputers on one split of a table."""
    rng = np.random.default_rng(seed)
    train, test = (np.where(rng.random(part.shape) < share, np.nan, part) for part in whole[:2])
    found = {OURS: ours(train, test, whole.kinds)}
    for name, make in imputers().items():
        found[name] = theirs(make(), train, test, whole.kinds)
    return {name: judge(whole, test, answers) for name, answers in found.items()}


def imputers() -> dict[str, Callable[[], Any]]:
    """scikit-learn's, with columns that are never seen kept."""
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

    keep: Any = {"keep_empty_features": True}
    trees = {"n_estimators": 20, "min_samples_leaf": 3, "random_state": 0}
    few = {"max_iter": 3, "n_nearest_features": 20, "random_state": 0, **keep}
    return {
        COMMON: lambda: SimpleImputer(strategy="mean", **keep),
        NEIGHBOURS: lambda: KNNImputer(n_neighbors=10, weights="distance", **keep),
        LINEAR: lambda: IterativeImputer(random_state=0, **keep),
        FOREST: lambda: IterativeImputer(RandomForestRegressor(**trees), **few),
    }


def theirs(imputer: Any, train: np.ndarray, test: np.ndarray, kinds: tuple[int, ...]) -> Answers:
    """Answers of an imputer of numbers."""
    known, asked = (numbers(part, kinds) for part in (train, test))
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rounds of IterativeImputer that do not converge
        found = imputer.fit(known).transform(asked)
    seconds = time.process_time() - began
    widths = [max(1, states - 1) for states in kinds]
    parts = np.split(found, np.cumsum(widths)[:-1], 1)
    columns = [
        np.concatenate([1 - part.sum(1, keepdims=True), part], 1) if states else part[:, 0]
        for part, states in zip(parts, kinds, strict=True)
    ]
    return Answers(columns, seconds)


def numbers(values: np.ndarray, kinds: tuple[int, ...]) -> np.ndarray:
    """A 0/1 column for every state but the first: linear models need them independent."""
    parts = []
    for cells, states in zip(values.T[:, :, None], kinds, strict=True):
        on = (cells == np.arange(1, states)).astype(float)
        parts.append(np.where(np.isnan(cells), np.nan, on) if states else cells)
    return np.concatenate(parts, 1)


def ours(train: np.ndarray, test: np.ndarray, kinds: tuple[int, ...]) -> Answers:
    """Answers of a `TableImputer` with its default settings; a state never seen has none."""
    real = {j: "real" for j, states in enumerate(kinds) if not states}
    began = time.process_time()
    rows, asked = (_cells(part, kinds) for part in (train, test))
    imputer = TableImputer(types=real, random_state=0).fit(rows)
    codec = imputer.codec_
    answers = imputer.model_.answers(codec.encode(asked, asked, strict=False))
    seconds, columns = time.process_time() - began, []
    by_name = {answer.column.name: answer for answer in answers}
    for name, states in zip(codec.names, kinds, strict=True):
        p = np.zeros((len(test), states))
        if name in codec.common:
            p[:, int(str(codec.common[name])[1:])] = 1.0
        elif states:
            p[:, [int(cell[1:]) for cell in codec.states[name]]] = by_name[name].probabilities
        columns.append(p if states else by_name[name].best)
    return Answers(columns, seconds)


def _cells(values: np.ndarray, kinds: tuple[int, ...]) -> np.ndarray:
    """Reals as they are, states as words."""
    found = values.astype(object)
    for j, states in enumerate(kinds):
        if states:
            found[:, j] = [None if code != code else f"s{int(code)}" for code in values[:, j]]
    return found


def judge(whole: Table, test: np.ndarray, answers: Answers) -> Score:
    """Scores on the cells that are hidden in `test` and known."""
    bits, right, squares = [], [], []
    asked = np.isnan(test) & ~np.isnan(whole.test)
    for j, states in enumerate(whole.kinds):
        rows = asked[:, j]
        truth, said = whole.test[rows, j], answers.columns[j][rows]
        if states:
            p = np.clip(said, LEAST, 1.0)
            chosen = p[np.arange(len(p)), truth.astype(int)] / p.sum(1)
            bits.append(-np.log2(chosen))
            right.append(said.argmax(1) == truth)
        else:
            squares.append((said - truth) ** 2)

    def mean(parts: list[np.ndarray]) -> float | None:
        return float(np.concatenate(parts).mean()) if parts else None

    error = mean(squares)
    return Score(mean(bits), mean(right), error and error**0.5, answers.seconds)


def score_rows(case: str, found: dict[str, list[Score]]) -> list[Row]:
    """The rows of one case: means over the splits, with their standard errors."""
    rows = []
    for who, runs in found.items():
        parts = zip((BITS, RIGHT, ERROR, SECONDS), zip(*runs, strict=True), strict=True)
        for metric, values in parts:
            known = [value for value in values if value is not None]
            if known:
                error = np.std(known, ddof=1) / len(known) ** 0.5 if len(known) > 1 else None
                better = "higher" if metric == RIGHT else "lower"
                mean, n = float(np.mean(known)), len(known)
                rows.append(Row(case, who, metric, mean, error and float(error), n, better=better))
    return rows


def verdict(rows: list[Row]) -> str:
    """On how many cases ours has the fewest bits, and the smallest error."""
    said = []
    for metric, word in ((BITS, "fewest bits"), (ERROR, "smallest error")):
        cases: dict[str, dict[str, float]] = {}
        for row in rows:
            if row.metric == metric and row.ours is not None:
                cases.setdefault(row.case, {})[row.method] = row.ours
        best = sum(found[OURS] <= min(found.values()) for found in cases.values())
        said.append(f"the {word} on {best} of {len(cases)} cases")
    return f"Ours has {' and '.join(said)}."


def show(case: str, found: dict[str, Score]) -> None:
    """Print the scores of one case."""
    print(f"\n{case}", flush=True)
    for who, score in found.items():
        parts = zip(("bits", "right", "RMSE"), score[:3], strict=True)
        said = "  ".join(f"{word} {x:.4f}" for word, x in parts if x is not None)
        print(f"  {who:32s} {said}  {score.seconds:.1f} s", flush=True)
