"""Learners of families on models small enough to enumerate."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import undirected as un
from undirected.alignment import boltzmann, resuming
from undirected.alignment.boltzmann import BoltzmannSettings, boltzmann_potts, pearson_of
from undirected.alignment.mean_field import mean_field_potts
from undirected.alignment.weights import Frequencies, frequencies
from undirected.core.errors import UndirectedError
from undirected.io.checkpoint import Checkpoints

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


def say(monkeypatch, persistent, anew):
    """Script the Pearson of persistent chains, and that of the model by chains that start anew."""
    monkeypatch.setattr(boltzmann, "_pearson", lambda *_: persistent)
    monkeypatch.setattr(boltzmann, "_pearson_of_model", anew)


def copies_of(found, count):
    """Frequencies of so many independent copies of a family, side by side."""
    single = np.tile(found.single, (count, 1))
    pairs = np.multiply.outer(single, single)
    for k in range(count):
        own = slice(k * LENGTH, (k + 1) * LENGTH)
        pairs[own, :, own] = found.pairs
    return Frequencies(single, pairs, found.effective)


@pytest.mark.parametrize("other", [0.0, 0.5])
def test_pearson_is_that_of_the_model_however_few_the_chains(other):
    """600 draws from a known table of 120 letters: noise hides a third of it, and is taken out.

    The broken twin is the plain Pearson of the same draws. `other` is the share of another model in
    the table. Over 200 seeds the standard deviation is 0.028 and 0.017, and the plain Pearson at
    most 0.71 and 0.41: a right program fails once in 10,000 seeds.
    """
    count, draws = 10, 300
    data = copies_of(exact_frequencies(random_model()), count)
    states, first, *_ = enumerate_model(random_model())
    chance = (1 - other) * first + other * enumerate_model(random_model(seed=1))[1]
    table = copies_of(frequencies(states, Q, chance), count)
    truth = pearson_of(data, table.single, table.pairs)
    rng, units = np.random.default_rng(0), np.eye(Q)[states]
    x = units[rng.choice(len(states), (2, draws, count), p=chance)].reshape(2, draws, -1)
    halves = np.einsum("hbi,hbj->hij", x, x) / draws
    said = float(boltzmann._pearson_of_model(boltzmann._data_of(data, 0.01), jnp.asarray(halves)))
    both = halves.mean(0)
    plain = pearson_of(data, both.diagonal().reshape(-1, Q), both.reshape(data.pairs.shape))
    assert said == pytest.approx(truth, abs=0.11 if other == 0 else 0.07)
    assert plain < 0.9 * truth
    assert truth > 0.999 if other == 0 else truth < 0.5


def test_pearson_of_chains_that_have_nothing_in_common_is_0():
    data = exact_frequencies(random_model())
    ready = boltzmann._data_of(data, 0.01)
    one = np.einsum("ia,jb->iajb", data.single, data.single) + 0.5 * data.connected
    two = 2 * np.einsum("ia,jb->iajb", data.single, data.single) - one
    halves = jnp.asarray(np.stack([one, two]).reshape(2, LENGTH * Q, -1), jnp.float32)
    for k in range(LENGTH):
        own = slice(k * Q, (k + 1) * Q)
        halves = halves.at[:, own, own].set(np.diag(data.single[k]))
    assert float(boltzmann._pearson_of_model(ready, halves)) == 0


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


def test_where_chains_flatter_the_model_learning_begins_again_slower(monkeypatch):
    """A first look is far below what persistent chains said: they could not follow the model.

    It begins again without couplings, at half the rate and with four times the sweeps; the next
    chains that start anew are twice as long.
    """
    looks, burns, learned, learn, look = [], [], [], boltzmann._learn, boltzmann._look

    def watched(state, data, key, slower, settings):
        before = float(state.steps), float(jnp.abs(state.model.couplings).max())
        after = learn(state, data, key, slower, settings)
        learned.append((slower, *before, np.asarray(after.x)))
        return after

    def looked(model, x, key, burn):
        burns.append(burn)
        return look(model, x, key, burn)

    def scripted(data, halves):
        looks.append(0.3 if not looks else 0.96)
        return looks[-1]

    say(monkeypatch, 0.98, scripted)
    monkeypatch.setattr(boltzmann, "_learn", watched)
    monkeypatch.setattr(boltzmann, "_look", looked)
    settings = BoltzmannSettings(chains=4, sweeps=3, steps=400, every=10, anew=2)
    found = boltzmann_potts(exact_frequencies(random_model()), settings)
    assert found.converged and found.pearson == 0.96
    assert looks == [0.3, 0.96] and found.steps == 20
    assert [one[:3] for one in learned] == [(1, 0, 0), (2, 0, 0)] and burns == [2, 4]
    assert (learned[0][3] != learned[1][3]).any()


def test_slower_is_less_a_step_and_more_sweeps(monkeypatch):
    """One step from one start: half the rate at four times the sweeps, for twice as many steps."""
    data, counts = exact_frequencies(random_model()), []
    ready, settings = boltzmann._data_of(data, 0.01), BoltzmannSettings(chains=200, every=1)

    def still(fields, couplings, x, key, count):
        counts.append(int(count))
        return x

    monkeypatch.setattr(boltzmann, "sweeps", still)
    moved = {}
    for slower in (1, 2, 4):
        for steps in (0.0, 100.0):
            state = boltzmann._start(ready.single, 200, jax.random.key(0))
            state = state._replace(steps=jnp.asarray(slower * steps))
            learn = boltzmann._learn.__wrapped__
            after = learn(state, ready, jax.random.key(1), slower, settings)
            moved[slower, steps] = np.asarray(after.model.couplings)
    assert counts == [3, 3, 12, 12, 48, 48]
    for (slower, steps), move in moved.items():
        assert np.abs(move).max() > 0
        np.testing.assert_allclose(move, moved[1, steps] / slower, rtol=1e-5)
        np.testing.assert_allclose(move, moved[slower, 0.0] / (1 + steps / 50), rtol=1e-5)


def test_chains_that_agree_are_asked_again_soon(monkeypatch):
    """0.949 where persistent chains have 0.951: the model needs some more steps, chains nothing."""
    burns, told, look = [], [], boltzmann._look
    fresh = iter([0.949, 0.948, 0.96])
    say(monkeypatch, 0.951, lambda *_: next(fresh))
    monkeypatch.setattr(boltzmann, "_look", lambda *a: burns.append(a[-1]) or look(*a))
    settings = BoltzmannSettings(chains=4, steps=400, every=2, anew=2)
    found = boltzmann_potts(
        exact_frequencies(random_model()), settings, progress=lambda *event: told.append(event)
    )
    looks = [now[0] for now, then in itertools.pairwise(told) if now[0] == then[0]]
    assert found.converged and burns == [2, 2, 2] and looks == [2, 4, 6]


def test_learning_becomes_slower_up_to_a_bound(monkeypatch):
    counts, look = [], boltzmann._look
    say(monkeypatch, 0.98, lambda *_: 0.3)
    monkeypatch.setattr(boltzmann, "_look", lambda *a: counts.append(a[-1]) or look(*a))
    settings = BoltzmannSettings(chains=4, steps=80, every=10, anew=2)
    assert not boltzmann_potts(exact_frequencies(random_model()), settings).converged
    assert counts == [2, 4, 8, 8, 8, 8, 8, 8]


@pytest.mark.parametrize("said", [(0.3, 0.2), (0.2, 0.3)])
def test_the_best_try_is_what_is_learned(monkeypatch, said):
    """Steps are spent before the target is reached: the second, slower try may be the worse one."""
    seen, look, looks = [], boltzmann._look, iter(said)

    def looked(model, *rest):
        seen.append(np.asarray(model.couplings))
        return look(model, *rest)

    say(monkeypatch, 0.98, lambda *_: next(looks))
    monkeypatch.setattr(boltzmann, "_look", looked)
    settings = BoltzmannSettings(chains=4, steps=20, every=10, anew=2)
    found = boltzmann_potts(exact_frequencies(random_model()), settings)
    assert not found.converged and found.pearson == 0.3 and found.steps == 20
    fields = np.zeros((LENGTH, Q))
    tries = [np.asarray(un.Potts.dense(fields, each).zero_sum().couplings) for each in seen]
    best = tries[said.index(0.3)]
    np.testing.assert_allclose(found.model.couplings, best, atol=1e-6)
    assert np.abs(tries[0] - tries[1]).max() > 1e-3


class Stopped(Exception):
    pass


def test_a_stopped_run_goes_on_to_the_same_bits(monkeypatch, tmp_path):
    """It is stopped after learning began again for the second time, four times slower."""
    monkeypatch.setattr(resuming, "EVERY", 0.0)
    say(monkeypatch, 0.98, lambda *_: 0.3)
    data, told = exact_frequencies(random_model()), []
    settings = BoltzmannSettings(chains=50, steps=80, every=10, anew=2)
    whole = boltzmann_potts(data, settings, progress=lambda *event: told.append(event))
    looks = [k for k, (now, then) in enumerate(itertools.pairwise(told)) if now[0] == then[0]]
    assert len(looks) > 2 and told[looks[1]][0] < 80
    left = told[looks[1] + 2 :]

    def stop(*event):
        if event == left[0]:
            raise Stopped

    with pytest.raises(Stopped):
        boltzmann_potts(data, settings, progress=stop, store=Checkpoints(tmp_path))
    again = []
    ended = boltzmann_potts(
        data, settings, progress=lambda *event: again.append(event), store=Checkpoints(tmp_path)
    )
    assert again == left and ended[1:] == whole[1:]
    for part in ("fields", "couplings"):
        np.testing.assert_array_equal(getattr(ended.model, part), getattr(whole.model, part))


@pytest.mark.parametrize("change", ["alignment", "seed", "settings"])
def test_a_stopped_run_does_not_go_on_with_something_else(monkeypatch, tmp_path, change):
    monkeypatch.setattr(resuming, "EVERY", 0.0)
    data, settings = exact_frequencies(random_model()), BoltzmannSettings(chains=4, steps=20)
    boltzmann_potts(data, settings, store=Checkpoints(tmp_path))
    if change == "alignment":
        data = exact_frequencies(random_model(seed=1))
    if change == "settings":
        settings = BoltzmannSettings(chains=4, steps=20, rate=0.01)
    with pytest.raises(UndirectedError, match=r"another alignment.*--fresh"):
        boltzmann_potts(data, settings, int(change == "seed"), store=Checkpoints(tmp_path))


def test_a_short_run_writes_no_checkpoint(tmp_path):
    data = exact_frequencies(random_model())
    settings, folder = BoltzmannSettings(chains=4, steps=20), tmp_path / "kept"
    boltzmann_potts(data, settings, store=Checkpoints(folder))
    assert not folder.exists()


SIDE = 20
"""Positions of each of two independent halves of a family of two letters."""


def counts(coupling, field):
    """Chances of 0, 1, ... letters 1 in a half, of which every pair is coupled."""
    n = np.arange(SIDE + 1)
    logs = np.log([math.comb(SIDE, k) for k in n]) + coupling * n * (n - 1) / 2 + field * n
    return np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()


def halves(*chances):
    """Frequencies of a family of independent halves, by the moments of the counts."""
    n, single = np.arange(SIDE + 1), []
    for chance in chances:
        one = chance @ n / SIDE
        single += SIDE * [[1 - one, one]]
    pairs = np.multiply.outer(single, single)
    for k, chance in enumerate(chances):
        here, both = slice(k * SIDE, (k + 1) * SIDE), chance @ (n * (n - 1)) / (SIDE * (SIDE - 1))
        one = single[k * SIDE][1]
        table = np.array([[1 - 2 * one + both, one - both], [one - both, both]])
        pairs[here, :, here] = table[:, None]
    for i, row in enumerate(single):
        pairs[i, :, i] = np.diag(row)
    return Frequencies(np.array(single), pairs, 1000.0)


@pytest.mark.slow
def test_the_last_word_have_chains_that_start_anew(monkeypatch):
    """A first half that chains never leave: those from the data stay there, the model does not.

    In the data a tenth of the sequences has 1 throughout the first half, in the model e^-20 of
    them. Exact values are sums over counts; 500 chains know Pearson to 0.01. The broken twin goes
    on with the persistent chains, and takes the model for good.
    """
    easy = (0.1, -0.95)
    data = halves(counts(1.0, -9.61), counts(*easy))
    wanted = halves(counts(1.0, -10.5), counts(*easy))
    exact = pearson_of(data, wanted.single, wanted.pairs)
    assert exact < 0.7

    def start(single, chains, key):
        rng, rows = np.random.default_rng(0), np.zeros((chains, 2 * SIDE), int)
        for k, chance in enumerate((counts(1.0, -9.61), counts(*easy))):
            for row, n in zip(rows, rng.choice(SIDE + 1, chains, p=chance), strict=True):
                row[k * SIDE + rng.permutation(SIDE)[:n]] = 1
        block = np.kron(np.diag([1.0, easy[0]]), np.ones((SIDE, SIDE))) * (1 - np.eye(2 * SIDE))
        couplings, fields = np.zeros((2 * SIDE, 2, 2 * SIDE, 2)), np.zeros((2 * SIDE, 2))
        couplings[:, 1, :, 1], fields[:, 1] = block, np.repeat([-10.5, easy[1]], SIDE)
        x = np.eye(2)[rows].reshape(chains, -1).T
        model = boltzmann._Parameters(fields, couplings)
        state = boltzmann._State(model, model, x, np.zeros((4 * SIDE, 4 * SIDE)), 0.0)
        return jax.tree.map(lambda part: jnp.array(part, jnp.float32), state)

    monkeypatch.setattr(boltzmann, "_start", start)
    settings = BoltzmannSettings(target=0.9, chains=500, rate=1e-9, steps=10)
    found = boltzmann_potts(data, settings)
    assert not found.converged and found.pearson == pytest.approx(exact, abs=0.03)
    look = boltzmann._look
    persistent = start(None, settings.chains, None).x
    monkeypatch.setattr(boltzmann, "_look", lambda model, _, *rest: look(model, persistent, *rest))
    twin = boltzmann_potts(data, settings)
    assert twin.converged and twin.pearson > 0.9


def test_the_mean_of_the_models_is_learned():
    """The weight of the t-th model is t (t + 1) ... (t + LATEST - 1), nearly a power of t.

    They are written out here; the broken twin is the last model, which is not the mean.
    """
    data, settings = exact_frequencies(random_model()), BoltzmannSettings(chains=20, every=1)
    parts, power = boltzmann._data_of(data, settings.floor), boltzmann.LATEST
    state, models = boltzmann._start(parts.single, 20, jax.random.key(0)), []
    for step in range(12):
        state = boltzmann._learn(state, parts, jax.random.key(step), 1, settings)
        models.append(np.asarray(state.model.couplings, float))
    weight = np.array([math.prod(t + k for k in range(power)) for t in range(1, 13)], float)
    wanted = np.tensordot(weight / weight.sum(), models, 1)
    np.testing.assert_allclose(state.average.couplings, wanted, atol=1e-6)
    assert abs(models[-1] - wanted).max() > 1e-3
    settings = BoltzmannSettings(chains=20, every=4, steps=12, target=0.99)
    found = boltzmann_potts(data, settings)
    again, key = boltzmann._start(parts.single, 20, jax.random.key(0)), jax.random.key(0)
    for _ in range(3):
        key, now, _ = jax.random.split(key, 3)
        again = boltzmann._learn(again, parts, now, 1, settings)
    wanted = un.Potts.dense(*(np.asarray(part) for part in again.average)).zero_sum()
    np.testing.assert_allclose(found.model.couplings, wanted.couplings, atol=1e-6)


def test_wide_modes_are_the_same_on_every_device(monkeypatch):
    rng = np.random.default_rng(0)
    half = rng.normal(size=(12, 12))
    matrix = (half @ half.T / 12).astype(np.float32)
    values, vectors = np.linalg.eigh(matrix.astype(float))
    wide = values > 1
    assert 2 < wide.sum() < 10
    for backend in ("cpu", "gpu"):
        monkeypatch.setattr(jax, "default_backend", lambda backend=backend: backend)
        found, modes = boltzmann._wide_modes(matrix)
        np.testing.assert_allclose(found, values[wide], rtol=1e-5)
        onto = (modes * found) @ modes.T
        np.testing.assert_allclose(onto, (vectors * values * wide) @ vectors.T, atol=1e-5)


def test_steps_are_divided_by_the_variances_of_collective_modes():
    """Along a mode by its standard deviations in data and chains, elsewhere not at all."""
    data = halves(counts(0.19, -1.8), counts(0.1, -0.95))
    found, rng = boltzmann._data_of(data, 0.01), np.random.default_rng(0)
    scale = np.diag((data.single.ravel() ** 2 + 0.01) ** -0.25)
    values, vectors = np.linalg.eigh(scale @ data.connected.reshape(len(scale), -1) @ scale)
    kept = values > 1
    assert 1 < values[-2] < values[-1] / 2 and kept.sum() < 10
    x = np.eye(2)[rng.integers(0, 2, (300, 2 * SIDE))].reshape(300, -1).T
    x[:, :150] = x[:, :1]  # half of the chains are alike, so that the chains have a mode too
    chains = ((vectors.T @ scale @ (x - data.single.reshape(-1, 1))) ** 2).mean(1)
    factors = np.where(kept, 1 / np.sqrt(np.maximum(values, 1) * np.maximum(chains, 1)), 1.0)
    assert chains[kept].max() > 1.5
    damp = boltzmann._damping(found, jnp.asarray(x, jnp.float32))
    slope = rng.normal(size=(len(scale), 3))
    wanted = vectors @ (factors[:, None] * (vectors.T @ slope))
    np.testing.assert_allclose(damp(jnp.asarray(slope, jnp.float32)), wanted, atol=1e-4)


def test_fewer_chains_than_letters_learn_at_a_slower_pace():
    settings = BoltzmannSettings(chains=100, rate=0.2, decay=10.0)
    many = [boltzmann._rate(jnp.array(steps), settings, 100) for steps in (0.0, 10.0, 30.0)]
    np.testing.assert_allclose(many, [0.2, 0.1, 0.05], rtol=1e-6)
    few = [boltzmann._rate(jnp.array(steps), settings, 200) for steps in (0.0, 20.0, 60.0)]
    np.testing.assert_allclose(few, [0.1, 0.05, 0.025], rtol=1e-6)


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
        (BoltzmannSettings(chains=1), "chains is 1; pass a whole number from 2"),
        (BoltzmannSettings(chains=50.0), "chains is 50.0; pass a whole number from 2"),
        (BoltzmannSettings(every=2.5), "every is 2.5; pass a whole number from 1"),
        (BoltzmannSettings(anew=0), "anew is 0; pass a whole number from 1"),
        (BoltzmannSettings(rate=np.nan), "rate nan and decay 50.0; pass numbers above 0"),
        (BoltzmannSettings(decay=0.0), "rate 0.08 and decay 0.0; pass numbers above 0"),
        (BoltzmannSettings(l2=np.nan), "l2 nan and memory 0.8; pass numbers from 0"),
        (BoltzmannSettings(floor=-1.0), "floor -1.0, l2 0.0 and memory 0.8; pass numbers from 0"),
        (BoltzmannSettings(memory=2.0), "memory 2.0; pass numbers from 0, and a memory below 1"),
        (BoltzmannSettings(steps=0), "steps is 0; pass a whole number from 1"),
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
    with pytest.raises(UndirectedError, match="betas is 1"):
        un.potts_log_z(random_model(), betas=1)
