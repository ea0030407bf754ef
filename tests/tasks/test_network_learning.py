"""Tables of given graphs by exact likelihood, against moments and EM in NumPy; learned graphs."""

import numpy as np
import pytest

import undirected as un
from undirected.core.errors import UndirectedError
from undirected.core.layout import to_units

SIZES = {"a": 2, "b": ["x", "y", "z"], "c": 2, "d": 2}
EDGES = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]


def data(count: int, seed: int) -> dict[str, list]:
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, count)
    b = (a + rng.integers(0, 2, count)) % 3
    c = (b > 1) ^ (rng.random(count) < 0.2)
    d = (a ^ c) ^ (rng.random(count) < 0.3)
    return {"a": a.tolist(), "b": ["xyz"[i] for i in b], "c": c.astype(int).tolist(),
            "d": d.astype(int).tolist()}  # fmt: skip


def network() -> un.FactorGraph:
    shape = {"a": 2, "b": 3, "c": 2, "d": 2}
    return un.markov_network(SIZES, {pair: np.ones([shape[v] for v in pair]) for pair in EDGES})


def test_the_marginals_of_all_tables_are_those_of_the_data() -> None:
    seen = data(400, 0)
    result = un.fit(network(), seen)
    assert result.stopped == "converged"
    values = [row["log_likelihood"] for row in result.history]
    assert values[-1] > values[0]
    for first, second in EDGES:
        for word in SIZES[first] if isinstance(SIZES[first], list) else range(2):
            held = np.array([x == word for x in seen[first]])
            found = un.query(result.model, given={first: word})[second]
            for state, p in found.items():
                share = np.array([x == state for x in seen[second]])[held].mean()
                assert p == pytest.approx(share, abs=2e-3)


def test_rows_of_units_are_the_same_data() -> None:
    seen = data(100, 1)
    by_name = un.fit(network(), seen).model
    layout = network().layout
    states = [
        [layout.states_of(v).index(seen[layout.labels.names[v]][r]) for v in range(4)]
        for r in range(100)
    ]
    units = np.asarray(to_units(layout, np.array(states)))
    by_unit = un.fit(network(), units).model
    np.testing.assert_allclose(by_unit.unary, by_name.unary, atol=1e-5)


def latent_class(rows: np.ndarray, start: np.ndarray, rounds: int = 400) -> float:
    """The mean log-likelihood that EM reaches for a mixture of two classes; NaN is missing."""
    p, m = 0.5, start
    there = ~np.isnan(rows)
    x = np.nan_to_num(rows)
    for _ in range(rounds):
        logs = np.stack([(there * (x * np.log(q) + (1 - x) * np.log(1 - q))).sum(1) for q in m], 1)
        logs += np.log([p, 1 - p])
        top = np.logaddexp.reduce(logs, 1)
        r = np.exp(logs - top[:, None])
        p = float(r[:, 0].mean())
        m = ((r.T @ (x * there)) + 1e-9) / (r.T @ there + 2e-9)
    return float(top.mean())


@pytest.mark.slow
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_a_hidden_variable_as_plain_em(missing: float) -> None:
    rng = np.random.default_rng(3)
    h = rng.random(600) < 0.4
    means = np.where(h[:, None], [0.9, 0.8, 0.2, 0.7], [0.1, 0.3, 0.7, 0.2])
    rows = (rng.random((600, 4)) < means) * 1.0
    rows[rng.random(rows.shape) < missing] = np.nan
    best = max(latent_class(rows, rng.uniform(0.2, 0.8, (2, 4))) for _ in range(3))
    names = ["h", *"wxyz"]
    net = un.markov_network(dict.fromkeys(names, 2), {("h", v): np.ones((2, 2)) for v in names[1:]})
    seen = {v: rows[:, i] for i, v in enumerate("wxyz")}
    result = un.fit(net, seen, seed=0)
    assert result.history[-1]["log_likelihood"] == pytest.approx(best, abs=1e-4)
    flat = latent_class(rows, np.full((2, 4), 0.5))  # states that stay alike are worse
    assert best > flat + 0.05


