"""EM for mixtures against plain sums, and centred learning against its own definition."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from undirected.core.errors import UndirectedError
from undirected.learning import mixture
from undirected.learning.centring import centred
from undirected.learning.mixture import (
    Mixture,
    choose_mixture,
    fit_mixture,
    independent_columns,
)
from undirected.models import RBM, Ising, MixtureRBM


def clusters(rows: int, seed: int, columns: int = 40, count: int = 3) -> np.ndarray:
    """Rows near one of a few corners, a tenth of the entries flipped."""
    corners = np.random.default_rng(7).random((count, columns)) < 0.5
    rng = np.random.default_rng(seed)
    return (corners[rng.integers(count, size=rows)] ^ (rng.random((rows, columns)) < 0.1)) * 1.0


def plain_log_likelihood(logs, means, row):
    total = -np.inf
    for log, mean in zip(logs, means, strict=True):
        for x, p in zip(row, mean, strict=True):
            if not np.isnan(x):
                log = log + np.log(p if x else 1 - p)
        total = np.logaddexp(total, log)
    return total


def test_log_likelihood_and_answers_are_plain_sums():
    logs, means = np.log([0.7, 0.3]), np.array([[0.9, 0.2, 0.4], [0.1, 0.5, 0.8]])
    rows = np.array([[1, 0, 1], [0, np.nan, 1], [np.nan, np.nan, np.nan]])
    mixture = Mixture(logs, means)
    want = [plain_log_likelihood(logs, means, row) for row in rows]
    assert np.allclose(mixture.log_likelihood(rows), want, atol=1e-5)
    for i in (1, 2):
        ones = rows[i].copy()
        ones[1] = 1
        p = np.exp(plain_log_likelihood(logs, means, ones) - want[i])
        assert mixture.predict(rows)[i, 1] == pytest.approx(p, abs=1e-5)


@pytest.mark.parametrize("holes", [0.0, 0.2])
def test_em_finds_clusters(holes):
    """The truth has 13.0 nats of noise and log 3 of cluster: 14.1; independent columns have 24."""
    train, test = clusters(900, 0), clusters(300, 1)
    train = np.where(np.random.default_rng(2).random(train.shape) < holes, np.nan, train)
    found = fit_mixture(train, 3)
    assert found.log_likelihood(test).mean() > -14.6
    assert independent_columns(train).log_likelihood(test).mean() < -20
    assert np.allclose(np.exp(found.log_weights), 1 / 3, atol=0.08)


def test_the_number_of_components_is_chosen_by_held_out_rows():
    train, valid = clusters(900, 0), clusters(200, 1)
    assert 3 <= len(choose_mixture(train, valid).log_weights) <= 10
    noise = (np.random.default_rng(0).random((300, 30)) < 0.4) * 1.0
    assert len(choose_mixture(noise[:200], noise[200:]).log_weights) == 1
    assert len(choose_mixture(train, valid[:0]).log_weights) == 18
    logs, means = independent_columns(train).at_least(3)
    assert np.exp(logs).sum() == pytest.approx(1)
    assert means.shape == (3, 40)


def test_every_component_has_two_rows_or_more():
    """Rows that are all different, held-out ones the same: more components would be better."""
    rows = np.random.default_rng(0).integers(0, 2, (16, 60)).astype(float)
    assert len(choose_mixture(rows, rows).log_weights) == 5
    five, ten = (fit_mixture(rows, count).log_likelihood(rows).mean() for count in (5, 10))
    assert ten > five


def test_bad_tables_are_refused():
    with pytest.raises(UndirectedError, match=r"rows have shape \(0, 3\)"):
        fit_mixture(np.zeros((0, 3)), 2)
    with pytest.raises(UndirectedError, match="components is 0"):
        fit_mixture(np.zeros((2, 3)), 0)


def gradient_of(model, v, chains):
    return jax.grad(lambda m: m.free_energy(v).mean() - m.free_energy(chains).mean())(model)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("mixed", [False, True])
def test_centred_steps_are_plain_steps_of_the_centred_model(mixed):
    """Gradient descent in W, b + W lambda, c + W' mu of (v - mu)' W (h - lambda) + ..."""
    rng = np.random.default_rng(0)
    w, b, c = (jnp.asarray(rng.normal(size=s)) for s in ((4, 3), 4, 3))
    u, d = jnp.asarray(rng.normal(size=(4, 2))), jnp.asarray(rng.normal(size=2))
    v, chains = ((rng.random((6, 4)) < 0.5) * 1.0 for _ in range(2))
    mu, lam = jax.nn.sigmoid(b), 0.5 * jnp.ones(3)
    pi = jax.nn.softmax(d + jnp.log1p(jnp.exp(b[:, None] + u)).sum(0))

    def model(w, b, c, u, d):
        """From centred parameters."""
        if not mixed:
            return RBM(w, b - w @ lam, c - mu @ w)
        return MixtureRBM(w, u, b - w @ lam - u @ pi, c - mu @ w, d - mu @ u)

    def energy(parts):
        m = model(*parts)
        return m.free_energy(v).mean() - m.free_energy(chains).mean()

    extra = u @ pi if mixed else 0.0
    parts = w, b + w @ lam + extra, c + mu @ w, u, d + mu @ u
    slopes = jax.grad(energy)(parts)
    want = model(*(p - 0.1 * g for p, g in zip(parts, slopes, strict=True)))
    start = model(*parts)
    optimiser = centred(optax.sgd(0.1))
    updates, _ = optimiser.update(gradient_of(start, v, chains), optimiser.init(start), start)
    got = optax.apply_updates(start, updates)
    for a, e in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert np.allclose(a, e, atol=1e-10)


def test_centring_needs_couplings():
    with pytest.raises(UndirectedError, match="centred: a Ising has no weights between visible"):
        centred(optax.sgd(0.1)).init(Ising.create(3))


def test_rounded_sums_leave_means_between_0_and_1():
    """A column that is always 1, whose sum in single precision came out above its count."""
    sums = mixture._Sums(np.array([1.0]), np.array([[1.0 + 1e-6, 0.0]]), None)
    found = mixture._maximised(sums, 8000, np.array([1 - 1e-9, 1e-9]))
    assert (found.means > 0).all() and (found.means < 1).all()
    assert np.isfinite(found.log_likelihood(np.array([[1.0, 0.0]]))).all()
