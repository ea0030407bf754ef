"""Cells that are masked are not known: what lies below a mask is never taken for a value."""

import numpy as np
import pytest

from undirected.core.cells import as_numbers, as_word, is_missing, unmasked
from undirected.core.errors import UndirectedError

MASK = [True, False]


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([1.5, 2.5], [None, 2.5]),
        (np.array([1, 2], np.int8), [None, 2.0]),
        (np.array([1.5, 2.5], np.float32), [None, 2.5]),
        ([True, False], [None, 0.0]),
        (["a", "b"], [None, "b"]),
        (np.array(["a", 3], object), [None, 3]),
    ],
    ids=["floats", "whole numbers", "single precision", "booleans", "words", "objects"],
)
def test_masked_cells_are_missing(values, wanted):
    table = np.ma.array(values, mask=MASK)
    found = unmasked(table)
    assert type(found) is np.ndarray
    assert [None if cell is None or cell != cell else cell for cell in found] == wanted
    assert table.data[0] == np.asarray(values)[0]  # the table of the caller is as it was


def test_what_has_no_mask_stays_as_it_is():
    rows = [[1, 2]]
    assert unmasked(rows) is rows
    assert unmasked(np.ma.array([1, 2])).dtype == int


@pytest.mark.parametrize("cell", ["", " ", "?", "NA", "n/a", "NaN", "null", "#N/A", None, np.nan])
def test_what_stands_for_nothing_is_missing(cell):
    """#N/A is what spreadsheets write; None, - and nothing may be words of a category."""
    assert is_missing(cell) and as_word(cell) == ""
    assert not any(map(is_missing, ["None", "-", "0", 0]))


@pytest.mark.parametrize("kind", ["Int64", "boolean", "Float32"])
def test_cells_that_pandas_calls_na_are_missing(kind):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1, 0, 1], "b": [0, 1, 1]}).astype(kind)
    frame.iloc[1, 0] = pd.NA
    np.testing.assert_array_equal(as_numbers("rows", frame, ""), [[1, 0], [np.nan, 1], [1, 1]])
    np.testing.assert_array_equal(as_numbers("row", frame["a"], ""), [1, np.nan, 1])
    with pytest.raises(UndirectedError, match="rows are no table of numbers"):
        as_numbers("rows", frame.astype(object).fillna("x"), "pass numbers")
