"""Schemas: cells to numbers and back, against values written down by hand."""

import json
import math

import numpy as np
import pytest

import undirected as un
from undirected.core.columns import listed

COLUMNS = (
    un.Column("smokes", "binary", ("no", "yes"), missing=1),
    un.Column("spin", "binary", ("-1", "1")),
    un.Column("colour", "category", ("red", "green", "blue")),
    un.Column("age", "real", mean=40.0, scale=10.0, decimals=0),
    un.Column("gain", "nonnegative", scale=4.0, decimals=2),
)
SCHEMA = un.Schema(COLUMNS, {"id": "nearly unique"}, label="colour")
TABLE = {
    "id": ["a", "b", "c"],
    "gain": ["8", "", "0.50"],
    "age": ["50", "NA", "35"],
    "colour": ["Blue", "red", "null"],
    "spin": ["+1", "-1.0", "NaN"],
    "smokes": ["yes", "NO", "?"],
}
ROWS = np.array(
    [[1, 1, 2, 1, 2], [0, 0, 0, np.nan, np.nan], [np.nan, np.nan, np.nan, -0.5, 0.125]],
    np.float32,
)


def test_cells_become_numbers_and_words_again():
    np.testing.assert_array_equal(SCHEMA.encode(TABLE), ROWS)
    back = SCHEMA.decode(ROWS)
    assert back["smokes"].tolist() == ["yes", "no", None]
    assert back["colour"].tolist() == ["blue", "red", None]
    np.testing.assert_array_equal(back["age"], [50, np.nan, 35])
    text = [SCHEMA["gain"].text(value) for value in back["gain"]]
    assert text == ["8.00", "", "0.50"]


def test_arrays_of_numbers_are_cells_too():
    spin, flag = SCHEMA["spin"], SCHEMA["smokes"]
    np.testing.assert_array_equal(spin.encode(np.array([1, -1, 1])), [1, 0, 1])
    np.testing.assert_array_equal(spin.encode(np.array([1.0, np.nan])), [1, np.nan])
    np.testing.assert_array_equal(flag.encode(np.array([True, False])), [1, 0])
    np.testing.assert_array_equal(SCHEMA["age"].encode([30, None, 45.0]), [-1, np.nan, 0.5])


def test_words_that_differ_in_case_alone_are_told_apart_where_the_table_does():
    column = un.Column("size", "category", ("m", "M", "l"))
    assert column.encode(["M", "m", "L"]).tolist() == [1, 0, 2]
    with pytest.raises(un.UndirectedError, match="'x' is none of the states m, M, l"):
        column.encode(["x"])


def test_a_wrong_cell_is_named_by_its_place():
    with pytest.raises(un.UndirectedError, match=r"row 2, column 'age': 'old' is not a finite"):
        SCHEMA.encode(TABLE | {"age": ["50", "old", "3"]})
    bad = TABLE | {"gain": ["1", "-1", "3"]}
    with pytest.raises(un.UndirectedError, match=r"row 2, column 'age': 1e\+300 is not .* or too"):
        SCHEMA["age"].encode(["7", "1e300"])
    with pytest.raises(un.UndirectedError, match=r"line 9, gain: -1 is not .* from 0 on"):
        SCHEMA.encode(bad, lambda row, name: f"line {row + 8}, {name}")
    with pytest.raises(un.UndirectedError, match="lacks the column 'spin'"):
        SCHEMA.encode({"smokes": ["no"]})
    with pytest.raises(un.UndirectedError, match="is not a state; pass 0 to 2"):
        SCHEMA["colour"].decode(np.array([3.0]))


def test_json_goes_both_ways():
    text = json.dumps(SCHEMA.to_json())
    assert un.Schema.from_json(json.loads(text)) == SCHEMA
    assert hash(un.Schema.from_json(json.loads(text))) == hash(SCHEMA)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "colour"},
        {"kind": ["binary"]},
        {"name": ""},
        {"states": "ab"},
        {"states": ["a", "a"]},
        {"states": ["a", 3]},
        {"states": []},
        {"scale": 0.0},
        {"scale": math.nan},
        {"mean": "3"},
        {"missing": -1},
        {"decimals": True},
        {"width": 3},
    ],
)
def test_a_description_with_wrong_kinds_is_refused(change):
    good = SCHEMA.to_json()
    good["columns"][0] |= change
    with pytest.raises(un.UndirectedError):
        un.Schema.from_json(good)


def test_descriptions_of_something_else_are_refused():
    for found in (None, [], {"columns": {}}, {"columns": [3]}, {"columns": [], "label": 3}):
        with pytest.raises(un.UndirectedError):
            un.Schema.from_json(found)
    with pytest.raises(un.UndirectedError, match="label 'id' is not a column"):
        un.Schema(COLUMNS, label="id")
    with pytest.raises(un.UndirectedError, match="two columns are called 'age'"):
        un.Schema((COLUMNS[3], COLUMNS[3]))


@pytest.mark.parametrize(("count", "dots"), [(8, False), (9, True)])
def test_dots_stand_for_states_that_are_left_out(count, dots):
    column = un.Column("size", "category", tuple("abcdefghi"[:count]))
    with pytest.raises(un.UndirectedError, match="'x' is none of the states a, .*, h") as error:
        column.encode(["x"])
    assert ("..." in str(error.value)) == dots


def test_dots_stand_for_names_that_are_left_out():
    assert listed(["a"]) == "'a'"
    assert listed(list("abcd")) == "'a', 'b', 'c', 'd'"
    assert listed(list("abcde")) == "'a', 'b', 'c', 'd', ..."


def test_whole_numbers_are_not_taken_for_others_that_look_alike():
    column = un.Column("day", "category", ("20240110", "20240120"))
    with pytest.raises(un.UndirectedError, match="is none of the states"):
        column.encode(np.array([20240118.0]))
    assert column.encode(np.array([20240110.0, 20240120.0])).tolist() == [0, 1]


def test_true_is_found_where_it_stands_first():
    column = un.Column("a", "binary", ("True", "False"))
    assert column.encode(np.array([True, False])).tolist() == [0.0, 1.0]
    assert column.encode(np.array(["True", "False"])).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("states", [("1", "2"), ("0", "1"), ("m", "f")])
def test_truth_values_are_the_numbers_0_and_1_where_states_are_no_truth_values(states):
    """As in Python, and not the first state and the second."""
    column = un.Column("a", "binary", states)
    for cell in (True, False):
        if str(int(cell)) in states:
            assert column.encode(np.array([cell])).tolist() == [states.index(str(int(cell)))]
        else:
            with pytest.raises(un.UndirectedError, match=f"{cell} is none of the states"):
                column.encode(np.array([cell]))
