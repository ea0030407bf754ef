"""Verdicts worked out from made-up records: every one of them, and what they say."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from undirected.experiments import claims, registry
from undirected.experiments.claims import (
    Ahead,
    Claim,
    Either,
    Meets,
    Near,
    Within,
    everywhere,
    judge,
)
from undirected.experiments.record import Row, read
from undirected.experiments.runner import record_path

from .test_record import make_record

CASE, METRIC = "digits", "error"


def record(better: str = "lower", **methods):
    """Rows of one case; a method is the values of its runs, or one number and its error."""
    rows = []
    for method, values in methods.items():
        if isinstance(values, Row):
            rows.append(values)
        else:
            rows.append(Row.over_runs(CASE, method, METRIC, values, 2.0, better=better))
    return make_record(rows=rows, seed=0, seeds=tuple(range(5)))


def one(*checks, **rest) -> Claim:
    return Claim("Ours is ahead.", "1.9 against 2.0", checks, **rest)


AHEAD = Ahead(CASE, METRIC, "ours", "theirs")


def test_a_claim_holds_where_the_paired_interval_leaves_zero_behind():
    """The runs differ by tens and the methods by one: only pairing can tell."""
    ours, theirs = [10.0, 20.0, 30.0], [11.0, 21.2, 30.9]
    found = judge(one(AHEAD), record(ours=ours, theirs=theirs))
    assert found.verdict == "holds"
    gaps = np.subtract(ours, theirs)
    half = stats.t.isf(0.025, 2) * gaps.std(ddof=1) / 3**0.5
    assert f"{gaps.mean():.2f} ({gaps.mean() - half:.2f} to {gaps.mean() + half:.2f})" in found.ours
    assert found.ours.endswith("3 seeds")
    assert "ours ahead of theirs" in found.ours
    higher = judge(one(AHEAD), record(better="higher", ours=ours, theirs=theirs))
    assert higher.verdict == "does not hold here"
    assert "ours behind theirs" in higher.why


def test_a_difference_within_its_interval_does_not_hold():
    found = judge(one(AHEAD), record(ours=[1.0, 2.0, 3.0], theirs=[1.5, 1.9, 3.3]))
    assert found.verdict == "does not hold here"
    assert "ours level with theirs" in found.why


def test_some_checks_make_a_claim_hold_in_part():
    made = record(ours=[1.0, 1.1, 1.2], theirs=[2.0, 2.1, 2.25], best=[0.5, 0.6, 0.75])
    claim = one(*everywhere([CASE], METRIC, "ours", ["theirs", "best"]), caveat="At half size")
    found = judge(claim, made)
    assert found.verdict == "holds in part"
    assert found.ours == "1 of 2 comparisons, 3 seeds"
    assert "ours behind best" in found.why
    assert "theirs" not in found.why
    assert found.why.endswith(". At half size")


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        (([1.0], [2.0]), "one seed: not a claim yet"),
        (([3.0], [2.0]), "one seed: not a claim yet"),
        (([1.0, 1.1], [2.0, 2.1]), "two seeds: not a claim yet"),
        (([1.0, None, 1.1], [2.0, 1.0, 2.1]), "two seeds: not a claim yet"),
    ],
)
def test_few_seeds_make_no_claim(values, verdict):
    ours, theirs = values
    assert judge(one(AHEAD), record(ours=ours, theirs=theirs)).verdict == verdict


def test_images_are_not_runs():
    """A standard error over test images says nothing about another run."""
    rows = {
        name: Row(CASE, name, METRIC, value, 0.01, 10_000, better="lower")
        for name, value in (("ours", 1.0), ("theirs", 2.0))
    }
    made = record(**rows)
    assert judge(one(AHEAD), made).verdict == "one seed: not a claim yet"
    assert judge(one(AHEAD), made, repeats=True).verdict == "holds"


def test_runs_inside_an_experiment_count_without_their_values():
    """Records of earlier releases: the errors add up as those of independent runs."""

    def made(stderr):
        rows = {
            name: Row(CASE, name, METRIC, value, stderr, 5, better="lower")
            for name, value in (("ours", 1.0), ("theirs", 2.0))
        }
        return record(**rows)

    edge = 1 / (2**0.5 * stats.t.isf(0.025, 4))
    assert judge(one(AHEAD), made(0.99 * edge), repeats=True).verdict == "holds"
    assert judge(one(AHEAD), made(1.01 * edge), repeats=True).verdict == "does not hold here"


@pytest.mark.parametrize(
    ("better", "values", "held"),
    [
        ("lower", [1.7, 1.8, 1.9], True),
        ("lower", [2.0, 2.1, 2.2], True),  # 2.1 ± 0.25
        ("lower", [2.1, 2.11, 2.12], False),
        ("higher", [2.1, 2.11, 2.12], True),
        ("higher", [1.8, 1.81, 1.82], False),
    ],
)
def test_figures_are_met_up_to_their_error(better, values, held):
    claim = one(Meets(CASE, METRIC, "ours"))
    found = judge(claim, record(better=better, ours=values))
    assert found.verdict == ("holds" if held else "does not hold here")
    assert "against 2" in found.ours
    strict = judge(one(Meets(CASE, METRIC, "ours", target=1.0)), record(ours=values))
    assert strict.verdict == "does not hold here"


@pytest.mark.parametrize(
    ("better", "values", "held"),
    [
        ("lower", [2.03, 2.04, 2.05], True),
        ("lower", [2.06, 2.061, 2.062], False),
        ("higher", [1.97, 1.96, 1.95], True),
        ("higher", [1.94, 1.939, 1.938], False),
    ],
)
def test_a_printed_figure_stands_for_all_that_round_to_it(better, values, held):
    claim = one(Meets(CASE, METRIC, "ours", decimals=1))
    found = judge(claim, record(better=better, ours=values))
    assert found.verdict == ("holds" if held else "does not hold here")
    finer = judge(one(Meets(CASE, METRIC, "ours", decimals=3)), record(better=better, ours=values))
    assert finer.verdict == "does not hold here"


def test_near_looks_at_both_sides():
    claim = one(Near(CASE, METRIC, "ours"))
    for values, verdict in (
        ([1.9, 2.0, 2.2], "holds"),
        ([1.0, 1.01, 1.02], "does not hold here"),
        ([3.0, 3.01, 3.02], "does not hold here"),
    ):
        assert judge(claim, record(ours=values)).verdict == verdict
    wide = one(Near(CASE, METRIC, "ours", margin=1.0))
    assert judge(wide, record(ours=[3.0, 3.01, 3.02])).verdict == "holds"


@pytest.mark.parametrize(
    ("values", "verdict", "said"),
    [
        ([0.9, -1.0, 0.3], "holds", "3 of 3 runs, the farthest at -1"),
        ([1.5, -1.5, 0.0], "does not hold here", "1 of 3 runs, the farthest at 1.5"),
        ([0.0, 0.1, None, -7.25], "does not hold here", "2 of 3 runs, the farthest at -7.25"),
    ],
)
def test_errors_that_cancel_in_the_mean_are_not_within_a_limit(values, verdict, said):
    row = Row(CASE, "ours", METRIC, 0.0, 0.5, 3, better="lower", values=tuple(values))
    found = judge(one(Within(CASE, METRIC, "ours", 1.0)), record(ours=row))
    assert found.verdict == verdict
    assert said in found.ours + found.why


def test_either_takes_the_one_that_holds():
    made = record(ours=[3.0, 3.1, 3.2], better_one=[1.0, 1.1, 1.2])
    both = Either([Meets(CASE, METRIC, "ours"), Meets(CASE, METRIC, "better_one")])
    found = judge(one(both), made)
    assert (found.verdict, "better_one" in found.ours) == ("holds", True)
    worse = Either([Meets(CASE, METRIC, "ours"), Meets(CASE, METRIC, "nobody")])
    assert judge(one(worse), made).verdict == "does not hold here"


def test_what_is_not_recorded_is_said():
    claim = one(AHEAD, Ahead(CASE, METRIC, "ours", "nobody"))
    assert judge(claim, None).verdict == "not recorded"
    assert judge(claim, record(theirs=[1.0] * 3)).verdict == "not recorded"
    found = judge(claim, record(ours=[1.0, 1.1, 1.2], theirs=[2.0, 2.1, 2.25]))
    assert found.verdict == "holds in part"
    assert found.why.endswith("1 not in the record")


def test_the_table_has_a_line_for_each_claim():
    verdict = judge(one(AHEAD), record(ours=[1.0], theirs=[2.0]))
    made = claims.table([verdict, verdict])
    assert list(made.header) == ["claim", "in the paper", "ours", "verdict", "why"]
    assert len(made.rows) == 2
    assert made.rows[0][:2] == ["Ours is ahead.", "1.9 against 2.0"]


def test_every_paper_claims_something_that_its_records_can_answer():
    """Rows that a claim names are in the committed records, or of a part still to be run."""
    results = Path(__file__).parents[2] / "results"
    papers = set()
    for name in registry.names():
        experiment = registry.load(name)
        for claim in experiment.claims:
            papers.add(name.split("/")[0])
            found, full = read(record_path(results, name, "full")), experiment.config("full")
            to_come = {
                part
                for key in set(experiment.parts) & set(found.config)
                for part in set(full[key]) - set(found.config[key])
            }
            for check in claim.checks:
                if check(found, True) is None:
                    assert to_come & set(vars(check).values()), (name, check)
    assert papers == {"crbm-bp", "nnbm", "pmp", "query-training", "tempered"}
