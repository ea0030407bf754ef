"""Tables of a network's variables by name, against sums over all states in NumPy."""

import itertools

import numpy as np
import pytest

import undirected as un
from undirected.core.errors import UndirectedError

WORDS = {"a": [0, 1], "b": ["x", "y", "z"], "c": ["no", "yes"]}
AB, BC = np.array([[5, 2, 1], [3, 0, 4.0]]), np.array([[1, 2], [3, 1], [1, 1.0]])


def network() -> un.FactorGraph:
    return un.markov_network(
        {"a": 2, "b": WORDS["b"], "c": WORDS["c"]}, {("a", "b"): AB, ("b", "c"): BC}
    )


def share(known: dict) -> float:
    """The probability of what is known of a, b and c."""
    total = seen = 0.0
    for states in itertools.product(*(range(len(words)) for words in WORDS.values())):
        value = AB[states[0], states[1]] * BC[states[1], states[2]]
        words = {n: WORDS[n][s] for n, s in zip(WORDS, states, strict=True)}
        total += value
        seen += value * all(words[name] == word for name, word in known.items())
    return seen / total


ROWS = {"b": ["x", None, "z", None], "c": ["yes", "no", None, None]}


def known(row: int) -> dict:
    return {name: column[row] for name, column in ROWS.items() if column[row] is not None}


def made(kind: str):
    if kind == "dict":
        return ROWS
    if kind == "pandas":
        return pytest.importorskip("pandas").DataFrame(ROWS)
    if kind == "polars":
        return pytest.importorskip("polars").DataFrame(ROWS)
    return pytest.importorskip("pyarrow").table(ROWS)


@pytest.mark.parametrize("kind", ["dict", "pandas", "polars", "arrow"])
def test_rows_are_scored_and_completed(kind):
    table, net = made(kind), network()
    found = un.evaluate(net, table).log_likelihood.rows
    np.testing.assert_allclose(np.exp(found), [share(known(r)) for r in range(4)], atol=1e-6)
    answers = un.query(net, table)
    assert list(answers) == ["a", "b", "c"]
    for name, shares in answers.items():
        assert list(shares) == WORDS[name]
        for word, p in shares.items():
            want = [
                share(known(r) | {name: word}) / share(known(r))
                if known(r).get(name, word) == word
                else 0.0
                for r in range(4)
            ]
            np.testing.assert_allclose(p, want, atol=1e-6)
    assert un.fit(net, table).stopped == "converged"


def test_columns_that_are_known_throughout_are_not_answered():
    assert list(un.query(network(), {"c": ["yes", "no"], "a": [0, 1]})) == ["b"]


def test_samples_by_name_are_scored():
    net = network()
    drawn = un.sample(net, 3000, seed=0)
    entropy = -sum(
        p * np.log(p)
        for words in itertools.product(*WORDS.values())
        if (p := share(dict(zip(WORDS, words, strict=True)))) > 0
    )
    mean, error, _ = un.evaluate(net, drawn).log_likelihood
    assert abs(mean + entropy) < 4 * error  # about one seed in 15,000 fails


def test_rows_that_tables_forbid_are_impossible():
    net = network()
    table = {"a": [0, 1, 1], "b": ["x", "y", "y"], "c": ["no", "no", None]}
    for method in ("auto", "ais"):
        found = un.evaluate(net, table, method=method, seed=0, betas=200, entries=False)
        assert found.impossible == 2
        assert found.log_likelihood.mean == -np.inf and np.isnan(found.log_likelihood.stderr)
        first, *rest = found.log_likelihood.rows
        assert rest == [-np.inf, -np.inf]
        assert first == pytest.approx(np.log(share({"a": 0, "b": "x", "c": "no"})), abs=0.1)
    possible = un.evaluate(net, {name: column[:1] for name, column in table.items()})
    assert possible.impossible == 0 and np.isfinite(possible.log_likelihood.mean)


