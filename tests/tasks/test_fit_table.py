"""`un.fit_table`: columns that are given make a conditional model."""

import numpy as np
import pytest

import undirected as un
from undirected.core.errors import UndirectedError
from undirected.io.frames import as_frame
from undirected.tasks.words import read_words


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
        ({"hiden": 3}, "no setting is called 'hiden'; did you mean hidden"),
        ({"lr": 0.1}, "did you mean learning_rate"),
        ({"foo": 1}, "there are batch, components, epochs, "),
    ],
    ids=["unknown", "other model", "nothing given", "slip", "other name", "no setting"],
)
def test_what_cannot_be_asked_for_is_refused(options, words):
    with pytest.raises(UndirectedError, match=words):
        un.fit_table(switches(), **options)


def test_a_data_frame_is_answered_under_its_own_index():
    """pandas matches rows by their index: answers under another one would go to wrong rows."""
    pandas = pytest.importorskip("pandas")
    table = {"sky": ["clear", "grey", "dark"] * 20, "mm": [0.2, 1.4, 9.1] * 20}
    model = un.fit_table(table, epochs=2, hidden=2)
    asked = pandas.DataFrame({"sky": ["dark", None]}, index=["b", "a"])
    assert list(model.query(asked).index) == ["b", "a"]


def test_masked_cells_of_a_table_are_missing():
    rows = np.ma.array(
        np.random.default_rng(0).integers(0, 2, (40, 3)),
        mask=np.random.default_rng(1).random((40, 3)) < 0.3,
    )
    columns = {name: rows[:, j] for j, name in enumerate("abc")}
    for table in (rows, columns):
        schema = un.fit_table(table, epochs=2, hidden=2).schema
        assert [column.missing for column in schema] == rows.mask.sum(0).tolist()
    truth = np.ma.array(rows[:, 0] == 1, mask=rows.mask[:, 0])
    column = un.infer_schema({"a": truth, "b": np.ma.array(["x", "y"] * 20)})["a"]
    assert (column.states, column.missing) == (("False", "True"), rows.mask[:, 0].sum())


def test_answers_have_the_type_of_their_column():
    """Words among booleans and numbers were answers: bool('False') is True, and '1' is no 1."""
    table = {
        "on": [True, False, None] * 20,
        "grade": [1.0, 2.0, np.nan, 3.0] * 15,
        "code": ["1", "2", None] * 20,
    }
    model = un.fit_table(table, epochs=2, hidden=2)
    found = model.query(table)
    assert {type(cell) for cell in found["on"]} == {bool}
    assert {type(cell) for cell in found["grade"]} == {float}  # as Python prints them
    assert set(found["grade"]) <= {1.0, 2.0, 3.0}
    assert set(found["code"]) == {"1", "2"}
    alone = model.query({"on": [True], "grade": np.array([np.nan])})
    assert isinstance(alone["grade"][0], float)
    assert isinstance(alone["code"][0], int)  # of a column that is not there, as its states read


@pytest.mark.parametrize("scale", [1e-9, 1e-30, 1e9])
def test_answers_have_digits_that_suit_the_scale(scale):
    """Amperes of 1e-9 were answered by 0, with a standard deviation of 0."""
    rng = np.random.default_rng(0)
    first = rng.normal(size=200)
    second = first + 0.1 * rng.normal(size=200)
    model = un.fit_table({"a": scale * first, "b": scale * second}, hidden=2)
    plain = un.fit_table({"a": first, "b": second}, hidden=2)
    asked = np.array([-1.0, 1.0])
    found, wanted = model.query({"a": scale * asked}), plain.query({"a": asked})
    for name in ("b", "b_sd"):
        ours, theirs = np.array(found[name], float) / scale, np.array(wanted[name], float)
        np.testing.assert_allclose(ours, theirs, rtol=1e-2)
        assert (np.abs(theirs) > 0.05).all()


