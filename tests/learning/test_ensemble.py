"""Models learned side by side are what they would be alone."""

import jax
import numpy as np
import optax
import pytest

from undirected.learning import Batches, Ensemble, PseudoLikelihood, fit, member, stack
from undirected.models import RBM


def learn(model, data, objective, rate=0.1):
    batches = Batches(data, len(data), shuffle=False)
    return fit(model, objective, optax.sgd(rate), batches, jax.random.key(0), steps=5).model


@pytest.mark.parametrize("own_data", [False, True])
def test_members_learn_as_they_would_alone(own_data):
    models = [RBM.create(4, 3, jax.random.key(i), scale=0.5) for i in range(2)]
    rng = np.random.default_rng(0)
    data = rng.integers(0, 2, (2, 10, 4)).astype(np.float32)
    if not own_data:
        data[1] = data[0]
    together = learn(
        stack(models),
        data if own_data else data[0],
        Ensemble(PseudoLikelihood(), own_data=own_data, rates=[1.0, 0.5]),
    )
    for i, rate in enumerate((1.0, 0.5)):
        alone = learn(models[i], data[i], PseudoLikelihood(), 0.1 * rate)
        np.testing.assert_allclose(member(together, i).weights, alone.weights, atol=1e-6)
        assert np.abs(alone.weights - models[i].weights).max() > 1e-3


def test_an_empty_stack():
    with pytest.raises(ValueError, match="there are no models"):
        stack([])
