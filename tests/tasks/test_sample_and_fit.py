"""Samples and fits through the verbs; log Z and likelihood against enumeration."""

import equinox as eqx
import numpy as np
import optax
import pytest

import undirected as un
from undirected.core.errors import NotFinite, UndirectedError


@pytest.mark.slow
def test_samples_of_a_named_network_follow_its_tables():
    """Each frequency is within 5 standard errors: a false alarm once in a million runs."""
    table = np.array([[8.0, 2.0, 1.0], [1.0, 3.0, 4.0]])
    net = un.markov_network({"rain": 2, "sky": ["clear", "grey", "dark"]}, {("rain", "sky"): table})
    found = un.sample(net, 4000, sweeps=30, seed=2)
    assert set(found["sky"]) == {"clear", "grey", "dark"}
    joint = table / table.sum()
    for r in (0, 1):
        for s, word in enumerate(["clear", "grey", "dark"]):
            share = ((found["rain"] == r) & (found["sky"] == word)).mean()
            error = 5 * np.sqrt(joint[r, s] * (1 - joint[r, s]) / 4000)
            assert share == pytest.approx(joint[r, s], abs=error)
            broken = table[::-1] / table.sum()  # a sampler of another network would be seen
            assert abs(share - broken[r, s]) > error
    given = un.sample(net, 500, given={"sky": "dark"}, sweeps=10, seed=3)
    assert (given["sky"] == "dark").all()
    assert given["rain"].mean() == pytest.approx(0.8, abs=5 * np.sqrt(0.16 / 500))


def test_the_same_seed_gives_the_same_samples_in_any_chunks():
    model = un.RBM.create(6, 4, seed=1, scale=1.0)
    first = un.sample(model, 20, sweeps=5, seed=7)
    assert np.array_equal(first, un.sample(model, 20, sweeps=5, seed=7))
    assert not np.array_equal(first, un.sample(model, 20, sweeps=5, seed=8))
    assert un.sample(model, 20, sweeps=5, seed=7, budget=1).shape == (20, 6)
    row = [1, np.nan, 0, np.nan, 1, 1]
    held = un.sample(model, 10, given=row, sweeps=5)
    assert (held[:, [0, 2, 4, 5]] == [1, 0, 1, 1]).all()
    for count in (0, -1, 2.5, True):
        with pytest.raises(UndirectedError, match="count is"):
            un.sample(model, count)


def test_log_partition_of_a_variable_of_many_states_lists_no_units():
    """A unit for each state and a row for each: ten billion numbers, and minutes."""
    weight = np.linspace(0.0, 5.0, 70_000)
    model = un.markov_network({"word": 70_000, "on": 2}, {("word",): np.exp(weight)})
    found = un.log_partition(model)
    assert found.method == "exact"
    assert abs(found.value - np.logaddexp.reduce(weight) - np.log(2)) < 1e-3


def test_log_partition_is_exact_where_that_is_cheap():
    rng = np.random.default_rng(0)
    J, h = np.triu(rng.normal(size=(6, 6)), 1), rng.normal(size=6)
    J = J + J.T
    model = un.Ising.from_spins(J, h)
    s = 2 * ((np.arange(64)[:, None] >> np.arange(6)) & 1) - 1
    wanted = np.log(np.exp(0.5 * np.einsum("ni,ij,nj->n", s, J, s) + s @ h).sum())
    found = un.log_partition(model)
    assert (found.method, found.agree, found.note) == ("exact", True, None)
    assert float(found) == pytest.approx(wanted, abs=1e-4)
    sampled = un.log_partition(model, method="ais", chains=100, betas=300, seed=1)
    assert sampled.interval[0] <= wanted <= sampled.interval[1]
    scores = un.evaluate(model, (s[:5] + 1) / 2)
    energies = 0.5 * np.einsum("ni,ij,nj->n", s[:5], J, s[:5]) + s[:5] @ h
    np.testing.assert_allclose(scores.log_likelihood.rows, energies - wanted, atol=1e-4)
    with pytest.raises(UndirectedError, match="nothing is observed in 1 rows"):
        un.evaluate(model, np.full((1, 6), np.nan))


