"""Questions by names and by rows, against enumeration in NumPy."""

import itertools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import undirected as un
from tests import oracle
from undirected.core.chunks import map_rows
from undirected.core.errors import NotFinite, UndirectedError

WORDS = {"sky": ["clear", "grey", "dark"], "rain": 2, "wind": ["calm", "strong"]}
TABLES = {
    ("sky", "rain"): np.array([[9.0, 1.0], [3.0, 2.0], [1.0, 4.0]]),
    ("wind", "sky"): np.array([[5.0, 2.0, 1.0], [1.0, 2.0, 6.0]]),
}
JOINT = np.einsum("sr,ws->srw", TABLES["sky", "rain"], TABLES["wind", "sky"])


@pytest.fixture(scope="module")
def net():
    return un.markov_network(WORDS, TABLES)


@pytest.mark.parametrize("method", ["auto", "exact", "bp", un.Exact()])
def test_answers_come_by_name_in_the_order_declared(net, method):
    given = JOINT[2] / JOINT[2].sum()
    found = un.query(net, given={"sky": "dark"}, method=method)
    assert list(found) == ["rain", "wind"]
    assert found["rain"] == pytest.approx(dict(enumerate(given.sum(1))), abs=1e-5)
    wanted = dict(zip(WORDS["wind"], given.sum(0), strict=True))
    assert found["wind"] == pytest.approx(wanted, abs=1e-5)


def test_everything_is_asked_where_nothing_is_given(net):
    found = un.query(net)
    whole = JOINT / JOINT.sum()
    assert list(found) == ["sky", "rain", "wind"]
    assert list(found["sky"].values()) == pytest.approx(whole.sum((1, 2)).tolist(), abs=1e-5)


def test_a_long_chain_of_names_equals_the_recursion_both_ways():
    """Messages in NumPy; one end and one unit in the middle are known."""
    rng, n = np.random.default_rng(0), 1500
    names = [f"unit {i}" for i in range(n)]
    tables = rng.uniform(0.1, 1.0, (n - 1, 2, 2))
    pairs = dict(zip(itertools.pairwise(names), tables, strict=True))
    net = un.markov_network(dict.fromkeys(names, 2), pairs)
    known = {0: 1, 700: 0}
    seen = np.ones((n, 2))
    for v, state in known.items():
        seen[v, 1 - state] = 0
    forward, backward = seen.copy(), np.ones((n, 2))
    for v in range(1, n):
        forward[v] *= forward[v - 1] @ tables[v - 1]
        forward[v] /= forward[v].sum()
    for v in reversed(range(n - 1)):
        backward[v] = tables[v] @ (seen[v + 1] * backward[v + 1])
        backward[v] /= backward[v].sum()
    wanted = forward * backward
    wanted /= wanted.sum(1, keepdims=True)
    found = un.query(net, given={names[v]: state for v, state in known.items()})
    asked = [v for v in range(n) if v not in known]
    assert list(found) == [names[v] for v in asked]
    answers = np.array([[own[0], own[1]] for own in found.values()])
    np.testing.assert_allclose(answers, wanted[asked], atol=1e-6)


def test_belief_propagation_answers_where_elimination_does_not_fit():
    """Every two of 24 variables of three states are joined: a tree would have a table of 3^24."""
    pairs = [(i, j) for i in range(24) for j in range(i)]
    net = un.markov_network([3] * 24, {pair: np.full((3, 3), 1.0) + np.eye(3) for pair in pairs})
    found = un.query(net, given={0: 1})
    assert found[1] == pytest.approx(un.query(net, given={0: 1}, method="bp")[1])
    assert found[1][1] > 0.9
    with pytest.raises(UndirectedError, match="its tables would have more than"):
        un.query(net, given={0: 1}, method="exact")


def test_chains_and_mean_field_answer_too(net):
    exact = un.query(net, given={"wind": "calm"})["rain"][1]
    assert un.query(net, given={"wind": "calm"}, method="gibbs", seed=3)["rain"][1] == (
        pytest.approx(exact, abs=0.05)  # 2,000 draws of one chain; 5 standard errors are 0.05
    )
    assert 0 < un.query(net, given={"wind": "calm"}, method="mf")["rain"][1] < 1
    best = un.query(net, given={"wind": "strong"}, method="map")
    assert {name: max(p, key=p.get) for name, p in best.items()} == {"sky": "dark", "rain": 1}