def test_zeros_stay_and_forbidden_rows_are_named() -> None:
    table = np.array([[1.0, 0.0], [1.0, 1.0]])
    net = un.markov_network({"a": 2, "b": 2}, {("a", "b"): table})
    model = un.fit(net, {"a": [0, 1, 1], "b": [0, 0, 1]}).model
    assert un.query(model, given={"a": 0})["b"][1] == 0
    assert un.query(model)["a"][1] == pytest.approx(2 / 3, abs=1e-2)
    with pytest.raises(UndirectedError, match="probability 0"):
        un.fit(net, {"a": [0], "b": [1]})


def test_data_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UndirectedError, match="no variable is called 'q'"):
        un.fit(network(), {"q": [1]})
    with pytest.raises(UndirectedError, match="no state 'w'"):
        un.fit(network(), {"b": ["w"]})
    with pytest.raises(UndirectedError, match="one length"):
        un.fit(network(), {"a": [0], "c": [0, 1]})
    with pytest.raises(UndirectedError, match='pass "chow-liu"'):
        un.learn_network({"a": [0, 1]}, "guess")


def test_a_tree_that_does_not_fit_goes_on_with_pseudo_likelihood(monkeypatch) -> None:
    monkeypatch.setattr("undirected.tasks.learn.exact_likelihood", lambda *_: None)
    monkeypatch.setattr("undirected.tasks.learn.STEPS", 20)
    result = un.fit(network(), data(60, 2), seed=0)
    assert result.stopped == "steps" and result.step > 0


@pytest.mark.parametrize("method", ["chow-liu", "pseudo-likelihood"])
def test_a_learned_network_answers_as_the_data(method) -> None:
    rng = np.random.default_rng(5)
    a = rng.integers(0, 2, 500)
    b = np.where(rng.random(500) < 0.9, a, 1 - a)
    seen = {"a": a, "b": ["no" if x == 0 else "yes" for x in b], "c": rng.integers(0, 3, 500)}
    net = un.learn_network(seen, method)
    joined = {frozenset(net.layout.labels.names[v] for v in scope) for factor in net.factors
              for scope in np.asarray(factor.owners(net.layout)).tolist()}  # fmt: skip
    assert joined == {frozenset("ab")}
    found = un.query(net, given={"a": 1})["b"]["yes"]
    assert found == pytest.approx(b[a == 1].mean(), abs=1e-3)
    assert un.query(net)["c"][2] == pytest.approx((seen["c"] == 2).mean(), abs=1e-3)


RNG = np.random.default_rng(0)
NO_STATES = {
    "real": (RNG.normal(size=100), "has 100 different real numbers: cut it into intervals"),
    "holes": ([*RNG.normal(size=98), None, np.nan], "has 98 different real numbers"),
    "id": (
        [f"p{i}" for i in range(100)],
        "has a value of its own in each of 100 rows, .*: leave it",
    ),
    "counted": (list(range(100)), "has a value of its own in each of 100 rows"),
}


@pytest.mark.parametrize("kind", NO_STATES)
def test_columns_that_are_no_states_are_refused(kind):
    column, told = NO_STATES[kind]
    with pytest.raises(un.UndirectedError, match=f"learn_network: column 'x' {told}"):
        un.learn_network({"a": [0, 1] * 50, "x": column})


def test_few_numbers_with_fractions_are_states_and_so_are_declared_ones():
    net = un.learn_network({"a": [0, 1] * 50, "stars": [0.5, 1.0, 1.5, 2.5] * 25})
    assert list(un.query(net)["stars"]) == [0.5, 1.0, 1.5, 2.5]
    own = pytest.importorskip("pandas").Categorical(range(6))
    assert list(un.query(un.learn_network({"x": own}))["x"]) == list(range(6))