def test_fit_chooses_by_what_a_model_can_do():
    rng = np.random.default_rng(0)
    rows = (rng.random((200, 6)) < 0.5).astype(float)
    rows[:, 1] = rows[:, 0]
    fitted = un.fit(un.Ising.create(6), rows, steps=300, learning_rate=0.05).model
    answer = un.query(fitted, [[1, np.nan, 0, 0, 0, 0]])[0, 1]
    assert answer > 0.9
    holes = rows.copy()
    holes[::3, 2] = np.nan
    for model, data in ((un.RBM.create(6, 4), holes), (un.Ising.create(6), holes)):
        result = un.fit(model, data, steps=20, seed=1)
        assert result.step == 20
        assert np.isfinite(un.query(result.model, rows[:2])).all()
    pairs = rows[:, :3], rows[:, 3:]
    conditional = un.ConditionalRBM.create(3, 2, 3, un_key())
    assert un.fit(conditional, pairs, steps=3).step == 3
    with pytest.raises(UndirectedError, match="got a object; pass a model"):
        un.fit(object(), un.Batches(rows, 10), steps=1)


def un_key():
    import jax

    return jax.random.key(0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("model", np.eye(3)), "fit: got a str; pass a model first, or an objective too"),
        ((un.Ising.create(3), np.eye(3), "pcd"), "fit: objective is 'pcd'; pass one such as"),
        ((un.Ising.create(3), np.eye(3), None, 0.1), "fit: optimiser is 0.1; pass one of Optax"),
        ((un.Ising.create(3), np.full((2, 3), np.nan)), "fit: all entries of 2 rows are missing"),
        ((un.Ising, np.eye(3)), "fit: got the class Ising; pass a model of it"),
        ((un.Ising.create(3), np.eye(3), un.PseudoLikelihood), "fit: objective is <class"),
    ],
)
def test_what_cannot_be_fitted_is_refused_at_once(arguments, said):
    with pytest.raises(un.UndirectedError) as error:
        un.fit(*arguments)
    assert str(error.value).startswith(said)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"steps": "2"}, "fit: steps is '2'; pass a whole number from 0"),
        ({"batch": 0}, "fit: batch is 0; pass a whole number from 1"),
        ({"batch": "a"}, "fit: batch is 'a'"),
        ({"learning_rate": "a"}, "fit: learning_rate is 'a'; pass a number above 0"),
        ({"learning_rate": -0.1}, "fit: learning_rate is -0.1"),
        ({"epochs": float("inf")}, "fit: epochs is inf"),
        ({"key": 3}, "fit: key is 3; pass one such as jax.random.key(0), or seed=0"),
        ({"batch_size": 3}, "fit: no setting is called 'batch_size'; did you mean batch?"),
        ({"log_evry": 3}, "fit: no setting is called 'log_evry'; did you mean log_every?"),
        ({"log": "a.csv"}, "fit: log is 'a.csv'; pass one such as undirected.io.metrics.Metrics"),
        ({"log": []}, "fit: log is []; pass one such as "),
        ({"snapshots": "a"}, "fit: snapshots is 'a'; pass one such as undirected.io.snapshots."),
        ({"on_event": 5}, "fit: on_event is 5; pass a function that is told the progress"),
        ({"save_every": None}, "fit: save_every is None; pass seconds between two checkpoints"),
        ({"save_every": float("nan")}, "fit: save_every is nan"),
    ],
)
def test_numbers_that_say_nothing_are_refused_by_name(options, said):
    with pytest.raises(un.UndirectedError) as error:
        un.fit(un.Ising.create(3), np.eye(3), **options)
    assert str(error.value).startswith(said)


def test_what_a_table_is_kept_by_is_looked_at_first():
    with pytest.raises(un.UndirectedError, match="train_table: log is 'a.csv'"):
        un.train_table([["no", "numbers"]], log="a.csv")


@pytest.mark.parametrize(
    ("features", "rows", "said"),
    [
        (np.eye(3), 3 * np.eye(3), "the value in row 0, column 0 is 3; wanted a number from 0 to"),
        ("abc", np.eye(3), "features are no table of numbers"),
        (np.eye(4), np.eye(3), r"features have shape \(4, 4\); pass finite numbers \(rows, 3\)"),
        (np.full((3, 3), np.nan), np.eye(3), "features are NaN or infinite"),
    ],
)
def test_bad_pairs_of_features_and_rows_are_refused(features, rows, said):
    with pytest.raises(un.UndirectedError, match=said):
        un.fit(un.ConditionalRBM.create(3, 2, 3, seed=0), (features, rows), steps=1)


def test_parameters_of_numpy_are_learned_without_a_warning(recwarn):
    model = un.Ising(np.zeros((3, 3)), np.zeros(3))
    assert np.asarray(un.fit(model, np.eye(3), steps=3, seed=0).model.bias).any()
    assert not [str(w.message) for w in recwarn]


