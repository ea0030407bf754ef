"""The mixture inside the model, and annealing from the mixture nearest to it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import oracle, zoo
from undirected.core.errors import UndirectedError
from undirected.evaluation import bracket
from undirected.models import MixtureRBM, ModelPath
from undirected.sampling import MixtureGibbs
from undirected.tasks.choose import kernel_for, path_to

MEANS = np.array([[0.9, 0.2, 0.7], [0.1, 0.6, 0.3], [0.5, 0.5, 0.95]])
SHARES = np.array([0.5, 0.3, 0.2])


def exact(model: MixtureRBM) -> oracle.Truth:
    return oracle.mixture_rbm(
        model.weights,
        model.components,
        model.visible_bias,
        model.hidden_bias,
        model.component_bias,
    )


@pytest.mark.usefixtures("x64")
def test_without_weights_it_is_the_mixture():
    model = MixtureRBM.from_mixture(np.log(SHARES), MEANS, 2, scale=0.0)
    truth = exact(model)
    table = oracle.visible_marginal(truth, 3)
    for state, log in table.items():
        v = np.array(state)
        want = (SHARES * np.prod(np.where(v, MEANS, 1 - MEANS), 1)).sum()
        assert np.exp(log - truth.log_z) == pytest.approx(want, rel=1e-9)


@pytest.mark.usefixtures("x64")
def test_component_fields_sum_the_free_visibles_out():
    model, truth = zoo.mixture_rbm(3)
    V, H = model.n_visible, model.n_hidden
    h = np.array([1.0, 0.0])
    for mask in ([0, 0, 0, 0], [1, 0, 1, 0]):
        held, v = np.array(mask, bool), np.array([1.0, 0.0, 0.0, 1.0])
        known = np.concatenate([held, np.ones(H, bool), np.zeros(3, bool)])
        given = truth.given(known, np.concatenate([v, h, np.zeros(3)]))
        fields = model.component_fields(jnp.asarray(h), jnp.asarray(held, float), jnp.asarray(v))
        assert np.allclose(jax.nn.softmax(fields), given.means[V + H :], atol=1e-10)


def test_log_z_from_the_mixture_is_right_and_tight():
    """Fixed seed; the 99 % interval of fresh ones would miss once in a hundred."""
    model, truth = zoo.mixture_rbm(5)
    path = path_to(model)
    assert isinstance(kernel_for(model), MixtureGibbs)
    found = bracket(path, MixtureGibbs(), seed=0, chains=200, betas=100)
    assert found.interval[0] <= truth.log_z <= found.interval[1]
    assert found.spread < 0.3
    with pytest.raises(UndirectedError, match="the base has couplings"):
        bracket(ModelPath(model, model), MixtureGibbs(), seed=0)


def test_annealing_begins_in_every_component():
    """Also in those that the nearest mixture thinks light: it may be wrong by many nats."""
    model = MixtureRBM.from_mixture(np.log([0.998, 0.001, 0.001]), MEANS, 2, seed=0, scale=2.0)
    x, _ = model.tractable().exact_samples(60, jax.random.key(0))
    counts = np.asarray(x)[:, -3:].sum(0)
    assert counts.min() >= 9, "a sixth of 60, to within one"
    found = bracket(path_to(model), MixtureGibbs(), seed=0, chains=200, betas=100)
    assert found.interval[0] <= exact(model).log_z <= found.interval[1]


def test_states_of_a_mixture_have_its_shares():
    """5,000 sets of 7 states, a fixed seed: means of shares within 5 standard errors."""
    model = MixtureRBM.from_mixture(np.log(SHARES), MEANS, 2, scale=0.0)
    assert np.allclose(model.tractable().component_bias, model.component_bias, atol=1e-5)
    draws = jax.vmap(lambda key: model.exact_samples(7, key)[0])
    x = np.asarray(draws(jax.random.split(jax.random.key(0), 5000)), float)
    z, v = x[..., -3:], x[..., :3]
    assert (np.abs(z.sum(1) - 7 * SHARES) < 1 + 1e-6).all()
    assert np.allclose(z.mean((0, 1)), SHARES, atol=5 * 0.15 / np.sqrt(5000))
    wanted = SHARES @ MEANS
    assert np.allclose(v.mean((0, 1)), wanted, atol=5 * 0.5 / np.sqrt(35000))
    lone = (v * z[..., :1]).sum((0, 1)) / z[..., 0].sum()
    assert np.allclose(lone, MEANS[0], atol=5 * 0.5 / np.sqrt(17500))


def test_bad_shapes_are_refused():
    with pytest.raises(UndirectedError, match=r"weights are \(3, 2\) and components \(4, 2\)"):
        MixtureRBM(jnp.zeros((3, 2)), jnp.zeros((4, 2)), *(jnp.zeros(n) for n in (3, 2, 2)))
    with pytest.raises(UndirectedError, match="got 1 component; pass 2 or more"):
        MixtureRBM(jnp.zeros((3, 2)), jnp.zeros((3, 1)), *(jnp.zeros(n) for n in (3, 2, 1)))
    with pytest.raises(UndirectedError, match="a mean is 0 or 1"):
        MixtureRBM.from_mixture([0.0, 0.0], [[0.5, 1.0], [0.5, 0.5]], 2)