@pytest.mark.parametrize("seed", [-1, 1.5, None, True], ids=str)
def test_seeds_that_are_none_are_refused_by_name(seed):
    table = {"a": ["x", "y"] * 20, "b": np.arange(40) * 0.7}
    with pytest.raises(UndirectedError, match="seed is"):
        un.fit_table(table, seed=seed)
    with pytest.raises(UndirectedError, match="seed is"):
        un.Batches(np.eye(3), 2, seed=seed)
    assert len(un.fit_table(table, seed=2**40).schema) == 2
    if seed == 1.5:
        with pytest.raises(UndirectedError, match="seed is"):
            un.fit_table(table).sample(2, seed=seed)


class Strict:
    """A data frame whose columns hold Python's own values of one type, as those of polars do."""

    def __init__(self, columns):
        self.held = dict(columns)
        self.columns, self.dtypes = list(self.held), [object] * len(self.held)
        for name, cells in self.held.items():
            kinds = {type(cell) for cell in cells if cell is not None}
            assert len(kinds) <= 1 and kinds <= {bool, int, float, str, np.float64}, (name, kinds)

    def __getitem__(self, name):
        return self.held[name]


def test_answers_are_of_the_type_of_their_column():
    """Polars refused NumPy's booleans beside its own."""
    rng = np.random.default_rng(0)
    yes = rng.random(60) < 0.5
    table = {"yes": yes, "also": yes ^ (rng.random(60) < 0.1), "word": np.where(yes, "u", "v")}
    table |= {"x": rng.normal(size=60)}
    model = un.fit_table(table)
    asked = Strict({"yes": [True, None], "also": [None, False], "word": ["u", None]})
    found = model.query(asked)
    assert isinstance(found, Strict)
    assert found["yes"][0] is True
    assert all(type(cell) is bool for name in ("yes", "also") for cell in found[name])
    whole = Strict({"yes": [True, False], "also": [None, None], "word": ["u", "v"]})
    assert model.query(whole)["yes"] is whole["yes"]


def test_integers_stay_integers_beside_missing_ones():
    pd = pytest.importorskip("pandas")
    count = np.tile([0, 1, 2], 20)
    model = un.fit_table({"n": count, "x": 1.5 * count + 0.25, "w": ["a", "b"] * 30})
    asked = pd.DataFrame({"n": pd.array([1, None], "Int64"), "x": [None, 0.25], "w": ["a", "b"]})
    found = model.query(asked)
    assert [type(cell) for cell in found["n"].tolist()] == [int, int]
    assert found["n"][0] == 1
    assert found["x"].dtype == float


@pytest.fixture(scope="module")
def mixed():
    """A model of a word, a truth value, a number of categories and a real number."""
    rng = np.random.default_rng(0)
    wet = rng.random(90) < 0.5
    table = {"sky": np.where(wet, "dark", "clear"), "wet": wet, "k": rng.integers(0, 3, 90)}
    return un.fit_table(table | {"mm": 2.5 * wet + rng.random(90)}, epochs=5, hidden=2)


def test_samples_are_of_the_kind_of_their_column(mixed):
    """Numbers of categories came back as text, and truth values as "true"."""
    rows = mixed.sample(50)
    assert set(rows["sky"]) == {"dark", "clear"}
    assert rows["wet"].dtype == bool
    assert set(rows["k"].tolist()) <= {0, 1, 2} and rows["k"].dtype.kind == "i"
    assert rows["mm"].dtype.kind == "f"
    again = mixed.encode(as_frame(rows))
    assert not np.isnan(again).any()


@pytest.mark.parametrize(
    ("states", "read"),
    [
        (("01", "02"), ["01", "02"]),
        (("1", "XL"), ["1", "XL"]),
        (("1", "2.50"), ["1", "2.50"]),
        (("0", "2.5"), [0, 2.5]),
        (("no", "true"), ["no", "true"]),
        (("False", "TRUE"), [False, True]),
        ((str(2**60 + 1), str(2**60 + 3)), [2**60 + 1, 2**60 + 3]),
    ],
    ids=str,
)
def test_states_are_read_as_numbers_where_they_are_written_so(states, read):
    """Codes with leading zeros would be other codes as numbers."""
    column = un.Column("a", "binary", states)
    found = read_words(column, np.array(states, object)).tolist()
    assert found == read
    assert [type(cell) is str for cell in found] == [type(cell) is str for cell in read]