def test_parameters_that_are_whole_numbers_are_not_left_unlearned():
    model = un.Potts(np.eye(2), np.zeros((2, 2)))
    model = eqx.tree_at(lambda m: m.couplings, model, np.eye(2, dtype=int))
    with pytest.raises(un.UndirectedError, match=r"Potts\.couplings is of int.*pass floats"):
        un.fit(model, [[1, 0, 1, 0]], steps=1)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: un.Persistent("gibbs"), "persistent: kernel is 'gibbs'; pass one such as Block"),
        (lambda: un.ContrastiveDivergence(un.BlockGibbs), "contrastive divergence: kernel is <cl"),
        (lambda: un.TwoPhase(un.BlockGibbs()), "two-phase: negative is BlockGibbs"),
        (lambda: un.TwoPhase(un.Exact(), un.Exact), "two-phase: positive is <class"),
        (lambda: un.sample(un.Ising.create(3), 2, kernel="gibbs"), "sample: kernel is 'gibbs'; p"),
        (
            lambda: un.run_chains(un.Gibbs, un.Ising.create(3), chains=2, samples=2),
            "run_chains: kernel is <class",
        ),
        (lambda: un.query(un.RBM, [[1, 0]]), "query: got the class RBM; pass a model with a lay"),
    ],
    ids=range(7),
)
def test_what_is_no_kernel_routine_or_model_is_refused_by_name(make, said):
    with pytest.raises(un.UndirectedError) as error:
        make()
    assert str(error.value).startswith(said)


@pytest.mark.parametrize(
    "verb",
    [
        lambda model: un.query(model, [[1, 0, np.nan]]),
        lambda model: un.sample(model, 2),
        un.log_partition,
        lambda model: un.evaluate(model, [[1, 0, 0]]),
    ],
    ids=["query", "sample", "log_partition", "evaluate"],
)
def test_parameters_that_are_nan_are_named(verb):
    """Evidence is not to blame, and neither zeros nor NaN are an answer."""
    model = un.RBM(np.full((3, 2), np.nan), np.zeros(3), np.zeros(2))
    with pytest.raises(NotFinite, match="weights of the RBM has NaN; take the model from before"):
        verb(model)


@pytest.mark.parametrize("verb", [un.query, un.sample, un.log_partition, un.anneal])
def test_parameters_that_are_infinite_are_named(verb):
    """Zero times infinity is no number: answers were contradictions, NaN, and wrong."""
    model = un.Ising(np.ones(2), np.array([0.0, -np.inf, 0.0]), un.graph.chain(3))
    with pytest.raises(NotFinite, match="bias of the Ising is infinite; pass finite numbers"):
        verb(model)


def test_samples_are_in_the_words_of_the_network():
    """Words of several kinds, and pairs as words, come back as they were given."""
    states = {"a": ["yes", 1], "b": [(0, 1), (1, 0)], "c": [0.5, 2], "d": ["x", "y"]}
    net = un.markov_network(states, {("a", "b"): [[1, 0], [0, 1]], ("c", "d"): [[1, 0], [0, 1]]})
    found = un.sample(net, 20, seed=0)
    assert {*zip(found["a"], found["b"], strict=True)} == {("yes", (0, 1)), (1, (1, 0))}
    assert {*zip(found["c"], found["d"], strict=True)} == {(0.5, "x"), (2, "y")}
    assert found["c"].dtype == float and found["d"].dtype.kind == "U"


def test_what_is_given_of_a_column_is_a_number():
    model = un.MixedRBM.create({"ill": "binary", "age": "real"}, 1, seed=0)
    with pytest.raises(un.UndirectedError, match="sample: column 'age' is given as 'old'; pass a"):
        un.sample(model, 2, given={"age": "old"})
    assert un.query(model, given={"ill": 1, "age": None}).keys() == {"age"}


def test_columns_of_a_data_frame_in_another_order_are_not_taken_for_each_other():
    pandas = pytest.importorskip("pandas")
    model = un.MixedRBM.create({"ill": "binary", "age": "real"}, 1, seed=0)
    frame = pandas.DataFrame({"age": [1.0, np.nan], "ill": [0.0, 1.0]})
    with pytest.raises(un.UndirectedError, match="query: the columns are age, ill, those of the m"):
        un.query(model, frame)
    assert un.query(model, frame[list(model.table.names)]).table[0].tolist() == [0, 1]


def test_save_wants_the_folder_first():
    with pytest.raises(un.UndirectedError, match="save: folder is a RBM; pass the folder first"):
        un.save(un.RBM.create(2, 1, seed=0), "folder")


