"""`un.fit_table`: columns that are given make a conditional model."""

import numpy as np
import pytest

import undirected as un
from undirected.core.errors import UndirectedError


def switches(count: int = 200) -> dict[str, list[str]]:
    """Two lamps that follow a switch, and one that does not."""
    rng = np.random.default_rng(0)
    switch, other = rng.random(count) < 0.5, rng.random(count) < 0.5
    words = {True: "on", False: "off"}
    columns = {"switch": switch, "lamp": switch, "lamp 2": ~switch, "other": other}
    return {name: [words[bool(x)] for x in column] for name, column in columns.items()}


def test_what_is_given_makes_a_conditional_model():
    model = un.fit_table(switches(), given=["switch"], epochs=40)
    assert model.notes["given"] == [0]
    found = model.query({"switch": ["on", "off"]})
    assert list(found["lamp"]) == ["on", "off"]
    assert list(found["lamp 2"]) == ["off", "on"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"given": ["swich"]}, "did you mean 'switch'"),
        ({"given": ["switch"], "model": "mixed"}, "for model 'conditional', not 'mixed'"),
        ({"model": "conditional"}, "needs to know what is given"),
    ],
    ids=["unknown", "other model", "nothing given"],
)
def test_what_cannot_be_given_is_refused(options, words):
    with pytest.raises(UndirectedError, match=words):
        un.fit_table(switches(), **options)


def test_a_data_frame_is_answered_under_its_own_index():
    """pandas matches rows by their index: answers under another one would go to wrong rows."""
    pandas = pytest.importorskip("pandas")
    table = {"sky": ["clear", "grey", "dark"] * 20, "mm": [0.2, 1.4, 9.1] * 20}
    model = un.fit_table(table, epochs=2, hidden=2)
    asked = pandas.DataFrame({"sky": ["dark", None]}, index=["b", "a"])
    assert list(model.query(asked).index) == ["b", "a"]
