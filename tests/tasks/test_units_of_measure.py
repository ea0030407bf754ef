"""Real and nonnegative data in any units of measure: metres or millimetres, Celsius or Kelvin."""

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.special import logsumexp

import undirected as un
from undirected.core.errors import UndirectedError
from undirected.core.graph import from_edges
from undirected.learning import stack
from undirected.models.mixed_rbm import LEAST_VARIANCE
from undirected.sampling import GaussianGibbs

W = np.array([[1.5, -1.0], [2.0, 0.5], [-1.0, 1.5]])
SPREAD = np.array([1.0, 0.7, 0.5])
MEANS, UNITS = np.array([-300.0, 0.0, 2000.0]), np.array([1e-2, 1.0, 1e3])
FAST: dict[str, Any] = {"steps": 1500, "learning_rate": 0.01, "seed": 0}


def mixture(count, seed):
    """Draws of four normal clouds around W h, their means and deviations about 0 and 1."""
    rng = np.random.default_rng(seed)
    h = rng.random((count, 2)) < 0.5
    return h @ W.T + rng.normal(size=(count, 3)) * SPREAD - W.sum(1) / 2


def log_density(v):
    """Of the same clouds."""
    means = np.array(list(product([0, 1], repeat=2))) @ W.T - W.sum(1) / 2
    found = (v[:, None] - means[None]) / SPREAD
    logs = -0.5 * (found**2).sum(-1) - np.log(SPREAD * np.sqrt(2 * np.pi)).sum()
    return logsumexp(logs, axis=1) - np.log(4)


def held_out(model, means, units):
    """Mean log-likelihood of unseen rows, told in the units in which they are near 0."""
    rows = means + units * mixture(1000, 1)
    return float(un.evaluate(model, rows, seed=0).log_likelihood.mean + np.log(units).sum())


def test_a_new_model_learns_in_any_units():
    """As near 0, within 0.15 nats a row of the truth; without the units it is tens to billions."""
    found = []
    for far, unit in (0, 1), (0, 1e-3), (0, 1e3), (1000, 1), (3000, 1e-3):
        means, units = np.full(3, far * unit), np.full(3, unit)
        start = un.GaussianRBM.create(3, 2, seed=0, learn_variance=True)
        model = un.fit(start, means + units * mixture(2000, 0), **FAST).model
        found.append(held_out(model, means, units))
    np.testing.assert_allclose(found, found[0], atol=0.02)
    assert abs(found[0] - log_density(mixture(1000, 1)).mean()) < 0.15


def test_fixed_variances_ask_for_their_own_units():
    rows = mixture(500, 0) / SPREAD
    start = un.GaussianRBM.create(3, 2, seed=0)
    near = un.fit(start, rows, **FAST).model
    far = un.fit(start, rows + 1000, **FAST).model
    assert near.log_variance is None
    difference = un.evaluate(near, rows).log_likelihood.mean
    difference -= un.evaluate(far, rows + 1000).log_likelihood.mean
    assert abs(difference) < 0.05
    for unit in 1e-3, 1e3:
        with pytest.raises(UndirectedError, match="variances are fixed at one.*learn_variance"):
            un.fit(start, rows * unit, steps=1)
    un.fit(start, np.zeros((5, 3)), steps=1)  # constant columns have no units


@pytest.mark.parametrize("far", [0, 1000])
def test_columns_of_a_mixed_model_learn_in_any_units(far):
    """A real and a nonnegative column in other units get the likelihoods that they have in ours."""
    rng, on = np.random.default_rng(0), np.random.default_rng(1).random(1000) < 0.5
    real, positive = on + 0.5 * rng.normal(size=1000), (1 + 2 * on) * rng.gamma(2.0, 0.5, 1000)
    found = []
    for mean, units in ((0, (1, 1)), (far, (100, 0.1)), (-far, (10, 1e3))):
        rows = np.stack([on, (real - real.mean()) * units[0] + mean, positive * units[1]], 1)
        start = un.MixedRBM.create(["binary", "real", "nonnegative"], 2, seed=0)
        model = un.fit(start, rows[:800], **FAST).model
        score = un.evaluate(model, rows[800:], betas=200, chains=50, seed=0).log_likelihood
        found.append(score.mean + np.log(units).sum())
    np.testing.assert_allclose(found, found[0], atol=0.05)


