"""R-hat and effective sample size: against ArviZ, on processes of known size, and their axes."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from undirected.core.diagnostics import ess, rhat
from undirected.core.errors import NotFinite, UndirectedError


def autoregressive(phi, chains=4, steps=500, seed=0):
    """x_t = phi x_{t-1} + noise from its stationary distribution, (steps, chains)."""
    rng = np.random.default_rng(seed)
    x = np.zeros((steps, chains))
    x[0] = rng.standard_normal(chains) / np.sqrt(1 - phi**2)
    for t in range(1, steps):
        x[t] = phi * x[t - 1] + rng.standard_normal(chains)
    return x


@pytest.fixture(scope="module")
def arviz():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("arviz")


@pytest.mark.parametrize("phi", [-0.5, 0.0, 0.5, 0.95])
@pytest.mark.parametrize("steps", [500, 501])
def test_same_numbers_as_arviz(arviz, phi, steps):
    for x in (autoregressive(phi, steps=steps), np.round(autoregressive(phi, steps=steps))):
        assert rhat(x) == pytest.approx(float(arviz.rhat(x.T)), rel=1e-9)
        assert ess(x) == pytest.approx(float(arviz.ess(x.T, method="bulk")), rel=1e-9)


def test_binary_draws_as_arviz_does(arviz):
    """0 and 1 equally often: draws folded at their median, 1/2, do not vary."""
    rng = np.random.default_rng(0)
    x = np.stack([rng.permutation(np.arange(200) % 2) for _ in range(4)], 1).astype(float)
    with np.errstate(invalid="ignore"):
        assert rhat(x) == pytest.approx(float(arviz.rhat(x.T)), rel=1e-9)
    assert 0.99 < rhat(x) < 1.05
    assert ess(x) == pytest.approx(float(arviz.ess(x.T, method="bulk")), rel=1e-9)


def test_chains_that_stand_still_apart_have_not_mixed():
    assert rhat(np.zeros((100, 4)) + np.array([0, 0, 1, 1])) > 1e6
    assert rhat(np.zeros((100, 4)) + np.array([0, 0, 0, 1])) > 1e6


def test_effective_size_is_that_of_the_process():
    """n (1 - phi) / (1 + phi); 10 % is 8 standard errors at this length."""
    x = autoregressive(0.5, chains=8, steps=20_000)
    assert ess(x) == pytest.approx(8 * 20_000 / 3, rel=0.1)


def test_chains_apart_are_seen():
    x = autoregressive(0.5)
    assert rhat(x) < 1.01
    assert rhat(x + np.arange(4)) > 1.1
    assert rhat(x * np.array([1, 1, 1, 5])) > 1.1
    assert rhat(x + np.linspace(0, 5, 500)[:, None]) > 1.1
    assert ess(x + np.arange(4)) < 20


def test_many_quantities_at_once():
    x = np.stack([autoregressive(phi) for phi in (0.0, 0.9)], -1)
    assert rhat(x).shape == ess(x).shape == (2,)
    for i in range(2):
        assert rhat(x)[i] == pytest.approx(rhat(x[..., i]))
        assert ess(x)[i] == pytest.approx(ess(x[..., i]))


def test_quantities_that_never_move_have_no_answer():
    x = np.stack([np.ones((100, 4)), autoregressive(0.0, steps=100)], -1)
    assert np.isnan(rhat(x)).tolist() == [True, False]
    assert np.isnan(ess(x)).tolist() == [True, False]


# Axes.


@pytest.mark.parametrize("measure", [rhat, ess])
def test_axes_may_be_named(measure):
    x = np.stack([autoregressive(phi) for phi in (0.0, 0.9)], -1)
    wanted = measure(x)
    np.testing.assert_allclose(measure(x.swapaxes(0, 1), draw_axis=1, chain_axis=0), wanted)
    turned = np.moveaxis(x, -1, 0)  # (quantities, samples, chains)
    np.testing.assert_allclose(measure(turned, draw_axis=-2, chain_axis=-1), wanted)


@pytest.mark.parametrize("measure", [rhat, ess])
def test_what_may_be_turned_round_is_refused(measure):
    """Chains that stand apart, passed chains first: taken for samples they would look mixed."""
    x = autoregressive(0.5) + 3 * np.arange(4)
    with pytest.raises(UndirectedError, match="500 chains of only 4 draws.*chain_axis=0"):
        measure(x.T)
    assert rhat(x.T, draw_axis=1, chain_axis=0) > 1.5
    few = x[:5, :4].repeat(2, 1)
    assert np.isfinite(measure(few, draw_axis=0, chain_axis=1))


@pytest.mark.parametrize("measure", [rhat, ess])
def test_results_of_chains_know_their_axes(measure):
    x = autoregressive(0.5, chains=50, steps=20)
    wanted = measure(x, draw_axis=0, chain_axis=1)
    np.testing.assert_array_equal(measure(SimpleNamespace(x=x)), wanted)
    with pytest.raises(UndirectedError, match="kept no states; pass observe=States"):
        measure(SimpleNamespace(x=None))


@pytest.mark.parametrize("measure", [rhat, ess])
def test_bad_draws_are_refused(measure):
    with pytest.raises(UndirectedError, match=r"shape \(100,\).*pass \(samples, chains"):
        measure(np.zeros(100))
    with pytest.raises(UndirectedError, match="draw_axis=0 and chain_axis=None"):
        measure(np.zeros((10, 4)), draw_axis=0)
    with pytest.raises(UndirectedError, match="at least 4"):
        measure(np.zeros((3, 2)))
    x = np.zeros((10, 4))
    x[0, 0] = np.inf
    with pytest.raises(NotFinite, match="1 of 40"):
        measure(x)


@pytest.mark.parametrize("draws", ["x", [[1, 2], [3]]])
def test_what_is_no_array_is_no_draws(draws):
    with pytest.raises(UndirectedError, match="ess: the draws are no array of numbers"):
        ess(draws)