def test_a_column_without_any_cell_is_answered_as_its_states_read(mixed):
    found = mixed.query({"sky": ["dark"], "wet": [None], "k": [None]})
    assert type(found["wet"][0]) is bool
    assert type(found["k"][0]) is int
    assert type(mixed.query({"sky": ["dark"]})["k"][0]) is int


def test_pandas_keeps_the_types_of_answered_columns(mixed):
    pd = pytest.importorskip("pandas")
    asked = pd.DataFrame(
        {
            "sky": pd.Categorical(["dark", None], ["clear", "dark", "red"]),
            "wet": pd.array([None, True], "boolean"),
            "k": pd.array([None, 2], "Int8"),
            "mm": np.array([np.nan, 1], np.float32),
        },
        index=[3, 3],
    )
    found = mixed.query(asked)
    assert [found[n].dtype for n in asked] == [asked[n].dtype for n in asked]
    assert not found[list(asked)].isna().any(axis=None)
    assert list(found.index) == [3, 3]
    other = pd.DataFrame({"sky": pd.Categorical([None], ["red"]), "wet": [True]})
    assert mixed.query(other)["sky"][0] in ("clear", "dark")
    whole = pd.DataFrame({"mm": pd.array([None, 2], "Int64"), "wet": [True, True]})
    assert mixed.query(whole)["mm"][0] % 1 > 0


def test_arrow_gives_arrow_of_the_same_types(mixed):
    """It gave a mapping, and truth values as text."""
    pa = pytest.importorskip("pyarrow")
    words = pa.array(["dark", None]).dictionary_encode()
    days = pa.array([0, 1], pa.date32())
    whole = pa.table({"sky": words, "wet": [None, True], "day": days, "k": pa.array([None, 2])})
    found = mixed.query(whole)
    assert isinstance(found, pa.Table)
    assert found.column_names == ["sky", "sky_p", "wet", "wet_p", "day", "k", "k_p", "mm", "mm_sd"]
    assert all(found.schema.field(n).type == whole.schema.field(n).type for n in whole.column_names)
    assert found["wet"].to_pylist()[1] is True
    assert not any(found[name].null_count for name in whole.column_names)
    halves = mixed.query(pa.table({"mm": pa.array([None, 2]), "wet": [True, True]}))
    assert halves["mm"].to_pylist()[0] % 1 > 0


def test_whole_numbers_of_arrow_beside_missing_ones_are_not_rounded():
    pa = pytest.importorskip("pyarrow")
    codes = [2**60 + 1, 2**60 + 3, None] * 20
    frame = as_frame(pa.table({"code": pa.array(codes), "n": pa.array([1, 2, None] * 20)}))
    assert un.infer_schema(frame)["code"].states == (str(2**60 + 1), str(2**60 + 3))
    assert frame.cells["code"].tolist() == codes
    assert frame.cells["n"].dtype == float


class LazyFrame:
    """What polars reads when it is asked to."""

    columns, dtypes = ["a"], [object]

    def collect(self):
        return {"a": ["x"]}


def test_frames_without_cells_are_refused():
    with pytest.raises(UndirectedError, match=r"LazyFrame.*collect"):
        un.fit_table(LazyFrame())


