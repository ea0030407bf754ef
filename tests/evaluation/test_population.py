"""Population annealing: log Z and samples against enumeration, resampling, a broken twin."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.sampling import cases
from undirected.core.errors import UndirectedError
from undirected.evaluation import population_annealing
from undirected.evaluation.population import systematic
from undirected.models import ModelPath
from undirected.sampling import BlockGibbs, Gibbs

OPTIONS = {"populations": 40, "members": 500, "betas": 8, "seed": 0}


@dataclass(frozen=True)
class Cold(Gibbs):
    """Broken: moves at twice the inverse temperature."""

    def step(self, model, state, free, key):
        return super().step(jax.tree.map(lambda a: 2 * a, model), state, free, key)


def annealed(kernel):
    case = cases.make("dense")
    path = ModelPath(case.model.independent(), case.model)
    return case.truth, population_annealing(path, kernel, **OPTIONS)


def test_log_z_and_samples_are_those_of_the_model():
    """Within 4.5 standard errors (once in 100,000); members of a family are alike, so means."""
    truth, found = annealed(Gibbs())
    assert abs(found.log_z - truth.log_z) < 4.5 * found.stderr
    assert 0 < found.stderr < 0.03 and found.interval[0] < truth.log_z < found.interval[1]
    assert 1 < found.family < 50
    assert found.samples.shape == (40 * 500, len(truth.means))
    means = np.asarray(found.samples).reshape(40, 500, -1).mean(1)
    error = means.std(0, ddof=1) / np.sqrt(40)
    assert (np.abs(means.mean(0) - truth.means) < 5.5 * error).all()  # t of 39, five means


def test_hidden_units_are_summed_out():
    """Within 4.5 standard errors (once in 100,000); the hidden units of samples are drawn too."""
    case = cases.make("rbm")
    path = ModelPath(case.model.independent(), case.model)
    found = population_annealing(path, BlockGibbs(), **OPTIONS)
    assert abs(found.log_z - case.truth.log_z) < 4.5 * found.stderr
    assert found.stderr < 0.03
    means = np.asarray(found.samples).reshape(40, 500, -1).mean(1)
    error = means.std(0, ddof=1) / np.sqrt(40)
    assert (np.abs(means.mean(0) - case.truth.means) < 5.5 * error).all()


def test_a_broken_kernel_is_caught():
    truth, found = annealed(Cold())
    assert abs(found.log_z - truth.log_z) > 4.5 * found.stderr


def test_resampling_is_in_proportion():
    weight = np.array([[0.1, 0.2, 0.3, 0.4, 0.0, 1.0], [1, 1, 1, 1, 1, 1.0]])
    share = 6 * weight / weight.sum(1, keepdims=True)
    total = np.zeros((2, 6))
    for seed in range(200):
        parent = np.asarray(systematic(jnp.asarray(weight), jax.random.key(seed)))
        counts = np.stack([np.bincount(own, minlength=6) for own in parent])
        assert (np.abs(counts - share) < 1).all()  # no luck beyond rounding
        total += counts
    np.testing.assert_allclose(total / 200, share, atol=0.15)
    np.testing.assert_array_equal(total[1], 200)


def test_populations_of_one_are_refused():
    model = cases.make("dense").model
    path = ModelPath(model.independent(), model)
    with pytest.raises(UndirectedError, match="populations is 1; .* from 2"):
        population_annealing(path, Gibbs(), populations=1)
    with pytest.raises(UndirectedError, match="members is 1; .* from 2"):
        population_annealing(path, Gibbs(), members=1)
