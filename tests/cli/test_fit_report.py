"""The page of a fit: which cells it scores, in which order, and what it leaves out."""

from types import SimpleNamespace

import numpy as np
import pytest

import undirected as un
from undirected.cli.fit_report import _columns, _held_out
from undirected.report.page import render
from undirected.tasks.words import ColumnAnswer

NAMES = ("still", "coin", "told")


class Fixed:
    """A model that is sure of nothing, but told the third column, and 0.999 of the first."""

    given = ()
    schema = un.Schema(tuple(un.Column(name, "binary", ("0", "1")) for name in NAMES))

    def answers(self, rows):
        found = []
        for column, cells, one in zip(self.schema, rows.T, (0.001, 0.5, 0.9), strict=True):
            shares = np.tile([1 - one, one], (len(rows), 1))
            found.append(ColumnAnswer(column, np.isnan(cells), shares))
        return found


@pytest.fixture
def trained():
    """The first column is 0 throughout, the second a coin, and the third 1 in held-out rows."""
    coin = np.arange(40) % 2
    train = np.stack([np.zeros(40), coin, 1 - coin], 1)
    valid = np.stack([np.zeros(10), coin[:10], np.ones(10)], 1)
    return SimpleNamespace(train=train, valid=valid, settings=un.Settings())


def test_columns_that_hardly_vary_do_not_come_first(trained):
    section, *_ = _held_out(trained, Fixed())
    assert [row[0] for row in section.table.rows] == ["told", "still", "coin"]
    alone = f"{-np.log2(21 / 42):.3f}"
    assert section.table.rows[0][1:] == ["10", f"{-np.log2(0.9):.3f}", alone, "100%"]


def test_pixels_are_scored_together(trained):
    section, *_ = _held_out(trained, Fixed(), listed=False)
    bits = -np.mean(np.log2([0.999, 0.5, 0.9]))
    alone = -np.mean(np.log2([41 / 42, 0.5, 0.5]))
    assert not section.table
    told = f"Words took {bits:.3f} bits each ({alone:.3f} by columns alone), {2.5 / 3:.1%} right."
    assert told in section.text


def test_columns_of_0_and_1_without_holes_are_only_counted():
    assert _columns(Fixed(), 40).text == "3 columns of 0 and 1, none missing."
    column = un.Column("a", "binary", ("0", "1"), missing=10)
    (row,) = _columns(SimpleNamespace(schema=un.Schema((column,))), 40).table.rows
    assert row == ["a", "binary", "0, 1", "25.0%"]


def test_a_page_has_minus_signs_and_no_legend_of_one_line():
    from undirected.experiments.record import curve
    from undirected.report.page import Section

    one = curve("Score", "step", "score", {"score": ([0, 1], [-2.0, -1.0])})
    two = curve("Both", "step", "y", {"a": ([0, 1], [0, 1]), "b": ([0, 1], [1, 0])})
    page = render([Section("Learning", "The score is -1.5.", curves=[one])], "Fit")
    assert "The score is −1.5." in page and '<ul class="lines">' not in page
    assert '<ul class="lines">' in render([Section("Learning", "", curves=[two])], "Fit")
