"""Tables of every kind of column through the verbs: fit, query, sample, evaluate; with holes."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import undirected as un
from undirected.core.errors import UndirectedError
from undirected.tasks.entries import entry_bits, hide
from undirected.tasks.enumerated import EnumeratedRBM
from undirected.tasks.train_table import choose_for, held_out, split

NAN = np.nan
COLUMNS = {"ill": "binary", "town": 3, "age": "real", "dose": "nonnegative"}


def mixed_rows(count=1500, seed=0):
    """Two clusters that decide everything."""
    rng = np.random.default_rng(seed)
    group = rng.random(count) < 0.5
    return np.stack(
        [
            rng.random(count) < np.where(group, 0.95, 0.05),
            np.where(group, rng.choice(3, count, p=[0.9, 0.05, 0.05]), rng.integers(1, 3, count)),
            np.where(group, 1.0, -1.0) + 0.3 * rng.normal(size=count),
            np.abs(np.where(group, 2.0, 0.3) + 0.3 * rng.normal(size=count)),
        ],
        1,
    ).astype(np.float32)


@pytest.fixture(scope="module")
def fitted():
    rows = mixed_rows()
    rng = np.random.default_rng(1)
    rows[rng.random(rows.shape) < 0.1] = NAN
    settings = un.Settings(model="mixed", method="pcd", hidden=8, epochs=40, learning_rate=0.02)
    return un.train_table(rows, settings, columns=COLUMNS)


@pytest.mark.slow
def test_a_mixed_table_with_holes_is_learned_and_asked(fitted):
    """Every column tells the cluster, so that the answers are nearly those of the cluster."""
    model = fitted.model
    assert fitted.result.best is not None and len(fitted.valid) == 150
    for method in ("bp", "mf", "gibbs", "exact"):
        found = un.query(model, [[1, 0, NAN, NAN], [NAN, NAN, -1.0, NAN]], method=method)
        assert found.probabilities["ill"][1, 1] < 0.15
        assert abs(found.mean["age"][0] - 1.0) < 0.3 and abs(found.mean["dose"][1] - 0.4) < 0.3
        assert found.std["age"][0] > 0.2 and found.std["age"][1] == 0.0
        assert found.table[1, 0] == 0 and found.table[0, 1] == 0


def test_questions_by_the_names_of_columns():
    """Answers of a model whose columns tell nothing of each other: those of the columns."""
    model = un.MixedRBM.create(COLUMNS, 2, seed=0, scale=0.0, data=mixed_rows())
    rows = mixed_rows()
    found = un.query(model, given={"age": 1.0}, method="exact")
    assert list(found) == ["ill", "town", "dose"]
    assert found["ill"][1] == pytest.approx(rows[:, 0].mean(), abs=1e-3)
    assert found["town"][2] == pytest.approx((rows[:, 1] == 2).mean(), abs=1e-3)
    assert found["dose"]["mean"] == pytest.approx(rows[:, 3].mean(), abs=0.01)
    assert found["dose"]["std"] == pytest.approx(rows[:, 3].std(), abs=0.05)
    with pytest.raises(UndirectedError, match="no column is called 'aga'"):
        un.query(model, given={"aga": 1.0})


@pytest.mark.slow
def test_the_fit_beats_independent_columns(fitted):
    """The log-likelihood of held-out rows, exact, against that of independent columns."""
    test = mixed_rows(400, seed=5)
    model = fitted.model
    found = un.evaluate(model, test, entries=True)
    assert (found.log_z.method, found.hidden_sums, found.complete_rows) == ("exact", "exact", 400)
    alone = un.MixedRBM.create(COLUMNS, 8, seed=0, scale=0.0, data=mixed_rows())
    base = un.evaluate(alone, test, entries=True)
    assert found.log_likelihood.mean > base.log_likelihood.mean + 1.0
    assert found.held_out.mean < base.held_out.mean - 0.4


@pytest.mark.slow
def test_samples_are_rows_of_the_table(fitted):
    drawn = un.sample(fitted.model, 300, sweeps=200, seed=2)
    assert drawn.shape == (300, 4)
    assert set(np.unique(drawn[:, 0])) <= {0, 1} and set(np.unique(drawn[:, 1])) <= {0, 1, 2}
    assert (drawn[:, 3] >= 0).all()
    ill = drawn[:, 0] == 1
    assert drawn[ill, 2].mean() > drawn[~ill, 2].mean() + 1.0  # of 2 in the table
    held = un.sample(fitted.model, 20, given={"ill": 1, "age": 0.9}, sweeps=50)
    assert (held[:, 0] == 1).all() and np.allclose(held[:, 2], 0.9)


def small_rbm():
    rng = np.random.default_rng(3)
    parts = rng.normal(size=(5, 3)), rng.normal(size=5), rng.normal(size=3)
    return un.RBM(*(jnp.asarray(a, jnp.float32) for a in parts)), parts


def observed_log_likelihood(parts, rows):
    """By summing exp(-E) over all states that agree with a row, in NumPy."""
    W, b, c = parts
    states = (np.arange(32)[:, None] >> np.arange(5)) & 1
    logs = states @ b + np.log1p(np.exp(states @ W + c)).sum(1)
    whole = np.logaddexp.reduce(logs)
    found = []
    for row in rows:
        agrees = (np.isnan(row) | (states == row)).all(1)
        found.append(np.logaddexp.reduce(logs[agrees]) - whole)
    return np.array(found)


@pytest.mark.slow
def test_incomplete_rows_are_scored_by_what_is_observed():
    model, parts = small_rbm()
    rows = np.array([[1, 0, NAN, 1, NAN], [0, NAN, NAN, NAN, 1], [1, 1, 0, 0, 1]])
    wanted = observed_log_likelihood(parts, rows)
    exact = un.evaluate(model, rows)
    np.testing.assert_allclose(exact.log_likelihood.rows, wanted, atol=1e-4)
    assert (exact.complete_rows, exact.hidden_sums) == (1, "exact")
    sampled = un.evaluate(model, rows, method="ais", chains=100, betas=1000, seed=1)
    assert sampled.hidden_sums == "ais"
    np.testing.assert_allclose(sampled.log_likelihood.rows, wanted, atol=0.25)
    # A row taken as if its holes were zeros would be seen.
    zeros = observed_log_likelihood(parts, np.nan_to_num(rows))
    assert (np.abs(zeros - wanted)[:2] > 0.3).all()


@pytest.mark.slow
def test_mixed_rows_with_holes_by_ais(fitted):
    """AIS of the observed part agrees with the exact sum over the 2^8 hidden states."""
    rows = mixed_rows(6, seed=9)
    rows[np.random.default_rng(0).random(rows.shape) < 0.4] = NAN
    exact = un.evaluate(fitted.model, rows)
    sampled = un.evaluate(fitted.model, rows, method="ais", chains=100, betas=2000, seed=1)
    assert exact.hidden_sums == "exact" and sampled.hidden_sums == "ais"
    gap = sampled.log_likelihood.rows - exact.log_likelihood.rows
    assert np.abs(gap).max() < 0.5


def test_bits_of_held_out_entries_of_independent_columns():
    """Without couplings an entry costs the entropy of its column, whatever else is known."""
    rng = np.random.default_rng(7)
    rows = (rng.random((200, 4)) < [0.9, 0.5, 0.2, 0.7]).astype(np.float32)
    rows[rng.random(rows.shape) < 0.2] = NAN
    p = np.nanmean(rows, 0)
    model = un.RBM.create(4, 2, seed=0, scale=0.0, means=p)
    asked = hide(model.layout, rows, seed=0, turns=5)
    seen, losses = ~np.isnan(rows), -np.where(rows == 1, np.log2(p), np.log2(1 - p))
    np.testing.assert_array_equal(asked.sum(0), seen)  # each observed entry in one turn
    assert (np.abs(asked.sum((1, 2)) / seen.sum() - 0.2) < 0.1).all()
    assert entry_bits(model, rows).mean == pytest.approx(losses[seen].mean(), abs=1e-4)
    wrong = un.RBM.create(4, 2, seed=0, scale=0.0, means=p[::-1].copy())
    assert entry_bits(wrong, rows).mean > losses[seen].mean() + 0.1
    many = np.tile(rows, (5, 1))  # too many for more than one turn
    first = hide(model.layout, many, seed=0)[0]
    wanted = np.tile(losses, (5, 1))[first].mean()
    assert entry_bits(model, many).mean == pytest.approx(wanted, abs=1e-4)


def test_rows_with_holes_are_held_out_too():
    values = np.full((100, 6), NAN)
    values[:80, :3] = 1.0  # no row is complete, twenty are empty
    settings = un.Settings(validation=0.2, patience=2)
    assert held_out(values, settings) == 16
    train, valid = split(values, settings)
    assert len(train) == 84 and len(valid) == 16 and not np.isnan(valid).all(1).any()


@pytest.mark.slow
def test_patience_works_with_holes():
    rng = np.random.default_rng(0)
    values = (rng.random((200, 6)) < 0.5).astype(np.float32)
    values[rng.random(values.shape) < 0.3] = NAN
    settings = un.Settings(model="rbm", epochs=60, patience=1, hidden=4, learning_rate=0.05)
    trained = un.train_table(values, settings)
    assert trained.result.stopped == "patience"
    assert trained.result.best is not None and len(trained.valid) == 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "columns"),
    [
        ("deep", ["binary"] * 6),
        ("semi-restricted", ["binary"] * 6),
        ("gaussian", ["real"] * 6),
        ("nonnegative", ["nonnegative"] * 6),
        ("potts", [2, 3, 2, 3, 2, 2]),
        ("mixed", ["binary", 3, "real", "nonnegative", "binary", 2]),
    ],
)
@pytest.mark.parametrize("holes", [False, True], ids=["whole", "holes"])
def test_every_model_is_fitted_to_a_table(model, columns, holes):
    """The first two columns agree; a fit must have seen that, and never be worse than its start."""
    rng = np.random.default_rng(0)
    values = np.abs(rng.normal(size=(200, 6))).astype(np.float32)
    states = [k if isinstance(k, int) else 2 for k in columns]
    discrete = [k == "binary" or isinstance(k, int) for k in columns]
    whole = np.stack([rng.integers(0, k, 200) for k in states], 1)
    values = np.where(discrete, whole, values).astype(np.float32)
    if holes:
        values[rng.random(values.shape) < 0.2] = NAN
    settings = un.Settings(model=model, epochs=3)
    trained = un.train_table(values, settings, columns=columns)
    assert trained.result.step > 0 and len(trained.valid) == 20
    if model == "nonnegative" and np.isnan(trained.valid).any(1).all():
        assert trained.result.best is None  # rows with holes cannot judge it
    else:
        assert np.isfinite(trained.result.best)


def test_a_potts_model_gives_no_mass_to_states_that_a_column_lacks():
    """Columns of 2, 5 and 3 states: the likelihoods of all 30 rows that there are sum to one."""
    rng = np.random.default_rng(0)
    values = np.stack([rng.integers(0, k, 40) for k in (2, 5, 3)], 1).astype(np.float32)
    settings = un.Settings(model="potts", epochs=2)
    model = un.train_table(values, settings, columns=[2, 5, 3]).result.best_model
    units = np.zeros((30, 15), np.float32)
    for row, states in zip(units, itertools.product(range(2), range(5), range(3)), strict=True):
        row[np.arange(0, 15, 5) + states] = 1
    found = np.exp(un.evaluate(model, units, method="exact").log_likelihood.rows)
    assert np.asarray(found, float).sum() == pytest.approx(1, abs=1e-4)
    drawn = np.asarray(un.sample(model, 500, seed=0)).reshape(500, 3, 5)
    assert (drawn.argmax(2).max(0) < [2, 5, 3]).all()


@pytest.mark.slow
def test_a_conditional_model_answers_given_columns():
    from undirected.tasks.conditional_columns import conditional_answers

    rng = np.random.default_rng(0)
    x = rng.normal(size=600)
    values = np.stack([x, x > 0, rng.random(600) < 0.5, (x > 0) + 0.0], 1).astype(np.float32)
    values[::7, 1] = NAN
    columns = ["real", "binary", "binary", 2]
    settings = un.Settings(model="conditional", hidden=4, epochs=30, learning_rate=0.02)
    trained = un.train_table(values, settings, columns=columns, given=[0])
    answers = conditional_answers(trained.model, columns, [0], values[:100])
    assert ((answers[:, 0] > 0.5) == (x[:100] > 0)).mean() > 0.9
    with pytest.raises(UndirectedError, match="leave at least one"):
        un.train_table(values, settings, columns=columns, given=[0, 1, 2, 3])
    with pytest.raises(UndirectedError, match="column 0 is real"):
        un.train_table(values, settings, columns=columns, given=[1])


def test_what_does_not_suit_is_refused():
    rows = mixed_rows(40)
    with pytest.raises(UndirectedError, match="takes columns that are real; column ill is binary"):
        un.train_table(rows, un.Settings(model="gaussian"), columns=COLUMNS)
    with pytest.raises(UndirectedError, match="needs to know its columns"):
        un.train_table(rows, un.Settings(model="mixed"))
    with pytest.raises(UndirectedError, match="model 'mixde' is unknown; pass one of"):
        un.train_table(rows, un.Settings(model="mixde"))
    with pytest.raises(UndirectedError, match="method 'pl' does not suit"):
        un.train_table(rows, un.Settings(model="mixed", method="pl"), columns=COLUMNS)
    many, scheduled = ({"hidden": 11}, {"epochs": 3})
    for more, words in (
        (many, "up to 10 hidden units, not of 11"),
        (scheduled, "leave epochs out"),
    ):
        settings = un.Settings(model="mixed", method="exact", **more)
        with pytest.raises(UndirectedError, match=words):
            un.train_table(rows, settings, columns=COLUMNS)


def test_small_tables_are_learned_exactly():
    """Every column tells the cluster; the entropy of a row is known from how it was made."""
    rows, test = mixed_rows(400), mixed_rows(1000, seed=5)
    rows[np.random.default_rng(1).random(rows.shape) < 0.1] = NAN
    told = []
    trained = un.train_table(
        rows, un.Settings(model="mixed"), columns=COLUMNS, on_event=lambda p: told.append(p.step)
    )
    assert (trained.settings.method, trained.settings.epochs) == ("exact", None)
    assert told == list(range(1, trained.result.step + 1))
    curve = [row["log_posterior"] for row in trained.result.history]
    assert curve == sorted(curve) and trained.result.best is not None
    scored = EnumeratedRBM.of(trained.model).log_likelihood(trained.model.to_units(test))
    assert scored.mean() == pytest.approx(density_of(test).mean(), abs=0.25)
    shuffled = np.stack([np.random.default_rng(j).permutation(c) for j, c in enumerate(test.T)], 1)
    assert density_of(shuffled).mean() < density_of(test).mean() - 5


def density_of(rows):
    """Log-density of rows by the way `mixed_rows` makes them; the half normal is not cut off."""
    ill, town, age, dose = rows.T.astype(float)
    logs = []
    for p, shares, mean, level in (
        (0.95, np.array([0.9, 0.05, 0.05]), 1.0, 2.0),
        (0.05, np.array([1e-9, 0.5, 0.5]), -1.0, 0.3),
    ):
        normal = lambda z: np.exp(-0.5 * (z / 0.3) ** 2) / (0.3 * np.sqrt(2 * np.pi))  # noqa: E731
        found = np.where(ill == 1, p, 1 - p) * shares[town.astype(int)] * normal(age - mean)
        logs.append(0.5 * found * (normal(dose - level) + normal(-dose - level)))
    return np.log(np.sum(logs, 0))


@pytest.mark.parametrize(
    ("more", "rows", "method"),
    [
        ({}, 400, "exact"),
        ({"epochs": 3}, 400, "pcd"),
        ({"hidden": 11}, 400, "pcd"),
        ({}, 300_000, "pcd"),
        ({"method": "exact"}, 300_000, "exact"),
    ],
)
def test_when_learning_is_exact(more, rows, method):
    values = np.zeros((rows, 4), np.float32)
    assert choose_for(un.Settings(model="mixed", **more), COLUMNS, values).method == method


@pytest.mark.slow
def test_query_training_of_a_mixed_model():
    """The loss of a network is that of the beliefs, and training lowers it."""
    rows = mixed_rows(300)
    how = {"hidden": 4, "epochs": 8, "learning_rate": 0.02}
    settings = un.Settings(model="mixed", method="query-training", **how)
    before = un.MixedRBM.create(COLUMNS, 4, seed=0, data=rows)
    trained = un.train_table(rows, settings, columns=COLUMNS)
    units = before.to_units(mixed_rows(100, seed=4))
    after = entry_bits(trained.model.model, units).mean
    assert after < entry_bits(before, units).mean - 0.05


def test_where_no_row_can_judge_all_steps_are_learned():
    """A NonnegativeBM has no score of rows with holes: with 0 for it the first steps were kept."""
    rng = np.random.default_rng(0)
    rows = np.abs(rng.normal(size=(100, 3)))
    rows[np.arange(100), rng.integers(0, 3, 100)] = NAN
    settings = un.Settings(model="nonnegative", epochs=4)
    trained = un.train_table(rows, settings)
    assert (trained.result.best, trained.result.best_step) == (None, None)
    assert trained.model is trained.result.model
    with pytest.raises(UndirectedError, match="no held-out row can judge a NonnegativeBM"):
        un.train_table(rows, un.Settings(model="nonnegative", epochs=4, patience=2))


@pytest.mark.parametrize("model", ["gaussian", "nonnegative"])
def test_a_column_that_was_never_observed_makes_no_nan(model):
    rows = np.abs(np.random.default_rng(0).normal(size=(40, 3)))
    rows[:, 1] = NAN
    found = un.train_table(rows, un.Settings(model=model, epochs=1)).model
    assert np.isfinite(un.query(found, rows[:2], seed=0)).all()