def test_far_away_numbers_are_improbable_not_impossible():
    model = un.GaussianRBM.create(2, 3, seed=0)
    found = un.evaluate(model, [[3e4, 0.0]])
    assert found.impossible == 0 and -1e10 < found.log_likelihood.mean < -1e8


@pytest.mark.parametrize("rows", [{"a": 1}, {"b": "x"}])
def test_single_values_by_name_are_told_where_they_belong(rows):
    for ask in (un.query, un.evaluate):
        with pytest.raises(UndirectedError, match="single values by name; .* as `given`"):
            ask(network(), rows)


def test_a_word_that_a_variable_does_not_have_is_named():
    with pytest.raises(UndirectedError, match="evaluate: variable 'b' has no state 'w'"):
        un.evaluate(network(), {"b": ["x", "w"]})


ASKED = {
    "query": un.query,
    "evaluate": un.evaluate,
    "fit": un.fit,
    "learn_network": lambda _, data: un.learn_network(data),
}


@pytest.mark.parametrize("verb", ASKED)
def test_queries_that_did_not_run_are_told_to_be_collected(verb):
    lazy = pytest.importorskip("polars").LazyFrame({"a": [0, 1], "b": ["x", "z"]})
    models = [network()] if verb == "learn_network" else [network(), un.Ising.create(2)]
    for model in models:
        with pytest.raises(UndirectedError, match=r"LazyFrame, .*; pass data\.collect\(\)"):
            ASKED[verb](model, lazy)


@pytest.mark.parametrize("verb", ASKED)
def test_two_columns_of_one_name_are_refused(verb):
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame([[0, 1, "x"], [1, 1, "z"]], columns=["a", "a", "b"])
    with pytest.raises(UndirectedError, match=f"{verb}: 3 columns, .* several are called 'a'"):
        ASKED[verb](network(), table)


@pytest.mark.parametrize("column", [[[0], [1]], np.array([[0, 1], [1, 0]])])
def test_entries_that_are_no_states_are_refused(column):
    for verb, ask in ASKED.items():
        with pytest.raises(UndirectedError, match=f"{verb}: column 'a' has the entry .*one state"):
            ask(network(), {"a": column})


def test_states_of_categoricals_are_those_declared():
    words, seen = ["z", "y", "x"], ["x", "z"] * 20
    tables = [{"b": pytest.importorskip("pandas").Categorical(seen, words), "a": [0, 1] * 20}]
    polars = pytest.importorskip("polars")
    tables.append(polars.DataFrame({"b": polars.Series(seen, dtype=polars.Enum(words))}))
    for table in tables:
        for method in ("chow-liu", "pseudo-likelihood"):
            net = un.learn_network(table, method)
            found = un.query(net)["b"]
            assert list(found) == words
            assert 0 <= found["y"] < 0.01 and found["x"] == pytest.approx(0.5, abs=0.01)
    seen_alone = polars.DataFrame({"b": polars.Series(seen, dtype=polars.Categorical)})
    assert list(un.query(un.learn_network(seen_alone))["b"]) == ["x", "z"]


def one_rows():
    """What is known of a row with b = x and a hole for c, as people hold such rows."""
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    row = {"c": None, "b": "x"}
    table = pandas.DataFrame([row])
    series = [pandas.Series(row), pandas.Series({"b": "x"}), table.iloc[0]]
    return [*series, table, polars.DataFrame(row)]


def test_a_row_of_a_table_is_evidence():
    net, wanted = network(), un.query(network(), given={"b": "x"})
    for row in one_rows():
        assert un.query(net, given=row) == wanted
        assert set(un.sample(net, 5, given=row, seed=0)["b"]) == {"x"}
        assert un.solve(net, "map", given=row).state["b"] == "x"
    table = pytest.importorskip("pandas").DataFrame(ROWS)
    for ask in (un.query, un.solve):
        with pytest.raises(UndirectedError, match="`given` has 4 rows; pass one"):
            ask(net, given=table)
    twice = pytest.importorskip("pandas").Series(["x", "z"], index=["b", "b"])
    with pytest.raises(UndirectedError, match="pass each name once"):
        un.query(net, given=twice)
    model = un.MixedRBM.create({"ill": "binary", "age": "real"}, 2, seed=0)
    row = pytest.importorskip("pandas").Series({"age": 0.5})
    assert un.query(model, given=row) == un.query(model, given={"age": 0.5})


