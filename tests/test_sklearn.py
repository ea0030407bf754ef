"""Estimators in the manner of scikit-learn: its own checks, and formulas in plain NumPy."""

import datetime as dt
import doctest
import itertools
import pickle
from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import BernoulliRBM
from sklearn.neural_network.tests import test_rbm as published
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import undirected as un
from undirected.sklearn import RBMFeatures, StructuredClassifier, TableDensity, TableImputer

ESTIMATORS = [
    RBMFeatures(8, n_iter=2, random_state=0),
    StructuredClassifier(max_iter=30, random_state=0),
    TableDensity(max_iter=10, random_state=0),
    TableImputer(max_iter=10, random_state=0),
]


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    x, y = load_digits(return_X_y=True)
    return x / 16, y


@pytest.fixture
def survey():
    """Answers and ages that hang together: the young say yes and like blue."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    young = rng.random(200) < 0.5
    liked = np.where(young, "blue", "red").astype(object)
    liked[rng.random(200) < 0.1] = "green"
    return pandas.DataFrame(
        {
            "answer": np.where(young ^ (rng.random(200) < 0.05), "yes", "no"),
            "colour": pandas.Categorical(liked),
            "age": np.where(young, 20.0, 60.0) + rng.normal(size=200),
            "member": young,
        }
    )


@pytest.mark.filterwarnings("ignore:RBMFeatures. got values")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(ESTIMATORS)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_examples_run(estimator):
    (example,) = doctest.DocTestFinder(recurse=False).find(type(estimator), globs={})
    assert doctest.DocTestRunner(verbose=False).run(example) == (0, len(example.examples))


def published_tests():
    """The tests that scikit-learn publishes for BernoulliRBM, with the values of their marks."""
    for name, test in vars(published).items():
        if not name.startswith("test_"):
            continue
        marks = [m for m in getattr(test, "pytestmark", []) if m.name == "parametrize"]
        choices = []
        for mark in marks:
            names = [n.strip() for n in mark.args[0].split(",")]
            values = [v if len(names) > 1 else (v,) for v in mark.args[1]]
            choices.append([dict(zip(names, v, strict=True)) for v in values])
        for number, chosen in enumerate(itertools.product(*choices)):
            values = {k: v for part in chosen for k, v in part.items()}
            yield pytest.param(test, values, id=f"{name}-{number}")


@pytest.mark.filterwarnings("ignore:BernoulliRBM. got values")
@pytest.mark.parametrize(("test", "values"), list(published_tests()))
def test_published_tests_of_bernoulli_rbm(test, values, monkeypatch, capsys):
    # A subclass of the same name: two of the tests have the name in what they expect.
    monkeypatch.setattr(published, "BernoulliRBM", type("BernoulliRBM", (RBMFeatures,), {}))
    wants = test.__code__.co_varnames[: test.__code__.co_argcount]
    test(**values, **({"capsys": capsys} if "capsys" in wants else {}))


def test_all_published_tests_are_run():
    names = {parameter.values[0].__name__ for parameter in published_tests()}
    assert len(names) >= 13 and {"test_fit_gibbs", "test_sparse_and_verbose"} <= names


def test_same_seed_same_weights_as_bernoulli_rbm(digits):
    settings = {"n_components": 6, "batch_size": 20, "n_iter": 3, "random_state": 3}
    ours, theirs = (kind(**settings).fit(digits[0][:200]) for kind in (RBMFeatures, BernoulliRBM))
    for name in ("components_", "intercept_hidden_", "intercept_visible_", "h_samples_"):
        np.testing.assert_allclose(
            getattr(ours, name), getattr(theirs, name), rtol=1e-9, atol=1e-12
        )


def test_scores_are_exact_pseudo_likelihoods(digits):
    x = (digits[0][:30, :10] > 0.5).astype(float)
    model = RBMFeatures(4, random_state=0).fit(x)
    W, b, c = model.components_, model.intercept_visible_, model.intercept_hidden_

    def log_weight(v):
        return v @ b + np.log1p(np.exp(v @ W.T + c)).sum(1)

    total = np.zeros(len(x))
    for i in range(x.shape[1]):
        other = x.copy()
        other[:, i] = 1 - other[:, i]
        total -= np.log1p(np.exp(log_weight(other) - log_weight(x)))
    np.testing.assert_allclose(model.score_samples(x), total, rtol=1e-9)


def test_the_model_of_the_features_can_be_asked(digits):
    x = digits[0][:100]
    features = RBMFeatures(5, n_iter=1, batch_size=50, random_state=0)
    found = features.fit_transform(x)
    rbm = features.rbm_
    fields = x @ np.asarray(rbm.weights, float) + np.asarray(rbm.hidden_bias, float)
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-fields)), rtol=1e-4)
    drawn = features.sample(3, sweeps=5)
    assert drawn.shape == (3, 64) and set(np.unique(drawn)) <= {0, 1}
    assert features.get_feature_names_out()[0] == "rbmfeatures0"
    with pytest.warns(UserWarning, match="values from 0 to 16"):
        features.fit(16 * x)


def test_fit_takes_grey_rows_and_refuses_others(digits):
    model = un.RBM.create(64, 4, seed=0)
    assert un.fit(model, digits[0][:50], steps=2).model.n_hidden == 4
    with pytest.raises(un.UndirectedError, match="wanted a number from 0 to 1"):
        un.fit(model, 16 * digits[0][:50], steps=2)


def test_imputer_keeps_frames_and_their_types(survey):
    holes = survey.copy()
    holes.loc[:9, "answer"] = None
    holes.loc[5:14, "colour"] = None
    holes.loc[10:19, "age"] = np.nan
    imputer = TableImputer(random_state=0).fit(holes)
    filled = imputer.transform(holes)
    assert type(filled) is type(survey) and (filled.dtypes == survey.dtypes).all()
    assert (filled.iloc[20:] == survey.iloc[20:]).all().all()
    assert (filled["answer"][:10] == np.where(survey["member"], "yes", "no")[:10]).all()
    assert (filled["colour"][5:15] == np.where(survey["member"], "blue", "red")[5:15]).all()
    assert np.abs(filled["age"] - survey["age"]).max() < 6
    assert list(imputer.get_feature_names_out()) == list(survey.columns)
    assert type(imputer.set_output(transform="pandas").transform(holes)) is type(survey)


def test_imputer_fills_probabilities_where_asked():
    rng = np.random.default_rng(0)
    first = rng.integers(0, 2, 300)
    table = np.stack([first, first ^ (rng.random(300) < 0.2)], 1).astype(float)
    row = np.array([[1, np.nan]])
    assert TableImputer(random_state=0).fit(table).transform(row)[0, 1] == 1
    asked = TableImputer(fill="mean", random_state=0).fit(table).transform(row)[0, 1]
    share = table[first == 1, 1].mean()
    assert abs(asked - share) < 0.05 and 0.6 < asked < 0.95


def test_imputer_takes_unknown_words_and_says_what_is_wrong(survey):
    imputer = TableImputer(random_state=0).fit(survey)
    odd = survey[:2].astype(object)
    odd.loc[0, ["answer", "age"]] = ["perhaps", np.nan]
    assert imputer.transform(odd)["answer"][0] == "perhaps"
    with pytest.raises(ValueError, match="'perhaps' is none of the states no, yes"):
        TableDensity(random_state=0).fit(survey).score_samples(odd)
    with pytest.raises(ValueError, match="no column is called 'height'; there are answer"):
        TableImputer(types={"height": "real"}).fit(survey)
    with pytest.raises(ValueError, match="'fill' parameter"):
        TableImputer(fill="worst").fit(survey)


def test_columns_that_say_nothing_are_filled_with_their_commonest_cell():
    nan = np.nan
    table = np.array([[5.0, nan, 0.3], [5.0, nan, 1.4], [nan, nan, 2.0]])
    filled = TableImputer(random_state=0).fit_transform(table)
    assert filled[:, 0].tolist() == [5, 5, 5] and filled[:, 1].tolist() == [0, 0, 0]
    words = np.array([[f"word {i // 2}", i % 2] for i in range(600)] + [[None, 0]], object)
    imputer = TableImputer(random_state=0).fit(words)
    assert imputer.transform(words)[-1].tolist() == ["word 0", 0]
    assert "300 different words" in imputer.codec_.schema.dropped["x0"]


def test_types_are_taken_by_name_and_by_number(survey):
    rng = np.random.default_rng(0)
    grades = rng.integers(1, 6, 100)
    table = np.stack([grades, grades + rng.normal(size=100)], 1)
    holes = np.array([[np.nan, 2.0]])
    for types, whole in (({}, True), ({0: "real"}, False)):
        found = TableImputer(types=types, random_state=0).fit(table).transform(holes)
        assert (found[0, 0] % 1 == 0) == whole
    frame = survey.assign(age=survey["age"].round(-1))
    imputer = TableImputer(types={"age": "category"}, random_state=0).fit(frame)
    assert imputer.codec_.schema["age"].kind == "category"


def test_missing_values_of_pandas_are_missing(survey):
    table = survey.assign(
        visits=survey["age"].round().astype("Int64"), member=survey["member"].astype("boolean")
    )
    table.loc[:4, ["visits", "member"]] = None
    filled = TableImputer(random_state=0).fit_transform(table)
    assert not filled.isna().any().any() and filled["member"].dtype == "boolean"
    assert (filled["member"][:5] == survey["member"][:5]).all()


def test_density_knows_rows_that_go_together_and_draws_them(survey):
    density = TableDensity(random_state=0).fit(survey)
    torn = survey.assign(age=survey["age"].to_numpy()[np.argsort(survey["age"])])
    assert density.score(survey) > density.score(torn) + 1
    drawn = density.sample(400, random_state=1)
    assert (drawn.dtypes == survey.dtypes).all()
    agree = ((drawn["age"] < 40) == drawn["member"]).mean()
    assert agree > 0.95
    again = pickle.loads(pickle.dumps(density))
    np.testing.assert_array_equal(again.score_samples(survey), density.score_samples(survey))


def test_density_is_in_the_units_of_the_table():
    x = np.random.default_rng(0).normal(3.0, 10.0, (500, 1))
    normal = -0.5 * ((x - x.mean()) / x.std()) ** 2 - np.log(x.std() * np.sqrt(2 * np.pi))
    assert abs(TableDensity(random_state=0).fit(x).score(x) - normal.mean()) < 0.05


@pytest.mark.slow
def test_more_hidden_units_are_learned_by_the_table_models(survey):
    density = TableDensity(16, random_state=0).fit(survey[:60])
    assert isinstance(density.model_, un.TableModel)
    assert np.isfinite(density.score_samples(survey[:5])).all()
    assert list(density.sample(3).columns) == list(survey.columns)
    holes = survey[:5].copy()
    holes.loc[0, ["answer", "age"]] = None
    filled = TableImputer(16, random_state=0).fit(survey[:60]).transform(holes)
    assert filled["answer"][0] in ("yes", "no") and 10 < filled["age"][0] < 70


def test_labels_that_go_together_are_predicted_together():
    """Two labels that are always equal, a fair coin given the features: the pair is never torn."""
    rng = np.random.default_rng(0)
    x, coin = rng.normal(size=(400, 2)), rng.integers(0, 2, 400)
    labels = np.stack([coin, coin, (x[:, 0] > 0).astype(int)], 1)
    found = {}
    for n_hidden in (0, 3):
        model = StructuredClassifier(n_hidden, random_state=0).fit(x, labels)
        scaled = (x - model.mean_) / model.scale_
        found[n_hidden] = model.model_.slope(scaled, labels.astype(float))[0] / len(x)
    assert found[3] > found[0] + 0.5
    assert [p.shape for p in model.predict_proba(x)] == [(400, 2)] * 3
    assert (model.predict(x)[:, 2] == labels[:, 2]).mean() > 0.95


def test_words_of_many_classes_are_labels():
    x, y = load_iris(return_X_y=True)
    words = np.array(["setosa", "versicolor", "virginica"])[y]
    both = np.stack([words, np.where(y == 0, "short", "long")], 1)
    model = StructuredClassifier(random_state=0).fit(x, both)
    assert model.score(x, both) > 0.95
    assert StructuredClassifier(random_state=0).fit(x, words).score(x, words) > 0.95


def test_labels_of_one_class_are_told_as_they_are():
    x = np.arange(12.0)[:, None]
    labels = np.stack([np.full(12, 7), x[:, 0] > 5], 1)
    model = StructuredClassifier(random_state=0).fit(x, labels)
    assert (model.predict(x) == labels).all() and model.score(x, labels) == 1
    assert model.predict_proba(x)[0].tolist() == [[1.0]] * 12
    assert (StructuredClassifier().fit(x, labels[:, 0]).predict(x) == 7).all()


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_estimators_are_cloned_pickled_and_searched(estimator):
    x, y = load_iris(return_X_y=True)
    x = (x - x.min(0)) / (x.max(0) - x.min(0))
    name = "n_components" if isinstance(estimator, RBMFeatures) else "n_hidden"
    steps = clone(estimator)
    if hasattr(estimator, "transform"):
        steps = make_pipeline(steps, LogisticRegression())
        name = f"{type(estimator).__name__.lower()}__{name}"
    search = GridSearchCV(steps, {name: [2, 3]}, cv=2, error_score="raise").fit(x, y)
    ask = partial(search.score, x, y)
    assert search.best_params_[name] in (2, 3) and np.isfinite(ask())
    assert pickle.loads(pickle.dumps(search)).score(x, y) == ask()


def test_masked_cells_are_not_known():
    rng = np.random.default_rng(0)
    rows = np.ma.array(rng.integers(0, 2, (40, 3)), mask=rng.random((40, 3)) < 0.3)
    holes = rows.astype(float).filled(np.nan)
    found = TableImputer(random_state=0).fit(rows).transform(rows)
    np.testing.assert_array_equal(found, TableImputer(random_state=0).fit(holes).transform(holes))
    for estimator in (RBMFeatures(2), StructuredClassifier()):
        with pytest.raises(ValueError, match="NaN"):
            estimator.fit(rows, rows.data[:, 0])
    with pytest.raises(ValueError, match="NaN"):
        StructuredClassifier().fit(rows.data, rows[:, 0])


def test_a_feature_that_never_varied_decides_nothing():
    """The mean of 0.1, 0.1, ... is not 0.1: another value was 1e15 standard deviations away."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(50, 2)), np.full((50, 1), 0.1)], 1)
    model = StructuredClassifier(random_state=0).fit(x, x[:, 0] > 0)
    other = x + np.array([0, 0, 0.1])
    np.testing.assert_allclose(model.predict_proba(other), model.predict_proba(x), atol=1e-6)


