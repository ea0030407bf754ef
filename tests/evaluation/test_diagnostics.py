import warnings

import numpy as np
import pytest

from undirected.core.errors import NotFinite, UndirectedError
from undirected.evaluation import effective_sample_size, rhat


def autoregressive(phi, chains=4, steps=500, seed=0):
    """x_t = phi x_{t-1} + noise, from its stationary distribution."""
    rng = np.random.default_rng(seed)
    x = np.zeros((chains, steps))
    x[:, 0] = rng.standard_normal(chains) / np.sqrt(1 - phi**2)
    for t in range(1, steps):
        x[:, t] = phi * x[:, t - 1] + rng.standard_normal(chains)
    return x


@pytest.mark.parametrize("phi", [-0.5, 0.0, 0.5, 0.95])
@pytest.mark.parametrize("steps", [500, 501])
def test_same_numbers_as_arviz(phi, steps):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arviz = pytest.importorskip("arviz")
    for x in (autoregressive(phi, steps=steps), np.round(autoregressive(phi, steps=steps))):
        assert rhat(x) == pytest.approx(float(arviz.rhat(x)), rel=1e-9)
        wanted = float(arviz.ess(x, method="bulk"))
        assert effective_sample_size(x) == pytest.approx(wanted, rel=1e-9)


def test_effective_size_is_that_of_the_process():
    """n (1 - phi) / (1 + phi); 10 % is 8 standard errors at this length."""
    x = autoregressive(0.5, chains=8, steps=20_000)
    assert effective_sample_size(x) == pytest.approx(8 * 20_000 / 3, rel=0.1)


def test_chains_apart_are_seen():
    x = autoregressive(0.5)
    assert rhat(x) < 1.01
    assert rhat(x + np.arange(4)[:, None]) > 1.1
    assert rhat(x * np.array([1, 1, 1, 5])[:, None]) > 1.1
    assert rhat(x + np.linspace(0, 5, 500)) > 1.1
    assert effective_sample_size(x + np.arange(4)[:, None]) < 20


def test_many_quantities_at_once():
    x = np.stack([autoregressive(phi) for phi in (0.0, 0.9)], -1)
    assert rhat(x).shape == effective_sample_size(x).shape == (2,)
    for i in range(2):
        assert rhat(x)[i] == pytest.approx(rhat(x[..., i]))
        assert effective_sample_size(x)[i] == pytest.approx(effective_sample_size(x[..., i]))


def test_traces_that_never_move_have_no_answer():
    x = np.stack([np.ones((4, 100)), autoregressive(0.0, steps=100)], -1)
    assert np.isnan(rhat(x)).tolist() == [True, False]
    assert np.isnan(effective_sample_size(x)).tolist() == [True, False]


@pytest.mark.parametrize("measure", [rhat, effective_sample_size])
def test_bad_traces_are_refused(measure):
    with pytest.raises(UndirectedError, match=r"shape \(100,\); pass \(chains, steps"):
        measure(np.zeros(100))
    with pytest.raises(UndirectedError, match="at least 4 steps"):
        measure(np.zeros((4, 3)))
    x = np.zeros((4, 10))
    x[0, 0] = np.inf
    with pytest.raises(NotFinite, match="1 of 40"):
        measure(x)