def test_numbered_columns_go_by_their_numbers():
    pandas = pytest.importorskip("pandas")
    model = un.Ising.from_spins([1.0, 2.0], [0.1, 0.2, 0.3], un.graph.chain(3))
    table = pandas.DataFrame({2: [0.0, 1.0], 0: [1.0, 1.0], 1: [1.0, 0.0]})
    rows = np.array([[1, 1, 0], [1, 0, 1.0]])
    wanted = un.evaluate(model, rows).log_likelihood.rows
    assert un.evaluate(model, table).log_likelihood.rows == pytest.approx(wanted)
    hidden = table.assign(**{"2": np.nan}).drop(columns=2).rename(columns={"2": 2})[[2, 0, 1]]
    rows[:, 2] = np.nan
    np.testing.assert_allclose(un.query(model, hidden), un.query(model, rows), atol=1e-6)
    assert un.query(model, given=hidden.iloc[0]) == un.query(model, given=rows[0])
    other = table.set_axis(["x", "y", "z"], axis=1)  # names that say nothing: by position
    found = un.evaluate(model, other).log_likelihood.rows
    assert found == pytest.approx(un.evaluate(model, other.to_numpy()).log_likelihood.rows)


def test_a_row_that_is_forbidden_is_told_in_words():
    words = {"a": 2, "n": [5, 3, 9], "b": ["x", "y"]}
    net = un.markov_network(words, {("a", "b"): [[1, 1], [1, 0]], ("n", "b"): np.ones((3, 2))})
    table = {"a": [0, 1], "b": ["x", "y"], "n": [5, None]}
    with pytest.raises(UndirectedError, match="the row of states a=1, b='y' has probability 0"):
        un.fit(net, table)
    for method in ("auto", "exact", "gibbs"):
        with pytest.raises(UndirectedError, match=r"row 1 \(a=1, b='y'\)"):
            un.query(net, table, method=method, seed=0)
    with pytest.raises(UndirectedError, match=r"row 0 \(a=1, n=9, b='y'\)"):
        un.query(net, given={"b": "y", "a": 1, "n": 9})


def test_frames_of_networks_without_names_mean_the_same_to_all_verbs():
    pandas = pytest.importorskip("pandas")
    layout = un.discrete(x=3)
    rows = np.array([[0, 1, 0], [1, 1, 0], [1, 0, 1]] * 5)
    pairs = un.tables(layout, [[0, 1], [1, 2]], np.zeros((2, 2, 2)))
    net = un.FactorGraph.create(layout, [pairs])
    wanted = un.fit(net, rows).model
    given = {"letters": pandas.DataFrame(rows, columns=list("abc"))}
    given["shuffled"] = pandas.DataFrame(rows)[[2, 0, 1]]
    given["dict"] = {i: rows[:, i] for i in range(3)}
    for name, table in given.items():
        found = un.fit(net, table).model
        np.testing.assert_allclose(found.unary, wanted.unary, atol=1e-4, err_msg=name)
        scores = un.evaluate(wanted, table).log_likelihood.rows
        np.testing.assert_allclose(scores, un.evaluate(wanted, rows).log_likelihood.rows, atol=1e-5)
    layout = un.discrete(y=(1, 3), x=1)
    net = un.FactorGraph.create(layout, [un.tables(layout, [[0, 1]], np.arange(6.0).reshape(3, 2))])
    some = {0: [2, 0], 1: [1, 0]}
    scores = un.evaluate(net, pandas.DataFrame(some)).log_likelihood.rows
    np.testing.assert_allclose(scores, un.evaluate(net, some).log_likelihood.rows)