def test_rows_are_answered_as_by_enumeration():
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=shape).astype(np.float32) for shape in ((5, 3), (5,), (3,))]
    model, truth = un.RBM(*(jnp.asarray(part) for part in parts)), oracle.rbm(*parts)
    rows = np.array([[1, np.nan, 0, 1, np.nan], [np.nan] * 5], np.float32)
    found = un.query(model, rows, method="exact")
    for row, answer in zip(rows, found, strict=True):
        seen = np.append(~np.isnan(row), np.zeros(3, bool))
        state = np.append(np.nan_to_num(row), np.zeros(3))
        np.testing.assert_allclose(answer, truth.given(seen, state).means[:5], atol=1e-5)
    assert un.query(model, rows[0]).shape == (1, 5)


def test_a_row_more_compiles_nothing():
    model = un.RBM.create(6, 4, seed=1)
    rows = np.full((101, 6), np.nan, np.float32)
    rows[:, :3] = np.random.default_rng(0).random((101, 3)) < 0.5
    un.query(model, rows[:100])
    count = 0

    def listen(event: str, duration: float, **_: object) -> None:
        nonlocal count
        count += event == "/jax/core/compile/backend_compile_duration"

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        un.query(model, rows)
        assert count == 0
        un.query(model, np.full((300, 6), np.nan))  # another size: the counter works
        assert count > 0
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def test_contradictions_and_bad_questions_are_refused(net):
    hard = un.markov_network([2, 2], {(0, 1): [[1, 0], [0, 0]]})
    with pytest.raises(NotFinite, match="contradicts|forbidden"):
        un.query(hard, given={0: 1})
    rbm = un.RBM.create(3, 2)
    for rows, wanted in (
        ([[0, 1]], r"shape \(1, 2\); pass \(rows, 3\)"),
        ([[0, 1, 0.3]], "row 0, column 2 is 0.3; wanted 0 or 1"),
        ([["a", "b", "c"]], "no table of numbers"),
        ([[0, 1, np.inf]], "wanted 0 or 1"),
    ):
        with pytest.raises(UndirectedError, match=wanted):
            un.query(rbm, rows)
    with pytest.raises(UndirectedError, match="method 'bo' is unknown"):
        un.query(net, given={}, method="bo")
    with pytest.raises(UndirectedError, match="both rows and given"):
        un.query(net, np.zeros((1, 5)), given={"sky": "dark"})
    with pytest.raises(UndirectedError, match="both key and seed"):
        un.query(net, key=jax.random.key(0), seed=1)
    with pytest.raises(UndirectedError, match=r"got a ConditionalRBM.*model\.at"):
        un.query(un.ConditionalRBM.create(3, 2, 2, jax.random.key(0)), [[0, 1, 0]])


@pytest.mark.parametrize("verb", [un.query, un.evaluate, un.fit])
@pytest.mark.parametrize(("states", "said"), [([1, 1, 0], "2 of them"), ([0, 0, 0], "0 of them")])
def test_rows_of_no_state_are_refused(net, verb, states, said):
    """Units of one variable of which two are on, or none, stand for no state of it."""
    model = un.RBM.create(5, 2, label_states=3, seed=0)
    rows = [[0, 1, 0, 1, 0], [0, 1, *states]]
    with pytest.raises(UndirectedError, match=f"columns 2 to 4 of row 1 .*{said} are at 1; pass"):
        verb(model, rows)
    with pytest.raises(UndirectedError, match="columns 2 to 4 of row 0"):
        un.sample(model, 2, given=[0, np.nan, *states])
    some_states_excluded = [0, np.nan, 0, np.nan, np.nan]
    assert un.query(model, some_states_excluded)[0, 2] == 0


