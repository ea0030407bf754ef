"""Every objective has the gradient of the oracle, sampled ones in expectation; broken ones fail."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from tests.learning import support
from undirected.core.errors import UndirectedError
from undirected.learning import ContrastiveDivergence, Persistent, PseudoLikelihood, TwoPhase
from undirected.learning.chain_phases import complete, observed

NAMES = sorted(support.models())
DRAWS = 1000
EXACT = support.ExactKernel()


def likelihood_gradient(model, v):
    return support.oracle_gradient(model, lambda t: support.negative_log_likelihood(t, v))


def assert_close(ours, truth):
    for name, wanted in truth.items():
        np.testing.assert_allclose(ours[name], wanted, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("clamped", "missing"), [(False, False), (True, False), (True, True)])
def test_two_phase_gradient_and_likelihood_are_exact(name, clamped, missing, x64, key):
    model = support.models()[name]
    v = support.data(model, missing=missing)
    objective = TwoPhase(support.Enumerate(), support.Enumerate() if clamped else None)
    _, (_, info), ours = support.evaluate(objective, model, jnp.asarray(v), key)
    assert_close(ours, likelihood_gradient(model, v))
    wanted = support.negative_log_likelihood(support.truth(model, support.parameters(model)), v)
    np.testing.assert_allclose(info["log_z"] - info["log_z_data"], wanted, rtol=1e-12)


def test_two_phase_needs_no_free_energy_with_positive_inference(x64, key):
    rbm = support.models()["rbm"]
    v = support.data(rbm)
    model = support.HiddenByEnergy(rbm)
    objective = TwoPhase(support.Enumerate(), support.Enumerate())
    objective.init(model, jnp.asarray(v), key)
    ours = support.gradient(objective, model, jnp.asarray(v), key)
    assert_close(ours, likelihood_gradient(rbm, v))
    with pytest.raises(UndirectedError, match="pass positive="):
        TwoPhase(support.Enumerate()).init(model, jnp.asarray(v), key)


@pytest.mark.parametrize("name", NAMES)
def test_pseudo_likelihood_value_and_gradient_are_exact(name, x64, key):
    model = support.models()[name]
    v = support.data(model)
    labels = getattr(model, "label_states", 0)
    n = model.layout.n_visible
    groups = [slice(i, i + 1) for i in range(n - labels)] + [slice(n - labels, n)] * bool(labels)

    def value(distribution):
        return support.negative_log_pseudo_likelihood(distribution, v, groups)

    loss, _, ours = support.evaluate(PseudoLikelihood(), model, jnp.asarray(v), key)
    now = value(support.truth(model, support.parameters(model)))
    np.testing.assert_allclose(loss, now, rtol=1e-12)
    assert_close(ours, support.oracle_gradient(model, value))


@eqx.filter_jit
def draw(objective, model, batch, keys):
    carry = objective.init(model, batch, keys[0])
    return jax.lax.map(lambda k: support.gradient(objective, model, batch, k, carry), keys[1:])


def worst_z(objective, model, v, key, oracle_model=None):
    """Largest |z| between the mean gradient over independent draws and the oracle's, and its limit.

    The limit is exceeded by a right gradient with probability 1e-5 (two-sided, Bonferroni).
    """
    draws = draw(objective, model, jnp.asarray(v, jnp.float32), jax.random.split(key, DRAWS + 1))
    truth = likelihood_gradient(oracle_model or model, v)
    scores = []
    for name, wanted in truth.items():
        sample = np.asarray(draws[name], np.float64)
        error = np.abs(sample.mean(0) - wanted)
        spread = sample.std(0, ddof=1) / np.sqrt(DRAWS)
        scores.append((error / np.maximum(spread, 1e-6)).ravel())
    scores = np.concatenate(scores)
    return scores.max(), norm.isf(1e-5 / 2 / len(scores))


SAMPLED = {
    "cd": ContrastiveDivergence(EXACT, steps=1, fill_steps=1),
    "pcd": Persistent(EXACT, chains=5, fill_steps=1),
}


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("name", ["label_rbm", "dense_ising"])
@pytest.mark.parametrize("objective", SAMPLED)
def test_sampled_gradient_is_right_in_expectation(objective, name, missing, key):
    model = jax.tree.map(lambda a: a.astype(jnp.float32), support.models()[name])
    z, limit = worst_z(SAMPLED[objective], model, support.data(model, missing=missing), key)
    assert z < limit


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("objective", SAMPLED)
def test_sampled_gradient_without_a_free_energy(objective, missing, key):
    rbm = support.models()["rbm"]
    v = support.data(rbm, missing=missing)
    z, limit = worst_z(SAMPLED[objective], support.HiddenByEnergy(rbm), v, key, oracle_model=rbm)
    assert z < limit


@pytest.mark.parametrize("make", [ContrastiveDivergence, Persistent])
def test_a_wrong_kernel_is_caught(make, key):
    model = support.models()["label_rbm"]
    z, limit = worst_z(make(support.ExactKernel(temperature=2.0)), model, support.data(model), key)
    assert z > limit


@pytest.mark.slow
@pytest.mark.parametrize("make", [ContrastiveDivergence, Persistent])
def test_a_wrong_filling_of_missing_entries_is_caught(make, key):
    model = support.models()["label_rbm"]
    z, limit = worst_z(make(support.StuckWhenHeld()), model, support.data(model, missing=True), key)
    assert z > limit


def test_contrastive_chains_start_at_the_data(key):
    """Without a move, data and chains are the same and the gradient vanishes."""
    model = support.models()["rbm"]
    objective = ContrastiveDivergence(support.Still())
    slope = support.gradient(objective, model, jnp.asarray(support.data(model)), key)
    assert all(np.abs(leaf).max() < 1e-6 for leaf in slope.values())


def test_persistent_chains_start_at_rows_of_the_data_and_persist(key):
    model = support.models()["rbm"]
    batch = jnp.asarray(support.data(model, rows=3))
    objective = Persistent(support.Still(), chains=7)
    chains = jax.jit(objective.init)(model, batch, key)
    np.testing.assert_array_equal(chains.x[:, :3], batch[np.arange(7) % 3])
    _, (after, _), _ = support.evaluate(objective, model, batch, key, chains)
    assert eqx.tree_equal(after, chains)
    moving = Persistent(EXACT, chains=7)
    _, (after, info), _ = support.evaluate(moving, model, batch, key, chains)
    assert not eqx.tree_equal(after, chains)
    assert info["moved"].shape == ()


def test_missing_entries_start_at_random_and_observed_ones_stay(key):
    model = support.models()["label_rbm"]
    v = jnp.tile(jnp.asarray([[1.0, jnp.nan, jnp.nan, jnp.nan], [jnp.nan, 0.0, 1.0, 0.0]]), (50, 1))
    x = np.asarray(complete(support.Still(), model, v, 1, key))
    np.testing.assert_array_equal(x[::2, 0], 1)
    np.testing.assert_array_equal(x[1::2, 1:4], np.tile([0, 1, 0], (50, 1)))
    np.testing.assert_array_equal(x[:, 1:4].sum(1), 1)
    assert set(x[1::2, 0]) == {0, 1}
    assert (x[::2, 1:4].sum(0) > 0).all()


def test_missing_entries_start_at_the_chain_that_agrees_best(key):
    """By squared distance over the observed entries, found with loops."""
    model = support.models()["rbm"]
    rng = np.random.default_rng(0)
    n, visible = model.layout.n, model.layout.n_visible
    chains = rng.integers(0, 2, (7, n)).astype(float)
    v = rng.integers(0, 2, (20, visible)).astype(float)
    v[rng.random(v.shape) < 0.4] = np.nan
    start = complete(support.Still(), model, jnp.asarray(v), 1, key, near=jnp.asarray(chains))
    for row, got in zip(v, np.asarray(start), strict=True):
        gaps = [np.nansum((row - chain[:visible]) ** 2) for chain in chains]
        wanted = chains[int(np.argmin(gaps))].copy()
        wanted[:visible] = np.where(np.isnan(row), wanted[:visible], row)
        np.testing.assert_array_equal(got, wanted)


def test_a_partly_missing_label_is_missing(key):
    layout = support.models()["label_rbm"].layout
    v = jnp.asarray([[1.0, 0.0, jnp.nan, 1.0], [jnp.nan, 0.0, 1.0, 0.0]])
    wanted = [[True, False, False, False], [False, True, True, True]]
    np.testing.assert_array_equal(observed(layout, v), wanted)


def test_integer_data_are_taken(key):
    model = support.models()["rbm"]
    v = support.data(model)
    ours = support.gradient(PseudoLikelihood(), model, jnp.asarray(v, jnp.uint8), key)
    floats = support.gradient(PseudoLikelihood(), model, jnp.asarray(v), key)
    assert eqx.tree_equal(ours, floats)


@pytest.mark.parametrize("objective", [*SAMPLED.values(), PseudoLikelihood()])
def test_wrong_width_is_named(objective, key):
    model = support.models()["rbm"]
    with pytest.raises(UndirectedError, match=r"shape \(6, 4\); the model has 3 visible units"):
        objective(model, jnp.zeros((6, 4)), None, key)


@pytest.mark.parametrize("bad", [{"steps": 0}, {"fill_steps": 0}])
def test_zero_steps_are_refused(bad):
    with pytest.raises(UndirectedError, match="must be 1 or more"):
        ContrastiveDivergence(EXACT, **bad)
    with pytest.raises(UndirectedError, match="must be 1 or more"):
        Persistent(EXACT, **bad)


def test_pseudo_likelihood_needs_log_odds(key):
    model = support.HiddenByEnergy(support.models()["rbm"])
    with pytest.raises(UndirectedError, match="no log_odds"):
        PseudoLikelihood().init(model, jnp.zeros((1, 3)), key)