def test_a_model_of_a_table_shows_its_columns():
    table = {f"c{i}": ["x", "y"] * 10 for i in range(7)} | {"n": np.arange(20) * 0.7}
    model = un.fit_table(table)
    shown = repr(model)
    assert "of 8 columns: c0, c1, c2, c3, c4, c5, …" in shown
    assert len(shown) < 100


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_that_the_model_does_not_know_stay_as_they_are(library):
    """Dates came back as text."""
    frames = pytest.importorskip(library)
    model = un.fit_table({"a": ["x", "y"] * 20, "b": ["u", "v"] * 20}, epochs=2, hidden=2)
    days = np.array(["2020-01-01", "2020-01-02"], "datetime64[us]")
    asked = frames.DataFrame({"day": days, "a": ["x", None], "n": [1, 2]})
    if library == "pandas":
        asked.index = [7, 7]
    found = model.query(asked)
    assert list(found.columns) == ["day", "a", "a_p", "n", "b", "b_p"]
    assert [found[name].dtype for name in ("day", "n")] == [asked["day"].dtype, asked["n"].dtype]
    assert found["day"].to_numpy().tolist() == days.tolist()


@pytest.mark.parametrize("source", ["array", "list", "pandas", "polars"])
def test_codes_of_many_digits_are_not_rounded(source):
    """Two ids were one state, "every cell is 1.15e+18", and answers had other digits."""
    codes = [2**60 + 1, 2**60 + 3, 2**60 + 1, None] * 15
    column = codes
    if source == "array":
        column = np.array([code or 2**60 + 1 for code in codes])
    elif source != "list":
        frames = pytest.importorskip(source)
        column = frames.Series("a", codes) if source == "polars" else frames.array(codes, "Int64")
    table = {"code": column, "word": ["u", "v", "u", "u"] * 15}
    model = un.fit_table(table, epochs=20, hidden=2)
    assert model.schema["code"].states == (str(2**60 + 1), str(2**60 + 3))
    assert set(model.sample(20)["code"].tolist()) <= {2**60 + 1, 2**60 + 3}
    for code, word in ((2**60 + 1, "u"), (2**60 + 3, "v")):
        assert model.query({"code": [code], "word": [None]})["word"] == [word]
    assert set(model.query(table)["code"]) == {2**60 + 1, 2**60 + 3}
    with pytest.raises(UndirectedError, match="none of the states"):
        model.query({"code": np.array([2**60 + 2])})
    with pytest.raises(UndirectedError, match="none of the states"):
        model.query({"code": np.array([2.0**60])})


def test_large_whole_numbers_are_real_where_it_is_said():
    stamps = 1_700_000_000_000_000_000 + 7 * np.arange(60)
    table = {"t": stamps, "also": stamps - stamps[0]}
    assert un.infer_schema(table).dropped.keys() >= {"t"}
    assert un.infer_schema(table, types={"t": "real"})["t"].kind == "real"


def test_one_name_is_a_name():
    """The letters of a word were taken for names: `drop="ab"` left out a and b."""
    words = ["x", "y"] * 20
    table = {"a": words, "b": words, "ab": words, "long name": words}
    assert un.infer_schema(table, drop="ab").names == ["a", "b", "long name"]
    assert un.infer_schema(table, columns="ab").names == ["ab"]
    assert un.infer_schema(table, drop=None).names == list(table)
    for given in ("ab", ["ab"], ["ab", "ab"]):
        assert un.fit_table(table, given=given, epochs=1, hidden=2).given == (2,)
    assert un.fit_table(table, given=None, drop="long name", epochs=1, hidden=2).given == ()
    numbered = {0: words, 1: words}
    schema = un.infer_schema(numbered, drop=[0], types={1: "category"})
    assert [(column.name, column.kind) for column in schema] == [("1", "category")]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"drop": 5}, r"drop: got 5; pass names of columns, as in \['a'\]"),
        ({"types": "switch=real"}, "types: got 'switch=real'; pass kinds by name"),
        ({"types": {"switch": int}}, "<class 'int'>' for 'switch' is not a kind of column"),
        ({"columns": [0]}, "no column is called '0'"),
    ],
    ids=["drop", "types", "kind", "number"],
)
def test_names_that_are_none_are_refused(options, words):
    with pytest.raises(UndirectedError, match=words):
        un.infer_schema(switches(), **options)


