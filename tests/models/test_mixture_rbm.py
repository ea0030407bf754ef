"""The mixture inside the model, its exact samples, and the kernel that crosses between clusters."""

import equinox as eqx
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


def wrong(x: np.ndarray, truth: oracle.Truth) -> bool:
    """Whether the shares of joint states are further off than 6 standard errors anywhere.

    For independent samples of the truth a state is so with probability 2e-9.
    """
    index = {tuple(s): i for i, s in enumerate(truth.states.astype(int).tolist())}
    counts = np.zeros(len(index))
    for state in x.astype(int).tolist():
        counts[index[tuple(state)]] += 1
    p, n = truth.probabilities, len(x)
    return bool((np.abs(counts / n - p) > 6 * np.sqrt(p * (1 - p) / n) + 1e-9).any())


@eqx.filter_jit
def moved(kernel, model, x, free, key):
    return kernel.step(model, kernel.init(model, x, key), free, key)[0].x


def exact_draws(truth: oracle.Truth, count: int) -> jax.Array:
    rng = np.random.default_rng(0)
    return jnp.asarray(truth.states[rng.choice(len(truth.states), count, p=truth.probabilities)])


class Stale(MixtureGibbs):
    """Broken: the visibles stay where they were after the component has jumped."""

    def _move(self, model, index, fields, x, free, key):
        return x if index == 0 else super()._move(model, index, fields, x, free, key)


@pytest.mark.parametrize("jumps", [0.0, 1.0])
def test_a_step_leaves_the_model_invariant(jumps):
    """Fixed seed; fresh ones would fail less than once in a million."""
    model, truth = zoo.mixture_rbm(1)
    start, free = exact_draws(truth, 20_000), jnp.ones(model.layout.n, bool)
    x = moved(MixtureGibbs(jumps), model, start, free, jax.random.key(1))
    assert not wrong(np.asarray(x), truth)
    if jumps:
        assert wrong(np.asarray(moved(Stale(1.0), model, start, free, jax.random.key(1))), truth)


def test_held_units_stay_and_the_others_follow_them():
    """Fixed seed; fresh ones would fail less than once in a million."""
    model, truth = zoo.mixture_rbm(2)
    held = np.zeros(model.layout.n, bool)
    held[[0, 2]] = True
    given = truth.given(held, np.ones(model.layout.n))
    start = exact_draws(given, 20_000)
    x = moved(MixtureGibbs(1.0), model, start, jnp.asarray(~held), jax.random.key(1))
    assert (np.asarray(x)[:, held] == 1).all()
    assert not wrong(np.asarray(x), given)


def test_jumps_cross_between_clusters_that_blocks_never_leave():
    """200 columns, two opposite clusters: between them lies a state of probability e^-400."""
    means = np.stack([np.full(200, 0.02), np.full(200, 0.98)])
    model = MixtureRBM.from_mixture(np.log([0.5, 0.5]), means, 4, seed=0)
    x = jnp.zeros((400, model.layout.n)).at[:, -2].set(1)
    free = jnp.ones(model.layout.n, bool)
    share = {}
    for jumps in (0.0, 1.0):
        v = np.asarray(moved(MixtureGibbs(jumps), model, x, free, jax.random.key(0)))[:, :200]
        share[jumps] = (v.mean(1) > 0.5).mean()
    assert share[0.0] == 0.0
    assert 0.3 < share[1.0] < 0.7  # 8 standard errors


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


def test_bad_shapes_are_refused():
    with pytest.raises(UndirectedError, match=r"weights are \(3, 2\) and components \(4, 2\)"):
        MixtureRBM(jnp.zeros((3, 2)), jnp.zeros((4, 2)), *(jnp.zeros(n) for n in (3, 2, 2)))
    with pytest.raises(UndirectedError, match="got 1 component; pass 2 or more"):
        MixtureRBM(jnp.zeros((3, 2)), jnp.zeros((3, 1)), *(jnp.zeros(n) for n in (3, 2, 1)))
    with pytest.raises(UndirectedError, match="a mean is 0 or 1"):
        MixtureRBM.from_mixture([0.0, 0.0], [[0.5, 1.0], [0.5, 0.5]], 2)
    with pytest.raises(UndirectedError, match="jumps is 2; pass a share"):
        MixtureGibbs(2)