def test_deviations_that_a_mixed_model_cannot_have_are_refused():
    start = un.MixedRBM.create({"x": "real", "y": "real"}, 2, seed=0)
    rows = mixture(100, 0)[:, :2] * [1, 1e-3]
    with pytest.raises(UndirectedError, match="'y' is of the size 0.00.*no standard dev"):
        un.fit(start, rows, steps=1)
    with pytest.raises(UndirectedError, match="'y' is of the size 0.00.*no standard dev"):
        un.MixedRBM.create({"x": "real", "y": "real"}, 2, seed=0, data=rows)
    un.MixedRBM.create({"x": "real", "y": "real"}, 2, seed=0, data=np.full((9, 2), 300.1))


def same_leaves(a, b):
    """Equal to the bit."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


class Likelihood:
    """Minus the exact mean log-likelihood of a Gaussian RBM, its hidden units enumerated."""

    def init(self, model, batch, key):
        return None

    def __call__(self, model, batch, carry, key):
        h = jnp.asarray(list(product([0.0, 1.0], repeat=model.n_hidden)))
        scale, mean = model.scale, model.visible_mean
        pull = h @ model.weights.T
        log_z = jax.nn.logsumexp(
            h @ model.hidden_bias + 0.5 * (pull**2).sum(1) + pull @ (mean / scale)
        )
        log_z = log_z + 0.5 * jnp.log(2 * jnp.pi) * len(mean) + jnp.log(scale).sum()
        return model.free_energy(batch).mean() + log_z, (None, {})


def gaussian(means, units):
    rng = np.random.default_rng(3)
    weights, c = rng.normal(0, 0.7, (3, 2)), rng.normal(size=2)
    b, s = rng.normal(size=3), np.exp(0.3 * rng.normal(size=3))
    mean, scale = means + units * b, units * s
    logs = 2 * np.log(scale)
    parts = weights, mean, c - (mean / scale) @ weights, logs
    return un.GaussianRBM(*map(jnp.asarray, parts))


def in_own_units(model, means, units):
    """Parameters of the model of (v - means) / units."""
    weights, mean, c, logs = map(np.asarray, jax.tree.leaves(model))
    pull = (mean * np.exp(-0.5 * logs)) @ weights
    return weights, (mean - means) / units, c + pull, logs - 2 * np.log(units)


def nonnegative(units, graph):
    rng = np.random.default_rng(3)
    weights, diagonal, b = 0.3 * rng.random((3, 3)), 1 + rng.random(3), rng.normal(size=3)
    if graph is not None:
        i, j = np.asarray(graph.edges).T
        return un.NonnegativeBM.on_graph(
            graph, weights[i, j] / units[i] / units[j], diagonal / units**2, b / units
        )
    weights = (weights + weights.T) * (1 - np.eye(3))
    full = (weights + np.diag(diagonal)) / units[:, None] / units[None]
    return un.NonnegativeBM.from_matrix(jnp.asarray(full), jnp.asarray(b / units))


def test_steps_of_a_gaussian_model_follow_the_units(x64):
    """To rounding: what is learned in other units is the same model in other units."""
    rows, found = mixture(60, 0), []
    for means, units in ((np.zeros(3), np.ones(3)), (MEANS, UNITS)):
        batches = un.Batches(means + units * rows, 20)
        start = gaussian(means, units)
        model = un.fit(start, batches, Likelihood(), optax.adam(0.05), steps=40, seed=0).model
        assert abs(in_own_units(model, means, units)[0] - start.weights).max() > 0.1
        found.append(in_own_units(model, means, units))
    for near, far in zip(*found, strict=True):
        np.testing.assert_allclose(far, near, atol=1e-5)


@pytest.mark.parametrize("graph", [None, from_edges(3, [(0, 1), (1, 2)])], ids=["dense", "graph"])
def test_steps_of_a_nonnegative_model_follow_the_units(x64, graph):
    rows, found = np.abs(mixture(60, 0)), []
    for units in (np.ones(3), np.array([1e-3, 1.0, 1e3])):
        start = nonnegative(units, graph)
        batches = un.Batches(rows * units, 20)
        optimiser = optax.adam(0.02)
        model = un.fit(start, batches, un.PseudoLikelihood(), optimiser, steps=40, seed=0).model
        found.append(np.asarray(model.matrix) * units[:, None] * units)
        found.append(np.asarray(model.bias) * units)
    np.testing.assert_allclose(found[2], found[0], atol=1e-6)
    np.testing.assert_allclose(found[3], found[1], atol=1e-6)


def test_steps_of_coupled_columns_follow_the_units(x64):
    """Real columns with couplings among them, a nonnegative and a binary one."""
    rng = np.random.default_rng(0)
    far, near = np.array([0, 500.0, -80.0, 0]), np.zeros(4)
    rows = np.column_stack([rng.random(60) < 0.5, mixture(60, 0)[:, :2], rng.random(60)])
    weights, lateral = rng.normal(0, 0.5, (4, 2)), np.array([[0, 0], [0.4, 0]])
    found = []
    for means, units in ((near, np.ones(4)), (far, np.array([1, 50, 5, 20.0]))):
        scale = units[1:3]
        pull = means[1:3] / scale
        pull = pull + lateral.T @ pull
        own = np.where([0, 0, 0, 1], units, 1)
        model = un.MixedRBM(
            jnp.asarray(weights / own[:, None]),
            jnp.asarray(means),
            jnp.asarray(-pull @ weights[1:3]),
            jnp.log(units[1:] ** 2 - LEAST_VARIANCE),
            un.MixedRBM.create(["binary", "real", "real", "nonnegative"], 2, seed=0).table,
            jnp.asarray(lateral),
        )
        batches = un.Batches(means + units * rows, 20)
        fitted = un.fit(model, batches, un.PseudoLikelihood(), optax.adam(0.02), steps=30).model
        moved = np.asarray(fitted.weights) * own[:, None]
        bias = (np.asarray(fitted.visible_bias) - means) * np.where([0, 1, 1, 0], 1 / units, own)
        found.append(np.concatenate([moved.ravel(), bias, np.asarray(fitted.lateral).ravel()]))
    np.testing.assert_allclose(found[1], found[0], atol=2e-4)  # but for the least variance


def test_a_model_that_was_given_its_means_keeps_them():
    start = gaussian(MEANS, UNITS)
    rows = MEANS + UNITS * mixture(50, 0)
    assert same_leaves(un.fit(start, rows, steps=0).model, start)
    held = un.GaussianRBM.create(3, 2, seed=0)
    only = un.fit(held, rows, steps=2, trainable=jax.tree.map(lambda a: a.ndim == 2, held)).model
    np.testing.assert_array_equal(only.visible_mean, 0)


@pytest.mark.parametrize("learned", [True, False])
def test_data_around_0_start_where_they_did(learned):
    """Bit for bit: a mean of 0 and, where variances are learned, deviations of 1."""
    rows = mixture(200, 0)
    rows = (rows - rows.mean(0)) / rows.std(0)
    start = un.GaussianRBM.create(3, 2, seed=0, learn_variance=learned)
    begun = un.fit(start, rows, steps=0).model
    assert same_leaves(begun, start)


def test_create_takes_means_and_variances():
    start = un.GaussianRBM.create(3, 2, seed=0, means=MEANS, variances=UNITS**2)
    plain = un.GaussianRBM.create(3, 2, seed=0, learn_variance=True)
    weights, mean, c, logs = in_own_units(start, MEANS, UNITS)
    np.testing.assert_array_equal(weights, plain.weights)
    for part in mean, logs:
        np.testing.assert_allclose(part, 0, atol=1e-5)
    np.testing.assert_allclose(c, 0, atol=1e-2)  # hidden units do not hear of the means
    with pytest.raises(UndirectedError, match=r"means have shape \(2,\); pass one.* 3 visible"):
        un.GaussianRBM.create(3, 2, seed=0, means=[0.0, 1.0])
    for bad in ([1.0, 0.0, 1.0], [1.0, np.nan, 1.0], [-1.0, 1.0, 1.0]):
        with pytest.raises(UndirectedError, match="variances"):
            un.GaussianRBM.create(3, 2, seed=0, variances=bad)
    with pytest.raises(UndirectedError, match="means"):
        un.GaussianRBM.create(3, 2, seed=0, means=[0.0, np.nan, 0.0])


def test_holes_constant_and_empty_columns():
    rng = np.random.default_rng(0)
    rows = np.column_stack([MEANS[2] + rng.normal(size=50), np.full(50, 7.0), np.full(50, np.nan)])
    rows[3, 0] = np.nan
    start = un.GaussianRBM.create(3, 2, seed=0, learn_variance=True)
    begun = un.fit(start, rows, steps=0).model
    mean, deviation = float(np.nanmean(rows[:, 0])), float(np.nanstd(rows[:, 0]))
    np.testing.assert_allclose(begun.visible_mean, [mean, 7.0, 0.0], rtol=1e-6)
    np.testing.assert_allclose(begun.scale, [deviation, 1.0, 1.0], rtol=1e-3)
    assert np.isfinite(
        un.evaluate(un.fit(start, rows, steps=20, seed=0).model, rows[:5]).log_z.value
    )


@pytest.mark.parametrize("n", [0, 1])
def test_deviations_lost_in_single_precision_are_refused(n):
    rows = np.random.default_rng(0).normal(size=(100, 2))
    rows[:, n] += 1e7
    start = un.GaussianRBM.create(2, 1, seed=0, learn_variance=True)
    with pytest.raises(UndirectedError, match=f"column {n} .*single precision.*subtract"):
        un.fit(start, rows, steps=1)


def test_a_stream_and_a_transform_tell_their_units(tmp_path):
    rows = (MEANS + UNITS * mixture(300, 0)).astype(np.float32)
    path = tmp_path / "rows.npy"
    np.save(path, rows)
    start = un.GaussianRBM.create(3, 2, seed=0, learn_variance=True)
    own = rows.mean(0), rows.std(0)
    for batches in (
        un.StreamedBatches(np.load(path, mmap_mode="r"), 20),
        un.Batches(rows[:, ::-1], 20, transform=lambda batch, key: batch[:, ::-1]),
    ):
        begun = un.fit(start, batches, steps=0).model
        np.testing.assert_allclose(begun.visible_mean, own[0], rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(begun.scale, own[1], rtol=1e-3)


def test_a_run_goes_on_bit_for_bit(tmp_path):
    rows = MEANS + UNITS * mixture(100, 0)
    start = un.GaussianRBM.create(3, 2, seed=0, learn_variance=True)
    optimiser = optax.adam(0.01)

    def run(steps, folder=None):
        options: dict[str, Any] = {"log_every": 5, "seed": 0}
        if folder is not None:
            options |= {"store": tmp_path / folder, "save_every": 0.0}
        return un.fit(start, rows, None, optimiser, steps=steps, **options).model

    whole = run(30)
    run(12, "a")
    assert same_leaves(run(30, "a"), whole)


def test_members_of_an_ensemble_keep_their_units():
    models = stack([gaussian(MEANS, UNITS), gaussian(np.zeros(3), np.ones(3))])
    objective = un.Ensemble(un.ContrastiveDivergence(GaussianGibbs()))
    fitted = un.fit(models, un.Batches(mixture(40, 0), 10), objective, steps=2, seed=0).model
    assert fitted.weights.shape == (2, 3, 2)


@pytest.mark.parametrize("far", [0, 1000])
def test_columns_of_which_data_are_given_learn_in_any_units(far):
    """Hidden units start as near 0, where neither state is certain."""
    rng = np.random.default_rng(0)
    rows = mixture(500, 0)
    rows = np.column_stack([rows[:, :2] / rows[:, :2].std(0), rng.gamma(2.0, 0.5, 500)])
    kinds, scores = ["real", "real", "nonnegative"], []
    for means, units in ((0, np.ones(3)), (far * np.array([1, -1, 0]), np.array([1, 10, 500]))):
        start = un.MixedRBM.create(kinds, 2, seed=0, data=means + units * rows)
        model = un.fit(start, means + units * rows, **FAST).model
        found = un.evaluate(model, means + units * rows, betas=200, chains=50, seed=0)
        scores.append(found.log_likelihood.mean + np.log(units).sum())
    assert abs(scores[1] - scores[0]) < 0.03


def test_long_tails_do_not_take_the_diagonal_below_0():
    """Of exponential columns the best w_ii is 0; the fit comes near their log-density."""
    rows = np.random.default_rng(0).exponential(size=(1000, 2))
    start = un.NonnegativeBM.from_data(jnp.asarray(rows))
    alone = un.fit(start, rows, steps=300, seed=0, trainable=lambda a: a.ndim == 1).model
    assert (np.asarray(alone.diagonal) > 0).all()
    found = -un.evaluate(alone, rows, seed=0).log_likelihood.mean
    assert abs(found - (1 + np.log(rows.mean(0))).sum()) < 0.05


def test_a_fit_without_a_density_says_so():
    """Pseudo-likelihood takes couplings along which the energy falls without end."""
    rng = np.random.default_rng(0)
    rows = rng.exponential(size=(1000, 1)) + 0.3 * rng.exponential(size=(1000, 2))
    start = un.NonnegativeBM.from_data(jnp.asarray(rows))
    with pytest.warns(UserWarning, match="fit: the fitted model has no density.*fit_table"):
        model = un.fit(start, rows, steps=300, learning_rate=0.02, seed=0).model
    assert np.linalg.eigvalsh(np.asarray(model.matrix, float)).min() < 0
