"""The default fit of a table: from a mixture onwards, never behind it, beside its yardsticks."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from tests import oracle
from undirected.core.errors import UndirectedError
from undirected.learning.mixture import Mixture, independent_columns
from undirected.models import RBM, MixtureRBM
from undirected.tasks import Settings, train_table
from undirected.tasks.mixture_start import best_of, log_likelihood_of
from undirected.tasks.train_table import choose, score_name, validator
from undirected.tasks.yardsticks import (
    column_yardsticks,
    dump_yardsticks,
    lines_of,
    load_yardsticks,
    make_yardsticks,
    scores_beside,
)


def paired(rows: int, seed: int) -> np.ndarray:
    """Two clusters of four columns, and two pairs of equal ones that no mixture of two sees."""
    rng = np.random.default_rng(seed)
    cluster = rng.random((rows, 1)) < 0.5
    coins = np.repeat(rng.random((rows, 2)) < 0.5, 2, 1)
    sure = np.repeat(cluster, 4, 1) ^ (rng.random((rows, 4)) < 0.05)
    return np.concatenate([coins ^ (rng.random((rows, 4)) < 0.05), sure], 1).astype(np.float32)


@pytest.fixture(scope="module")
def trained():
    settings = Settings(epochs=20, hidden=4, components=2, learning_rate=0.03)
    return train_table(paired(600, 0), settings)


def exact_log_likelihood(model: MixtureRBM, rows: np.ndarray) -> float:
    truth = oracle.mixture_rbm(*jax.tree.leaves(model))
    table = oracle.visible_marginal(truth, rows.shape[1])
    return float(np.mean([table[tuple(row)] for row in rows.astype(int)]) - truth.log_z)


def test_hidden_units_learn_what_the_mixture_misses(trained):
    """The pairs are worth 2 x 0.49 nats, of which a mixture of two components has none."""
    model, test = trained.model, paired(2000, 1)
    assert isinstance(model, MixtureRBM)
    assert trained.settings.model == "mixture-rbm"
    own = exact_log_likelihood(model, test)
    assert own > trained.mixture.log_likelihood(test).mean() + 0.4
    assert trained.result.best == pytest.approx(exact_log_likelihood(model, trained.valid), abs=0.1)


def test_exact_learning_is_judged_by_the_likelihood():
    """Pseudo-likelihood is the same for copies of one bit, whatever the weights of the clusters."""
    model = RBM.create(8, 2, jax.random.key(0), scale=1.0)
    rows = paired(20, 2)
    truth = oracle.rbm(model.weights, model.visible_bias, model.hidden_bias)
    table = oracle.visible_marginal(truth, 8)
    expected = np.mean([table[tuple(row)] for row in rows.astype(int)]) - truth.log_z
    settings = Settings(model="rbm", method="exact")
    found = validator(rows, settings)
    assert found and found(model, None) == pytest.approx(expected, abs=1e-4)
    assert score_name(settings, rows) == ("log_likelihood", 1.0)


def test_what_is_not_known_of_log_z_does_not_count(trained):
    found = log_likelihood_of(trained.model, trained.valid, jax.random.key(0))
    assert exact_log_likelihood(trained.model, trained.valid) - 0.5 < found
    assert found < exact_log_likelihood(trained.model, trained.valid) + 0.05


def test_a_model_that_learning_made_worse_gives_way_to_the_mixture(trained):
    mixture = trained.mixture
    worse = MixtureRBM.from_mixture(mixture.log_weights, mixture.means, 4, seed=0, scale=2.0)
    kept = best_of(mixture, replace(trained.result, best_model=worse), trained.valid)
    assert kept.best_step == 0
    assert kept.best == pytest.approx(mixture.log_likelihood(trained.valid).mean(), abs=1e-3)
    again = exact_log_likelihood(kept.best_model, trained.valid)
    assert again == pytest.approx(kept.best, abs=1e-3)
    assert best_of(mixture, trained.result, trained.valid).best_step == trained.result.best_step


def test_the_model_is_chosen_by_the_method():
    rows = paired(40, 0)
    assert choose(Settings(), rows).model == "mixture-rbm"
    assert choose(Settings(method="bp"), rows).model == "rbm"
    assert choose(Settings(model="rbm"), rows).method == "pcd"
    assert choose(Settings(model="ising"), rows).method == "pl"
    with pytest.raises(UndirectedError, match="mixture-rbm is learned by pcd, not by bp"):
        choose(Settings(model="mixture-rbm", method="bp"), rows)
    plain = train_table(rows, Settings(model="rbm", epochs=1, hidden=2))
    assert isinstance(plain.model, RBM)


def test_an_rbm_of_few_columns_is_learned_faster():
    rng = np.random.default_rng(0)
    few, many = (rng.integers(0, 2, (50, columns)) for columns in (3, 300))
    rates = [
        choose(Settings(**how), rows).learning_rate
        for how in ({"model": "rbm"}, {}, {"model": "rbm", "learning_rate": 0.5})
        for rows in (few, many)
    ]
    assert rates == [2e-2, 2e-3, 2e-3, 2e-3, 0.5, 0.5]


def test_yardsticks_have_every_score_that_models_have():
    rows = paired(300, 0)
    logs, means = np.log([0.5, 0.5]), np.stack([np.full(8, 0.2), np.full(8, 0.7)])
    mixture = Mixture(logs, means)
    found = make_yardsticks(rows, mixture)
    assert list(found) == ["independent columns", "mixture of 2"]
    alone = independent_columns(rows).log_likelihood(rows).mean()
    scores = scores_beside("log_likelihood", found, rows, 0)
    assert scores["independent columns"] == pytest.approx(alone)
    pseudo = scores_beside("pseudo_log_likelihood", found, rows[:5], 0)["mixture of 2"]
    flipped = 0.0
    for row in rows[:5]:
        for i in range(8):
            other = row.copy()
            other[i] = 1 - row[i]
            gap = mixture.log_likelihood(np.stack([row, other]))
            flipped += -np.log1p(np.exp(gap[1] - gap[0])) / 5
    assert pseudo == pytest.approx(flipped, abs=1e-4)
    bits = scores_beside("bits_per_target", found, rows, 0)
    assert 0.9 < bits["independent columns"] < 1.01
    assert scores_beside("log_likelihood", found, rows[:0], 0) == {}
    again = load_yardsticks(dump_yardsticks(found))
    assert np.allclose(again["mixture of 2"].means, means, atol=1e-4)
    assert lines_of(scores)[0].startswith("beside it: independent columns -")
    assert lines_of({}) == []


def test_yardsticks_of_mixed_columns():
    """Scores of independent columns by hand; the mixture knows that the two go together."""
    rng = np.random.default_rng(0)
    state = rng.integers(0, 3, 400)
    rows = np.stack([state, state + 0.1 * rng.normal(size=400)], 1)
    found = column_yardsticks(rows[:300], rows[300:350], (3, "real"))
    scores = scores_beside("bits_per_held_out_entry", found, rows[350:], 0)
    alone, mixture = scores.values()
    shares = (np.bincount(state[:300]) + 1) / 303
    mean, spread = rows[:300, 1].mean(), rows[:300, 1].std()
    z = (rows[350:, 1] - mean) / spread
    numbers = 0.5 * z**2 + np.log(spread * np.sqrt(2 * np.pi))
    by_hand = np.concatenate([-np.log(shares[state[350:]]), numbers]).mean() / np.log(2)
    assert alone == pytest.approx(by_hand, abs=0.02)
    assert mixture < alone - 1
    again = load_yardsticks(dump_yardsticks(found), (3, "real"))
    assert scores_beside("log_likelihood", again, rows, 0) == pytest.approx(
        scores_beside("log_likelihood", found, rows, 0), abs=1e-2
    )
    assert scores_beside("pseudo_log_likelihood", found, rows, 0) == {}