def test_columns_of_many_types_stand_in_one_frame():
    """scikit-learn looks for a common type, which words, dates and nullable columns have not."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "on": pandas.array([True, False, None, True] * 10, dtype="boolean"),
            "grade": pandas.array([3, 0, None, 3] * 10, dtype="Int64"),
            "size": pandas.Categorical(["lo", "hi", None, "lo"] * 10),
            "day": pandas.to_datetime(["2020-01-01", "2020-01-02", None, "2020-01-01"] * 10),
            "x": [1.5, -1.5, np.nan, 1.25] * 10,
        }
    )
    before = frame.copy(deep=True)
    found = TableImputer(random_state=0).fit(frame).transform(frame)
    assert frame.equals(before)
    assert found.dtypes.tolist() == frame.dtypes.tolist()
    assert not found.isna().any().any()
    known = frame.notna().all(axis=1)
    assert found[known].equals(frame[known])
    assert (found["day"][~known] == pandas.Timestamp("2020-01-01")).all()
    density = TableDensity(random_state=0).fit(frame)
    assert np.isfinite(density.score_samples(frame)).all()


def test_a_frame_of_polars_gives_one():
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(
        {
            "on": [True, False, None, True] * 10,
            "grade": [3, 0, None, 3] * 10,
            "size": pl.Series(["lo", "hi", None, "lo"] * 10, dtype=pl.Enum(["hi", "lo"])),
            "word": ["u", "v", None, "u"] * 10,
            "x": [1.5, -1.5, None, 1.25] * 10,
            "whole": [1.0, 2.0, 3.0, 4.0] * 10,
        }
    )
    found = TableImputer(random_state=0).fit(frame).transform(frame)
    assert isinstance(found, pl.DataFrame)
    assert found.schema == frame.schema
    assert found.null_count().sum_horizontal().item() == 0
    known = np.arange(40) % 4 != 2
    assert found.filter(known).equals(frame.filter(known))
    shares = TableImputer(random_state=0, fill="mean").fit_transform(frame)
    assert shares.null_count().sum_horizontal().item() == 0


def test_whole_numbers_keep_their_digits():
    """Ids beyond 2**53 were answered and drawn as others; counts came back as floats."""
    pd = pytest.importorskip("pandas")
    codes = [2**60 + 1, 2**60 + 2, None]
    table = {
        "code": pd.array(codes * 20, "Int64"),
        "id": np.tile([2**62 + 1, 2**62 + 3], 30),
        "n": [1, 2, 3] * 20,
        "word": ["u", "v", "w"] * 20,
    }
    frame = pd.DataFrame(table)
    filled = TableImputer(random_state=0).fit_transform(frame)
    assert set(filled["code"]) == set(codes[:2])
    drawn = TableDensity(random_state=0).fit(frame).sample(20, random_state=0)
    assert drawn.dtypes.tolist() == frame.dtypes.tolist()
    assert all(set(drawn[name]) <= set(frame[name].dropna()) for name in frame)
    rows = frame[["id", "n"]].to_numpy()
    assert set(TableDensity(random_state=0).fit(rows).sample(20)[:, 0]) == set(table["id"])
    assert (TableImputer(random_state=0).fit_transform(rows) == rows).all()


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_one_column_is_no_frame(library):
    """The message was that a type is not iterable."""
    frames = pytest.importorskip(library)
    column = frames.DataFrame({"a": ["u", "v"] * 20})["a"]
    for estimator in (TableImputer(max_iter=5), TableDensity(max_iter=5)):
        with pytest.raises(un.UndirectedError, match=r"got a Series.*to_frame\(\)"):
            estimator.fit(column)
        ask = estimator.fit(column.to_frame())
        ask = ask.transform if isinstance(ask, TableImputer) else ask.score_samples
        with pytest.raises(un.UndirectedError, match=r"got a Series.*to_frame\(\)"):
            ask(column)


def test_labels_of_another_shape_are_not_scored():
    """One label was set against all rows, and a column of one label against two."""
    x = np.random.default_rng(0).normal(size=(40, 2))
    y = (x[:, 0] > 0).astype(int)
    one = StructuredClassifier(2, max_iter=20, random_state=0).fit(x, y)
    two = StructuredClassifier(2, max_iter=20, random_state=0).fit(x, np.stack([y, 1 - y], 1))
    assert one.score(x, y) == one.score(x, y[:, None])
    for model, labels in ((one, y[:1]), (one, y[:5]), (one, 1), (two, y), (two, y[:, None])):
        with pytest.raises(un.UndirectedError, match=r"score: y has shape .*for each of 40 rows"):
            model.score(x, labels)


def test_logs_of_probabilities():
    x = np.random.default_rng(0).normal(size=(40, 2))
    y = np.stack([x[:, 0] > 0, x[:, 1] > 0], 1).astype(int)
    for labels in (y, y[:, 0]):
        model = StructuredClassifier(2, max_iter=20, random_state=0).fit(x, labels)
        found, wanted = model.predict_log_proba(x), np.log(model.predict_proba(x))
        np.testing.assert_allclose(found, wanted)


@pytest.mark.parametrize("library", ["pandas", "polars", "arrays"])
def test_no_rows_are_answered_by_none(library):
    table = {"word": ["u", "v", None] * 10, "x": [0.5, 1.5, 2.5] * 10}
    rows = np.array([*table.values()], object).T
    rows = rows if library == "arrays" else pytest.importorskip(library).DataFrame(table)
    filled = TableImputer(max_iter=5, random_state=0).fit(rows).transform(rows[:0])
    assert type(filled) is type(rows)
    assert filled.shape == (0, 2)
    density = TableDensity(max_iter=5, random_state=0).fit(rows)
    assert density.score_samples(rows[:0]).shape == (0,)
    with pytest.raises(un.UndirectedError, match="score: got no rows"):
        density.score(rows[:0])


def test_polars_is_drawn_and_filled_in_its_own_types():
    """Samples were an array of objects; dates with holes could not be filled."""
    pl = pytest.importorskip("polars")
    day, hour = dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.timedelta(hours=1)
    frame = pl.DataFrame(
        {
            "word": ["u", "v"] * 20,
            "on": [True, False] * 20,
            "small": pl.Series([1, 2, 3, 4] * 10, dtype=pl.UInt8),
            "size": pl.Series(["hi", "lo"] * 20, dtype=pl.Enum(["lo", "hi"])),
            "x": pl.Series([0.5, 1.5, 2.5, 3.75] * 10, dtype=pl.Float32),
            "day": [day.date(), (day + 24 * hour).date()] * 20,
            "when": pl.Series([day, day + hour] * 20, dtype=pl.Datetime("us", "Europe/Berlin")),
            "long": [hour, 2 * hour] * 20,
        }
    )
    drawn = TableDensity(max_iter=5, random_state=0).fit(frame).sample(30, random_state=0)
    assert drawn.schema == frame.schema
    assert all(set(drawn[name]) <= set(frame[name]) for name in frame.columns if name != "x")
    holes = pl.int_range(40) % 5 == 0
    asked = frame.with_columns(pl.when(~holes).then(pl.all()))
    found = TableImputer(max_iter=5, random_state=0).fit(asked).transform(asked)
    assert found.schema == frame.schema
    assert found.null_count().sum_horizontal().item() == 0
    assert found.filter(~holes).equals(frame.filter(~holes))


def test_categories_of_pandas_may_be_intervals_and_dates():
    """What `pandas.cut` makes was refused: (0, 1] was written (0.0, 1.0] in its cells."""
    pd = pytest.importorskip("pandas")
    numbers = np.tile([-0.5, 0.5, 5], 20)
    days = pd.to_datetime(["2020-01-01", "2020-02-01", "2020-03-01"])
    frame = pd.DataFrame(
        {
            "part": pd.cut(numbers, [-10, -1, 0, 1, 9]),  # no number is below -1
            "day": pd.Categorical([days[0], days[1], None] * 20, categories=days),
            "word": ["u", "v", "w"] * 20,
        }
    )
    filled = TableImputer(random_state=0).fit_transform(frame)
    assert filled.dtypes.tolist() == frame.dtypes.tolist()
    assert filled["day"].isin(days).all()
    assert filled[["part", "word"]].equals(frame[["part", "word"]])
    drawn = TableDensity(random_state=0).fit(frame).sample(50, random_state=0)
    assert drawn.dtypes.tolist() == frame.dtypes.tolist()
    assert drawn.notna().all(axis=None)
    model = un.fit_table(frame, epochs=2, hidden=2)
    assert model.schema["part"].states == ("(-10, -1]", "(-1, 0]", "(0, 1]", "(1, 9]")
    assert set(model.query(frame[["part"]])["word"]) <= {"u", "v", "w"}


@pytest.mark.parametrize("kind", ["float16", "Float32", "Float64"])
def test_floats_of_pandas_stay_what_they_are(kind):
    pd = pytest.importorskip("pandas")
    x = pd.Series([0.5, 1.5, None, 3.75] * 10).astype(kind)
    frame = pd.DataFrame({"x": x, "word": ["u", "v"] * 20})
    for fill in ("best", "mean"):
        found = TableImputer(fill=fill, max_iter=5, random_state=0).fit_transform(frame)
        assert found["x"].dtype == kind
        assert found["x"][frame["x"].notna()].equals(frame["x"][frame["x"].notna()])
    assert TableDensity(max_iter=5, random_state=0).fit(frame).sample(3)["x"].dtype == kind


def test_labels_may_be_words_beside_numbers():
    """scikit-learn sorted the labels of all columns together."""
    pd = pytest.importorskip("pandas")
    x = np.random.default_rng(0).normal(size=(60, 2))
    labels = pd.DataFrame({"side": np.where(x[:, 0] > 0, "right", "left"), "up": x[:, 1] > 0})
    labels["level"] = labels["up"] + 3
    model = StructuredClassifier(random_state=0).fit(x, labels)
    assert [own.tolist() for own in model.classes_] == [["left", "right"], [False, True], [3, 4]]
    assert model.score(x, labels) > 0.9
    with pytest.raises(ValueError, match="continuous"):
        model.fit(x, labels.assign(side=x[:, 0]))