def test_cells_by_name_are_one_row():
    table = {"sky": ["clear", "grey", "dark"] * 20, "mm": [0.2, 1.4, 9.1] * 20}
    model = un.fit_table(table, epochs=2, hidden=2)
    for cells in (
        {"sky": "dark"},
        {"sky": None, "mm": np.float64(9)},
        {"mm": 9, "sky": float("nan")},
    ):
        columns = {name: [cell] for name, cell in cells.items()}
        assert model.query(cells) == model.query(columns)
    assert set(model.sample(5, given={"sky": "dark"})["sky"]) == {"dark"}
    row, columns = {"sky": "dark", "mm": 9.0}, {"sky": ["dark"], "mm": [9.0]}
    assert model.evaluate(row).log_likelihood.mean == model.evaluate(columns).log_likelihood.mean
    with pytest.raises(UndirectedError, match=r"the column 'mm' has shape \(\)"):
        model.query({"sky": ["dark"], "mm": 9.0})


def test_what_holds_a_model_says_where_it_is(tmp_path):
    """Verbs of models asked for "a model with a layout" where the table's own verb was meant."""
    table = {"a": ["x", "y"] * 20, "b": ["u", "v", "w", "u"] * 10}
    model = un.fit_table(table, epochs=1, hidden=2)
    for verb in (un.query, un.sample, un.evaluate):
        with pytest.raises(
            UndirectedError, match=f"TableModel; call its own method {verb.__name__}"
        ):
            verb(model, 3)
    with pytest.raises(UndirectedError, match="call its own method save"):
        un.save(tmp_path, model)
    for verb in (un.log_partition, un.solve):
        with pytest.raises(UndirectedError, match="pass the model that it holds as its `model`"):
            verb(model)
    with pytest.raises(UndirectedError, match="un.fit_table or un.load_table, takes words"):
        un.query(model.model, table)


def test_tables_and_models_are_not_taken_for_each_other():
    pd = pytest.importorskip("pandas")
    words = {"a": ["x", "y"] * 20}
    with pytest.raises(UndirectedError, match="got a DataFrame; pass a model first.*un.fit_table"):
        un.fit(pd.DataFrame(words), None)
    with pytest.raises(UndirectedError, match="got a Ising, which is a model.*un.fit"):
        un.fit_table(un.Ising.create(3))
    with pytest.raises(UndirectedError, match="values are no table of numbers.*un.fit_table takes"):
        un.train_table(words)
    with pytest.raises(UndirectedError, match=r"settings are .*pass un.Settings"):
        un.train_table(np.eye(3), {"hidden": 3})


def test_a_column_of_the_table_is_not_written_over():
    """How sure an answer is took the place of the user's own column of that name."""
    table = {"a_p": ["c", "d"] * 20, "a": ["u", "v"] * 20, "x": np.arange(40) * 0.7}
    model = un.fit_table(table, epochs=2, hidden=2)
    found = model.query({"a_p": ["c"], "a": [None], "x": [None]})
    assert found["a_p"] == ["c"]
    assert 0.5 <= found["a_p_"][0] <= 1
    assert list(found) == ["a_p", "a", "a_p_", "x", "x_sd"]


def test_an_enum_of_polars_says_its_states():
    """They were those that occur, in the order of letters."""
    pl = pytest.importorskip("polars")
    sizes = pl.Series(["hi", "lo"] * 20, dtype=pl.Enum(["lo", "mid", "hi"]))
    frame = pl.DataFrame({"size": sizes, "other": pl.Series(["u", "v"] * 20, dtype=pl.Categorical)})
    schema = un.infer_schema(frame)
    assert [column.states for column in schema] == [("lo", "mid", "hi"), ("u", "v")]


@pytest.mark.parametrize("name", ["hidden", "learning_rate", "epochs", "validation", "patience"])
def test_settings_that_are_no_numbers_are_refused(name):
    with pytest.raises(UndirectedError, match=f"{name.replace('_', ' ')} is x; pass a"):
        un.fit_table(switches(), **{name: "x"})