MASKED = np.ma.array(
    np.random.default_rng(0).integers(0, 2, (40, 3)),
    mask=np.random.default_rng(1).random((40, 3)) < 0.3,
)
PAIRS = un.Ising(
    np.array([[0.0, 1, 0], [1, 0, -2], [0, -2, 0]], np.float32), np.ones(3, np.float32)
)


@pytest.mark.parametrize(
    "verb",
    [
        lambda rows: un.query(PAIRS, rows),
        lambda rows: un.evaluate(PAIRS, rows).log_likelihood.rows,
        lambda rows: un.fit(un.Ising.create(3), rows, steps=3, seed=0).model.couplings,
        lambda rows: (
            un.fit(
                un.Ising.create(3),
                un.StreamedBatches(rows, 10, block=5, buffer=20),
                un.Persistent(un.Gibbs(), chains=10),
                steps=3,
                seed=0,
            ).model.couplings
        ),
    ],
    ids=["query", "evaluate", "fit", "streamed"],
)
def test_a_masked_cell_is_not_known(verb):
    """A mask was lost: what lay below it was taken for what is known."""
    found = np.asarray(verb(MASKED))
    np.testing.assert_array_equal(found, np.asarray(verb(MASKED.astype(float).filled(np.nan))))
    assert not np.array_equal(found, np.asarray(verb(MASKED.data.astype(float))))


def test_masked_cells_are_refused_where_all_must_be_known():
    for verb in (
        lambda rows: un.pseudo_log_likelihood(PAIRS, rows),
        lambda rows: un.interaction_screening(un.Ising.create(3), rows),
        lambda rows: un.sequence_weights(rows),
        lambda rows: un.Alignment(rows, "-A", tuple(map(str, range(len(rows))))),
    ):
        verb(MASKED.data)
        with pytest.raises(UndirectedError):
            verb(MASKED)


def test_a_masked_entry_of_a_network_is_missing():
    net = un.markov_network({"a": 2, "b": 2}, {("a", "b"): [[1, 1], [1, 1]]})
    rows = {"a": np.ma.array([0, 1, 1, 1], mask=[0, 0, 0, 1]), "b": [0, 0, 1, 1]}
    found = un.query(un.fit(net, rows).model)
    assert found == un.query(un.fit(net, rows | {"a": [0, 1, 1, None]}).model)
    assert found != un.query(un.fit(net, rows | {"a": [0, 1, 1, 1]}).model)


def test_rates_of_an_ensemble_need_an_optimiser_that_takes_notice():
    """Adam divides the size of a gradient out: all models of a sweep were learned at one rate."""
    models = un.learning.stack([un.Ising.create(3), un.Ising.create(3)])
    rows = un.Batches(np.repeat([[0.0, 0, 1], [1, 1, 0]], 5, 0), 5)
    objective = un.Ensemble(un.PseudoLikelihood(), rates=[1.0, 0.1])
    with pytest.raises(UndirectedError, match="Adam"):
        un.fit(models, rows, objective, steps=2)
    found = un.fit(models, rows, objective, optax.sgd(0.1), steps=2).model.weights
    assert np.abs(found[0]).max() > 5 * np.abs(found[1]).max()


def test_a_folder_keeps_a_run_that_goes_on(tmp_path):
    """The store was an object of a room that the flat API does not have."""
    rows, start = np.eye(6)[np.arange(40) % 6], un.RBM.create(6, 3, seed=0)
    optimiser = optax.sgd(0.1)  # the default falls to 0 at the last step, which is another run

    def learn(steps, **store):
        return un.fit(start, rows, optimiser=optimiser, steps=steps, seed=0, **store)

    learn(20, store=str(tmp_path / "run"))
    found, whole = learn(40, store=tmp_path / "run"), learn(40)
    assert np.array_equal(found.model.weights, whole.model.weights)
    assert [row["step"] for row in found.history] == [20, 40]
    with pytest.raises(UndirectedError, match="store is 3; pass one such as"):
        learn(5, store=3)


def test_a_small_model_leaves_its_start():
    """With the rate of a large one three columns, two of them alike, were learned as apart."""
    rng = np.random.default_rng(0)
    a, c = rng.integers(0, 2, (2, 200))
    rows = np.stack([a, np.where(rng.random(200) < 0.1, 1 - a, a), c], 1)
    for rate, learned in ((None, True), (2e-3, False)):
        found = un.fit(un.RBM.create(3, 2, seed=0), rows, learning_rate=rate, seed=0)
        apart = 3 * np.log(2)
        assert (un.evaluate(found.model, rows).log_likelihood.mean > -apart + 0.25) == learned
