"""What counts as better, best and as good as the paper."""

import pytest

from undirected.report.tables import Cell, Table, agreement, pivot

from .samples import full_record, row


@pytest.mark.parametrize(
    ("ours", "paper", "better", "winner"),
    [
        (1.0, 2.0, "lower", "ours"),
        (1.0, 2.0, "higher", "paper"),
        (2.0, 1.0, "lower", "paper"),
        (2.0, 1.0, "higher", "ours"),
        (1.0, 1.0, "lower", None),
        (None, 1.0, "lower", None),
        (-1.0, -2.0, "higher", "ours"),
    ],
)
def test_the_better_of_two_is_marked(ours, paper, better, winner):
    (table,) = pivot(full_record(rows=[row("c", "m", "e", ours, paper=paper, better=better)]))
    _, mine, theirs, _ = table.rows[0]
    assert (mine.better, theirs.better) == (winner == "ours", winner == "paper")
    assert not mine.best  # one method alone is not the best of anything


@pytest.mark.parametrize(("better", "best"), [("lower", {1}), ("higher", {0, 2})])
def test_the_best_of_a_line_is_marked_and_ties_share(better, best):
    values = (3.0, 1.0, 3.0, None)
    rows = [row("c", str(i), "e", v, better=better) for i, v in enumerate(values)]
    (table,) = pivot(full_record(rows=rows))
    assert {i for i, cell in enumerate(table.rows[0][1:]) if cell.best} == best


@pytest.mark.parametrize(
    ("metric", "best", "words"),
    [("log Z error", 1, "nearer to 0 is better"), ("log MMD^2", 0, "lower is better")],
)
def test_an_error_with_a_sign_is_best_near_zero(metric, best, words):
    rows = [row("c", str(i), metric, v) for i, v in enumerate((-39.0, -0.8, 2.5))]
    (table,) = pivot(full_record(rows=rows))
    assert [cell.best for cell in table.rows[0][1:]] == [i == best for i in range(3)]
    assert table.title == f"{metric} ({words})"


@pytest.mark.parametrize(
    ("ours", "paper", "winner"),
    [(-5.0, 0.1, "paper"), (0.1, -5.0, "ours"), (-0.1, 5.0, "ours"), (-0.5, 0.5, None)],
)
def test_an_error_with_a_sign_beats_the_papers_near_zero(ours, paper, winner):
    record = full_record(rows=[row("c", "m", "log Z error", ours, paper=paper)])
    _, mine, theirs, _ = pivot(record)[0].rows[0]
    assert (mine.better, theirs.better) == (winner == "ours", winner == "paper")
    assert agreement(record) == (winner == "ours", 1)


def test_a_learned_parameter_is_no_target_and_only_near_the_papers_or_not():
    values = (0.334, 0.2)
    rows = [row("c", str(i), "learned theta", v, 0.002, 9, 0.331) for i, v in enumerate(values)]
    record = full_record(rows=rows)
    (table,) = pivot(record)
    assert table.title == "learned theta"
    assert not any(cell.better or cell.best for cell in table.rows[0][1:])
    assert agreement(record) == (1, 2)


def test_one_metric_read_both_ways_gives_two_tables():
    rows = [row("c", "m", "e", 1.0), row("c", "m", "e", 1.0, better="higher")]
    titles = [table.title for table in pivot(full_record(rows=rows))]
    assert titles == ["e (lower is better)", "e (higher is better)"]


def test_what_is_not_finite_counts_as_missing():
    rows = [row("c", "m", "e", float("nan"), float("inf"), 3, 1.0), row("c", "k", "e", 2.0)]
    (table,) = pivot(full_record(rows=rows))
    assert [cell.text for cell in table.rows[0][1:]] == ["n/a", "1", "–", "2"]


def test_agreement_counts_better_and_near():
    rows = [
        row("better", "m", "e", 1.0, 0.01, 5, 2.0),
        row("near", "m", "e", 2.0, 0.5, 5, 1.0),
        row("worse", "m", "e", 2.0, 0.4, 5, 1.0),
        row("equal", "m", "e", 1.0, None, 5, 1.0),
        row("failed", "m", "e", None, None, 5, 1.0),
        row("alone", "m", "e", 1.0),
    ]
    assert agreement(full_record(rows=rows)) == (3, 5)
    assert agreement(full_record(rows=[])) == (0, 0)


def test_columns_of_words_and_of_numbers():
    made = Table(("a", "b", "c", "d"), [("1", "2 s", "x", Cell("n/a")), ("2", "–", "3", "≈ -1")])
    assert made.texts == {0, 2}
    assert made.starts == set()
    assert Table(("a", *"bcdef"), [], groups=[("x", 3), ("y", 2)]).starts == {1, 4}


def test_many_methods_go_downwards():
    rows = [row(c, m, "e", float(i), paper=9.0 if c == "a" else None) for i, (c, m) in cases()]
    (table,) = pivot(full_record(rows=rows))
    assert table.header == ["method", "ours", "paper", "difference", "ours"]
    assert table.groups == [("a", 3), ("b", 1)]
    assert [line[0] for line in table.rows] == list("vwxyz")
    assert [line[1].text for line in table.rows] == ["0", "1", "2", "3", "4"]
    assert [line[4].text for line in table.rows] == ["5", "6", "7", "8", "9"]
    assert [line[1].best for line in table.rows] == [True, False, False, False, False]
    assert [line[4].best for line in table.rows] == [True, False, False, False, False]


def cases():
    return enumerate((case, method) for case in "ab" for method in "vwxyz")