def test_what_is_known_of_hidden_variables_is_not_passed_over():
    for verb in (un.query, un.sample):
        with pytest.raises(UndirectedError, match="variable 4 is hidden; `given` takes what is kn"):
            verb(un.RBM.create(4, 2, seed=0), given={0: 1, 4: 1})


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 100])
def test_rows_in_chunks_are_all_rows(count):
    rows = np.arange(count * 3, dtype=np.float32).reshape(count, 3)
    sizes = set()

    def double(chunk, start):
        sizes.add(len(chunk))
        return 2 * chunk, chunk.sum(1)

    twice, sums = map_rows(double, rows, row_bytes=1, budget=8)
    np.testing.assert_array_equal(twice, 2 * rows)
    np.testing.assert_array_equal(sums, rows.sum(1))
    assert sizes <= {1, 2, 4, 8}


def test_a_small_network_is_asked_without_scipy():
    """Its import takes longer than the answer."""
    code = (
        "import sys\n"
        "import undirected as un\n"
        "net = un.markov_network([2, 3, 4], {(0, 1): np.ones((2, 3)), (1, 2): np.ones((3, 4))})\n"
        "print(un.query(net, given={0: 1}, method='bp')[1], 'scipy' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", "import numpy as np\n" + code],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "{0: 0.3333333, 1: 0.3333333, 2: 0.3333333} False\n"


@pytest.mark.parametrize("offset", [-3e8, -1e6, 3e8])
@pytest.mark.parametrize("method", ["auto", "exact", "bp", un.Exact(), un.MeanField()])
def test_a_constant_of_the_energy_changes_no_answer(method, offset):
    """Beside it single precision loses soft numbers, and a large one is no contradiction."""
    terms = {"a": -1, "b": 1, "c": 0.5}, {("a", "b"): 2, ("b", "c"): -1}
    plain, shifted = (un.quadratic_model(*terms, offset=c) for c in (0.0, offset))
    for name, wanted in un.query(plain, given={"c": 1}, method=method).items():
        found = un.query(shifted, given={"c": 1}, method=method)[name]
        assert found == pytest.approx(wanted, abs=1e-6)
    rows = [[np.nan, 1, np.nan], [1, 0, 1]]
    found = un.query(shifted, rows, method=method)
    np.testing.assert_allclose(found, un.query(plain, rows, method=method), atol=1e-6)
    log_z = float(un.Exact()(plain).log_z) - offset
    assert float(un.Exact()(shifted).log_z) == pytest.approx(log_z, rel=1e-6)


@pytest.mark.parametrize("fields", [0.0, 0.3])
def test_the_best_completion_of_a_small_frustrated_model_is_the_best(fields):
    """Max-product is stuck between states that are as good, and misses others."""
    rng = np.random.default_rng(3)
    graph = un.graph.torus(3, 3)
    torus = un.Ising.from_spins(rng.choice([-1.0, 1.0], 18), fields * rng.normal(size=9), graph)
    dense = un.Ising.from_spins(rng.normal(size=(9, 9)), fields * rng.normal(size=9))
    for model in (torus, dense):
        best = un.query(model, given={0: 1}, method="map")
        x = np.array([1, *(best[i][1] for i in range(1, 9))])
        states = np.array(list(itertools.product([0, 1], repeat=9)))
        energies = np.asarray(model.energy(states[states[:, 0] == 1].astype(float)))
        assert set(x) <= {0, 1}
        assert float(model.energy(x)) == pytest.approx(energies.min(), abs=1e-4)


@pytest.mark.parametrize("model", ["GaussianRBM", "NonnegativeBM"])
def test_continuous_units_are_asked_by_rows(model):
    made = {
        "GaussianRBM": lambda: un.GaussianRBM.create(3, 2, seed=0),
        "NonnegativeBM": lambda: un.NonnegativeBM.from_matrix(jnp.eye(3), jnp.zeros(3)),
    }[model]()
    with pytest.raises(UndirectedError, match=rf"a {model} has continuous units.*pass rows"):
        un.query(made, given={0: 1.0})
    assert np.isfinite(un.query(made, np.array([[1.0, np.nan, np.nan]]))).all()
