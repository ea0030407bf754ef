"""Learners of families on models small enough to enumerate."""

import itertools

import numpy as np
import pytest

import undirected as un
from undirected.alignment.boltzmann import BoltzmannSettings, boltzmann_potts, pearson_of
from undirected.alignment.mean_field import mean_field_potts
from undirected.alignment.weights import Frequencies, frequencies
from undirected.core.errors import UndirectedError

LENGTH, Q = 4, 3


def enumerate_model(model):
    """All states and their probabilities, log Z and mean energy, by loops over the tables."""
    fields, tables = np.asarray(model.fields, float), np.asarray(model.couplings, float)
    states = np.array(list(itertools.product(range(Q), repeat=len(fields))))
    logs = np.full(len(states), float(model.offset))
    for n, row in enumerate(states):
        logs[n] += sum(fields[i, a] for i, a in enumerate(row))
        pairs = itertools.combinations(range(len(fields)), 2)
        logs[n] += sum(tables[e][row[i], row[j]] for e, (i, j) in enumerate(pairs))
    log_z = np.log(np.exp(logs).sum())
    chance = np.exp(logs - log_z)
    return states, chance, log_z, log_z - chance @ logs


def random_model(size=0.7, seed=0):
    rng = np.random.default_rng(seed)
    tables = size * rng.normal(size=(LENGTH * (LENGTH - 1) // 2, Q, Q))
    return un.Potts(np.float32(tables), np.float32(rng.normal(size=(LENGTH, Q))), offset=0.3)


def exact_frequencies(model):
    states, chance, *_ = enumerate_model(model)
    return frequencies(states, Q, chance)


@pytest.mark.slow
def test_chains_learn_the_correlations_of_the_data():
    """The broken twin has its pairs shuffled: correlations then disagree."""
    data = exact_frequencies(random_model())
    settings = BoltzmannSettings(target=0.995, chains=1000, steps=400)
    found = boltzmann_potts(data, settings)
    assert found.converged and found.pearson >= 0.995
    again = exact_frequencies(found.model)
    assert pearson_of(data, again.single, again.pairs) > 0.98
    np.testing.assert_allclose(again.single, data.single, atol=0.06)
    turned = again.pairs[::-1, :, ::-1]
    assert pearson_of(data, again.single[::-1], turned) < 0.5


def test_chains_that_flatter_the_model_are_asked_again(monkeypatch):
    """A first look far below what moving chains said does not put off the next one for good."""
    looks = []

    def scripted(single, pairs, mean, lacking):
        if lacking:
            return 0.98
        looks.append(0.3 if not looks else 0.96)
        return looks[-1]

    monkeypatch.setattr("undirected.alignment.boltzmann._pearson", scripted)
    settings = BoltzmannSettings(chains=4, steps=400, every=10, still=1)
    found = boltzmann_potts(exact_frequencies(random_model()), settings)
    assert found.converged and found.pearson == 0.96
    assert looks == [0.3, 0.96] and found.steps == 20


def test_pearson_is_that_of_numpy():
    data, other = (exact_frequencies(random_model(seed=seed)) for seed in (0, 1))
    i, j = np.triu_indices(LENGTH, 1)
    wanted = np.corrcoef(data.connected[i, :, j].ravel(), other.connected[i, :, j].ravel())[0, 1]
    assert pearson_of(data, other.single, other.pairs) == pytest.approx(wanted, abs=1e-4)


def test_mean_field_is_exact_to_first_order():
    truth = random_model(size=0.02).zero_sum()
    found = mean_field_potts(exact_frequencies(truth))
    np.testing.assert_allclose(found.couplings, truth.couplings, atol=3e-3)
    assert abs(np.asarray(truth.couplings)).max() > 0.02
    np.testing.assert_allclose(found.fields, truth.fields, atol=5e-2)


def test_mean_field_without_a_pseudocount_says_what_lacks():
    states = np.zeros((3, 4), int)
    states[1] = 1
    with pytest.raises(UndirectedError, match="no inverse; use frequencies with a larger"):
        mean_field_potts(frequencies(states, 3))


@pytest.mark.slow
def test_log_z_and_entropy():
    """Four standard errors: fails once in 15,000 seeds. Fields alone are the broken twin."""
    model = random_model()
    _, _, log_z, entropy = enumerate_model(model)
    found = un.potts_log_z(model, betas=200, chains=1000)
    assert abs(found.value - log_z) < 4 * found.error < 0.2
    assert abs(found.integrated - log_z) < 0.1
    assert abs(found.entropy - entropy) < 0.15
    bare = un.Potts(0 * model.couplings, model.fields, offset=0.3)
    assert abs(un.potts_log_z(bare, betas=200, chains=1000).value - log_z) > 0.5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (BoltzmannSettings(target=1.0), "target 1.0; pass a correlation between"),
        (BoltzmannSettings(chains=1), "at least 2 chains"),
    ],
)
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(UndirectedError, match=message):
        boltzmann_potts(exact_frequencies(random_model()), settings)


def test_letters_that_never_occur_need_a_pseudocount():
    data = exact_frequencies(random_model())
    single = data.single.copy()
    single[0] = [0, 0.5, 0.5]
    with pytest.raises(UndirectedError, match="frequency 0.*with a pseudocount"):
        boltzmann_potts(Frequencies(single, data.pairs, 1.0))
    with pytest.raises(UndirectedError, match="1 betas"):
        un.potts_log_z(random_model(), betas=1)
